"""Claims about manifests that must not be followed: files that would lie elsewhere, texts that grow without end, values that no process can be given."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from harness import OPERATOR
from job_command_test import CONTAINER, JOB, changed, container_of, faults_of, render
from local_test import Run, alone, ends, pod_of, run
from tessera_operator import local_pod
from tessera_operator.job import InvalidJob, read
from tessera_operator.local_pod import Refused, TooLong, expand
from tessera_operator.manifest import load

POD = "spec.msReplicaSpecs.Worker.template.spec"
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "overwritten"}}


def with_volume(volume, **mount):
    body = alone(["true"], volumeMounts=[{"name": "v", "mountPath": "/v"} | mount])
    pod_of(body)["volumes"] = [{"name": "v"} | volume]
    return body


def refused(folder, body, fault):
    """By the command that renders it, by the operator, and where it would be run; nothing was written."""
    text = yaml.safe_dump_all([CONFIG, body])
    assert fault in faults_of(text)
    with pytest.raises(InvalidJob) as caught:
        read(body | {"metadata": {"name": "alone", "namespace": "default", "uid": "1"}})
    assert str(caught.value) == fault
    assert f"error: {folder}/job.yaml: {fault}\n" in Run(folder, text).end(2).err
    assert list(folder.iterdir()) == [folder / "job.yaml"]


@pytest.mark.parametrize("kind", ["configMap", "secret", "projected", "downwardAPI", "projected downwardAPI"])
def test_a_file_of_a_volume_lies_in_it(tmp_path, kind):
    victim = tmp_path / "victim"
    victim.write_text("kept")
    place = tmp_path / "runs"
    place.mkdir()
    field = {"fieldRef": {"fieldPath": "metadata.name"}}
    for path, words in ((str(victim), "must be relative: it lies within the volume"), ("../../../../victim", 'must not have "..": it lies within the volume'),
                        ("a/../../b", 'must not have "..": it lies within the volume'), ("..data", 'must not begin with ".."')):
        items = [{"key": "a", "path": path}]
        volume, at = {"configMap": ({"configMap": {"name": "settings", "items": items}}, "configMap"),
                      "secret": ({"secret": {"secretName": "settings", "items": items}}, "secret"),
                      "downwardAPI": ({"downwardAPI": {"items": [{"path": path} | field]}}, "downwardAPI"),
                      "projected": ({"projected": {"sources": [{"configMap": {"name": "settings", "items": items}}]}}, "projected.sources[0].configMap"),
                      "projected downwardAPI": ({"projected": {"sources": [{"downwardAPI": {"items": [{"path": path} | field]}}]}},
                                                "projected.sources[0].downwardAPI")}[kind]
        refused(place, with_volume(volume), f'{POD}.volumes[0].{at}.items[0].path: it is "{path}", but {words}')
        (place / "job.yaml").unlink()
    assert victim.read_text() == "kept"


@pytest.mark.parametrize("change, fault", [
    (dict(subPath="../../../etc"), 'containers[0].volumeMounts[0].subPath: it is "../../../etc", but must not have "..": it lies within the volume'),
    (dict(subPath="/etc"), 'containers[0].volumeMounts[0].subPath: it is "/etc", but must be relative: it lies within the volume'),
    (dict(subPathExpr="$(A)/.."), 'containers[0].volumeMounts[0].subPathExpr: it is "$(A)/..", but must not have "..": it lies within the volume')])
def test_a_part_of_a_volume_lies_in_it(tmp_path, change, fault):
    refused(tmp_path, with_volume({"emptyDir": {}}, **change), f"{POD}.{fault}")


SECRET, SETTINGS = "it is missing: which Secret is meant?", "it is missing: which ConfigMap is meant?"
ONE = "it must have one of"


@pytest.mark.parametrize("volume, fault", [
    ({"secret": {}}, f"secret.secretName: {SECRET}"), ({"secret": {"secretName": "", "optional": True}}, f"secret.secretName: {SECRET}"),
    ({"configMap": {}}, f"configMap.name: {SETTINGS}"), ({"projected": {"sources": [{"secret": {}}]}}, f"projected.sources[0].secret.name: {SECRET}"),
    ({"projected": {"sources": [{"configMap": {}}]}}, f"projected.sources[0].configMap.name: {SETTINGS}"),
    ({"downwardAPI": {"items": [{"path": "a"}]}}, f"downwardAPI.items[0]: {ONE} fieldRef, resourceFieldRef, but has none of them"),
    ({"projected": {"sources": [{"downwardAPI": {"items": [{"path": "a"}]}}]}},
     f"projected.sources[0].downwardAPI.items[0]: {ONE} fieldRef, resourceFieldRef, but has none of them")])
def test_a_volumes_reference_names_something(tmp_path, volume, fault):
    refused(tmp_path, with_volume(volume), f"{POD}.volumes[0].{fault}")


@pytest.mark.parametrize("container, fault", [
    ({"env": [{"name": "A", "valueFrom": {}}]}, f"env[0].valueFrom: {ONE} fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, but has none of them"),
    ({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}, "secretKeyRef": {"name": "s", "key": "k"}}}]},
     f"env[0].valueFrom: {ONE} fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, but has fieldRef and secretKeyRef"),
    ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"key": "a"}}}]}, f"env[0].valueFrom.secretKeyRef.name: {SECRET}"),
    ({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "", "key": "a"}}}]}, f"env[0].valueFrom.configMapKeyRef.name: {SETTINGS}"),
    ({"envFrom": [{}]}, f"envFrom[0]: {ONE} secretRef, configMapRef, but has none of them"),
    ({"envFrom": [{"secretRef": {}}]}, f"envFrom[0].secretRef.name: {SECRET}"), ({"envFrom": [{"configMapRef": {}}]}, f"envFrom[0].configMapRef.name: {SETTINGS}")])
def test_a_variables_reference_names_something(tmp_path, container, fault):
    refused(tmp_path, alone(["true"], **container), f"{POD}.containers[0].{fault}")


@pytest.mark.parametrize("change, fault", [
    (lambda pod: pod.update(terminationGracePeriodSeconds=-5), "terminationGracePeriodSeconds: it is -5, but must be at least 0"),
    (lambda pod: pod["containers"][0]["volumeMounts"][0].update(mountPath="v"), 'containers[0].volumeMounts[0].mountPath: it is "v", but must begin with /'),
    (lambda pod: pod.update(volumes=[{"name": "v", "projected": {}}]), "volumes[0].projected.sources: it is missing: of what is the volume?"),
    (lambda pod: pod.update(volumes=[{"name": "v", "projected": {"sources": [{}]}}]),
     "volumes[0].projected.sources[0]: it names no source, such as secret, configMap or downwardAPI")])
def test_what_a_cluster_takes_and_nobody_means_is_refused_in_a_file(tmp_path, change, fault):
    body = with_volume({"emptyDir": {}})
    change(pod_of(body))
    assert faults_of(yaml.safe_dump(body)) == [f"{POD}.{fault}"]
    read(body | {"metadata": {"name": "alone", "namespace": "default", "uid": "1"}})
    assert Run(tmp_path, body).end(2).err == f"error: {tmp_path}/job.yaml: {POD}.{fault}\n"


def test_a_volumes_name_is_no_path(tmp_path):
    body = alone(["true"])
    pod_of(body)["volumes"] = [{"name": "../../x", "emptyDir": {}}]
    refused(tmp_path, body, f"{POD}.volumes[0].name: it is \"../../x\", but must have small letters, digits and '-', at most 63 of them")
    pod_of(body)["volumes"] = [{"name": "x", "emptyDir": {}}, {"name": "x", "emptyDir": {}}]
    refused(tmp_path, body, f'{POD}.volumes[1].name: there is another volume "x"')


@pytest.mark.parametrize("data, fault", [
    ({"/abs": "x"}, "data./abs: a key has letters"), ({"../../x": "x"}, "data.../../x: a key has letters"), ({"..": "x"}, "data...: a key has letters"),
    ({".": "x"}, "data..: a key has letters"), ({"a\0": "x"}, "data.a\\x00: a key has letters"), ({"k" * 254: "x"}, f"data.{'k' * 80}...: a key has letters"),
    ({1: "x"}, "data.1: a key must be a text: write it in quotes"), ({"a": 1}, "data.a: it is 1, but must be a text: write it in quotes"),
    ({"a": None}, "data.a: it is null, but must be a text"), ({"a": ["x"]}, "data.a: it is ['x'], but must be a text"), ([1], "data: it is [1], but must be an object")])
def test_a_key_is_a_files_name(tmp_path, data, fault):
    text = yaml.safe_dump_all([CONFIG | {"data": data}, alone(["true"])])
    (found,) = faults_of(text)
    assert found.startswith(f"ConfigMap settings: {fault}")
    assert f"error: {tmp_path}/job.yaml: {found}" in Run(tmp_path, text).end(2).err


def test_a_secrets_values_are_base64_and_its_texts_texts():
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}}
    load(yaml.safe_dump_all([secret | {"data": {"a": "eA==\n"}, "stringData": {"b": "x"}}, alone(["true"])]), "job.yaml")
    assert faults_of(yaml.safe_dump_all([secret | {"data": {"a": "?"}, "stringData": {"b": 1}}, alone(["true"])])) == [
        "Secret keys: data.a: it is no base64", "Secret keys: stringData.b: it is a whole number, but must be a text: write it in quotes"]


VALUE = "TOPSECRETVALUE"
NUMBER = "1234567890123"


@pytest.mark.parametrize("data, fault", [
    (f"stringData: {{a: {NUMBER}}}", "Secret keys: stringData.a: it is a whole number, but must be a text: write it in quotes"),
    (f"stringData: {{a: {NUMBER}.5}}", "Secret keys: stringData.a: it is a number, but must be a text: write it in quotes"),
    (f"stringData: {{a: [{VALUE}]}}", "Secret keys: stringData.a: it is a list, but must be a text"),
    (f"data: {{a: {{b: {VALUE}}}}}", "Secret keys: data.a: it is an object, but must be a text"),
    ("stringData: {a: 2012-03-04}", "Secret keys: stringData.a: it is neither a text nor a number, but must be a text"),
    ("stringData: {a: yes}", "Secret keys: stringData.a: it is true or false, but must be a text: write it in quotes"),
    (f"data: {VALUE}", "Secret keys: data: it is a text, but must be an object"),
    (f"stringData: [{VALUE}]", "Secret keys: stringData: it is a list, but must be an object"),
    (f"data: {{a: '{VALUE}?'}}", "Secret keys: data.a: it is no base64"),
    (f"stringData: {{a: {NUMBER * 3}}}", "line 4, column 17: it is no YAML: the number does not fit in 64 bits"),
    (f"stringData: {{a: !!int {VALUE}}}", "line 4, column 17: it is no YAML: what stands there is no number"),
    (f"stringData: {{a: !!bool {VALUE}}}", "it is no YAML: a value is not what its tag (!!) says"),
    (f"stringData: {{a: !!timestamp {VALUE}}}", "it is no YAML: a value is not what its tag (!!) says"),
    (f"stringData:\n  a: !{VALUE}", "line 5, column 6: it is no YAML: a text that begins with '!' is in quotes: without them it is a tag, and there is none "
     "of that name"),
    (f"stringData: {{a: !{VALUE}!x y}}", "line 4, column 17: it is no YAML: a text that begins with '!' is in quotes: without them it is a tag, and there is "
     "none of that name"),
    (f"stringData: {{a: *{VALUE}}}", "line 4, column 17: it is no YAML: a text that begins with '*' is in quotes: without them it stands for an anchor, and "
     "there is none of that name")])
def test_a_secrets_values_are_not_said(data, fault):
    text = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: keys}}\n{data}\n---\n{JOB}"
    assert faults_of(text) == [fault]


@pytest.mark.parametrize("text, words", [
    (f"apiVersion: v1\nmetadata: {{name: keys}}\nstringData: {{a: {VALUE}}}", "it has no kind"), (VALUE, "it is a text"), (f"[{VALUE}]", "it is a list"),
    (f"kind: [{VALUE}]", "its kind is a list, but must be a text"), (f"kind: List\nitems: [{VALUE}]", "it is a text")])
def test_nor_is_what_may_be_a_secret_without_its_kind(text, words):
    line = 2 + JOB.count("\n") + text.count("\nitems")
    assert faults_of(f"{JOB}---\n{text}\n") == [f"line {line}: what begins there is no object of Kubernetes: {words}"]


@pytest.mark.parametrize("command, fault", [
    (["$(A)"], 'command[0]: "$(A)" is no program here, it is not in PATH'), (["/$(A)/x"], 'command[0]: "/$(A)/x" is no program here'),
    (["python3", "/x/$(A)"], "command: there is no /x/$(A) here, with the values of its variables; --path PATH=FOLDER says where a folder of the image is"),
    (["python3", "/x/$(LONG)"], "command: there is no /x/$(LONG) here, with the values of its variables; --path PATH=FOLDER says where a folder of the image is")])
def test_nor_are_those_in_the_words_of_a_command(tmp_path, command, fault):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"a": VALUE, "long": VALUE * 100}}
    env = [{"name": name, "valueFrom": {"secretKeyRef": {"name": "keys", "key": key}}} for name, key in (("A", "a"), ("LONG", "long"))]
    err = Run(tmp_path, yaml.safe_dump_all([secret, alone(command, env=env)])).end(2).err
    assert f"error: {tmp_path}/job.yaml: {POD}.containers[0].{fault}\n" in err and VALUE not in err


def test_nor_is_that_of_a_program_that_cannot_be_started(tmp_path):
    program = tmp_path / VALUE
    program.write_bytes(b"\x7fELF")
    program.chmod(0o700)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"a": str(program)}}
    body = alone(["$(A)"], env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}}])
    body["spec"]["msReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    err = run(tmp_path, yaml.safe_dump_all([secret, body]), code=1).err
    assert "cannot be started: [Errno 8] Exec format error: '$(A)'" in err and VALUE not in err


def test_whoever_writes_a_volume_writes_nothing_else(tmp_path):
    """Were a name not refused before."""
    volume = tmp_path / "volume"
    volume.mkdir()
    (tmp_path / "victim").write_text("kept")
    (volume / "link").symlink_to(tmp_path / "victim")
    (volume / "folder").symlink_to(tmp_path)
    (volume / "there").touch()
    for name in ("../victim", str(tmp_path / "victim"), "link", "folder/victim", "folder/new", "a/../../new", "there", "there/below", "nul\0", "."):
        with pytest.raises(Refused):
            local_pod._write_within(volume, name, b"x", "volumes[0]")
    assert (tmp_path / "victim").read_text() == "kept" and sorted(path.name for path in tmp_path.iterdir()) == ["victim", "volume"]
    local_pod._write_within(volume, "a/b", b"x", "volumes[0]")
    assert (volume / "a/b").read_bytes() == b"x"


BOMB = "x0: &x0 [1,1,1,1,1,1,1,1,1,1]\n" + "".join(f"x{i}: &x{i} [{','.join([f'*x{i - 1}'] * 10)}]\n" for i in range(1, 10))
MERGES = "x0: &x0 {a: 1}\n" + "".join(f"x{i}: &x{i} {{<<: [{','.join([f'*x{i - 1}'] * 10)}]}}\n" for i in range(1, 10))


@pytest.mark.parametrize("bomb", [BOMB, MERGES], ids=["lists", "merges"])
def test_aliases_do_not_grow_without_end(bomb):
    words = "it is no YAML: the document's aliases stand for more than 10000 values or 4 MiB: write out what they stand for"
    begin = time.monotonic()
    for text in (bomb + JOB, f"{bomb}kind: Secret", bomb, f"kind: List\nitems:\n- *x9\n{bomb}".replace("items:\n- *x9\n", "") + "items: [*x9]"):
        (fault,) = faults_of(text)
        assert fault.endswith(words), fault
    load(f"{bomb}kind: Deployment\nmetadata: {{name: other}}\n---\n{JOB}", "job.yaml")  # what is not used is not looked at
    long = f"a: &a '{'x' * 1000}'\nb: [{','.join(['*a'] * 5000)}]\n"
    assert faults_of(long + JOB)[0].endswith(words)
    assert time.monotonic() - begin < 30


def test_aliases_may_share_what_a_manifest_has():
    body = yaml.safe_load(JOB)
    template = body["spec"]["msReplicaSpecs"]["Worker"]["template"]
    body["spec"]["msReplicaSpecs"]["Scheduler"] = {"template": template}
    text = yaml.safe_dump(body)
    assert "*id001" in text
    load(text, "job.yaml")


@pytest.mark.parametrize("text, fault", [
    ("a: &a [*a]", "it is no YAML: an alias stands for what it lies in"), ("a: " + "[" * 200 + "]" * 200, "it is no YAML: it is nested more than 100 times"),
    ("[" * 100_000, "it is no YAML: it is nested more than 100 times"),
    ("\n".join(" " * i + "- " for i in range(500)), "it is no YAML: it is nested more than 100 times"), (" " * (8 << 20) + "a", "it has more than 8 MiB, which is no manifest"),
    ("a: !!int 1:30", "it is no YAML: what stands there is no number"), ("a: 0x" + "f" * 5000, "does not fit in 64 bits")], ids=range(7))
def test_a_text_without_measure_is_refused(text, fault):
    (found,) = faults_of(text)
    assert found.endswith(fault)


def test_numbers_are_those_that_kubernetes_reads():
    path = "spec.msReplicaSpecs.Worker.replicas"
    for text, fault in (("1:30", f'{path}: it is "1:30", but must be a whole number'), ("1:30.5", f'{path}: it is "1:30.5", but must be a whole number'),
                        ("9" * 30, "does not fit in 64 bits")):
        assert faults_of(JOB.replace("replicas: 2", f"replicas: {text}"))[0].endswith(fault)
    for text, number in (("2", 2), ("+3", 3), ("0x10", 16), ("010", 8), ("0b11", 3), ("0", None)):
        if number is not None:
            assert load(JOB.replace("replicas: 2", f"replicas: {text}"), "job.yaml").body["spec"]["msReplicaSpecs"]["Worker"]["replicas"] == number


def test_halves_of_a_character_are_one_as_json_has_it():
    body = load(JOB.replace("/train/train.py", '"\\ud83d\\ude00"'), "job.yaml").body
    assert container_of(body)["command"] == ["python", "\U0001f600"]


@pytest.mark.parametrize("change, fault", [
    (lambda body: body.update({1: 2}), "1: a field's name must be a text: write it in quotes"),
    (lambda body: body["spec"].update({1: 2}), "spec.1: a field's name must be a text: write it in quotes"),
    (lambda body: body["metadata"].update(namespace=5), "metadata.namespace: it is 5, but must be a text: write it in quotes"),
    (lambda body: container_of(body).update(command=["a\0b"]), f"{CONTAINER}.command[0]: it has the character U+0000, where a text ends"),
    (lambda body: container_of(body).update(args=["a\ud800"]), f"{CONTAINER}.args[0]: it has U+D800, which is half of a character"),
    (lambda body: container_of(body).update(env=[{"name": "A", "value": "\0"}]), f"{CONTAINER}.env[0].value: it has the character U+0000, where a text ends"),
    (lambda body: container_of(body).update(env=[{"name": "A=B", "value": ""}]),
     f"{CONTAINER}.env[0].name: a variable's name has at least one character, all of them printable ASCII, and no '='"),
    (lambda body: container_of(body).update(envFrom=[{"prefix": "=", "secretRef": {"name": "a"}}]),
     f"{CONTAINER}.envFrom[0].prefix: what variables' names begin with is printable ASCII without '='"),
    (lambda body: body["spec"].update(secretName="a\n"), r'spec.secretName: it is "a\n", but must match ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')])
def test_what_no_process_can_be_given_is_named_by_its_path(tmp_path, change, fault):
    body = yaml.safe_load(JOB)
    change(body)
    text = yaml.safe_dump(body, allow_unicode=False)
    text = text.replace("\\uD800", "\\ud800")
    assert fault in faults_of(text)
    path = tmp_path / "job.yaml"
    path.write_text(text)
    assert f"error: {path}: {fault}\n" in render(path, code=2)[1]


def test_variables_do_not_grow_without_end(tmp_path):
    with pytest.raises(TooLong):
        expand("$(A)" * 30_000, {"A": "x" * 100_000})
    nested = [{"name": "A0", "value": "x" * 100}] + [{"name": f"A{i}", "value": f"$(A{i - 1})" * 10} for i in range(1, 10)]
    err = Run(tmp_path, alone(["true"], env=nested)).end(2).err
    assert f"error: {tmp_path}/job.yaml: {POD}.containers[0].env[4].value: the variable A4 becomes longer than a process can be given: 128 KiB\n" in err
    err = Run(tmp_path, alone(["true", "$(A)" * 10], env=[{"name": "A", "value": "x" * 100_000}])).end(2).err
    assert f"{POD}.containers[0].command[1]: it becomes longer than a process can be given: 128 KiB\n" in err
    many = [{"name": f"A{i}", "value": "x" * 100_000} for i in range(40)]
    assert "KiB, which is more than a process can be given" in Run(tmp_path, alone(["true"], env=many)).end(2).err


def test_files_that_are_no_variables_are_named(tmp_path):
    folder = tmp_path / "keys"
    folder.mkdir()
    for name, content, words in (("a", b"\xff", "the value of a is no text in UTF-8"), ("a", b"x\0", "the variable a has the character U+0000"),
                                 ("a=b", b"x", "'a=b' is no name of a variable")):
        (folder / name).write_bytes(content)
        err = Run(tmp_path, alone(["true"], envFrom=[{"secretRef": {"name": "keys"}}]), "--secret", f"keys={folder}").end(2).err
        assert f"{POD}.containers[0].envFrom[0].secretRef.name: {words}" in err
        (folder / name).unlink()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_amid_the_preparation_leaves_nothing(tmp_path, number):
    slow = ("import sys, time\nfrom tessera_operator import job_command, local_cluster\n"
            "def wait(job, here):\n    (here.folder / 'secret').touch()\n    print('looks', flush=True)\n    time.sleep(300)\n"
            "local_cluster.faults_here = wait\nsys.exit(job_command.main(sys.argv[1:]))")
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(alone(["true"])))
    with subprocess.Popen([sys.executable, "-B", "-c", slow, "run", path, "--local"], cwd=OPERATOR, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=os.environ | {"TMPDIR": str(tmp_path)}) as process:
        assert process.stdout.readline() == "looks\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + number, f"ended by {number.name}\n")
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_for_the_job_is_made_where_tmpdir_says_or_nowhere(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(alone(["echo", "ran"])))
    for folder, code, err in (("none", 1, f"error: TMPDIR={tmp_path}/none: No such file or directory\n"),
                              ("job.yaml", 1, f"error: TMPDIR={tmp_path}/job.yaml: Not a directory\n")):
        done = subprocess.run([sys.executable, "-B", "-m", "tessera_operator", "job", "run", path, "--local"], cwd=OPERATOR, capture_output=True, text=True,
                              timeout=60, env=os.environ | {"TMPDIR": f"{tmp_path}/{folder}"})
        assert (done.returncode, done.stdout, done.stderr) == (code, "", err)


def test_a_folder_that_cannot_be_removed_is_named(tmp_path, monkeypatch, capsys):
    def fail(path, ignore_errors=False):
        if not ignore_errors:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), f"{path}/kept")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(local_pod, "GUARD", ["true"])
    monkeypatch.setattr(local_pod.local_guard, "children", lambda: [1])  # it adopts nobody else's
    folder = local_pod.JobFolder()
    with monkeypatch.context() as during:
        during.setattr(local_pod.shutil, "rmtree", fail)
        folder.remove()
    assert capsys.readouterr().err == (f"the job's folder {folder.path} cannot be removed ({folder.path}/kept: Operation not permitted): it may have the job's "
                                       "secrets; remove it\n")
    assert folder.path.is_dir()


def daemon(folder):
    """A command that leaves a process with a session of its own and no parent."""
    script = f'(setsid sh -c \'echo $$$$ > "{folder}/daemon"; exec sleep 300 > /dev/null 2>&1\' &); while ! test -s "{folder}/daemon"; do sleep 0.02; done; echo left'
    return ["sh", "-c", script]


def test_what_a_program_leaves_behind_ends_with_it(tmp_path):
    run(tmp_path, alone(daemon(tmp_path)))
    assert not os.path.exists(f"/proc/{(tmp_path / 'daemon').read_text().strip()}")


def test_what_a_guard_that_was_killed_leaves_behind_ends_with_the_job(tmp_path):
    command = daemon(tmp_path)
    command[2] += "; sleep 300"
    body = alone(command)
    body["spec"]["msReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    running = Run(tmp_path, body)
    assert "left" in running.process.stdout.readline()
    pid = int((tmp_path / "daemon").read_text())
    guard = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert Path(f"/proc/{guard}/comm").read_text() == "pod-guard\n"
    os.kill(guard, signal.SIGKILL)
    assert "exit code 137" in running.end(1).err
    assert not os.path.exists(f"/proc/{pid}")


def test_neither_a_process_nor_the_folder_is_left_where_the_command_is_killed(tmp_path):
    command = daemon(tmp_path)
    command[2] += "; sleep 300"
    running = Run(tmp_path, alone(command))
    assert "left" in running.process.stdout.readline()
    assert list(tmp_path.glob("tessera-job.*"))
    running.process.kill()
    running.process.communicate(timeout=60)
    assert ends(int((tmp_path / "daemon").read_text()))
    end = time.monotonic() + 30
    while list(tmp_path.glob("tessera-job.*")) and time.monotonic() < end:
        time.sleep(0.02)
    assert not list(tmp_path.glob("tessera-job.*"))


def test_a_program_that_cannot_be_started_is_said_with_its_reason(tmp_path):
    (tmp_path / "program").write_bytes(b"\x7fELF")
    (tmp_path / "program").chmod(0o700)
    body = alone([str(tmp_path / "program")])
    body["spec"]["msReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    assert "[alone-worker-0] cannot be started: [Errno 8] Exec format error" in run(tmp_path, body, code=1).err
