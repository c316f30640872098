"""A file with a job's manifest: what kubectl would apply, looked at before a cluster sees it. All that is wrong is found at once, each fault with
the path of its field."""

import base64
import copy
import difflib
import functools
import re
from dataclasses import dataclass, field

import yaml

from tessera_operator import names
from tessera_operator.job import faults_of
from tessera_operator.pod_schema import spec_schema, whole_crd

TYPES = {"object": (dict, "an object"), "array": (list, "a list"), "string": (str, "a text"), "integer": (int, "a whole number"),
         "number": ((int, float), "a number"), "boolean": (bool, "true or false")}
NO_UID = "00000000-0000-0000-0000-000000000000"


class InvalidManifest(Exception):
    """`faults`: a text for each, which begins with the path of its field."""

    def __init__(self, origin, faults):
        super().__init__("\n".join(f"{origin}: {fault}" for fault in faults))
        self.faults = faults


@dataclass
class Manifest:
    """A job, with the defaults of its CRD, and what stands beside it in its file."""
    body: dict
    secrets: dict = field(default_factory=dict)  # name -> {key: bytes}
    config_maps: dict = field(default_factory=dict)  # likewise
    others: list = field(default_factory=list)  # "PodGroup queued": what is of no use without a cluster
    notes: list = field(default_factory=list)  # what a cluster may refuse, or not know


