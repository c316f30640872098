"""What happens to the processes of a job, and to the clocks, memory and ports that they have: its losses and its values are those of an
undisturbed job. The tests carry the numbers of docs/faults.md; recovery_test.py has the others of them."""

import errno
import json
import os
import re
import secrets
import signal
import subprocess
import time
import unittest
from pathlib import Path

import recovery_test
from own_tests import OwnTests, main
from recovery_test import BIN, ENDLESS, LIMIT_S, TESSERA, eventually, lines_of, ranks_of, rest_of, result, run, steps_of

# Half of it is longer than a busy host keeps a process waiting.
SILENCE_S = 12
CLOCK_STEP = BIN / "libclock_step.so"
CLOCK_STEP_AFTER_S = 3  # of each process's time


def may_have_clocks():
    return os.getuid() == 0 and subprocess.run(["unshare", "-T", "true"], capture_output=True).returncode == 0


class MemoryGroup:
    """A group of processes that have so much memory together (control groups, version 1 or 2). Root's."""

    def __init__(self, mebibytes):
        root = Path("/sys/fs/cgroup")
        is_second = (root / "cgroup.controllers").exists()
        self.folder = (root if is_second else root / "memory") / f"tessera-{os.getpid()}"
        self.folder.mkdir()
        (self.folder / ("memory.max" if is_second else "memory.limit_in_bytes")).write_text(str(mebibytes << 20))
        # What goes beyond that is not to go to where the system swaps, either.
        swap, most = ("memory.swap.max", 0) if is_second else ("memory.memsw.limit_in_bytes", mebibytes << 20)
        if (self.folder / swap).exists():
            (self.folder / swap).write_text(str(most))
        self.members = self.folder / "cgroup.procs"

    def end(self):
        # Processes that are about to end are no longer listed, but their group stays busy until they have.
        eventually(self.is_gone, "the group is empty and gone")

    def is_gone(self):
        if self.members.read_text():
            return False
        try:
            self.folder.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True


def may_have_memory_groups():
    try:
        MemoryGroup(100).end()
    except OSError:
        return False
    return os.getuid() == 0


class OfALauncher(recovery_test.Recovery):
    """`tessera run --max_restarts` on one host."""

    def run_ranks(self, ranks, restarts, command, **variables):
        return run([TESSERA, "run", "-n", ranks, "--max_restarts", restarts, *command], **variables)

    def around(self, script, *arguments):
        """A shell that runs the rank as "$@" amid this script."""
        return ["sh", "-c", script, "sh", *self.job(*arguments)]

    def test_F13_a_rank_that_crashes_at_its_start_is_started_ever_later_until_the_job_ends_with_its_words(self):
        begin = time.monotonic()
        script = 'if [ $RANK_ID = 1 ]; then echo "the last words of rank 1" >&2; kill -SEGV $$; fi; exec "$@"'
        code, out = self.run_ranks(2, 4, self.around(script, "--steps", 8))
        self.assertEqual(code, 1, out)
        self.assertEqual(out.count("the job goes on, starting it again"), 4, out)
        self.assertRegex(out, r"tessera run: rank 1 failed: killed by signal SIGSEGV[^\n]*its last lines:\n\s+the last words of rank 1")
        self.assertGreater(time.monotonic() - begin, 0.1 + 0.2 + 0.4)

    def test_F17_a_rank_that_is_killed_when_all_have_finished_changes_nothing(self):
        straight = self.undisturbed(3, "--steps", 8)
        for rank in (0, 2):
            with self.subTest(rank=rank):
                code, out = self.run_ranks(3, 1, self.around(f'"$@" || exit 1; if [ $RANK_ID = {rank} ]; then kill -9 $$; fi', "--steps", 8))
                self.assertEqual(result(out), straight, out)
                self.assertEqual(code, 0, out)

    @unittest.skipUnless(may_have_memory_groups(), "only root where control groups of memory can be made can limit a rank's memory")
    def test_F15_a_rank_that_the_system_ends_for_want_of_memory_is_started_again_and_the_log_says_so(self):
        group = MemoryGroup(200)
        self.addCleanup(group.end)
        joins = (f"if [ $RANK_ID = 1 ] && mkdir {self.once()} 2> {os.devnull}; then echo $$ > {group.members}; "
                 "echo 1000 > /proc/$$/oom_score_adj; fi; exec \"$@\"")
        launcher = recovery_test.start([TESSERA, "run", "-n", 2, "--max_restarts", 1, *self.around(joins, *self.endless())])
        self.addCleanup(launcher.kill)
        out = lines_of(launcher, lambda said: 20 in steps_of(said), "step 20")
        # They take what the group has left until the system has ended the rank. Where it gives its memory back slowly, the system may end
        # one of them, too.
        rank = ranks_of(launcher)[1]
        takes = f"""
import os
with open("{group.members}", "w") as members:
    members.write(str(os.getpid()))

taken = []
while os.path.exists("/proc/{rank}"):
    taken.append(b"\\1" * (1 << 20))
"""
        for _ in range(20):
            subprocess.run(["python3", "-c", takes], timeout=LIMIT_S, check=False)
            if not os.path.exists(f"/proc/{rank}"):
                break
        self.assertFalse(os.path.exists(f"/proc/{rank}"), "rank 1 lives although the group's memory is taken")
        out += lines_of(launcher, lambda said: "starting it again" in said, "it is started again")
        out += lines_of(launcher, lambda said: len(steps_of(said)) > 10, "the training goes on")
        self.over.touch()
        out += rest_of(launcher)
        self.assertEqual(launcher.returncode, 0, out)
        self.assertRegex(out, r"rank 1: killed by signal SIGKILL, likely by the system for want of memory \(`dmesg` says more\); the job goes on")
        self.assert_undisturbed(out, 2, *ENDLESS)


