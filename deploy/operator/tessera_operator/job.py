"""A job as the operator understands it: one form for both kinds, with every default, checked.

The rules of the CRDs (schema.py) refuse the same at the API server, where they are enforced; these hold where an old cluster does
not know them, and name the field in the same words.
"""

import re
from dataclasses import dataclass, field

from tessera_operator import names, pod_rules

MAX_NAME = 48  # JOB-scheduler-0 and JOB-worker-4095 are names of hosts, which have 63 characters at most
MAX_REPLICAS = 4096  # a job's status has some 100 bytes for each pod, an object at most 1.5 MB
DEFAULT_MAX_RESTARTS = 10
CLEAN_POLICIES = ("All", "Running", "None")
SUCCESS_POLICIES = ("", "AllWorkers")
RESTART_POLICIES = ("Always", "OnFailure", "Never")
NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


class InvalidJob(Exception):
    """A fault of a job's text: `field` is the path of what is wrong."""

    def __init__(self, path, message):
        super().__init__(f"{path}: {message}")
        self.field = path


class InvalidManifest(Exception):
    """`faults`: a text for each, which begins with the path of its field."""

    def __init__(self, origin, faults):
        super().__init__("\n".join(f"{origin}: {fault}" for fault in faults))
        self.faults = faults


class OutputLost(Exception):
    """Standard output takes no more; a reader that has gone is none of that."""

    def __init__(self, failure):
        super().__init__(f"cannot write standard output: {failure.strerror or failure}")


@dataclass(frozen=True)
class Role:
    name: str
    replicas: int
    restart_policy: str
    template: dict = field(hash=False)


@dataclass(frozen=True)
class Job:
    kind: str
    name: str
    namespace: str
    uid: str
    roles: dict = field(hash=False)  # name -> Role, in the order in which pods are made
    generation: int = 1
    clean_pods: str = "Running"
    success_policy: str = ""
    max_restarts: int = DEFAULT_MAX_RESTARTS
    counts_disruptions: bool = False
    is_suspended: bool = False
    ttl_s: int | None = None
    deadline_s: int | None = None
    secret: str | None = None  # the name of a Secret of the user's, which has the job's secret
    tls: dict | None = None
    recovery: dict | None = None
    gang: dict | None = None
    secret_delivery: str = "Auto"
    ranks_per_worker: int = 1

    @property
    def api_version(self):
        group, version, _ = names.KINDS[self.kind]
        return f"{group}/{version}"

    @property
    def has_scheduler(self):
        return "Scheduler" in self.roles

    @property
    def num_workers(self):
        return self.roles["Worker"].replicas * self.ranks_per_worker

    @property
    def num_servers(self):
        return self.roles["PS"].replicas if "PS" in self.roles else 0

    @property
    def port(self):
        return port_of(self.roles["Scheduler"].template) if self.has_scheduler else names.DEFAULT_PORT

    @property
    def secret_name(self):
        return self.secret or names.secret_name(self.name)

    @property
    def owns_secret(self):
        """Whether the operator draws the secret: where there is somebody to prove it to, and neither the user's nor certificates."""
        return self.has_scheduler and self.secret is None and self.tls is None

    @property
    def formation(self):
        """What every pod of a job has been told alike: with another one all begin anew."""
        return f"{self.generation}.{self.roles['Worker'].replicas}.{self.num_servers}"

    def members(self):
        """(pod's name, role, index) of each pod that the job has."""
        return [(names.pod_name(self.name, role.name, index), role, index) for role in self.roles.values() for index in range(role.replicas)]


def container_of(template):
    """The container in which a role's program runs, or None."""
    found = [container for container in template.get("spec", {}).get("containers") or [] if container.get("name") == names.CONTAINER]
    return found[0] if len(found) == 1 else None


def port_of(template):
    ports = [port["containerPort"] for port in container_of(template).get("ports") or [] if port.get("name") == names.PORT_NAME]
    return ports[0] if ports else names.DEFAULT_PORT


def _one_of(say, path, value, allowed):
    if value not in allowed:
        say(InvalidJob(path, f"it is {value!r}, but must be one of {', '.join(map(repr, allowed))}"))
    return value


def _number(say, path, value, least, most):
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        say(InvalidJob(path, f"it is {value!r}, but must be a number from {least} to {most}"))
    return value


def _optional_number(say, path, value):
    return None if value is None else _number(say, path, value, 0, 2**31 - 1)


def _read_role(say, name, spec):
    path = f"spec.msReplicaSpecs.{name}"
    replicas = _number(say, f"{path}.replicas", spec.get("replicas", 1), 1, 1 if name == "Scheduler" else MAX_REPLICAS)
    policy = _one_of(say, f"{path}.restartPolicy", spec.get("restartPolicy", "OnFailure"), RESTART_POLICIES)
    template = spec.get("template") or {}
    containers = template.get("spec", {}).get("containers") or []
    of_name = [container.get("name") for container in containers].count(names.CONTAINER)
    if of_name != 1:
        say(InvalidJob(f"{path}.template.spec.containers", f"exactly one container must have the name {names.CONTAINER!r}, "
                       f"{of_name} of {len(containers)} have it"))
    for index, container in enumerate(containers):
        if [port.get("name") for port in container.get("ports") or []].count(names.PORT_NAME) > 1:
            say(InvalidJob(f"{path}.template.spec.containers[{index}].ports", f"at most one port may have the name {names.PORT_NAME!r}"))
    for place, words in pod_rules.faults(template.get("spec"), f"{path}.template.spec"):
        say(InvalidJob(place, words))
    return Role(name, replicas, policy, template)


