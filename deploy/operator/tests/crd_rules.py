"""What an API server makes of a CRD: defaults, pruning, types and limits by jsonschema, and the CEL rules of x-kubernetes-validations."""

import copy
import functools
import re

import celpy
import jsonschema

_CEL = celpy.Environment()


@functools.lru_cache(maxsize=None)
def _program(rule):
    return _CEL.program(_CEL.compile(rule))


def _errors():
    import api_store
    return api_store.ApiError


def prune(schema, value, path, unknown):
    """Drops what the schema does not know, as the API server does, and fills in defaults. Adds the paths of what was dropped to `unknown`."""
    if isinstance(value, dict):
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        for name, sub in (properties or {}).items():
            if name not in value and "default" in sub:
                value[name] = copy.deepcopy(sub["default"])
        for name in list(value):
            place = f"{path}.{name}" if path else name
            if properties and name in properties:
                if name == "metadata" and not path:
                    continue
                prune(properties[name], value[name], place, unknown)
            elif isinstance(others, dict):
                prune(others, value[name], place, unknown)
            elif not schema.get("x-kubernetes-preserve-unknown-fields"):
                unknown.append(place)
                del value[name]
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            prune(schema["items"], item, f"{path}[{index}]", unknown)


def _path(parts):
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


_validators = {}  # id of a schema -> (the schema, its validator)


def _validate(schema, item):
    """Causes of what has the wrong type or is outside its limits."""
    found = []
    _, validator = _validators.setdefault(id(schema), (schema, jsonschema.Draft202012Validator(schema)))
    for error in sorted(validator.iter_errors(item), key=lambda error: list(map(str, error.absolute_path))):
        parts = list(error.absolute_path)
        if error.validator == "required":
            missing = next(name for name in error.validator_value if name not in error.instance)
            found.append({"reason": "FieldValueRequired", "field": _path([*parts, missing]), "message": "Required value"})
        else:
            words = {"minimum": f"should be greater than or equal to {error.validator_value}",
                     "maximum": f"should be less than or equal to {error.validator_value}",
                     "enum": f"supported values: {error.validator_value}"}.get(error.validator, error.message)
            found.append({"reason": "FieldValueInvalid", "field": _path(parts), "message": f"Invalid value: {error.instance!r}: {words}"})
    return found


def _evaluate(schema, value, old, path, found):
    """Adds the causes of rules that do not hold, from the outside in. `old` is what stood there before, or None."""
    for rule in schema.get("x-kubernetes-validations") or []:
        if "oldSelf" in rule["rule"] and old is None:
            continue
        bound = {"self": celpy.json_to_cel(value)} | ({"oldSelf": celpy.json_to_cel(old)} if old is not None else {})
        if not bool(_program(rule["rule"]).evaluate(bound)):
            found.append({"reason": "FieldValueInvalid", "field": path + rule.get("fieldPath", ""), "message": f"Invalid value: {rule['message']}"})
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, item in value.items():
            sub = (schema.get("properties") or {}).get(name) or schema.get("additionalProperties")
            if isinstance(sub, dict):
                _evaluate(sub, item, before.get(name), f"{path}.{name}" if path else name, found)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            _evaluate(schema["items"], item, None, f"{path}[{index}]", found)


def check(resource, item, old, is_strict):
    """Changes `item` to what is stored; ApiError 422 names each field that is wrong."""
    error = _errors()
    if old is not None and (item.get("spec"), item.get("status")) == (old.get("spec"), old.get("status")):
        return
    if old is not None and item.get("spec") == old.get("spec"):
        # The spec is as it was when it was checked: what is left to check is the status, which has no rules.
        status = resource.schema["properties"]["status"]
        prune(status, item["status"], "status", [])
        causes = _validate(status, item["status"])
        if causes:
            raise error(422, "Invalid", f'{resource.kind} "{item["metadata"]["name"]}" is invalid: status: {causes}', causes)
        return
    unknown = []
    prune(resource.schema, item, "", unknown)
    if unknown and is_strict:
        raise error(400, "BadRequest", f"{resource.kind} in version \"{resource.version}\" cannot be handled as a {resource.kind}: strict decoding error: "
                    + ", ".join(f'unknown field "{path}"' for path in unknown))
    causes = _validate(resource.schema, item)
    if not causes:  # rules are not asked about what has the wrong form
        _evaluate(resource.schema, item, old, "", causes)
    if causes:
        words = ", ".join(f"{cause['field']}: {cause['message']}" for cause in causes)
        raise error(422, "Invalid", f'{resource.kind}.{resource.group} "{item["metadata"].get("name")}" is invalid: {words}', causes)


def structural_faults(schema, path="openAPIV3Schema", rules="", name=""):
    """What an API server refuses of a schema itself: each level has a type, properties and additionalProperties exclude each other, no
    `additionalProperties: false`; and what makes a rule's cost unbounded: a list or map without a limit that has rules below it, or is
    named by one above. `rules`: those above that reach it."""
    faults = []
    if "type" not in schema and not schema.get("x-kubernetes-int-or-string"):
        faults.append(f"{path}: it has no type")
    if schema.get("additionalProperties") is False:
        faults.append(f"{path}: additionalProperties must not be false")
    if "properties" in schema and "additionalProperties" in schema:
        faults.append(f"{path}: properties and additionalProperties exclude each other")
    own = schema.get("x-kubernetes-validations") or []
    for rule in own:
        _program(rule["rule"])  # it compiles
        if not rule.get("message"):
            faults.append(f"{path}: a rule has no message: {rule['rule']}")
        field = rule.get("fieldPath", "").strip(".").split(".")[0]
        if field and field not in schema.get("properties", {}):
            faults.append(f"{path}: fieldPath {rule['fieldPath']} is none of its properties")
    is_named = bool(name) and re.search(rf"\.{name}\b", rules) is not None
    # A rule above reaches what is below only by a name that it has.
    rules = (rules if is_named or not name else "") + "".join(rule["rule"] for rule in own)
    for below, sub in (schema.get("properties") or {}).items():
        faults += structural_faults(sub, f"{path}.{below}", rules, below)
    for key, limit in (("items", "maxItems"), ("additionalProperties", "maxProperties")):
        if isinstance(schema.get(key), dict):
            if (is_named or own or "x-kubernetes-validations" in str(schema[key])) and limit not in schema:
                faults.append(f"{path}: rules need a limit of its length, {limit}")
            faults += structural_faults(schema[key], f"{path}.{key}", rules)
    return faults


def check_crd(item):
    for version in item["spec"]["versions"]:
        faults = structural_faults(version["schema"]["openAPIV3Schema"])
        if faults:
            raise _errors()(422, "Invalid", f"CustomResourceDefinition {item['metadata']['name']} is invalid: " + "; ".join(faults))
