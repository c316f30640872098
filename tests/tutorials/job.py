"""Starting scripts as the ranks of a job, and the images that they train on."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pages

EXAMPLES = pages.ROOT / "examples"
BIN = Path(os.environ["TESSERA_BUILD"]) / "bin"
FULL = os.environ.get("TESSERA_TEST_FULL") == "1"
IMAGE_SIZE = 224 if FULL else 32
RECORD = 3073
# What says which rank a process is must not come from where the tests were started.
FOREIGN = ("TESSERA_", "OMPI_", "PMIX_", "RANK_", "DEVICE_", "MS_", "SLURM")


def environment(**variables):
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
    # The tutorials' scripts call `pytest` and `python`: those of this interpreter.
    inherited["PATH"] = f"{Path(sys.executable).parent}:{inherited['PATH']}"
    # Many ranks on few cores come at different times.
    inherited["TESSERA_TIMEOUT_MS"] = "240000"
    return inherited | {key: str(value) for key, value in variables.items()}


def completed(command, cwd, timeout=600, **variables):
    """A command that ended, with what it printed and how it ended."""
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout, cwd=cwd,
                          env=environment(**variables))


def run(command, cwd, timeout=600, **variables):
    """(standard output, standard error) of a command that must succeed."""
    done = completed(command, cwd, timeout, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def refused(command, cwd, timeout=600, **variables):
    """What a command that must fail prints on standard output and standard error."""
    done = completed(command, cwd, timeout, **variables)
    assert done.returncode != 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def mpirun(ranks, *options):
    """The words before a command that mpirun is to start so many times."""
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is absent")
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", *options, "-n", str(ranks)]


def python(ranks, *arguments):
    """The command that starts Python so many times; once without mpirun."""
    return [*(mpirun(ranks) if ranks > 1 else []), sys.executable, "-B", *arguments]


def cut_images(folder, num_train, num_test):
    """CIFAR-10's six files with so many records in all, the first ones of the real files; None where those are absent."""
    source = pages.SHARED / "data" / "cifar-10"
    if not source.exists():
        return None
    parts = [(f"data_batch_{i}.bin", num_train // 5 + (i <= num_train % 5)) for i in range(1, 6)] + [("test_batch.bin", num_test)]
    for name, records in parts:
        with open(source / name, "rb") as file:
            (folder / name).write_bytes(file.read(records * RECORD))
    return folder


def losses(out):
    """(epoch, step, loss as printed) of each line that LossMonitor printed."""
    return [(int(epoch), int(step), loss) for epoch, step, loss in re.findall(r"epoch: (\d+) step: (\d+), loss is (\S+)", out)]
