"""Claims about what is wrong with a manifest, and about what a job becomes: `tessera-job render`, which asks nobody."""

import contextlib
import copy
import io
import json
import subprocess
import sys

import pytest
import yaml
from harness import OPERATOR, manifests, names
from tessera_operator import job_command, quantity
from tessera_operator.job import read
from tessera_operator.manifest import InvalidManifest, load
from world import World

SAMPLES = sorted((OPERATOR / "config/samples").glob("*job*.yaml"))
JOB = """
apiVersion: tessera.dev/v1alpha1
kind: TesseraJob
metadata:
  name: small
spec:
  msReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - name: mindspore
              image: example/train:1
              command: [python, /train/train.py]
"""


def render(*arguments, code=0):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert job_command.main(["render", *map(str, arguments)]) == code, err.getvalue()
    return out.getvalue(), err.getvalue()


def faults_of(text):
    with pytest.raises(InvalidManifest) as caught:
        load(text, "job.yaml")
    return caught.value.faults


def changed(change):
    body = yaml.safe_load(JOB)
    change(body)
    return yaml.safe_dump(body)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_job_becomes_the_objects_that_the_operator_makes(path):
    """Those of a world in which the operator looks until nothing changes any more."""
    out, _ = render(path)
    (body,) = [item for item in manifests(path) if item["kind"] in names.KINDS]
    manifest = load(path.read_text(), str(path)).body
    for where in (manifest["spec"], manifest["spec"]["runPolicy"]):
        where.pop("suspend", None)
    job = read(manifest)
    world = World(copy.deepcopy(manifest))
    if job.tls:
        files = {"ca.crt", "server.p12", "crl.pem", "password"} | {names.node_id(role.name, index) + ".p12" for _, role, index in job.members()}
        world.secrets[job.tls["secretName"]] = {"metadata": {"name": job.tls["secretName"]}, "data": dict.fromkeys(files, "")}
    world.settle()
    rendered = {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(out)}
    assert {name for kind, name in rendered if kind == "Pod"} == set(world.pods) == {name for name, _, _ in job.members()}
    assert (("Service", names.service_name(job.name)) in rendered) == job.has_scheduler
    assert (("Secret", job.secret_name) in rendered) == job.owns_secret
    for name, pod in world.pods.items():
        text = json.dumps(pod["spec"]).replace(f"/{world.body['metadata']['uid']}.", f"/{job.uid}.")  # of the folder of a job's state
        assert rendered["Pod", name]["spec"] == json.loads(text)
    assert body["metadata"]["name"] == job.name


# What `kubectl get -o yaml` writes of a job that is ending.
OF_A_SERVER = {"creationTimestamp": "2026-11-30T00:00:00Z", "deletionGracePeriodSeconds": 0, "deletionTimestamp": "2026-11-30T00:00:00Z",
               "finalizers": [names.FINALIZER], "generation": 7, "managedFields": [{"manager": "kubectl"}], "resourceVersion": "812",
               "selfLink": "/apis/x", "uid": "11111111-2222-3333-4444-555555555555"}


def test_what_an_api_server_has_set_of_a_job_is_left_out(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(changed(lambda body: None))
    plain, _ = render(path)
    assert plain.count("kind: Pod") == 3
    path.write_text(changed(lambda body: (body["metadata"].update(OF_A_SERVER), body.update(status={"state": "Succeeded", "completionTime": "x"}))))
    assert render(path)[0] == plain


def test_one_pod_is_rendered_alone():
    out, _ = render(SAMPLES[0], "--pod", "mnist-worker-1")
    assert yaml.safe_load(out)["metadata"]["name"] == "mnist-worker-1"
    _, err = render(SAMPLES[0], "--pod", "mnist-worker-9", code=2)
    assert err == ("error: --pod mnist-worker-9: the job has no such pod; it has mnist-scheduler-0, mnist-worker-0, mnist-worker-1, mnist-worker-2, "
                   "mnist-worker-3\n")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "utf16.yaml").write_bytes(b"kind: x\n\xff\xfek\0")
    for file, words, code in ((tmp_path / "none.yaml", "No such file or directory", 1), (tmp_path, "it is a folder; name the file of a manifest in it", 1),
                              (tmp_path / "utf16.yaml", "line 2: it is no text in UTF-8: the byte 0xff cannot stand there", 2)):
        _, err = render(file, code=code)
        assert err == f"error: {file}: {words}\n"


