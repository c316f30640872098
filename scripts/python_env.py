#!/usr/bin/env python3
"""Makes .venv-python, the virtual environment in which the Python package is built and tested.

Prints the path of its Python interpreter. Quick where it exists.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-python"
PACKAGES = ["nanobind>=3.0", "scikit-build-core>=1.0", "numpy", "pytest"]


def main():
    python = VENV / "bin" / "python"
    ready = VENV / "ready"
    if not ready.exists() or ready.read_text().split() != PACKAGES:
        shutil.rmtree(VENV, ignore_errors=True)
        base = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
        for command in ([base, "-m", "venv", VENV],
                        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]):
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
            if done.returncode != 0:
                print(done.stderr[-2000:], "python_env: cannot make .venv-python", sep="\n", file=sys.stderr)
                return 1
        ready.write_text("\n".join(PACKAGES))
    print(python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
