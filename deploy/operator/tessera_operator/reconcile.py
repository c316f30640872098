"""One look at one job: observe, plan, apply."""

import time
from dataclasses import replace

from tessera_operator import names
from tessera_operator.actions import Conflict, Create
from tessera_operator.job import InvalidJob, read
from tessera_operator.plan import Observed, is_going, plan

RESYNC_S = 300.0  # a job is looked at so often even where nothing seems to happen
RETRY_S = 1.0


def standing(before, steps, refused, now):
    """The refusals that the next look is to know: `before` are those that the plan of `now` knew, `refused` what has become of it."""
    tried = {step.resource for step in steps if isinstance(step, Create)}
    kept = [replace(refusal, is_told=True) for refusal in before
            if refusal.resource not in tried and not refusal.is_final and refusal.seconds_left(now)]
    return kept + [replace(refusal, is_told=any(refusal.is_of(other) for other in before)) for refusal in refused]


def reconcile(cluster, key, refusals=(), clock=time.time):
    """`key`: (kind, namespace, name). `refusals`: those that stand after the look before. Returns (seconds until the next look, or None
    where the job is gone; refusals)."""
    body = cluster.job(*key)
    if body is None:
        return None, []
    body.setdefault("kind", key[0])
    try:
        job = read(body)
    except InvalidJob:
        job = None  # the plan says so in the job's status
    # Of a job that is new there is nothing to observe yet: its finalizer comes first.
    is_new = not is_going(body) and names.FINALIZER not in (body["metadata"].get("finalizers") or [])
    now = clock()
    steps = plan(body, Observed() if is_new else cluster.observe(body, job, refusals), now)
    try:
        refused, after_s = cluster.apply(body, steps)
    except Conflict:
        return RETRY_S, standing(refusals, [], [], now)
    refusals = standing(refusals, steps, [replace(refusal, time=clock()) for refusal in refused], now)
    if refused:
        return 0.0, refusals
    return RESYNC_S if after_s is None else min(after_s, RESYNC_S), refusals
