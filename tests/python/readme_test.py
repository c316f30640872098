"""The model that README.md shows is a program: it runs as it is printed, on one rank and on two, with the same losses."""
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import tessera

ROOT = Path(__file__).resolve().parents[2]


def test_the_model_of_the_readme_learns_on_one_rank_and_on_two(tmp_path):
    program = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL).group(1)
    script = tmp_path / "model.py"
    script.write_text(program, encoding="utf-8")
    launcher = [str(Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera"), "run", "-n", "2"]
    lines = []
    for command in ([], launcher):
        done = subprocess.run([*command, sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        lines.append(re.findall(r"^(?:\[0\] )?epoch (\d)/5: loss ([0-9.]+), accuracy ([0-9.]+), [0-9.]+ rows/s, [0-9.]+ s$", done.stdout, re.MULTILINE))
    assert [epoch for epoch, _, _ in lines[0]] == ["1", "2", "3", "4", "5"]
    for one, two in zip(*lines, strict=True):
        assert abs(float(one[1]) - float(two[1])) < 2e-4, (one, two)
    assert float(lines[0][-1][2]) > 0.8


def test_the_version_is_the_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert tessera.__version__ == project["version"]
