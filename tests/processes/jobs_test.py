"""Jobs of real processes: every transport and launcher gives the bits that threads give; a job that is stopped and
resumed ends with the weights of one that was not; what goes wrong is named on every rank, with exit code 1, in seconds."""

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

BIN = Path(sys.argv.pop(1))
JOB, TESSERA, RESNET = BIN / "train_job", BIN / "tessera", BIN / "resnet50_cifar10"
HYBRID, HYBRID_EXAMPLE = BIN / "hybrid_job", BIN / "hybrid_parallel"
STRANGER = 40_000 + os.getpid() % 10_000  # a user who has no other processes: the system counts them together
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def run(command, timeout=120, preexec_fn=None, **environment):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_"))}
    env.update(environment)
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout, env=env,
                          preexec_fn=preexec_fn)
    return done.returncode, done.stdout, done.stderr


def result(output):
    """Losses by step, and the checksum of all values; without the launcher's prefixes."""
    losses = dict(re.findall(r"loss (\d+) (\S+)", output))
    checksums = set(re.findall(r"crc ([0-9a-f]{8})", output))
    return losses, checksums


class Jobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="tessera-jobs."))
        cls.data = cls.folder / "cifar"
        code, out, err = run([RESNET, "--make_data", cls.data, "--train_records", 320, "--test_records", 40])
        assert code == 0, out + err

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def job(self, *arguments, launcher=(), **environment):
        code, out, err = run([*launcher, JOB, "--data_path", self.data, *arguments], **environment)
        self.assertEqual(code, 0, out + err)
        return result(out)

    def refused(self, command, *patterns, limit_s=30, code=1, **environment):
        start = time.monotonic()
        got, out, err = run(command, **environment)
        self.assertEqual(got, code, out + err)
        for pattern in patterns:
            self.assertRegex(out + err, pattern)
        self.assertLess(time.monotonic() - start, limit_s)
        return out + err


class Limits(unittest.TestCase):
    """A job where the system gives less than usual."""

    def limited(self, limits, *command):
        return run(["bash", "-c", f'ulimit {limits}; exec "$0" "$@"', *command])

    def on_stack(self, kibibytes, *command):
        """With next to no environment, whose size is the machine's matter: it lies on the stack, too."""
        return run(["env", "-i", "PATH=/usr/bin:/bin", "bash", "-c", f'ulimit -s {kibibytes}; exec "$0" "$@"', *command])

    def test_a_job_runs_in_little_address_space(self):
        for launcher in (["-n", 3], ["--threads", 3]):
            with self.subTest(launcher=launcher):
                code, out, err = self.limited("-v 6000000", TESSERA, "run", *launcher, "--num_threads", 1, HYBRID_EXAMPLE)
                self.assertEqual(code, 0, out + err)
                self.assertEqual(len(re.findall(r"SemiAutoParallelNet step \d: loss", out)), 5, out)

    def test_processes_train_alike_however_small_a_file_may_be(self):
        losses = set()
        for limits in ("-f unlimited", "-f 200000", "-f 1024"):
            with self.subTest(limits=limits):
                code, out, err = self.limited(limits, TESSERA, "run", "-n", 2, "--num_threads", 1, HYBRID_EXAMPLE)
                self.assertEqual(code, 0, out + err)
                losses.add(tuple(re.findall(r"SemiAutoParallelNet step \d: loss (\S+)", out)))
                self.assertEqual("ulimit -f unlimited avoids that" in err, limits != "-f unlimited", err)
        self.assertEqual(len(losses), 1, losses)
        self.assertEqual(len(losses.pop()), 5)

    def test_a_job_runs_on_small_stacks(self):
        for launcher in (["-n", 2], ["--threads", 2]):
            with self.subTest(launcher=launcher):
                code, out, err = self.on_stack(40, TESSERA, "run", *launcher, "--num_threads", 2, HYBRID_EXAMPLE)
                self.assertEqual(code, 0, out + err)

    def test_a_rank_that_may_have_had_too_small_a_stack_is_said_so(self):
        for limit, said in ((40, True), (8192, False)):
            code, out, err = self.on_stack(limit, TESSERA, "run", "-n", 2, "bash", "-c", "kill -SEGV $$")
            self.assertEqual(code, 1, out + err)
            self.assertIn("killed by signal SIGSEGV", err)
            self.assertEqual("likely for want of stack, of which `ulimit -s` leaves it 40 KiB" in err, said, err)

    def test_ranks_that_there_is_no_room_for_are_refused_before_any_begins(self):
        code, out, err = self.limited("-v 1500000", TESSERA, "run", "--threads", 500, HYBRID_EXAMPLE)
        self.assertEqual(code, 1, out + err)
        self.assertRegex(err, r"error: cannot start a thread for rank \d+ of 500: .*; limits: .*of address space \(ulimit -v\)")
        self.assertEqual(out, "")

    @unittest.skipUnless(os.getuid() == 0, "only root, whom no such limit binds, can be another user")
    def test_however_few_processes_a_user_may_have_a_job_trains_or_says_what_it_lacks(self):
        """Threads count, too. What stands between is OpenMP's own end of the process, in its words."""
        ended = {}
        for launcher in (["-n", 2], ["--threads", 2], ["-n", 2, "--transport", "gloo"], ["-n", 2, "--transport", "tls"]):
            for limit in (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 40):
                with self.subTest(launcher=launcher, limit=limit):
                    code, out, err = run([TESSERA, "run", *launcher, "--num_threads", 2, HYBRID_EXAMPLE],
                                         preexec_fn=lambda limit=limit: as_stranger_with(limit))
                    ended.setdefault(code, []).append(limit)
                    self.assertIn(code, (0, 1), out + err)
                    self.assertNotRegex(out + err, "terminate called|core dumped|Segmentation|killed by signal")
                    if code == 1:
                        self.assertRegex(err, r"ulimit -u\)|libgomp: Thread creation failed")
        self.assertTrue({0, 1} <= set(ended), ended)
        self.assertEqual(ended[0].count(40), 4, ended)


