"""Claims about kubectl as people use it on jobs: the commands of docs/kubernetes.md, against the operator and an API server of ours, whose
schemas and tables it prints. Of kubectl any version does; where there is none, each claim is skipped by name."""

import json
import os
import shutil
import subprocess

import pytest
from harness import OperatorProcesses, View, job, names, new_server, wait_for

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed (Debian: kubernetes-client)")


class Kubectl(View):
    def __init__(self, server, folder):
        super().__init__(server.store)
        self.folder = folder
        server.write_kubeconfig(folder / "of-kubectl")

    def run(self, *words, code=0):
        """What it prints; with another code, what it says on standard error."""
        done = subprocess.run(["kubectl", *map(str, words)], capture_output=True, text=True, timeout=120, cwd=self.folder,
                              env=os.environ | {"KUBECONFIG": str(self.folder / "of-kubectl"), "HOME": str(self.folder)})
        assert (done.returncode != 0) == (code != 0), done.stdout + done.stderr
        return done.stderr if code else done.stdout

    def apply_file(self, body, code=0):
        path = self.folder / f"{body['metadata']['name']}.json"
        path.write_text(json.dumps(body))
        # An OpenAPI document, by which kubectl would check fields itself, is what the API server of the tests does not have.
        return self.run("apply", "--validate=false", "-f", path, code=code)

    def row(self, kind, name, *options):
        """Column's name -> cell, of one object."""
        head, line = self.run("get", kind, name, *options).splitlines()
        starts = [head.index(column) for column in head.split()]
        ends = [*starts[1:], None]
        return {column: line[start:end].strip() for column, start, end in zip(head.split(), starts, ends)}

    def all_run(self, name, count=3):
        def run_those_that_wait():
            pods = self.pods(name).values()
            for pod in pods:
                if pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"]:
                    self.set_pod(pod["metadata"]["name"], "Running")
            return len(pods) == count and all(pod["status"]["phase"] == "Running" for pod in self.pods(name).values())
        wait_for(f"the pods of {name} run", run_those_that_wait)


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kubectl")
    with new_server() as server, OperatorProcesses(server, folder) as operators:
        pid = operators.start()
        yield Kubectl(server, folder)
        assert operators.stop(pid) == 0, operators.log.read_text()[-3000:]


def test_get_shows_how_many_pods_are_ready_and_of_which_generation(kubectl):
    assert "msjob.mindspore.gitee.com/shown created" in kubectl.apply_file(job("shown", workers=3))
    kubectl.all_run("shown", 4)
    assert "condition met" in kubectl.run("wait", "msjob/shown", "--for=condition=Running", "--timeout=60s")
    row = kubectl.row("msjob", "shown")
    assert row.pop("AGE").endswith("s")
    assert row == {"NAME": "shown", "STATE": "Running", "WORKERS": "3", "READY": "4", "GENERATION": "1", "RESTARTS": "0"}
    kubectl.set_pod("shown-worker-1", "Failed")
    wait_for("its next attempt is made", lambda: kubectl.status("shown")["restarts"] == 1 and "shown-worker-1" in kubectl.pods("shown"))
    wait_for("one pod less is ready", lambda: kubectl.status("shown")["ready"] == 3)
    row = kubectl.row("msj", "shown", "-o", "wide")
    assert (row["READY"], row["RESTARTS"]) == ("3", "1") and "shown-worker-1" in row["WHY"]


def test_describe_shows_conditions_and_events(kubectl):
    kubectl.apply_file(job("told", kind="TesseraJob", tls={"secretName": "missing"}))
    wait_for("the Secret is missed", lambda: (kubectl.condition("told", "Created", "tesserajobs") or {}).get("reason") == "SecretMissing")
    said = kubectl.run("describe", "tesserajob", "told")
    assert 'spec.tls.secretName: there is no Secret "missing"' in said
    assert "SecretMissing" in said.partition("Events:")[2]


@pytest.mark.parametrize("name, change, words", [
    ("scheduler-too-many", lambda spec: spec["msReplicaSpecs"]["Scheduler"].update(replicas=2), "spec.msReplicaSpecs: Invalid value"),
    ("no-restarts", lambda spec: spec.update(maxRestarts=-1), "spec.maxRestarts: Invalid value")])
def test_apply_refuses_a_job_that_cannot_be_by_its_field(kubectl, name, change, words):
    body = job(name, kind="TesseraJob")
    change(body["spec"])
    assert words in kubectl.apply_file(body, code=1)
    assert not kubectl.find("tesserajobs", name)


def test_apply_of_a_file_that_has_changed_changes_the_job(kubectl):
    body = job("changed", kind="TesseraJob")
    kubectl.apply_file(body)
    body["spec"]["maxRestarts"] = 3
    assert "changed configured" in kubectl.apply_file(body)
    assert kubectl.job("changed", "tesserajobs")["spec"]["maxRestarts"] == 3
    assert "changed unchanged" in kubectl.apply_file(body)


def test_scale_and_patch_let_all_begin_anew_within_the_bounds(kubectl):
    kubectl.apply_file(job("wide", kind="TesseraJob", minWorkers=1, maxWorkers=3))
    kubectl.all_run("wide")
    assert "scaled" in kubectl.run("scale", "tesserajob", "wide", "--replicas", 3)
    wait_for("the third worker is made", lambda: "wide-worker-2" in kubectl.pods("wide"))
    assert "at most maxWorkers" in kubectl.run("scale", "tesserajob", "wide", "--replicas", 4, code=1)
    kubectl.run("patch", "tesserajob", "wide", "--type", "merge", "-p", '{"spec": {"generation": 2}}')
    wait_for("another formation", lambda: (kubectl.pods("wide").get("wide-worker-2") or {"metadata": {"labels": {}}})["metadata"]["labels"].get(
        names.FORMATION_LABEL, "").startswith("2."))
    wait_for("it is shown", lambda: kubectl.row("tj", "wide")["GENERATION"] == "2")


def test_delete_returns_when_the_job_and_its_pods_are_gone(kubectl):
    kubectl.apply_file(job("gone"))
    kubectl.all_run("gone")
    assert 'msjob.mindspore.gitee.com "gone" deleted' in kubectl.run("delete", "msjob", "gone")
    assert not kubectl.find("msjobs", "gone") and not kubectl.pods("gone")
    assert "not found" in kubectl.run("get", "msjob", "gone", code=1)
