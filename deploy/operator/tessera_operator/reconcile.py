"""One look at one job: observe, plan, apply."""

import time

from tessera_operator import names
from tessera_operator.actions import Conflict
from tessera_operator.job import InvalidJob, read
from tessera_operator.plan import Observed, is_going, plan

RESYNC_S = 300.0  # a job is looked at so often even where nothing seems to happen
RETRY_S = 1.0


def reconcile(cluster, key, refusals=(), clock=time.time):
    """`key`: (kind, namespace, name). `refusals`: what the look before was refused. Returns (seconds until the next look, or None where
    the job is gone; refusals)."""
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
    steps = plan(body, Observed() if is_new else cluster.observe(body, job, refusals), clock())
    try:
        refused, after_s = cluster.apply(body, steps)
    except Conflict:
        return RETRY_S, []
    if refused:
        return 0.0, refused
    return RESYNC_S if after_s is None else min(after_s, RESYNC_S), []
