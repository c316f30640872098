"""The status of a job: what the operator must not forget between two looks, and what people read."""

import copy
from datetime import datetime, timezone

CONDITIONS = ("Created", "Running", "Restarting", "Suspended", "Succeeded", "Failed")


def text_of(time_s, timespec="seconds"):
    return datetime.fromtimestamp(time_s, timezone.utc).isoformat(timespec=timespec).replace("+00:00", "Z")


def time_of(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class JobStatus:
    """A copy that is changed; `has_changed` says whether it must be written."""

    def __init__(self, body, now):
        self._old = body.get("status") or {}
        self.new = copy.deepcopy(self._old)
        self._now = now

    @property
    def has_changed(self):
        return self.new != self._old

    @property
    def members(self):
        """Pod's name -> {attempt, uid, restarts, succeeded, notBefore}: uid is that of the attempt's pod, once it was seen."""
        return self.new.setdefault("members", {})

    def member(self, name):
        return self.members.setdefault(name, {"attempt": 0})

    def is_true(self, kind):
        return any(condition["type"] == kind and condition["status"] == "True" for condition in self.new.get("conditions") or [])

    def set(self, kind, is_true, reason, message, is_said=False):
        """A condition; its time is that of its last change between true and false. One that was never true is left out, unless
        `is_said`: it says then what keeps it from being true."""
        conditions = {condition["type"]: condition for condition in self.new.get("conditions") or []}
        value = "True" if is_true else "False"
        before = conditions.get(kind)
        if before is None and not is_true and not is_said:
            return
        when = before["lastTransitionTime"] if before and before["status"] == value else text_of(self._now)
        conditions[kind] = {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": when}
        self.new["conditions"] = [conditions[kind] for kind in CONDITIONS if kind in conditions]

    def set_time(self, name):
        self.new.setdefault(name, text_of(self._now))

    def time(self, name):
        return time_of(self.new[name]) if name in self.new else None
