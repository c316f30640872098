"""What a job becomes: the objects that the operator makes of it, as YAML."""

import copy

import yaml

from tessera_operator import actions, names
from tessera_operator.job import read
from tessera_operator.plan import Observed, plan
from tessera_operator.pods import needed_keys


def objects_of(body):
    """What the operator creates for a new job, in its order, but for events."""
    body = copy.deepcopy(body)
    for where in (body["spec"], body["spec"].get("runPolicy") or {}):
        where.pop("suspend", None)  # what it becomes once it is admitted
    body["metadata"]["finalizers"] = [names.FINALIZER]
    # All that is the user's is there.
    observed = Observed(keys={name: keys for name, (_, keys) in needed_keys(read(body)).items()})
    return [step.body for step in plan(body, observed, 0.0) if isinstance(step, actions.Create) and step.resource != "events"]


class _Dumper(yaml.SafeDumper):
    """Each object in full: no part refers to another."""

    def ignore_aliases(self, data):
        return True


def text_of(items):
    """A document for each."""
    return "---\n".join(yaml.dump(item, Dumper=_Dumper, sort_keys=False, width=150) for item in items)
