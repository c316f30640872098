"""The objects of an API server, with what the operator counts on: resourceVersions and conflicts, generations, finalizers, owners,
status and scale subresources, patches, selectors, and the schemas and rules of CRDs."""

import copy
import json
import threading
import uuid
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timezone

import crd_rules
import jsonpatch

HISTORY = 20000


class ApiError(Exception):
    def __init__(self, code, reason, message, causes=()):
        super().__init__(message)
        self.code, self.reason, self.message, self.causes = code, reason, message, list(causes)

    def body(self):
        details = {"causes": self.causes} if self.causes else {}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message, "reason": self.reason,
                "code": self.code, "details": details}


@dataclass(frozen=True)
class Resource:
    group: str
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True
    has_status: bool = False
    scale: dict | None = field(default=None, hash=False)
    schema: dict | None = field(default=None, hash=False)
    columns: list = field(default_factory=list, hash=False)  # additionalPrinterColumns
    short_names: tuple = ()

    @property
    def api_version(self):
        return f"{self.group}/{self.version}" if self.group else self.version


BUILT_IN = [
    Resource("", "v1", "pods", "Pod", has_status=True), Resource("", "v1", "services", "Service", has_status=True),
    Resource("", "v1", "secrets", "Secret"), Resource("", "v1", "events", "Event"), Resource("", "v1", "configmaps", "ConfigMap"),
    Resource("", "v1", "serviceaccounts", "ServiceAccount"), Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", has_status=True),
    Resource("", "v1", "namespaces", "Namespace", is_namespaced=False, has_status=True),
    Resource("apps", "v1", "deployments", "Deployment", has_status=True),
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
    Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", is_namespaced=False),
    Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", is_namespaced=False),
    Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"), Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", is_namespaced=False, has_status=True)]

# Lists of a pod whose items a strategic merge patch finds by this key.
MERGE_KEYS = {"containers": "name", "initContainers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath", "ports": "containerPort",
              "conditions": "type", "ownerReferences": "uid", "tolerations": "key"}


