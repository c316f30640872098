"""How a program of claims ends: with the line that scripts/test counts."""

import sys
import unittest


def main():
    result = unittest.main("__main__", exit=False, verbosity=1).result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