def test_all_that_is_wrong_is_said_at_once_with_its_path():
    faults = faults_of("""
apiVersion: mindspore.gitee.com/v2
kind: MSJob
metadata: {name: My_job}
spec:
  runPolicy: {cleanPodPolicy: Sometimes, backofLimit: 3, ttlSecondsAfterFinished: -1}
  successPolicy: 1
  sucess: x
  msReplicaSpecs:
    Chief: {template: {spec: {containers: [{name: mindspore, image: x}]}}}
    PS: {replicas: 0}
    Worker:
      replicas: "4"
      restartPolicy: never
      template:
        spec:
          containers:
            - {name: other, image: x, command: python, env: [{name: A, value: 1}]}
""")
    assert faults == [
        'apiVersion: it is "mindspore.gitee.com/v2", but that of a MSJob is mindspore.gitee.com/v1',
        'spec.runPolicy.cleanPodPolicy: it is "Sometimes", but must be one of "All", "Running", "None"',
        "spec.runPolicy.backofLimit: there is no such field; did you mean backoffLimit?",
        "spec.runPolicy.ttlSecondsAfterFinished: it is -1, but must be at least 0",
        "spec.successPolicy: it is 1, but must be a text: write it in quotes",
        "spec.sucess: there is no such field; did you mean successPolicy?",
        "spec.msReplicaSpecs.PS.template: it is missing",
        "spec.msReplicaSpecs.PS.replicas: it is 0, but must be at least 1 and at most 4096",
        'spec.msReplicaSpecs.Worker.replicas: it is "4", but must be a whole number',
        'spec.msReplicaSpecs.Worker.restartPolicy: it is "never", but must be one of "Always", "OnFailure", "Never"',
        'spec.msReplicaSpecs.Worker.template.spec.containers[0].command: it is "python", but must be a list',
        "spec.msReplicaSpecs.Worker.template.spec.containers[0].env[0].value: it is 1, but must be a text: write it in quotes",
        "metadata.name: 'My_job' must have at most 48 characters, small letters, digits and '-', a letter first, as pods, hosts and a Service are named by it",
        "spec.msReplicaSpecs.Chief: there is no such role; roles are Scheduler, PS, Worker",
        "spec.msReplicaSpecs.PS.template.spec.containers: exactly one container must have the name 'mindspore', 0 of 0 have it",
        "spec.msReplicaSpecs.Worker.template.spec.containers: exactly one container must have the name 'mindspore', 0 of 1 have it"]


CONTAINER = "spec.msReplicaSpecs.Worker.template.spec.containers[0]"


def container_of(body):
    return body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]


def test_quantities_are_written_as_kubernetes_reads_them():
    for number in (2, 0.5, "2", "500m", "1.5Gi", ".5", "+3", "1e3", "2E6", "5E", "100n", "7k", "128Mi"):
        load(changed(lambda body, number=number: container_of(body).update(resources={"limits": {"cpu": number}})), "job.yaml")


