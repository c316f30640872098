"""A file with a job's manifest: what kubectl would apply, looked at before a cluster sees it. All that is wrong is found at once, each fault with
the path of its field."""

import base64
import binascii
import copy
import functools
import re
from dataclasses import dataclass, field

import yaml

from tessera_operator import names, quantity
from tessera_operator.job import InvalidJob, InvalidManifest, faults_of
from tessera_operator.pod_rules import fault_of_key, fault_of_label, mistakes
from tessera_operator.pod_schema import spec_schema, whole_crd

USED = (*names.KINDS, "Secret", "ConfigMap")
TYPES = {"object": (dict, "an object"), "array": (list, "a list"), "string": (str, "a text"), "integer": (int, "a whole number"),
         "number": ((int, float), "a number"), "boolean": (bool, "true or false")}
# What the reader of YAML says with what stands there, which may be a secret: what is said instead.
TOLD = {"found undefined alias": "a text that begins with '*' is in quotes: without them it stands for an anchor, and there is none of that name",
        "could not determine a constructor for the tag": "a text that begins with '!' is in quotes: without them it is a tag, and there is none of that name",
        "found undefined tag handle": "a text that begins with '!' is in quotes: without them it is a tag, and there is none of that name"}
NO_TEXT = "a field's name must be a text: write it in quotes"
MAX_FILE = 8 << 20  # characters; an API server takes an object of some 1.5 MB
MAX_DEPTH = 100  # of objects and lists within one another
MAX_COPIES = 10_000  # what aliases stand for, written out: so many values ...
MAX_COPIED = 4 << 20  # ... with so many characters
# Fields of an MSJob that ms-operator has, and what there is in their place.
ELSEWHERE = {"schedulingPolicy": "all pods are placed at once by the gang of a TesseraJob, and priorityClassName is a field of the template's spec",
             "enableDynamicWorker": "kubectl scale changes the number of workers of any job"}
NO_UID = "00000000-0000-0000-0000-000000000000"
# Of an object's metadata what is a user's; the rest an API server sets, as where `kubectl get -o yaml` has written the file.
OWN_METADATA = ("name", "namespace", "labels", "annotations")


