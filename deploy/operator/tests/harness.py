"""What the tests share: an API server with the CRDs, jobs, an operator as a process of its own, and waiting without guessing how long."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import api_store
import yaml
from api_server import ApiServer, Rights

FOLDER = Path(__file__).resolve().parent
OPERATOR = FOLDER.parent
ROOT = OPERATOR.parent.parent
TRAINEE = FOLDER / "trainee.py"
TOKEN = "system:serviceaccount:tessera-system:tessera-operator"
FULL = os.environ.get("TESSERA_TEST_FULL") == "1"
sys.path.insert(0, str(OPERATOR))
sys.path.append(str(ROOT / "tests/python"))

from ports import free_port  # noqa: E402, F401, for those who import this
from tessera_operator import names  # noqa: E402


def manifests(path):
    return [item for item in yaml.load_all(Path(path).read_text(), Loader=yaml.CSafeLoader) if item]


def operator_rules():
    """Those of the ClusterRole that the operator is installed with."""
    return [rule for item in manifests(OPERATOR / "config/rbac/role.yaml") if item["metadata"]["name"] == "tessera-operator" for rule in item["rules"]]


def new_server():
    """Where the operator may do what its ClusterRole says."""
    server = ApiServer({TOKEN: Rights(operator_rules())})
    for path in sorted((OPERATOR / "config/crd").glob("*.yaml")):
        for crd in manifests(path):
            api_store.apply(server.store, crd)
    return server


def role(command, replicas=1, policy="OnFailure", **pod):
    container = {"name": names.CONTAINER, "image": "example/train:1", "command": command}
    container |= {key: pod.pop(key) for key in ("ports", "env", "securityContext") if key in pod}
    return {"replicas": replicas, "restartPolicy": policy, "template": {"spec": {"containers": [container]} | pod}}


def trainee(*arguments):
    return [sys.executable, "-S", "-B", str(TRAINEE), *map(str, arguments)]


def port_named(port):
    return [{"name": names.PORT_NAME, "containerPort": port}]


def job(name, kind="MSJob", workers=2, servers=0, port=None, arguments=(), scheduler=(), policy="OnFailure", run_policy=None, scheduler_policy=None,
        namespace="default", **spec):
    """A job of trainees; `arguments` are the workers', `scheduler` the scheduler's."""
    group, version, _ = names.KINDS[kind]
    ports = {"ports": port_named(port)} if port else {}
    specs = {"Scheduler": role(trainee(*scheduler), policy=scheduler_policy or policy, **ports), "Worker": role(trainee(*arguments), workers, policy)}
    if servers:
        specs["PS"] = role(trainee(*arguments), servers, policy)
    spec = {"msReplicaSpecs": specs, "successPolicy": "AllWorkers"} | ({"runPolicy": run_policy} if run_policy else {}) | spec
    return {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def wait_for(what, found, timeout_s=60.0):
    """Returns what `found()` gives, once it is true."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            result = found()
        except api_store.ApiError as error:
            result, what_failed = None, error.message
        else:
            what_failed = None
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {timeout_s} s" + (f" ({what_failed})" if what_failed else ""))
        time.sleep(0.01)


class View:
    """The objects of a store, as a test speaks of them."""

    def __init__(self, store, namespace="default"):
        self.store, self.namespace = store, namespace

    def _resource(self, plural):
        return next(resource for resource in self.store.kinds() if resource.plural == plural)

    def get(self, plural, name):
        return self.store.get(self._resource(plural), self.namespace, name)

    def find(self, plural, name):
        try:
            return self.get(plural, name)
        except api_store.ApiError:
            return None

    def items(self, plural, labels=None):
        return self.store.list(self._resource(plural), self.namespace, labels)[0]

    def apply(self, body):
        return api_store.apply(self.store, body, self.namespace)

    def delete(self, plural, name, **options):
        return self.store.delete(self._resource(plural), self.namespace, name, options)

    def patch(self, plural, name, patch):
        return self.store.patch(self._resource(plural), self.namespace, name, patch, "application/merge-patch+json")

    def set_pod(self, name, phase, **status):
        """As a kubelet reports."""
        resource = self._resource("pods")
        item = self.get("pods", name)
        item["status"] = item["status"] | {"phase": phase} | status
        return self.store.update(resource, self.namespace, name, item, "status")

    def pods(self, job_name):
        return {pod["metadata"]["name"]: pod for pod in self.items("pods", f"{names.JOB_LABEL}={job_name}")}

    def job(self, name, plural="msjobs"):
        return self.get(plural, name)

    def status(self, name, plural="msjobs"):
        return self.job(name, plural).get("status") or {}

    def condition(self, name, kind, plural="msjobs"):
        found = [condition for condition in self.status(name, plural).get("conditions") or [] if condition["type"] == kind]
        return found[0] if found else None

    def is_true(self, name, kind, plural="msjobs"):
        condition = self.condition(name, kind, plural)
        return bool(condition) and condition["status"] == "True"

    def reasons(self):
        return [event["reason"] for event in self.items("events")]


class OperatorProcesses:
    """Operators as processes: a parent that has imported all forks them, so that starting one again takes no second."""

    def __init__(self, server, folder, token=TOKEN):
        kubeconfig = Path(folder) / "kubeconfig"
        server.write_kubeconfig(kubeconfig, token)
        self.log = Path(folder) / "operator.log"
        environment = os.environ | {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(OPERATOR), "PYTHONDONTWRITEBYTECODE": "1"}
        with open(self.log, "ab") as log:
            self._parent = subprocess.Popen([sys.executable, "-B", str(FOLDER / "operator_parent.py")], env=environment, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log, text=True)

    def __enter__(self):
        return self

    def start(self, *arguments):
        """The process id of a new operator."""
        return int(self._say(json.dumps(["start", *arguments])))

    def _say(self, line):
        self._parent.stdin.write(line + "\n")
        self._parent.stdin.flush()
        return self._parent.stdout.readline()

    def wait(self, pid):
        """Its exit code, or minus the signal that ended it."""
        return int(self._say(json.dumps(["wait", pid])))

    def stop(self, pid):
        os.kill(pid, signal.SIGTERM)
        return self.wait(pid)

    def __exit__(self, *_):
        self._parent.stdin.close()
        self._parent.wait()