def test_a_quantity_by_a_divisor_is_exact_and_rounded_up():
    assert [quantity.whole_number(f"{number}m", "1m") for number in range(1, 3000)] == list(map(str, range(1, 3000)))
    assert [quantity.whole_number(f"{number}m", "1") for number in range(1, 3000)] == [str(-(-number // 1000)) for number in range(1, 3000)]
    for value, divisor, wanted in (("0.05", "1m", "50"), ("1.1", "1m", "1100"), (1.1, "1m", "1100"), ("1e3", 1, "1000"), ("1E3", "1k", "1"), ("15e-1", "1m", "1500"),
                                   ("9007199254740993", 1, "9007199254740993"), ("9223372036854775807", "1", "9223372036854775807"),
                                   ("9223372036854775807", "1Ki", "9007199254740992"), ("7Ei", "1Ei", "7"), ("1Ti", "1Gi", "1024"), ("1P", "1T", "1000"),
                                   ("100n", "1n", "100"), ("3u", "1n", "3000"), ("0.1n", "1n", "1"), ("1e-400", "1n", "1"), ("1001m", "1", "2"), ("0", "1m", "0"),
                                   ("+2", "1", "2"), (".5", "1m", "500"), ("5.", "1", "5"), ("1Gi", "1M", "1074"), ("3", "0", "3")):
        assert quantity.whole_number(value, divisor) == wanted, (value, divisor)


@pytest.mark.parametrize("value", ["1e400", "9" * 400, "9" * 5000, "9223372036854775808", "8Ei", "10E", "1e99999999999999999999"])
def test_a_quantity_beyond_64_bits_is_refused(value):
    shown = value if len(value) < 79 else f"{value[:76]}..."
    (fault,) = faults_of(changed(lambda body: container_of(body).update(resources={"limits": {"cpu": value}})))
    assert fault.startswith(f'{CONTAINER}.resources.limits.cpu: it is "{shown}') and fault.endswith(", but must be at most 2^63-1 (9223372036854775807)")


@pytest.mark.parametrize("change, fault", [
    (lambda body: body.pop("spec"), "spec: it is missing"),
    (lambda body: body.pop("metadata"), "metadata.name: a job needs a name"),
    (lambda body: body["metadata"].update(name=""), "metadata.name: a job needs a name"),
    (lambda body: body["metadata"].update(namespace="../x"),
     "metadata.namespace: it is '../x', but must have small letters, digits and '-', at most 63 of them, a letter or a digit first and last"),
    (lambda body: body.update(specs={}), "specs: there is no such field; did you mean spec?"),
    (lambda body: body.update(wages={}), "wages: there is no such field"),
    (lambda body: body["spec"].update(generationPolicy=1), "spec.generationPolicy: there is no such field"),
    (lambda body: body["spec"].update(MAXRESTART=1), "spec.MAXRESTART: there is no such field; did you mean maxRestarts?"),
    (lambda body: body["spec"].update(runPolicy={"schedulingPolicy": {"minAvailable": 2}}),
     "spec.runPolicy.schedulingPolicy: there is no such field; all pods are placed at once by the gang of a TesseraJob, and priorityClassName is a field of the "
     "template's spec"),
    (lambda body: body["spec"].update(enableDynamicWorker=True),
     "spec.enableDynamicWorker: there is no such field; kubectl scale changes the number of workers of any job"),
    (lambda body: body["spec"]["msReplicaSpecs"].pop("Worker"), "spec.msReplicaSpecs.Worker: a job has at least one worker"),
    (lambda body: body["spec"].update(minWorkers=3, maxWorkers=2), "spec.minWorkers: it is 3, but must be at most maxWorkers (2)"),
    (lambda body: body["spec"].update(minWorkers=3), "spec.msReplicaSpecs.Worker.replicas: it is 2, but must be at least minWorkers (3)"),
    (lambda body: body["spec"].update(tls={"secretName": "a"}, secretName="b"),
     "spec.secretName: certificates (spec.tls) take the secret's place: name one of the two"),
    (lambda body: body["spec"].update(maxRestarts=True), "spec.maxRestarts: it is true, but must be a whole number"),
    (lambda body: body["spec"].update(gang={"scheduler": "volcano"}), "spec.gang.podGroup: it is missing"),
    (lambda body: body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"].update(terminationGracePeriodSeconds="long"),
     'spec.msReplicaSpecs.Worker.template.spec.terminationGracePeriodSeconds: it is "long", but must be a whole number'),
    (lambda body: container_of(body).update(resources={"limits": {"cpu": "lots"}}),
     f'{CONTAINER}.resources.limits.cpu: it is "lots", but must be a quantity, such as 2, 500m or 4Gi'),
    (lambda body: container_of(body).update(resources={"requests": {"memory": "4GB"}}),
     f'{CONTAINER}.resources.requests.memory: it is "4GB", but must be a quantity, such as 2, 500m or 4Gi'),
    (lambda body: container_of(body).update(resources={"limits": {"cpu": -1}}),
     f"{CONTAINER}.resources.limits.cpu: it is -1, but must be a quantity, such as 2, 500m or 4Gi"),
])
def test_a_fault_is_named_by_its_path(change, fault):
    assert fault in faults_of(changed(change))


def test_what_only_a_newer_cluster_knows_is_a_note():
    manifest = load(changed(lambda body: body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"].update(restartPolcy="Never")), "job.yaml")
    assert manifest.notes == ["spec.msReplicaSpecs.Worker.template.spec.restartPolcy: a pod has no such field, unless the cluster is newer; did you mean "
                              "restartPolicy?"]


@pytest.mark.parametrize("text, fault", [
    ("a: [", "line 1, column 5: it is no YAML: expected the node content, but found '<stream end>'"),
    ("a: 1\na: 2", "line 2, column 1: it is no YAML: the key 'a' stands twice"),
    ("kind: Pod\nmetadata: {name: x}", "it has no MSJob and no TesseraJob; it has Pod x"),
    ("- 1", "line 1: what begins there is no object of Kubernetes: it is a list"),
    ("", "it has no MSJob and no TesseraJob; it has nothing"),
    (f"{JOB}---{JOB.replace('small', 'other')}", "it has 2 jobs: name one by --job"),
])
def test_a_file_that_is_no_manifest_of_a_job_says_what_it_has(text, fault):
    assert faults_of(text) == [fault]


def test_of_several_jobs_one_is_named(tmp_path):
    path = tmp_path / "jobs.yaml"
    path.write_text(f"{JOB}---{JOB.replace('small', 'other')}")
    out, _ = render(path, "--job", "other", "--namespace", "training")
    assert {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in yaml.safe_load_all(out) if item["kind"] == "Pod"} == {
        ("training", f"other-{part}") for part in ("scheduler-0", "worker-0", "worker-1")}


def test_it_is_a_command_that_teaches_and_asks_no_cluster(tmp_path):
    def run(*words, **options):
        return subprocess.run([sys.executable, "-B", "-m", "tessera_operator", "job", *words], cwd=OPERATOR, capture_output=True, text=True, timeout=120,
                              env={"PATH": "/usr/bin:/bin", "HOME": "/nowhere"}, **options)
    done = run("render", "-", input=JOB)
    assert done.returncode == 0 and done.stdout.count("kind: Pod\n") == 3, done.stderr
    done = run("run", "--help")
    assert done.returncode == 0 and all(word in done.stdout for word in ("tessera job run job.yaml --local", "--path", "--claim", "exit codes")), done.stdout


@pytest.mark.parametrize("words", [("render", "-"), ("manifests", ), ("run", "-", "--local"), ("run", "--help")])
@pytest.mark.parametrize("where, code, said", [("> /dev/full", 1, "error: cannot write standard output: No space left on device"),
                                               (">&-", 1, "error: cannot write standard output: Bad file descriptor"), ("| true", 0, None),
                                               ("2>&-", 0, ""), ("<&- 2>&1 >/dev/null", 1, "")])
def test_a_standard_output_that_takes_nothing_is_said(tmp_path, words, where, code, said):
    if "-" not in words and where.startswith("<"):
        code = 0
    script = f'"$0" -B -m tessera_operator job {" ".join(words)} {where.replace("| true", "")}'
    script = f"({script}; echo $? >&3) | true; wait" if where == "| true" else f"{script}; echo $? >&3"
    body = yaml.safe_load(JOB)
    body["spec"]["msReplicaSpecs"]["Worker"]["replicas"] = 1
    container_of(body)["command"] = ["echo", "ran"]
    with open(tmp_path / "code", "wb") as file:
        done = subprocess.run(["bash", "-c", f"exec 3>&{file.fileno()}; {script}", sys.executable], cwd=OPERATOR, capture_output=True, text=True, timeout=120,
                              input=yaml.safe_dump(body), pass_fds=(file.fileno(), ), env={"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "TMPDIR": str(tmp_path)})
    assert (tmp_path / "code").read_text() == f"{code}\n", done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    if said:
        assert done.stderr.splitlines()[-1] == said
    if where.startswith("<"):
        assert done.stdout == ("error: standard input: it is closed\n" if code else "")


@pytest.mark.parametrize("words, code, shown", [
    (("render", "no-such-file"), 1, "No such file"), (("run", SAMPLES[0]), 2, "run needs --local"), ((), 2, "COMMAND"),
    (("render", SAMPLES[0], "--workers", "2"), 2, "unrecognized arguments"), (("run", "-", "--local", "--claim", "a=/nowhere"), 2, "/nowhere is no folder"),
    (("run", "-", "--local", "--workers", "0"), 2, "'0' is no number from 1 to 4096"), (("run", SAMPLES[0], "--local", "--path", "train=."), 2, "begins with /"),
    (("render", SAMPLES[0], "--namespace", "../x y"), 2, "--namespace: it is '../x y', but must have small letters"),
    (("run", SAMPLES[0], "--local", "--namespace", ""), 2, "--namespace: it is '', but must have small letters")])
def test_a_command_line_that_is_wrong_is_refused(words, code, shown):
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        try:
            assert job_command.main(list(map(str, words))) == code
        except SystemExit as end:
            assert end.code == code
    assert shown in err.getvalue()
