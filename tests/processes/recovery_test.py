"""A job that loses ranks goes on: its losses and its values are, bit by bit, those of a job that lost none. Ranks are killed inside
their steps and from outside, launchers and the scheduler, too."""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "python"))
from ports import free_port  # noqa: E402

BIN = Path(sys.argv.pop(1))
JOB, TESSERA, RESNET = BIN / "train_job", BIN / "tessera", BIN / "resnet50_cifar10"
LIMIT_S = 120
# A job to which something is done from outside ends by a word from outside, too (--stop_file): however slow the machine is, it is not over before that.
ENDLESS = ("--steps", 10, "--epochs", 1_000_000)
# Not much is done again where such a job is compared, however fast the machine is.
PACED = ("--slow_rank", 0, "--slow_ms", 20)


def environment(**variables):
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "MS_"))}
    return inherited | {"OMP_WAIT_POLICY": "PASSIVE", "TESSERA_NUM_THREADS": "1"} | {k: str(v) for k, v in variables.items()}


def start(command, **variables):
    return subprocess.Popen([str(word) for word in command], env=environment(**variables), stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def run(command, **variables):
    process = start(command, **variables)
    try:
        out = process.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"{command} hangs: {process.communicate()[0]}") from None
    return process.returncode, out


def rest_of(process):
    """What a process still writes until it ends. communicate(timeout=...) would leave out what readline() has read ahead."""
    watchdog = threading.Timer(LIMIT_S, process.kill)
    watchdog.start()
    try:
        out = process.stdout.read()
        process.wait()
    finally:
        watchdog.cancel()
    return out


def losses_of(out):
    """The losses by step. A step that was repeated has repeated its bits."""
    found = {}
    for step, loss in re.findall(r"loss (\d+) (\S+)", out):
        assert found.setdefault(int(step), loss) == loss, f"step {step} has two losses: {out}"
    return found


def steps_of(out):
    return {int(step) for step in re.findall(r"loss (\d+) ", out)}


def checksums_of(out):
    return set(re.findall(r"crc ([0-9a-f]{8})", out))


def result(out):
    return losses_of(out), checksums_of(out)


def lines_of(process, are_enough, what):
    """The lines that a process writes until they are enough; `are_enough` is asked of all of them after each one."""
    lines = []
    while not are_enough("".join(lines)):
        lines.append(process.stdout.readline())
        if not lines[-1]:
            raise AssertionError(f"{what}: the process has ended: {''.join(lines)}")
    return "".join(lines)


def eventually(holds, what, limit_s=60):
    end = time.monotonic() + limit_s
    while not (value := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {limit_s} s")
        time.sleep(0.005)
    return value


def may_have_disks():
    mounts = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    return os.getuid() == 0 and subprocess.run(mounts, capture_output=True).returncode == 0


def children_of(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, task.read_text().split())
    return found


def ranks_of(launcher):
    """The processes of a launcher's ranks, by TESSERA_RANK."""
    ranks = {}
    for guard in children_of(launcher.pid):
        for child in children_of(guard):
            try:
                variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            for variable in variables:
                if variable.startswith(b"TESSERA_RANK="):
                    ranks[int(variable[13:])] = child
    return ranks


class Recovery(unittest.TestCase):
    servers = 0  # of the ranks, those that keep parameters

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="tessera-recovery."))
        cls.data = cls.folder / "cifar"
        code, out = run([RESNET, "--make_data", cls.data, "--train_records", 320, "--test_records", 40])
        assert code == 0, out
        cls.known = {}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def job(self, *arguments):
        return [JOB, "--data_path", self.data, *arguments]

    def undisturbed(self, ranks, *arguments):
        key = (ranks, arguments)
        if key not in self.known:
            code, out = run([TESSERA, "run", "-n", ranks - self.servers, *self.with_servers(self.servers), *self.job(*arguments)])
            self.assertEqual(code, 0, out)
            self.known[key] = self.result_of(out)
        return self.known[key]

    @staticmethod
    def with_servers(servers):
        return ["--servers", servers] if servers > 0 else []

    def result_of(self, out):
        return result(out)

    def assert_undisturbed(self, out, ranks, *arguments):
        """Where a job is to stop by a word from outside. A loss may stand there of a step that a rank made, which was lost, and that
        was not made again because the word had come: the checksums are of the step that the job stopped after."""
        losses, checksums = result(out)
        (ended,) = set(map(int, re.findall(r"crc \w+ after step (\d+)", out)))
        self.assertGreater(ended, 0, out)
        self.assertEqual(losses, self.undisturbed(ranks, *arguments, "--stop_after", max(losses))[0], out)
        self.assertEqual(checksums, self.undisturbed(ranks, *arguments, "--stop_after", ended)[1], out)

    def once(self):
        return self.folder / secrets.token_hex(8)

    def endless(self, *arguments, pace=PACED):
        """What a job has that goes on until `over` is there; assert_undisturbed() compares it with one of ENDLESS and these arguments."""
        self.over = self.once()
        return (*ENDLESS, *arguments, *pace, "--stop_file", self.over)


