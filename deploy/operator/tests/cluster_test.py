"""Claims about what is asked of the API server (Cluster), and about who looks at which job when (Looks)."""

import base64
import math
import threading
import time

import pytest
from api_store import ApiError
from harness import View, job, names, new_server, wait_for
from kubernetes.client.exceptions import ApiException
from tessera_operator import actions, looks, pods
from tessera_operator.actions import Conflict
from tessera_operator.cluster import Cluster
from tessera_operator.job import read
from tessera_operator.reconcile import reconcile


@pytest.fixture(scope="module")
def server():
    with new_server() as found:
        yield found


@pytest.fixture
def view(server, request):
    return View(server.store, request.node.name.replace("_", "-")[:60])


@pytest.fixture
def cluster(server):
    return Cluster(server.client())


def applied(view, name="a", **options):
    return view.apply(job(name, namespace=view.namespace, **options))


def pod_of(body, index=0, attempt=0):
    parsed = read(body)
    return pods.make_pod(parsed, parsed.roles["Worker"], index, attempt)


def test_a_status_of_a_job_that_has_changed_is_not_written(cluster, view):
    body = applied(view)
    view.patch("msjobs", "a", {"metadata": {"labels": {"a": "b"}}})
    for action in (actions.WriteStatus({"state": "Running"}), actions.SetFinalizers([names.FINALIZER])):
        with pytest.raises(Conflict):
            cluster.apply(body, [action])
    assert "status" not in view.job("a") and "finalizers" not in view.job("a")["metadata"]


