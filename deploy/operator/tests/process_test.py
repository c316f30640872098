"""Claims about the operator's process: its options, its probe, an API server that is away for a while, one that forgets what it told."""

import collections
import shutil
import subprocess
import sys
import urllib.request

import pytest
from api_server import ApiServer
from harness import OPERATOR, TOKEN, OperatorProcesses, View, free_port, job, new_server, wait_for


@pytest.fixture
def server():
    with new_server() as found:
        yield found


@pytest.fixture
def operators(server, tmp_path):
    with OperatorProcesses(server, tmp_path) as found:
        yield found


def has_pods(view, name):
    return lambda: len(view.pods(name)) == 3


def test_it_serves_the_namespaces_that_it_is_told_of_alone(server, operators):
    there, elsewhere = View(server.store, "there"), View(server.store, "elsewhere")
    pid = operators.start("--namespace", "there", "--namespace", "there-too")
    elsewhere.apply(job("a", namespace="elsewhere"))
    there.apply(job("a", namespace="there"))
    wait_for("its job has pods", has_pods(there, "a"))
    View(server.store, "there-too").apply(job("a", namespace="there-too"))
    wait_for("its job has pods", has_pods(View(server.store, "there-too"), "a"))
    assert not elsewhere.pods("a") and not elsewhere.status("a")
    own = [request for request in server.requests if request.user]
    assert {request.namespace for request in own} == {"there", "there-too"}  # so a Role in each is enough
    assert operators.stop(pid) == 0


def test_it_hears_of_pods_of_jobs_alone(server, operators):
    """Not of all pods of a cluster."""
    pid = operators.start()
    asked = wait_for("it watches", lambda: len(found := [request for request in server.requests if request.resource == "pods" and request.user]) == 2 and found)
    assert {(request.verb, request.selector) for request in asked} == {("list", "tessera.dev/job"), ("watch", "tessera.dev/job")}
    assert operators.stop(pid) == 0


def test_its_probe_answers(operators):
    port = free_port()
    pid = operators.start("--liveness", f"http://127.0.0.1:{port}/healthz")

    def answers():
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5).status == 200
        except OSError:
            return False

    assert wait_for("the probe answers", answers)
    assert operators.stop(pid) == 0


def test_an_option_that_is_wrong_is_refused():
    for arguments, words in ((["--threads", "0"], "--threads is 0, but must be at least 1"), (["now"], "unrecognized arguments: now")):
        done = subprocess.run([sys.executable, "-B", "-m", "tessera_operator", *arguments], cwd=OPERATOR, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and words in done.stderr


def test_without_access_it_ends_with_an_error():
    done = subprocess.run([sys.executable, "-B", "-m", "tessera_operator"], cwd=OPERATOR, capture_output=True, text=True, timeout=60,
                          env={"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "KUBECONFIG": "/nowhere/config"})
    assert done.returncode == 1 and "neither a pod's service account nor a kubeconfig" in done.stderr


def test_without_the_crds_or_an_api_server_it_ends_with_an_error(tmp_path):
    with ApiServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
    with ApiServer() as bare:
        for place, words in ((server, "Connection refused"), (bare, "has no msjobs.mindspore.gitee.com and no tesserajobs.tessera.dev: kubectl apply")):
            place.write_kubeconfig(tmp_path / "kubeconfig")
            done = subprocess.run([sys.executable, "-B", "-m", "tessera_operator"], cwd=OPERATOR, capture_output=True, text=True, timeout=60,
                                  env={"PATH": "/usr/bin:/bin", "KUBECONFIG": str(tmp_path / "kubeconfig")})
            assert done.returncode == 1 and words in done.stderr, done.stderr


def test_it_is_installed_as_the_image_does(tmp_path):
    """By pip, without its requirements, which are here already."""
    shutil.copytree(OPERATOR / "tessera_operator", tmp_path / "source/tessera_operator", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(OPERATOR / "pyproject.toml", tmp_path / "source")
    made = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation",
                           "--target", tmp_path / "there", tmp_path / "source"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    done = subprocess.run([sys.executable, tmp_path / "there/bin/tessera-operator", "--help"], capture_output=True, text=True,
                          env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "there")})
    assert done.returncode == 0 and "Runs the MSJobs and TesseraJobs" in done.stdout
    done = subprocess.run([sys.executable, tmp_path / "there/bin/tessera-job", "render", OPERATOR / "config/samples/tesserajob.yaml"], capture_output=True, text=True,
                          env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "there")})
    assert done.returncode == 0 and "kind: Pod\n" in done.stdout, done.stderr
    done = subprocess.run([sys.executable, tmp_path / "there/bin/tessera-job", "manifests"], capture_output=True, text=True, env={
        "PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "there")})
    assert done.returncode == 1 and "are deploy/operator of its sources" in done.stderr, done.stderr


def test_while_the_api_server_is_away_it_waits_and_then_goes_on(server, operators):
    view = View(server.store)
    pid = operators.start()
    view.apply(job("before"))
    wait_for("the job has pods", has_pods(view, "before"))
    server.is_away = True
    view.apply(job("meanwhile"))
    view.delete("pods", "before-worker-0")
    wait_for("it has asked in vain", lambda: server.turned_away >= 3)
    server.is_away = False
    wait_for("the new job has pods", has_pods(view, "meanwhile"))
    wait_for("the lost pod is made anew", has_pods(view, "before"))
    assert operators.stop(pid) == 0


def test_a_watch_that_has_missed_too_much_is_begun_anew(server, operators):
    view = View(server.store)
    pid = operators.start()
    wait_for("the operator watches", lambda: sum(request.verb == "watch" for request in server.requests) == 3)
    server.is_away = True
    server.end_watches()
    view.apply(job("missed"))
    with server.store.lock:
        server.store._history = collections.deque(maxlen=1)
        view.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}})
        view.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two"}})
    server.is_away = False
    wait_for("the job has pods all the same", has_pods(view, "missed"))
    assert operators.stop(pid) == 0


def test_a_right_that_is_taken_away_is_said_and_waited_for(server, operators):
    view = View(server.store)
    rights = server.users[TOKEN]
    rights.rules, kept = [rule for rule in rights.rules if "services" not in rule["resources"]], rights.rules
    pid = operators.start()
    view.apply(job("a"))
    wait_for("the log says so", lambda: "cannot get resource" in operators.log.read_text())
    assert not view.pods("a")
    rights.rules = kept
    wait_for("the job has pods", has_pods(view, "a"))
    assert operators.stop(pid) == 0
