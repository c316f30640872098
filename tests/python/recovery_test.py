"""Scripts whose rank is killed in the middle of a training: what they have trained in the end is what undisturbed ones have."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESSERA = Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera"

SCRIPT = """
import os
import signal
import sys
import numpy as np
import tessera
from tessera import nn

FOLDER, KILLED_IN = sys.argv[1], int(sys.argv[2])


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.dropout, self.last = nn.Dense(6, 8), nn.Dropout(0.8), nn.Dense(8, 2)

    def construct(self, x):
        return self.last(self.dropout(tessera.ops.relu(self.first(x))))


class Kills(tessera.Callback):
    def __init__(self, training):
        super().__init__()
        self.training = training

    def step_end(self, run):
        print(f"loss {self.training} {run.step_in_epoch} {run.loss!r}", flush=True)
        marker = f"{FOLDER}/killed"
        if self.training == KILLED_IN and tessera.cluster.rank() == 1 and run.step_in_epoch == 3 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)


def model_of(net):
    return tessera.Model(net, nn.CrossEntropyLoss(), nn.Momentum(0.1, 0.9), parallel_mode="data_parallel")


rows = np.random.RandomState(0).randn(48, 6).astype(np.float32)
data = tessera.data.tensors({"x": rows, "label": (rows.sum(1) > 0).astype(np.int32)}).shuffle(48).batch(8)
first, second = Net(), Net()
model, other = model_of(first), model_of(second)
model.train(1, data, [Kills(1)])
model.train(2, data, [Kills(2)])
other.train(1, data, [Kills(3)])
if tessera.cluster.rank() == 0:
    np.savez(f"{FOLDER}/values", **{f"{i}{name}": np.asarray(value.numpy()) for i, net in enumerate((first, second))
                                    for name, value in ((p.name, p) for p in net.parameters())})
"""


def run(folder, killed_in, restarts):
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "MS_"))} | {"OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run([TESSERA, "run", "-n", "2", "--num_threads", "1", *restarts, sys.executable, "-B", "train.py", str(folder), str(killed_in)],
                          cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    losses = {}
    for line in done.stdout.splitlines():
        if line.startswith("[0] loss"):
            training, step, loss = line.split()[2:]
            losses.setdefault((training, step), []).append(loss)
    return losses, (folder / "values.npz"), done.stderr


@pytest.mark.parametrize("killed_in", [1, 2, 3])
def test_a_script_whose_rank_is_killed_ends_with_the_same_values(tmp_path, killed_in):
    import numpy as np
    straight, values, _ = run(tmp_path / "straight", 0, [])
    losses, found, errors = run(tmp_path / "killed", killed_in, ["--max_restarts", "2"])
    assert "the job goes on, starting it again (1 of " in errors
    assert losses.keys() == straight.keys()
    for place, seen in losses.items():
        assert set(seen) == set(straight[place]), place
    expected, found = np.load(values), np.load(found)
    assert expected.files == found.files and len(found.files) == 8
    for name in expected.files:
        assert np.array_equal(expected[name], found[name]), name


def test_a_script_goes_on_with_the_ranks_that_are_left(tmp_path):
    import numpy as np
    straight, values, _ = run(tmp_path / "straight", 0, [])
    losses, found, errors = run(tmp_path / "killed", 2, ["--min_ranks", "1"])
    assert "the job goes on without rank 1: killed by signal SIGKILL" in errors
    assert losses.keys() == straight.keys()
    for place, seen in losses.items():
        # In each epoch one; the step that was lost is done again.
        for loss in seen:
            assert any(np.isclose(float(loss), float(expected), rtol=1e-5) for expected in straight[place]), place
    expected, found = np.load(values), np.load(found)
    for name in expected.files:
        assert np.allclose(expected[name], found[name], rtol=1e-4, atol=1e-6), name


def test_a_script_of_the_package_mindspore_needs_its_ranks(tmp_path):
    (tmp_path / "train.py").write_text(
        "import os, signal, sys\nfrom mindspore.communication import get_rank, init\nimport tessera\ninit()\ntessera.cluster.barrier()\n"
        "if get_rank() == 1: os.kill(os.getpid(), signal.SIGKILL)\ntessera.cluster.barrier()\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "MS_"))} | {"OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run([TESSERA, "run", "-n", "2", "--min_ranks", "1", sys.executable, "-B", "train.py"], cwd=tmp_path, env=env, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the job cannot go on with another number of ranks: in scripts of the package mindspore each rank has batches of its own" in done.stderr
    # And at the beginning already, once.
    assert done.stderr.count("--min_ranks 1 has no effect: the job cannot go on with another number of ranks than 2: ") == 1, done.stderr


RESIZED = """
import time
from pathlib import Path
import numpy as np
import tessera
from tessera import nn


class Paces(tessera.Callback):
    def step_end(self, run):
        print(f"loss {run.step_in_epoch}", flush=True)
        if not Path("resized").exists():
            time.sleep(0.2)


tessera.set_seed(1)
data = tessera.data.tensors({"x": np.ones((6400, 6), np.float32), "label": np.zeros(6400, np.int32)}).batch(8)
tessera.Model(nn.Dense(6, 2), nn.CrossEntropyLoss(), nn.Momentum(0.1, 0.9), parallel_mode="data_parallel").train(2, data, [Paces()])
"""


def test_a_rank_that_leaves_as_planned_ends_without_a_traceback(tmp_path):
    (tmp_path / "train.py").write_text(RESIZED)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "MS_"))} | {"OMP_WAIT_POLICY": "PASSIVE"}
    started = []

    def start(*words):
        started.append(subprocess.Popen([TESSERA, *map(str, words)], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return started[-1]

    try:
        scheduler = start("scheduler", "--workers", 2, "--min_ranks", 1, "--port", 0)
        address = scheduler.stdout.readline().split(" at ")[1].split()[0]
        stays, leaves = [start("run", "--join", address, "--node_id", name, "-n", 1, "--num_threads", 1, sys.executable, "-B", "train.py") for name in "ab"]
        said = ""
        while "loss 5" not in said:
            line = stays.stdout.readline()
            assert line, said
            said += line
        asked = start("cluster", "resize", address, 1)
        assert "asked for 1 rank in place of 2: b/0 leaves now" in asked.communicate(timeout=60)[0]
        left = leaves.communicate(timeout=60)[0]
        (tmp_path / "resized").touch()
        said += stays.communicate(timeout=120)[0]
        assert (leaves.returncode, stays.returncode, scheduler.wait(timeout=60)) == (1, 0, 0), said + left
        assert "tessera run: the job goes on without rank 1: the job is resized from 2 to 1 rank" in left
        for word in ("Traceback", "Error", "error", "failed", "why:"):
            assert word not in said + left, said + left
    finally:
        for process in started:
            process.kill()
            process.communicate()
