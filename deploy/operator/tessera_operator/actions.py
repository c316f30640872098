"""What a plan asks for. Each may be done twice, and be cut off anywhere: names are given by the plan, and what was observed is named
where it counts, by an object's uid or resourceVersion."""

from dataclasses import dataclass


class Conflict(Exception):
    """The job has changed since it was observed: look again."""


class Action:
    """One step; those of a plan are taken in their order, and a conflict ends them."""


@dataclass(frozen=True)
class Create(Action):
    resource: str  # plural: pods, services, secrets, events
    body: dict

    @property
    def name(self):
        return self.body["metadata"]["name"]


@dataclass(frozen=True)
class DeletePod(Action):
    name: str
    uid: str  # of this pod only, never of one that was made meanwhile


@dataclass(frozen=True)
class WriteStatus(Action):
    """Refused where the job has changed since it was observed."""
    status: dict


@dataclass(frozen=True)
class SetFinalizers(Action):
    """Refused likewise."""
    finalizers: list


@dataclass(frozen=True)
class DeleteJob(Action):
    uid: str


@dataclass(frozen=True)
class LookAgain(Action):
    after_s: float
