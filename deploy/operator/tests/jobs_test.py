"""Claims about jobs whose pods are real processes: the operator as it is installed, the official client, kopf, an API server of ours and
a kubelet that starts pods as processes. Numbers of the form F75 are those of docs/kubernetes.md."""

import base64
import os
import re
import subprocess
import sys
from pathlib import Path

import kubernetes.client
import pytest
from harness import ROOT, OperatorProcesses, View, free_port, job, names, new_server, port_named, role, wait_for
from kubelet import Kubelet


class Cluster(View):
    def __init__(self, server, kubelet, operators, folder):
        super().__init__(server.store)
        self.server, self.kubelet, self.operators, self.folder = server, kubelet, operators, Path(folder)
        self.pid = operators.start()

    def run(self, name, **options):
        """A job of trainees that work until `name`.done exists."""
        until = {"arguments": ("--until", self.done_file(name))} | options
        self.apply(job(name, port=free_port(), **until))
        return self.done_file(name)

    def done_file(self, name):
        return self.folder / f"{name}.done"

    def finish(self, name):
        self.done_file(name).touch()

    def wait_until(self, name, kind, plural="msjobs"):
        try:
            return wait_for(f"{name} is {kind}", lambda: self.is_true(name, kind, plural))
        except AssertionError as late:
            logs = "".join(f"--- {pod}\n{self.kubelet.log(pod)}" for pod in self.pods(name))
            raise AssertionError(f"{late}\n{self.status(name, plural)}\n{logs}\n{self.operators.log.read_text()[-2000:]}") from late

    def wait_for_words(self, pod, words):
        wait_for(f"{pod} says {words!r}", lambda: words in self.kubelet.log(pod))

    def uid(self, pod):
        return self.get("pods", pod)["metadata"]["uid"]

    def wait_for_new(self, pod, uid):
        return wait_for(f"another pod {pod} runs", lambda: (found := self.find("pods", pod)) and found["metadata"]["uid"] != uid
                        and found["status"]["phase"] == "Running" and found)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    with new_server() as server, Kubelet(server.store, folder / "pods") as kubelet, OperatorProcesses(server, folder) as operators:
        found = Cluster(server, kubelet, operators, folder)
        yield found
        assert operators.stop(found.pid) == 0, operators.log.read_text()[-3000:]
        assert not [line for line in operators.log.read_text().splitlines() if " ERROR " in line], operators.log.read_text()[-3000:]


def test_a_job_of_a_scheduler_and_workers_runs_to_its_end(cluster):
    cluster.apply(job("first", port=free_port(), workers=3, servers=1))
    cluster.wait_until("first", "Succeeded")
    assert "worker_2 attempt 0 has met its scheduler" in cluster.kubelet.log("first-worker-2")
    assert "server_0 attempt 0 has met its scheduler" in cluster.kubelet.log("first-server-0")
    assert {"Created", "Succeeded"} <= set(cluster.reasons())


def test_a_job_of_one_worker_needs_nobody(cluster):
    body = job("alone", workers=1)
    body["spec"]["msReplicaSpecs"] = {"Worker": role(["sh", "-c", 'test -z "$MS_ROLE$TESSERA_SECRET_FILE" && test "$TESSERA_ATTEMPT" = 0'])}
    cluster.apply(body)
    cluster.wait_until("alone", "Succeeded")
    assert not cluster.find("services", "alone-scheduler")


def test_f75_a_deleted_scheduler_comes_again_and_the_workers_are_not_touched(cluster):
    """The job goes on with the state that the scheduler has kept on the job's volume."""
    cluster.run("f75", kind="TesseraJob", recovery={"claimName": "f75"})
    cluster.wait_until("f75", "Running", "tesserajobs")
    workers, old = {name: cluster.uid(name) for name in ("f75-worker-0", "f75-worker-1")}, cluster.uid("f75-scheduler-0")
    cluster.wait_for_words("f75-worker-1", "has met")
    cluster.delete("pods", "f75-scheduler-0")
    new = cluster.wait_for_new("f75-scheduler-0", old)
    assert new["metadata"]["labels"][names.ATTEMPT_LABEL] == "1" and new["spec"]["hostname"] == "f75-scheduler-0"
    cluster.finish("f75")
    cluster.wait_until("f75", "Succeeded", "tesserajobs")
    assert workers == {name: cluster.uid(name) for name in workers}
    assert cluster.status("f75", "tesserajobs")["restarts"] == 0


