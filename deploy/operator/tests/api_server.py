"""An API server of our own: HTTP over a Store, with discovery, watches, subresources, tables, and the rights of roles. The official
client, kopf and kubectl run against it.

It knows what the operator's tests ask of it and no more: no admission webhooks, no server-side apply, no versions converted.
"""

import asyncio
import json
import threading
import time
from dataclasses import dataclass

import kubernetes.client
import pydantic
from aiohttp import web

from api_store import ApiError, Store, table_of

BOOKMARK_S = 5.0


def with_quantities(item, name=""):
    """Quantities that are numbers as texts, as the client's types want them."""
    if isinstance(item, dict):
        return {key: with_quantities(value, name if name in ("limits", "requests") else key) for key, value in item.items()}
    if isinstance(item, list):
        return [with_quantities(value) for value in item]
    return str(item) if name in ("limits", "requests", "sizeLimit") and isinstance(item, (int, float)) else item


def check_pod(body, is_strict):
    """As the API server's own types do: unknown fields where it is strict, and wrong types; and a little of its validation."""
    faults = []
    try:
        kubernetes.client.V1Pod.model_validate(with_quantities(body))
    except pydantic.ValidationError as failure:
        for error in failure.errors():
            path = ".".join(str(part) for part in error["loc"])
            if error["type"] == "extra_forbidden":
                faults += [f'unknown field "{path}"'] if is_strict else []
            else:
                raise ApiError(400, "BadRequest", f"Pod in version \"v1\" cannot be handled as a Pod: {path}: {error['msg']}") from failure
    if faults:
        raise ApiError(400, "BadRequest", "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: " + ", ".join(faults))
    names = [container["name"] for container in body["spec"]["containers"] + body["spec"].get("initContainers", [])]
    volumes = {volume["name"] for volume in body["spec"].get("volumes") or []}
    causes = [f"spec.containers: Duplicate value: {name!r}" for name in set(names) if names.count(name) > 1]
    for container in body["spec"]["containers"] + body["spec"].get("initContainers", []):
        causes += [f"spec.containers[{container['name']}].volumeMounts: Not found: {mount['name']!r}" for mount in container.get("volumeMounts") or []
                   if mount["name"] not in volumes]
        variables = [variable["name"] for variable in container.get("env") or []]
        causes += [f"spec.containers[{container['name']}].env: {name} stands there twice" for name in set(variables) if variables.count(name) > 1]
    if len(body["metadata"]["name"]) > 63 or any(len(value) > 63 for value in (body["metadata"].get("labels") or {}).values()):
        causes.append("metadata: a name or a label's value has more than 63 characters")
    if causes:
        raise ApiError(422, "Invalid", f'Pod "{body["metadata"]["name"]}" is invalid: ' + ", ".join(causes))


@dataclass
class Request:
    time: float
    user: str
    verb: str
    group: str
    resource: str  # "pods", "msjobs/status"
    namespace: str | None
    name: str | None
    selector: str | None = None
    code: int = 0


class Rights:
    """What roles give to a user: (group, resource, verb) of the rules of a ClusterRole or Role."""

    def __init__(self, rules):
        self.rules = rules
        self.used = set()

    def allows(self, group, resource, verb):
        for number, rule in enumerate(self.rules):
            if group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]:
                self.used.add((group, resource, verb))
                return True
        return False

    def unused(self):
        return {(group, resource, verb) for rule in self.rules for group in rule["apiGroups"] for resource in rule["resources"]
                for verb in rule["verbs"]} - self.used