class WithAScheduler(recovery_test.Scheduled):
    """A scheduler, and two launchers of two ranks each."""

    def ranks(self):
        return {**ranks_of(self.processes["left"]), **ranks_of(self.processes["right"])}

    def states(self):
        """Of all nodes; none where the scheduler, which has just been started, does not listen yet."""
        code, out = run([TESSERA, "cluster", "status", f"127.0.0.1:{self.port}", "--json"])
        return [node["state"] for node in json.loads(out)["nodes"]] if code == 0 else []

    def end_and_start_again(self, name, number, code):
        self.processes[name].send_signal(number)
        self.assertEqual(self.processes[name].wait(timeout=LIMIT_S), code, self.said())
        self.processes[name] = self.start(name)

    def test_F03_ranks_outlive_their_scheduler_and_are_whom_they_were(self):
        self.start_job(*self.endless())
        self.after_step(10)
        before = self.ranks()
        for _ in range(2):
            self.end_and_start_again("scheduler", signal.SIGKILL, -signal.SIGKILL)
            self.goes_on(20)
            eventually(lambda: self.states() == ["present"] * 4, "all have come back")
            self.assertEqual(self.ranks(), before)
        self.ends_undisturbed()
        self.assertEqual(self.said().count("generation 1 begins"), 1, self.said())

    def test_F07_a_rank_that_is_stopped_for_half_the_timeout_is_no_loss(self):
        self.options = {"scheduler": ["--node_timeout", SILENCE_S]}
        self.start_job(*self.endless())
        self.after_step(10)
        for rank in (1, 2):
            pid = self.ranks()[rank]
            os.kill(pid, signal.SIGSTOP)
            time.sleep(SILENCE_S / 2)
            os.kill(pid, signal.SIGCONT)
            self.goes_on()
        self.ends_undisturbed()
        self.assertNotIn("is lost", self.said())

    def test_F16_who_is_told_to_end_leaves_a_checkpoint_and_its_job_goes_on(self):
        saved = self.folder / "saved_at_the_end"
        self.start_job(*self.endless("--checkpoint_dir", saved, "--save_steps", 100_000))
        self.after_step(10)
        self.end_and_start_again("scheduler", signal.SIGTERM, 128 + signal.SIGTERM)
        self.goes_on(20)
        self.assertEqual(list(saved.glob("*.ckpt")), [])
        self.end_and_start_again("left", signal.SIGTERM, 128 + signal.SIGTERM)
        self.assertEqual(run([TESSERA, "ckpt", "verify", saved])[0], 0)
        self.after_words("generation 2 begins")
        self.ends_undisturbed()
        self.assertRegex(self.said(), r"SIGTERM ends the training after epoch \d+, step \d+: it is saved as \S+\.ckpt")

    def clocks(self, name, command):
        return ["unshare", "-T", "--monotonic", "86400", "--boottime", "86400", *command] if name == "right" else command

    @unittest.skipUnless(may_have_clocks(), "only root where time namespaces are allowed can have hosts whose clocks differ")
    def test_F18_a_host_whose_clock_is_a_day_ahead_is_no_other(self):
        self.options = {"scheduler": ["--node_timeout", SILENCE_S]}
        self.at = self.clocks
        self.start_job(*self.endless())
        self.after_step(10)
        os.kill(self.ranks()[2], signal.SIGKILL)
        self.after_words("generation 2 begins")
        self.ends_undisturbed()
        self.assertEqual(self.said().count(" is lost: "), 1, self.said())

    def test_F18_a_date_that_is_set_while_the_job_runs_loses_nobody(self):
        self.options = {"scheduler": ["--node_timeout", SILENCE_S]}
        self.at = lambda name, command: ["env", f"LD_PRELOAD={CLOCK_STEP}", *command]
        self.start_job(*self.endless())
        self.after_step(10)
        time.sleep(CLOCK_STEP_AFTER_S + 1)  # however late: it is then that the date is another one
        self.ends_undisturbed()
        self.assertNotIn("is lost", self.said())

    def test_F14_one_launcher_too_many_is_refused_and_harms_nobody(self):
        self.start_job(*self.endless())
        self.after_step(2)
        code, out = run([TESSERA, "run", "--join", f"127.0.0.1:{self.port}", "--node_id", "third", "-n", 1, *self.job("--steps", 2)],
                        TESSERA_JOIN_TIMEOUT_MS=20000)
        self.assertEqual(code, 1, out)
        self.assertRegex(out, "4 workers")
        self.ends_undisturbed()

    def test_F14_a_launcher_too_few_is_named_when_the_time_is_over(self):
        self.options = {"scheduler": ["--timeout", 12]}
        self.start_job("--steps", 2, names=("scheduler", "left"))
        for name in ("scheduler", "left"):
            self.assertEqual(self.processes[name].wait(timeout=LIMIT_S), 1, self.said())
        self.assertRegex(self.said(), r"2 of 4 workers have come: left/0 on \S+, left/1 on \S+ within 12000 ms")

    def test_F26_a_port_that_is_taken_is_named_and_no_other_is_taken(self):
        self.start_job(*self.endless())
        self.after_words("listening at")
        code, out = run([TESSERA, "scheduler", "--workers", 4, "--port", self.port])
        self.assertEqual(code, 1, out)
        self.assertIn(f"cannot listen at 127.0.0.1:{self.port}: Address already in use; `ss -ltnp 'sport = :{self.port}'` says who does", out)

    def test_F26_a_scheduler_has_any_kind_of_address(self):
        straight = self.undisturbed(4, "--steps", 4)
        for host in ("127.0.0.1", "localhost", "::1"):
            with self.subTest(host=host):
                self.options = {"scheduler": ["--host", host]}
                self.address = f"[{host}]" if ":" in host else host
                self.start_job("--steps", 4)
                self.ends_well(straight)


