"""Runs a job on this machine: what the operator does for it in a cluster, with processes in the place of pods.

reconcile() looks and plan() decides, as they do in a cluster; LocalCluster is to them what cluster.Cluster is there. So restarts, their limits, the
order of begin and end, and what is success are those of the operator.
"""

import contextlib
import copy
import os
import queue
import shutil
import signal
import socket
import sys
import threading
import time
import uuid

from tessera_operator import actions, names, pods
from tessera_operator.job import OutputLost, faults_of, read
from tessera_operator.local_pod import ADDRESS, Here, JobFolder, Layout, LocalPod, Output
from tessera_operator.plan import Observed
from tessera_operator.pods import needed_keys
from tessera_operator.reconcile import reconcile
from tessera_operator.status import text_of

SECRET_BYTES = 32
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def local_body(body, num_workers=None, port=None):
    """The job as it can be run here: as this user, at once, and, where they are given, with so many workers and at that port."""
    body = copy.deepcopy(body)
    spec = body["spec"]
    for where in (spec, spec.get("runPolicy") or {}):
        where.pop("suspend", None)
    for name, role in spec["msReplicaSpecs"].items():
        pod = role["template"]["spec"]
        for part in (pod, *(pod.get("containers") or []), *(pod.get("initContainers") or [])):
            part.pop("securityContext", None)
        if name == "Scheduler" and port is not None:
            _set_port(pod, port)
    workers = spec["msReplicaSpecs"]["Worker"]
    if port is not None and "Scheduler" not in spec["msReplicaSpecs"]:
        _set_port(workers["template"]["spec"], port)
    if num_workers is not None:
        workers["replicas"] = num_workers
    if body["kind"] == "TesseraJob":
        spec["secretDelivery"] = "Mount"  # there is one user
    body["metadata"] |= {"uid": uuid.uuid4().hex, "finalizers": []}
    return body


def _set_port(pod, port):
    for container in pod["containers"]:
        if container["name"] == names.CONTAINER:
            others = [other for other in container.get("ports") or [] if other.get("name") != names.PORT_NAME]
            container["ports"] = others + [{"name": names.PORT_NAME, "containerPort": port}]


def service_of(job):
    return (names.service_name(job.name), job.namespace) if job.has_scheduler else None


def faults_here(job, here):
    """What of the job cannot be had on this machine, each with the path of its field. Makes folders below here.folder."""
    found = {}
    sources = {f"tessera-{part}": path for part in ("tls", "secret") for path, _ in needed_keys(job).values()}
    for _, role, index in job.members():
        pod = pods.make_pod(job, role, index, 0)
        pod["metadata"]["uid"] = job.uid
        for fault in Layout(pod, here, service_of(job), here.folder / "tried" / role.name / str(index)).faults():
            path = fault.path
            if path.startswith("volumes["):
                volume = pod["spec"]["volumes"][int(path[len("volumes["):path.index("]")])]
                path = sources.get(volume["name"], f"spec.msReplicaSpecs.{role.name}.template.spec.{path}")
            else:
                path = f"spec.msReplicaSpecs.{role.name}.template.spec.{path}"
            found[f"{path}: {fault}"] = None
    shutil.rmtree(here.folder / "tried", ignore_errors=True)
    if job.has_scheduler and not _is_free(job.port):
        found[f"port {job.port} is taken on this machine: let the scheduler's port be another one by --port"] = None
    return list(found)


def _is_free(port):
    try:
        socket.create_server((ADDRESS, port)).close()
        return True
    except OSError:
        return False


class LocalCluster:
    """One job, with its objects. To be used by one thread."""

    def __init__(self, body, here, output):
        self.body, self._here, self._output = body, here, output
        self.changed = threading.Event()  # set when a program has ended
        self._pods, self._service, self._secret = {}, None, None
        self._told = set()
        job = read(body)
        self._service_name = service_of(job)
        if job.recovery:
            here.claims.setdefault(job.recovery["claimName"], here.folder / "claims" / job.recovery["claimName"])
            here.claims[job.recovery["claimName"]].mkdir(parents=True, exist_ok=True)

    @property
    def key(self):
        return self.body["kind"], self.body["metadata"]["namespace"], self.body["metadata"]["name"]

    def tell(self, text):
        self._output.write("err", "job", text.encode())

    # As cluster.Cluster has them.
    def job(self, kind, namespace, name):
        return None if self.body is None else copy.deepcopy(self.body)

    def observe(self, body, job, refusals=()):
        self.look()
        observed = Observed(pods=[copy.deepcopy(pod.item) for pod in self._pods.values()], service=self._service, secret=self._secret,
                            refusals=list(refusals))
        observed.keys = {name: sorted(self._here.secrets[name]) for name in needed_keys(job) if name in self._here.secrets}
        return observed

    def apply(self, body, plan):
        after_s = None
        for action in plan:
            if isinstance(action, actions.Create):
                self._create(action)
            elif isinstance(action, actions.DeletePod):
                self._delete(action)
            elif isinstance(action, actions.WriteStatus):
                self.body["status"] = action.status
                self.changed.set()  # the next plan may have more to say
            elif isinstance(action, actions.SetFinalizers):
                self.body["metadata"]["finalizers"] = action.finalizers
                self.changed.set()
                if not action.finalizers and "deletionTimestamp" in self.body["metadata"]:
                    self.body = None
            elif isinstance(action, actions.DeleteJob):
                self.delete_job()
            elif isinstance(action, actions.LookAgain):
                after_s = action.after_s
        return [], after_s

    def _create(self, action):
        item = copy.deepcopy(action.body)
        if action.resource == "events":
            if action.name not in self._told:
                self._told.add(action.name)
                self.tell(f"{item['reason']}: {item['message']}")
        elif action.resource == "services":
            self._service = item
        elif action.resource == "secrets":
            self._secret = item
        else:
            item["metadata"] |= {"uid": uuid.uuid4().hex, "creationTimestamp": text_of(time.time())}
            pod = self._pods[action.name] = LocalPod(item, self._here, self._service_name, self._output, self.changed)
            pod.start()
            self.changed.set()

    def _delete(self, action):
        pod = self._pods.get(action.name)
        if pod is None or pod.item["metadata"]["uid"] != action.uid:
            return
        pod.delete()
        self.changed.set()

    # What a cluster does by itself.
    def look(self):
        for name, pod in list(self._pods.items()):
            pod.look()
            if pod.is_gone():
                del self._pods[name]

    def delete_job(self):
        self.body["metadata"].setdefault("deletionTimestamp", text_of(time.time()))
        self.changed.set()

    def kill(self):
        for pod in self._pods.values():
            pod.kill()

    def seconds_until_kill(self):
        left = [seconds for pod in self._pods.values() if (seconds := pod.seconds_until_kill()) is not None]
        return min(left) + 0.01 if left else None

    def outcome(self):
        """The condition by which the job has ended; None while it has not."""
        if "completionTime" not in (self.body.get("status") or {}):
            return None
        return next(condition for condition in self.body["status"]["conditions"] if condition["type"] in ("Succeeded", "Failed") and condition["status"] == "True")


