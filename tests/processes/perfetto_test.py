"""Timelines in Perfetto's own form, `tessera trace export`: its own classes read them, and what they read keeps our laws. Its trace processor
is asked in SQL where PERFETTO_TP names its program (trace_processor_shell)."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections import Counter, defaultdict
from pathlib import Path

from own_tests import main
from recovery_test import JOB, RESNET, TESSERA, run

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parent.parent / "scripts"
STEPS = 5
# What is counted as all that is done in it: docs/timeline.md.
WHOLE = {"evaluation", "save", "compilation"}

ASK = """
import json, sys
from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
with TraceProcessor(trace=sys.argv[2], config=TraceProcessorConfig(bin_path=sys.argv[1])) as processor:
    json.dump({name: next(iter(processor.query(query))).value for name, query in json.load(sys.stdin).items()}, sys.stdout)
"""
QUERIES = {
    "slices": "select count(*) as value from slice",
    "steps": "select count(*) as value from slice where category = 'step'",
    "step_ns": "select sum(dur) as value from slice where category = 'step'",
    "errors": "select coalesce(sum(value), 0) as value from stats where severity = 'error'",
    "unended": "select count(*) as value from slice where dur < 0",
    "crossing": """select count(*) as value from slice inner join slice as parent on slice.parent_id = parent.id
                   where slice.ts < parent.ts or slice.ts + slice.dur > parent.ts + parent.dur""",
    "overlapping": """select count(*) as value from slice as a inner join slice as b on a.track_id = b.track_id and a.depth = b.depth
                      where a.id < b.id and a.ts < b.ts + b.dur and b.ts < a.ts + a.dur""",
    "arrows": "select count(*) as value from flow",
}


def made_environment():
    """The Python that has Perfetto's package, or None."""
    made = subprocess.run([sys.executable, SCRIPTS / "perfetto_env.py"], capture_output=True, text=True)
    return made.stdout.strip() if made.returncode == 0 else None