class ByHand(recovery_test.ByHand):
    """A scheduler that keeps its state, and workers that no launcher has started."""

    def start_scheduler(self, size, port=0, **variables):
        self.variables = variables
        self.state = self.state if port else self.folder / secrets.token_hex(8)
        self.scheduler = self.begin([TESSERA, "scheduler", "--workers", size, "--port", port, "--state", self.state, "--max_restarts", 9])
        self.port = re.search(r"listening at 127\.0\.0\.1:(\d+) for", self.scheduler.stdout.readline())[1]

    def kill_scheduler(self, size):
        self.scheduler.kill()
        self.scheduler.wait()
        self.start_scheduler(size, self.port)

    def num_nodes(self):
        code, out = run([TESSERA, "cluster", "status", f"127.0.0.1:{self.port}", "--json"])
        return len(json.loads(out)["nodes"]) if code == 0 else -1

    def test_F04_no_rank_is_lost_or_doubled_when_the_scheduler_dies_while_they_register(self):
        self.arguments = ("--steps", 4)
        straight = self.undisturbed(3, *self.arguments)
        for come in range(1, 3):
            with self.subTest(come=come):
                self.start_scheduler(3)
                workers = [self.start_worker(number) for number in range(come)]
                eventually(lambda: self.num_nodes() == come, "they have registered")
                self.kill_scheduler(3)
                workers += [self.start_worker(number) for number in range(come, 3)]
                outs = [rest_of(worker) for worker in workers]
                self.assertEqual([worker.returncode for worker in workers], [0] * 3, outs)
                self.assertEqual(result("".join(outs)), straight, outs)
                self.assertEqual([re.findall(r"rank (\d) crc", out) for out in outs], [["0"], ["1"], ["2"]], outs)

    def test_F10_of_two_processes_of_a_node_one_wins_and_the_other_one_ends(self):
        self.arguments = self.endless()
        self.start_scheduler(2)
        # Which is the newer one their clock says: on a busy host the second may begin before the first.
        workers = [self.start_worker(0), self.start_worker(1), self.start_worker(1)]
        before = self.lines_until(workers[0], 1)
        (loser,) = eventually(lambda: [worker for worker in workers[1:] if worker.poll() is not None], "one of the two ends")
        (winner,) = [worker for worker in workers[1:] if worker is not loser]
        out = rest_of(loser)
        self.assertEqual(loser.returncode, 1, out)
        self.assertRegex(out, "a newer process is node worker_1 now|a newer process has taken its place")
        before += self.next_steps(workers[0], 20)
        self.ends_undisturbed([workers[0], winner], before)
        self.assertLessEqual(self.scheduler.stdout.read().count("begins:"), 2)

    def test_F11_who_comes_back_at_once_does_not_wait_until_it_counts_as_lost(self):
        self.arguments = self.endless()
        self.start_scheduler(2)
        workers = [self.start_worker(0), self.start_worker(1)]
        before = self.lines_until(workers[0], 15)
        workers[1].kill()
        begin = time.monotonic()
        workers[1] = self.start_worker(1)
        self.generation(2)
        self.assertLess(time.monotonic() - begin, 20)  # of the 30 seconds that a silent node has
        before += self.next_steps(workers[0], 20)
        self.ends_undisturbed(workers, before)

    def test_F09_who_was_stopped_while_it_wrote_a_checkpoint_adds_nothing_to_those_of_its_successors(self):
        saved = self.folder / "saved_by_two"
        self.arguments = self.endless("--checkpoint_dir", saved, "--save_steps", 5)
        self.start_scheduler(2)
        workers = [self.start_worker(0), self.start_worker(1)]
        before = self.lines_until(workers[0], 1)
        older = self.stop_amid_a_save(workers[0], saved)
        half = {path.name for path in saved.iterdir()}
        workers[0] = self.start_worker(0)
        before += self.next_steps(workers[0], 20)
        older.send_signal(signal.SIGCONT)
        out = rest_of(older)
        before += out
        self.assertEqual(older.returncode, 1, out)
        self.assertRegex(out, "a newer process is node worker_0 now|a newer process has taken its place")
        said = self.ends_undisturbed(workers, before)
        self.assertEqual(run([TESSERA, "ckpt", "verify", saved])[0], 0)
        code, out = run([TESSERA, "ckpt", "newest", saved])
        (ended,) = set(map(int, re.findall(r"crc \w+ after step (\d+)", said)))
        self.assertIn(f"-{(ended + 9) // 10}_{(ended - 1) % 10 + 1}.ckpt", out, f"{half} {os.listdir(saved)}")

    def stop_amid_a_save(self, process, saved):
        """Stops it while a temporary file of a checkpoint is there; the process."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if not self.has_half(saved):
                continue
            process.send_signal(signal.SIGSTOP)
            eventually(lambda: (Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1][1] == "T"), "it has stopped")
            if self.has_half(saved):
                return process
            process.send_signal(signal.SIGCONT)
        self.fail("no save was met")

    @staticmethod
    def has_half(saved):
        try:
            return any(".tmp" in name for name in os.listdir(saved))
        except FileNotFoundError:
            return False


if __name__ == "__main__":
    main(loader=OwnTests())
