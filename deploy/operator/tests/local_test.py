"""Claims about `tessera-job run --local`: a job's pods as processes, begun, started again and ended as the operator does it."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from harness import OPERATOR, ROOT, free_port, job, names
from job_command_test import OF_A_SERVER
from tessera_operator import local_cluster
from tessera_operator.local_pod import expand

BIN = Path(os.environ.get("TESSERA_BIN", ROOT / "build/release/bin"))


class Run:
    """One run of a job's manifest."""

    def __init__(self, folder, body, *options, **environment):
        path = folder / "job.yaml"
        path.write_text(body if isinstance(body, str) else yaml.safe_dump(body))
        self.process = subprocess.Popen([sys.executable, "-B", "-m", "tessera_operator", "job", "run", path, "--local", *map(str, options)], cwd=OPERATOR,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "TMPDIR": str(folder)} | environment)
        self.folder = folder

    def end(self, code=0, timeout=120):
        self.out, self.err = self.process.communicate(timeout=timeout)
        assert self.process.returncode == code, self.out + self.err
        assert not list(self.folder.glob("tessera-job.*")), "its folder is gone with it"
        return self

    def told(self):
        """What the operator says of the job, by its reasons."""
        return re.findall(r"^\[job\] (\w+): ", self.err, re.M)


def run(folder, body, *options, code=0, **environment):
    return Run(folder, body, "--port", free_port(), *options, **environment).end(code)


