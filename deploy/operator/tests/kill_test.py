"""Claims about an operator that ends anywhere (F78): it is killed by SIGKILL at a drawn request of a job's life, before or after the API
server has done what it asks, and started again; what is there at the end is what an operator leaves that was never killed."""

import os
import random
import signal
import threading

from harness import FULL, OperatorProcesses, View, job, names, new_server, wait_for

NUM_KILLS = 50 if FULL else 20
WORKERS = ("w-worker-0", "w-worker-1")


class Life:
    """One job's life in a namespace of its own, step by step, as a kubelet and a user let it go on."""

    def __init__(self, server, namespace):
        self.view = View(server.store, namespace)

    def run_pods(self, count):
        def all_run():
            pods = [pod for pod in self.view.pods("w").values() if "deletionTimestamp" not in pod["metadata"]]
            for pod in pods:
                if pod["status"]["phase"] == "Pending":
                    self.view.set_pod(pod["metadata"]["name"], "Running")
            return len(pods) == count and self.view.is_true("w", "Running", "tesserajobs")
        try:
            wait_for("all pods run", all_run)
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.view.status('w', 'tesserajobs')} {self.view.pods('w')}") from late

    def live(self):
        view = self.view
        view.apply(job("w", kind="TesseraJob", namespace=view.namespace, run_policy={"cleanPodPolicy": "All"}))
        self.run_pods(3)
        view.set_pod("w-worker-0", "Failed")
        wait_for("another attempt", lambda: view.pods("w").get("w-worker-0", {}).get("metadata", {}).get("labels", {}).get(names.ATTEMPT_LABEL) == "1")
        self.run_pods(3)
        view.delete("pods", "w-scheduler-0", gracePeriodSeconds=0)
        wait_for("another scheduler", lambda: view.pods("w").get("w-scheduler-0", {}).get("metadata", {}).get("labels", {}).get(names.ATTEMPT_LABEL) == "1")
        self.run_pods(3)
        for name in WORKERS:
            view.set_pod(name, "Succeeded")
        wait_for("the end", lambda: view.is_true("w", "Succeeded", "tesserajobs") and not view.pods("w"))
        wait_for("the count of the end", lambda: not any(count["active"] for count in view.status("w", "tesserajobs")["replicaStatuses"].values()))
        return self.left()

    def left(self):
        """All that is there, without what is drawn or a time."""
        view = self.view
        status = view.status("w", "tesserajobs")
        for member in status["members"].values():
            member.pop("uid", None)
        for key in ("startTime", "completionTime", "lastRestartTime"):
            assert status.pop(key)
        for condition in status["conditions"]:
            condition.pop("lastTransitionTime")
        events = sorted((event["reason"], event["message"]) for event in view.items("events"))
        return {"status": status, "events": events, "services": [item["metadata"]["name"] for item in view.items("services")],
                "secrets": [item["metadata"]["name"] for item in view.items("secrets")], "pods": sorted(view.pods("w")),
                "finalizers": view.job("w", "tesserajobs")["metadata"]["finalizers"]}


def created(server, namespace):
    """How often each object was made, by what the API server has answered."""
    return sum(request.code == 201 and request.resource == "pods" and request.namespace == namespace for request in server.requests)


def test_f78_killed_at_drawn_points_it_leaves_the_same_objects(tmp_path):
    with new_server() as server, OperatorProcesses(server, tmp_path) as operators:
        pid = operators.start("--threads", "1")
        whole = Life(server, "whole").live()
        writes = sum(request.namespace == "whole" and request.verb not in ("get", "list", "watch") for request in server.requests)
        assert created(server, "whole") == 5 and writes > 20
        kills = seed = 0
        while kills < NUM_KILLS:
            seed += 1
            assert seed < 2 * NUM_KILLS, "too many lives had too few writes"
            draw = random.Random(seed)
            print("seed", seed)
            target, is_after, namespace = draw.randrange(writes), draw.random() < 0.5, f"life-{seed}"
            count, killed = 0, []

            def on_write(request, is_done):
                nonlocal count
                if killed or is_done != is_after or request.namespace != namespace or not request.user:
                    return
                if count == target:  # the drawn write
                    os.kill(pid, signal.SIGKILL)
                    killed.append(f"{request.verb} {request.resource}")
                count += 1

            server.on_write = on_write
            life = Life(server, namespace)
            runner = _Thread(life.live)
            while not runner.is_over() or len(killed) == 1:  # killed by the life's last write, it is started again all the same
                if len(killed) != 1:
                    runner.wait(0.02)
                    continue
                assert operators.wait(pid) == -9
                pid = operators.start("--threads", "1")
                killed.append("started again")
            print(f"seed {seed}: killed {'after' if is_after else 'before'} write {target}: {killed[:1]}")
            assert runner.result() == whole, f"seed {seed}: killed {'after' if is_after else 'before'} write {target}, {killed}"
            assert created(server, namespace) == 5, f"seed {seed}: a pod was made twice"
            kills += bool(killed)
        server.on_write = None
        assert operators.stop(pid) == 0
        print(f"{kills} kills in {seed} lives, all with the same objects at the end")


class _Thread:
    def __init__(self, function):
        self._result = self._failure = None

        def run():
            try:
                self._result = function()
            except BaseException as failure:  # told by result()
                self._failure = failure

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def is_over(self):
        return not self._thread.is_alive()

    def wait(self, seconds):
        self._thread.join(seconds)

    def result(self):
        self._thread.join()
        if self._failure:
            raise self._failure
        return self._result


def test_two_operators_at_once_make_nothing_twice(tmp_path):
    """As while a node that is cut off still runs the one before."""
    with new_server() as server, OperatorProcesses(server, tmp_path) as operators:
        pids = [operators.start("--threads", "1") for _ in range(2)]
        alone = Life(server, "two").live()
        assert created(server, "two") == 5 and alone["pods"] == []
        assert alone["status"]["restarts"] == 1
        for pid in pids:
            assert operators.stop(pid) == 0
