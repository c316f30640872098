"""Makes the virtual environments of this project: scripts/*_env.py say which packages are in each."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def make(name, packages, options=(), announce="", check="pass", finish=None):
    """Makes ROOT/`name` with `packages` where it is not there as they say, prints the path of its interpreter and returns 0; or
    says on standard error what failed and returns 1.

    `announce` is said before something large is fetched. `finish(python)` is called once all is installed. `check` is a
    program that must run then; an environment that does not pass it is made anew next time.
    """
    folder = ROOT / name
    python = folder / "bin" / "python"
    ready = folder / "ready"

    def run(*command):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd="/")
        if done.returncode != 0:
            print(done.stderr[-2000:], f"cannot make {name}: {' '.join(map(str, command))}", sep="\n", file=sys.stderr)
        return done.returncode == 0

    if not ready.exists() or ready.read_text().split() != packages:
        shutil.rmtree(folder, ignore_errors=True)
        if announce:
            print(f"{name}: {announce}", file=sys.stderr, flush=True)
        base = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
        if not run(base, "-m", "venv", folder):
            return 1
        if not run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options, *packages):
            return 1
        if finish:
            finish(python)
        if not run(python, "-c", check):
            return 1
        ready.write_text("\n".join(packages))
    print(python)
    return 0
