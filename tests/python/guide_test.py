"""What docs/python.md shows is one program: it runs as it is printed, on one rank and on two, with the same losses."""
import os
import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
TOOL = str(Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera")


def run(*command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_guide_runs_on_one_rank_and_on_two(tmp_path):
    program = "\n\n".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL))
    program += "\nprint(Tagger()(np.zeros((2, 5), np.int32), np.array([5, 3], np.int32)).shape)\n"
    losses = []
    for ranks in (1, 2):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        (folder / "guide.py").write_text(program, encoding="utf-8")
        launcher = [TOOL, "run", "-n", "2"] if ranks > 1 else []
        lines = [line.removeprefix("[0] ") for line in run(*launcher, sys.executable, "guide.py", cwd=folder).splitlines() if not line.startswith("[1] ")]
        text = "\n".join(lines)
        accuracies = [float(accuracy) for accuracy in re.findall(r"^epoch \d/3: .*accuracy ([0-9.]+)", text, re.MULTILINE)]
        assert len(accuracies) == 3 and accuracies[0] < accuracies[-1] > 0.9, text
        losses.append([float(loss) for loss in re.findall(r"loss ([0-9.]+)", text)])
        assert re.findall(r"^epoch (\d) of 5, step (\d+):", text, re.MULTILINE) == [("4", "24"), ("5", "30")], text
        assert f"({64 // ranks}, 8) of (64, 8)" in lines and "(2, 3)" in lines, text
        checkpoints = {path.name for path in (folder / "checkpoints").iterdir()}
        assert {"mlp-3_6.ckpt", "mlp_1-5_6.ckpt"} <= checkpoints
        run(TOOL, "plan", "split.graph", "--devices", "4", cwd=folder)
        assert run(TOOL, "plan", "split.graph", "--devices", "4", "--why", "up:matmul", cwd=folder).startswith("up:matmul on ")
        run(TOOL, "graph", "split.graph", "--mesh", "data=2", "--stage", "local", cwd=folder)
    assert len(losses[0]) == len(losses[1]) == 7
    assert all(abs(one - two) < 2e-3 for one, two in zip(*losses, strict=True)), losses