class ApiServer:
    """Serves on 127.0.0.1 from a thread of its own. `users`: token -> Rights; without a token everything is allowed.
    `on_write(request, is_done)` is called before and after each request that changes something; it may kill who asked."""

    def __init__(self, users=None):
        self.store = Store(check_pod)
        self.users = users or {}
        self.requests = []
        self.on_write = None
        self.is_away = False  # every request is answered by 503, and watches end
        self.turned_away = 0
        self.url = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._ready = threading.Event()
        self._watchers = set()  # (queue, resource)
        self.store.listen(self._tell)

    def __enter__(self):
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _serve(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._run())

    async def _run(self):
        self._stop = asyncio.Event()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        await self._stop.wait()
        self._end_watches()
        await runner.cleanup()

    def client(self, token=None):
        """A client of the official kind."""
        configuration = kubernetes.client.Configuration(host=self.url)
        if token:
            configuration.api_key = {"authorization": f"Bearer {token}"}
        return kubernetes.client.ApiClient(configuration)

    def write_kubeconfig(self, path, token=None):
        user = {"token": token} if token else {}
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "test",
                                    "clusters": [{"name": "test", "cluster": {"server": self.url}}], "users": [{"name": "test", "user": user}],
                                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "default"}}]}))
        path.chmod(0o600)

    def end_watches(self):
        self._loop.call_soon_threadsafe(self._end_watches)

    def _end_watches(self):
        for queue, _ in list(self._watchers):
            queue.put_nowait(None)

    # Under the store's lock, from any thread.
    def _tell(self, version, kind, resource, item):
        for queue, of in list(self._watchers):
            if of == resource:
                self._loop.call_soon_threadsafe(queue.put_nowait, (version, kind, item))

    async def _handle(self, request):
        try:
            if self.is_away:
                self.turned_away += 1
                self._end_watches()
                raise ApiError(503, "ServiceUnavailable", "the server is currently unable to handle the request")
            return await self._answer(request)
        except ApiError as error:
            return web.json_response(error.body(), status=error.code)

    async def _answer(self, request):
        parts = request.path.strip("/").split("/")
        if parts == ["version"]:
            return web.json_response({"major": "1", "minor": "37", "gitVersion": "v1.37.0-tessera"})
        if parts[0] == "api" and len(parts) == 1:
            return web.json_response({"kind": "APIVersions", "versions": ["v1"]})
        if parts[0] == "apis" and len(parts) == 1:
            return web.json_response(self._groups())
        if parts[0] == "api":
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) >= 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            raise ApiError(404, "NotFound", f"the server could not find the requested resource {request.path}")
        if not rest:
            return web.json_response(self._resources(group, version))
        namespace = None
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        resource = self.store.resource(group, version, rest[0])
        name = rest[1] if len(rest) > 1 else None
        subresource = rest[2] if len(rest) > 2 else None
        return await self._of_resource(request, resource, namespace, name, subresource)

    def _groups(self):
        versions = {}
        for resource in self.store.kinds():
            if resource.group:
                versions.setdefault(resource.group, resource.version)
        groups = [{"name": group, "versions": [{"groupVersion": f"{group}/{version}", "version": version}],
                   "preferredVersion": {"groupVersion": f"{group}/{version}", "version": version}} for group, version in versions.items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def _resources(self, group, version):
        found = []
        for resource in self.store.kinds():
            if (resource.group, resource.version) == (group, version):
                entry = {"name": resource.plural, "singularName": resource.kind.lower(), "namespaced": resource.is_namespaced, "kind": resource.kind,
                         "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"], "shortNames": list(resource.short_names)}
                found.append(entry)
                for part, is_there in (("status", resource.has_status), ("scale", resource.scale)):
                    if is_there:
                        of_scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"} if part == "scale" else {}
                        found.append(entry | {"name": f"{resource.plural}/{part}", "verbs": ["get", "patch", "update"]} | of_scale)
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}".strip("/"), "resources": found}

    async def _of_resource(self, request, resource, namespace, name, subresource):
        query = request.query
        is_watch = query.get("watch") in ("true", "1", "True")
        verb = {"GET": "get" if name else "watch" if is_watch else "list", "POST": "create", "PUT": "update", "PATCH": "patch",
                "DELETE": "delete"}[request.method]
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        entry = Request(time.monotonic(), token, verb, resource.group, resource.plural + (f"/{subresource}" if subresource else ""), namespace, name,
                        query.get("labelSelector"))
        self.requests.append(entry)
        if token and not (token in self.users and self.users[token].allows(entry.group, entry.resource, verb)):
            entry.code = 403
            raise ApiError(403, "Forbidden", f'{entry.resource}.{entry.group} is forbidden: User "{token}" cannot {verb} resource "{entry.resource}" in '
                           f'API group "{entry.group}"')
        if is_watch and not name:
            entry.code = 200
            return await self._watch(request, resource, namespace)
        body = json.loads(text) if (text := await request.text()) else None
        if verb == "create" and isinstance(body, dict):
            entry.name = body.get("metadata", {}).get("name")
        content_type = request.headers.get("Content-Type", "").split(";")[0]
        is_strict = query.get("fieldValidation") == "Strict"
        writes = verb not in ("get", "list")
        if writes and self.on_write:
            self.on_write(entry, False)
        try:
            status, answer = self._do(verb, resource, namespace, name, subresource, body, content_type, is_strict, query)
            entry.code = status
            if "as=Table" in request.headers.get("Accept", "") and resource.columns and verb in ("get", "list") and not subresource:
                items = answer["items"] if verb == "list" else [answer]
                answer = table_of(resource, items, answer["metadata"]["resourceVersion"])
        except ApiError as error:
            entry.code = error.code
            raise
        finally:
            if writes and self.on_write:
                self.on_write(entry, True)
        return web.json_response(answer, status=status)

    def _do(self, verb, resource, namespace, name, subresource, body, content_type, is_strict, query):
        store = self.store
        if subresource == "scale" and resource.scale:
            if verb == "patch":
                body = {"spec": {"replicas": body["spec"]["replicas"]}}
            return 200, store.scale(resource, namespace, name) if verb == "get" else store.set_scale(resource, namespace, name, body)
        if subresource not in (None, "status") or subresource == "status" and not resource.has_status:
            raise ApiError(404, "NotFound", f"{resource.plural} has no subresource {subresource}")
        if verb == "get":
            return 200, store.get(resource, namespace, name)
        if verb == "list":
            items, version = store.list(resource, namespace, query.get("labelSelector"), query.get("fieldSelector"))
            return 200, {"apiVersion": resource.api_version, "kind": f"{resource.kind}List", "metadata": {"resourceVersion": version}, "items": items}
        if verb == "create":
            return 201, store.create(resource, namespace, body, is_strict)
        if verb == "update":
            return 200, store.update(resource, namespace, name, body, subresource, is_strict)
        if verb == "patch":
            return 200, store.patch(resource, namespace, name, body, content_type, subresource, is_strict)
        options = dict(body or {})
        if "gracePeriodSeconds" in query:
            options["gracePeriodSeconds"] = int(query["gracePeriodSeconds"])
        return 200, store.delete(resource, namespace, name, options)

    async def _watch(self, request, resource, namespace):
        from api_store import matches
        query = request.query
        selector = query.get("labelSelector")
        end = time.monotonic() + float(query.get("timeoutSeconds", 3600))
        queue = asyncio.Queue()
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        seen = set()  # of a selection, what the watcher knows

        def wanted(kind, item):
            if namespace is not None and item["metadata"].get("namespace") != namespace:
                return None
            uid = item["metadata"]["uid"]
            if matches(item["metadata"].get("labels") or {}, selector):
                seen.discard(uid) if kind == "DELETED" else seen.add(uid)
                return kind
            if uid in seen:
                seen.discard(uid)
                return "DELETED"
            return None

        with self.store.lock:
            entry = (queue, resource)
            self._watchers.add(entry)
            since = query.get("resourceVersion")
            try:
                past = self.store.since(int(since), resource) if since not in (None, "", "0") else \
                    [("ADDED", item) for item in self.store.list(resource)[0]]
                gone = None
            except ApiError as error:
                past, gone = [], error
        try:
            await response.prepare(request)
            for kind, item in past:
                if shown := wanted(kind, item):
                    await response.write(json.dumps({"type": shown, "object": item}).encode() + b"\n")
            if gone:
                await response.write(json.dumps({"type": "ERROR", "object": gone.body()}).encode() + b"\n")
                return response
            version = since or "0"
            while (left := end - time.monotonic()) > 0:
                try:
                    event = await asyncio.wait_for(queue.get(), min(left, BOOKMARK_S))
                except asyncio.TimeoutError:
                    if query.get("allowWatchBookmarks") in ("true", "True", "1"):
                        mark = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"resourceVersion": str(version)}}
                        await response.write(json.dumps({"type": "BOOKMARK", "object": mark}).encode() + b"\n")
                    continue
                if event is None:
                    break
                version, kind, item = event
                if shown := wanted(kind, item):
                    await response.write(json.dumps({"type": shown, "object": item}).encode() + b"\n")
        except (ConnectionResetError, asyncio.CancelledError):
            pass
        finally:
            self._watchers.discard(entry)
        return response