def _scheduler_like(worker):
    """The scheduler of a TesseraJob that names none: the command of the workers' image."""
    theirs = container_of(worker.template)
    own = {"name": names.CONTAINER, "image": theirs["image"]}
    own |= {key: theirs[key] for key in ("imagePullPolicy", "securityContext") if key in theirs}
    pod = {key: worker.template["spec"][key] for key in ("imagePullSecrets", "securityContext", "serviceAccountName", "tolerations")
           if key in worker.template["spec"]}
    ports = [port for port in theirs.get("ports") or [] if port.get("name") == names.PORT_NAME]
    return Role("Scheduler", 1, "OnFailure", {"spec": pod | {"containers": [own | ({"ports": ports} if ports else {})]}})


def read(body):
    """The job that an object of one of the two kinds describes. Throws InvalidJob with the path of the first field that is wrong."""
    def refuse(fault):
        raise fault
    return _read(body, refuse)


def faults_of(body):
    """All that read() would refuse. `body` may have values of wrong types: what cannot be looked at then is passed over."""
    found = []
    try:
        _read(body, found.append)
    except (AttributeError, KeyError, TypeError):
        pass
    return found


def _read(body, say):
    """`say` is told of each fault, and may throw it."""
    kind, metadata, spec = body["kind"], body["metadata"], body.get("spec") or {}
    name = metadata["name"]
    if not NAME.fullmatch(name) or len(name) > MAX_NAME:
        say(InvalidJob("metadata.name", f"{name!r} must have at most {MAX_NAME} characters, small letters, digits and '-', a letter first, "
                       "as pods, hosts and a Service are named by it"))
    specs = spec.get("msReplicaSpecs") or {}
    for unknown in sorted(set(specs) - set(names.SLUGS)):
        say(InvalidJob(f"spec.msReplicaSpecs.{unknown}", f"there is no such role; roles are {', '.join(names.SLUGS)}"))
    if "Worker" not in specs:
        say(InvalidJob("spec.msReplicaSpecs.Worker", "a job has at least one worker"))
    policy = spec.get("runPolicy") or {}
    own = spec if kind == "TesseraJob" else {}
    shared = {
        "clean_pods": _one_of(say, "spec.runPolicy.cleanPodPolicy", policy.get("cleanPodPolicy", "Running"), CLEAN_POLICIES),
        "success_policy": _one_of(say, "spec.successPolicy", spec.get("successPolicy", "" if kind == "MSJob" else "AllWorkers"), SUCCESS_POLICIES),
        "deadline_s": _optional_number(say, "spec.runPolicy.activeDeadlineSeconds", policy.get("activeDeadlineSeconds")),
    }
    if own.get("tls") and own.get("secretName"):
        say(InvalidJob("spec.secretName", "certificates (spec.tls) take the secret's place: name one of the two"))
    if own.get("minWorkers") is not None and own.get("maxWorkers") is not None and own["minWorkers"] > own["maxWorkers"]:
        say(InvalidJob("spec.minWorkers", f"it is {own['minWorkers']}, but must be at most maxWorkers ({own['maxWorkers']})"))
    roles = {role: _read_role(say, role, specs[role]) for role in names.SLUGS if role in specs}
    is_of_many = roles["Worker"].replicas > 1 or "PS" in roles
    if is_of_many and "Scheduler" not in roles:
        if kind == "MSJob":
            say(InvalidJob("spec.msReplicaSpecs.Scheduler", "a job of several workers, or with PS, needs a scheduler; only one worker may be alone"))
        else:
            roles = {"Scheduler": _scheduler_like(roles["Worker"]), **roles}
    job = (kind, name, metadata["namespace"], metadata["uid"], roles)
    if kind == "MSJob":
        limit = _number(say, "spec.runPolicy.backoffLimit", policy.get("backoffLimit", DEFAULT_MAX_RESTARTS), 0, 1_000_000)
        return Job(*job, **shared, max_restarts=limit,
                   ttl_s=_optional_number(say, "spec.runPolicy.ttlSecondsAfterFinished", policy.get("ttlSecondsAfterFinished")),
                   is_suspended=bool(policy.get("suspend", False)))
    ranks = _number(say, "spec.ranksPerWorker", own.get("ranksPerWorker", 1), 1, MAX_REPLICAS)
    workers = roles["Worker"].replicas
    least, most = own.get("minWorkers"), own.get("maxWorkers")
    if least is not None and workers < least or most is not None and workers > most:
        bounds = [f"at least minWorkers ({least})"] * (least is not None) + [f"at most maxWorkers ({most})"] * (most is not None)
        say(InvalidJob("spec.msReplicaSpecs.Worker.replicas", f"it is {workers}, but must be {' and '.join(bounds)}"))
    return Job(*job, **shared, generation=_number(say, "spec.generation", own.get("generation", 1), 1, 2**31 - 1),
               max_restarts=_number(say, "spec.maxRestarts", own.get("maxRestarts", DEFAULT_MAX_RESTARTS), 0, 1_000_000),
               counts_disruptions=bool(own.get("countDisruptions", False)), is_suspended=bool(own.get("suspend", False)),
               ttl_s=_optional_number(say, "spec.ttlSecondsAfterFinished", own.get("ttlSecondsAfterFinished")),
               secret=own.get("secretName"), tls=own.get("tls"), recovery=own.get("recovery"), gang=own.get("gang"),
               secret_delivery=_one_of(say, "spec.secretDelivery", own.get("secretDelivery", "Auto"), ("Auto", "Mount", "Copy")), ranks_per_worker=ranks)
