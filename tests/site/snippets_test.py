"""What docs/start_from_pytorch.md, start_from_mindspore.md and other_frameworks.md show are programs: each side runs as it is printed.

PyTorch's side runs where scripts/torch_env.py has made its environment, as the suite `parity` does.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import snippets

ROOT = Path(__file__).resolve().parents[2]
TOOL = str(Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera")
TORCH = ROOT / ".venv-torch"


def program(page, side):
    return snippets.sides((ROOT / "docs" / page).read_text(encoding="utf-8"))[side]


def run(text, folder, *launcher, python=sys.executable):
    """What rank 0 prints."""
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(text, encoding="utf-8")
    done = subprocess.run([*launcher, str(python), "-B", "program.py"], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return "\n".join(line.removeprefix("[0] ") for line in done.stdout.splitlines() if not line.startswith("[1] "))


def write_weights(folder):
    """As the page's PyTorch writes them."""
    folder.mkdir()
    shapes = {"up.weight": (64, 8), "up.bias": (64,), "norm.weight": (64,), "norm.bias": (64,), "down.weight": (3, 64), "down.bias": (3,)}
    rng = np.random.default_rng(3)
    np.savez(folder / "mlp.npz", **{name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()})


CHECK_WEIGHTS = """
x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
np.save("{side}.npy", {result})
"""


def test_those_who_know_pytorch_find_programs_that_learn_on_one_rank_and_on_two(tmp_path):
    text = program("start_from_pytorch.md", "Tessera")
    losses = []
    for ranks, launcher in ((1, []), (2, [TOOL, "run", "-n", "2"])):
        write_weights(tmp_path / str(ranks))
        printed = run(text, tmp_path / str(ranks), *launcher)
        losses.append([float(loss) for loss in re.findall(r"^epoch \d/5: loss ([0-9.]+)", printed, re.MULTILINE)])
        assert len(losses[-1]) == 5 and losses[-1][-1] < 0.7 * losses[-1][0], printed
        assert float(re.search(r"^accuracy ([0-9.]+)", printed, re.MULTILINE).group(1)) > 0.9, printed
        assert len(re.findall(r"^mean loss|^clipped: ", printed, re.MULTILINE)) == 3, printed
        # The third epoch alone was left.
        assert {path.name for path in (tmp_path / str(ranks) / "checkpoints").glob("*.ckpt")} == {"mlp-1_16.ckpt", "mlp-2_16.ckpt"}
    np.testing.assert_allclose(*losses, atol=2e-3)


def test_what_is_shown_of_pytorch_runs_and_its_weights_give_the_same_results_here(tmp_path):
    if not (TORCH / "ready").exists():
        pytest.skip("PyTorch's side of docs/start_from_pytorch.md: scripts/torch_env.py has not made .venv-torch")
    folder = tmp_path / "both"
    theirs = program("start_from_pytorch.md", "PyTorch") + CHECK_WEIGHTS.format(
        side="PyTorch", result="network.eval()(torch.from_numpy(x)).detach().numpy()")
    printed = run(theirs, folder, python=TORCH / "bin" / "python")
    assert len(re.findall(r"^epoch \d: loss", printed, re.MULTILINE)) == 5, printed
    ours = program("start_from_pytorch.md", "Tessera") + CHECK_WEIGHTS.format(side="Tessera", result="tessera.Model(taken).predict(x).numpy()")
    run(ours, folder)
    np.testing.assert_allclose(np.load(folder / "Tessera.npy"), np.load(folder / "PyTorch.npy"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("side", ["MindSpore", "Tessera"])
def test_those_who_know_mindspore_find_programs_that_learn_on_one_rank_and_on_two(side, tmp_path):
    text = program("start_from_mindspore.md", side)
    for ranks, launcher in ((1, []), (2, [TOOL, "run", "-n", "2"])):
        printed = run(text, tmp_path / str(ranks), *launcher)
        losses = [float(loss) for loss in re.findall(r"^epoch: \d step: 16, loss is ([0-9.]+)", printed, re.MULTILINE)]
        assert len(losses) == 3 and losses[-1] < 0.6 * losses[0], printed
        assert float(re.search(r"^accuracy ([0-9.]+)", printed, re.MULTILINE).group(1)) > 0.9, printed
        assert list((tmp_path / str(ranks)).rglob("mlp-1_16.ckpt")), printed


def test_callbacks_do_what_others_have_as_options(tmp_path):
    assert run(program("other_frameworks.md", ""), tmp_path / "callbacks") == "20 [4, 8, 12, 16, 20]"


def test_every_snippet_has_a_side():
    for page in ("start_from_pytorch.md", "start_from_mindspore.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert set(snippets.sides(text)) == {"Tessera", "PyTorch" if "pytorch" in page else "MindSpore"}, page