def now_text():
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def merge_patch(target, patch):
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_patch(target, patch):
    """As merge_patch, but lists of the kinds above are merged item by item, and `$patch: delete` takes one out."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, list) and key in MERGE_KEYS:
            by = MERGE_KEYS[key]
            items = {item[by]: item for item in merged.get(key) or []}
            for item in value:
                if item.get("$patch") == "delete":
                    items.pop(item[by], None)
                else:
                    items[item[by]] = strategic_patch(items.get(item[by]), item)
            merged[key] = list(items.values())
        elif isinstance(value, list) and key == "finalizers":
            merged[key] = list(dict.fromkeys([*(merged.get(key) or []), *value]))
        else:
            merged[key] = strategic_patch(merged.get(key), value)
    return merged


def matches(labels, selector):
    for part in filter(None, (selector or "").split(",")):
        if "!=" in part:
            key, value = part.split("!=")
            if labels.get(key) == value:
                return False
        elif "=" in part:
            key, value = part.replace("==", "=").split("=")
            if labels.get(key) != value:
                return False
        elif part.startswith("!"):
            if part[1:] in labels:
                return False
        elif part not in labels:
            return False
    return True


def at_path(item, path):
    for part in path.strip(".").split("."):
        item = (item or {}).get(part)
    return item


def _cell(column, item):
    """What a printer column shows of an object; paths have names, and `[-1:]` for the last of a list."""
    found = item
    for part in column["jsonPath"].strip(".").split("."):
        name, _, last = part.partition("[")
        found = (found or {}).get(name)
        if last == "-1:]":
            found = (found or [None])[-1]
        elif last:
            raise ValueError(f"the path {column['jsonPath']} has a part that is not known here: {part}")
    if column["type"] == "date" and found:
        age = datetime.now(timezone.utc) - datetime.fromisoformat(found.replace("Z", "+00:00"))
        return f"{int(age.total_seconds())}s"
    return found


def table_of(resource, items, version):
    """As `kubectl get` asks for objects of a CRD: a row for each, with the CRD's printer columns."""
    columns = [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}]
    columns += [{"name": column["name"], "type": column["type"], "format": "", "description": "", "priority": column.get("priority", 0)}
                for column in resource.columns]
    rows = [{"cells": [item["metadata"]["name"], *(_cell(column, item) for column in resource.columns)],
             "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}} for item in items]
    return {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": version}, "columnDefinitions": columns, "rows": rows}


class Store:
    """Safe for threads. What it gives are copies. `pod_checks(body, is_strict)` refuses a pod as the API server's own code would."""

    def __init__(self, pod_checks=None):
        self.lock = threading.RLock()
        self._version = 0
        self._kinds = {}
        self._items = {}
        self._history = deque(maxlen=HISTORY)  # (version, type, resource, object)
        self._listeners = []
        self._pod_checks = pod_checks
        for resource in BUILT_IN:
            self._add_kind(resource)

    def _add_kind(self, resource):
        self._kinds[resource.group, resource.version, resource.plural] = resource
        self._items.setdefault((resource.group, resource.plural), {})

    def kinds(self):
        return list(self._kinds.values())

    def resource(self, group, version, plural):
        found = self._kinds.get((group, version, plural))
        if found is None:
            raise ApiError(404, "NotFound", f"the server could not find the requested resource {plural}.{group}/{version}")
        return found

    def of_kind(self, api_version, kind):
        for resource in self._kinds.values():
            if (resource.api_version, resource.kind) == (api_version, kind):
                return resource
        raise ApiError(404, "NotFound", f'no matches for kind "{kind}" in version "{api_version}"')

    def listen(self, listener):
        """`listener(version, type, resource, object)` is called under the lock."""
        self._listeners.append(listener)

    def unlisten(self, listener):
        self._listeners.remove(listener)

    def _changed(self, kind, resource, item):
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        seen = copy.deepcopy(item)
        self._history.append((self._version, kind, resource, seen))
        for listener in list(self._listeners):
            listener(self._version, kind, resource, seen)

    def since(self, version, resource):
        """Events of a resource after that version. ApiError 410 where they are no longer known."""
        if self._history and version < self._history[0][0] - 1:
            raise ApiError(410, "Expired", f"too old resource version: {version} ({self._history[0][0]})")
        return [(kind, item) for at, kind, of, item in self._history if at > version and of == resource]

    def _table(self, resource):
        return self._items[resource.group, resource.plural]

    def _found(self, resource, namespace, name):
        item = self._table(resource).get((namespace if resource.is_namespaced else None, name))
        if item is None:
            raise ApiError(404, "NotFound", f'{resource.plural}{"." + resource.group if resource.group else ""} "{name}" not found')
        return item

    def get(self, resource, namespace, name):
        with self.lock:
            return copy.deepcopy(self._found(resource, namespace, name))

    def list(self, resource, namespace=None, labels=None, fields=None):
        """(items, version)."""
        with self.lock:
            found = []
            for (of_namespace, _), item in sorted(self._table(resource).items(), key=lambda entry: (entry[0][0] or "", entry[0][1])):
                if namespace is not None and of_namespace != namespace or not matches(item["metadata"].get("labels") or {}, labels):
                    continue
                if any(str(at_path(item, part.split("=")[0])) != part.split("=")[-1] for part in filter(None, (fields or "").split(","))):
                    continue
                found.append(copy.deepcopy(item))
            return found, str(self._version)

    def _check(self, resource, item, old=None, is_strict=False):
        if resource.schema:
            crd_rules.check(resource, item, old, is_strict)
        elif resource.plural == "pods" and self._pod_checks and old is None:
            self._pod_checks(item, is_strict)
        elif resource.plural == "customresourcedefinitions":
            crd_rules.check_crd(item)

    def create(self, resource, namespace, body, is_strict=False):
        with self.lock:
            item = copy.deepcopy(body)
            metadata = item.setdefault("metadata", {})
            if item.get("kind", resource.kind) != resource.kind or item.get("apiVersion", resource.api_version) != resource.api_version:
                raise ApiError(400, "BadRequest", f"the object is a {item.get('apiVersion')} {item.get('kind')}, not a {resource.api_version} {resource.kind}")
            item |= {"apiVersion": resource.api_version, "kind": resource.kind}
            if resource.is_namespaced:
                if metadata.setdefault("namespace", namespace) != namespace:
                    raise ApiError(400, "BadRequest", "the namespace of the provided object does not match the namespace sent on the request")
            key = (namespace if resource.is_namespaced else None, metadata["name"])
            if key in self._table(resource):
                raise ApiError(409, "AlreadyExists", f'{resource.plural} "{metadata["name"]}" already exists')
            if "resourceVersion" in metadata:
                raise ApiError(400, "BadRequest", "resourceVersion should not be set on objects to be created")
            if resource.schema and resource.has_status:
                item.pop("status", None)
            if resource.plural == "pods":
                item["status"] = {"phase": "Pending"}
            self._check(resource, item, is_strict=is_strict)
            metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now_text(), "generation": 1}
            self._table(resource)[key] = item
            self._changed("ADDED", resource, item)
            if resource.plural == "customresourcedefinitions":
                self._define(item)
            made = copy.deepcopy(item)
            self._collect(item)
            return made

    def _define(self, crd):
        spec = crd["spec"]
        for version in spec["versions"]:
            self._add_kind(Resource(spec["group"], version["name"], spec["names"]["plural"], spec["names"]["kind"],
                                    has_status="status" in version.get("subresources", {}), scale=version.get("subresources", {}).get("scale"),
                                    schema=version["schema"]["openAPIV3Schema"], columns=version.get("additionalPrinterColumns", []),
                                    short_names=tuple(spec["names"].get("shortNames", []))))

    def update(self, resource, namespace, name, body, subresource=None, is_strict=False):
        with self.lock:
            old = self._found(resource, namespace, name)
            item, metadata = copy.deepcopy(body), copy.deepcopy(body.get("metadata") or {})
            wanted = metadata.get("resourceVersion")
            if wanted is not None and wanted != old["metadata"]["resourceVersion"]:
                raise ApiError(409, "Conflict", f'Operation cannot be fulfilled on {resource.plural} "{name}": the object has been modified; please '
                               "apply your changes to the latest version and try again")
            if metadata.get("uid") not in (None, old["metadata"]["uid"]):
                raise ApiError(409, "Conflict", f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {old['metadata']['uid']}")
            new = copy.deepcopy(old)
            if subresource == "status":
                new["status"] = item.get("status") or {}
            else:
                kept = {"metadata": old["metadata"] | {key: value for key, value in metadata.items()
                                                       if key in ("labels", "annotations", "finalizers", "ownerReferences")}}
                for key in ("labels", "annotations", "finalizers", "ownerReferences"):
                    if key not in metadata:
                        kept["metadata"].pop(key, None)
                if not resource.has_status:
                    new = item | kept
                else:
                    new = item | kept | ({"status": old["status"]} if "status" in old else {})
                    if "status" not in old:
                        new.pop("status", None)
                new |= {"apiVersion": resource.api_version, "kind": resource.kind}
                if resource.plural == "secrets" and old.get("immutable") and new.get("data") != old.get("data"):
                    raise ApiError(422, "Invalid", f'Secret "{name}" is invalid: data: Forbidden: field is immutable when `immutable` is set')
                if resource.plural == "pods" and new.get("spec") != old.get("spec"):
                    new_spec, old_spec = new.get("spec") or {}, old["spec"]
                    if new_spec | {"nodeName": ""} != old_spec | {"nodeName": ""}:
                        raise ApiError(422, "Invalid", f'Pod "{name}" is invalid: spec: Forbidden: pod updates may not change fields other than nodeName')
                if "deletionTimestamp" in old["metadata"] and set(new["metadata"].get("finalizers") or []) - set(old["metadata"].get("finalizers") or []):
                    raise ApiError(422, "Invalid", "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted")
            self._check(resource, new, old, is_strict)
            if subresource != "status" and new.get("spec") != old.get("spec"):
                new["metadata"] = new["metadata"] | {"generation": old["metadata"].get("generation", 1) + 1}
            if new == old:
                return copy.deepcopy(old)
            new["metadata"] = dict(new["metadata"])
            self._table(resource)[namespace if resource.is_namespaced else None, name] = new
            if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers") and not self._waits_for_kubelet(resource, new):
                return self._remove(resource, new)
            self._changed("MODIFIED", resource, new)
            return copy.deepcopy(new)

    def patch(self, resource, namespace, name, patch, content_type, subresource=None, is_strict=False):
        with self.lock:
            old = self.get(resource, namespace, name)
            if content_type == "application/json-patch+json":
                try:
                    new = jsonpatch.apply_patch(old, patch)
                except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as fault:
                    raise ApiError(422, "Invalid", f"the server rejected our request due to an error in our request: {fault}") from fault
            elif content_type == "application/merge-patch+json":
                new = merge_patch(old, patch)
            elif content_type == "application/strategic-merge-patch+json" and not resource.schema:
                new = strategic_patch(old, patch)
            else:
                raise ApiError(415, "UnsupportedMediaType", f"the body of the request was in an unknown format {content_type} for {resource.plural}")
            if "resourceVersion" not in (patch.get("metadata") or {} if isinstance(patch, dict) else {}):
                new["metadata"].pop("resourceVersion", None)
            return self.update(resource, namespace, name, new, subresource, is_strict)

    def scale(self, resource, namespace, name):
        item = self.get(resource, namespace, name)
        return {"apiVersion": "autoscaling/v1", "kind": "Scale",
                "metadata": {key: item["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")},
                "spec": {"replicas": at_path(item, resource.scale["specReplicasPath"]) or 0},
                "status": {"replicas": at_path(item, resource.scale["statusReplicasPath"]) or 0,
                           "selector": at_path(item, resource.scale["labelSelectorPath"]) or ""}}

    def set_scale(self, resource, namespace, name, body):
        with self.lock:
            item = self.get(resource, namespace, name)
            *way, last = resource.scale["specReplicasPath"].strip(".").split(".")
            at_path(item, ".".join(way))[last] = body["spec"]["replicas"]
            if "resourceVersion" not in body.get("metadata", {}):
                item["metadata"].pop("resourceVersion")
            self.update(resource, namespace, name, item)
            return self.scale(resource, namespace, name)

    @staticmethod
    def _waits_for_kubelet(resource, item):
        return resource.plural == "pods" and item["metadata"].get("deletionGracePeriodSeconds", 0) > 0

    def delete(self, resource, namespace, name, options=None):
        with self.lock:
            item = self._found(resource, namespace, name)
            metadata, options = item["metadata"], options or {}
            wanted = (options.get("preconditions") or {}).get("uid")
            if wanted not in (None, metadata["uid"]):
                raise ApiError(409, "Conflict", f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {metadata['uid']}")
            grace = options.get("gracePeriodSeconds")
            if resource.plural == "pods":
                is_placed = bool(item["spec"].get("nodeName"))
                has_ended = item.get("status", {}).get("phase") in ("Succeeded", "Failed")
                grace = item["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
                grace = grace if is_placed and not has_ended else 0
            else:
                grace = 0
            if not metadata.get("finalizers") and not grace:
                return self._remove(resource, item)
            if "deletionTimestamp" in metadata and metadata.get("deletionGracePeriodSeconds", 0) <= grace:
                return copy.deepcopy(item)
            changed = copy.deepcopy(item)
            changed["metadata"] |= {"deletionTimestamp": now_text(), "deletionGracePeriodSeconds": grace}
            self._table(resource)[metadata.get("namespace"), name] = changed
            self._changed("MODIFIED", resource, changed)
            return copy.deepcopy(changed)

    def _remove(self, resource, item):
        item = copy.deepcopy(item)
        metadata = item["metadata"]
        del self._table(resource)[metadata.get("namespace"), metadata["name"]]
        self._changed("DELETED", resource, item)
        # What it owned goes with it.
        for other in list(self._kinds.values()):
            for owned in list(self._table(other).values()):
                if any(owner["uid"] == metadata["uid"] for owner in owned["metadata"].get("ownerReferences") or []):
                    self.delete(other, owned["metadata"].get("namespace"), owned["metadata"]["name"])
        return copy.deepcopy(item)

    def _collect(self, item):
        """An object whose owner is gone does not stay."""
        owners = {owner["uid"] for owner in item["metadata"].get("ownerReferences") or []}
        if owners and not any(other["metadata"]["uid"] in owners for table in self._items.values() for other in table.values()):
            resource = self.of_kind(item["apiVersion"], item["kind"])
            self.delete(resource, item["metadata"].get("namespace"), item["metadata"]["name"])


def apply(store, body, namespace="default"):
    """As `kubectl apply` of an object that is not there yet; strict as kubectl is."""
    resource = store.of_kind(body["apiVersion"], body["kind"])
    place = body.get("metadata", {}).get("namespace", namespace) if resource.is_namespaced else None
    return store.create(resource, place, json.loads(json.dumps(body)), is_strict=True)
