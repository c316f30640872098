#!/usr/bin/env python3
"""Makes .venv-mindspore, the virtual environment with MindSpore's own package, the judge of the suite `reference`.

Prints the path of its Python interpreter. Quick where it exists. It wants 0.8 GB to be fetched and 3 GB on disk.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-mindspore"
# MindSpore, and of what it requires NumPy in the version that it still understands.
PACKAGES = ["mindspore==2.10.0", "numpy<2"]


def works(python):
    test = "import mindspore, numpy; x = mindspore.Tensor(numpy.ones(2, numpy.float32)); assert (x + x).asnumpy()[1] == 2"
    return subprocess.run([python, "-c", test], capture_output=True, text=True, cwd="/")


def main():
    python = VENV / "bin" / "python"
    ready = VENV / "ready"
    if not ready.exists() or ready.read_text().split() != PACKAGES:
        shutil.rmtree(VENV, ignore_errors=True)
        print("mindspore_env: installing MindSpore into .venv-mindspore (0.8 GB to fetch)", file=sys.stderr, flush=True)
        base = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
        for command in ([base, "-m", "venv", VENV],
                        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", *PACKAGES]):
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
            if done.returncode != 0:
                print(done.stderr[-2000:], "mindspore_env: cannot install MindSpore", sep="\n", file=sys.stderr)
                return 1
        test = works(python)
        if test.returncode != 0:
            print(test.stderr[-2000:], "mindspore_env: MindSpore is installed but does not run here", sep="\n", file=sys.stderr)
            return 1
        ready.write_text("\n".join(PACKAGES))
    print(python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