class PerfettoTrace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="tessera-perfetto."))
        cls.python = made_environment()
        if cls.python is None:
            return
        cls.timeline, cls.trace = cls.folder / "job.json", cls.folder / "job.pftrace"
        cls.done([RESNET, "--make_data", cls.folder / "cifar", "--train_records", 320, "--test_records", 40])
        cls.done([TESSERA, "run", "-n", 2, "--num_threads", 1, "--trace", cls.timeline, JOB, "--data_path", cls.folder / "cifar",
                  "--steps", STEPS, "--slow_rank", 1, "--slow_ms", 50])
        cls.done([TESSERA, "trace", "export", cls.timeline, "-o", cls.trace])
        cls.json = json.loads(cls.timeline.read_text())
        cls.reading = cls.read(cls.trace)
        cls.slices = cls.reading["slices"]

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def setUp(self):
        if self.python is None:
            self.skipTest("no package perfetto: scripts/perfetto_env.py could not make .venv-perfetto")

    @classmethod
    def done(cls, command):
        code, out = run(command)
        assert code == 0, f"{command}\n{out}"
        return out

    @classmethod
    def read(cls, trace):
        return json.loads(cls.done([cls.python, "-B", HERE / "perfetto_reader.py", trace]))

    def lane_of(self, track):
        """(rank, lane's title) of a rank's lane, (None, name) of the other tracks."""
        tracks = self.reading["tracks"]
        parent = tracks.get(str(tracks[str(track)]["parent"]), {"name": ""})
        rank = int(parent["name"].split()[1]) if parent["name"].startswith("rank ") else None
        return rank, tracks[str(track)]["name"]

    def self_ns(self):
        """Of each slice how long it takes without those in it."""
        times = [one["end_ns"] - one["begin_ns"] for one in self.slices]
        for one in self.slices:
            if one["parent"] is not None:
                times[one["parent"]] -= one["end_ns"] - one["begin_ns"]
        return times

    def with_those_above(self, number):
        """A slice, and those that hold it, outward."""
        while number is not None:
            yield self.slices[number]
            number = self.slices[number]["parent"]

    def test_its_classes_know_every_byte(self):
        self.assertEqual(self.reading["faults"], [])
        self.assertEqual(self.trace.stat().st_mode & 0o777, 0o600)
        self.assertLess(self.trace.stat().st_size, self.timeline.stat().st_size / 2)

    def test_its_slices_are_the_spans_of_the_timeline(self):
        titles = {(rank["rank"], place): lane["title"] for rank in self.json["otherData"]["ranks"] for place, lane in enumerate(rank["lanes"])}
        expected, found = Counter(), Counter()
        for event in self.json["traceEvents"]:
            if event["ph"] == "X":
                begin_ns = round(event["ts"] * 1000)
                rank, title = (event["pid"], titles[event["pid"], event["tid"]]) if event["pid"] < 2 else (None, "critical path")
                expected[rank, title, event["cat"], event["name"], begin_ns, begin_ns + round(event["dur"] * 1000), event["args"]["step"]] += 1
        for one in self.slices:
            rank, title = self.lane_of(one["track"])
            found[rank, title, one["category"], one["name"], one["begin_ns"], one["end_ns"], one["arguments"]["step"]] += 1
        self.assertEqual(expected - found, Counter())
        self.assertEqual(found - expected, Counter())

    def test_spans_nest_and_lanes_do_not_overlap(self):
        main_tracks, rows = defaultdict(set), defaultdict(list)
        for one in self.slices:
            if self.lane_of(one["track"])[1] == "compute":
                main_tracks[self.lane_of(one["track"])].add(one["track"])
                parent = self.slices[one["parent"]] if one["parent"] is not None else one
                self.assertEqual(parent["track"], one["track"])
                self.assertTrue(parent["begin_ns"] <= one["begin_ns"] <= one["end_ns"] <= parent["end_ns"], (one, parent))
            else:
                self.assertIsNone(one["parent"], one)
                rows[one["track"]].append((one["begin_ns"], one["end_ns"]))
        self.assertEqual({lane: len(tracks) for lane, tracks in main_tracks.items()}, {(0, "compute"): 1, (1, "compute"): 1})
        for row in rows.values():
            for before, after in zip(row, row[1:]):
                self.assertLessEqual(before[1], after[0], row)

    def test_what_a_rank_does_in_a_step_adds_up_to_it(self):
        step_ns, sums, uses_of = {}, Counter(), defaultdict(Counter)
        for number, alone_ns in enumerate(self.self_ns()):
            above = list(self.with_those_above(number))
            rank, lane = self.lane_of(above[0]["track"])
            if lane != "compute" or above[-1]["category"] != "step":
                continue
            key = rank, above[-1]["arguments"]["step"]
            step_ns[key] = above[-1]["end_ns"] - above[-1]["begin_ns"]
            sums[key] += alone_ns
            whole = [one["category"] for one in above if one["category"] in WHOLE]
            uses_of[key[1]][whole[-1] if whole else above[0]["category"]] += alone_ns
        self.assertEqual(set(step_ns), {(rank, step) for rank in range(2) for step in range(1, STEPS + 1)})
        self.assertEqual(sums, step_ns)
        summary = json.loads(self.done([TESSERA, "trace", "summary", self.timeline, "--json"]))
        # Of the first ones those that warm up do not count there.
        step_ns = {key: ns for key, ns in step_ns.items() if key[1] not in summary["left_out_steps"]}
        uses = sum((uses for step, uses in uses_of.items() if step not in summary["left_out_steps"]), Counter())
        self.assertAlmostEqual(sum(step_ns.values()) * 1e-9 / len(step_ns), summary["rank_step_seconds"], places=9)
        for category, use in {"operator": "compute", "copy": "copy", "batch": "batch", "compilation": "compilation"}.items():
            self.assertAlmostEqual(uses[category] * 1e-9 / len(step_ns), summary["seconds"][use], places=9, msg=category)

    def test_the_critical_path_ends_with_the_last_rank_and_has_no_gaps(self):
        ends, paths = defaultdict(int), defaultdict(list)
        for one in self.slices:
            step = one["arguments"]["step"]
            if one["category"] == "step":
                ends[step] = max(ends[step], one["end_ns"])
            elif one["category"] == "critical path":
                paths[step].append((one["begin_ns"], one["end_ns"]))
        self.assertEqual(set(paths), set(range(1, STEPS + 1)))
        for step, path in paths.items():
            self.assertTrue(all(before[1] == after[0] for before, after in zip(path, path[1:])), (step, path))
            self.assertEqual(path[-1][1], ends[step])

    def test_arrows_lead_from_the_late_rank_to_those_that_waited(self):
        begins, ends = {}, {}
        for one in self.slices:
            for flow in one["flows"]:
                self.assertNotIn(flow, begins)
                begins[flow] = one
            for flow in one["terminated_flows"]:
                self.assertNotIn(flow, ends)
                ends[flow] = one
        self.assertTrue(begins)
        self.assertEqual(set(begins), set(ends))
        for flow, late in begins.items():
            waiting = ends[flow]
            self.assertLessEqual(late["begin_ns"], waiting["end_ns"])
            self.assertGreaterEqual(waiting["arguments"]["waited_ns"], 50_000)
            self.assertEqual(self.lane_of(late["track"])[0], waiting["arguments"]["late_rank"])
            self.assertNotEqual(self.lane_of(late["track"])[0], self.lane_of(waiting["track"])[0])
        # Rank 1 is 50 ms late in each step: a pause of the other one is hardly as long as that.
        self.assertGreaterEqual(sum(waiting["arguments"]["waited_ns"] > 1_000_000 for waiting in ends.values()), STEPS)

    def test_a_part_is_exported_too_and_what_is_none_is_refused(self):
        code, out = run([JOB, "--data_path", self.folder / "cifar", "--steps", 3], TESSERA_TRACE=self.folder / "alone.json")
        self.assertEqual(code, 0, out)
        self.done([TESSERA, "trace", "export", self.folder / "alone.json.rank.0", "-o", self.folder / "alone.pftrace"])
        reading = self.read(self.folder / "alone.pftrace")
        self.assertEqual(reading["faults"], [])
        self.assertEqual(sorted(one["name"] for one in reading["slices"] if one["category"] == "step"), ["step 1", "step 2", "step 3"])
        code, out = run([TESSERA, "trace", "export", self.trace, "-o", self.folder / "again.pftrace"])
        self.assertEqual(code, 1, out)
        self.assertIn("not JSON: line ", out)
        self.assertFalse((self.folder / "again.pftrace").exists())

    def ask(self, file):
        done = subprocess.run([self.python, "-c", ASK, os.environ["PERFETTO_TP"], file], input=json.dumps(QUERIES), capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_its_trace_processor_finds_the_same(self):
        if not os.environ.get("PERFETTO_TP"):
            self.skipTest("PERFETTO_TP names no trace processor")
        steps = [one for one in self.slices if one["category"] == "step"]
        step_ns = sum(one["end_ns"] - one["begin_ns"] for one in steps)
        answers = self.ask(self.trace)
        self.assertEqual(answers, {"slices": len(self.slices), "steps": 2 * STEPS, "step_ns": step_ns, "errors": 0, "unended": 0, "crossing": 0,
                                   "overlapping": 0, "arrows": sum(len(one["flows"]) for one in self.slices)})
        answers = self.ask(self.timeline)
        self.assertEqual((answers["steps"], answers["step_ns"]), (2 * STEPS, step_ns))


if __name__ == "__main__":
    main()