class OnOneHost(Recovery):
    def goes_on(self, ranks, *arguments, killed=(1, 4), restarts=1, variables=None, says=r"rank \d: killed by signal SIGKILL; the job goes on, starting it again \(1 of \d+ losses"):
        straight = self.undisturbed(ranks, *arguments)
        code, out = run([TESSERA, "run", "-n", ranks, "--max_restarts", restarts,
                         *self.job(*arguments, "--kill_rank", killed[0], "--kill_step", killed[1], "--kill_once", self.once())],
                        **(variables or {}))
        self.assertEqual(code, 0, out)
        self.assertRegex(out, says)
        self.assertEqual(result(out), straight, out)
        return out

    def test_F01_any_rank_may_be_killed_in_any_step(self):
        for rank, step in ((1, 1), (0, 2), (2, 5), (0, 8), (1, 10)):
            with self.subTest(rank=rank, step=step):
                self.goes_on(3, "--steps", 10, killed=(rank, step))

    def test_no_step_is_lost_and_none_is_repeated_but_the_last_of_an_epoch(self):
        out = self.goes_on(2, "--steps", 8, killed=(1, 6), variables={"TESSERA_KEEP_STEPS": 1})
        self.assertEqual([int(step) for step in re.findall(r"loss (\d+) ", out)], list(range(1, 9)), out)

    def test_ranks_that_would_keep_other_steps_are_refused(self):
        code, out = run([TESSERA, "run", "-n", 2, "--max_restarts", 1, "sh", "-c", 'TESSERA_KEEP_STEPS=$((2 * RANK_ID + 1)) exec "$@"', "sh",
                         *self.job("--steps", 4)])
        self.assertEqual(code, 1, out)
        self.assertIn("TESSERA_KEEP_STEPS is 3 on one rank and 1 on another: give it to all ranks alike", out)

    def test_steps_that_it_costs_too_much_to_keep_are_made_again(self):
        # A step takes less than a hundred copies; the first four are kept to see what that takes.
        out = self.goes_on(2, "--network", "wide", "--learning_rate", 0.001, "--steps", 12, killed=(1, 8))
        self.assertEqual([int(step) for step in re.findall(r"loss (\d+) ", out)], [*range(1, 8), *range(5, 13)], out)

    def test_no_step_is_lost_where_a_rank_is_killed_while_it_copies_the_one_before(self):
        # So many values are copied beside the next step, and rank 1 is killed where that begins.
        arguments = ("--network", "wide", "--learning_rate", 0.001, "--steps", 4)
        out = self.goes_on(2, *arguments, killed=(1, 3))
        self.assertEqual([int(step) for step in re.findall(r"loss (\d+) ", out)], [1, 2, 3, 4], out)

    def test_the_second_epoch_goes_on_where_its_data_stood(self):
        self.goes_on(2, "--steps", 6, "--epochs", 2, killed=(1, 9))
        self.goes_on(2, "--steps", 6, "--epochs", 2, killed=(0, 7))

    def test_statistics_of_its_own_and_slices_of_the_optimizer_come_back(self):
        self.goes_on(2, "--steps", 8, "--batch_norm", "local", killed=(1, 5))
        self.goes_on(3, "--steps", 8, "--shards", killed=(0, 6))

    def test_steps_that_were_not_kept_are_repeated_with_their_bits(self):
        straight = self.undisturbed(2, "--steps", 10)
        code, out = run([TESSERA, "run", "-n", 2, "--max_restarts", 1,
                         *self.job("--steps", 10, "--kill_rank", 0, "--kill_step", 7, "--kill_once", self.once())], TESSERA_KEEP_STEPS=4)
        self.assertEqual(code, 0, out)
        self.assertEqual([int(step) for step in re.findall(r"loss (\d+) ", out)], [1, 2, 3, 4, 5, 6, 5, 6, 7, 8, 9, 10], out)
        self.assertEqual(result(out), straight, out)

    def test_a_seed_that_is_drawn_is_drawn_once(self):
        code, out = run([TESSERA, "run", "-n", 2, "--max_restarts", 1, *self.job("--steps", 8, "--draws_seed"),
                         "--kill_rank", 0, "--kill_step", 4, "--kill_once", self.once()])
        self.assertEqual(code, 0, out)
        seeds = re.findall(r"\[0\] seed (\d+)", out)
        self.assertEqual(len(set(seeds)), 2, out)
        self.assertEqual(result(out), self.undisturbed(2, "--steps", 8, "--seed", seeds[0]), out)

    def test_what_a_search_has_found_is_not_searched_for_again(self):
        for arguments, found in (("--automatic",), "] auto_parallel: "), (("--automatic", "--stages", 2), "cut into 2 stages"):
            with self.subTest(arguments):
                code, straight = run([TESSERA, "run", "-n", 2, *self.job("--steps", 8, *arguments)])
                self.assertEqual(code, 0, straight)
                code, out = run([TESSERA, "run", "-n", 2, "--max_restarts", 2,
                                 *self.job("--steps", 8, *arguments, "--kill_rank", 1, "--kill_step", 4, "--kill_once", self.once())], TESSERA_LOG_LEVEL="info")
                self.assertEqual(code, 0, out)
                self.assertIn("the job goes on", out)
                self.assertEqual(out.count(found), 1, out)
                self.assertEqual(result(out), result(straight), out)

    def test_a_rank_of_unequal_stages_comes_back(self):
        arguments = ("--network", "small_in_stages", "--steps", 8, "--stage_ranks", "3,1")
        self.goes_on(4, *arguments, killed=(1, 4))
        self.goes_on(4, *arguments, killed=(3, 6))

    def test_one_rank_goes_on_as_well(self):
        self.goes_on(1, "--steps", 8, killed=(0, 5))

    def test_data_that_sinks_goes_on_from_a_whole_loop(self):
        self.goes_on(2, "--steps", 6, "--epochs", 3, "--sink", killed=(1, 7))

    def test_F13_a_rank_that_always_fails_ends_the_job_with_its_number(self):
        code, out = run([TESSERA, "run", "-n", 2, "--max_restarts", 2, *self.job("--steps", 8, "--kill_rank", 1, "--kill_step", 3)])
        self.assertEqual(code, 1, out)
        self.assertEqual(len(re.findall(r"starting it again", out)), 2, out)
        self.assertRegex(out, "tessera run: rank 1 failed: killed by signal SIGKILL")

    def test_what_the_others_have_kept_when_no_restart_is_left_is_saved_and_a_job_goes_on_from_there(self):
        saved = self.once()
        code, out = run([TESSERA, "run", "-n", 3, "--max_restarts", 1,
                         *self.job("--steps", 10, "--checkpoint_dir", saved, "--save_steps", 100, "--kill_rank", 1, "--kill_step", 5)])
        self.assertEqual(code, 1, out)
        self.assertEqual(out.count("starting it again"), 1, out)
        words = re.search(r"\(rank 1 at [^\n]*\) is lost: killed by signal SIGKILL; the ranks that are left have saved what was kept, after epoch 1, step 4, "
                          rf"as ({saved}/\S+\.ckpt); start the job again with resume=\"auto\"", out)
        self.assertIsNotNone(words, out)
        self.assertEqual([path.name for path in saved.glob("*.ckpt")], [Path(words[1]).name], out)
        # One story, from the loss to the end.
        self.assertIn("tessera run: the job cannot go on without rank 1: killed by signal SIGKILL; the ranks that are left save what they have kept, and the job "
                      "ends\n", out)
        self.assertNotIn("the job goes on without", out)
        self.assertRegex(out, r"tessera run: the job has failed: [^\n]*\(rank 1 at [^\n]*\) is lost: killed by signal SIGKILL\n")
        self.assertNotIn("failed: exit code", out)
        code, out = run([TESSERA, "run", "-n", 3, *self.job("--steps", 10, "--resume", words[1])])
        self.assertEqual(code, 0, out)
        losses, checksums = self.undisturbed(3, "--steps", 10)
        self.assertEqual(result(out), ({step: loss for step, loss in losses.items() if step > 4}, checksums), out)

    def test_a_job_that_a_loss_ends_has_failed_whatever_its_last_ranks_end_with(self):
        saved = self.once()
        script = '[ $RANK_ID != 1 ] || exec "$@"; "$@"; exit 0'
        code, out = run([TESSERA, "run", "-n", 2, "--max_restarts", 1, "sh", "-c", script, "sh",
                         *self.job("--steps", 10, "--checkpoint_dir", saved, "--kill_rank", 1, "--kill_step", 5)])
        self.assertEqual(code, 1, out)
        self.assertRegex(out, r"tessera run: .* is lost: killed by signal SIGKILL; the rank that is left has saved what was kept, after epoch 1, step 4, as")

    def test_why_nothing_is_saved_where_no_restart_is_left_is_said_at_the_end(self):
        code, out = run([TESSERA, "run", "-n", 2, "--max_restarts", 1, *self.job("--steps", 10, "--kill_rank", 1, "--kill_step", 5)])
        self.assertEqual(code, 1, out)
        self.assertRegex(out, "tessera run: the scheduler has ended the job: .*killed by signal SIGKILL; what the ranks that are left have kept is not saved: "
                              "no ModelCheckpoint is among the callbacks: add one")

    def test_what_the_others_have_kept_is_saved_however_long_they_take_when_a_rank_is_not_started_again(self):
        saved, started = self.once(), self.once()
        script = f'if [ $RANK_ID = 1 ] && [ -e {started} ]; then echo no such option >&2; exit 2; fi; [ $RANK_ID != 1 ] || touch {started}; exec "$@"'
        # Longer than ranks have that end by themselves.
        code, out = run([TESSERA, "run", "-n", 2, "--max_restarts", 3, "sh", "-c", script, "sh",
                         *self.job("--steps", 10, "--checkpoint_dir", saved, "--kill_rank", 1, "--kill_step", 5, "--anew_ms", 6500)])
        self.assertNotEqual(code, 0, out)
        self.assertRegex(out, r"what it was started with is wrong.*; the rank that is left has saved what was kept, after epoch 1, step 4, as")
        self.assertEqual(len(list(saved.glob("*.ckpt"))), 1, out)

    def test_a_rank_that_fails_by_itself_says_why_and_is_one_loss(self):
        out = self.goes_on(3, "--steps", 10, "--throws", killed=(1, 4), says=r"rank 1: exit code 1: the step was told to fail; the job goes on, starting it again \(1 of 1 losses")
        self.assertIn("error: the step was told to fail", out)
        code, out = run([TESSERA, "run", "-n", 2, "--max_restarts", 2, *self.job("--steps", 8, "--kill_rank", 1, "--kill_step", 3, "--throws")])
        self.assertEqual(code, 1, out)
        self.assertEqual(len(re.findall(r"starting it again", out)), 2, out)
        self.assertIn("tessera run: rank 1 failed: exit code 1", out)

    def test_a_mistake_is_not_made_for_as_often_as_restarts_are_left(self):
        def started(script):
            return run([TESSERA, "run", "-n", 2, "--max_restarts", 9, "sh", "-c", f'if [ $RANK_ID = 1 ]; then {script}; fi; exec "$@"', "sh",
                        *self.job("--steps", 8)])
        code, out = started("echo no such data >&2; exit 1")
        self.assertEqual(code, 1, out)
        self.assertEqual(out.count("starting it again"), 1, out)
        self.assertIn("tessera run: rank 1 has failed in the same way twice, before its first step, and is not started again: exit code 1: no such data", out)
        code, out = started("echo no such option >&2; exit 2")
        self.assertEqual(code, 2, out)
        self.assertNotIn("starting it again", out)
        # What differs from one time to the next may be over the next time.
        count = self.once()
        code, out = started(f"echo x >> {count}; if [ $(wc -l < {count}) -lt 4 ]; then wc -l < {count} >&2; exit 1; fi")
        self.assertEqual(code, 0, out)
        self.assertEqual(out.count("starting it again"), 3, out)

    def test_who_reads_no_more_holds_up_neither_the_restart_nor_the_end(self):
        starts = self.once()
        starts.mkdir()
        # As much as the pipes and the launcher take.
        program = f"head -c 170000 /dev/zero | tr '\\0' y | fold -w 1000; touch {starts}/$$; exec sleep 1000"
        launcher = start([TESSERA, "run", "-n", 1, "--max_restarts", 3, "sh", "-c", program])
        self.addCleanup(launcher.kill)
        eventually(lambda: len(list(starts.iterdir())) == 1, "the rank has written")
        os.kill(ranks_of(launcher)[0], signal.SIGKILL)
        another = eventually(lambda: (found := ranks_of(launcher)) and str(found[0]) not in [p.name for p in starts.iterdir()] and found[0], "another process", 20)
        launcher.send_signal(signal.SIGTERM)
        self.assertEqual(launcher.wait(20), 143)
        self.assertFalse(Path(f"/proc/{another}").exists())
        launcher.stdout.close()

    def test_what_the_command_line_says_wrongly_is_not_tried_again(self):
        code, out = run([TESSERA, "run", "-n", 2, "--max_restarts", 2, "python3", "-c", "import sys; sys.exit(2)"])
        self.assertEqual(code, 2, out)
        self.assertNotIn("again", out)
        code, out = run([TESSERA, "run", "--threads", 2, "--max_restarts", 2, *self.job("--steps", 2)])
        self.assertEqual(code, 2, out)

    def test_sockets_connect_the_ranks_of_the_next_generation_as_well(self):
        straight = self.undisturbed(3, "--steps", 8)
        for transport in ("tls", "gloo"):
            with self.subTest(transport=transport):
                code, out = run([TESSERA, "run", "-n", 3, "--max_restarts", 1, "--transport", transport,
                                 *self.job("--steps", 8, "--kill_rank", 0, "--kill_step", 5, "--kill_once", self.once())])
                self.assertEqual(code, 0, out)
                self.assertEqual(result(out), straight, out)

    def test_a_job_with_servers_goes_on_whoever_is_lost(self):
        arguments = ("--network", "small_on_servers", "--steps", 10)
        code, out = run([TESSERA, "run", "-n", 2, "--servers", 2, *self.job(*arguments)])
        self.assertEqual(code, 0, out)
        straight = result(out)
        self.assertEqual(len(straight[0]), 10, out)
        for rank, step in ((0, 4), (1, 10), (3, 6)):
            with self.subTest(rank=rank, step=step):
                code, out = run([TESSERA, "run", "-n", 2, "--servers", 2, "--max_restarts", 1,
                                 *self.job(*arguments, "--kill_rank", rank, "--kill_step", step, "--kill_once", self.once())])
                self.assertEqual(code, 0, out)
                self.assertIn("the job goes on", out)
                self.assertEqual(result(out), straight, out)

    def test_F16_a_rank_that_is_told_to_end_saves_with_the_others_leaves_and_is_started_again(self):
        saved = self.once()
        launcher = start([TESSERA, "run", "-n", 3, "--max_restarts", 5, *self.job(*self.endless("--checkpoint_dir", saved, "--save_steps", 100_000))])
        self.addCleanup(launcher.kill)
        ranks = eventually(lambda: len(found := ranks_of(launcher)) == 3 and found, "the ranks run")
        out = lines_of(launcher, lambda said: 20 in steps_of(said), "step 20")
        os.kill(ranks[1], signal.SIGTERM)
        out += lines_of(launcher, lambda said: "starting it again" in said, "it is started again")
        out += lines_of(launcher, lambda said: len(steps_of(said)) > 10, "the training goes on")
        checkpoints = [path.name for path in saved.glob("*.ckpt")]
        self.over.touch()
        out += rest_of(launcher)
        self.assertEqual(launcher.returncode, 0, out)
        self.assertRegex(out, r"a rank ends by SIGTERM after epoch \d+, step \d+, which is saved as \S+\.ckpt; the training goes on when it is back")
        self.assertRegex(out, r"rank 1: exit code 143: it was told to end, by SIGTERM; the job goes on, starting it again")
        self.assertIn("it was told to end, by SIGTERM", out)
        self.assertEqual(len(checkpoints), 1, out)
        self.assert_undisturbed(out, 3, *ENDLESS)

    @unittest.skipUnless(may_have_disks(), "only root where a process may have mounts of its own can have a disk that is full")
    def test_a_save_on_a_full_disk_is_one_loss_whose_message_names_the_disk(self):
        straight = self.undisturbed(3, "--steps", 8)
        disk, starts = self.once(), self.once()
        disk.mkdir()
        starts.mkdir()
        fills = f'mount -t tmpfs -o size=4m none {disk}; head -c 8M /dev/zero > {disk}/all_of_it 2> {os.devnull}; exec "$@"'
        # A rank that is started again finds room.
        frees = f'if [ -e {starts}/$RANK_ID ]; then rm -f {disk}/all_of_it; fi; touch {starts}/$RANK_ID; exec "$@"'
        code, out = run(["unshare", "-m", "sh", "-c", fills, "sh", TESSERA, "run", "-n", 3, "--max_restarts", 1,
                         "sh", "-c", frees, "sh", *self.job("--steps", 8, "--checkpoint_dir", disk, "--save_steps", 4)])
        self.assertEqual(code, 0, out)
        self.assertRegex(out, r"rank \d: exit code 1: [^\n]*No space left on device[^\n]*; the job goes on, starting it again \(1 of 1 losses")
        self.assertNotIn("(2 of 1", out)
        self.assertEqual(result(out), straight, out)

    def test_without_restarts_a_loss_is_the_end(self):
        code, out = run([TESSERA, "run", "-n", 2, *self.job("--steps", 8, "--kill_rank", 1, "--kill_step", 3)])
        self.assertEqual(code, 1, out)

    def test_a_rank_that_is_stopped_is_replaced(self):
        launcher = start([TESSERA, "run", "-n", 3, "--max_restarts", 5, "--timeout", 5, *self.job(*self.endless())])
        self.addCleanup(launcher.kill)
        ranks = eventually(lambda: len(found := ranks_of(launcher)) == 3 and found, "the ranks run")
        out = lines_of(launcher, lambda said: 20 in steps_of(said), "step 20")
        os.kill(ranks[1], signal.SIGSTOP)
        out += lines_of(launcher, lambda said: "starting it again" in said, "it is replaced")
        out += lines_of(launcher, lambda said: len(steps_of(said)) > 10, "the training goes on")
        self.over.touch()
        out += rest_of(launcher)
        self.assertEqual(launcher.returncode, 0, out)
        self.assertRegex(out, "rank 1 is lost: it has said nothing for")
        self.assert_undisturbed(out, 3, *ENDLESS)

    def test_F39_the_directory_of_checkpoints_is_the_jobs_while_its_ranks_begin_anew(self):
        saved = self.once()
        launcher = start([TESSERA, "run", "-n", 2, "--max_restarts", 5, *self.job(*self.endless(), "--checkpoint_dir", saved, "--save_steps", 1000)])
        self.addCleanup(launcher.kill)
        ranks = eventually(lambda: len(found := ranks_of(launcher)) == 2 and found, "the ranks run")
        out = lines_of(launcher, lambda said: 5 in steps_of(said), "step 5")
        with open(saved / ".tessera-lock") as lock:  # while it is open, no other file has its number
            for generation in (2, 3):
                os.kill(ranks_of(launcher)[1], signal.SIGKILL)
                out += lines_of(launcher, lambda said: "starting it again" in said, "it is replaced")
                out += lines_of(launcher, lambda said: len(steps_of(said)) > 10, "the training goes on")
                self.assertTrue(os.path.samestat(os.fstat(lock.fileno()), os.stat(saved / ".tessera-lock")), out)
                holder = json.loads((saved / ".tessera-lock").read_text())
                self.assertEqual((holder["pid"], holder["generation"], holder["job_generation"]), (ranks[0], 1, generation), out)
        self.over.touch()
        out += rest_of(launcher)
        self.assertEqual(launcher.returncode, 0, out)
        self.assertNotIn("taken over", out)
        self.assertFalse((saved / ".tessera-lock").exists(), out)

    def behind(self, script, *arguments):
        """A shell that runs the script before it becomes the rank."""
        return ["sh", "-c", script + '; exec "$@"', "sh", *self.job(*arguments)]

    def test_F08_a_rank_that_is_stopped_before_it_has_joined_is_replaced(self):
        straight = self.undisturbed(2, "--steps", 8)
        for stops in (1, 2):  # also that which is started in its place
            with self.subTest(stops=stops):
                starts = self.once()
                starts.mkdir()
                stop = f"n=$(ls {starts} | wc -l); if [ $RANK_ID = 1 ] && [ $n -lt {stops} ]; then touch {starts}/$n; kill -STOP $$; fi"
                code, out = run([TESSERA, "run", "-n", 2, "--max_restarts", stops, "--timeout", 5, *self.behind(stop, "--steps", 8)])
                self.assertEqual(code, 0, out)
                said = r"rank 1 is lost: its process has not joined, and has done nothing for \d+ ms; killing it"
                self.assertEqual(len(re.findall(said, out)), stops, out)
                self.assertEqual(len(re.findall("the job goes on, starting it again", out)), stops, out)
                self.assertEqual(result(out), straight, out)

    def test_a_start_that_takes_longer_than_a_silent_rank_has_is_no_loss(self):
        straight = self.undisturbed(2, "--steps", 8)
        works = 'if [ $RANK_ID = 1 ]; then timeout 12 sh -c "while :; do :; done"; fi'
        code, out = run([TESSERA, "run", "-n", 2, "--max_restarts", 1, "--timeout", 5, *self.behind(works, "--steps", 8)])
        self.assertEqual(code, 0, out)
        self.assertNotIn("is lost", out)
        self.assertNotIn("starting it again", out)
        self.assertEqual(result(out), straight, out)