def ends(pid):
    """Whether the process ends, of which another one may still have to take note. Whoever has killed it has not waited for that."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def show(*names_of_variables):
    """A command that prints variables."""
    return [sys.executable, "-c", f"import os\nfor name in {names_of_variables!r}: print(name, os.environ.get(name))"]


def alone(command, kind="MSJob", **container):
    """A job of one worker, which has no scheduler."""
    group, version, _ = names.KINDS[kind]
    return {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": "alone"}, "spec": {"msReplicaSpecs": {"Worker": {"template": {"spec": {
        "containers": [{"name": names.CONTAINER, "image": "x", "command": command} | container]}}}}}}


def pod_of(body, role="Worker"):
    return body["spec"]["msReplicaSpecs"][role]["template"]["spec"]


def test_scheduler_servers_and_workers_meet(tmp_path):
    ended = run(tmp_path, job("a", workers=3, servers=1))
    met = re.findall(r"^\[(a-\w+-\d)\] (\w+) attempt 0 has met its scheduler$", ended.out, re.M)
    assert sorted(met) == [("a-server-0", "server_0"), *((f"a-worker-{i}", f"worker_{i}") for i in range(3))]
    assert "[a-scheduler-0] scheduler of 4, 0 have left" in ended.out
    assert ended.told() == ["Created", "Succeeded"]


def test_fewer_workers_than_the_manifest_has(tmp_path):
    ended = run(tmp_path, job("a", workers=50), "--workers", 2)
    assert "scheduler of 2," in ended.out


@pytest.mark.parametrize("bounds, workers, words", [
    ({"maxWorkers": 3}, 5, "at most maxWorkers (3)"), ({"minWorkers": 2}, 1, "at least minWorkers (2)"),
    ({"minWorkers": 2, "maxWorkers": 3}, 4, "at least minWorkers (2) and at most maxWorkers (3)")])
def test_a_number_of_workers_keeps_the_manifests_bounds(tmp_path, bounds, workers, words):
    body = alone(["true"], "TesseraJob")
    body["spec"] |= bounds
    body["spec"]["msReplicaSpecs"]["Worker"]["replicas"] = 2
    assert Run(tmp_path, body, "--workers", workers).end(2).err == (
        f"error: {tmp_path}/job.yaml: spec.msReplicaSpecs.Worker.replicas: it is {workers}, but must be {words}; it is {workers} by --workers\n")


def test_several_workers_of_an_msjob_have_a_scheduler(tmp_path):
    err = Run(tmp_path, alone(["true"]), "--workers", 2).end(2).err
    assert "spec.msReplicaSpecs.Scheduler: a job of several workers, or with PS, needs a scheduler" in err and "by --workers" in err


def test_a_pod_that_fails_is_started_again_as_its_policy_says(tmp_path):
    body = job("a", workers=2, arguments=["--fail-once", tmp_path / "failed"])
    ended = run(tmp_path, body)
    assert len(re.findall(r"attempt 1 has met its scheduler", ended.out)) == 1
    # A pod may fail before the last one is made.
    *before, last = ended.told()
    assert sorted(before) == ["Created", "Restarting"] and last == "Succeeded"
    (tmp_path / "failed").unlink()
    ended = run(tmp_path, job("a", workers=2, arguments=["--fail-once", tmp_path / "failed"], policy="Never"), code=1)
    assert re.search(r"\[job\] PodFailed: pod a-worker-\d, attempt 0, has failed: exit code 3, and its restartPolicy is Never", ended.err)


def test_restarts_are_used_up(tmp_path):
    ended = run(tmp_path, job("a", workers=1, arguments=["--exit", 7], run_policy={"backoffLimit": 1}), code=1)
    assert "MaxRestartsExceeded: pod a-worker-0, attempt 1, has failed: exit code 7, and all 1 restarts are used up" in ended.err


def test_one_workers_success_is_the_jobs_where_it_says_so(tmp_path):
    waits = "import os, time\nif os.environ['MS_NODE_ID'] == 'worker_1': time.sleep(300)"
    body = job("a", workers=2, successPolicy="")
    pod_of(body)["containers"][0]["command"] = [sys.executable, "-c", waits]
    pod_of(body)["terminationGracePeriodSeconds"] = 5
    begin = time.monotonic()
    assert run(tmp_path, body).told()[-1] == "Succeeded"
    assert time.monotonic() - begin < 60


def test_a_deadline_ends_the_job(tmp_path):
    ended = run(tmp_path, job("a", arguments=["--until", "/nowhere"], run_policy={"activeDeadlineSeconds": 1}), code=1)
    assert "DeadlineExceeded" in ended.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_pods(tmp_path, number):
    child = tmp_path / "child"
    body = job("a", workers=2, arguments=["--until", "/nowhere"])
    pod_of(body)["containers"][0]["command"] = ["sh", "-c", f'sleep 300 & echo $! > "{child}.$MS_NODE_ID"; echo begun; wait']
    running = Run(tmp_path, body, "--port", free_port())
    begun = 0
    while begun < 2:
        line = running.process.stdout.readline()
        assert line, running.end()
        begun += "begun" in line
    running.process.send_signal(number)
    running.end(128 + number)
    assert f"[job] {number.name}: the pods end" in running.err
    for worker in range(2):
        assert ends(int(Path(f"{child}.worker_{worker}").read_text()))


def test_a_signal_that_comes_amid_the_wait_is_noted():
    """The handler runs where the main thread may hold the lock of what it waits for."""
    cluster = SimpleNamespace(changed=threading.Event())
    with local_cluster._Signals(cluster) as signals:
        with cluster.changed._cond:
            signals._note(signal.SIGTERM, None)
        assert cluster.changed.wait(30)
    assert signals.first == signal.SIGTERM and not signals.is_urgent


def test_a_second_signal_kills(tmp_path):
    body = alone(["sh", "-c", "trap '' TERM INT; echo begun; while :; do sleep 1; done"])
    pod_of(body)["terminationGracePeriodSeconds"] = 300
    running = Run(tmp_path, body)
    assert "begun" in running.process.stdout.readline()
    running.process.send_signal(signal.SIGTERM)
    for line in running.process.stderr:
        if "once more kills them" in line:
            break
    running.process.send_signal(signal.SIGTERM)
    running.end(128 + signal.SIGTERM, timeout=60)


def test_a_second_signal_ends_the_command_whatever_it_waits_for(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(alone(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])))
    for waits in ("return 300.0, []", "print('waits', file=sys.stderr, flush=True); threading.Event().wait()"):
        script = ("import sys, threading\nfrom tessera_operator import job_command, local_cluster\nreal = local_cluster.reconcile\n"
                  "def look(cluster, key):\n    if 'deletionTimestamp' not in cluster.body['metadata']:\n        return real(cluster, key)\n"
                  f"    {waits}\nlocal_cluster.reconcile = look\nsys.exit(job_command.main(sys.argv[1:]))")
        with subprocess.Popen([sys.executable, "-B", "-c", script, "run", path, "--local"], cwd=OPERATOR, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env=os.environ | {"TMPDIR": str(tmp_path)}) as process:
            for awaited in ("Created", "once more kills them", *(["waits"] if "waits" in waits else [])):
                line = process.stderr.readline()
                while line and awaited not in line:
                    line = process.stderr.readline()
                assert line, awaited
                if awaited == "Created":
                    process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGTERM
        assert list(tmp_path.iterdir()) == [path]


def test_two_signals_end_the_command_whose_output_nobody_reads(tmp_path):
    os.mkfifo(tmp_path / "begun")
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(alone(["sh", "-c", f"echo > {tmp_path}/begun; yes; sleep 300"])))
    with subprocess.Popen([sys.executable, "-B", "-m", "tessera_operator", "job", "run", path, "--local"], cwd=OPERATOR, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=os.environ | {"TMPDIR": str(tmp_path)}) as process:
        (tmp_path / "begun").read_text()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGINT
    assert not list(tmp_path.glob("tessera-job.*"))


@pytest.mark.parametrize("lines, code", [(2, 0), (100_000, 0), (100_000, 3)])
def test_a_standard_output_that_is_full_is_said_and_the_job_goes_on(tmp_path, lines, code):
    path = tmp_path / "job.yaml"
    body = alone(["sh", "-c", f"seq {lines}; touch {tmp_path}/all-is-printed; exit {code}"])
    body["spec"]["msReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    path.write_text(yaml.safe_dump(body))
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-B", "-m", "tessera_operator", "job", "run", path, "--local"], cwd=OPERATOR, stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=120, env=os.environ | {"TMPDIR": str(tmp_path)})
    assert done.returncode == 1 and (tmp_path / "all-is-printed").exists(), done.stderr
    assert done.stderr.count("[job] standard output takes no more (No space left on device): the job goes on, what its pods print is lost\n") == 1
    assert done.stderr.splitlines()[-1] == ("error: cannot write standard output: No space left on device" if code == 0 else
                                            "[job] PodFailed: pod alone-worker-0, attempt 0, has failed: exit code 3, and its restartPolicy is Never")
    assert "Traceback" not in done.stderr


def test_a_job_that_a_cluster_was_ending_runs(tmp_path):
    body = alone(["echo", "ran"])
    body["metadata"] |= OF_A_SERVER
    assert "[alone-worker-0] ran" in run(tmp_path, body).out


def test_its_grace_period_ends_a_pod_that_goes_on(tmp_path):
    body = alone(["sh", "-c", "trap '' TERM; echo begun; while :; do sleep 1; done"])
    body["spec"]["runPolicy"] = {"activeDeadlineSeconds": 1}
    pod_of(body)["terminationGracePeriodSeconds"] = 1
    assert "DeadlineExceeded" in run(tmp_path, body, code=1).err


def test_nothing_is_left_where_the_command_itself_is_killed(tmp_path):
    running = Run(tmp_path, alone(["sh", "-c", "echo $$$$; exec sleep 300"]))
    pid = int(running.process.stdout.readline().split()[1])
    running.process.kill()
    running.process.communicate(timeout=60)
    assert ends(pid)


def test_a_pod_has_the_variables_of_its_text(tmp_path):
    body = alone(show("PLAIN", "SUM", "NAME", "SPACE", "UID", "TEAM", "LIMIT", "CPU", "KEY", "CONF", "all_a", "HOSTNAME", "TESSERA_ATTEMPT", "MS_ROLE", "LITERAL"), env=[
        {"name": "PLAIN", "value": "one"}, {"name": "SUM", "value": "$(PLAIN) and $(NONE)"}, {"name": "LITERAL", "value": "$$(PLAIN)"},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "SPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "TEAM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['team']"}}},
        {"name": "LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}},
        {"name": "CONF", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "b"}}}],
        envFrom=[{"secretRef": {"name": "keys"}, "prefix": "all_"}], resources={"limits": {"memory": "2Gi", "cpu": "1500m"}})
    body["spec"]["msReplicaSpecs"]["Worker"]["template"]["metadata"] = {"labels": {"team": "vision"}}
    text = yaml.safe_dump_all([{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"a": "secret words"}},
                               {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"b": "calm"}}, body])
    found = dict(line.split(" ", 2)[1:] for line in run(tmp_path, text, MS_ROLE="MS_WORKER", TESSERA_SIZE="9").out.splitlines())
    assert found == {"PLAIN": "one", "SUM": "one and $(NONE)", "LITERAL": "$(PLAIN)", "NAME": "alone-worker-0", "SPACE": "default", "UID": "None", "TEAM": "vision",
                     "LIMIT": "2048", "CPU": "2", "KEY": "secret words", "CONF": "calm", "all_a": "secret words", "HOSTNAME": "alone-worker-0",
                     "TESSERA_ATTEMPT": "0", "MS_ROLE": "None"}


def test_the_interpreter_that_the_command_has_named_for_itself_is_no_variable_of_a_pod(tmp_path):
    body = alone(show("PYTHON", "_PYTHON_OF_TESSERA_JOB"))
    found = run(tmp_path, body, PYTHON=sys.executable, _PYTHON_OF_TESSERA_JOB="1").out
    assert re.findall(r" (\S+) None$", found, re.M) == ["PYTHON", "_PYTHON_OF_TESSERA_JOB"]
    assert "PYTHON mine" in run(tmp_path, body, PYTHON="mine").out.splitlines()[0]


def test_pods_write_reports_where_this_shell_says(tmp_path):
    found = run(tmp_path, alone(show("TESSERA_REPORT_DIR", "TESSERA_STORE")), TESSERA_REPORT_DIR="/reports", TESSERA_STORE="unix:of-another-job").out
    assert "TESSERA_REPORT_DIR /reports" in found and "TESSERA_STORE None" in found


def test_a_folder_that_no_pod_asks_for_is_said_to_have_no_effect(tmp_path):
    for name in ("used", "other"):
        (tmp_path / name).mkdir()
    body = alone(["sh", "-c", "ls /train"], volumeMounts=[{"name": "data", "mountPath": "/data"}])
    body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    options = [word for option, name in (("--path", "/train"), ("--claim", "data")) for word in (option, f"{name}={tmp_path / 'used'}")]
    assert "has no effect" not in run(tmp_path, body, *options).err
    wrong = [word for option, name in (("--path", "/trian"), ("--claim", "daat"), ("--config", "settings"), ("--secret", "keys"))
             for word in (option, f"{name}={tmp_path / 'other'}")]
    err = run(tmp_path, body, *options, *wrong).err
    assert [line for line in err.splitlines() if "has no effect" in line] == [
        f"{option}=...: no pod of the job names it, so that it has no effect" for option in ("--secret keys", "--config settings", "--claim daat", "--path /trian")]
    # What is mounted on a path hides the folder that is given for it.
    assert "--path /data=...: no pod" in run(tmp_path, body, *options, "--path", f"/data={tmp_path / 'other'}").err


def test_volumes_are_folders_and_their_paths_are_replaced(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "image").mkdir()
    (tmp_path / "image/train.sh").write_text('cat "$1/input" "$CONF/b" > "$OUT/result" && ls "$2" && echo done')
    body = alone(["sh", "/train/train.sh"], args=["/data", "/scratch/sub"], env=[{"name": "CONF", "value": "/etc/settings"}, {"name": "OUT", "value": "/data"}],
                 volumeMounts=[{"name": "data", "mountPath": "/data"}, {"name": "settings", "mountPath": "/etc/settings"},
                               {"name": "scratch", "mountPath": "/scratch/sub"}])
    pod_of(body)["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "mine"}}, {"name": "settings", "configMap": {"name": "settings"}},
                               {"name": "scratch", "emptyDir": {}}]
    (tmp_path / "data/input").write_text("1")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/b").write_text("2")
    ended = run(tmp_path, body, "--path", f"/train={tmp_path}/image", "--claim", f"mine={tmp_path}/data", "--config", f"settings={tmp_path}/conf")
    assert "[alone-worker-0] done" in ended.out and (tmp_path / "data/result").read_text() == "12"


def test_a_folder_of_the_node_is_where_a_path_says_that_it_or_one_above_it_is(tmp_path):
    (tmp_path / "home/wide_and_deep/data").mkdir(parents=True)
    (tmp_path / "home/wide_and_deep/data/rows").write_text("of here")
    body = alone(["/bin/sh", "-c", "cat /no-such/wide_and_deep/data/rows $ROWS"], env=[{"name": "ROWS", "value": "/train/data/rows"}],
                 volumeMounts=[{"name": "script", "mountPath": "/no-such/wide_and_deep/"}, {"name": "script", "mountPath": "/train"}])
    pod_of(body)["volumes"] = [{"name": "script", "hostPath": {"path": "/no-such/wide_and_deep/"}}]
    for path in (f"/no-such/wide_and_deep={tmp_path}/home/wide_and_deep", f"/no-such/wide_and_deep/={tmp_path}/home/wide_and_deep", f"/no-such={tmp_path}/home"):
        ended = run(tmp_path, body, "--path", path)
        assert ended.out == "[alone-worker-0] of hereof here\n" and "has no effect" not in ended.err, path
    # The container's own name for the folder serves, too, and goes before that of the node.
    pod_of(body)["volumes"][0]["hostPath"]["path"] = "/elsewhere"
    (tmp_path / "train/data").mkdir(parents=True)
    (tmp_path / "train/data/rows").write_text(", and more")
    options = [word for path in (f"/elsewhere={tmp_path}/home/wide_and_deep", f"/train={tmp_path}/train") for word in ("--path", path)]
    assert run(tmp_path, body, *options).out == "[alone-worker-0] of here, and more\n"
    pod_of(body)["volumes"][0]["hostPath"]["path"] = "/no-such/narrow"
    assert Run(tmp_path, body, "--path", f"/no-such={tmp_path}/home").end(2).err == (
        f"error: {tmp_path}/job.yaml: spec.msReplicaSpecs.Worker.template.spec.volumes[0].hostPath.path: /no-such/narrow, here {tmp_path}/home/narrow, does not "
        "exist\n")


def test_init_containers_run_first_and_others_beside(tmp_path):
    body = alone(["sh", "-c", f"test -e {tmp_path}/first && test -e {tmp_path}/second && echo after them"])
    pod_of(body)["initContainers"] = [{"name": "one", "image": "x", "command": ["sh", "-c", f"sleep 0.2; touch {tmp_path}/first"]},
                                      {"name": "two", "image": "x", "command": ["sh", "-c", f"test -e {tmp_path}/first && touch {tmp_path}/second && echo here"]},
                                      {"name": "beside", "image": "x", "restartPolicy": "Always", "command": ["sleep", "300"]}]
    pod_of(body)["containers"].append({"name": "logs", "image": "x", "command": ["echo", "collected"]})
    ended = run(tmp_path, body)
    assert {"[alone-worker-0/two] here", "[alone-worker-0] after them", "[alone-worker-0/logs] collected"} <= set(ended.out.splitlines())
    pod_of(body)["initContainers"] = [{"name": "one", "image": "x", "command": ["false"]}]
    body["spec"]["msReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    assert "PodFailed: pod alone-worker-0, attempt 0, has failed: exit code 1 (Init:one)" in run(tmp_path, body, code=1).err


def test_what_this_machine_does_not_have_is_said_at_once_with_its_path(tmp_path):
    body = alone(["python3", "/train/train.py"], env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}},
                                                      {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.priority"}}}])
    pod_of(body)["volumes"] = [{"name": "a", "persistentVolumeClaim": {"claimName": "mine"}}, {"name": "b", "nfs": {"server": "s", "path": "/"}}]
    pod_of(body)["containers"].append({"name": "entry", "image": "x"})
    pod_of(body)["containers"].append({"name": "none", "image": "x", "command": ["no-such-program"], "workingDir": "/"})
    pod, at = "spec.msReplicaSpecs.Worker.template.spec", f"error: {tmp_path}/job.yaml: "
    assert Run(tmp_path, body).end(2).err.splitlines() == [at + line for line in (
        f'{pod}.volumes[0].persistentVolumeClaim.claimName: name a folder for the claim "mine": --claim mine=FOLDER',
        f"{pod}.volumes[1]: a volume of this kind (nfs) cannot be had without a cluster",
        f'{pod}.containers[0].env[0].valueFrom.secretKeyRef: name a folder with the files of the Secret "keys": --secret keys=FOLDER',
        f'{pod}.containers[0].env[1].valueFrom.fieldRef.fieldPath: "spec.priority" is no field that a pod has here',
        f"{pod}.containers[0].command: there is no /train/train.py here; --path /train=FOLDER says where that folder of the image is",
        f"{pod}.containers[1].command: it is missing: what an image starts by itself is not known here",
        f'{pod}.containers[2].command[0]: "no-such-program" is no program here, it is not in PATH')]


def test_what_is_missing_in_a_folder_that_was_named_is_said_by_both_names(tmp_path):
    (tmp_path / "code").mkdir()
    pod, at = "spec.msReplicaSpecs.Worker.template.spec", f"error: {tmp_path}/job.yaml: "
    body = alone(["python3", "/code/none.py"], workingDir="/code")
    assert Run(tmp_path, body, "--path", f"/code={tmp_path}/code").end(2).err == (
        f"{at}{pod}.containers[0].command: /code/none.py, here {tmp_path}/code/none.py, does not exist\n")
    body = alone(["true"], workingDir="/code/sub")
    assert Run(tmp_path, body, "--path", f"/code={tmp_path}/code").end(2).err == (
        f"{at}{pod}.containers[0].workingDir: /code/sub, here {tmp_path}/code/sub, is no folder\n")


def test_a_port_that_is_taken_is_said(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} is taken on this machine" in Run(tmp_path, job("a"), "--port", port).end(2).err


def test_a_job_that_is_suspended_and_another_users_runs_at_once_as_this_one(tmp_path):
    body = job("a", kind="TesseraJob", suspend=True, secretDelivery="Copy")
    for role in ("Scheduler", "Worker"):
        pod_of(body, role)["securityContext"] = {"runAsUser": 12345, "fsGroup": 12345}
    assert run(tmp_path, body).told() == ["Created", "Succeeded"]


def test_text_expands_as_kubernetes_has_it():
    known = {"A": "1", "B.C": "2"}
    assert expand("$(A)$(B.C) $(D) $$(A) $$ $A", known) == "12 $(D) $(A) $ $A"


@pytest.mark.skipif(not (BIN / "tessera").exists(), reason="build/release/bin has no tessera")
def test_ranks_of_tessera_meet_at_its_scheduler(tmp_path):
    """A TesseraJob that names workers alone: the scheduler's command is the operator's."""
    body = alone(["tessera", "run", "--join", "$(TESSERA_SCHEDULER)", "--node_id", "$(TESSERA_NODE_ID)", "-n", "2", "rank_program", "script"], "TesseraJob")
    body["spec"] |= {"ranksPerWorker": 2}
    body["spec"]["msReplicaSpecs"]["Worker"]["replicas"] = 2
    ended = run(tmp_path, body)
    assert len(set(re.findall(r"checksum (\w+) rank \d of 4 ", ended.out))) == 1 and ended.out.count("of 4 local") == 4, ended.out


@pytest.mark.skipif(not (BIN / "tessera").exists(), reason="build/release/bin has no tessera")
def test_certificates_are_a_folder_by_the_secrets_name(tmp_path):
    tls = tmp_path / "tls"
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text("words\n")
    subprocess.run([BIN / "tessera", "cluster", "make-certificates", tls, "--nodes", "worker_0/0", "worker_1/0"], check=True, capture_output=True,
                   env=os.environ | {"TESSERA_TLS_PASSWORD_FILE": str(password)})
    shutil.copy(password, tls)
    body = alone(["tessera", "run", "--join", "$(TESSERA_SCHEDULER)", "--node_id", "$(TESSERA_NODE_ID)", "-n", "1", "rank_program", "script"], "TesseraJob")
    body["spec"] |= {"tls": {"secretName": "certificates", "revocationList": True}}
    body["spec"]["msReplicaSpecs"]["Worker"]["replicas"] = 2
    assert 'spec.tls.secretName: name a folder with the files of the Secret "certificates": --secret certificates=FOLDER' in Run(tmp_path, body).end(2).err
    ended = run(tmp_path, body, "--secret", f"certificates={tls}")
    assert ended.out.count("of 2 local") == 2, ended.out + ended.err


@pytest.mark.skipif(not (BIN / "tessera").exists(), reason="build/release/bin has no tessera")
def test_the_command_tessera_hands_over_to_it(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(alone(["tessera", "version"])))
    environment = {name: value for name, value in os.environ.items() if name != "PATH"} | {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "PYTHONPATH": str(OPERATOR)}
    done = subprocess.run([BIN / "tessera", "job", "run", path, "--local"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "[alone-worker-0] tessera " in done.stdout, done.stderr  # found beside that command
    done = subprocess.run([BIN / "tessera", "job", "render", path, "--pod", "none"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "the job has no such pod" in done.stderr
    done = subprocess.run([BIN / "tessera", "job", "render", path], env=environment | {"PYTHON": "/no/such/python"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and 'cannot start the interpreter "/no/such/python", which PYTHON names: No such file or directory' in done.stderr, done.stderr
