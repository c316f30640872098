"""Claims about rounds of the benchmarks' peers in Python: they are as long as those of the programs that they take turns with."""

import contextlib
import io
import json
import re
import sys
import unittest
import unittest.mock
from pathlib import Path

from claims import main

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))
import rounds  # noqa: E402


class Round(unittest.TestCase):
    """The cases of benchmarks/protocol_test.cc."""

    def of_steps(self, *told):
        """What a step takes, and how many are run, where steps take as long as they are told; the last duration holds for all that follow."""
        num_run = 0

        def step():
            nonlocal num_run
            num_run += 1
            return told[min(num_run, len(told)) - 1]

        return rounds.seconds_of_step_in_round(step), num_run

    def test_it_lasts_two_seconds_without_its_first_step(self):
        seconds, num_run = self.of_steps(10, 0.4)
        self.assertAlmostEqual(seconds, 0.4)
        self.assertEqual(num_run, 1 + 5)

    def test_of_long_steps_it_counts_one(self):
        self.assertEqual(self.of_steps(0.1, 3, 9), (3, 1 + 1))

    def test_it_gives_the_mean_of_the_steps_that_count(self):
        self.assertEqual(self.of_steps(10, 0.5, 1, 1.5), (1, 1 + 3))

    def test_it_lasts_as_long_as_it_is_told(self):
        steps = iter([10, 0.25, 0.25])
        self.assertEqual(rounds.seconds_of_step_in_round(lambda: next(steps), 0.5), 0.25)

    def test_it_is_as_long_as_that_of_the_programs(self):
        header = (ROOT / "benchmarks/protocol.h").read_text()
        self.assertEqual(rounds.ROUND_SECONDS, float(re.search(r"kRoundSeconds = ([\d.]+);", header)[1]))

    def test_every_side_of_a_training_step_counts_its_rounds_so(self):
        for benchmark in ("resnet50", "transformer", "threads"):
            cases = (ROOT / "benchmarks" / f"{benchmark}.py").read_text()
            sides = {f"{name}.cc" for name in re.findall(r'BIN / "(\w+)"', cases)} | {f"peers/{name}" for name in re.findall(r'"peers" / "(\w+\.py)"', cases)}
            self.assertTrue(sides, benchmark)
            for side in sides:
                self.assertIn("seconds_of_step_in_round(", (ROOT / "benchmarks" / side).read_text(), f"{side}, a side of {benchmark}")


class Rounds(unittest.TestCase):
    def served(self, run_round, said):
        """What a side says that is told so."""
        with unittest.mock.patch.object(sys, "stdin", io.StringIO(said)), contextlib.redirect_stdout(io.StringIO()) as out:
            rounds.serve_rounds("steps/s", "a side", run_round)
        return [json.loads(line) for line in out.getvalue().splitlines()]

    def test_one_is_run_for_each_go(self):
        values = iter((1.5, 2.5))
        self.assertEqual(self.served(lambda: next(values), "go\ngo\nend\ngo\n"),
                         [{"ready": True, "unit": "steps/s", "about": "a side"}, {"value": 1.5}, {"value": 2.5}])

    def test_one_may_tell_about_itself(self):
        self.assertEqual(self.served(lambda: (3.5, "it was cold"), "go\n")[1:], [{"value": 3.5, "about": "it was cold"}])


if __name__ == "__main__":
    main()
