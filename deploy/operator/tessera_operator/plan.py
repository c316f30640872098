"""plan(): what is to be done for a job, of nothing but the job, what was observed of it, and the time.

It holds whatever has become of an earlier plan: of what was asked for, any part may have been done. A pod counts as lost only where
its uid stands in the status, so what was never made is no loss; and who is replaced has the number of its next attempt in the status
before anything else happens, so a loss counts once.
"""

from dataclasses import dataclass, field

from tessera_operator import names, pods
from tessera_operator.actions import Create, DeleteJob, DeletePod, LookAgain, SetFinalizers, WriteStatus
from tessera_operator.job import InvalidJob, read
from tessera_operator.status import JobStatus, text_of, time_of

CONSEQUENCE_S = 60  # a failure within that time after a counted one, of a pod that ran then, is a part of it
MAX_BACKOFF_S = 60
SCHEDULER_GRACE_S = 30  # a scheduler ends with its job a little before the last worker's pod is seen to have ended
WAIT_S = 10  # for what no event of a pod or a job tells: a Secret of the user's, a quota
DISRUPTIONS = ("Evicted", "Preempting", "Preempted", "NodeLost", "NodeShutdown", "Terminated", "Shutdown")
WORDS_OF_INVALID = (400, 422)


@dataclass
class Refusal:
    """What the API server said when an object was to be made. It stands until a later try succeeds, or nobody wants the object any more."""
    name: str
    code: int
    message: str
    resource: str = "pods"  # plural, as that of actions.Create
    time: float = 0.0  # of the try
    is_told: bool = False  # whether a plan has said it

    @property
    def is_final(self):
        """Whether the job fails of it."""
        return self.resource == "pods" and self.code in WORDS_OF_INVALID

    def seconds_left(self, now):
        """Until one may try again; 0 where the clock was set back, too."""
        return self.time + WAIT_S - now if self.time <= now < self.time + WAIT_S else 0.0

    def is_of(self, other):
        """Whether it says what another one has said."""
        return (self.resource, self.name, self.code, self.message) == (other.resource, other.name, other.code, other.message)


@dataclass
class Observed:
    pods: list = field(default_factory=list)  # those with the job's labels, whoever owns them
    service: dict | None = None
    secret: dict | None = None  # the job's own, without its value
    keys: dict = field(default_factory=dict)  # name of a Secret of the user's -> its keys, None where there is none
    refusals: list = field(default_factory=list)  # those that stand


def owner_uid(item):
    owners = [owner["uid"] for owner in item["metadata"].get("ownerReferences") or [] if owner.get("controller")]
    return owners[0] if owners else None


def is_going(item):
    return "deletionTimestamp" in item["metadata"]


def phase_of(pod):
    return (pod.get("status") or {}).get("phase", "Pending")


def has_ended(pod):
    return phase_of(pod) in ("Succeeded", "Failed")


def attempt_of(pod):
    return int(pod["metadata"]["labels"][names.ATTEMPT_LABEL])


