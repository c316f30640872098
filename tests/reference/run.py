"""run.py BUILD_FOLDER [PATTERN]: computes the cases with Tessera and with MindSpore, and compares them; makes .venv-mindspore where it is missing."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def runner(python, folder, **environment):
    """A function that runs a program of this folder, and says whether it ended well. MindSpore leaves files where it is started: in `folder`."""
    def run(program, *arguments):
        done = subprocess.run([python, "-B", HERE / program, *arguments], env=os.environ | environment, cwd=folder)
        if done.returncode != 0:
            print(f"reference: {program} in {python} exited with {done.returncode}")
        return done.returncode == 0

    return run


def exchange_checkpoints(folder, run):
    """Whether each package reads what the other wrote, and both write the same bytes."""
    files = {side: f"{folder}/{side}.ckpt" for side in ("ours", "theirs")}
    good = all(run[side]("checkpoint.py", "write", file) for side, file in files.items())
    good = good and run["ours"]("checkpoint.py", "read", files["theirs"]) and run["theirs"]("checkpoint.py", "read", files["ours"])
    if good and Path(files["ours"]).read_bytes() != Path(files["theirs"]).read_bytes():
        print("FAILED: the two packages write the same tensors in other bytes")
        good = False
    return good


def convert_checkpoints(folder, run):
    """Whether both packages convert checkpoints to the same bytes, and read what the other one converted."""
    folders = {side: f"{folder}/{side}_converted" for side in ("ours", "theirs")}
    good = all(run[side]("conversion.py", "convert", folders[side]) for side in folders)
    good = good and run["ours"]("conversion.py", "read", folders["theirs"]) and run["theirs"]("conversion.py", "read", folders["ours"])
    return good and run["ours"]("compare_conversions.py", *folders.values())


def check_names(folder, run):
    """Whether every public name of the one package works in the other or is refused with a word of what to use instead."""
    file = f"{folder}/names.json"
    return run["theirs"]("names.py", "list", file) and run["ours"]("names.py", "check", file)


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
    package = Path(sys.argv[1]).resolve() / "python" / "tessera"
    judge = made.stdout.strip()
    with tempfile.TemporaryDirectory(prefix="tessera-reference-") as folder:
        # MindSpore says at length what devices it does not find.
        run = {"ours": runner(sys.executable, folder, PYTHONPATH=f"{package.parent}:{package / 'compat'}"),
               "theirs": runner(judge, folder, PYTHONPATH="", GLOG_v="4")}
        results = {side: f"{folder}/{side}" for side in run}
        if not all(run[side]("compute.py", out, *sys.argv[2:]) for side, out in results.items()):
            return 1
        good = bool(sys.argv[2:]) or all([check_names(folder, run), exchange_checkpoints(folder, run) and convert_checkpoints(folder, run)])
        part = ["part"] if sys.argv[2:] else []
        good = run["theirs"]("compare.py", *results.values(), ROOT / "docs" / "compatibility.md", *part) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
