"""What type checkers make of the package: `mypy --strict` passes the examples and a program that uses much of it, and finds what is wrong.

The examples that import `mindspore` are left out: that package has no types, as its reference has none.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(os.environ["TESSERA_BUILD"]) / "python"
EXAMPLES = [path for path in sorted((ROOT / "examples" / "python").rglob("*.py")) if "mindspore" not in path.read_text(encoding="utf-8")]

RIGHT = """
import numpy as np
import tessera
from tessera import nn, ops


class Stop(tessera.Callback):
    def epoch_end(self, run: tessera.RunContext) -> None:
        if run.loss < 0.1:
            run.request_stop()


network = nn.Sequential(nn.Dense(8, 4), nn.Dense(4, 3))
x: tessera.Tensor = ops.relu(tessera.Tensor(np.ones((2, 3), np.float32)))[0:1]
y = ops.conv3d(x, x) + ops.mean(x).reshape(1) * 2 - x.T
first, second = ops.top_k(x, 2)
print(first.shape, second.numpy().sum(), x.item() + 1, [row.ndim for row in x])
print(tessera.from_dlpack(tessera.to_dlpack(x, max_version=(1, 0)), copy=False).shape, x.__dlpack_device__()[0] + 1)
groups = nn.group_parameters(network, {"0": {"lr": 0.1}})
rows = tessera.data.tensors({"x": np.zeros((4, 8), np.float32), "y": np.zeros(4, np.int32)}).batch(2)
model = tessera.Model(network, nn.CrossEntropy(), nn.Adam(learning_rate=0.1, groups=groups), metrics=["accuracy"])
best = tessera.BestCheckpoint("best", "accuracy", rows, save_top_k=2)
model.train(1, rows, [tessera.EpochSummary(), tessera.ModelCheckpoint("a", "b"), best, Stop()])
print(model.eval(rows)["accuracy"] + 1, model.predict(np.zeros((1, 8), np.float32)).numpy()[:, 0], str(best.paths[0]).upper())
tessera.export_onnx(network, x, path="a.onnx")
tessera.checkpoint.save("x.ckpt", {"a": x})
"""
WRONG = [
    ("import tessera\ntessera.Modell", 'no attribute "Modell"'),
    ("from tessera import nn\nnn.Dens(3, 4)", 'no attribute "Dens"'),
    ("from tessera import ops\nops.rel(3)", 'no attribute "rel"'),
    ("from tessera import nn\nnn.Dense('8', 4)", r'Argument 1 to "Dense" has incompatible type "str"; expected "int"'),
    ("from tessera import ops\nx: int = ops.relu(3)", 'expression has type "Tensor", variable has type "int"'),
    ("import tessera\ntessera.CsvLog('log.csv', every_steps='3')", 'Argument "every_steps" to "CsvLog" has incompatible type "str"'),
]


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    made = subprocess.run([sys.executable, ROOT / "scripts" / "mypy_env.py"], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip("no mypy: scripts/mypy_env.py could not make .venv-mypy")
    if not (PACKAGE / "tessera" / "_tessera" / "ops.pyi").exists():
        pytest.skip("the build has no stubs: its target tessera_stubs makes them")
    folder = tmp_path_factory.mktemp("mypy")

    def run(*files):
        # As it is where the package is installed: what is wrong within it is not its users' business.
        return subprocess.run([made.stdout.strip(), "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", "--cache-dir",
                               str(folder / "cache"), *map(str, files)], env={**os.environ, "MYPYPATH": str(PACKAGE)}, cwd=folder,
                              capture_output=True, text=True, timeout=600)

    return run


def test_there_are_examples_to_check():
    assert {path.name for path in EXAMPLES} >= {"wide_deep.py", "train.py"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.relative_to(ROOT / "examples" / "python").as_posix())
def test_mypy_passes_an_example(check, path):
    done = check(path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_passes_a_program_that_uses_much_of_the_package(check, tmp_path):
    (tmp_path / "right.py").write_text(RIGHT, encoding="utf-8")
    done = check(tmp_path / "right.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_finds_what_is_wrong(check, tmp_path):
    files = []
    for i, (program, _) in enumerate(WRONG):
        files.append(tmp_path / f"wrong{i}.py")
        files[-1].write_text(program + "\n", encoding="utf-8")
    done = check(*files)
    for i, (program, message) in enumerate(WRONG):
        found = [line for line in done.stdout.splitlines() if f"wrong{i}.py" in line]
        assert len(found) == 1 and re.search(message, found[0]), (program, done.stdout, done.stderr)
