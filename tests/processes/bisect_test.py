"""Jobs of real processes that record their values: one command names the operator, the step and the rank at which two of them part."""

import json
import tempfile
import unittest
from pathlib import Path

from recovery_test import JOB, RESNET, TESSERA, run


class Bisect(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="tessera-bisect.")
        cls.folder = Path(cls.scratch.name)
        cls.data = cls.folder / "cifar"
        code, out = run([RESNET, "--make_data", cls.data, "--train_records", 320, "--test_records", 40])
        assert code == 0, out
        cls.good = cls.folder / "good"
        code, out = cls.train(["-n", 4, "--record_values", cls.good])
        assert code == 0, out

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def train(cls, launcher, *arguments, **variables):
        return run([TESSERA, "run", *launcher, "--num_threads", 1, JOB, "--data_path", cls.data, "--steps", 4, "--fault", "conv2d", *arguments],
                   **variables)

    def bisect(self, *arguments):
        code, out = run([TESSERA, "bisect", *arguments])
        self.assertEqual(code, 0, out)
        return out

    def test_a_planted_fault_is_named_by_operator_step_and_rank(self):
        bad = self.folder / "bad"
        code, out = self.train(["-n", 4, "--record_values", bad], "--fault_rank", 2, "--fault_call", 3)
        self.assertEqual(code, 0, out)
        out = self.bisect(self.good, bad)
        self.assertRegex(out, r"(?m)^step 3: conv2d \"conv\" f32\[16,8,16,16\] differs on rank 2, whose piece is \[8:12,0:8,0:16,0:16\]$")
        found = json.loads(self.bisect(self.good, bad, "--json"))
        self.assertFalse(found["equal"])
        self.assertEqual([step["step"] for step in found["steps"]], [1, 2, 3])
        first = found["steps"][-1]["first"]
        self.assertEqual((first["value"], first["ranks"], first["in_bits"]), ('conv2d "conv"', [2], True))
        self.assertEqual(len(json.loads(self.bisect(self.good, bad, "--json", "--all"))["steps"]), 4)

    def test_equal_jobs_are_equal_and_their_copies_alike(self):
        again = self.folder / "again"
        code, out = self.train(["-n", 4], TESSERA_RECORD_VALUES=again, TESSERA_RECORD_STEPS="2-3")
        self.assertEqual(code, 0, out)
        out = self.bisect(self.good, again)
        self.assertIn("no value differs in 2 steps, up to step 3", out)
        self.assertIn("only the first run has recorded step 1, 4", out)
        self.assertIn("all ranks that share a piece of a value have equal copies", self.bisect(again))

    def test_a_job_stops_where_it_leaves_an_earlier_one(self):
        code, out = self.train(["-n", 4, "--compare_values", self.good])
        self.assertEqual(code, 0, out)
        code, out = self.train(["-n", 4, "--compare_values", self.good], "--fault_rank", 1, "--fault_call", 2)
        self.assertEqual(code, 1, out)
        self.assertIn('step 2: conv2d "conv" f32[16,8,16,16] differs on rank 1', out)
        code, out = self.train(["-n", 4, "--compare_values", self.good, "--on_difference", "warn"], "--fault_rank", 1, "--fault_call", 2)
        self.assertEqual(code, 0, out)
        self.assertIn('step 2: conv2d "conv"', out)

    def test_another_number_of_ranks_is_close(self):
        one = self.folder / "one"
        code, out = self.train(["-n", 1, "--record_values", one, "--record_steps", 1])
        self.assertEqual(code, 0, out)
        found = json.loads(self.bisect(one, self.good, "--tolerance", "1e-3", "--json"))
        self.assertEqual((found["left"]["num_ranks"], found["right"]["num_ranks"]), (1, 4))
        step = found["steps"][0]
        # All but what is rounding alone, as the gradient of a bias in front of a batch normalisation.
        self.assertGreater(step["equal"] + step["close"] + step["not_comparable"], 0.9 * step["common"])
        self.assertNotIn("conv2d \"conv\"", step["first"]["value"])

    def test_what_cannot_be_compared_is_refused(self):
        code, out = run([TESSERA, "bisect", self.folder / "nothing", self.good])
        self.assertEqual(code, 1)
        self.assertIn("there is no folder of that name", out)
        code, out = run([TESSERA, "bisect", self.good, "--tolerance", 1])
        self.assertEqual(code, 2, out)
        code, out = run([TESSERA, "bisect", self.good, self.good, "--step", 9])
        self.assertEqual(code, 1)
        self.assertIn("no step 9 in common", out)
        code, out = run([TESSERA, "run", "--record_steps", 1, "true"])
        self.assertEqual(code, 2, out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