def as_stranger_with(num_processes):
    resource.setrlimit(resource.RLIMIT_NPROC, (num_processes, num_processes))
    os.setgroups([])
    os.setgid(STRANGER)
    os.setuid(STRANGER)


class HandWrittenNetworks(unittest.TestCase):
    def test_slices_combined_by_hand_and_by_strategies_equal_one_device(self):
        for count in (2, 4):
            for launcher in (["--threads", count], ["-n", count], ["-n", count, "--transport", "gloo"], ["-n", count, "--transport", "tls"]):
                with self.subTest(launcher=launcher):
                    code, out, err = run([TESSERA, "run", *launcher, HYBRID])
                    self.assertEqual(code, 0, out + err)
                    # Five networks, two dtypes, every rank.
                    self.assertEqual(len(re.findall(rf"rank \d of {count}: equal", out)), 10 * count, out)

    def test_the_example_prints_the_same_losses_on_any_number_of_ranks(self):
        printed = []
        for launcher in ([], [TESSERA, "run", "-n", 2], [TESSERA, "run", "-n", 4]):
            code, out, err = run([*launcher, HYBRID_EXAMPLE])
            self.assertEqual(code, 0, out + err)
            for network in ("HybridParallelNet", "SemiAutoParallelNet"):
                losses = [float(loss) for loss in re.findall(rf"{network} step \d: loss (\S+)", out)]
                self.assertEqual(len(losses), 5, out)
                printed.append(losses)
        for losses in printed:
            for loss, first in zip(losses, printed[0]):
                self.assertAlmostEqual(loss / first, 1, delta=1e-4)


