"""What a job that recovers leaves in MS_RECOVERY_PATH, and what it does with what stands there."""
import json
import os
import subprocess
import sys

import pytest
from ports import free_port

# A ModelCheckpoint is made before the job is joined and after it: the newest counts.
SCRIPT = """
import sys
from mindspore.communication import init
from mindspore.train.callback import ModelCheckpoint
ModelCheckpoint(directory="early")
init()
if sys.argv[1:]:
    ModelCheckpoint(directory=sys.argv[1])
"""


def run_job(folder, workers, *arguments):
    """What its workers have written to standard error."""
    common = {"MS_WORKER_NUM": workers, "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": free_port(), "MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": "recovery"}
    nodes = [("MS_SCHED", "sched")] + [("MS_WORKER", f"worker_{number}") for number in range(workers)]
    processes = []
    for role, node in nodes:
        variables = os.environ | {name: str(value) for name, value in (common | {"MS_ROLE": role, "MS_NODE_ID": node}).items()}
        processes.append(subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], cwd=folder, env=variables, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    ended = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(nodes), ended
    return "".join(err for _, err in ended[1:])


def read(file):
    return json.loads(file.read_text())


def test_each_worker_says_where_its_checkpoints_are(tmp_path):
    said = run_job(tmp_path, 2, "saved")
    recovery = tmp_path / "recovery"
    for rank in range(2):
        assert read(recovery / f"MS_WORKER_{rank}_persistent.json") == {"ckpt_path": str((tmp_path / "saved").resolve())}
    assert read(recovery / "config.json")["recovery"]["storage_type"] == 1
    assert sorted(file.name for file in recovery.iterdir() if "lock" not in file.name) == [
        "MS_WORKER_0_persistent.json", "MS_WORKER_1_persistent.json", "config.json", "recovery.dat"]
    assert "checkpoints of this rank" not in said  # that there are two folders is no news to the process itself


def test_what_was_said_before_the_job_was_joined_is_written_then(tmp_path):
    assert "checkpoints of this rank" not in run_job(tmp_path, 1)
    assert read(tmp_path / "recovery" / "MS_WORKER_0_persistent.json") == {"ckpt_path": str((tmp_path / "early").resolve())}


def test_what_stands_there_stays(tmp_path):
    recovery = tmp_path / "recovery"
    recovery.mkdir()
    (recovery / "config.json").write_text('{"recovery": {"storage_type": 2}}')
    (recovery / "notes.txt").write_text("mine")
    own = recovery / "MS_WORKER_0_persistent.json"
    own.write_text('{"ckpt_path": "/elsewhere", "more": 3}')
    said = run_job(tmp_path, 1)
    assert "[WARNING] checkpoints of this rank were in /elsewhere, as recovery/MS_WORKER_0_persistent.json says, and are in" in said
    assert read(own) == {"ckpt_path": str((tmp_path / "early").resolve()), "more": 3}
    assert (recovery / "config.json").read_text() == '{"recovery": {"storage_type": 2}}' and (recovery / "notes.txt").read_text() == "mine"


def test_a_file_that_is_none_is_named_and_left(tmp_path):
    own = tmp_path / "recovery" / "MS_WORKER_0_persistent.json"
    own.parent.mkdir()
    for text in ("{", "[1]", "[" * 400_000):
        own.write_text(text)
        (own.parent / "recovery.dat").unlink(missing_ok=True)  # of the job before, which has ended
        assert "recovery/MS_WORKER_0_persistent.json is no JSON object: it stays as it is" in run_job(tmp_path, 1)
        assert own.read_text() == text


# A folder stands where a file is to be written, or a file where a folder is to be: whoever runs the test may not write there.
@pytest.mark.parametrize("stands, words", [
    ("MS_WORKER_0_persistent.json/", "cannot read where this rank's checkpoints are: Is a directory"),
    ("MS_WORKER_0_persistent.json.PID/", "cannot write that this rank's checkpoints are in {saved}: Is a directory"),
    ("config.json.PID/", "cannot write where the job's own files are: Is a directory")])
def test_what_cannot_be_written_is_said_with_what_to_do(tmp_path, stands, words):
    recovery = tmp_path / "recovery"
    script = f"""
import os
import tessera
from mindspore import _recovery_files
os.makedirs({str(recovery)!r} + "/" + {stands!r}.replace("PID", str(os.getpid())))
try:
    _recovery_files.make_recovery_folder("recovery")
    _recovery_files._directory[:] = ["saved"]
    _recovery_files.remember_after_join()
except tessera.IoError as error:
    print(error)
"""
    variables = os.environ | {"MS_RECOVERY_PATH": "recovery", "MS_ROLE": "MS_WORKER", "MS_ENABLE_RECOVERY": "1"}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=240)
    path = f"recovery/{stands.removesuffix('/').removesuffix('.PID')}"
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{path}: {words.format(saved=(tmp_path / 'saved').resolve())}; MS_RECOVERY_PATH must name a folder"), done.stdout
    assert "name another folder in all of them" in done.stdout
    assert sorted(file.name for file in recovery.iterdir() if file.is_file()) == ([] if "config" in stands else ["config.json"])


def test_a_recovery_folder_that_is_a_file_is_said_with_what_to_do(tmp_path):
    (tmp_path / "recovery").write_text("mine")
    script = """
import tessera
from mindspore import _recovery_files
try:
    _recovery_files.make_recovery_folder("recovery")
except tessera.IoError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.stdout.startswith("recovery: cannot make the folder of a job that recovers: File exists; MS_RECOVERY_PATH must name a folder"), done
