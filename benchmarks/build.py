import sys

from harness import Case, ROOT, Side

DOC = "seconds that a clone takes to compile without a cache: the demo, all tests, the wheel after a build, one changed source"

# The commit before several sources of a library were compiled as one.
BEFORE = "5c917081"
ROWS = {"demo": "demo", "tests": "tests", "wheel": "wheel after a build", "change": "a changed source of kernels and its test"}


def cases(threads):
    def side(role, name, row, commit):
        command = [sys.executable, "-B", ROOT / "benchmarks" / "build_side.py", row, "--commit", commit, "--jobs", threads]
        return Side(role, name, command, is_built=False, timeout_s=7200)

    return [Case(name, [side("ours", "tessera", row, "HEAD"), side("peer", f"tessera at {BEFORE}", row, BEFORE)], unit="s",
                 rounds=5 if row == "change" else 1, only_by_name=True)
            for row, name in ROWS.items()]