class Transports(Jobs):
    def test_four_processes_equal_four_threads_bit_for_bit(self):
        for network, extra in (("small", []), ("lenet5", ["--f64", "--reference"])):
            arguments = ["--network", network, "--steps", 5, *extra]
            threads = self.job(*arguments, launcher=[TESSERA, "run", "--threads", 4])
            self.assertEqual(len(threads[0]), 5)
            self.assertEqual(len(threads[1]), 1, "the ranks end with different values")
            rows = {
                "tessera run, shared memory": dict(launcher=[TESSERA, "run", "-n", 4]),
                "tessera run, tls": dict(launcher=[TESSERA, "run", "-n", 4, "--transport", "tls"]),
                "tessera run, gloo": dict(launcher=[TESSERA, "run", "-n", 4, "--transport", "gloo"]),
                "mpirun, shared memory": dict(launcher=[*MPIRUN, "-n", 4]),
                "mpirun, tls": dict(launcher=[*MPIRUN, "-n", 4, "-x", "TESSERA_TRANSPORT=tls"]),
                "mpirun, gloo": dict(launcher=[*MPIRUN, "-n", 4, "-x", "TESSERA_TRANSPORT=gloo"]),
                "mpirun, mpi": dict(launcher=[*MPIRUN, "-n", 4, "-x", "TESSERA_TRANSPORT=mpi"]),
            }
            for name, how in rows.items():
                with self.subTest(network=network, transport=name):
                    self.assertEqual(self.job(*arguments, **how), threads)

    def test_local_batch_statistics_are_those_of_each_ranks_rows(self):
        threads = self.job("--batch_norm", "local", "--steps", 4, launcher=[TESSERA, "run", "--threads", 3])
        processes = self.job("--batch_norm", "local", "--steps", 4, launcher=[TESSERA, "run", "-n", 3])
        self.assertEqual(threads, processes)
        shared = self.job("--steps", 4, launcher=[TESSERA, "run", "--threads", 3])
        self.assertNotEqual(threads[0], shared[0])

    def test_memory_of_its_own_for_every_value_gives_equal_bits(self):
        # Nothing fused there: f64 is never fused, so only planning differs.
        arguments = ["--f64", "--steps", 4]
        self.assertEqual(self.job(*arguments, "--debug"), self.job(*arguments))

    def test_rows_of_servers_are_the_same_whoever_reaches_whose_memory(self):
        arguments = ["--network", "lookup_on_servers", "--steps", 6]
        alone = self.job(*arguments, launcher=[TESSERA, "run", "--servers", 1, "-n", 2])
        for limits in ("-f 200000", "-f 1024"):
            with self.subTest(limits=limits):
                within = ["bash", "-c", f'ulimit {limits}; exec "$0" "$@"', TESSERA, "run", "--servers", 1, "-n", 2]
                self.assertEqual(self.job(*arguments, launcher=within), alone)
        spilling = [*arguments, "--server_memory_limit", 10000]
        self.assertEqual(self.job(*spilling, launcher=[TESSERA, "run", "--servers", 1, "-n", 2]), alone)


