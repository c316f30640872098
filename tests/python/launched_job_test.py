"""A script that says no parallel mode is a rank of its launcher's job all the same: `tessera run` has its options for whatever a script trains."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESSERA = str(Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera")
RUN = [TESSERA, "run"]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMI", "RANK_", "DEVICE_", "SLURM"))}
APART = "parallel_mode is stand_alone: each of the 2 ranks trains a network of its own"

# Four steps, two epochs.
NATIVE = """
import os, sys
import numpy as np
import tessera
from tessera import nn

x = np.ones((8, 4), np.float32)
rows = tessera.data.tensors({"x": x, "label": x[:, :3].copy()}).batch(4)
def new_model(**options):
    return tessera.Model(nn.Dense(4, 3), nn.MSELoss(), nn.SGD(learning_rate=0.1), **options)
def train(*callbacks):
    new_model().train(2, rows, callbacks)
"""

MINDSPORE = """
import os, sys
import numpy as np
import mindspore as ms
import mindspore.dataset as ds
import tessera
from mindspore import nn

x = np.ones((8, 4), np.float32)
rows = ds.NumpySlicesDataset({"x": x, "label": x[:, :3].copy()}, shuffle=False).batch(4)
def new_model():
    net = nn.Dense(4, 3)
    return ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
def train():
    new_model().train(2, rows)
"""

SCRIPTS = pytest.mark.parametrize("script", [NATIVE, MINDSPORE], ids=["tessera", "mindspore"])


def done(tmp_path, script, *launcher, pass_fds=(), **variables):
    path = tmp_path / "script.py"
    path.write_text(script)
    return subprocess.run([*launcher, sys.executable, "-B", path], capture_output=True, text=True, timeout=240, cwd=tmp_path, pass_fds=pass_fds,
                          env=CLEAN | {"TESSERA_NUM_THREADS": "1"} | variables)


@SCRIPTS
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_timeline_has_the_steps_of_all_ranks(tmp_path, script, ranks):
    ended = done(tmp_path, script + "train()", *RUN, "-n", str(ranks), "--trace", "job.json")
    assert ended.returncode == 0, ended.stderr
    events = json.loads((tmp_path / "job.json").read_text())["traceEvents"]
    steps = [(event["pid"], event["args"]["step"]) for event in events if event["ph"] == "X" and event["cat"] == "step"]
    assert sorted(steps) == [(rank, step) for rank in range(ranks) for step in range(1, 5)]
    assert ended.stderr.count(APART) == ranks - 1, ended.stderr


@SCRIPTS
def test_the_launcher_hears_how_the_training_goes(tmp_path, script):
    os.mkfifo(tmp_path / "figures")
    reader = os.open(tmp_path / "figures", os.O_RDONLY | os.O_NONBLOCK)
    place = {"TESSERA_RANK": "0", "TESSERA_SIZE": "1", "TESSERA_STATUS_FILE": str(tmp_path / "figures"), "TESSERA_FIGURES_FILE": str(tmp_path / "figures")}
    try:
        ended = done(tmp_path, script + "train()", **place)
        assert ended.returncode == 0, ended.stderr
        assert os.read(reader, 1 << 16), "no word of the training"
    finally:
        os.close(reader)


@SCRIPTS
def test_a_variable_that_makes_no_sense_is_refused_under_a_launcher(tmp_path, script):
    refused = done(tmp_path, script + "train()", *RUN, "-n", "1", TESSERA_TIMEOUT_MS="soon")
    assert refused.returncode == 2 and 'TESSERA_TIMEOUT_MS must be an integer, got "soon"' in refused.stderr, refused.stderr
    alone = done(tmp_path, script + "train()\nassert not tessera.cluster.is_initialized()", TESSERA_TIMEOUT_MS="soon")
    assert alone.returncode == 0, alone.stderr


def test_a_rank_that_is_lost_goes_on_where_it_was(tmp_path):
    ended = done(tmp_path, NATIVE + """
class Dies(tessera.Callback):
    def step_begin(self, run):
        print("step", run.step_in_epoch, "of", run.epoch, flush=True)
        if (run.epoch, run.step_in_epoch) == (2, 1) and not os.path.exists("died"):
            open("died", "w").close()
            os._exit(3)
