"""The schema of a job with all fields of a pod's template that the official client knows: what the CRDs have, and what a manifest is held to. The
template's is pod_template.json, which make_manifests.py writes by that client: who looks at a manifest needs no client."""

import copy
import json
from pathlib import Path

from tessera_operator import schema

TEMPLATE = Path(__file__).with_name("pod_template.json")


def template_schema():
    """A pod's template with all fields that the official client knows, without their texts. Objects keep fields that it does not know,
    as a cluster may be newer; what is unknown there, too, is refused when the pod is made."""
    return json.loads(TEMPLATE.read_text())


def merged(below, above):
    """What schema.py says goes before what the client knows."""
    result = copy.deepcopy(below)
    for key, value in above.items():
        result[key] = merged(result[key], value) if isinstance(value, dict) and isinstance(result.get(key), dict) else copy.deepcopy(value)
    return result


def whole_crd(kind):
    """schema.crd(), its templates with all of their fields."""
    whole = copy.deepcopy(schema.crd(kind))
    role = spec_schema(whole)["properties"]["msReplicaSpecs"]["additionalProperties"]
    role["properties"]["template"] = merged(template_schema(), role["properties"]["template"])
    return whole


def spec_schema(crd):
    """Of the field spec."""
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