def is_ready(pod):
    """Whether the pod runs and its kubelet does not say that its probes fail."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return phase_of(pod) == "Running" and not is_going(pod) and not any(
        condition["type"] == "Ready" and condition["status"] == "False" for condition in conditions)


def is_disruption(pod):
    """Whether the pod has failed because its place was taken, and not by itself."""
    status = pod.get("status") or {}
    targets = [condition for condition in status.get("conditions") or [] if condition["type"] == "DisruptionTarget" and condition["status"] == "True"]
    return bool(targets) or status.get("reason") in DISRUPTIONS


def why_failed(pod):
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or []:
        ended = (container.get("state") or {}).get("terminated")
        if container["name"] == names.CONTAINER and ended:
            return f"exit code {ended['exitCode']}" + (f" ({ended['reason']})" if ended.get("reason") not in (None, "Error") else "")
    return status.get("reason") or "no exit code"


def why_waiting(pod):
    """What keeps a pod from running, in the words of the kubelet or of the scheduler of pods; None where nothing does."""
    status = pod.get("status") or {}
    for container in (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or []):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason', 'Unschedulable')}: {condition.get('message', '')}".rstrip(": ")
    return None


def plan(body, observed, now):
    """The actions, in their order. `body` is the job as the API server has it, `now` the seconds of time.time()."""
    metadata = body["metadata"]
    if is_going(body):
        return _plan_end(body, observed)
    if names.FINALIZER not in (metadata.get("finalizers") or []):
        return [SetFinalizers([*(metadata.get("finalizers") or []), names.FINALIZER])]
    return _Planner(body, observed, now).plan()


def _deletions(found):
    """The scheduler's pod goes last: until then ranks that are told to end can agree on the step that they save."""
    others = [pod for pod in found if pod["metadata"]["labels"].get(names.ROLE_LABEL) != names.SLUGS["Scheduler"]]
    waits_for_ranks = any(not has_ended(pod) for pod in others)
    return [DeletePod(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in (others if waits_for_ranks else found) if not is_going(pod)]


def _plan_end(body, observed):
    metadata = body["metadata"]
    if names.FINALIZER not in (metadata.get("finalizers") or []):
        return []
    own = [pod for pod in observed.pods if owner_uid(pod) == metadata["uid"]]
    if own:
        return _deletions(own)
    return [SetFinalizers([name for name in metadata["finalizers"] if name != names.FINALIZER])]


class _Planner:
    def __init__(self, body, observed, now):
        self.body, self.observed, self.now = body, observed, now
        self.uid = body["metadata"]["uid"]
        self.status = JobStatus(body, now)
        self.own = [pod for pod in observed.pods if owner_uid(pod) == self.uid]
        self.events, self.deletions, self.creations, self.looks = [], [], [], []
        self.job = None

    # The parts of a plan, in the order in which they are done.
    def done(self):
        self.status.new["observedGeneration"] = self.body["metadata"].get("generation", 1)
        if self.job:
            self._count()
        for kind in ("Failed", "Succeeded", "Suspended", "Restarting", "Running", "Created"):
            if self.status.is_true(kind):
                self.status.new["state"] = kind
                break
        written = [WriteStatus(self.status.new)] if self.status.has_changed else []
        looks = [LookAgain(min(self.looks))] if self.looks else []
        return [*self.events, *written, *self.deletions, *self.creations, *looks]

    def look_again(self, after_s):
        self.looks.append(max(after_s, 0.0))

    def tell(self, reason, message, about="", is_warning=False):
        kind = self.body["kind"]
        metadata = self.body["metadata"]
        when = text_of(self.now)
        self.events.append(Create("events", {
            "apiVersion": "v1", "kind": "Event", "reason": reason, "message": message[:1000], "type": "Warning" if is_warning else "Normal",
            "metadata": {"name": names.event_name(metadata["name"], self.uid, reason, about), "namespace": metadata["namespace"]},
            "involvedObject": {"apiVersion": self.body["apiVersion"], "kind": kind, "name": metadata["name"], "namespace": metadata["namespace"],
                               "uid": self.uid},
            "source": {"component": "tessera-operator"}, "reportingComponent": "tessera-operator", "firstTimestamp": when, "lastTimestamp": when,
            "count": 1}))

    def plan(self):
        status = self.status
        try:
            self.job = read(self.body)
        except InvalidJob as fault:
            return self._refuse(fault)
        if status.new.pop("refused", None):
            status.set("Failed", False, "Mended", "the job's text was changed")
        wanted = status.new.get("formation", {}).get("generation", self.job.generation)
        if "completionTime" in status.new and wanted == self.job.generation:
            return self._finished()
        if self.job.is_suspended:
            return self._suspended()
        if status.is_true("Suspended"):
            status.set("Suspended", False, "Resumed", "the job is no longer suspended")
            self.tell("Resumed", "the job goes on", status.new.get("suspensions", 0))
        if not self._has_formation():
            return self.done()
        # Not before: what is refused, as by a quota, has not begun.
        if any(attempt_of(pod) >= status.members.get(pod["metadata"]["name"], {"attempt": 0})["attempt"] for pod in self.own):
            status.set_time("startTime")
        if not self._outcome() and self._has_what_it_needs():
            self._members()
            self._conditions()
        return self.done()

    def _refuse(self, fault):
        """A text that the CRD's rules would have refused; it is looked at again when it changes."""
        self.status.new["refused"] = True
        if self._is_news("Failed", "InvalidSpec", str(fault)):
            self.tell("InvalidSpec", str(fault), self.body["metadata"].get("generation", 1), is_warning=True)
        self.status.set("Failed", True, "InvalidSpec", str(fault))
        return self.done()

    def _is_news(self, kind, reason, message):
        """Whether the condition does not say that yet: else an event would be told at each look."""
        return not any((condition["type"], condition["reason"], condition["message"]) == (kind, reason, message)
                       for condition in self.status.new.get("conditions") or [])

    def _count(self):
        new = self.status.new
        counts, members = {}, self.job.members()
        for role in self.job.roles.values():
            of_role = [pod for pod in self.own if pod["metadata"]["labels"].get(names.ROLE_LABEL) == names.SLUGS[role.name]]
            ended_well = sum(bool(self.status.members.get(name, {}).get("succeeded")) for name, other, _ in members if other is role)
            count = {"active": sum(not has_ended(pod) for pod in of_role), "succeeded": ended_well,
                     "failed": sum(phase_of(pod) == "Failed" for pod in of_role)}
            counts[role.name] = count
        new["replicaStatuses"] = counts
        new["replicas"] = counts["Worker"]["active"]
        new["ready"] = sum(is_ready(pod) for pod in self.own)
        new["selector"] = f"{names.JOB_LABEL}={self.job.name},{names.KIND_LABEL}={self.job.kind},{names.ROLE_LABEL}={names.SLUGS['Worker']}"
        new.setdefault("restarts", 0)

    # A job that has ended, or that is to have no pods.
    def _finished(self):
        job = self.job
        if job.clean_pods == "All":
            self.deletions = _deletions(self.own)
        elif job.clean_pods == "Running":
            self.deletions = _deletions([pod for pod in self.own if not has_ended(pod)])
        if job.ttl_s is not None:
            left = self.status.time("completionTime") + job.ttl_s - self.now
            if left <= 0:
                return [*self.done(), DeleteJob(self.uid)]
            self.look_again(left)
        return self.done()

    def _forget_pods(self):
        """What is made next are new attempts, and the pods that are there are nobody's loss: the operator itself deletes them, and is to
        know that also where its reason is gone before they are."""
        for pod in self.own:
            member = self.status.member(pod["metadata"]["name"])
            member["attempt"] = max(member["attempt"], attempt_of(pod) + 1)
            member.pop("uid", None)
        for member in self.status.members.values():
            if member.pop("uid", None):
                member["attempt"] += 1
            member.pop("notBefore", None)
            member.pop("succeeded", None)

    def _suspended(self):
        status = self.status
        self.deletions = _deletions(self.own)
        if not status.is_true("Suspended"):
            status.new["suspensions"] = status.new.get("suspensions", 0) + 1
            self.tell("Suspended", "the job's pods end, until spec.suspend is false", status.new["suspensions"])
            status.new.pop("startTime", None)
        status.set("Suspended", True, "Suspended", f"{len(self.own)} pods are still ending" if self.own else "the job has no pods, until suspend is false")
        for kind in ("Running", "Restarting"):
            status.set(kind, False, "Suspended", "the job is suspended")
        self._forget_pods()
        return self.done()

    def _has_formation(self):
        """Whether the pods are those of one formation, which all of them know. With another number of ranks, or as the user wants it,
        all end, and then all begin."""
        job, new = self.job, self.status.new
        wanted = {"generation": job.generation, "name": job.formation}
        before = new.get("formation")
        if before == wanted:
            return True
        if self.own:
            self.deletions = _deletions(self.own)
            message = f"all pods begin anew: formation {job.formation} takes the place of {before['name'] if before else 'none'}"
            self.status.set("Restarting", True, "NewFormation", message)
            self.status.set("Running", False, "NewFormation", message)
            self.tell("NewFormation", message, job.formation)
            self._forget_pods()
            return False
        if before and before["generation"] != job.generation:
            for key in ("members", "restarts", "lastRestartTime", "completionTime", "startTime"):
                new.pop(key, None)
            for kind in ("Succeeded", "Failed"):
                self.status.set(kind, False, "NewGeneration", f"generation {job.generation} has begun")
        self._forget_pods()
        new["formation"] = wanted
        kept = {name for name, _, _ in job.members()}
        # Of who is no member any more the number of its attempts stays: it goes on counting where the job grows again.
        new["members"] = {name: member for name, member in self.status.members.items() if name in kept or member["attempt"] > 0}
        return True

    def _end(self, is_success, reason, message):
        status = self.status
        status.set_time("completionTime")
        for kind in ("Running", "Restarting"):
            status.set(kind, False, reason, message)
        status.set("Succeeded" if is_success else "Failed", True, reason, message)
        self.tell(reason, message, self.job.generation, is_warning=not is_success)
        self.creations = []
        self._finished()

    def _outcome(self):
        """Whether the job has ended, and says so then."""
        job, status = self.job, self.status
        for pod in self.own:
            if phase_of(pod) == "Succeeded" and attempt_of(pod) >= status.member(pod["metadata"]["name"])["attempt"]:
                status.member(pod["metadata"]["name"]).update(succeeded=True, uid=pod["metadata"]["uid"], attempt=attempt_of(pod))
        workers = [name for name, role, _ in job.members() if role.name == "Worker"]
        finished = [name for name in workers if status.members.get(name, {}).get("succeeded")]
        if finished and (job.success_policy == "" or len(finished) == len(workers)):
            self._end(True, "Succeeded", f"{len(finished)} of {len(workers)} workers have ended well, the first of them {finished[0]}")
            return True
        start = status.time("startTime")
        if job.deadline_s is not None and start is not None:
            if self.now >= start + job.deadline_s:
                self._end(False, "DeadlineExceeded", f"the job ran for {job.deadline_s} s, which runPolicy.activeDeadlineSeconds allows")
                return True
            self.look_again(start + job.deadline_s - self.now)
        for refusal in self.observed.refusals:
            if refusal.is_final:
                self._end(False, "PodRefused", f"the API server takes no pod {refusal.name}: {refusal.message}")
                return True
        return False

    def _wait_for(self, reason, message, is_warning=True, after_s=WAIT_S):
        if is_warning and self._is_news("Created", reason, message):
            self.tell(reason, message, message, is_warning=True)
        self.status.set("Created", False, reason, message, is_said=True)
        self.look_again(after_s)
        return False

    def _is_free(self, item, kind):
        """Whether an object that the job needs is the job's own, or can be made."""
        if item is None or owner_uid(item) == self.uid:
            return True
        name = item["metadata"]["name"]
        owners = item["metadata"].get("ownerReferences") or []
        if is_going(item) or any(owner["kind"] == self.job.kind and owner["name"] == self.job.name for owner in owners):
            return self._wait_for("OlderObject", f"{kind} {name} is that of an earlier job of this name, which is still ending", is_warning=False)
        return self._wait_for("NameTaken", f"{kind} {name} belongs to somebody else: delete it, or give the job another name")

    def _has_what_it_needs(self):
        job, observed = self.job, self.observed
        if not job.has_scheduler:
            return True
        for name, (path, keys) in pods.needed_keys(job).items():
            found = observed.keys.get(name)
            if found is None:
                return self._wait_for("SecretMissing", f'{path}: there is no Secret "{name}" in namespace {job.namespace}: create it with the keys '
                                      f"{', '.join(keys)}")
            missing = [key for key in keys if key not in found]
            if missing:
                return self._wait_for("SecretMissing", f'{path}: the Secret "{name}" has no key {", ".join(missing)}')
        if not self._is_free(observed.service, "the Service") or job.owns_secret and not self._is_free(observed.secret, "the Secret"):
            return False
        if observed.service is None:
            self.creations.append(Create("services", pods.make_service(job)))
        if job.owns_secret and observed.secret is None:
            self.creations.append(Create("secrets", pods.make_secret(job)))
        for creation in self.creations:
            for refusal in observed.refusals:
                if refusal.resource == creation.resource:
                    return self._wait_for_refused(refusal, creation.body["kind"])
        return True

    def _wait_for_refused(self, refusal, kind):
        """No pod is made before what all need. It is tried again when it is time, and the refusal is said until it is there."""
        left = refusal.seconds_left(self.now)
        if left:
            self.creations = []
        # What was tried is looked at at once, as no event tells that it is there.
        return self._wait_for(f"{kind}Refused", f"the API server takes no {kind} {refusal.name} now ({refusal.code}): {refusal.message}", after_s=left)

    # The pods of a job that runs.
    def _members(self):
        job = self.job
        present = {pod["metadata"]["name"]: pod for pod in self.observed.pods}
        self.waiting, self.running, self.failure = [], 0, None
        wanted = set()
        for name, role, index in job.members():
            wanted.add(name)
            self._member(name, role, index, present.get(name))
            if self.failure:
                return self._end(False, *self.failure)
        for pod in self.own:
            if pod["metadata"]["name"] not in wanted and not is_going(pod):
                self.deletions.append(DeletePod(pod["metadata"]["name"], pod["metadata"]["uid"]))

    def _member(self, name, role, index, pod):
        member = self.status.member(name)
        if pod is None:
            return self._absent(name, role, index, member)
        metadata = pod["metadata"]
        if owner_uid(pod) != self.uid:
            self.waiting.append((name, "a pod of that name of an earlier job is still ending"))
            self.look_again(WAIT_S)
            return
        if attempt_of(pod) < member["attempt"]:
            if not is_going(pod):
                self.deletions.append(DeletePod(name, metadata["uid"]))
            self.waiting.append((name, f"its attempt {attempt_of(pod)} is still ending"))
            return
        if is_going(pod) and not member.get("succeeded"):
            # It counts as lost when it is gone; until then its name is taken.
            member.update(attempt=attempt_of(pod), uid=metadata["uid"])
            self.waiting.append((name, "its pod is being deleted"))
            return
        member.update(attempt=attempt_of(pod), uid=metadata["uid"])
        if phase_of(pod) == "Failed":
            self._lost(name, role, member, f"has failed: {why_failed(pod)}", is_disruption(pod), pod)
        elif phase_of(pod) == "Succeeded":
            self._ended_well(name, role, member, pod)
        elif phase_of(pod) == "Running":
            self.running += 1
        else:
            self.waiting.append((name, why_waiting(pod) or "its pod does not run yet"))

    def _absent(self, name, role, index, member):
        if member.get("succeeded") and (role.name == "Worker" or role.restart_policy != "Always"):
            return
        if member.pop("succeeded", False):
            member.pop("uid", None)
            member["attempt"] += 1
        if "uid" in member:
            return self._lost(name, role, member, "was deleted", True, None)
        left = time_of(member["notBefore"]) - self.now if "notBefore" in member else 0
        if left > 0:
            self.waiting.append((name, f"attempt {member['attempt']} begins at {member['notBefore']}"))
            return self.look_again(left)
        # As of a quota: what is refused once would be refused of all others, too.
        refusal = next((refusal for refusal in self.observed.refusals if refusal.resource == "pods"), None)
        if refusal is None:
            self.waiting.append((name, "its pod is made"))
        else:
            self.waiting.append((name, f"the API server takes no pod {refusal.name} now ({refusal.code}): {refusal.message}"))
            if not refusal.is_told and not any(event.body["reason"] == "PodRefused" for event in self.events):
                self.tell("PodRefused", f"pod {refusal.name}: {refusal.message}", refusal.message, is_warning=True)
            if left := refusal.seconds_left(self.now):
                return self.look_again(left)
        self.creations.append(Create("pods", pods.make_pod(self.job, role, index, member["attempt"])))

    def _ended_well(self, name, role, member, pod):
        """Of Scheduler or PS, before the workers: with Always it is started again, where it is not just the job's end that is seen."""
        if role.name == "Worker" or role.restart_policy != "Always":
            return
        ended = _time_of_end(pod)
        left = (self.now if ended is None else ended) + SCHEDULER_GRACE_S - self.now
        if left > 0:
            return self.look_again(left)
        member.pop("succeeded", None)
        self._lost(name, role, member, "has ended before its job", False, pod)

    def _lost(self, name, role, member, how, is_disrupted, pod):
        """The member's next attempt is decided on; or that the job has failed."""
        job, status = self.job, self.status
        if role.restart_policy == "Never":
            self.failure = ("PodLost" if is_disrupted else "PodFailed", f"pod {name}, attempt {member['attempt']}, {how}, and its restartPolicy is Never")
            return
        counts = (not is_disrupted or job.counts_disruptions) and not self._is_consequence(pod)
        if counts:
            if status.new.get("restarts", 0) >= job.max_restarts:
                self.failure = ("MaxRestartsExceeded", f"pod {name}, attempt {member['attempt']}, {how}, and all {job.max_restarts} restarts are used up")
                return
            status.new["restarts"] = status.new.get("restarts", 0) + 1
            status.new["lastRestartTime"] = text_of(self.now, "milliseconds")
            member["restarts"] = member.get("restarts", 0) + 1
        member["attempt"] += 1
        member.pop("uid", None)
        member.pop("notBefore", None)
        delay = min(2 ** (member.get("restarts", 0) - 2), MAX_BACKOFF_S) if counts and member["restarts"] > 1 else 0
        if delay:
            member["notBefore"] = text_of(self.now + delay, "milliseconds")
            self.look_again(delay)
        words = "" if counts else ", which does not count as a restart"
        self.tell("Restarting", f"pod {name} {how}: attempt {member['attempt']} takes its place{words}", f"{name} {member['attempt']} {job.formation}",
                  is_warning=not is_disrupted)
        self.waiting.append((name, f"{how}; attempt {member['attempt']} takes its place"))
        if pod is not None:
            self.deletions.append(DeletePod(name, pod["metadata"]["uid"]))

    def _is_consequence(self, pod):
        """Whether the pod ran when another one was lost, a short while ago: without recovery all ranks fail with the first."""
        last = self.status.time("lastRestartTime")
        if pod is None or last is None or self.now - last > CONSEQUENCE_S:
            return False
        start = (pod.get("status") or {}).get("startTime") or pod["metadata"].get("creationTimestamp")
        return start is not None and time_of(start) < int(last)  # a pod's times have no parts of a second

    def _conditions(self):
        status = self.status
        if "completionTime" in status.new:
            return
        total = len(self.job.members())
        if self.waiting:
            name, why = self.waiting[0]
            message = f"{len(self.waiting)} of {total} pods do not run: {name}: {why}"
            status.set("Running", False, "PodsWait", message)
            anew = [(name, why) for name, why in self.waiting if status.member(name)["attempt"] > 0]
            if anew:
                status.set("Restarting", True, "PodsBeginAnew", f"{anew[0][0]}: {anew[0][1]}")
            elif status.is_true("Restarting"):
                status.set("Restarting", False, "PodsWait", message)
        else:
            status.set("Running", True, "PodsRun", f"all {total} pods run, or have ended well")
            status.set("Restarting", False, "PodsRun", f"all {total} pods run, or have ended well")
        if status.is_true("Created"):
            return
        missing = [name for name, member in status.members.items() if member["attempt"] == 0 and "uid" not in member]
        if missing:
            why = dict(self.waiting).get(missing[0], "its pod is made")
            status.set("Created", False, "PodsAreMade", f"{total - len(missing)} of {total} pods are made: {missing[0]}: {why}", is_said=True)
        else:
            status.set("Created", True, "Created", f"all {total} pods are made, and what they need")
            self.tell("Created", f"the job has {total} pods", self.job.formation)


def _time_of_end(pod):
    for container in (pod.get("status") or {}).get("containerStatuses") or []:
        ended = (container.get("state") or {}).get("terminated") or {}
        if container["name"] == names.CONTAINER and ended.get("finishedAt"):
            return time_of(ended["finishedAt"])
    return None
