"""The schema of a job with all fields of a pod's template that the official client knows: what the CRDs have, and what a manifest is held to."""

import copy

from tessera_operator import schema

# Fields that hold quantities, which may be written as numbers: the client's types call them texts.
QUANTITIES = {"limits", "requests", "overhead", "capacity", "hard"}
INT_OR_STRING = {"x-kubernetes-int-or-string": True}
# As Kubernetes reads them: 2, 500m, 1.5Gi, 1e3. None of a pod's is negative.
QUANTITY = INT_OR_STRING | {"pattern": r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"}


def template_schema():
    """A pod's template with all fields that the official client knows, without their texts. Objects keep fields that it does not know,
    as a cluster may be newer; what is unknown there, too, is refused when the pod is made."""
    import kubernetes.client  # takes a second
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