class Scheduled(Recovery):
    """A scheduler and two launchers, of two ranks each."""
    options = {}  # further ones, by process
    ranks_each = 2
    address = "127.0.0.1"  # the scheduler's, a name or a number

    def start_job(self, *arguments, restarts=100, names=("scheduler", "left", "right"), **variables):
        self.arguments, self.variables = arguments, {"TESSERA_TIMEOUT_MS": 20000, **variables}
        self.port, self.state, self.outs, self.logs = free_port(), self.folder / secrets.token_hex(8), [], []
        self.restarts = restarts
        self.addCleanup(self.end_all)
        self.processes = {name: self.start(name) for name in names}

    def start(self, name):
        if name == "scheduler":
            command = [TESSERA, "scheduler", "--workers", 2 * self.ranks_each, "--port", self.port, "--state", self.state,
                       "--max_restarts", self.restarts]
        else:
            # Into files: what ranks have written into the pipe of a launcher that is killed is lost.
            self.logs.append(self.folder / f"{name}.{secrets.token_hex(4)}.log")
            servers = self.servers // 2
            command = [TESSERA, "run", "--join", f"{self.address}:{self.port}", "--node_id", name, "-n", self.ranks_each - servers,
                       *self.with_servers(servers), "--log_dir", self.logs[-1], *self.job(*self.arguments)]
        command[2:2] = self.options.get(name, [])
        command = self.at(name, command)
        output = open(self.folder / f"{name}.{secrets.token_hex(4)}", "w+", encoding="utf-8")
        self.outs.append(output)
        return subprocess.Popen([str(word) for word in command], env=environment(**self.variables), stdout=output, stderr=subprocess.STDOUT)

    def at(self, name, command):
        """The command that runs this one where the process is to be."""
        return command

    def end_all(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
        for out in self.outs:
            out.close()

    def said(self):
        ranks = [path for folder in self.logs for path in folder.glob("rank.*")]
        return "".join(Path(path).read_text() for path in [*ranks, *(out.name for out in self.outs)])

    def after_step(self, step):
        eventually(lambda: step in steps_of(self.said()), f"step {step} is done")

    def last_step(self):
        return max(steps_of(self.said()))

    def goes_on(self, steps=5):
        """Waits until so many more steps are made."""
        self.after_step(self.last_step() + steps)

    def after_words(self, words):
        eventually(lambda: words in self.said(), words)

    def all_end(self):
        for name, process in self.processes.items():
            try:
                self.assertEqual(process.wait(timeout=LIMIT_S), 0, name + self.said())
            except subprocess.TimeoutExpired:
                self.fail(f"{name} hangs: {self.said()}")

    def ends_well(self, straight):
        self.all_end()
        self.assertEqual(result(self.said()), straight, self.said())

    def ends_undisturbed(self, *arguments):
        """For an endless job with these arguments: makes some more steps, and ends like one that nobody has disturbed."""
        self.goes_on()
        self.over.touch()
        self.all_end()
        self.assert_undisturbed(self.said(), 4, *ENDLESS, *arguments)

    def test_a_killed_worker_is_started_again_and_the_others_begin_anew(self):
        self.start_job(*self.endless())
        self.after_step(5)
        os.kill(ranks_of(self.processes["right"])[2], signal.SIGKILL)
        self.after_words("generation 2 begins")
        self.ends_undisturbed()
        self.assertRegex(self.said(), "rank 2: killed by signal SIGKILL; the job goes on")

    def test_the_scheduler_says_who_is_lost_and_when_the_job_goes_on(self):
        self.start_job(*self.endless())
        self.after_step(5)
        os.kill(ranks_of(self.processes["left"])[1], signal.SIGKILL)
        self.after_words("generation 2 begins")
        self.over.touch()
        self.all_end()
        said = [line for line in Path(self.outs[0].name).read_text().splitlines() if "tessera scheduler: " in line]
        for words in ("generation 1 begins: 4 ranks at 1 host", "(rank 1 at ", "is lost: ", "generation 1 has ended (1 of 100 losses that the job survives)",
                      "generation 2 begins: 4 ranks at 1 host", "all workers have ended"):
            self.assertTrue(any(words in line for line in said), f"{words}: {said}")

    def test_the_status_tells_how_far_the_ranks_are(self):
        self.options = {"scheduler": ["--node_timeout", 2]}
        self.start_job(*self.endless())

        def steps():
            code, out = run([TESSERA, "cluster", "status", f"127.0.0.1:{self.port}", "--json"])
            return [node["step"] for node in json.loads(out)["nodes"]] if code == 0 else []

        eventually(lambda: len(found := steps()) == 4 and min(found) > 0, "all ranks have told a step")

    def kill(self, *names):
        for name in names:
            self.processes[name].kill()
            self.processes[name].wait()

    def start_again(self, *names):
        for name in names:
            self.processes[name] = self.start(name)

    def test_F05_a_killed_launcher_comes_back_with_what_the_others_have(self):
        self.start_job(*self.endless())
        self.after_step(15)
        self.kill("left", "scheduler")
        self.start_again("left", "scheduler")
        self.ends_undisturbed()

    def test_F05_of_a_killed_launcher_each_ranks_own_slice_comes_back_from_its_buddy(self):
        for lost in ("left", "right"):
            with self.subTest(lost=lost):
                self.start_job(*self.endless("--shards"), TESSERA_LOG_LEVEL="info")
                for step in (15, 45):
                    self.after_step(step)
                    last = self.last_step()
                    self.kill(lost)
                    self.start_again(lost)
                    # A buddy has a slice of one of the latest steps.
                    eventually(lambda: any(int(step) >= last - 2 for step in re.findall(r"generation \d+: the training goes on after step (\d+)", self.said())),
                               f"the training goes on after step {last - 2} or a later one")
                    self.goes_on()
                self.ends_undisturbed("--shards")
                self.assertEqual(len(re.findall(r"loss 1 ", self.said())), 1, "it has begun from the start")
                self.end_all()

    def test_F05_without_buddies_a_slice_is_lost_with_its_launcher(self):
        self.start_job(*self.endless("--shards"), TESSERA_BUDDIES=0)
        self.after_step(15)
        self.kill("left")
        self.start_again("left")
        eventually(lambda: len(re.findall(r"loss 1 ", self.said())) == 2, "it has begun from the start")
        self.ends_undisturbed("--shards")
        self.assertEqual(len(re.findall(r"loss 1 ", self.said())), 2, self.said())

    def test_a_scheduler_that_dies_at_the_end_and_is_started_again_hears_it_of_the_launchers(self):
        self.start_job(*self.endless())
        self.after_step(5)
        self.kill("scheduler")
        self.over.touch()
        eventually(lambda: self.said().count("all ranks have ended, and the scheduler at") == 2, "both launchers stay")
        self.start_again("scheduler")
        self.all_end()
        self.assertIn("all workers have ended", Path(self.outs[-1].name).read_text())

    def test_F06_when_all_were_killed_the_newest_checkpoint_counts(self):
        self.start_job(*self.endless("--checkpoint_dir", self.folder / "saved", "--save_steps", 4))
        self.after_step(15)
        self.kill(*self.processes)
        self.start_again("left", "scheduler", "right")
        self.ends_undisturbed()
        steps = re.findall(r"loss (\d+) ", self.said())
        self.assertLess(len(steps) - len(set(steps)), 2 * 4 + 4, "it has begun from the start")
        self.assertEqual(len(list((self.folder / "saved").glob("job_*.ckpt"))), 0, "it goes on under one name")


class ByHand(Recovery):
    """A scheduler and workers that no launcher has started."""

    def start_job(self, size, *arguments, **variables):
        self.arguments, self.variables, self.processes = arguments, variables, []
        self.scheduler = self.begin([TESSERA, "scheduler", "--workers", size, "--port", 0, "--max_restarts", 9])
        line = self.scheduler.stdout.readline()
        self.port = re.search(r"listening at 127\.0\.0\.1:(\d+) for", line)[1]
        return [self.start_worker(number) for number in range(size)]

    def begin(self, command, **variables):
        process = start(command, **{**self.variables, **variables})
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def start_worker(self, number):
        return self.begin(self.job(*self.arguments), TESSERA_SCHEDULER=f"127.0.0.1:{self.port}", TESSERA_NODE_ID=f"worker_{number}")

    def lines_until(self, process, step):
        return lines_of(process, lambda said: step in steps_of(said), f"step {step}")

    def generation(self, number):
        """Waits until it begins."""
        lines_of(self.scheduler, lambda said: f"generation {number} begins" in said, f"generation {number}")

    def next_steps(self, process, count):
        return lines_of(process, lambda said: len(steps_of(said)) >= count, f"{count} more steps")

    def ends_undisturbed(self, workers, before):
        """For an endless job, of which `before` is what these workers have said already; all that was said."""
        self.over.touch()
        outs = [rest_of(worker) for worker in workers]
        self.assertEqual([worker.returncode for worker in workers], [0] * len(workers), outs)
        self.assertEqual(self.scheduler.wait(timeout=LIMIT_S), 0, outs)
        self.assert_undisturbed(before + "".join(outs), len(workers), *ENDLESS)
        return before + "".join(outs)

    def test_a_worker_that_is_killed_is_started_again_by_hand(self):
        workers = self.start_job(3, *self.endless())
        pid = workers[0].pid
        before = self.lines_until(workers[0], 15)
        workers[2].kill()
        workers[2] = self.start_worker(2)
        self.generation(2)
        before += self.next_steps(workers[0], 20)
        self.ends_undisturbed(workers, before)
        self.assertEqual(workers[0].pid, pid)

    def test_who_begins_anew_shows_its_certificate_again(self):
        secret = self.folder / "password"
        secret.touch(0o600)
        secret.write_text("of the certificates")
        code, out = run([TESSERA, "cluster", "make-certificates", self.folder / "tls"], TESSERA_TLS_PASSWORD_FILE=secret)
        self.assertEqual(code, 0, out)
        # The variable is wiped when it has been read: what begins anew has it by an open descriptor.
        workers = self.start_job(2, *self.endless(), TESSERA_TLS_CONFIG=self.folder / "tls" / "config.json", TESSERA_TLS_PASSWORD="of the certificates")
        before = self.lines_until(workers[0], 15)
        for generation in (2, 3):
            workers[1].kill()
            workers[1] = self.start_worker(1)
            self.generation(generation)
            before += self.next_steps(workers[0], 20)
        self.ends_undisturbed(workers, before)

    def test_F08_a_worker_that_was_replaced_while_it_was_stopped_ends_when_it_wakes(self):
        workers = self.start_job(2, *self.endless())
        before = self.lines_until(workers[0], 15)
        older = workers[1]
        older.send_signal(signal.SIGSTOP)
        workers[1] = self.start_worker(1)
        self.generation(2)
        before += self.next_steps(workers[0], 20)
        older.send_signal(signal.SIGCONT)
        out = rest_of(older)
        self.assertEqual(older.returncode, 1, out)
        self.assertRegex(out, "a newer process is node worker_1 now|a newer process has taken its place")
        self.ends_undisturbed(workers, before)

    def waits_in(self, number):
        """The call in which this worker waits, as the scheduler has heard of it last; "" where it waits in none."""
        code, out = run([TESSERA, "cluster", "status", f"127.0.0.1:{self.port}", "--json"])
        nodes = json.loads(out)["nodes"] if code == 0 else []
        return next((node["waits_in"] for node in nodes if node["node_id"] == f"worker_{number}"), "")

    def test_F08_who_was_stopped_within_an_all_reduce_adds_nothing_to_those_of_its_successors(self):
        # The other rank comes so late to each of them that this one is stopped while it waits there.
        workers = self.start_job(2, *self.endless(pace=("--slow_rank", 0, "--slow_ms", 6000)))
        before = self.lines_until(workers[0], 1)
        eventually(lambda: "all_reduce" in self.waits_in(1), "rank 1 waits in an all_reduce")
        older = workers[1]
        older.send_signal(signal.SIGSTOP)
        workers[1] = self.start_worker(1)
        self.generation(2)
        older.send_signal(signal.SIGCONT)  # it wakes where it was, and its successors train
        before += self.next_steps(workers[0], 2)
        out = rest_of(older)
        self.assertEqual(older.returncode, 1, out)
        self.assertRegex(out, "a newer process is node worker_1 now|a newer process has taken its place")
        self.ends_undisturbed(workers, before)


if __name__ == "__main__":
    unittest.main(verbosity=2)
