"""Jobs under Slurm itself, in a cluster of this machine: srun's ranks have the bits that other launchers give, the examples run, a lost rank is named
or, with a scheduler, comes again. Where Slurm is not installed, each claim is skipped by name."""

import os
import re
import shutil
import sys
import unittest
from pathlib import Path

import slurm_cluster

BIN = Path(sys.argv.pop(1))
EXAMPLES = Path(__file__).resolve().parents[2] / "examples/slurm"
RANK, TESSERA, JOB, RESNET = BIN / "rank_program", BIN / "tessera", BIN / "train_job", BIN / "resnet50_cifar10"
OF_NODE = ("sh", "-c", 'TESSERA_HOST_ID=$SLURMD_NODENAME exec "$0" "$@"')  # nodes of this machine are hosts of their own
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def lines_of(out, marker="checksum"):
    return sorted(line[line.index(marker):] for line in out.splitlines() if marker in line)


def result(out):
    """Losses by step, as they are written with all their bits, and checksums of all values."""
    losses = {}
    for step, loss in re.findall(r"loss (\d+) (\S+)", out):
        assert losses.setdefault(step, loss) == loss, f"step {step} has two losses: {out}"
    return losses, set(re.findall(r"crc ([0-9a-f]{8})", out))


@unittest.skipIf(slurm_cluster.why_not(), slurm_cluster.why_not())
class Srun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.slurm = slurm_cluster.SlurmCluster(2).__enter__()
        cls.addClassCleanup(cls.slurm.__exit__)
        cls.data = cls.slurm.folder / "cifar"
        code, out, err = cls.slurm.run(RESNET, "--make_data", cls.data, "--train_records", 320, "--test_records", 40)
        assert code == 0, out + err

    def variables(self, **others):
        return {"PATH": f"{BIN}:{os.environ['PATH']}", "XDG_CACHE_HOME": self.slurm.folder / "cache", "TESSERA_TIMEOUT_MS": 30000} | others

    def run_well(self, *command, **variables):
        code, out, err = self.slurm.run(*command, **self.variables(**variables))
        self.assertEqual(code, 0, out + err)
        return out

    def batch_well(self, name, *arguments, options=(), **variables):
        code, out = self.slurm.batch(EXAMPLES / name, *arguments, options=options, **self.variables(**variables))
        self.assertEqual(code, 0, out)
        return out

    def training(self, *options):
        return (JOB, "--data_path", self.data, "--steps", "6", *options)

    def test_tasks_of_one_node_are_ranks_of_a_job(self):
        expected = lines_of(self.run_well(TESSERA, "run", "-n", "3", RANK, "script"))
        self.assertEqual(lines_of(self.run_well("srun", "--nodes=1", "--ntasks=3", RANK, "script")), expected)

    def test_tasks_of_two_nodes_are_ranks_of_a_job(self):
        command = f"TESSERA_HOST_ID=$((TESSERA_RANK / 2)) exec {RANK} script"
        expected = lines_of(self.run_well(TESSERA, "run", "-n", "3", "sh", "-c", command))
        self.assertEqual(lines_of(self.run_well("srun", "--nodes=2", "--ntasks=3", *OF_NODE, RANK, "script")), expected)

    def test_two_steps_at_once_are_two_jobs(self):
        steps = f"srun --overlap -n 2 {RANK} script & srun --overlap -n 3 {RANK} script & wait"
        out = self.run_well("salloc", "--quiet", "--nodes=1", "--ntasks=4", "bash", "-c", steps)
        self.assertEqual((len(lines_of(out, "of 2 local")), len(lines_of(out, "of 3 local"))), (2, 3), out)

    def test_it_trains_to_the_bits_of_tessera_run(self):
        expected = result(self.run_well(TESSERA, "run", "-n", "2", *self.training()))
        self.assertEqual(len(expected[0]), 6)
        self.assertEqual(result(self.run_well("srun", "--nodes=1", "--ntasks=2", *self.training())), expected)

    def test_a_program_in_the_shell_of_salloc_is_alone(self):
        out = self.run_well("salloc", "--quiet", "--nodes=1", "--ntasks=3", RANK, "script")
        self.assertEqual(len(lines_of(out, "rank 0 of 1")), 1, out)

    def test_a_program_in_the_shell_of_sbatch_is_alone(self):
        script = self.slurm.folder / "alone.sh"
        script.write_text(f"#!/bin/bash\n#SBATCH --ntasks=3\n{RANK} script\n")
        code, out = self.slurm.batch(script, **self.variables())
        self.assertEqual(code, 0, out)
        self.assertEqual(len(lines_of(out, "rank 0 of 1")), 1, out)

    def test_a_rank_that_is_lost_is_named_by_the_others(self):
        code, out, err = self.slurm.run("srun", "--nodes=2", "--ntasks=3", "--kill-on-bad-exit=0", *OF_NODE, RANK, "die", "1", **self.variables())
        self.assertNotEqual(code, 0, out + err)
        self.assertGreaterEqual(len(re.findall(r"rank 1 ", err)), 2, err)
        self.assertEqual(err.count("srun puts no other rank in the place of rank 1"), 1, err)

    def test_with_a_scheduler_a_rank_that_is_lost_comes_again(self):
        expected = result(self.run_well(TESSERA, "run", "-n", "4", *self.training()))
        left = set(self.slurm.folder.glob("tessera-*.*"))
        out = self.batch_well("several_nodes.sbatch", "2", *self.training("--kill_rank", "3", "--kill_step", "3", "--kill_once", self.slurm.folder / "killed"))
        self.assertTrue((self.slurm.folder / "killed").exists(), out)
        self.assertEqual(result(out), expected, out)
        new = {path.suffix for path in set(self.slurm.folder.glob("tessera-*.*")) - left}
        self.assertLessEqual(new, {".report"}, "neither the secret nor the scheduler's state outlives the job")

    def test_the_example_of_several_nodes_ends_with_its_program(self):
        out = self.batch_well("several_nodes.sbatch", "2", *OF_NODE, RANK, "script")
        self.assertEqual(len(lines_of(out, "of 4 local")), 4, out)
        for command in ([RANK, "usage"], ["no-such-program"]):
            with self.subTest(command=command):
                code, out = self.slurm.batch(EXAMPLES / "several_nodes.sbatch", "2", *command, timeout=100, **self.variables())
                self.assertNotEqual(code, 0, out)

    def test_the_example_of_one_node_runs(self):
        out = self.batch_well("one_node.sbatch", RANK, "script", options=["--ntasks=4"])
        self.assertEqual(len(lines_of(out, "of 4 local")), 4, out)

    def test_an_example_without_a_program_says_how_it_is_used(self):
        for name in ("one_node.sbatch", "several_nodes.sbatch", "mpirun.sbatch"):
            code, out = self.slurm.batch(EXAMPLES / name, **self.variables())
            self.assertEqual(code, 2, out)
            self.assertIn(f"usage: sbatch [OPTION...] {name}", out)

    def test_what_mpirun_says_goes_before_within_slurm(self):
        if shutil.which("mpirun") is None:
            self.skipTest("Open MPI is not installed: scripts/setup mpi")
        out = self.batch_well("mpirun.sbatch", RANK, "script", options=["--ntasks-per-node=3"], **MPI)
        self.assertEqual(len(lines_of(out, "of 3 local")), 3, out)


if __name__ == "__main__":
    result_of_tests = unittest.main(exit=False, verbosity=2).result
    failures = len(result_of_tests.failures) + len(result_of_tests.errors)
    for test, reason in result_of_tests.skipped:
        print(f"skipped: {test.id().removeprefix('__main__.')}: {reason}")
    skipped = f", {len(result_of_tests.skipped)} skipped" if result_of_tests.skipped else ""
    print(f"{result_of_tests.testsRun - failures - len(result_of_tests.skipped)} passed, {failures} failed{skipped}")
    sys.exit(1 if failures else 0)
