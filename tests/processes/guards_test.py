"""Who watches over the ranks may be stopped or killed itself: a rank's guard, mpirun. The job goes on or ends, and leaves nothing behind.
Ranks that cannot meet say so at once."""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import recovery_test
from own_tests import OwnTests, main
from recovery_test import ENDLESS, LIMIT_S, PACED, TESSERA, children_of, environment, eventually, lines_of, ranks_of, rest_of, run, start, steps_of

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def has_ended(pid):
    """Also where nobody has asked how."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def is_stopped(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: is_stopped(pid), "it is stopped")


def end_all(pids):
    """A test that fails leaves nothing behind."""
    for pid in pids:
        if not has_ended(pid):
            os.kill(pid, signal.SIGKILL)


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def may_make_networks():
    return os.getuid() == 0 and subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode == 0


def may_make_process_spaces():
    return os.getuid() == 0 and subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True).returncode == 0


class Guards(recovery_test.Recovery):
    def waits_for(self, file, before=""):
        """A program that begins with `before` and then runs as long as there is the file."""
        return [sys.executable, "-c", f"import os, subprocess, time\n{before}\nwhile os.path.exists('{file}'): time.sleep(0.02)"]

    def begin(self, command):
        launcher = start(command)
        self.addCleanup(launcher.kill)
        ranks = eventually(lambda: len(found := ranks_of(launcher)) == 2 and found, "the ranks run")
        return launcher, ranks

    def test_a_guard_that_is_stopped_when_its_rank_ends_goes_on(self):
        file = self.once()
        file.touch()
        launcher, ranks = self.begin([TESSERA, "run", "-n", 2, *self.waits_for(file)])
        stop(parent_of(ranks[1]))
        file.unlink()
        out = rest_of(launcher)
        self.assertEqual(launcher.returncode, 0, out)
        self.assertRegex(out, r"tessera run: rank 1 has ended, and the guard of rank 1, process \d+ has been stopped; letting the guard go on")

    def test_a_rank_that_is_lost_with_its_guard_stopped_is_started_again(self):
        launcher = start([TESSERA, "run", "-n", 2, "--max_restarts", 1, *self.job(*self.endless())])
        self.addCleanup(launcher.kill)
        out = lines_of(launcher, lambda said: 10 in steps_of(said), "step 10")
        ranks = eventually(lambda: len(found := self.of_scheduler(launcher)) == 2 and found, "the ranks run")
        stop(parent_of(ranks[0]))
        os.kill(ranks[0], signal.SIGKILL)
        out += lines_of(launcher, lambda said: "starting it again" in said, "it is started again")
        out += lines_of(launcher, lambda said: len(steps_of(said)) > 10, "the training goes on")
        self.over.touch()
        out += rest_of(launcher)
        self.assertEqual(launcher.returncode, 0, out)
        self.assertRegex(out, r"rank \d: killed by signal SIGKILL; the job goes on, starting it again")
        self.assert_undisturbed(out, 2, *ENDLESS)

    @staticmethod
    def of_scheduler(launcher):
        return [rank for guard in children_of(launcher.pid) for rank in children_of(guard)]

    def test_a_stopped_guard_is_not_said_to_be_its_rank(self):
        file = self.once()
        file.touch()
        self.addCleanup(file.unlink)
        launcher, ranks = self.begin([TESSERA, "run", "-n", 2, *self.waits_for(file)])
        stop(parent_of(ranks[0]))
        os.kill(ranks[0], signal.SIGKILL)
        out = rest_of(launcher)
        self.assertEqual(launcher.returncode, 1, out)
        self.assertRegex(out, "rank 0 failed: killed by signal SIGKILL")
        self.assertNotIn("it has ended; killing it", out)

    def test_what_a_killed_guard_leaves_behind_ends_with_the_job(self):
        file, pids = self.once(), self.once()
        file.touch()
        self.addCleanup(file.unlink)
        pids.mkdir()
        # One with a session of its own, which starts another one.
        detached = (f"import os, time\\nopen('{pids}/%d' % os.getpid(), 'w').close()\\n"
                    f"if os.fork() == 0:\\n    os.setsid()\\n    open('{pids}/%d' % os.getpid(), 'w').close()\\n"
                    "while True: time.sleep(1)")
        begins = f"subprocess.Popen(['{sys.executable}', '-c', \"{detached}\"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)"
        launcher, ranks = self.begin([TESSERA, "run", "-n", 2, *self.waits_for(file, begins)])
        eventually(lambda: len(list(pids.iterdir())) == 4, "all have started theirs")
        started = [int(entry.name) for entry in pids.iterdir()]
        self.addCleanup(end_all, started)
        os.kill(parent_of(ranks[0]), signal.SIGKILL)
        out = rest_of(launcher)
        self.assertEqual(launcher.returncode, 1, out)
        self.assertEqual([pid for pid in [*started, *ranks.values()] if not has_ended(pid)], [], out)


@unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
class OrphansOfMpirun(recovery_test.Recovery):
    def test_ranks_whose_mpirun_is_killed_end_with_a_word_and_save_no_more(self):
        for name, script in {"direct": 'exec "$@" 2>> "$0"', "below a script": '"$@" 2>> "$0" & wait'}.items():
            with self.subTest(name):
                words, folder = self.once(), self.once()
                job = [*self.job("--steps", 10, "--epochs", 100000, "--checkpoint_dir", folder, "--save_steps", 5), *PACED]
                command = [*MPIRUN, "-n", 2, "sh", "-c", script, words, *job]
                mpirun = subprocess.Popen([str(word) for word in command], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                self.addCleanup(mpirun.kill)
                for line in mpirun.stdout:
                    if re.search(r"loss 5 ", line):
                        break
                scripts = children_of(mpirun.pid)
                ranks = [child for one in scripts for child in children_of(one)] if "wait" in script else scripts
                self.assertEqual(len(ranks), 2)
                self.addCleanup(end_all, [*ranks, *scripts])
                mpirun.kill()
                eventually(lambda: all(map(has_ended, ranks)), "the ranks end", limit_s=20)  # of the 30 after which they would give each other up
                mpirun.wait()
                mpirun.stdout.close()
                self.assertRegex(words.read_text(), r"rank \d\] mpirun has ended: rank \d, which it has started, ends with it and saves nothing more")


class Meeting(recovery_test.Recovery):
    @unittest.skipUnless(may_make_networks(), "only root may make a network")
    def test_a_loopback_that_is_down_is_said_at_once(self):
        begin = time.monotonic()
        code, out = run(["unshare", "-n", TESSERA, "run", "-n", 2, "--max_restarts", 1, "--timeout", 60, "true"])
        self.assertEqual(code, 1, out)
        self.assertRegex(out, r"the loopback interface of this host is down \(127.0.0.1: Network is unreachable\); bring it up: ip link set lo up")
        self.assertLess(time.monotonic() - begin, 20)

    @unittest.skipUnless(may_make_process_spaces(), "only root may make a PID namespace")
    def test_a_proc_of_another_namespace_is_said_before_anything_starts(self):
        for ranks in (("-n", 2), ("--threads", 2)):
            code, out = run(["unshare", "--pid", "--fork", TESSERA, "run", *ranks, "sh", "-c", "echo started"])
            self.assertEqual(code, 1, out)
            self.assertRegex(out, r"error: tessera run: /proc is that of another PID namespace: this process is \d+, and \d+ there; mount this one's")
            self.assertIn("unshare --pid --fork --mount-proc", out)
            self.assertNotIn("started", out)
        code, out = run(["unshare", "--pid", "--fork", "--mount-proc", TESSERA, "run", "-n", 2, "sh", "-c", "echo started"])
        self.assertEqual((code, sorted(out.splitlines())), (0, ["[0] started", "[1] started"]))

    def test_transports_that_differ_are_named(self):
        store = f"unix:tessera-guards-{secrets.token_hex(8)}"
        ranks = [start(self.job("--steps", 2), TESSERA_SIZE=2, TESSERA_RANK=rank, TESSERA_STORE=store, TESSERA_TRANSPORT=transport)
                 for rank, transport in enumerate(("tls", "shm"))]
        outs = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [1, 2], outs)
        for out in outs:
            self.assertIn("rank 1 would use the transport shm, and rank 0 uses tls", out)

    def test_what_a_file_holds_does_not_steer_the_terminal(self):
        file = self.once()
        file.write_bytes(b"\x02\x1b[31m\xff graph")
        for command in (["graph", file], ["simulate", file, "--profile", file], ["plan", file, "--ranks", 2]):
            with self.subTest(command[0]):
                done = subprocess.run([str(word) for word in (TESSERA, *command)], env=environment(), capture_output=True, timeout=LIMIT_S)
                self.assertNotEqual(done.returncode, 0)
                self.assertNotRegex(done.stderr.decode(), "[\x00-\x08\x0b-\x1f]|json.exception")


if __name__ == "__main__":
    main(loader=OwnTests())
