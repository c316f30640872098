"""The callback Trace: what a training's timeline holds, and that recording one changes nothing."""
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tessera
from tessera import nn, ops

BUILD = Path(os.environ["TESSERA_BUILD"])
TESSERA = BUILD / "bin" / "tessera"


def rows(count=24, batch=4):
    x = np.linspace(-1, 1, 8 * count, dtype=np.float32).reshape(count, 8)
    return tessera.data.tensors({"x": x, "y": x[:, :1] * 2}).batch(batch)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.up = nn.Dense(8, 16)
        self.down = nn.Dense(16, 1)

    def construct(self, x):
        return self.down(ops.tanh(self.up(x)))


def make(**options):
    return tessera.Model(Net(), nn.MSELoss(), nn.Momentum(learning_rate=0.125), metrics=["mae"], seed=5, **options)


class Losses(tessera.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def step_end(self, run):
        self.losses.append(run.loss)


def spans(path, category=None):
    events = json.loads(Path(path).read_text())["traceEvents"]
    return [event for event in events if event["ph"] == "X" and category in (None, event["cat"])]


def losses_with(*callbacks):
    losses = Losses()
    make().train(2, rows(), [losses, *callbacks])
    return losses.losses


def test_a_trace_has_all_steps_and_the_losses_stay_as_they_are(tmp_path):
    assert losses_with(tessera.Trace(tmp_path / "job.json")) == losses_with()
    assert [path.name for path in tmp_path.iterdir()] == ["job.json"]
    steps = spans(tmp_path / "job.json", "step")
    assert [event["args"]["step"] for event in steps] == list(range(1, 13))
    assert {"operator", "batch", "callbacks", "run", "critical path"} <= {event["cat"] for event in spans(tmp_path / "job.json")}
    # An operator says which line of the script has made it.
    assert any(Path(__file__).name in event["args"].get("line", "") for event in spans(tmp_path / "job.json", "operator"))


def test_a_window_of_steps_is_recorded(tmp_path):
    losses_with(tessera.Trace(tmp_path / "job.json", first_step=4, last_step=6))
    assert [event["args"]["step"] for event in spans(tmp_path / "job.json", "step")] == [4, 5, 6]


def test_a_full_buffer_says_how_much_is_missing(tmp_path):
    losses_with(tessera.Trace(tmp_path / "job.json", num_spans=40))
    assert json.loads((tmp_path / "job.json").read_text())["otherData"]["dropped_spans"] > 0


def test_what_cannot_be_is_refused(tmp_path):
    for options in ({"first_step": 0}, {"first_step": 3, "last_step": 2}, {"last_step": -1}):
        with pytest.raises(tessera.InvalidArgument, match="first_step must be at least 1"):
            tessera.Trace(tmp_path / "job.json", **options)
    with pytest.raises(tessera.InvalidArgument, match="no name"):
        tessera.Trace("")
    losses = Losses()
    with pytest.raises(tessera.IoError, match="is a directory"):
        make().train(1, rows(), [losses, tessera.Trace(tmp_path)])
    assert losses.losses == []


def test_the_summary_reads_it(tmp_path):
    losses_with(tessera.Trace(tmp_path / "job.json"))
    done = subprocess.run([TESSERA, "trace", "summary", tmp_path / "job.json", "--json"], capture_output=True, text=True, check=True)
    summary = json.loads(done.stdout)
    assert (summary["ranks"], summary["steps"]) == (1, 12)
    assert sum(summary["seconds"].values()) == pytest.approx(summary["rank_step_seconds"])


SCRIPT = """
import sys
import tessera
sys.path.insert(0, {folder!r})
from trace_test import make, rows
model = make(parallel_mode="data_parallel")
model.train(1, rows(), [tessera.Trace({file!r})])
"""


def launched(tmp_path, *options):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(folder=str(Path(__file__).parent), file=str(tmp_path / "own.json")))
    return subprocess.run([TESSERA, "run", "-n", "2", *options, sys.executable, script], capture_output=True, text=True, timeout=120)


def test_ranks_are_joined_by_the_callback(tmp_path):
    done = launched(tmp_path)
    assert done.returncode == 0, done.stderr
    assert {event["pid"] for event in spans(tmp_path / "own.json", "step")} == {0, 1}
    assert {path.name for path in tmp_path.iterdir()} == {"own.json", "script.py"}


def test_the_launchers_timeline_goes_before(tmp_path):
    done = launched(tmp_path, "--trace", tmp_path / "job.json")
    assert done.returncode == 0, done.stderr
    assert "this job's timeline is recorded already" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"job.json", "script.py"}
