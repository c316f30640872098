"""run.py BUILD_FOLDER TEST_FILE: the file's tests on the packages of that build; ends with the line that scripts/test counts."""
import os
import sys
from pathlib import Path

import pytest


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


def main():
    build, test = Path(sys.argv[1]).resolve(), sys.argv[2]
    package = build / "python"
    os.environ["TESSERA_BUILD"] = str(build)
    os.environ["PYTHONPATH"] = f"{package}:{package / 'tessera' / 'compat'}"
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.path[:0] = os.environ["PYTHONPATH"].split(":")
    counter = Counter()
    code = pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[3:], test], plugins=[counter])
    for reason in counter.skipped:
        print(f"skipped: {reason}")
    print(f"{counter.passed} passed, {counter.failed} failed" + (f", {len(counter.skipped)} skipped" if counter.skipped else ""))
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
