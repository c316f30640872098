"""Claims about many jobs at once: how many requests they cost, and that an operator with nothing to do asks for nothing."""

import statistics
import time
from collections import Counter

from harness import OperatorProcesses, View, job, names, new_server, wait_for

NUM_JOBS = 200


def test_200_jobs_at_once_are_made_with_few_requests_each_and_then_nothing_is_asked(tmp_path):
    with new_server() as server, OperatorProcesses(server, tmp_path) as operators:
        view = View(server.store)
        pid = operators.start()
        wait_for("the operator watches", lambda: sum(request.verb == "watch" for request in server.requests) == 3)
        begun = {}
        for index in range(NUM_JOBS):
            begun[f"j{index}"] = time.monotonic()
            view.apply(job(f"j{index}"))
        wait_for("all jobs have their pods", lambda: len(view.items("pods")) == 3 * NUM_JOBS, 400)
        made = {request.name: request.time for request in server.requests if request.verb == "create" and request.resource == "pods"}
        latencies = [max(made[f"{name}-{member}"] for member in ("scheduler-0", "worker-0", "worker-1")) - begin for name, begin in begun.items()]
        wait_for("all are said to be created", lambda: all(view.is_true(name, "Created") for name in begun), 60)
        wait_for("the operator rests", lambda: _rests(server), 60)
        for pod in view.items("pods"):
            view.set_pod(pod["metadata"]["name"], "Running")
        wait_for("all jobs run", lambda: all(view.is_true(name, "Running") for name in begun), 400)
        wait_for("the operator rests", lambda: _rests(server), 60)
        own = [request for request in server.requests if request.user]
        verbs = Counter(request.verb for request in own)
        p99 = statistics.quantiles(latencies, n=100)[98]
        print(f"{NUM_JOBS} jobs of 3 pods: pods made {statistics.median(latencies):.2f} s after their job (median; p99 {p99:.2f} s, the last {max(latencies):.2f} s); "
              f"{len(own) / NUM_JOBS:.1f} requests a job until all run: {dict(verbs)}")
        assert len(own) / NUM_JOBS < 70
        wait_for("the operator asks for nothing", lambda: _asks_for_nothing(server), 60)
        assert not [line for line in operators.log.read_text().splitlines() if " ERROR " in line]
        assert operators.stop(pid) == 0


def _asks_for_nothing(server):
    """In two seconds; what it still had to do when it seemed to rest may come before."""
    before = len(server.requests)
    time.sleep(2.0)
    return not [request for request in server.requests[before:] if request.verb != "watch"]


def _rests(server):
    count = len(server.requests)
    time.sleep(0.3)
    return len(server.requests) == count


def test_jobs_that_cannot_begin_cost_a_few_requests_each_time_they_are_looked_at(tmp_path):
    """A Secret that is missing is asked for every ten seconds, not in a loop."""
    with new_server() as server, OperatorProcesses(server, tmp_path) as operators:
        view = View(server.store)
        pid = operators.start()
        for index in range(10):
            view.apply(job(f"j{index}", kind="TesseraJob", tls={"secretName": "missing"}))
        wait_for("they say so", lambda: all((view.condition(f"j{index}", "Created", "tesserajobs") or {}).get("reason") == "SecretMissing"
                                            for index in range(10)))
        wait_for("the operator rests", lambda: _rests(server))
        own = [request for request in server.requests if request.user]
        assert len(own) < 10 * 20
        assert names.FINALIZER in view.job("j0", "tesserajobs")["metadata"]["finalizers"]
        assert operators.stop(pid) == 0