@dataclass
class Manifest:
    """A job, with the defaults of its CRD, and what stands beside it in its file."""
    body: dict
    secrets: dict = field(default_factory=dict)  # name -> {key: bytes}
    config_maps: dict = field(default_factory=dict)  # likewise
    others: list = field(default_factory=list)  # "PodGroup queued": what is of no use without a cluster
    notes: list = field(default_factory=list)  # what a cluster may refuse, or not know


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: 1:30 is a text, not 90. A key that stands twice is an error: one of the two would be forgotten."""

    def fetch_flow_collection_start(self, token):
        """Bounded here, as each level makes every following token slower to read."""
        if self.flow_level >= MAX_DEPTH:
            raise yaml.scanner.ScannerError(None, None, f"it is nested more than {MAX_DEPTH} times", self.get_mark())
        super().fetch_flow_collection_start(token)


# Without YAML 1.1's numbers to the base of 60.
_INT = re.compile(r"[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NUMBERS = {"tag:yaml.org,2002:int": _INT, "tag:yaml.org,2002:float": _FLOAT}
_Loader.yaml_implicit_resolvers = {first: [(tag, re.compile(rf"(?:{_NUMBERS[tag].pattern})\Z") if tag in _NUMBERS else pattern) for tag, pattern in resolvers]
                                   for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()}


def _wrong(node, words):
    return yaml.constructor.ConstructorError(None, None, words, node.start_mark)


def _mapping(loader, node):
    if not isinstance(node, yaml.MappingNode):
        raise _wrong(node, "it is no object")
    seen = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen and key.value != "<<":
                raise _wrong(key, f"the key {key.value!r} stands twice")
            seen.add(key.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


def _number(loader, node):
    text = loader.construct_scalar(node)
    if not _INT.fullmatch(text) and not (node.tag.endswith(":float") and _FLOAT.fullmatch(text)):
        raise _wrong(node, "what stands there is no number")
    if node.tag.endswith(":float"):
        return loader.construct_yaml_float(node)
    if len(text) > 70 or not -2**63 <= (value := loader.construct_yaml_int(node)) < 2**64:
        raise _wrong(node, "the number does not fit in 64 bits")
    return value


def _text(loader, node):
    """JSON writes a character beyond U+FFFF as two halves."""
    text = loader.construct_scalar(node)
    if any("\ud800" <= character <= "\udfff" for character in text):
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _number)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.add_constructor("tag:yaml.org,2002:str", _text)


def _bound_aliases(root):
    """Throws where a document is nested too deeply, or its aliases stand for more than a manifest can have. Each node is looked at once, whatever
    refers to it."""
    sizes = {}  # of a node that is done: (values, characters) with all below it written out; None: it is being looked at
    values = characters = 0  # as they are written

    def parts(node):
        return [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value

    def open_node(node):
        nonlocal values, characters
        values += 1
        if isinstance(node, yaml.ScalarNode):
            characters += len(node.value)
            sizes[id(node)] = (1, len(node.value))
            return
        if len(stack) >= MAX_DEPTH:
            raise _wrong(node, f"it is nested more than {MAX_DEPTH} times")
        sizes[id(node)] = None
        stack.append([node, iter(parts(node)), 1, 0])

    stack = []
    open_node(root)
    while stack:
        node, rest, count, length = stack[-1]
        part = next(rest, None)
        if part is None:
            sizes[id(node)] = (count, length)
            stack.pop()
            if stack:
                stack[-1][2] += count
                stack[-1][3] += length
        elif id(part) not in sizes:
            open_node(part)
            if isinstance(part, yaml.ScalarNode):
                stack[-1][2] += 1
                stack[-1][3] += len(part.value)
        elif sizes[id(part)] is None:
            raise _wrong(part, "an alias stands for what it lies in")
        else:
            stack[-1][2] += sizes[id(part)][0]
            stack[-1][3] += sizes[id(part)][1]
    count, length = sizes[id(root)]
    if count - values > MAX_COPIES or length - characters > MAX_COPIED:
        raise _wrong(root, f"the document's aliases stand for more than {MAX_COPIES} values or {MAX_COPIED >> 20} MiB: write out what they stand for")


def shown(value):
    """As a message has it: YAML's words for what Python writes otherwise."""
    words = {None: "null", True: "true", False: "false"}
    if isinstance(value, str):
        value = printable(value)
    text = words[value] if value is None or isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def kind_of(value):
    """What stands in the place of a value that may be a secret."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    return next((words for kind, words in TYPES.values() if isinstance(value, kind)), "neither a text nor a number")


def printable(key):
    """What stands at the end of a field's path, on one line, whatever it is."""
    text = key if isinstance(key, str) else str(key)
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text[:80]) + "..." * (len(text) > 80)


def fault_of_text(text):
    """What no text that a process is given can have; None where it has nothing of it."""
    if "\0" in text:
        return "it has the character U+0000, where a text ends"
    return half_of_character(text)


def half_of_character(text):
    half = next((character for character in text if "\ud800" <= character <= "\udfff"), None)
    return half and f"it has U+{ord(half):04X}, which is half of a character"