class _Loader(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error: one of the two would be forgotten."""


def _mapping(loader, node):
    seen = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen and key.value != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"the key {key.value!r} stands twice", key.start_mark)
            seen.add(key.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def shown(value):
    """As a message has it: YAML's words for what Python writes otherwise."""
    words = {None: "null", True: "true", False: "false"}
    text = words[value] if value is None or isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _documents(text, origin):
    try:
        found = [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise InvalidManifest(origin, [f"{place}it is no YAML: {error.problem or error.context}"]) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InvalidManifest(origin, [f"it is no YAML: {error}"]) from None
    items = []
    for document in found:
        of_list = isinstance(document, dict) and document.get("kind") == "List" and isinstance(document.get("items"), list)
        items += document["items"] if of_list else [document]
    return items


def _name_of(item):
    metadata = item.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def _data_of(item, is_secret):
    """The keys of a Secret or a ConfigMap with their bytes."""
    try:
        coded = {key: base64.b64decode(value, validate=True) for key, value in (item.get("data" if is_secret else "binaryData") or {}).items()}
        return coded | {key: value.encode() for key, value in (item.get("stringData" if is_secret else "data") or {}).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidManifest(f"{item['kind']} {_name_of(item)}", [f"data: {error}"]) from None


def load(text, origin, job_name=None, namespace=None):
    """The job of a file; where it has several, that of `job_name`. Throws InvalidManifest with all faults."""
    manifest, jobs = Manifest(None), []
    for item in _documents(text, origin):
        kind = item.get("kind") if isinstance(item, dict) else None
        if not isinstance(kind, str):
            raise InvalidManifest(origin, [f"a document is no object of Kubernetes: {shown(item)}"])
        if kind in names.KINDS:
            jobs.append(item)
        elif kind in ("Secret", "ConfigMap"):
            (manifest.secrets if kind == "Secret" else manifest.config_maps)[_name_of(item)] = _data_of(item, kind == "Secret")
        else:
            manifest.others.append(f"{kind} {_name_of(item)}".strip())
    chosen = [item for item in jobs if job_name is None or _name_of(item) == job_name]
    if len(chosen) != 1:
        has = ", ".join(f"{item['kind']} {_name_of(item)}" for item in jobs) or ", ".join(manifest.others) or "nothing"
        wanted = f"no job {job_name!r}" if job_name else f"no {' and no '.join(names.KINDS)}" if not jobs else f"{len(jobs)} jobs: name one by --job"
        raise InvalidManifest(origin, [f"it has {wanted}" + ("" if len(chosen) > 1 else f"; it has {has}")])
    manifest.body = copy.deepcopy(chosen[0])
    faults = _check(manifest, namespace)
    if faults:
        raise InvalidManifest(origin, faults)
    return manifest


@functools.lru_cache
def _spec_schema(kind):
    return spec_schema(whole_crd(kind))


def _check(manifest, namespace):
    body = manifest.body
    group, version, _ = names.KINDS[body["kind"]]
    walk = _Walk()
    if body.get("apiVersion") != f"{group}/{version}":
        walk.fault("apiVersion", f"it is {shown(body.get('apiVersion'))}, but that of a {body['kind']} is {group}/{version}")
    for name in sorted(set(body) - {"apiVersion", "kind", "metadata", "spec", "status"}):
        walk.unknown(name, name, ("apiVersion", "kind", "metadata", "spec"))
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        walk.fault("metadata.name", "a job needs a name")
        metadata = body["metadata"] = {"name": ""}
    body.pop("status", None)
    metadata |= {"namespace": namespace or metadata.get("namespace") or "default", "uid": NO_UID, "generation": 1, "resourceVersion": "1"}
    spec = _spec_schema(body["kind"])
    if "spec" in body:
        walk.look(spec, body, "spec", "spec")
    else:
        walk.fault("spec", "it is missing")
    if metadata["name"]:
        for fault in faults_of(body):
            walk.add_rule(fault)
    manifest.notes += walk.notes
    return walk.faults


class _Walk:
    """Holds values to an OpenAPI schema as a CRD has it, and fills in its defaults."""

    def __init__(self):
        self.faults, self.notes, self._paths = [], [], set()

    def fault(self, path, words):
        self._paths.add(path)
        self.faults.append(f"{path}: {words}")

    def add_rule(self, fault):
        """A rule between fields, where nothing was said of the field yet."""
        if fault.field not in self._paths:
            self.fault(fault.field, str(fault).removeprefix(f"{fault.field}: "))

    def unknown(self, path, name, known, is_fault=True):
        near = difflib.get_close_matches(name, known, 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        if is_fault:
            self.fault(path, f"there is no such field{meant}")
        else:
            self.notes.append(f"{path}: a pod has no such field, unless the cluster is newer{meant}")

    def look(self, schema, parent, key, path):
        """At parent[key]."""
        value = parent[key]
        if schema.get("x-kubernetes-int-or-string"):
            if isinstance(value, bool) or not isinstance(value, (int, float, str)):
                self.fault(path, f"it is {shown(value)}, but must be a number or a text")
            elif "pattern" in schema and not re.search(schema["pattern"], str(value)):
                self.fault(path, f"it is {shown(value)}, but must be a quantity, such as 2, 500m or 4Gi")
            return
        wanted = schema.get("type")
        kind, words = TYPES.get(wanted, (object, ""))
        if not isinstance(value, kind) or isinstance(value, bool) and wanted in ("integer", "number"):
            hint = ': write it in quotes' if wanted == "string" and not isinstance(value, (dict, list, type(None))) else ""
            return self.fault(path, f"it is {shown(value)}, but must be {words}{hint}")
        if "enum" in schema and value not in schema["enum"]:
            return self.fault(path, f"it is {shown(value)}, but must be one of {', '.join(map(shown, schema['enum']))}")
        if isinstance(value, dict):
            self._object(schema, value, path)
        elif isinstance(value, list):
            self._count(schema, len(value), path, "minItems", "maxItems", "entries")
            for index in range(len(value)):
                self.look(schema.get("items", {}), value, index, f"{path}[{index}]")
        elif isinstance(value, str):
            self._count(schema, len(value), path, "minLength", "maxLength", "characters")
            if "pattern" in schema and not re.search(schema["pattern"], value):
                self.fault(path, f"it is {shown(value)}, but must match {schema['pattern']}")
        elif not isinstance(value, bool) and isinstance(value, (int, float)):
            self._count(schema, value, path, "minimum", "maximum", "")

    def _count(self, schema, number, path, least, most, noun):
        if number < schema.get(least, number) or number > schema.get(most, number):
            bounds = [f"at least {schema[least]}"] if least in schema else []
            bounds += [f"at most {schema[most]}"] if most in schema else []
            self.fault(path, (f"it has {number} {noun}, but must have " if noun else f"it is {number}, but must be ") + " and ".join(bounds))

    def _object(self, schema, value, path):
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        self._count(schema, len(value), path, "minProperties", "maxProperties", "fields")
        for name, part in properties.items():
            if name not in value and "default" in part:
                value[name] = copy.deepcopy(part["default"])
        for name in schema.get("required") or []:
            if name not in value:
                self.fault(f"{path}.{name}", "it is missing")
        for name in list(value):
            place = f"{path}.{name}"
            if not isinstance(name, str):
                self.fault(place, "a field's name must be a text: write it in quotes")
            elif name in properties:
                if value[name] is None:
                    del value[name]  # as the API server has it: null is as if nothing stood there
                    if name in (schema.get("required") or []):
                        self.fault(place, "it is missing")
                else:
                    self.look(properties[name], value, name, place)
            elif isinstance(others, dict):
                self.look(others, value, name, place)
            elif properties or not schema.get("x-kubernetes-preserve-unknown-fields"):
                self.unknown(place, name, properties, is_fault=not schema.get("x-kubernetes-preserve-unknown-fields"))
