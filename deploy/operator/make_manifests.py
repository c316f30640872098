#!/usr/bin/env python3
"""Writes the CRDs, config/crd/*.yaml, from tessera_operator/schema.py. Run it with the interpreter that
scripts/operator_env.py prints; a test compares what it would write with what is there.

    make_manifests.py [--check]
"""

import copy
import sys
from pathlib import Path

import kubernetes.client
import yaml

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from tessera_operator import names, schema  # noqa: E402

PLACE = "config/crd"  # chart/crds leads there
# Fields that hold quantities, which may be written as numbers: the client's types call them texts.
QUANTITIES = {"limits", "requests", "overhead", "capacity", "hard"}
QUANTITY = {"x-kubernetes-int-or-string": True}
HEAD = "# Written by make_manifests.py from tessera_operator/schema.py: change it there.\n"


def template_schema():
    """A pod's template with all fields that the official client knows, without their texts. Objects keep fields that it does not know,
    as a cluster may be newer; what is unknown there, too, is refused when the pod is made."""
    model = kubernetes.client.V1PodTemplateSpec.model_json_schema(by_alias=True, mode="serialization")
    known = model["$defs"]

    def of(part, name=""):
        if "$ref" in part:
            return of(known[part["$ref"].rsplit("/", 1)[-1]], name)
        if "anyOf" in part:
            kinds = [kind for kind in part["anyOf"] if kind.get("type") != "null"]
            if {kind.get("type") for kind in kinds} == {"integer", "string"}:
                return dict(QUANTITY)
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


def merged(below, above):
    """What schema.py says goes before what the client knows."""
    result = copy.deepcopy(below)
    for key, value in above.items():
        result[key] = merged(result[key], value) if isinstance(value, dict) and isinstance(result.get(key), dict) else copy.deepcopy(value)
    return result


def crds():
    """File's name -> CRD."""
    found = {}
    for kind, (group, _, plural) in names.KINDS.items():
        whole = copy.deepcopy(schema.crd(kind))
        spec = whole["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        role = spec["properties"]["msReplicaSpecs"]["additionalProperties"]
        role["properties"]["template"] = merged(template_schema(), role["properties"]["template"])
        found[f"{plural}.{group}.yaml"] = whole
    return found


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data):
        return True


def text_of(crd):
    return HEAD + yaml.dump(crd, Dumper=_Dumper, sort_keys=False, width=150, allow_unicode=True, default_flow_style=None)


def main():
    is_check, faults = "--check" in sys.argv[1:], 0
    for name, crd in crds().items():
        text = text_of(crd)
        path = FOLDER / PLACE / name
        if is_check and (not path.exists() or path.read_text() != text):
            print(f"{path.relative_to(FOLDER)}: not as tessera_operator/schema.py has it; run make_manifests.py")
            faults += 1
        elif not is_check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