def _below(node, key):
    """The node of an object's field; None where there is none."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for name, value in pairs if isinstance(name, yaml.ScalarNode) and name.value == key), None)


def _plain(node):
    return node.value if isinstance(node, yaml.ScalarNode) else ""


def _items(loader, node):
    """(line, object) of a document. Of what no job can use there is but kind and name: the rest is not looked at."""
    kind, items, line = _plain(_below(node, "kind")), _below(node, "items"), node.start_mark.line + 1
    if kind == "List" and isinstance(items, yaml.SequenceNode):
        _bound_aliases(node)
        return [item for part in items.value for item in _items(loader, part)]
    if kind and kind not in USED and _below(node, "<<") is None:
        return [(line, {"kind": kind, "metadata": {"name": _plain(_below(_below(node, "metadata"), "name"))}})]
    _bound_aliases(node)
    return [(line, loader.construct_document(node))]


def _documents(text, origin):
    if len(text) > MAX_FILE:
        raise InvalidManifest(origin, [f"it has more than {MAX_FILE >> 20} MiB, which is no manifest"])
    items = []
    try:
        loader = _Loader(text)
        while loader.check_node():
            items += [item for item in _items(loader, loader.get_node()) if item[1] is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        said = error.problem or error.context or ""
        raise InvalidManifest(origin, [f"{place}it is no YAML: {next((words for begin, words in TOLD.items() if said.startswith(begin)), said)}"]) from None
    except RecursionError:
        raise InvalidManifest(origin, [f"it is no YAML of a manifest: it is nested more than {MAX_DEPTH} times"]) from None
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidManifest(origin, [f"it is no YAML: {error}"]) from None
    except (AttributeError, KeyError):  # of a tag such as !!bool before what is none
        raise InvalidManifest(origin, ["it is no YAML: a value is not what its tag (!!) says"]) from None
    return items


def _name_of(item):
    metadata = item.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def _data_of(item, is_secret, faults):
    """The keys of a Secret or a ConfigMap with their bytes. `faults` is told of each key that cannot be one."""
    found, at = {}, f"{item['kind']} {_name_of(item)}"
    said = kind_of if is_secret else shown
    for name, is_coded in ((("data", True), ("stringData", False)) if is_secret else (("binaryData", True), ("data", False))):
        data = item.get(name)
        if not isinstance(data, (dict, type(None))):
            faults.append(f"{at}: {name}: it is {said(data)}, but must be an object")
            continue
        for key, value in (data or {}).items():
            wrong = fault_of_key(key)
            if wrong is None and not isinstance(value, str):
                wrong = f"it is {said(value)}, but must be a text" + (": write it in quotes" if isinstance(value, (int, float)) else "")
            if wrong is None:
                try:
                    found[key] = base64.b64decode("".join(value.split()), validate=True) if is_coded else value.encode()
                except (binascii.Error, UnicodeEncodeError, ValueError):
                    wrong = "it is no base64" if is_coded else half_of_character(value)
            if wrong is not None:
                faults.append(f"{at}: {name}.{printable(key)}: {wrong}")
    return found


def load(text, origin, job_name=None, namespace=None):
    """The job of a file; where it has several, that of `job_name`. Throws InvalidManifest with all faults."""
    manifest, jobs, faults = Manifest(None), [], []
    for line, item in _documents(text, origin):
        kind = item.get("kind") if isinstance(item, dict) else None
        if not isinstance(kind, str):
            of_kind = f"its kind is {kind_of(kind)}, but must be a text" if kind is not None else "it has no kind"
            raise InvalidManifest(origin, [f"line {line}: what begins there is no object of Kubernetes: "
                                           + (of_kind if isinstance(item, dict) else f"it is {kind_of(item)}")])
        if kind in names.KINDS:
            jobs.append(item)
        elif kind in ("Secret", "ConfigMap"):
            (manifest.secrets if kind == "Secret" else manifest.config_maps)[_name_of(item)] = _data_of(item, kind == "Secret", faults)
        else:
            manifest.others.append(f"{kind} {_name_of(item)}".strip())
    chosen = [item for item in jobs if job_name is None or _name_of(item) == job_name]
    if len(chosen) != 1:
        has = ", ".join(f"{item['kind']} {_name_of(item)}" for item in jobs) or ", ".join(manifest.others) or "nothing"
        wanted = f"no job {job_name!r}" if job_name else f"no {' and no '.join(names.KINDS)}" if not jobs else f"{len(jobs)} jobs: name one by --job"
        raise InvalidManifest(origin, [f"it has {wanted}" + ("" if len(chosen) > 1 else f"; it has {has}")])
    manifest.body = copy.deepcopy(chosen[0])
    faults += _check(manifest, namespace)
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
    for name in [name for name in body if name not in ("apiVersion", "kind", "metadata", "spec", "status")]:
        if isinstance(name, str):
            walk.unknown(printable(name), name, ("apiVersion", "kind", "metadata", "spec"))
        else:
            walk.fault(printable(name), NO_TEXT)
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        walk.fault("metadata.name", "a job needs a name")
        metadata = body["metadata"] = {"name": ""}
    body.pop("status", None)
    if not isinstance(metadata.get("namespace"), (str, type(None))):
        walk.fault("metadata.namespace", f"it is {shown(metadata.pop('namespace'))}, but must be a text: write it in quotes")
    elif metadata.get("namespace") and (wrong := fault_of_label(metadata["namespace"])):
        walk.fault("metadata.namespace", wrong)
    metadata = body["metadata"] = {name: metadata[name] for name in OWN_METADATA if name in metadata}
    metadata |= {"namespace": namespace or metadata.get("namespace") or "default", "uid": NO_UID, "generation": 1, "resourceVersion": "1"}
    spec = _spec_schema(body["kind"])
    if "spec" in body:
        walk.look(spec, body, "spec", "spec")
    else:
        walk.fault("spec", "it is missing")
    if metadata["name"]:
        for fault in faults_of(body):
            walk.add_rule(fault)
    for place, template in _templates(body):
        for path, words in mistakes(template.get("spec"), f"{place}.spec"):
            walk.add_rule(InvalidJob(path, words))
    manifest.notes += walk.notes
    return walk.faults


def _templates(body):
    """(path, template) of each role. Values of wrong types were named before."""
    spec = body.get("spec")
    roles = spec.get("msReplicaSpecs") if isinstance(spec, dict) else None
    return [(f"spec.msReplicaSpecs.{name}.template", role["template"]) for name, role in (roles.items() if isinstance(roles, dict) else ())
            if isinstance(role, dict) and isinstance(role.get("template"), dict)]


def _nearest(name, known):
    """The one that the name, or the beginning of one that it, is misspelt of; None where none differs by but a letter or two."""
    def edits(other):
        row = list(range(len(other) + 1))
        for number, letter in enumerate(name.lower(), 1):
            above, row = row, [number]
            for place, theirs in enumerate(other.lower()):
                row.append(min(above[place] + (letter != theirs), above[place + 1] + 1, row[place] + 1))
        return min(row), row[-1]
    found = min(known, key=edits, default=None)
    return found if found is not None and edits(found)[0] <= min(2, len(name) // 3) else None


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
        near = _nearest(name[:100], known)
        meant = f"; {ELSEWHERE[name]}" if name in ELSEWHERE else f"; did you mean {near}?" if near else ""
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
            elif "pattern" in schema and not re.search(re.sub(r"\$$", r"\\Z", schema["pattern"]), str(value)):
                self.fault(path, f"it is {shown(value)}, but must be a quantity, such as 2, 500m or 4Gi")
            elif "pattern" in schema and quantity.is_too_large(value):
                self.fault(path, f"it is {shown(value)}, but must be at most 2^63-1 ({quantity.MAX})")
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
            if wrong := fault_of_text(value):
                self.fault(path, wrong)
            elif "pattern" in schema and not re.search(re.sub(r"\$$", r"\\Z", schema["pattern"]), value):
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
            place = f"{path}.{printable(name)}"
            if not isinstance(name, str):
                self.fault(place, NO_TEXT)
            elif wrong := fault_of_text(name):
                self.fault(place, wrong)
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
