"""Claims about the benchmark `first_minutes`, without its systems: which packages it takes, what it says without them, and its goals."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from claims import main

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import first_minutes  # noqa: E402
import first_minutes_side  # noqa: E402


class Packages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera-first-minutes-")
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def make(self, folder, seconds, *names):
        (self.root / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            path = self.root / folder / name
            path.touch()
            os.utime(path, (seconds, seconds))

    def found(self, row):
        return [path.relative_to(self.root).as_posix() for path in first_minutes_side.find_packages(row, self.root)]

    def test_a_row_without_its_packages_names_the_command_that_makes_them(self):
        self.make("dist", 1, "tessera-mpi_0.1.0_amd64.deb")
        for row, command in (("wheel", "scripts/package wheel"), ("deb", "scripts/package deb"), ("cmake", "scripts/package deb")):
            with self.assertRaises(SystemExit) as refused:
                self.found(row)
            self.assertIn(f"for the row {row}: run {command} first", str(refused.exception))

    def test_both_packages_of_a_row_are_of_one_folder(self):
        built = "build/package/packages"
        self.make("dist", 9, "tessera_0.1.0_amd64.deb")
        self.make(built, 5, "tessera_0.1.0_amd64.deb", "tessera-dev_0.1.0_amd64.deb", "tessera-mpi_0.1.0_amd64.deb")
        self.assertEqual(self.found("deb"), ["dist/tessera_0.1.0_amd64.deb"])
        self.assertEqual(self.found("cmake"), [f"{built}/tessera_0.1.0_amd64.deb", f"{built}/tessera-dev_0.1.0_amd64.deb"])

    def test_the_newest_is_taken(self):
        self.make("dist", 5, "tessera-0.1.0-cp311-cp311-manylinux_2_35_x86_64.whl")
        self.make("dist", 6, "tessera-0.1.1-cp311-cp311-manylinux_2_35_x86_64.whl")
        self.assertEqual(self.found("wheel"), ["dist/tessera-0.1.1-cp311-cp311-manylinux_2_35_x86_64.whl"])

    def test_packages_that_are_older_than_the_commit_are_told(self):
        git = ("git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "a"], check=True, env=os.environ | {"GIT_COMMITTER_DATE": "@1000 +0000"})
        self.make("dist", 999, "old.whl")
        self.make("dist", 1001, "new.whl")
        self.assertIn("OLDER", first_minutes_side.age_of([self.root / "dist/new.whl", self.root / "dist/old.whl"], self.root))
        self.assertEqual(first_minutes_side.age_of([self.root / "dist/new.whl"], self.root), "")


class Goals(unittest.TestCase):
    def test_each_row_has_one_and_says_so(self):
        self.assertEqual(first_minutes.ROWS.keys(), first_minutes_side.GOALS_S.keys())
        self.assertEqual(first_minutes_side.GOALS_S, {"wheel": 60, "deb": 60, "cmake": 30})
        self.assertEqual(first_minutes_side.against_goal("cmake", [20.0, 29.9, 25.0]), "goal: 30 s in each round, reached")
        self.assertEqual(first_minutes_side.against_goal("wheel", [20.0, 61.5, 25.0]), "goal: 60 s in each round, MISSED by 1.5 s")

    def test_the_help_says_what_must_be_there(self):
        side = ROOT / "benchmarks" / "first_minutes_side.py"
        told = subprocess.run([sys.executable, "-B", side, "--help"], capture_output=True, text=True, check=True).stdout
        for word in ("root", "debootstrap", "scripts/package wheel", "scripts/package deb", "Goal: 60 s", "Goal: 30 s"):
            self.assertIn(word, told)
        self.assertIn("scripts/package wheel and deb", first_minutes.DOC)


if __name__ == "__main__":
    main()