def test_f76_a_deleted_worker_comes_again_as_its_next_attempt(cluster):
    cluster.run("f76")
    cluster.wait_until("f76", "Running")
    old, other = cluster.uid("f76-worker-0"), cluster.uid("f76-worker-1")
    cluster.delete("pods", "f76-worker-0")
    cluster.wait_for_new("f76-worker-0", old)
    cluster.wait_for_words("f76-worker-0", "worker_0 attempt 1 has met its scheduler")
    cluster.finish("f76")
    cluster.wait_until("f76", "Succeeded")
    assert cluster.uid("f76-worker-1") == other


def test_a_worker_whose_process_is_killed_comes_again_and_counts(cluster):
    cluster.run("killed")
    cluster.wait_until("killed", "Running")
    old = cluster.uid("killed-worker-1")
    os.kill(cluster.kubelet.pid("default", "killed-worker-1"), 9)
    cluster.wait_for_new("killed-worker-1", old)
    wait_for("the loss counts", lambda: cluster.status("killed")["restarts"] == 1)
    cluster.finish("killed")
    cluster.wait_until("killed", "Succeeded")


def test_an_operator_that_is_killed_and_started_again_goes_on_where_the_job_stands(cluster):
    cluster.run("through")
    cluster.wait_until("through", "Running")
    uids = {name: cluster.uid(name) for name in cluster.pods("through")}
    os.kill(cluster.pid, 9)
    assert cluster.operators.wait(cluster.pid) == -9
    cluster.delete("pods", "through-worker-0")
    wait_for("the worker is gone", lambda: not cluster.find("pods", "through-worker-0"))
    cluster.pid = cluster.operators.start()
    cluster.wait_for_new("through-worker-0", uids["through-worker-0"])
    cluster.finish("through")
    cluster.wait_until("through", "Succeeded")
    assert {name: uid for name, uid in uids.items() if name != "through-worker-0"} == {
        name: cluster.uid(name) for name in uids if name != "through-worker-0"}


@pytest.mark.parametrize("policy, left", [("All", []), ("Running", ["f79-running-worker-0"]), ("None", None)])
def test_f79_pods_are_cleaned_up_and_no_scheduler_survives(cluster, policy, left):
    """One worker's end is the job's; the other one and the scheduler would go on for ever."""
    name = f"f79-{policy.lower()}"
    body = job(name, port=free_port(), arguments=("--until", cluster.done_file(name)), run_policy={"cleanPodPolicy": policy}, successPolicy="")
    container = body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["command"] = ["sh", "-c", 'test "$MS_NODE_ID" = worker_0 || exec "$@"', "sh", *container["command"]]
    cluster.apply(body)
    cluster.wait_until(name, "Succeeded")
    if left is None:
        assert len(cluster.pods(name)) == 3
        cluster.delete("msjobs", name)
        wait_for("all are gone with the job", lambda: not cluster.pods(name))
    else:
        wait_for(f"only {left} are left", lambda: sorted(cluster.pods(name)) == left)
        assert not [pid for pid in _processes(cluster.folder) if f"{name}.done" in pid]


