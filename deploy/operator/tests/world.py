"""A cluster without an API server: one job and its objects, in dictionaries, changed by plans and by what a test lets happen."""

import copy
import itertools
from dataclasses import replace

from harness import names
from tessera_operator import actions
from tessera_operator.job import InvalidJob, read
from tessera_operator.plan import Observed, Refusal, has_ended, is_going, plan
from tessera_operator.pods import needed_keys
from tessera_operator.reconcile import standing
from tessera_operator.status import text_of


class Killed(BaseException):
    """The operator has ended in the middle of its plan."""


class World:
    """`now` is a clock that tests move. Everything that a plan asks for takes effect at once, but for the end of pods that run."""

    def __init__(self, body, now=1_700_000_000.0):
        self.now = now
        self.uids = itertools.count(1)
        self.body = copy.deepcopy(body)
        self.body["metadata"] |= {"uid": "job-1", "generation": 1, "resourceVersion": "1"}
        self.pods, self.services, self.secrets, self.events = {}, {}, {}, {}
        self.is_gone = False
        self.effects = 0  # how many there were
        self.last_plan = []
        self.look_again = None
        self.refuse = None  # (an object's body) -> Refusal or None
        self._refusals = []  # those that stand
        self._refused = []  # in this look
        self.tried = []  # (resource, name) of each object that was to be made, but for events
        self.made = []  # (name, attempt) of each pod that was ever made

    # What the operator does.
    def observe(self):
        observed = Observed(pods=copy.deepcopy(list(self.pods.values())), refusals=self._refusals)
        try:
            job = read(self.body)
        except InvalidJob:
            return observed
        if job.has_scheduler:
            observed.service = copy.deepcopy(self.services.get(names.service_name(job.name)))
            if job.owns_secret:
                observed.secret = copy.deepcopy(self.secrets.get(job.secret_name))
            for name in needed_keys(job):
                observed.keys[name] = sorted(self.secrets[name]["data"]) if name in self.secrets else None
        return observed

    def look(self, until=None):
        """One look, cut off after so many effects. Returns whether it changed anything."""
        if self.is_gone:
            return False
        known = self._refusals
        steps = self.last_plan = plan(copy.deepcopy(self.body), self.observe(), self.now)
        version, self._refusals, self._refused, self.look_again = self.body["metadata"]["resourceVersion"], [], [], None
        changed = False
        for number, action in enumerate(steps):
            if until is not None and number >= until:
                raise Killed
            if isinstance(action, actions.LookAgain):
                self.look_again = action.after_s
                continue
            self.effects += 1
            changed |= self._do(action, version)
        self._refusals = standing(known, steps, self._refused, self.now)
        return changed or bool(self._refused)

    def _do(self, action, version):
        metadata = self.body["metadata"]
        if isinstance(action, actions.Create):
            return self._create(action)
        if isinstance(action, actions.DeletePod):
            pod = self.pods.get(action.name)
            if pod is None or pod["metadata"]["uid"] != action.uid or is_going(pod):
                return False
            self.delete(action.name)
            return True
        assert metadata["resourceVersion"] == version, "a plan writes the job once"
        metadata["resourceVersion"] = str(int(version) + 1)
        if isinstance(action, actions.WriteStatus):
            assert action.status != self.body.get("status"), "a status that says what it said is not written"
            self.body["status"] = copy.deepcopy(action.status)
        elif isinstance(action, actions.SetFinalizers):
            metadata["finalizers"] = list(action.finalizers)
            self.is_gone = "deletionTimestamp" in metadata and not action.finalizers
        elif isinstance(action, actions.DeleteJob):
            assert action.uid == metadata["uid"]
            metadata["deletionTimestamp"] = text_of(self.now)
        return True

    def _create(self, action):
        table = {"pods": self.pods, "services": self.services, "secrets": self.secrets, "events": self.events}[action.resource]
        if action.name in table:
            return False
        item = copy.deepcopy(action.body)
        if action.resource != "events":
            if self._refused:
                return False
            self.tried.append((action.resource, action.name))
            if self.refuse and (refusal := self.refuse(item)):
                self._refused.append(replace(refusal, resource=action.resource, time=self.now))
                return False
        if action.resource == "pods":
            item["status"] = {"phase": "Pending"}
            self.made.append((action.name, int(item["metadata"]["labels"][names.ATTEMPT_LABEL])))
        item["metadata"] |= {"uid": f"uid-{next(self.uids)}", "creationTimestamp": text_of(self.now)}
        table[action.name] = item
        return True

    def settle(self, limit=50):
        """Looks until nothing changes any more."""
        for _ in range(limit):
            if not self.look():
                return self
        raise AssertionError(f"the operator does not come to rest; its last plan: {self.last_plan}")

    # What else happens.
    def run_pods(self):
        """Pods that wait run, and those that are to end are gone."""
        for name in list(self.pods):
            if is_going(self.pods[name]):
                del self.pods[name]
            elif self.pods[name]["status"]["phase"] == "Pending":
                self.set(name, "Running", startTime=text_of(self.now))
        return self

    def go_on(self):
        for _ in range(10):
            before = copy.deepcopy((self.pods, self.body))
            self.settle().run_pods()
            if (self.pods, self.body) == before:
                return self
        raise AssertionError("pods and operator do not come to rest")

    def set(self, name, phase, exit_code=None, **status):
        self.pods[name]["status"] = {"phase": phase} | {key: value for key, value in self.pods[name]["status"].items() if key == "startTime"} | status
        if exit_code is not None:
            self.pods[name]["status"]["containerStatuses"] = [{"name": names.CONTAINER, "state": {"terminated": {
                "exitCode": exit_code, "reason": "Error" if exit_code else "Completed", "finishedAt": text_of(self.now)}}}]

    def fail(self, name, exit_code=1):
        self.set(name, "Failed", exit_code)

    def succeed(self, name):
        self.set(name, "Succeeded", 0)

    def evict(self, name):
        self.set(name, "Failed", reason="Evicted", message="The node was low on resource: memory.")

    def delete(self, name):
        """As anybody's: a pod that runs has time to end."""
        pod = self.pods[name]
        if has_ended(pod) or pod["status"]["phase"] == "Pending":
            del self.pods[name]
        else:
            pod["metadata"]["deletionTimestamp"] = text_of(self.now)

    def vanish(self, name):
        del self.pods[name]

    def edit(self, change):
        change(self.body["spec"])
        self.body["metadata"]["generation"] += 1
        self.body["metadata"]["resourceVersion"] = str(int(self.body["metadata"]["resourceVersion"]) + 1)

    def wait(self, seconds):
        self.now += seconds
        return self

    # What is to be seen.
    def status(self):
        return self.body.get("status", {})

    def condition(self, kind):
        return next((condition for condition in self.status().get("conditions", []) if condition["type"] == kind), None)

    def is_true(self, kind):
        found = self.condition(kind)
        return found is not None and found["status"] == "True"

    def attempt(self, name):
        return int(self.pods[name]["metadata"]["labels"][names.ATTEMPT_LABEL])

    def phases(self):
        return {name: pod["status"]["phase"] for name, pod in self.pods.items()}

    def uid_of(self, name):
        return self.pods[name]["metadata"]["uid"]

    def reasons(self):
        return sorted(event["reason"] for event in self.events.values())


def refusing(code, message, kind="Pod"):
    return lambda item: Refusal(item["metadata"]["name"], code, message) if item["kind"] == kind else None
