"""A small kubelet: pods of an API store become processes of this machine, with the environment and the files that their text asks for.

What a container's paths are is said by its processes' own folder: a mount path in a variable or an argument is replaced by where that
volume lies. Names of Services are looked up in the store and stand for 127.0.0.1, as all pods have that address here.
"""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import api_store

MAIN = "mindspore"


class Pod:
    def __init__(self, item, folder):
        self.item, self.folder = item, folder
        self.process = None
        self.sidecars = []
        self.is_reported = False
        self.kill_at = None
        self.volumes = {}  # name -> folder
        self.sources = {}  # folder of a volume -> text of what stands in it


class Kubelet:
    """`folder`: where pods have their files and output. `delay_s` passes before a pod begins. `images`: name -> words before the command."""

    def __init__(self, store, folder, is_placing=True):
        self.store, self.folder = store, Path(folder)
        self.is_placing = is_placing
        self._resource = store.resource("", "v1", "pods")
        self._secrets = store.resource("", "v1", "secrets")
        self._pods = {}  # uid -> Pod
        self._wake = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.started = []  # (name, uid) in their order
        self.failures = []

    def __enter__(self):
        self.store.listen(self._tell)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over = True
        self._wake.set()
        self._thread.join()
        self.store.unlisten(self._tell)
        for pod in self._pods.values():
            self._kill(pod)
        if self.failures:
            raise AssertionError(f"the kubelet has failed: {self.failures}")

    def _tell(self, *_):
        self._wake.set()

    def pid(self, namespace, name):
        item = self.store.get(self._resource, namespace, name)
        pod = self._pods.get(item["metadata"]["uid"])
        return pod.process.pid if pod and pod.process else None

    def log(self, name):
        return "".join(path.read_text() for path in sorted(self.folder.glob(f"{name}.*/log")))

    def _work(self):
        while not self._is_over:
            self._wake.wait(0.05)
            self._wake.clear()
            items = self.store.list(self._resource)[0]
            present = {item["metadata"]["uid"] for item in items}
            for uid in set(self._pods) - present:
                self._kill(self._pods.pop(uid))
            for item in items:
                try:
                    self._look(item)
                except api_store.ApiError:
                    pass  # changed meanwhile: the next round sees it
                except Exception as failure:
                    self.failures.append(failure)
                    raise

    def _look(self, item):
        metadata = item["metadata"]
        pod = self._pods.get(metadata["uid"])
        if pod is None:
            if "deletionTimestamp" in metadata:
                return self.store.delete(self._resource, metadata["namespace"], metadata["name"],
                                         {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}})
            if item["status"]["phase"] in ("Succeeded", "Failed") or not self.is_placing:
                return None
            return self._begin(item)
        pod.item = item
        self._refresh(pod)
        code = pod.process.poll() if pod.process else None
        if "deletionTimestamp" in metadata and code is None and pod.process:
            if pod.kill_at is None:
                pod.kill_at = time.monotonic() + metadata.get("deletionGracePeriodSeconds", 30)
                os.killpg(pod.process.pid, signal.SIGTERM)
            elif time.monotonic() > pod.kill_at:
                os.killpg(pod.process.pid, signal.SIGKILL)
            return None
        if code is not None and not pod.is_reported:
            pod.is_reported = True
            self._end_sidecars(pod)
            self._report(item, "Succeeded" if code == 0 else "Failed", {"terminated": {
                "exitCode": code if code >= 0 else 128 - code, "reason": "Completed" if code == 0 else "Error", "finishedAt": api_store.now_text()}})
            item = self.store.get(self._resource, metadata["namespace"], metadata["name"])
        if "deletionTimestamp" in metadata:
            self.store.delete(self._resource, metadata["namespace"], metadata["name"], {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}})
        return None

    def _report(self, item, phase, state, **more):
        metadata = item["metadata"]
        status = (item.get("status") or {}) | {"phase": phase, "podIP": "127.0.0.1", "hostIP": "127.0.0.1",
                                               "containerStatuses": [{"name": MAIN, "state": state, "ready": phase == "Running", "restartCount": 0,
                                                                      "image": "", "imageID": ""}]} | more
        try:
            self.store.update(self._resource, metadata["namespace"], metadata["name"],
                              {"metadata": {"name": metadata["name"], "uid": metadata["uid"]}, "status": status}, "status")
        except api_store.ApiError as error:
            if error.code not in (404, 409):
                raise

    def _begin(self, item):
        metadata, spec = item["metadata"], item["spec"]
        pod = Pod(item, self.folder / f"{metadata['name']}.{metadata['uid'][:8]}")
        pod.folder.mkdir(parents=True)
        try:
            self._mount(pod)
            main = next(container for container in spec["containers"] if container["name"] == MAIN)
            environment = self._environment(pod, main)
        except LookupError as missing:
            shutil.rmtree(pod.folder)
            self._report(item, "Pending", {"waiting": {"reason": "CreateContainerConfigError", "message": str(missing)}})
            return
        bound = self.store.get(self._resource, metadata["namespace"], metadata["name"])
        bound["spec"]["nodeName"] = "here"
        self.store.update(self._resource, metadata["namespace"], metadata["name"], bound)
        self._pods[metadata["uid"]] = pod
        self.started.append((metadata["name"], metadata["uid"]))
        for sidecar in spec.get("initContainers") or []:
            self._start_sidecar(pod, sidecar)
        pod.process = self._start(pod, main, environment)
        started = api_store.now_text()
        self._report(item, "Running", {"running": {"startedAt": started}}, startTime=started)

    def _start(self, pod, container, environment):
        words = [self._translate(pod, container, _expand(word, environment)) for word in container.get("command", []) + container.get("args", [])]
        with open(pod.folder / "log", "ab") as log:
            return subprocess.Popen(words, env=environment, cwd=pod.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def _start_sidecar(self, pod, container):
        pod.sidecars.append(self._start(pod, container, self._environment(pod, container)))
        probe = [self._translate(pod, container, word) for word in container["startupProbe"]["exec"]["command"]]
        for _ in range(3000):
            if subprocess.run(probe).returncode == 0:
                return
            time.sleep(0.02)
        raise RuntimeError(f"the container {container['name']} does not become ready: {(pod.folder / 'log').read_text()}")

    @staticmethod
    def _end_sidecars(pod):
        for process in pod.sidecars:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()

    def _kill(self, pod):
        for process in [pod.process, *pod.sidecars]:
            if process and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    # Volumes.
    def _mount(self, pod):
        for volume in pod.item["spec"].get("volumes") or []:
            folder = pod.folder / "volumes" / volume["name"]
            folder.mkdir(parents=True)
            pod.volumes[volume["name"]] = folder
            if "persistentVolumeClaim" in volume:
                folder.rmdir()
                claim = self.folder / "claims" / volume["persistentVolumeClaim"]["claimName"]
                claim.mkdir(parents=True, exist_ok=True)
                folder.symlink_to(claim)
            self._fill(pod, volume, folder)

    def _fill(self, pod, volume, folder):
        """Secrets, as a kubelet writes them: a folder of its own for each version, to which the link `..data` leads."""
        sources = [{"secret": volume["secret"] | {"name": volume["secret"]["secretName"]}}] if "secret" in volume else \
            volume.get("projected", {}).get("sources", [])
        if not sources:
            return
        mode = (volume.get("secret") or volume["projected"]).get("defaultMode", 0o644)
        if "fsGroup" in (pod.item["spec"].get("securityContext") or {}):
            mode |= 0o440
        files = {}
        for source in sources:
            for item in source.get("downwardAPI", {}).get("items", []):
                annotation = re.fullmatch(r"metadata\.annotations\['(.+)'\]", item["fieldRef"]["fieldPath"]).group(1)
                files[item["path"]] = pod.item["metadata"]["annotations"][annotation].encode()
            if "secret" not in source:
                continue
            secret, namespace = source["secret"], pod.item["metadata"]["namespace"]
            try:
                data = self.store.get(self._secrets, namespace, secret["name"])["data"]
            except api_store.ApiError as error:
                if secret.get("optional"):
                    continue
                raise LookupError(f'secret "{secret["name"]}" not found') from error
            for item in secret.get("items") or [{"key": key, "path": key} for key in data]:
                if item["key"] in data:
                    files[item["path"]] = base64.b64decode(data[item["key"]])
                elif not secret.get("optional"):
                    raise LookupError(f'secret "{secret["name"]}" has no key {item["key"]}')
        text = json.dumps({name: base64.b64encode(content).decode() for name, content in sorted(files.items())})
        if pod.sources.get(folder) == text:
            return
        pod.sources[folder] = text
        version = folder / f"..{time.monotonic_ns()}"
        version.mkdir()
        for name, content in files.items():
            with open(os.open(version / name, os.O_CREAT | os.O_WRONLY, mode), "wb") as file:
                file.write(content)
            link = folder / name
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}")
        (folder / "..new").symlink_to(version.name)
        os.replace(folder / "..new", folder / "..data")

    def _refresh(self, pod):
        for volume in pod.item["spec"].get("volumes") or []:
            if "secret" in volume or "projected" in volume:
                try:
                    self._fill(pod, volume, pod.volumes[volume["name"]])
                except LookupError:
                    pass  # what was mounted stays

    def _translate(self, pod, container, text):
        """Where the container's paths are here. A folder of which only parts are mounted has links to them."""
        places = {mount["mountPath"]: pod.volumes[mount["name"]] for mount in container.get("volumeMounts") or []}
        tree = pod.folder / "tree" / container["name"]
        for path in list(places):
            link, parent = tree / path.strip("/"), str(Path(path).parent)
            if not link.is_symlink():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(places[path])
            places.setdefault(parent, link.parent)
        if not places:
            return text
        known = "|".join(re.escape(path) for path in sorted(places, key=len, reverse=True))
        return re.sub(rf"(?<![\w/.-])({known})(?![\w.-])", lambda match: str(places[match.group(1)]), text)

    def _environment(self, pod, container):
        environment = {"PATH": os.environ["PATH"], "HOSTNAME": pod.item["spec"].get("hostname", pod.item["metadata"]["name"]), "HOME": str(pod.folder),
                       "LANG": "C.UTF-8"}
        for variable in container.get("env") or []:
            if "valueFrom" in variable:
                path = variable["valueFrom"]["fieldRef"]["fieldPath"]
                environment[variable["name"]] = {"status.podIP": "127.0.0.1", "metadata.name": pod.item["metadata"]["name"],
                                                 "metadata.namespace": pod.item["metadata"]["namespace"]}[path]
            else:
                environment[variable["name"]] = self._translate(pod, container, _expand(self._resolve(pod, variable.get("value", "")), environment))
        return environment

    def _resolve(self, pod, text):
        """Names of Services in a value become the address of the pods that they select: of one that exists, with that port."""
        def address(match):
            name, namespace = match.group(1), match.group(2)
            try:
                service = self.store.get(self.store.resource("", "v1", "services"), namespace, name)
            except api_store.ApiError as error:
                raise LookupError(f"no Service {name} in {namespace}") from error
            selector = ",".join(f"{key}={value}" for key, value in service["spec"]["selector"].items())
            if not self.store.list(self._resource, namespace, selector)[0]:
                raise LookupError(f"the Service {name} selects no pod")
            return "127.0.0.1"
        return re.sub(r"\b([a-z0-9-]+)\.([a-z0-9-]+)\.svc\b", address, text)


def _expand(text, environment):
    return re.sub(r"\$\((\w+)\)", lambda match: environment.get(match.group(1), match.group(0)), text)