class Resume(Jobs):
    def test_stopped_and_resumed_equals_straight(self):
        for name, launcher in (("one", []), ("three", [TESSERA, "run", "-n", 3])):
            for stop in (5, 10, 13):
                with self.subTest(ranks=name, stop=stop):
                    common = ["--steps", 10, "--epochs", 2]
                    straight = self.job(*common, launcher=launcher)
                    folder = self.folder / f"resume-{name}-{stop}"
                    first = self.job(*common, "--stop_after", stop, "--checkpoint_dir", folder, launcher=launcher)
                    checkpoint = next(folder.glob("*.ckpt"))
                    second = self.job(*common, "--resume", checkpoint, launcher=launcher)
                    self.assertEqual({**first[0], **second[0]}, straight[0])
                    self.assertEqual(second[1], straight[1])

    def test_local_statistics_resume_too(self):
        launcher = [TESSERA, "run", "-n", 2]
        common = ["--steps", 8, "--batch_norm", "local"]
        straight = self.job(*common, launcher=launcher)
        folder = self.folder / "resume-local"
        self.job(*common, "--stop_after", 4, "--checkpoint_dir", folder, launcher=launcher)
        second = self.job(*common, "--resume", next(folder.glob("*.ckpt")), launcher=launcher)
        self.assertEqual(second[1], straight[1])


    def test_slices_saved_in_the_background_go_on_with_other_ranks_and_transports(self):
        common = ["--steps", 8, "--f64", "--reference", "--shards"]
        saving = ["--slices", "--async_save", "--save_steps", 1]
        straight = self.job(*common)
        launchers = {"memory": [TESSERA, "run", "-n", 4], "gloo": [TESSERA, "run", "-n", 4, "--transport", "gloo"],
                     "tls": [TESSERA, "run", "-n", 4, "--transport", "tls"],
                     "mpi": [*MPIRUN, "-n", 4, "-x", "TESSERA_TRANSPORT=mpi"]}
        for name, launcher in launchers.items():
            with self.subTest(transport=name):
                folder = self.folder / f"slices-{name}"
                first = self.job(*common, *saving, "--stop_after", 3, "--checkpoint_dir", folder, launcher=launcher)
                self.assertEqual(len(list(folder.glob("job-1_3.ckpt.rank_*"))), 3)
                self.assertEqual(len(list(folder.glob("*.ckpt"))), 1)
                second = self.job(*common, "--resume", folder, launcher=[TESSERA, "run", "-n", 3])
                losses = {**first[0], **second[0]}
                self.assertEqual(losses.keys(), straight[0].keys())
                for step, loss in straight[0].items():
                    self.assertAlmostEqual(float.fromhex(losses[step]) / float.fromhex(loss), 1, delta=1e-10)

    def test_ranks_killed_while_slices_are_saved_leave_a_checkpoint_to_go_on_from(self):
        common = ["--data_path", self.data, "--steps", 8, "--shards"]
        for step in (3, 4, 5, 6):
            with self.subTest(killed_before=step):
                folder = self.folder / f"killed-{step}"
                self.refused([TESSERA, "run", "-n", 3, JOB, *common, "--slices", "--async_save", "--save_steps", 1,
                              "--checkpoint_dir", folder, "--kill_rank", 1, "--kill_step", step], "rank 1", limit_s=300)
                code, out, err = run([TESSERA, "run", "-n", 2, JOB, *common, "--resume", folder])
                self.assertEqual(code, 0, out + err)
                # Step K-1 was done, and its save begun; that of K-2 was complete before.
                self.assertIn(int(re.search(r"loss (\d+)", out)[1]), (step - 1, step))


