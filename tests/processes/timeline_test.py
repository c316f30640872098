"""Timelines of jobs of real processes: `tessera run --trace`, what its file says of all ranks, and `tessera trace`."""

import json
import os
import shutil
import signal
import tempfile
import unittest
from collections import defaultdict
from pathlib import Path

from own_tests import main
from recovery_test import ENDLESS, JOB, PACED, RESNET, TESSERA, eventually, lines_of, losses_of, may_have_disks, rest_of, result, run, start, steps_of


def spans_of(timeline, *categories):
    return [event for event in timeline["traceEvents"] if event["ph"] == "X" and (not categories or event["cat"] in categories)]


def end_of(event):
    return event["ts"] + event["dur"]


class Timeline(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="tessera-timeline."))
        cls.data = cls.folder / "cifar"
        code, out = run([RESNET, "--make_data", cls.data, "--train_records", 320, "--test_records", 40])
        assert code == 0, out

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def setUp(self):
        self.place = self.folder / self.id()
        self.place.mkdir()
        self.file = self.place / "job.json"

    def job(self, *arguments):
        return [JOB, "--data_path", self.data, *arguments]

    def recorded(self, launcher, *arguments, expected=0, **variables):
        code, out = run([TESSERA, "run", *launcher, "--num_threads", 1, "--trace", self.file, *self.job(*arguments)], **variables)
        self.assertEqual(code, expected, out)
        return out

    def read(self):
        timeline = json.loads(self.file.read_text())
        return timeline, timeline["otherData"]

    def assert_lawful(self, timeline):
        """Spans of a rank's own thread nest, and no member of a collective ends before the last one has begun."""
        data = timeline["otherData"]
        self.assertEqual((data["spans_that_cross"], data["collectives_that_ended_early"]), (0, 0))
        lanes = defaultdict(list)
        for event in spans_of(timeline):
            if event["cat"] not in ("critical path", "predicted") and event["tid"] == 0:
                lanes[event["pid"]].append(event)
        slack_us = 0.0015  # times are whole nanoseconds, and sums of decimals are not exact
        for events in lanes.values():
            open_ends = []
            for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
                while open_ends and open_ends[-1] <= event["ts"] + slack_us:
                    open_ends.pop()
                if open_ends:
                    self.assertLessEqual(end_of(event), open_ends[-1] + slack_us, event)
                open_ends.append(end_of(event))
        names = {rank["rank"]: rank["names"] for rank in data["ranks"]}
        met = defaultdict(list)
        for event in spans_of(timeline, "collective"):
            name = names[event["pid"]][event["args"]["n"]]
            key = (event["args"]["step"], event["args"]["run"], name["graph"], tuple(name["ranks"]), name["lane"], name["number"])
            met[key].append((event, name))
        self.assertTrue(met)
        for members in met.values():
            events = [event for event, _ in members]
            ranks = members[0][1]["ranks"]
            self.assertEqual(sorted(event["pid"] for event in events), sorted(ranks))
            self.assertEqual(len({(event["name"], event["args"]["call_bytes"], event["args"]["late_rank"]) for event in events}), 1, events)
            if not all(name["meets"] for _, name in members):
                continue
            last = max(event["ts"] for event in events)
            for event in events:
                self.assertGreaterEqual(end_of(event) + slack_us, last, events)
                self.assertGreaterEqual(event["args"]["waited_us"] + slack_us, min(last, end_of(event)) - event["ts"])

    def test_four_ranks_are_recorded_and_the_losses_are_the_same_bit_by_bit(self):
        code, plain = run([TESSERA, "run", "-n", 4, "--num_threads", 1, *self.job("--steps", 6)])
        self.assertEqual(code, 0, plain)
        out = self.recorded(["-n", 4], "--steps", 6)
        self.assertEqual(result(out), result(plain))
        self.assertIn(f"tessera run: the timeline is {self.file}; tessera trace summary", out)
        self.assertEqual([path.name for path in self.place.iterdir()], ["job.json"])
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o600)
        timeline, data = self.read()
        self.assertEqual((data["missing_ranks"], data["dropped_spans"], [clock["by"] for clock in data["clocks"]]), ([], 0, ["same"]))
        self.assert_lawful(timeline)
        for rank in range(4):
            steps = {event["args"]["step"] for event in spans_of(timeline, "step") if event["pid"] == rank}
            self.assertEqual(steps, set(range(1, 7)))
            kinds = {event["cat"] for event in spans_of(timeline) if event["pid"] == rank}
            self.assertLessEqual({"step", "run", "operator", "collective", "wait", "batch", "worker", "callbacks"}, kinds)
        self.assertTrue(any("conv" in event["name"] for event in spans_of(timeline, "operator")))
        path = [event for event in spans_of(timeline, "critical path")]
        self.assertEqual({event["args"]["step"] for event in path}, set(range(1, 7)))

    def test_the_summary_adds_up(self):
        self.recorded(["-n", 2], "--steps", 6)
        code, out = run([TESSERA, "trace", "summary", self.file, "--json"])
        self.assertEqual(code, 0, out)
        summary = json.loads(out)
        self.assertEqual((summary["ranks"], summary["steps"], summary["first_step"], summary["last_step"]), (2, 6, 1, 6))
        self.assertAlmostEqual(sum(summary["seconds"].values()), summary["rank_step_seconds"], places=9)
        self.assertAlmostEqual(sum(time["seconds"] for time in summary["operators"]),
                               summary["seconds"]["compute"] + summary["seconds"]["copy"], places=9)
        self.assertLessEqual(len(summary["advice"]), 5)
        self.assertEqual(summary["advice"], sorted(summary["advice"], key=lambda advice: -advice["seconds"]))
        code, out = run([TESSERA, "trace", "summary", self.file])
        self.assertEqual(code, 0, out)
        for words in ("6 whole steps from 1 to 6", "Where a rank's step of", "The operators that take longest", "computing"):
            self.assertIn(words, out)

    def test_a_slow_rank_is_named(self):
        # So slow that no pause of the machine makes another one the slowest.
        self.recorded(["-n", 3], "--steps", 10, "--slow_rank", 2, "--slow_ms", 400)
        code, out = run([TESSERA, "trace", "summary", self.file, "--json"])
        self.assertEqual(code, 0, out)
        summary = json.loads(out)
        latest = max(summary["rank_times"], key=lambda rank: rank["waited_for_seconds"])
        self.assertEqual(latest["rank"], 2, summary["rank_times"])
        self.assertGreater(latest["waited_for_seconds"], 0.4)
        self.assertTrue(any("why rank 2" in advice["text"] for advice in summary["advice"]), summary["advice"])

    def test_only_the_steps_of_the_window_are_recorded(self):
        self.recorded(["-n", 2, "--trace_steps", "3:4"], "--steps", 6)
        timeline, _ = self.read()
        self.assertEqual({event["args"]["step"] for event in spans_of(timeline, "step")}, {3, 4})
        self.assert_lawful(timeline)

    def test_steps_are_recorded_when_the_launcher_gets_a_signal(self):
        process = start([TESSERA, "run", "-n", 2, "--num_threads", 1, "--trace", self.file, "--trace_steps", "request:3",
                         *self.job(*ENDLESS, *PACED, "--stop_file", self.place / "stop")])
        out = ""
        try:
            out += lines_of(process, lambda said: 3 in steps_of(said), "step 3")
            os.kill(process.pid, signal.SIGUSR2)
            parts = [Path(f"{self.file}.rank.{rank}") for rank in range(2)]
            eventually(lambda: all('"is_written":true' in part.read_text() for part in parts), "the ranks write what was asked for")
            (self.place / "stop").touch()
        finally:
            out += rest_of(process)
        self.assertEqual(process.returncode, 0, out)
        self.assertIn("SIGUSR2: the ranks record their next 3 steps", out)
        timeline, _ = self.read()
        for rank in range(2):
            steps = sorted(event["args"]["step"] for event in spans_of(timeline, "step") if event["pid"] == rank)
            self.assertEqual(steps, list(range(steps[0], steps[0] + 3)))
            self.assertGreater(steps[0], 3)
        self.assertEqual({path.name for path in self.place.iterdir()}, {"job.json", "stop"})

    def test_a_signal_without_a_request_ends_nothing(self):
        over = self.folder / f"{self.id()}.over"
        process = start([TESSERA, "run", "-n", 2, "--num_threads", 1, *self.job(*ENDLESS, *PACED, "--stop_file", over)])
        self.addCleanup(process.kill)
        out = lines_of(process, lambda said: 1 in steps_of(said), "step 1")
        os.kill(process.pid, signal.SIGUSR2)
        out += lines_of(process, lambda said: "which needs" in said, "what the signal would do")
        over.touch()
        out += rest_of(process)
        self.assertEqual(process.returncode, 0, out)
        self.assertIn("which needs --trace FILE --trace_steps request", out)
        self.assertEqual(list(self.place.iterdir()), [])

    def test_a_killed_rank_leaves_the_timeline_of_the_others(self):
        out = self.recorded(["-n", 3, "--timeout", 20], "--kill_rank", 1, "--kill_step", 4, expected=1)
        self.assertIn("without rank 1, which wrote nothing", out)
        timeline, data = self.read()
        self.assertEqual(data["missing_ranks"], [1])
        ranks = {event["pid"] for event in spans_of(timeline, "step")}
        self.assertEqual(ranks, {0, 2})
        code, out = run([TESSERA, "trace", "summary", self.file])
        self.assertEqual(code, 0, out)
        self.assertIn("Note: rank 1 has written nothing", out)

    def test_nothing_is_written_without_the_option(self):
        code, out = run([TESSERA, "run", "-n", 2, "--num_threads", 1, *self.job("--steps", 3)])
        self.assertEqual(code, 0, out)
        self.assertEqual(list(self.place.iterdir()), [])
        self.assertNotIn("timeline", out)

    def test_a_disk_that_fills_up_is_named_and_the_job_ends_as_it_would(self):
        if not may_have_disks():
            self.skipTest("only root may have a disk of its own")
        disk = self.place / "disk"
        disk.mkdir()
        small = f'mount -t tmpfs -o size=40k none {disk}; "$@"; code=$?; ls {disk}; exit $code'
        code, out = run(["unshare", "-m", "sh", "-c", small, "sh", TESSERA, "run", "-n", 2, "--num_threads", 1, "--trace", disk / "job.json",
                         *self.job("--steps", 20)])
        self.assertEqual(code, 0, out)
        self.assertRegex(out, r"tessera run: there is no timeline \S+/job\.json: ranks 0, 1 could not write: .*(No space left on device|no room on the disk)")

    def test_a_file_that_cannot_be_written_is_refused_before_the_first_step(self):
        self.file = self.place
        out = self.recorded(["-n", 2], "--steps", 3, expected=1)
        self.assertIn("it is a directory; name a file", out)
        self.assertEqual(losses_of(out), {})
        self.file = "/proc/no_such_folder/job.json"
        self.assertEqual(losses_of(self.recorded(["-n", 2], "--steps", 3, expected=1)), {})
        code, out = run([JOB, "--data_path", self.data, "--steps", 3], TESSERA_TRACE=self.place)
        self.assertEqual((code, losses_of(out)), (1, {}), out)

    def test_options_that_make_no_sense_are_refused(self):
        code, out = run([TESSERA, "run", "-n", 2, "--trace", self.file, "true"])
        self.assertEqual(code, 0, out)
        self.assertIn(f"there is no timeline {self.file}: no rank has begun one", out)
        code, out = run([TESSERA, "run", "-n", 2, "--trace_steps", "1:2", JOB])
        self.assertEqual(code, 2, out)
        code, out = run([TESSERA, "run", "-n", 2, "--trace", self.file, "--trace_steps", "2:1", JOB])
        self.assertEqual(code, 2, out)
        self.assertIn("FIRST:LAST", out)
        code, out = run([JOB, "--data_path", self.data, "--steps", 3], TESSERA_TRACE=self.file, TESSERA_TRACE_STEPS="x")
        self.assertEqual(code, 2, out)

    def test_parts_are_merged_by_hand_with_a_prediction_beside(self):
        variables = {"TESSERA_TRACE": self.file, "TESSERA_TRACE_STEPS": "2:5"}
        code, out = run([JOB, "--data_path", self.data, "--steps", 6], **variables)
        self.assertEqual(code, 0, out)
        part = Path(f"{self.file}.rank.0")
        self.assertEqual([path.name for path in self.place.iterdir()], [part.name])
        code, out = run([TESSERA, "simulate", "mlp", "--ranks", 2, "--trace", self.place / "step.json"])
        self.assertEqual(code, 0, out)
        code, out = run([TESSERA, "trace", "merge", "-o", self.file, part, "--predicted", self.place / "step.json"])
        self.assertEqual(code, 0, out)
        timeline, _ = self.read()
        self.assertTrue(spans_of(timeline, "predicted"))
        code, out = run([TESSERA, "trace", "summary", self.file])
        self.assertEqual(code, 0, out)
        self.assertIn("4 whole steps from 2 to 5", out)
        self.assertIn("Predicted were", out)
        code, out = run([TESSERA, "trace", "merge", "-o", self.place / "x.json", self.file])
        self.assertEqual(code, 1, out)
        self.assertIn("name the parts of its ranks", out)
        code, out = run([TESSERA, "trace", "summary", self.place / "step.json"])
        self.assertEqual(code, 1, out)
        self.assertIn("it is of another program", out)

    def test_ranks_that_are_threads_are_recorded(self):
        self.recorded(["--threads", 3], "--steps", 4)
        timeline, data = self.read()
        self.assertEqual(data["missing_ranks"], [])
        self.assert_lawful(timeline)

    def test_a_pipeline_shows_its_phases_and_messages(self):
        self.recorded(["-n", 2], "--steps", 4, "--stages", 2, "--network", "small_in_stages", "--micro_batches", 4)
        timeline, _ = self.read()
        self.assertEqual({event["pid"] for event in spans_of(timeline, "phase")}, {0, 1})
        ways = defaultdict(set)
        for event in spans_of(timeline, "message"):
            ways[event["name"]].add(event["pid"])
        self.assertTrue(ways)
        self.assertTrue(all(ranks == {0, 1} for ranks in ways.values()), ways)


if __name__ == "__main__":
    main()