def test_what_follows_a_conflict_is_not_done(cluster, view):
    body = applied(view)
    view.patch("msjobs", "a", {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(Conflict):
        cluster.apply(body, [actions.WriteStatus({"state": "Running"}), actions.Create("pods", pod_of(body))])
    assert not view.items("pods")


def test_only_the_pod_that_was_seen_is_deleted(cluster, view):
    body = applied(view)
    cluster.apply(body, [actions.Create("pods", pod_of(body))])
    cluster.apply(body, [actions.DeletePod("a-worker-0", "of another one")])
    assert view.find("pods", "a-worker-0")
    cluster.apply(body, [actions.DeletePod("a-worker-0", view.get("pods", "a-worker-0")["metadata"]["uid"]), actions.DeletePod("a-worker-1", "gone")])
    assert not view.find("pods", "a-worker-0")


def test_only_the_job_that_was_seen_is_deleted(cluster, view):
    body = applied(view)
    cluster.apply(body, [actions.DeleteJob("of another one")])
    assert view.find("msjobs", "a")
    cluster.apply(body, [actions.DeleteJob(body["metadata"]["uid"])])
    assert not view.find("msjobs", "a")


def test_what_is_there_already_is_not_made_again(cluster, view):
    body = applied(view)
    for _ in range(2):
        assert cluster.apply(body, [actions.Create("pods", pod_of(body)), actions.Create("services", pods.make_service(read(body)))]) == ([], None)
    assert len(view.items("pods")) == 1


def test_a_secret_is_drawn_when_it_is_made_and_stays(cluster, view):
    body = applied(view)
    seen = set()
    for _ in range(2):
        cluster.apply(body, [actions.Create("secrets", pods.make_secret(read(body)))])
        seen.add(view.get("secrets", "a-secret")["data"]["secret"])
    assert len(seen) == 1 and len(base64.b64decode(seen.pop())) == 32
    assert "data" not in cluster.observe(body, read(body)).secret


def test_a_pod_that_is_refused_is_told_and_others_are_not_tried(cluster, view):
    body = applied(view)
    bad = pod_of(body)
    bad["spec"]["containers"][0]["comand"] = []
    refusals, after_s = cluster.apply(body, [actions.Create("pods", bad), actions.Create("pods", pod_of(body, 1)), actions.LookAgain(3)])
    assert [(refusal.name, refusal.code) for refusal in refusals] == [("a-worker-0", 400)] and "comand" in refusals[0].message and after_s == 3
    assert not view.items("pods")


def test_what_pods_need_and_is_refused_is_told_and_no_pod_is_tried(cluster, view):
    body = applied(view)
    bad = pods.make_service(read(body))
    bad["metadata"]["namespace"] = "another"
    refusals, _ = cluster.apply(body, [actions.Create("services", bad), actions.Create("pods", pod_of(body))])
    assert [(refusal.resource, refusal.name, refusal.code) for refusal in refusals] == [("services", "a-scheduler", 400)]
    assert not view.items("pods")


def test_an_event_that_cannot_be_told_stops_nothing(cluster, view):
    body = applied(view)
    event = {"metadata": {"name": "e", "namespace": "another"}}
    cluster.apply(body, [actions.Create("events", event), actions.Create("pods", pod_of(body))])
    assert len(view.items("pods")) == 1


def test_it_observes_the_pods_of_this_job_and_kind_alone(cluster, view):
    body, other = applied(view), applied(view, "b")
    same_name = applied(view, kind="TesseraJob")
    for of in (body, other):
        cluster.apply(of, [actions.Create("pods", pod_of(of))])
    cluster.apply(same_name, [actions.Create("pods", pod_of(same_name, 1))])
    assert [pod["metadata"]["name"] for pod in cluster.observe(body, read(body)).pods] == ["a-worker-0"]


def test_it_knows_which_keys_a_secret_has_and_not_what_they_hold(cluster, view):
    body = applied(view, kind="TesseraJob", tls={"secretName": "c"})
    assert cluster.observe(body, read(body)).keys == {"c": None}
    view.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c"}, "data": {"b": "eA==", "a": "eQ=="}})
    observed = cluster.observe(body, read(body))
    assert observed.keys == {"c": ["a", "b"]} and observed.secret is None


def test_a_failure_of_the_api_server_is_thrown(cluster, server, view):
    body = applied(view)
    server.is_away = True
    try:
        with pytest.raises(ApiException):
            cluster.apply(body, [actions.Create("pods", pod_of(body))])
        with pytest.raises(ApiException):
            cluster.observe(body, read(body))
    finally:
        server.is_away = False


def test_a_job_that_is_gone_is_not_looked_at_again(cluster):
    assert reconcile(cluster, ("MSJob", "nowhere", "a")) == (None, [])


class Recorded:
    """In place of reconcile(): says who looks at what, and takes its time."""

    def __init__(self, monkeypatch, answer=lambda key: (None, [])):
        self.calls, self.at_once, self.most = [], {}, {}
        self.answer, self.gate, self._lock = answer, threading.Event(), threading.Lock()
        self.gate.set()
        monkeypatch.setattr(looks, "reconcile", self)

    def __call__(self, _, key, refusals, clock):
        with self._lock:
            self.calls.append((key, list(refusals)))
            self.at_once[key] = self.at_once.get(key, 0) + 1
            self.most[key] = max(self.most.get(key, 0), self.at_once[key])
        self.gate.wait(10)
        with self._lock:
            self.at_once[key] -= 1
        return self.answer(key)

    def count(self, key):
        return sum(called == key for called, _ in self.calls)


A, B = ("MSJob", "default", "a"), ("MSJob", "default", "b")


@pytest.fixture
def started():
    """Makes Looks, which end with the test."""
    made = []

    def start(num_threads=4, cluster=None, **options):
        made.append(looks.Looks(cluster, num_threads, **options))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.stop()


def test_a_crowd_of_events_is_one_look(monkeypatch, started):
    recorded, found = Recorded(monkeypatch), started()
    for _ in range(100):
        found.ask(A)
    found.ask(B)
    wait_for("both are looked at", lambda: recorded.count(B) == 1 and recorded.count(A) >= 1)
    time.sleep(3 * looks.SETTLE_S)
    assert recorded.count(A) == 1


def test_a_job_is_looked_at_by_one_at_a_time_and_again_after_what_happened_meanwhile(monkeypatch, started):
    recorded, found = Recorded(monkeypatch), started()
    recorded.gate.clear()
    found.ask(A)
    wait_for("a look is under way", lambda: recorded.count(A) == 1)
    for _ in range(10):
        found.ask(A)
    found.ask(B)
    wait_for("another job is looked at meanwhile", lambda: recorded.count(B) == 1)
    assert recorded.count(A) == 1
    recorded.gate.set()
    wait_for("it is looked at again", lambda: recorded.count(A) == 2)
    assert recorded.most[A] == 1


def test_a_look_that_asks_for_another_one_gets_it_with_what_was_refused(monkeypatch, started):
    answers = iter([(0.01, ["refused"]), (0.01, []), (None, [])])
    recorded, found = Recorded(monkeypatch, lambda key: next(answers)), started()
    found.ask(A)
    wait_for("three looks", lambda: len(recorded.calls) == 3)
    assert recorded.calls == [(A, []), (A, ["refused"]), (A, [])]


def test_a_look_that_fails_is_tried_again_later_and_the_others_go_on(monkeypatch, started, caplog):
    def answer(key):
        if key == A and recorded.count(A) < 2:
            raise RuntimeError("no\nluck")
        return None, []

    recorded = Recorded(monkeypatch, answer)
    found = started(num_threads=1)
    found.ask(A)
    found.ask(B)
    wait_for("both are done", lambda: recorded.count(A) == 2 and recorded.count(B) == 1)
    assert "MSJob default/a: RuntimeError: no luck; again in 1 s" in caplog.text


class Leaping(looks.Clock):
    """Whatever is waited for is over at once, and the time that it takes is noted. It stops at `until`."""

    def __init__(self, until=math.inf):
        self.now, self.until, self.waits = 0.0, until, []
        self.rests = threading.Event()

    def monotonic(self):
        return self.now

    def time(self):
        return 1_700_000_000.0 + self.now

    def wait(self, condition, seconds):
        if seconds is None or self.now + seconds > self.until:
            self.rests.set()
            return condition.wait()
        self.now += seconds
        self.waits.append(round(seconds, 2))
        return None


def test_a_look_that_fails_without_end_is_tried_again_every_minute_and_done_when_it_can_be(monkeypatch, started):
    def answer(key):
        if key == A and recorded.count(A) <= 2000:
            raise RuntimeError("500")
        return None, []

    recorded, clock = Recorded(monkeypatch, answer), Leaping()
    found = started(num_threads=1, clock=clock)
    found.ask(A)
    wait_for("the last look at it does not fail", lambda: recorded.count(A) == 2001)
    assert clock.waits == [looks.SETTLE_S, 1, 2, 4, 8, 16, 32] + [60] * 1994
    found.ask(B)
    found.ask(A)
    wait_for("others are looked at, and it is, too", lambda: (recorded.count(A), recorded.count(B)) == (2002, 1))


class Unspeakable(RuntimeError):
    def __str__(self):
        raise ValueError("no words")


def test_a_failure_of_which_nothing_can_be_said_ends_no_thread_and_leaves_no_job_busy(monkeypatch, started, caplog):
    def answer(key):
        if recorded.count(key) == 1:
            raise Unspeakable
        return None, []

    recorded, clock = Recorded(monkeypatch, answer), Leaping()
    found = started(num_threads=1, clock=clock)
    found.ask(A)
    wait_for("it is looked at again", lambda: recorded.count(A) == 2)
    assert clock.waits == [looks.SETTLE_S, 60]
    assert "MSJob default/a: ValueError, of which nothing can be said; again in 60 s" in caplog.text


@pytest.mark.parametrize("resource, reason", [("pods", "PodsAreMade"), ("services", "ServiceRefused"), ("secrets", "SecretRefused")])
def test_what_a_quota_refuses_is_tried_every_ten_seconds_whatever_wakes_a_look(started, resource, reason):
    """With all that a watch tells of the job and its pods, also of what the looks themselves have written."""
    with new_server() as server:
        view, clock, tries, is_full = View(server.store), Leaping(until=5), [], True
        found = started(num_threads=1, cluster=Cluster(server.client()), clock=clock)
        written = [(resource, "create"), ("msjobs/status", "update"), ("events", "create")]

        def refuse(request, is_done):
            if (request.resource, request.verb) == (resource, "create") and not is_done:
                tries.append(clock.now)
                if is_full:
                    raise ApiError(403, "Forbidden", f"{resource} is forbidden: exceeded quota: q")

        def tell(version, kind, of, item):
            if of.plural in ("msjobs", "pods"):
                found.ask(A)

        def go_on(until):
            clock.rests.clear()
            clock.until = until
            found.ask(A)
            assert clock.rests.wait(60), "the looks do not come to rest"
            return [sum((request.resource, request.verb) == of for request in server.requests) for of in written]

        server.on_write = refuse
        server.store.listen(tell)
        view.apply(job("a"))
        assert go_on(5) == [1, 2, 1]
        for number in range(5):
            view.patch("msjobs", "a", {"metadata": {"labels": {"a": str(number)}}})
            assert go_on(6) == [1, 2, 1]
        condition = view.condition("a", "Created")
        assert condition["reason"] == reason and f"now (403): {resource} is forbidden: exceeded quota: q" in condition["message"]
        assert go_on(65) == [7, 2, 1] and min(later - before for before, later in zip(tries, tries[1:])) >= 9.999
        assert view.condition("a", "Created") == condition and not view.items("pods") and "startTime" not in view.status("a")
        is_full = False
        go_on(75)
        assert view.is_true("a", "Created") and len(view.items("pods")) == 3 and "startTime" in view.status("a")


def test_stop_waits_for_a_look_that_is_under_way(monkeypatch, started):
    recorded, found = Recorded(monkeypatch), started()
    recorded.gate.clear()
    found.ask(A)
    wait_for("a look is under way", lambda: recorded.count(A) == 1)
    stopper = threading.Thread(target=found.stop)
    stopper.start()
    stopper.join(0.1)
    assert stopper.is_alive()
    recorded.gate.set()
    stopper.join(10)
    assert not stopper.is_alive() and recorded.at_once[A] == 0
