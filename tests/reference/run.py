"""run.py BUILD_FOLDER [PATTERN]: computes the cases with Tessera and with MindSpore, and compares them; makes .venv-mindspore where it is missing."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def compute(python, out, pattern, **environment):
    done = subprocess.run([python, "-B", HERE / "compute.py", out, *pattern], env=os.environ | environment)
    if done.returncode != 0:
        print(f"reference: {python} exited with {done.returncode}")
    return done.returncode == 0


def main():
    if len(sys.argv) < 2:
        print("usage: run.py BUILD_FOLDER [PATTERN]   PATTERN: only the cases whose name fits it")
        return 2
    made = subprocess.run([sys.executable, ROOT / "scripts" / "mindspore_env.py"], capture_output=True, text=True)
    if made.returncode != 0:
        print(made.stderr)
        print(f"skipped: reference: {made.stderr.strip().splitlines()[-1]}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    package = Path(sys.argv[1]) / "python" / "tessera"
    judge = made.stdout.strip()
    with tempfile.TemporaryDirectory(prefix="tessera-reference-") as folder:
        ours, theirs = f"{folder}/ours", f"{folder}/theirs"
        if not compute(sys.executable, ours, sys.argv[2:], PYTHONPATH=f"{package.parent}:{package / 'compat'}"):
            return 1
        # It says at length what devices it does not find.
        if not compute(judge, theirs, sys.argv[2:], PYTHONPATH="", GLOG_v="4"):
            return 1
        part = ["part"] if sys.argv[2:] else []
        return subprocess.run([judge, "-B", HERE / "compare.py", ours, theirs, ROOT / "docs" / "compatibility.md", *part]).returncode


if __name__ == "__main__":
    sys.exit(main())
