"""program_test.py BUILD_FOLDER: the program that the snippets of docs/start_in_cpp.md make, on one rank, on processes and on threads."""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "house"))
from claims import main

BIN = Path(sys.argv.pop(1)).resolve() / "bin"


def run(*launcher):
    """What rank 0 prints."""
    with tempfile.TemporaryDirectory(prefix="tessera-start-") as folder:
        done = subprocess.run([*map(str, launcher), str(BIN / "start_in_cpp")], cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"code {done.returncode}\n{done.stdout}{done.stderr}")
    return "\n".join(line.removeprefix("[0] ") for line in done.stdout.splitlines() if not re.match(r"\[[1-9]\] ", line))


class Start(unittest.TestCase):
    def losses(self, printed):
        found = [float(loss) for loss in re.findall(r"^epoch \d/5: loss ([0-9.]+), accuracy", printed, re.M)]
        self.assertEqual(len(found), 5, printed)
        self.assertLess(found[-1], found[0], printed)
        return found

    def test_the_program_learns_and_goes_on_alike_on_one_rank_and_on_several(self):
        one = run()
        alone = self.losses(one)
        tool = BIN / "tessera"
        for launcher in ((tool, "run", "-n", "2"), (tool, "run", "--threads", "3")):
            printed = run(*launcher)
            for own, other in zip(alone, self.losses(printed), strict=True):
                self.assertAlmostEqual(own, other, delta=2e-3, msg=printed)
            for pattern in (r"^accuracy 0\.\d\d|^accuracy 1\.00", r"^by hand: loss ", r"^after 2 epochs: step 32$", r"^after 4 epochs: step 64$"):
                self.assertEqual(len(re.findall(pattern, printed, re.M)), 1, f"{pattern}\n{printed}")


if __name__ == "__main__":
    main()
