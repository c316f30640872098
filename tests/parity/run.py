"""Runs PROGRAM [ARGS] FOLDER and compares what it wrote with PyTorch; system Python, makes .venv-torch where it is missing."""

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main():
    if len(sys.argv) < 2:
        print("usage: run.py PROGRAM [ARGS]   the program is given a folder to write to as its last argument")
        return 2
    env = subprocess.run([sys.executable, HERE.parent.parent / "scripts" / "torch_env.py"], stdout=subprocess.PIPE, text=True)
    if env.returncode != 0:
        return 1
    with tempfile.TemporaryDirectory(prefix="tessera-parity-") as folder:
        program = subprocess.run([*sys.argv[1:], folder])
        if program.returncode != 0:
            print(f"parity: {sys.argv[1]} exited with {program.returncode}")
            return 1
        return subprocess.run([env.stdout.strip(), "-B", HERE / "compare.py", folder]).returncode


if __name__ == "__main__":
    sys.exit(main())
