"""How a program of tests of real processes runs and ends: with what was skipped, and the line that scripts/test counts."""

import sys
import unittest


class OwnTests(unittest.TestLoader):
    """The tests that a class has itself: those of the class that it takes its jobs from run in that one's program."""

    def getTestCaseNames(self, case):
        return [name for name in super().getTestCaseNames(case) if name in vars(case)]


def main(module="__main__", loader=unittest.defaultTestLoader):
    result = unittest.main(module, exit=False, verbosity=2, warnings="ignore", testLoader=loader).result
    for test, reason in result.skipped:
        print(f"skipped: {test.id().removeprefix('__main__.')}: {reason}")
    failed = len(result.failures) + len(result.errors)
    skipped = f", {len(result.skipped)} skipped" if result.skipped else ""
    print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed{skipped}")
    sys.exit(1 if failed else 0)