class Interrupted(BaseException):
    """A signal before the job has begun, or a second one."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number


class _Signals:
    """Notes the first signal that is to end the job. A handler may interrupt the main thread while that holds the lock of the event that it
    waits for: so a thread sets the event, which is told by a queue whose put() may be interrupted. The second signal throws Interrupted, whatever
    the main thread waits for, as for a standard error that nobody reads."""

    def __init__(self, cluster):
        self.first, self.is_urgent, self._before, self._noted = None, False, {}, queue.SimpleQueue()
        self._thread = threading.Thread(target=self._pass_on, args=(cluster.changed,), daemon=True)

    def _pass_on(self, changed):
        while self._noted.get():
            changed.set()

    def __enter__(self):
        self._thread.start()
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number, _):
        if self.first is None:
            self.first = number
            self._noted.put(True)
        elif not self.is_urgent:
            self.is_urgent = True
            raise Interrupted(self.first)

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._noted.put(False)
        self._thread.join()


def run(body, here):
    """Runs a job that local_body() has made, until it has ended. Returns 0 where it has succeeded, 1 where it has failed, 128 + N after
    signal N. Throws OutputLost where it has succeeded, and what its pods have printed could not be written."""
    output = Output()
    cluster = LocalCluster(body, here, output)
    with _Signals(cluster) as signals:
        try:
            code = _run(cluster, signals)
            if code == 0 and output.failure is not None:
                raise OutputLost(output.failure)
            return code
        except Interrupted as end:  # twice
            return 128 + end.number
        finally:
            signals.is_urgent = True
            cluster.kill()


def _run(cluster, signals):
    outcome, is_told = None, False
    while True:
        cluster.changed.clear()
        if signals.first is not None and not is_told:
            is_told = True
            cluster.tell(f"{signal.Signals(signals.first).name}: the pods end; once more kills them")
            cluster.delete_job()
        key = cluster.key
        after_s, _ = reconcile(cluster, key)
        if cluster.body is None:
            break
        if outcome is None and (outcome := cluster.outcome()) is not None:
            cluster.delete_job()  # whatever its cleanPodPolicy leaves in a cluster
        kill_s = cluster.seconds_until_kill()
        cluster.changed.wait(after_s if kill_s is None else min(after_s, kill_s))
    if signals.first is not None and outcome is None:
        return 128 + signals.first
    return 0 if outcome["type"] == "Succeeded" else 1


def _interrupt(number, _):
    raise Interrupted(number)


@contextlib.contextmanager
def _folder():
    """A job's folder, for as long as this is looked at. A signal ends that with Interrupted; none ends the removal."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    before = {number: signal.signal(number, _interrupt) for number in SIGNALS}
    folder = None
    try:
        folder = JobFolder()
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            yield folder
        finally:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
    finally:
        if folder is not None:
            folder.remove()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)


def run_here(manifest, num_workers=None, port=None, secrets=None, config_maps=None, claims=None, paths=None):
    """(faults, exit code): runs the job of a manifest where nothing of it is missing on this machine."""
    body = local_body(manifest.body, num_workers, port)
    if faults := faults_of(body):
        return [str(fault) + (f"; it is {num_workers} by --workers" if num_workers is not None else "") for fault in faults], None
    try:
        with _folder() as folder:
            here = Here(folder, manifest.secrets | (secrets or {}), manifest.config_maps | (config_maps or {}), dict(claims or {}), paths)
            job = read(body)
            if job.owns_secret:
                here.secrets[job.secret_name] = {names.SECRET_KEY: os.urandom(SECRET_BYTES)}
            if job.recovery:
                here.claims.setdefault(job.recovery["claimName"], here.folder / "claims" / job.recovery["claimName"])
            faults = faults_here(job, here)
            if faults:
                return faults, None
            for option, given in (("--secret", secrets), ("--config", config_maps), ("--claim", claims), ("--path", paths)):
                for name in given or {}:
                    if name not in here.used[option]:
                        print(f"{option} {name}=...: no pod of the job names it, so that it has no effect", file=sys.stderr)
            return [], run(body, here)
    except Interrupted as end:
        print(f"ended by {signal.Signals(end.number).name}", file=sys.stderr)
        return [], 128 + end.number