train(Dies())
""", *RUN, "-n", "1", "--max_restarts", "1")
    assert ended.returncode == 0, ended.stderr
    assert [line.removeprefix("[0] ") for line in ended.stdout.splitlines()] == ["step 1 of 1", "step 2 of 1", "step 1 of 2", "step 1 of 2", "step 2 of 2"]


@pytest.mark.parametrize("steps", ["train()", "new_model().train_step(x, x[:, :3], global_rows=8)"], ids=["train", "train_step"])
def test_ranks_that_train_apart_are_told_so_once(tmp_path, steps):
    ended = done(tmp_path, NATIVE + steps + "\nprint(tessera.cluster.is_initialized())", *RUN, "-n", "2")
    assert ended.returncode == 0 and ended.stdout.count("True") == 2, ended.stdout + ended.stderr
    assert ended.stderr.count(APART) == 1, ended.stderr
    # Each task of these is a training by itself: one that fails ends no other.
    by_mpirun = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
    ended = done(tmp_path, NATIVE + steps + "\nprint(tessera.cluster._srun_place(), tessera.cluster.is_initialized())", **by_mpirun)
    assert ended.returncode == 0 and ended.stdout == "None False\n" and ended.stderr.count(APART) == 1, ended.stdout + ended.stderr


CHILDREN = {
    "subprocess": """
if sys.argv[1:] == ["child"]:
    train()
    print("child", tessera.cluster.is_initialized())
    sys.exit()
import subprocess
def start():
    subprocess.run([sys.executable, "-B", __file__, "child"], check=True)
""",
    "spawn": """
import multiprocessing
def child():
    train()
    print("child", tessera.cluster.is_initialized(), flush=True)
def start():
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
""",
}


# What a program starts that has not joined may be the rank, but for the processes of multiprocessing.
@pytest.mark.parametrize("kind, joins", [("subprocess", True), ("spawn", True), ("spawn", False)])
def test_a_child_of_a_rank_trains_by_itself(tmp_path, kind, joins):
    ended = done(tmp_path, NATIVE + CHILDREN[kind] + f"""
if __name__ == "__main__":
    if {joins}:
        tessera.cluster.barrier()
    if os.environ["TESSERA_RANK"] == "0":
        start()
    tessera.cluster.barrier()
""", *RUN, "-n", "2")
    assert ended.returncode == 0 and "[0] child False\n" in ended.stdout, ended.stdout + ended.stderr


def test_a_program_that_a_script_starts_is_the_rank_where_the_script_is_none(tmp_path):
    (tmp_path / "inner.py").write_text(NATIVE + "train()\n")
    ended = done(tmp_path, "import subprocess, sys\nsubprocess.run([sys.executable, '-B', 'inner.py'], check=True)\n", *RUN, "-n", "1", "--trace", "job.json")
    assert ended.returncode == 0 and "the timeline is" in ended.stderr, ended.stderr


def test_a_launcher_that_a_rank_starts_has_ranks_of_its_own(tmp_path):
    (tmp_path / "inner.py").write_text(NATIVE + "train()\n")
    inner = [*RUN, "-n", "1", "--trace", "inner.json", sys.executable, "-B", "inner.py"]
    ended = done(tmp_path, f"import subprocess\nimport tessera\ntessera.cluster.init()\nsubprocess.run({inner!r}, check=True)\n", *RUN, "-n", "1")
    assert ended.returncode == 0 and (tmp_path / "inner.json").exists(), ended.stderr


LOOPS = {"tessera": """
import sys
import tessera
if "join" in sys.argv:
    tessera.cluster.init()
tessera.Tensor([1.0]) + 1
""", "mindspore": """
import sys
import numpy as np
import mindspore as ms
from mindspore import nn
if "join" in sys.argv:
    ms.communication.init()
net = nn.Dense(4, 3)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
step(ms.Tensor(np.ones((4, 4), np.float32)), ms.Tensor(np.ones((4, 3), np.float32)))
"""}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_joins_no_job_is_told_which_options_have_no_effect(tmp_path, loop):
    (tmp_path / "loop.py").write_text(LOOPS[loop])

    def said(*options, join=()):
        ended = subprocess.run([*RUN, "-n", "2", *options, sys.executable, "-B", "loop.py", *join], capture_output=True, text=True, timeout=240,
                               cwd=tmp_path, env=CLEAN | {"TESSERA_NUM_THREADS": "1"})
        assert ended.returncode == 0, ended.stderr
        return [line for line in ended.stderr.splitlines() if "no effect" in line]

    words = "of tessera run {} no effect on a script that does not join its job: call tessera.cluster.init()"
    both, = said("--dashboard", "0", "--trace", "job.json")
    assert both.startswith("[0] --dashboard, --trace " + words.format("have"))
    one, = said("--trace", "job.json")
    assert one.startswith("[0] --trace " + words.format("has"))
    assert said() == [] and said("--trace", "job.json", join=["join"]) == []
