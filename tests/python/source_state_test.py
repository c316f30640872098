"""A data set's source that draws random numbers by itself, and tells their state: what it would have drawn it draws after a checkpoint and after a loss."""
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tessera
from tessera import data, nn
from tessera._source_state import ask, give, how

TESSERA = Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera"


class Told:
    """Rows that are drawn one after the other, whichever is asked for."""

    def __init__(self, seed=3):
        self.rng = np.random.RandomState(seed)

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return self.rng.standard_normal(4).astype(np.float32), self.rng.standard_normal(1).astype(np.float32)

    def state(self):
        return self.rng.get_state()

    def set_state(self, state):
        self.rng.set_state(state)


class ToldAsInPyTorch:
    def __init__(self, seed=3):
        self.rng = np.random.default_rng(seed)

    def __iter__(self):
        for _ in range(32):
            yield self.rng.standard_normal(4).astype(np.float32), self.rng.standard_normal(1).astype(np.float32)

    def state_dict(self):
        return {"bits": self.rng.bit_generator.state, "of": ("numpy", b"\x00\xff", 1.5, None, np.float32(2))}

    def load_state_dict(self, state):
        assert state["of"] == ("numpy", b"\x00\xff", 1.5, None, 2.0)
        self.rng.bit_generator.state = state["bits"]


class Untold:
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return np.full(4, random.random(), np.float32), np.zeros(1, np.float32)


class DrawsByNumber(Untold):
    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        return rng.random(4, dtype=np.float32), rng.random(1, dtype=np.float32)


class DrawsNothing(Untold):
    def __getitem__(self, index):
        return np.full(4, index, np.float32), np.zeros(1, np.float32)


def rows_without_end():
    while True:
        yield np.random.randn(4).astype(np.float32), np.zeros(1, np.float32)


def test_who_tells_who_draws_and_who_does_neither():
    assert how(Told()) == how(ToldAsInPyTorch()) == how(Told().__getitem__) == "told"
    assert how(Untold()) == how(rows_without_end) == how(rows_without_end()) == "untold"
    assert how(DrawsByNumber()) == how(DrawsNothing()) == how([1, 2]) == how(np.zeros(3)) == how(lambda: iter([1])) == ""


def test_what_is_no_state_is_refused_with_the_name_of_its_source():
    class Exact(Told):
        def state(self):
            return {"x": np.longdouble(1)}

    with pytest.raises(TypeError, match="Exact.state.. returns a longdouble"):
        ask(Exact())
    for text in ("", "[", '{"array": ["<f4", [3], "AAAA"]}', '{"array": ["O", [1], "AAAAAAAAAAA="]}', '{"code": 1}', '{"tuple": [], "bytes": ""}', "[" * 100000):
        with pytest.raises(ValueError, match="the data set's source Told cannot be read"):
            give(Told(), text)


@pytest.mark.parametrize("kind", [Told, ToldAsInPyTorch])
def test_a_state_comes_back_from_its_text(kind):
    source, other = kind(), kind(seed=4)
    text = ask(source)
    text.encode("ascii")
    expected = source.rng.standard_normal(5)
    give(other, text)
    np.testing.assert_array_equal(other.rng.standard_normal(5), expected)


def test_a_state_of_other_values_is_refused():
    class Odd(Told):
        def state(self):
            return {"rng": self.rng}
    with pytest.raises(TypeError, match=r"Odd.state\(\) returns a RandomState: a state that is kept has numbers, texts, bytes, arrays, and lists, tuples and dicts"):
        ask(Odd())


class Losses(tessera.Callback):
    def __init__(self):
        super().__init__()
        self.found = []

    def step_end(self, run):
        self.found.append(run.loss)


def told_rows():
    return data.generator(Told(), ["x", "y"])


def told_stream():
    return data.stream(ToldAsInPyTorch().__iter__, ["x", "y"], size=32)


def stream_of_another():
    source = ToldAsInPyTorch()
    return data.stream(lambda: iter(source), ["x", "y"], size=32, state_of=source)


@pytest.mark.parametrize("made", [told_rows, told_stream, stream_of_another])
def test_a_training_goes_on_from_a_checkpoint_with_what_would_have_been_drawn(tmp_path, made):
    def model_of():
        tessera.set_seed(1)
        return tessera.Model(nn.Dense(4, 1), nn.MSELoss(), nn.Momentum(0.05, 0.9))

    straight, resumed = Losses(), Losses()
    model, rows = model_of(), made().batch(8)
    model.train(1, rows, num_workers=3)
    path = model.save_checkpoint(str(tmp_path / "net"))
    model.train(1, rows, [straight])
    other = model_of()
    other.load_checkpoint(path)
    other.train(1, made().batch(8), [resumed])
    assert len(straight.found) == 4 and resumed.found == straight.found


SCRIPT = """
import os
import signal
import sys
import numpy as np
import tessera
from tessera import nn

KILLS, DATA = sys.argv[1:]


class Rows:
    def __init__(self):
        self.rng = np.random.RandomState(3)

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return self.rng.standard_normal(4).astype(np.float32), self.rng.standard_normal(1).astype(np.float32)


class Told(Rows):
    def state(self):
        return self.rng.get_state()

    def set_state(self, state):
        self.rng.set_state(state)


class Watch(tessera.Callback):
    def step_begin(self, run):
        if KILLS == "kills" and tessera.cluster.rank() == 1 and run.step == 5 and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

    def step_end(self, run):
        print(f"loss {run.step} {run.loss!r}", flush=True)


if DATA == "mindspore":
    import mindspore.dataset as ds
    rows = ds.GeneratorDataset(Told(), ["x", "y"], shuffle=False).batch(8).native
else:
    rows = tessera.data.generator(Told() if DATA == "told" else Rows(), ["x", "y"]).batch(8)
tessera.set_seed(1)
tessera.Model(nn.Dense(4, 1), nn.MSELoss(), nn.Momentum(0.05, 0.9), parallel_mode="data_parallel").train(2, rows, [Watch()])
"""


def losses_of(folder, *words, options=()):
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "MS_"))} | {"OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run([TESSERA, "run", "-n", "2", "--num_threads", "1", *options, sys.executable, "-B", "train.py", *words], cwd=folder, env=env,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return {line.split()[2]: line.split()[3] for line in done.stdout.splitlines() if line.startswith("[0] loss")}, done.stderr


@pytest.mark.parametrize("kind", ["told", "mindspore"])
def test_a_job_that_loses_a_rank_draws_what_it_would_have_drawn(tmp_path, kind):
    straight, _ = losses_of(tmp_path / "straight", "goes", kind)
    found, errors = losses_of(tmp_path / "killed", "kills", kind, options=["--max_restarts", "1"])
    assert "the job goes on, starting it again" in errors
    assert len(straight) == 8 and found == straight
    assert "draws random numbers" not in errors


def test_a_source_that_draws_and_tells_nothing_is_warned_of_once_where_a_job_goes_on_after_a_loss(tmp_path):
    words = "the data set's source draws random numbers and does not tell their state"
    assert words not in losses_of(tmp_path / "straight", "goes", "untold")[1]
    assert losses_of(tmp_path / "killed", "kills", "untold", options=["--max_restarts", "1"])[1].count(words) == 1