class BadInput(Jobs):
    def test_missing_data(self):
        self.refused([TESSERA, "run", "-n", 2, JOB, "--data_path", self.folder / "nowhere"], "nowhere")

    def test_truncated_data_names_file_and_size(self):
        broken = self.folder / "broken"
        shutil.copytree(self.data, broken, dirs_exist_ok=True)
        with open(broken / "data_batch_2.bin", "ab") as file:
            file.truncate(3073 * 10 + 5)
        self.refused([TESSERA, "run", "-n", 2, JOB, "--data_path", broken], r"data_batch_2\.bin", "30735", "3073")

    def test_a_loss_that_is_not_finite_names_step_and_operator_and_saves_nothing(self):
        folder = self.folder / "nan"
        for launcher in ([], [TESSERA, "run", "-n", 2]):
            text = self.refused([*launcher, JOB, "--data_path", self.data, "--learning_rate", "1e30", "--checkpoint_dir",
                                 folder, "--save_steps", 1000], r"epoch: 1 step: \d+\. Invalid loss",
                                "first non-finite result: ", "parameters are those before the step")
            self.assertFalse(list(folder.glob("*.ckpt")), text)

    def test_a_killed_rank_ends_the_job_with_its_name(self):
        for launcher in ([TESSERA, "run", "-n", 3], *([TESSERA, "run", "-n", 3, "--transport", transport] for transport in ("tls", "gloo"))):
            self.refused([*launcher, JOB, "--data_path", self.data, "--kill_rank", 1, "--kill_step", 3], "rank 1", "SIGKILL|signal 9|Killed")

    def test_world_size_0(self):
        self.refused([TESSERA, "run", "-n", 0, JOB, "--data_path", self.data], r"must be from 1 to \d+, got 0", code=2)

    def test_a_program_that_does_not_exist(self):
        self.refused([TESSERA, "run", "-n", 2, "no-such-program"], "no-such-program")

    def test_a_checkpoint_of_another_network_lists_names(self):
        folder = self.folder / "other"
        self.job("--network", "lenet5", "--steps", 1, "--checkpoint_dir", folder)
        checkpoint = next(folder.glob("*.ckpt"))
        self.refused([TESSERA, "run", "-n", 2, JOB, "--data_path", self.data, "--resume", checkpoint], "missing",
                     r"norm\.gamma", "unexpected", r"conv2\.weight", r"conv\.weight|conv1\.weight")

    def test_a_damaged_checkpoint_is_refused(self):
        folder = self.folder / "damaged"
        self.job("--steps", 1, "--checkpoint_dir", folder)
        checkpoint = next(folder.glob("*.ckpt"))
        content = bytearray(checkpoint.read_bytes())
        content[len(content) // 2] ^= 1
        checkpoint.chmod(0o644)
        checkpoint.write_bytes(content)
        self.refused([JOB, "--data_path", self.data, "--resume", checkpoint], checkpoint.name)
        code, out, err = run([TESSERA, "ckpt", "inspect", checkpoint])
        self.assertEqual(code, 1, out)

    def test_unknown_model_and_stage(self):
        self.refused([TESSERA, "graph", "resnet51"], "resnet50", code=2)
        self.refused([TESSERA, "graph", "mlp", "--stage", "nowhere"], "logical", code=2)

    def test_an_option_that_a_program_does_not_know(self):
        programs = [RESNET, BIN / "transformer_wmt14", BIN / "wide_deep"]
        for program in programs:
            self.refused([program, "--batchsize", 1], r"error: unknown option --batchsize; did you mean --batch_size\?", code=2)
        for name in ("language_model", "custom_operator", "custom_data_set", "fine_tune"):
            self.refused([BIN / name, "--batchsize", 1], r"error: .*--batchsize", code=2)
            code, out, err = run([BIN / name, "--help"])
            self.assertEqual((code, err), (0, ""))
            self.assertIn("Usage:", out)

    def test_a_data_set_smaller_than_a_batch(self):
        self.refused([JOB, "--data_path", self.data, "--batch_size", 1000], "batch|rows|images")


class Commands(Jobs):
    def test_graph_text_of_a_program_is_read_back(self):
        path = self.folder / "step.graph"
        code, out, err = run([RESNET, "--data_path", self.data, "--batch_size", 8, "--save_graph", path])
        self.assertEqual(code, 0, out + err)
        code, out, err = run([TESSERA, "graph", path])
        self.assertEqual(out, path.read_text())
        for stage, rank in (("plan", []), ("local", ["--rank", 1]), ("schedule", ["--rank", 1])):
            code, out, err = run([TESSERA, "graph", path, "--ranks", 4, *rank, "--stage", stage])
            self.assertEqual(code, 0, out + err)
            self.assertIn("data" if stage != "schedule" else "all_reduce.start", out)

    def test_info_and_help(self):
        code, out, _ = run([TESSERA, "info", "--json"])
        self.assertEqual(code, 0)
        self.assertIn('"onednn"', out)
        for words in (["--help"], ["run", "--help"], ["graph", "--help"], ["ckpt", "inspect", "--help"]):
            code, out, _ = run([TESSERA, *words])
            self.assertEqual(code, 0)
            self.assertGreater(len(out), 200)

    def test_loss_lines_have_the_documented_form(self):
        code, out, err = run([TESSERA, "run", "-n", 2, RESNET, "--data_path", self.data, "--steps", 2, "--epochs", 1,
                              "--batch_size", 8, "--print_loss", 1, "--no_progress", "--initial_values", "reference",
                              "--learning_rate", 0.01], timeout=300)
        self.assertEqual(code, 0, out + err)
        lines = re.findall(r"epoch: 1 step: \d+, loss is [0-9.e+-]+", out)
        self.assertEqual(len(lines), 4, out)  # both ranks print
        self.assertRegex(lines[0], r"loss is 2\.3")


del Jobs  # has no tests of its own


if __name__ == "__main__":
    unittest.main(verbosity=2)
