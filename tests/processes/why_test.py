"""Jobs of real processes that fail or stand still: their reports name the guilty rank, by `tessera run` and by `tessera cluster why`."""

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from recovery_test import BIN, JOB, RESNET, TESSERA, environment, eventually, free_port, ranks_of, rest_of, run, start

PROGRAM = BIN / "rank_program"
TIMEOUT_S = 10


class Why(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="tessera-why.")
        cls.folder = Path(cls.scratch.name)
        cls.data = cls.folder / "cifar"
        code, out = run([RESNET, "--make_data", cls.data, "--train_records", 320, "--test_records", 40])
        assert code == 0, out

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def setUp(self):
        self.reports = self.folder / self.id()
        self.run_options = ["--report_dir", self.reports, "--timeout", TIMEOUT_S, "--num_threads", 1]

    def train(self, launcher, *arguments):
        code, out = run([TESSERA, "run", *launcher, *self.run_options, JOB, "--data_path", self.data, *arguments])
        return code, out

    def why(self):
        code, out = run([TESSERA, "cluster", "why", self.reports, "--json"])
        self.assertEqual(code, 0, out)
        return json.loads(out)

    def assert_guilty(self, kind, ranks, *patterns, out=None):
        """What the command says, and what the launcher has said at the end."""
        found = self.why()
        verdict = found["verdict"]
        self.assertEqual((verdict["kind"], verdict["ranks"]), (kind, ranks), verdict["text"])
        for pattern in patterns:
            self.assertRegex(verdict["text"], pattern)
        if out is not None:
            self.assertIn(f"tessera run: why: {verdict['text']}", out)
        return found

    def test_a_rank_that_is_killed_is_named_with_the_step_and_what_the_others_waited_for(self):
        code, out = self.train(["-n", 3], "--kill_rank", 1, "--kill_step", 3)
        self.assertEqual(code, 1, out)
        found = self.assert_guilty("killed", [1], r"^rank 1 \(\S+, pid \d+\) was killed by SIGKILL in step 3; ranks 0, 2 waited for it in all_reduce ",
                                   out=out)
        self.assertEqual({report["rank"] for report in found["ranks"]}, {0, 2})
        self.assertTrue(all(report["cause"] == 1 and report["step"] == 3 for report in found["ranks"]), found)
        code, text = run([TESSERA, "cluster", "why", self.reports])
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"(?m)^    1  .*killed by signal SIGKILL")

    def test_reports_are_their_owners_and_small(self):
        self.train(["-n", 2], "--kill_rank", 1, "--kill_step", 2)
        files = sorted(self.reports.iterdir())
        self.assertEqual([re.sub(r"^launcher\..*\.json$", "launcher", file.name) for file in files], ["launcher", "rank.0.json"])
        for file in files:
            self.assertEqual(file.stat().st_mode & 0o777, 0o600)
            self.assertLess(file.stat().st_size, 256 << 10)

    def test_a_job_that_ends_well_writes_nothing(self):
        code, out = self.train(["-n", 2], "--steps", 3)
        self.assertEqual(code, 0, out)
        self.assertFalse(self.reports.exists())

    def test_reports_lie_beside_logs_unless_said_otherwise(self):
        logs = self.folder / "logs"
        code, out = run([TESSERA, "run", "-n", 2, "--log_dir", logs, JOB, "--data_path", self.data, "--kill_rank", 1, "--kill_step", 2])
        self.assertEqual(code, 1, out)
        self.assertTrue((logs / "report" / "rank.0.json").exists())
        self.assertIn(f"tessera cluster why {logs / 'report'}", out)
        whole, of_logs = (run([TESSERA, "cluster", "why", folder, "--json"]) for folder in (logs / "report", logs))
        self.assertEqual(of_logs[0], 0, of_logs[1])
        self.assertEqual(of_logs, whole)

    def test_the_last_words_of_a_rank_are_in_its_log_also_where_its_launcher_is_killed(self):
        logs, gate, done = (self.folder / f"{self.id()}.{name}" for name in ("logs", "gate", "done"))
        os.mkfifo(gate)
        job = start([TESSERA, "run", "-n", 1, "--log_dir", logs, "sh", "-c", f"echo first; read line < '{gate}'; echo last; : > '{done}'; sleep 100"])
        log = logs / "rank.0"
        try:
            eventually(lambda: log.exists() and log.read_text() == "first\n", "the first words")
            job.send_signal(signal.SIGSTOP)  # it reads no more
            gate.write_text("go\n")
            eventually(done.exists, "the last words")
            self.assertEqual(log.read_text(), "first\n")
        finally:
            job.kill()
            job.communicate()
        eventually(lambda: log.read_text() == "first\nlast\n", "the last words in the log")

    def test_an_exception_is_named_with_its_words(self):
        code, out = self.train(["-n", 3], "--kill_rank", 2, "--kill_step", 4, "--throws")
        self.assertEqual(code, 1, out)
        self.assert_guilty("failed", [2], r"failed in step 4: the step was told to fail; ranks 0, 1 waited for it", out=out)

    def test_a_crash_names_its_signal(self):
        code, out = self.train(["-n", 2], "--kill_rank", 1, "--kill_step", 3, "--kill_signal", int(signal.SIGSEGV))
        self.assertEqual(code, 1, out)
        found = self.assert_guilty("crashed", [1], r"crashed by SIGSEGV in step 3, in the callbacks", out=out)
        self.assertEqual({report["rank"]: report["event"] for report in found["ranks"]}[1], "crashed")

    def test_a_function_that_never_returns_is_named_and_not_who_gave_up_waiting_for_it(self):
        for launcher in (["-n", 3], ["--threads", 3]):
            with self.subTest(launcher=launcher):
                code, out = self.train(launcher, "--kill_rank", 1, "--kill_step", 3, "--hangs")
                self.assertEqual(code, 1, out)
                found = self.assert_guilty("stands still", [1], r"stood still for \d+ s in step 3, in the callbacks \(it computes\)", r"waited for it in ",
                                           out=out)
                self.assertEqual({report["rank"] for report in found["ranks"]}, {0, 1, 2})
                self.assertIn("rank 1: it computes: step 3, the callbacks", out)
                self.assertRegex(out, r"rank 1 has come no further for \d+ s: step 3, the callbacks")

    def test_a_process_that_is_stopped_is_named(self):
        job = start([TESSERA, "run", "-n", 3, *self.run_options, JOB, "--data_path", self.data, "--epochs", 100000])
        try:
            for line in job.stdout:
                if "loss 3 " in line:
                    break
            os.kill(ranks_of(job)[1], signal.SIGSTOP)
            out = rest_of(job)
        finally:
            job.kill()
            job.wait()
        self.assertEqual(job.returncode, 1, out)
        self.assert_guilty("stopped", [1], r"was stopped \(SIGSTOP\) in step \d+; ranks? .* waited for it in ", out=out)

    def test_different_calls_are_both_named(self):
        code, out = run([TESSERA, "run", "-n", 2, *self.run_options, PROGRAM, "mismatch", 1])
        self.assertEqual(code, 1, out)
        self.assert_guilty("different calls", [0, 1], "makes another call than rank", 'broadcast "weights"', out=out)

    def test_of_three_ranks_the_one_with_another_call_is_named(self):
        code, out = run([TESSERA, "run", "-n", 3, *self.run_options, PROGRAM, "mismatch", 2])
        self.assertEqual(code, 1, out)
        verdict = self.why()["verdict"]
        self.assertEqual(verdict["kind"], "different calls")
        self.assertIn(2, verdict["ranks"])

    def test_a_rank_that_ends_before_a_call_of_the_others_is_named(self):
        for launcher in (["-n", 3], ["--threads", 3]):
            with self.subTest(launcher=launcher):
                code, out = run([TESSERA, "run", *launcher, *self.run_options, PROGRAM, "leave", 1])
                self.assertEqual(code, 1, out)
                self.assert_guilty("different calls", [1], r"^the ranks did not make the same calls: rank 1 \(\S+, pid \d+\) had ended with exit code 0; "
                                   r"ranks 0, 2 waited for it in barrier", out=out)

    def test_a_loss_that_is_not_finite_names_the_operator(self):
        code, out = self.train(["-n", 2], "--learning_rate", "1e30")
        self.assertEqual(code, 1, out)
        verdict = self.why()["verdict"]
        self.assertEqual(verdict["kind"], "non-finite", verdict)
        self.assertRegex(verdict["text"], r"the loss of step \d+ is not finite: the first result that is not is of \S+")

    def test_who_is_slow_is_warned_about_and_not_ended(self):
        code, out = self.train(["-n", 2], "--slow_rank", 1, "--slow_ms", 400, "--steps", 10, "--epochs", 6)
        self.assertEqual(code, 0, out)
        self.assertRegex(out, r"rank 1 is slow: rank 0 has waited for it \d+ % of the last \d+ s, most in all_reduce .*; the job goes on")
        verdict = self.why()["verdict"]
        self.assertEqual((verdict["kind"], verdict["ranks"]), ("slow", []), verdict)
        self.assertIn("no rank has failed; rank 0 has warned: rank 1 is slow", verdict["text"])

    def test_who_shares_the_folder_of_a_job_that_runs_removes_nothing_of_it(self):
        port = free_port()
        begun = []

        def begin(*command):
            output = open(self.folder / f"{self.id()}.{len(begun)}", "w+", encoding="utf-8")
            self.addCleanup(output.close)
            begun.append(subprocess.Popen([str(word) for word in (TESSERA, *command)], env=environment(), stdout=output, stderr=subprocess.STDOUT))
            return begun[-1], lambda: Path(output.name).read_text()

        def launch(name):
            return begin("run", "--join", f"127.0.0.1:{port}", "--node_id", name, "-n", 1, *self.run_options, JOB, "--data_path", self.data, "--epochs", 100000,
                         "--steps", 3)

        try:
            _, scheduler_said = begin("scheduler", "--workers", 2, "--port", port, "--min_ranks", 1, "--rank_timeout", 1)
            _, first_said = launch("a")
            second, _ = launch("b")
            eventually(lambda: "loss 2 " in first_said(), "the first steps")
            second.send_signal(signal.SIGINT)  # it leaves, and writes how
            second.wait(60)
            left = {file.name for file in self.reports.iterdir() if file.name.startswith("launcher.")}
            self.assertEqual(len(left), 1, left)
            eventually(lambda: "generation 2 begins: 1 rank" in scheduler_said(), "the job goes on")
            launch("c")
            eventually(lambda: "generation 3 begins: 2 ranks" in scheduler_said(), "the newcomer is taken in")
            self.assertLessEqual(left, {file.name for file in self.reports.iterdir()})
        finally:
            for process in reversed(begun):
                process.kill()
                process.wait()

    def test_a_loss_that_was_survived_is_not_blamed_for_a_later_end(self):
        once = self.folder / f"{self.id()}.once"
        job = start([TESSERA, "run", "-n", 3, "--max_restarts", 3, *self.run_options, JOB, "--data_path", self.data, "--epochs", 100000, "--kill_rank", 2,
                     "--kill_step", 3, "--kill_once", once])
        try:
            for line in job.stdout:
                if "loss 8 " in line:
                    break
            self.assertIn("; the job went on", self.why()["verdict"]["text"])
            job.send_signal(signal.SIGINT)
            out = rest_of(job)
        finally:
            job.kill()
            job.wait()
        self.assertRegex(out, r"tessera run: why: SIGINT ended the job: no rank has failed; rank 2 \(\S+, pid \d+\) was lost \(killed by signal SIGKILL\), and the job went on")

    def test_a_rank_whose_loss_ends_the_job_is_named_and_not_those_that_save_then(self):
        code, out = self.train(["-n", 3, "--max_restarts", 1], "--checkpoint_dir", self.folder / f"{self.id()}.saved", "--kill_rank", 1, "--kill_step", 5)
        self.assertEqual(code, 1, out)
        found = self.assert_guilty("killed", [1], r"^rank 1 \(\S+, pid \d+\) was killed by SIGKILL in step 5; ranks 0, 2 waited for it in ",
                                   r"; the job has ended: node \S+ \(rank 1 at \S+\) is lost: killed by signal SIGKILL; the ranks that are left have saved what was "
                                   r"kept, after epoch 1, step 4, as \S+\.ckpt; start the job again with resume=\"auto\"", out=out)
        self.assertEqual([report["rank"] for report in found["ranks"]], [0, 2], found)
        self.assertEqual([(report["rank"], report["event"]) for report in found["last_ranks"]], [(0, "left"), (1, "left")], found)
        (launcher,) = found["launchers"]
        self.assertEqual(launcher["first_failed"], 1, found)
        text = run([TESSERA, "cluster", "why", self.reports])[1]
        self.assertRegex(text, r"\n +1 .* killed by signal SIGKILL")
        self.assertNotIn("exit code", text)

    def test_who_is_waited_for_says_what_it_does_before_it_would_by_itself(self):
        job = start([TESSERA, "run", "-n", 2, "--report_dir", self.reports, "--timeout", 60, JOB, "--data_path", self.data, "--kill_rank", 1,
                     "--kill_step", 3, "--hangs"])
        reader = threading.Thread(target=job.stdout.read)
        reader.start()
        try:
            def is_waited_for():
                report = self.reports / "rank.0.json"
                said = json.loads(report.read_text()) if report.exists() else {}
                return said.get("event") == "waits" and said["step"] == 3
            eventually(is_waited_for, "the report of the rank that waits", limit_s=40)

            # Asked at any time from here on, nobody is said to have been stopped.
            def is_known():
                verdict = self.why()["verdict"]
                self.assertIn(verdict["kind"], ("waits", "stands still"), verdict)
                self.assertEqual(verdict["ranks"], [1])
                return verdict["kind"] == "stands still" and verdict["text"]
            text = eventually(is_known, "what the rank does", limit_s=40)
            self.assertLess(int(re.search(r"stands still for (\d+) s", text)[1]), 10, text)  # then it would have said so by itself
        finally:
            job.kill()
            job.wait()
            reader.join()

    def test_a_job_that_stands_still_can_be_asked_while_it_runs(self):
        job = start([TESSERA, "run", "-n", 2, "--report_dir", self.reports, "--timeout", 120, JOB, "--data_path", self.data, "--kill_rank", 1,
                     "--kill_step", 3, "--hangs"])
        said = []
        reader = threading.Thread(target=lambda: said.extend(job.stdout))
        reader.start()
        try:
            def is_known():
                return (self.reports / "rank.0.json").exists() and self.why()["verdict"]["kind"] == "stands still"
            begin = time.monotonic()
            eventually(is_known, "the reports", limit_s=40)
            verdict = self.why()["verdict"]
            self.assertEqual(verdict["ranks"], [1])
            self.assertRegex(verdict["text"], r"stands still for \d+ s in step 3, in the callbacks .*; rank 0 waits for it in .*; no rank has failed$")
            print(f"known {time.monotonic() - begin:.1f} s after its start")
            # Who is interrupted says so, with who was waited for.
            job.send_signal(signal.SIGINT)
            reader.join(20)
            job.wait(20)
        finally:
            job.kill()
            job.wait()
            reader.join()
        self.assertIn("tessera run: why: SIGINT ended the job: rank 1 ", "".join(said))


if __name__ == "__main__":
    unittest.main(verbosity=2)
