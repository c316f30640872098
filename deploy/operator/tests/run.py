"""run.py TEST_FILE...: their tests in the virtual environment of scripts/operator_env.py; ends with the line that scripts/test counts. Where
that environment cannot be made they are named as skipped."""

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent.parent


class Counter:
    def __init__(self):
        self.passed = self.failed = 0
        self.skipped = []

    def pytest_runtest_logreport(self, report):
        if report.skipped:
            self.skipped.append(f"{report.nodeid.split('::', 1)[-1]}: {str(report.longrepr[-1]).removeprefix('Skipped: ')}")
        elif report.failed:
            self.failed += 1
        elif report.when == "call":
            self.passed += 1

    def pytest_collectreport(self, report):
        self.failed += report.failed


def run_there(arguments):
    """In an interpreter that has the packages."""
    import pytest
    counter = Counter()
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-rP", *arguments], plugins=[counter])
    for reason in counter.skipped:
        print(f"skipped: {reason}")
    print(f"{counter.passed} passed, {counter.failed} failed" + (f", {len(counter.skipped)} skipped" if counter.skipped else ""))
    return int(code)


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--there"]:
        return run_there(arguments[1:])
    made = subprocess.run([sys.executable, "-B", str(ROOT / "scripts/operator_env.py")], stdout=subprocess.PIPE, text=True)
    if made.returncode != 0:
        print("skipped: operator: scripts/operator_env.py could not make .venv-operator\n0 passed, 0 failed, 1 skipped")
        return 0
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([made.stdout.strip(), "-B", str(FOLDER / "run.py"), "--there", *arguments], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