def _processes(folder):
    """Command lines of processes that name a file in the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words:
            found.append(words)
    return found


def test_f80_a_job_whose_restarts_are_used_up_has_failed_with_the_reason(cluster):
    cluster.apply(job("f80", kind="TesseraJob", port=free_port(), arguments=("--exit", 7), maxRestarts=1, workers=1))
    cluster.wait_until("f80", "Failed", "tesserajobs")
    condition = cluster.condition("f80", "Failed", "tesserajobs")
    assert condition["reason"] == "MaxRestartsExceeded" and "f80-worker-0, attempt 1, has failed: exit code 7" in condition["message"]
    wait_for("no pod runs on", lambda: all(pod["status"]["phase"] == "Failed" for pod in cluster.pods("f80").values()))


def test_f80_an_eviction_does_not_count(cluster):
    cluster.run("f80-evicted", kind="TesseraJob", maxRestarts=0)
    cluster.wait_until("f80-evicted", "Running", "tesserajobs")
    old = cluster.uid("f80-evicted-worker-0")
    cluster.set_pod("f80-evicted-worker-0", "Failed", reason="Evicted", message="The node was low on resource: memory.")
    cluster.wait_for_new("f80-evicted-worker-0", old)
    cluster.finish("f80-evicted")
    cluster.wait_until("f80-evicted", "Succeeded", "tesserajobs")
    assert cluster.status("f80-evicted", "tesserajobs")["restarts"] == 0


def certificates(name, content):
    data = {"ca.crt": b"ca", "server.p12": b"server", "client.p12": content, "password": b"word"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()}}


@pytest.mark.parametrize("context", [{}, {"runAsNonRoot": True}])
def test_f81_new_certificates_reach_a_pod_that_runs_and_nothing_is_started_again(cluster, context):
    """Mounted, and copied for a program that is another user than root."""
    name = "f81-copied" if context else "f81-mounted"
    body = job(name, kind="TesseraJob", port=free_port(), workers=1, tls={"secretName": name},
               arguments=("--until", cluster.done_file(name), "--show", "/var/run/tessera/tls/client.p12"))
    for spec in body["spec"]["msReplicaSpecs"].values():
        spec["template"]["spec"]["securityContext"] = context
        if context:
            spec["template"]["spec"]["containers"][0]["securityContext"] = context
    cluster.apply(body)
    wait_for("the Secret is said to be missing",
             lambda: "spec.tls.secretName" in (cluster.condition(name, "Created", "tesserajobs") or {}).get("message", ""))
    cluster.apply(certificates(name, b"the first one"))
    cluster.patch("tesserajobs", name, {"metadata": {"annotations": {"look": "again"}}})
    cluster.wait_until(name, "Running", "tesserajobs")
    cluster.wait_for_words(f"{name}-worker-0", "has met")
    uids = {pod: cluster.uid(pod) for pod in cluster.pods(name)}
    cluster.patch("secrets", name, {"data": {"client.p12": base64.b64encode(b"the second one").decode()}})
    place = cluster.kubelet.folder / f"{name}-worker-0.{uids[f'{name}-worker-0'][:8]}" / "volumes" / "tessera-tls" / "client.p12"
    wait_for("the file is the new one", lambda: place.read_bytes() == b"the second one")
    cluster.finish(name)
    cluster.wait_until(name, "Succeeded", "tesserajobs")
    assert "shown: the second one" in cluster.kubelet.log(f"{name}-worker-0")
    assert uids == {pod: cluster.uid(pod) for pod in uids}


def test_a_secret_is_copied_for_a_program_that_is_not_root(cluster):
    body = job("copied", kind="TesseraJob", port=free_port(), secretDelivery="Copy")
    cluster.apply(body)
    cluster.wait_until("copied", "Succeeded", "tesserajobs")
    assert cluster.get("pods", "copied-worker-0")["spec"]["initContainers"][0]["name"] == "tessera-secrets"


def test_every_job_has_a_secret_of_its_own_that_no_text_of_its_pods_shows(cluster):
    cluster.apply(job("one", port=free_port()))
    cluster.apply(job("two", port=free_port()))
    cluster.wait_until("one", "Succeeded")
    cluster.wait_until("two", "Succeeded")
    values = [cluster.get("secrets", f"{name}-secret")["data"]["secret"] for name in ("one", "two")]
    assert values[0] != values[1] and all(len(base64.b64decode(value)) == 32 for value in values)
    shown = str([cluster.pods(name) for name in ("one", "two")]) + str(cluster.items("events")) + cluster.operators.log.read_text()
    assert not [value for value in values if value in shown]


def test_a_suspended_job_goes_on_later(cluster):
    cluster.run("queued", kind="TesseraJob", suspend=True)
    cluster.wait_until("queued", "Suspended", "tesserajobs")
    assert not cluster.pods("queued")
    cluster.patch("tesserajobs", "queued", {"spec": {"suspend": False}})
    cluster.wait_until("queued", "Running", "tesserajobs")
    cluster.patch("tesserajobs", "queued", {"spec": {"suspend": True}})
    wait_for("its place is free", lambda: not cluster.pods("queued"))
    cluster.patch("tesserajobs", "queued", {"spec": {"suspend": False}})
    cluster.finish("queued")
    cluster.wait_until("queued", "Succeeded", "tesserajobs")
    assert "worker_0 attempt 1 has met its scheduler" in cluster.kubelet.log("queued-worker-0")


def test_a_job_is_scaled_by_its_subresource_within_its_bounds(cluster):
    cluster.run("scaled", kind="TesseraJob", minWorkers=1, maxWorkers=3, workers=1)
    cluster.wait_until("scaled", "Running", "tesserajobs")
    jobs = kubernetes.client.CustomObjectsApi(cluster.server.client())
    place = ("tessera.dev", "v1alpha1", "default", "tesserajobs", "scaled")
    with pytest.raises(kubernetes.client.ApiException, match="at most maxWorkers"):
        jobs.patch_namespaced_custom_object_scale(*place, {"spec": {"replicas": 4}}, _content_type="application/merge-patch+json")
    jobs.patch_namespaced_custom_object_scale(*place, {"spec": {"replicas": 3}}, _content_type="application/merge-patch+json")
    wait_for("three workers run", lambda: cluster.status("scaled", "tesserajobs").get("replicas") == 3)
    cluster.wait_until("scaled", "Running", "tesserajobs")
    scale = jobs.get_namespaced_custom_object_scale(*place)
    assert scale["status"]["replicas"] == 3
    assert len(cluster.items("pods", scale["status"]["selector"])) == 3
    cluster.finish("scaled")
    cluster.wait_until("scaled", "Succeeded", "tesserajobs")


def test_a_deleted_job_takes_all_that_it_had_along(cluster):
    cluster.run("gone")
    cluster.wait_until("gone", "Running")
    cluster.delete("msjobs", "gone")
    wait_for("the job is gone", lambda: not cluster.find("msjobs", "gone"))
    assert not cluster.pods("gone") and not cluster.find("services", "gone-scheduler") and not cluster.find("secrets", "gone-secret")
    assert not _processes(cluster.done_file("gone"))


def test_a_job_of_the_same_name_again_is_another_job(cluster):
    cluster.run("again")
    cluster.wait_until("again", "Running")
    before = cluster.get("secrets", "again-secret")["data"]
    cluster.delete("msjobs", "again")
    wait_for("the job is gone", lambda: not cluster.find("msjobs", "again"))
    cluster.run("again")
    cluster.wait_until("again", "Running")
    assert cluster.get("secrets", "again-secret")["data"] != before
    cluster.finish("again")
    cluster.wait_until("again", "Succeeded")


def test_a_job_is_deleted_after_its_time(cluster):
    cluster.run("short", run_policy={"ttlSecondsAfterFinished": 1})
    cluster.wait_until("short", "Running")
    cluster.finish("short")
    wait_for("the job is gone", lambda: not cluster.find("msjobs", "short"))


def test_a_misspelled_field_of_a_template_fails_the_job_with_its_path(cluster):
    body = job("misspelled", port=free_port())
    body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["comand"] = ["true"]
    cluster.apply(body)
    cluster.wait_until("misspelled", "Failed")
    assert "comand" in cluster.condition("misspelled", "Failed")["message"]


@pytest.fixture
def programs(monkeypatch):
    """The folder that TESSERA_BIN names, where it has the real programs; in it `tessera` is found."""
    folder = Path(os.environ.get("TESSERA_BIN") or ROOT / "build/release/bin").resolve()
    missing = [name for name in ("tessera", "train_job", "resnet50_cifar10") if not (folder / name).exists()]
    if missing:
        pytest.skip(f"TESSERA_BIN names no folder with {', '.join(missing)}")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def training(cluster, programs):
    """The role of real ranks, so many, that train with these arguments."""
    data = cluster.folder / "cifar"
    if not data.exists():
        subprocess.run([programs / "resnet50_cifar10", "--make_data", data, "--train_records", "320", "--test_records", "40"], check=True,
                       stdout=subprocess.PIPE)
    env = [{"name": "TESSERA_NUM_THREADS", "value": "1"}, {"name": "OMP_WAIT_POLICY", "value": "PASSIVE"}]
    return lambda count, *arguments: role([str(programs / "train_job"), "--data_path", str(data), *arguments], count, ports=port_named(free_port()), env=env)


@pytest.fixture
def real(cluster, training):
    """Applies a TesseraJob of two real ranks. Its scheduler is `tessera scheduler`, as of a job that names none."""
    def apply(name, *arguments, **spec):
        body = job(name, kind="TesseraJob", workers=2, recovery={"claimName": name}, **spec)
        body["spec"]["msReplicaSpecs"] = {"Worker": training(2, *arguments)}
        cluster.apply(body)

    return apply


def losses_of(text):
    """Loss by step; a step that was repeated has repeated its bits."""
    found = {}
    for step, loss in re.findall(r"loss (\d+) (\S+)", text):
        assert found.setdefault(step, loss) == loss, text
    return found


def losses_of_job(cluster, name, plural="tesserajobs", workers=2):
    cluster.wait_until(name, "Succeeded", plural)
    return losses_of("".join(cluster.kubelet.log(f"{name}-worker-{index}") for index in range(workers)))  # rank 0 says them


def test_real_ranks_that_are_killed_come_again_and_lose_no_bit(cluster, real):
    real("straight", "--steps", "8")
    straight = losses_of_job(cluster, "straight")
    assert len(straight) == 8
    real("struck", "--steps", "8", "--kill_rank", "1", "--kill_step", "5", "--kill_once", str(cluster.folder / "struck.once"))
    assert losses_of_job(cluster, "struck") == straight
    assert cluster.status("struck", "tesserajobs")["restarts"] == 1
    assert sorted(member["attempt"] for member in cluster.status("struck", "tesserajobs")["members"].values()) == [0, 0, 1]


def test_an_msjob_of_four_real_workers_loses_one_and_its_scheduler_and_loses_no_bit(cluster, training):
    """An MSJob names its scheduler itself; the state that this one keeps lies where its next attempt finds it, too."""
    def apply(name, *arguments):
        port = free_port()
        command = ["tessera", "scheduler", "--workers", "4", "--host", "$(MS_SCHED_HOST)", "--port", str(port), "--max_restarts", "1000000",
                   "--state", str(cluster.folder / f"{name}.state")]
        body = job(name, workers=4)
        body["spec"]["msReplicaSpecs"] = {"Scheduler": role(command, ports=port_named(port)), "Worker": training(4, *arguments)}
        cluster.apply(body)

    stop = cluster.folder / "four.stop"
    apply("four", "--steps", "10", "--epochs", "100000", "--stop_file", str(stop))
    cluster.wait_until("four", "Running")
    cluster.wait_for_words("four-worker-0", "loss 20 ")
    scheduler, worker = cluster.uid("four-scheduler-0"), cluster.uid("four-worker-2")
    os.kill(cluster.kubelet.pid("default", "four-worker-2"), 9)
    cluster.wait_for_new("four-worker-2", worker)
    steps = len(losses_of(cluster.kubelet.log("four-worker-0")))
    cluster.wait_for_words("four-worker-0", f"loss {steps + 20} ")
    cluster.delete("pods", "four-scheduler-0")
    cluster.wait_for_new("four-scheduler-0", scheduler)
    steps = len(losses_of(cluster.kubelet.log("four-worker-0")))
    cluster.wait_for_words("four-worker-0", f"loss {steps + 20} ")
    stop.touch()
    losses = losses_of_job(cluster, "four", "msjobs", 4)
    assert cluster.status("four")["restarts"] == 1
    assert [cluster.status("four")["members"][f"four-{name}"]["attempt"] for name in ("scheduler-0", "worker-2", "worker-1")] == [1, 1, 0]
    apply("four-whole", "--steps", "10", "--epochs", str(-(-len(losses) // 10)))
    whole = losses_of_job(cluster, "four-whole", "msjobs", 4)
    assert losses == {step: whole[step] for step in losses}


def test_f75_real_ranks_train_on_while_their_scheduler_is_replaced(cluster, real):
    stop = cluster.folder / "on.stop"
    real("on", "--steps", "10", "--epochs", "100000", "--stop_file", str(stop))
    cluster.wait_until("on", "Running", "tesserajobs")
    cluster.wait_for_words("on-worker-0", "loss 20 ")
    workers, old = {name: cluster.uid(name) for name in ("on-worker-0", "on-worker-1")}, cluster.uid("on-scheduler-0")
    cluster.delete("pods", "on-scheduler-0")
    cluster.wait_for_new("on-scheduler-0", old)
    steps = len(losses_of(cluster.kubelet.log("on-worker-0")))
    cluster.wait_for_words("on-worker-0", f"loss {steps + 100} ")
    stop.touch()
    losses = losses_of_job(cluster, "on")
    assert len(losses) >= steps + 100 and workers == {name: cluster.uid(name) for name in workers}
    assert cluster.status("on", "tesserajobs")["restarts"] == 0
    assert cluster.get("pods", "on-scheduler-0")["metadata"]["labels"][names.ATTEMPT_LABEL] == "1"


def test_real_ranks_of_another_number_go_on_from_what_those_before_have_saved(cluster, programs, real):
    """They are told to end, save the step that they are in, and the next formation begins after it."""
    saved, stop = cluster.folder / "wide", cluster.folder / "wide.stop"
    saved.mkdir()
    real("wide", suspend=True)
    job_now = cluster.job("wide", "tesserajobs")
    (container,) = job_now["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    script = f'test -n "$(ls {saved})" && set -- "$@" --resume {saved}; exec "$@"'
    container["command"] = ["sh", "-c", script, "sh", *container["command"], "--steps", "10", "--epochs", "100000", "--stop_file", str(stop),
                            "--checkpoint_dir", str(saved), "--save_steps", "1000000"]
    cluster.patch("tesserajobs", "wide", {"spec": {"generation": 2, "suspend": False, "msReplicaSpecs": job_now["spec"]["msReplicaSpecs"]}})
    cluster.wait_for_words("wide-worker-0", "loss 20 ")
    cluster.patch("tesserajobs", "wide", {"spec": {"msReplicaSpecs": {"Worker": {"replicas": 1}}}})
    wait_for("one worker trains", lambda: sorted(cluster.pods("wide")) == ["wide-worker-0"]  # alone it needs no scheduler
             and cluster.get("pods", "wide-worker-0")["metadata"]["labels"][names.FORMATION_LABEL] == "2.1.0"
             and cluster.get("pods", "wide-worker-0")["status"]["phase"] == "Running")
    alone = cluster.kubelet.folder / f"wide-worker-0.{cluster.uid('wide-worker-0')[:8]}" / "log"
    wait_for("it has trained", lambda: len(losses_of(alone.read_text())) > 5)
    stop.touch()
    losses = losses_of_job(cluster, "wide")
    first = next(iter(losses_of(alone.read_text())))
    assert sorted(map(int, losses)) == list(range(1, len(losses) + 1)) and int(first) > 20  # no step is left out
    assert cluster.status("wide", "tesserajobs")["restarts"] == 0


def test_f81_a_real_scheduler_turns_away_who_is_revoked_meanwhile_and_nothing_is_started_again_for_it(cluster, programs, real):
    """The Secret is made as docs/kubernetes.md says; its list of revoked certificates is exchanged while the job runs."""
    password = cluster.folder / "password"
    password.write_text("a word of this test\n")
    password.chmod(0o600)

    def make(*arguments):
        subprocess.run([programs / "tessera", "cluster", "make-certificates", cluster.folder / "tls", *arguments], check=True, stdout=subprocess.PIPE,
                       env=os.environ | {"TESSERA_TLS_PASSWORD_FILE": str(password)})
        files = [path for path in (cluster.folder / "tls").iterdir() if path.suffix in (".crt", ".p12", ".pem")] + [password]
        return {path.name: base64.b64encode(path.read_bytes()).decode() for path in files}

    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "real-tls"}, "data": make("--nodes", "worker_0", "worker_1")})
    real("tls", "--steps", "10", "--epochs", "100000", tls={"secretName": "real-tls", "perNode": True, "revocationList": True})
    cluster.wait_until("tls", "Running", "tesserajobs")
    cluster.wait_for_words("tls-worker-0", "loss 20 ")
    scheduler, pid = cluster.uid("tls-scheduler-0"), cluster.kubelet.pid("default", "tls-scheduler-0")
    cluster.patch("secrets", "real-tls", {"data": {"crl.pem": make("--revoke", "worker_1")["crl.pem"]}})
    cluster.wait_for_words("tls-scheduler-0", "revoked")
    assert cluster.uid("tls-scheduler-0") == scheduler and cluster.kubelet.pid("default", "tls-scheduler-0") == pid
    cluster.delete("tesserajobs", "tls")
    wait_for("the job is gone", lambda: not cluster.find("tesserajobs", "tls"))


def test_a_pod_in_the_way_is_named(cluster):
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taken-worker-0"},
                   "spec": {"containers": [{"name": "mindspore", "image": "x", "command": [sys.executable, "-c", "input()"]}]}})
    cluster.apply(job("taken", port=free_port()))
    wait_for("it says so", lambda: re.search("a pod of that name is there that is not the job's", str(cluster.status("taken").get("conditions"))))
    cluster.delete("pods", "taken-worker-0", gracePeriodSeconds=0)
    cluster.patch("msjobs", "taken", {"metadata": {"annotations": {"look": "again"}}})
    cluster.wait_until("taken", "Succeeded")


def test_nothing_but_its_roles_rules_is_asked_for_and_each_rule_is_used(cluster):
    """Of all jobs above, which use up all but the deletion of the other kind's jobs."""
    refused = [request for request in cluster.server.requests if request.code == 403]
    rights = cluster.server.users[next(iter(cluster.server.users))]
    unused = rights.unused() - {("tessera.dev", "tesserajobs", "delete")}
    assert not refused and not unused
