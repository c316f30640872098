#!/usr/bin/env python3
"""Writes tessera_operator/pod_template.json, which fields a pod's template has, by the official client; and of that and
tessera_operator/schema.py the CRDs, config/crd/*.yaml. Run it with the interpreter that scripts/operator_env.py prints; a
test compares what it would write with what is there.

    make_manifests.py [--check]
"""

import json
import sys
import textwrap
from pathlib import Path

import kubernetes.client
import yaml

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from tessera_operator import names, pod_schema  # noqa: E402

PLACE = "config/crd"  # chart/crds leads there
HEAD = "# Written by make_manifests.py from tessera_operator/schema.py: change it there.\n"
# Fields that hold quantities, which may be written as numbers: the client's types call them texts.
QUANTITIES = {"limits", "requests", "overhead", "capacity", "hard"}
INT_OR_STRING = {"x-kubernetes-int-or-string": True}
# As Kubernetes reads them: 2, 500m, 1.5Gi, 1e3. None of a pod's is negative.
QUANTITY = INT_OR_STRING | {"pattern": r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"}


def template_schema():
    """What pod_schema.template_schema() reads, as the official client has it."""
    model = kubernetes.client.V1PodTemplateSpec.model_json_schema(by_alias=True, mode="serialization")
    known = model["$defs"]

    def of(part, name=""):
        if "$ref" in part:
            return of(known[part["$ref"].rsplit("/", 1)[-1]], name)
        if "anyOf" in part:
            kinds = [kind for kind in part["anyOf"] if kind.get("type") != "null"]
            if {kind.get("type") for kind in kinds} == {"integer", "string"}:
                return dict(INT_OR_STRING)
            return of(kinds[0], name)
        if name == "creationTimestamp" or part.get("format") == "date-time":
            return {"type": "string", "format": "date-time"}
        if part.get("type") == "array":
            return {"type": "array", "items": of(part["items"])}
        if part.get("type") == "object" and "properties" in part:
            found = {"type": "object", "properties": {key: of(item, key) for key, item in part["properties"].items()},
                     "x-kubernetes-preserve-unknown-fields": True}
            return found | ({"required": part["required"]} if part.get("required") else {})
        if part.get("type") == "object":
            values = part.get("additionalProperties")
            if not isinstance(values, dict) or not values:
                return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            return {"type": "object", "additionalProperties": dict(QUANTITY) if name in QUANTITIES else of(values)}
        if name in ("sizeLimit", "divisor"):
            return dict(QUANTITY)
        if part.get("type") in ("string", "integer", "boolean", "number"):
            return {"type": part["type"]}
        return {"x-kubernetes-preserve-unknown-fields": True, "type": "object"}

    whole = of(model)
    # Of the metadata only what a pod of a job can have: name and the like are the operator's.
    metadata = whole["properties"]["metadata"]
    metadata["properties"] = {key: metadata["properties"][key] for key in ("labels", "annotations")}
    del metadata["x-kubernetes-preserve-unknown-fields"]
    del whole["x-kubernetes-preserve-unknown-fields"]
    return whole


def crds():
    """File's name -> CRD."""
    return {f"{plural}.{group}.yaml": pod_schema.whole_crd(kind) for kind, (group, _, plural) in names.KINDS.items()}


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data):
        return True


def text_of(crd):
    return HEAD + yaml.dump(crd, Dumper=_Dumper, sort_keys=False, width=150, allow_unicode=True, default_flow_style=None)


def template_text():
    """JSON in lines of a readable length; none of its texts has a space at which one could be cut."""
    template = template_schema()
    text = textwrap.fill(json.dumps(template), 150, break_long_words=False, break_on_hyphens=False) + "\n"
    assert json.loads(text) == template
    return text


def main():
    is_check, faults = "--check" in sys.argv[1:], 0

    def put(path, text, source):
        nonlocal faults
        if is_check and (not path.exists() or path.read_text() != text):
            print(f"{path.relative_to(FOLDER)}: not as {source} has it; run make_manifests.py")
            faults += 1
        elif not is_check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    put(pod_schema.TEMPLATE, template_text(), "the official client")
    for name, crd in crds().items():
        put(FOLDER / PLACE / name, text_of(crd), "tessera_operator/schema.py")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
