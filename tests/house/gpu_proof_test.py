"""Claims about scripts/gpu_proof and scripts/bundle, with a bundle whose programs pretend (fake_bundle.py): what is found, what becomes of
programs that hang, fail or crash, and how a run goes on where another one was cut off."""

import contextlib
import io
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import fake_bundle
from claims import main

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "benchmarks")]
import from_files_side  # noqa: E402
from proof import parts, rows_of_benchmark, schedule  # noqa: E402
from proof.machine import Cut, Done, Machine  # noqa: E402
from proof.record import Record, Row, judged  # noqa: E402
from proof.schedule import Part, Step  # noqa: E402


def running_commands():
    """The words of all processes of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append(path.read_bytes())
    return found


class WithBundle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.bundle, self.path = fake_bundle.make(self.folder)
        self.out = self.folder / "out"
        self.environment = os.environ | {"PATH": f"{self.path}:{os.environ['PATH']}"}
        stop = mock.patch.dict(os.environ, self.environment)
        stop.start()
        self.addCleanup(stop.stop)

    def fault(self, program, what):
        (self.bundle / "faults" / program).write_text(what)

    def machine(self):
        self.out.mkdir(exist_ok=True)
        machine = Machine(ROOT, self.bundle, self.folder / "work", self.out / "log.txt", str(self.path / "torch-python"))
        machine.prepare()
        return machine

    def prove(self, *options, out=None):
        """The run of the script."""
        return subprocess.run(self.command(*options, out=out), capture_output=True, text=True)

    def command(self, *options, out=None):
        return [ROOT / "scripts" / "gpu_proof", "--bundle", self.bundle, "--out", out or self.out, "--work", self.folder / "work",
                "--torch", self.path / "torch-python", *options]

    def rows(self, out=None):
        return [json.loads(line) for line in ((out or self.out) / "results.jsonl").read_text().splitlines()]

    def verdicts(self):
        return {row["point"]: row["verdict"] for row in self.rows()}

    def step(self, part, name):
        """The rows of one step."""
        machine = self.machine()
        step = next(step for step in next(one for one in parts.PARTS if one.name == part).steps(machine) if step.name == name)
        return step.do(machine, time.monotonic() + 120)


class Script(WithBundle):
    def test_it_runs_all_parts_but_the_long_one_and_says_what_each_has_found(self):
        done = self.prove("--parts", "info,suite,losses,demo,overhead,headline,sanitizer,python,errors")
        verdicts = self.verdicts()
        self.assertEqual({point: verdict for point, verdict in verdicts.items() if verdict not in ("met", "told")},
                         {"initcheck of the operators": "missed"}, done.stdout + done.stderr)
        for point in ("cuda_kernels_test", "tessera info lists the GPU", "ten losses of ResNet-50 32x32 batch 64 float32, the CPU's",
                      "the demo trains on cuda:0, evaluated on cpu", "a GPU's checkpoint goes on and back on the GPU",
                      "memcheck of the operators",
                      "1,000 matmuls of 4x4 in a row: over graph", "ResNet-50 from files, 224x224 batch 32 bfloat16",
                      "the package tessera trains on cuda:0 as on the CPU", "out of device memory, the rest taken by another process",
                      "two processes on one device: the losses of one alone, bit by bit",
                      "4 processes on one device, through its memory: the losses of the host's memory, bit by bit"):
            self.assertEqual(verdicts[point], "met")
        self.assertEqual(done.returncode, 1)

        table = (self.out / "table.txt").read_text().splitlines()
        self.assertEqual(len(table), 1 + len(self.rows()) + 1)
        for row, line in zip(self.rows(), table[1:]):
            self.assertTrue(line.startswith(row["part"]), line)
            for cell in ("point", "figure", "verdict"):
                self.assertIn(row[cell], line)
        self.assertIn("1 missed", table[-1])
        self.assertIn("$ ", (self.out / "log.txt").read_text())
        self.assertIn("tessera_reduce", next(row for row in self.rows() if row["point"].startswith("initcheck"))["detail"])

    def test_what_is_found_is_not_looked_for_again(self):
        self.assertEqual(self.prove("--parts", "info").returncode, 0)
        before, log = self.rows(), (self.out / "log.txt").read_text()
        self.assertEqual(self.prove("--parts", "info").returncode, 0)
        self.assertEqual(self.rows(), before)
        self.assertEqual((self.out / "log.txt").read_text(), log)

    def test_another_machine_takes_over_what_is_done(self):
        self.prove("--parts", "info")
        other = self.folder / "other"
        done = self.prove("--parts", "info,losses", "--done", self.out / "results.jsonl", out=other)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.rows(other)[:len(self.rows())], self.rows())
        self.assertEqual({row["part"] for row in self.rows(other)}, {"info", "losses"})
        self.assertNotIn("tessera info", (other / "log.txt").read_text())

    def test_it_begins_nothing_for_which_there_is_no_time_and_says_so(self):
        done = self.prove("--parts", "losses,demo", "--budget", "1")
        self.assertEqual(done.returncode, 1)
        self.assertEqual([(row["verdict"], row["detail"]) for row in self.rows()], 4 * [("cut", "it did not begin")])
        self.assertFalse((self.out / "log.txt").exists())

    def test_whoever_ends_it_ends_what_it_runs_and_keeps_what_it_has_found(self):
        self.fault("cuda_kernels_test", "hangs")
        script = subprocess.Popen(self.command("--parts", "suite"), stdout=subprocess.PIPE, text=True)
        self.assertIn("training_on_cuda_test", script.stdout.readline())
        script.send_signal(signal.SIGTERM)
        self.assertEqual(script.wait(120), 128 + signal.SIGTERM)
        script.stdout.close()
        self.assertEqual(self.verdicts(), {"training_on_cuda_test": "met"})
        self.assertIn("1 met", (self.out / "table.txt").read_text())
        self.assertEqual([words for words in running_commands() if str(self.bundle / "bin").encode() in words], [])

    def test_it_lists_parts_and_steps(self):
        said = self.prove("--list").stdout
        for part in parts.PARTS:
            self.assertIn(part.line(), said)
        self.assertIn("training_on_cuda_test", said)
        self.assertIn("ResNet-50 224x224 batch 256 bfloat16/max-autotune", said)
        self.assertFalse(self.out.exists())

    def test_a_part_that_there_is_not_is_refused_with_those_that_are(self):
        done = self.prove("--parts", "info,suit")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no part 'suit': info, suite, losses,", done.stderr)

    def test_a_folder_that_is_no_bundle_is_refused(self):
        (self.bundle / "cuda_tests").unlink()
        done = self.prove("--list")
        self.assertEqual(done.returncode, 2)
        self.assertIn("is no unpacked bundle: it has no cuda_tests; scripts/bundle packs one", done.stderr)

    def test_without_a_gpu_it_says_so_and_writes_nothing(self):
        (self.path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
        done = self.prove("--parts", "info")
        self.assertEqual(done.returncode, 2)
        self.assertIn("nvidia-smi shows no GPU here; --dry", done.stderr)
        self.assertFalse(self.out.exists())

    def test_its_help_teaches_the_way_there_and_back(self):
        said = subprocess.run([ROOT / "scripts" / "gpu_proof", "--help"], capture_output=True, text=True, check=True).stdout
        for word in ("scripts/bundle DIR", "table.txt", "results.jsonl", "--done results.jsonl", "--dry", "TESSERA_TORCH_PYTHON"):
            self.assertIn(word, said)

    def test_dry_it_starts_every_program_and_compiles_each_step(self):
        (self.path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
        done = self.prove("--dry")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        verdicts = self.verdicts()
        self.assertEqual(verdicts["programs that start"], "met")
        self.assertEqual(verdicts["tests of the suite cuda that are there"], "met")
        self.assertEqual(sum(point.endswith(": compiles") for point in verdicts), 7)
        self.assertIn("--device dry", (self.out / "log.txt").read_text())


class Suite(WithBundle):
    def test_the_tests_that_fail_are_named(self):
        self.fault("cuda_kernels_test", "fails")
        [row] = self.step("suite", "cuda_kernels_test")
        self.assertEqual((row.verdict, row.figure), ("failed", "40 of 41 passed"))
        self.assertIn("operator_3", row.detail)

    def test_a_test_that_ends_the_program_is_named(self):
        self.fault("cuda_kernels_test", "crashes")
        [row] = self.step("suite", "cuda_kernels_test")
        self.assertEqual(row.verdict, "failed")
        self.assertIn("operator_3 did not end", row.detail)
        self.assertIn("-6", row.detail)

    def test_what_hangs_is_cut_and_what_has_passed_before_is_told(self):
        said = "[ RUN      ] A.one\n[       OK ] A.one (3 ms)\n[ RUN      ] A.two\n"
        with mock.patch.object(Machine, "run_all", side_effect=[[Done(0, "A.\n" + 41 * "  one\n", 1, False)], [Done(-9, said, 2, True)]]):
            [row] = self.step("suite", "cuda_kernels_test")
        self.assertEqual((row.verdict, row.figure), ("cut", "1 of 41 passed"))

    def test_cases_are_counted_as_they_end(self):
        passed, failed, skipped, still_running = parts.count_cases(
            "[ RUN      ] A.one\n[       OK ] A.one (3 ms)\n"
            "[ RUN      ] B/C.two/x\n[  FAILED  ] B/C.two/x, where GetParam() = 4-byte object (7 ms)\n"
            "[ RUN      ] A.three\n[  SKIPPED ] A.three (0 ms)\n[ RUN      ] A.four\n"
            "[  FAILED  ] 1 test, listed below:\n[  FAILED  ] B/C.two/x\n")
        self.assertEqual((passed, failed, skipped, still_running), (["A.one"], ["B/C.two/x"], ["A.three"], ["A.four"]))


class Package(WithBundle):
    def test_where_it_is_not_built_or_for_another_python_it_is_passed_over_with_the_reason(self):
        (self.path / "torch-python").write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'tessera._tessera'\" >&2\nexit 1\n")
        [row] = self.step("python", "package")
        self.assertEqual(row.verdict, "skipped")
        self.assertIn("tessera._tessera", row.detail)
        (self.bundle / "python").rmdir()
        [row] = self.step("python", "package")
        self.assertEqual((row.verdict, "the bundle has no Python package" in row.detail), ("skipped", True))


class Losses(unittest.TestCase):
    def test_they_are_read_by_epoch_and_step(self):
        said = "x\nepoch: 1 step: 2, loss is 2.5\nepoch 1/5: loss 0.1\nepoch: 2 step: 1, loss is 1e-3\n"
        self.assertEqual(parts.losses_of(said), {(1, 2): 2.5, (2, 1): 1e-3})

    def test_they_are_apart_by_the_worst_relative_to_those_above_1(self):
        self.assertAlmostEqual(parts.deviation({(1, 1): 4.4, (1, 2): 0.55}, {(1, 1): 4.0, (1, 2): 0.5}), 0.1)

    def test_those_of_other_steps_are_not_compared(self):
        for ours, expected in (({(1, 1): 1}, {(1, 1): 1, (1, 2): 1}), ({}, {})):
            with self.assertRaisesRegex(RuntimeError, "where those of"):
                parts.deviation(ours, expected)


class Sanitizer(unittest.TestCase):
    def test_errors_are_counted_and_their_kernels_named(self):
        said = ("========= Invalid __global__ read of size 4 bytes\n=========     at tessera_add+0x90\n=========     by thread (0,0,0)\n"
                "=========     at void cutlass::Kernel<float>(int)+0x40\n========= ERROR SUMMARY: 12 errors\n")
        self.assertEqual(parts.errors_found(said)[0], 12)
        self.assertIn("tessera_add", parts.errors_found(said)[1])

    def test_where_it_does_not_come_to_its_end_there_is_no_number(self):
        self.assertIsNone(parts.errors_found("========= COMPUTE-SANITIZER\n"))

    def test_tests_have_the_names_of_their_suites(self):
        said = "Running main()\nAll/Kernels.\n  Agree/add_0  # GetParam() = 3\n  Agree/add_1\nPlans.  # TypeParam\n  Equal\n"
        self.assertEqual(parts.names_of_tests(said), ["All/Kernels.Agree/add_0", "All/Kernels.Agree/add_1", "Plans.Equal"])


class Benchmark(WithBundle):
    def measure(self, case, group):
        machine = self.machine()
        with contextlib.redirect_stdout(io.StringIO()):
            return rows_of_benchmark.step_of(case, group, True).do(machine, time.monotonic() + 500)

    def test_ours_is_held_against_the_goal_each_peer_their_memory_and_the_limit(self):
        name = "ResNet-50 32x32 batch 128 bfloat16"
        rows = self.measure(rows_of_benchmark.Measured(name, (), 52_000), ("eager", "default", "max-autotune", "alone"))
        found = {row.point.removeprefix(name): (row.figure, row.goal, row.verdict) for row in rows}
        self.assertEqual(found, {"": ("53,000 images/s", ">= 52,000 images/s", "met"), ": arena over its plan": ("1.000", "= 1", "met"),
                                 ": over eager": ("10.600", "> 1", "met"), ": over max-autotune": ("0.883", "> 1", "missed"),
                                 ": memory over eager's": ("0.600", "<= 0.8", "met"),
                                 ": memory over max-autotune's": ("0.600", "<= 0.8", "met"),
                                 ": share of products alone": ("0.530", "", "told"),
                                 # A peer that does not run is nobody's goal.
                                 ": pytorch, default": ("", "", "told")})

    def test_where_ours_fails_that_is_said_and_no_peer_is_beaten(self):
        (self.bundle / "bin" / "transformer_bench").write_text("#!/bin/sh\nexit 3\n")
        rows = self.measure(rows_of_benchmark.Measured("Transformer 32 x 64 tokens tf32", ()), ("eager",))
        self.assertEqual([(row.point, row.verdict) for row in rows], [("Transformer 32 x 64 tokens tf32: tessera", "failed")])
        self.assertIn("exit code 3", rows[0].detail)

    def test_every_case_of_the_benchmark_is_in_a_part_and_every_side_in_a_group(self):
        import gpu
        named = rows_of_benchmark.TRAININGS + rows_of_benchmark.OVERHEAD + rows_of_benchmark.HEADLINE
        measured = {case.case: case for case in named + rows_of_benchmark.others(self.machine())}
        cases = gpu.cases(2)
        self.assertEqual(set(measured), {case.name for case in cases})
        for case in cases:
            endings = tuple(ending for group in measured[case.name].groups for ending in group)
            for side in case.sides:
                self.assertTrue(side.role == "ours" or side.name.endswith(endings), f"{case.name}: {side.name}")

    def test_a_case_that_no_list_names_is_measured_with_all_its_sides(self):
        import gpu
        import harness
        case = harness.Case("a new one", [harness.Side("ours", "new", []), harness.Side("limit", "the bytes alone", [])], unit="s")
        with mock.patch.object(gpu, "cases", return_value=[case]):
            self.assertEqual(rows_of_benchmark.others(self.machine()), [rows_of_benchmark.Measured("a new one", (("the bytes alone",),))])

    def test_a_figure_that_is_better_the_smaller_it_is_is_compared_so(self):
        row = {"unit": "s", "sides": {"new": {"role": "ours", "median": 2.0, "lowest": 1.0, "highest": 3.0},
                                      "pytorch, eager": {"role": "peer", "median": 3.0, "lowest": 3.0, "highest": 3.0}}}
        points = rows_of_benchmark.points_of(rows_of_benchmark.Measured("a save", ()), row, True)
        self.assertEqual([(point.point, point.figure, point.verdict) for point in points],
                         [("a save", "2 s", "told"), ("a save: over eager", "1.500", "met")])

    def test_a_training_from_files_goes_at_the_rate_of_its_epochs(self):
        lines = iter(["epoch: 1 step: 1, loss is 2\n", "epoch 1/5: loss 0.1000, 250.5 images/s, 1.0 s\n",
                      "epoch 2/5: loss 0.1000, 4000.0 images/s, 1.0 s\n"])
        self.assertEqual([from_files_side.rate_of(lines) for _ in range(2)], [250.5, 4000.0])
        with self.assertRaisesRegex(SystemExit, "it said:\nerror"):
            from_files_side.rate_of(iter(["error\n"]))


def told_step(name, seconds, call=lambda: None):
    """A step that calls, and has something to tell."""
    return Step(name, seconds, lambda *_: call() or [Row(name, "1", "told")])


class Schedule(WithBundle):
    """Steps of seconds and less."""

    def setUp(self):
        super().setUp()
        for stop in (mock.patch.object(schedule, "LEAST_S", 0.05), contextlib.redirect_stdout(io.StringIO())):
            stop.__enter__()
            self.addCleanup(stop.__exit__, None, None, None)

    def run_parts(self, *made, budget=500.0, again=False):
        record = Record(self.out)
        schedule.run_parts(self.machine(), record, made, time.monotonic() + budget, again)
        return {row.step: row for row in Record(self.out).rows()}

    def test_a_program_that_hangs_is_ended_with_what_it_has_started_and_the_next_step_runs(self):
        held = self.folder / "held"
        os.mkfifo(held)
        reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        os.close(os.open(held, os.O_WRONLY))  # from here on the reader is told that nobody has the other end open

        def hang(machine, until):
            machine.must(["sh", "-c", f"trap '' TERM; sleep 1000 > {held} & wait"], until)

        with mock.patch("proof.machine.GRACE_S", 0.2):
            rows = self.run_parts(Part("one", "", 500, lambda _: [Step("hangs", 0.5, hang), told_step("runs", 60)]))
        self.assertEqual((rows["one/hangs"].verdict, rows["one/runs"].verdict), ("cut", "told"))
        self.assertIn("did not end in", rows["one/hangs"].detail)
        # Nobody has the other end open any more.
        self.assertEqual(select.select([reader], [], [], 60)[0], [reader])
        self.assertEqual(os.read(reader, 1), b"")

    def test_a_step_that_throws_has_failed_and_the_next_one_runs(self):
        def throws(machine, until):
            raise ValueError("no number")

        rows = self.run_parts(Part("one", "", 500, lambda _: [Step("throws", 60, throws), told_step("runs", 60)]))
        self.assertEqual((rows["one/throws"].verdict, rows["one/throws"].detail, rows["one/runs"].verdict), ("failed", "no number", "told"))
        self.assertIn("Traceback", (self.out / "log.txt").read_text())

    def test_a_part_leaves_the_others_their_time_and_has_what_they_leave(self):
        untils = []

        def longs(machine, until):
            untils.append(until - time.monotonic())
            if len(untils) == 1:
                raise Cut("too short")
            return [Row("x", "1", "told")]

        order = []
        rows = self.run_parts(Part("long", "", 50, lambda _: [Step("a", 400, longs)]),
                              Part("other", "", 450, lambda _: [told_step("b", 1, lambda: order.append("b"))]))
        self.assertLessEqual(untils[0], 50)
        self.assertGreater(untils[1], 300)
        self.assertEqual(order, ["b"])
        self.assertEqual(rows["long/a"].verdict, "told")

    def test_with_more_time_than_all_want_each_has_more(self):
        untils = []

        def looks(machine, until):
            untils.append(until - time.monotonic())
            return [Row("x", "1", "told")]

        self.run_parts(Part("one", "", 50, lambda _: [Step("a", 40, looks)]))
        self.assertGreater(untils[0], 300)

    def test_only_what_was_cut_is_run_again_unless_more_is_asked_for(self):
        calls = []

        def part(verdict_of_cut):
            def step(name, verdict):
                return Step(name, 60, lambda *_: calls.append(name) or [Row(name, "1", verdict)])
            steps = [step("good", "met"), step("bad", "missed"), step("broken", "failed"), step("cut", verdict_of_cut)]
            return Part("one", "", 500, lambda _: steps)

        self.run_parts(part("cut"))
        calls.clear()
        self.run_parts(part("met"))
        self.assertEqual(calls, ["cut"])
        calls.clear()
        rows = self.run_parts(part("met"), again=True)
        self.assertEqual(calls, ["bad", "broken"])
        self.assertEqual(len(rows), 4)

    def test_what_runs_ahead_is_ended_before_its_part_begins(self):
        children = []
        found = []

        def ahead(machine):
            children.append(machine.start(["sleep", "1000"], stdout=subprocess.DEVNULL))
            return children

        with mock.patch("proof.schedule.AHEAD_SHARE", 0.001):
            self.run_parts(Part("first", "", 200, lambda _: [told_step("a", 60, lambda: found.append(children[0].poll()))]),
                           Part("second", "", 300, lambda _: [told_step("b", 60, lambda: found.append(children[0].poll()))], ahead))
        self.assertIsNone(found[0])
        self.assertLess(found[1], 0)


class Results(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def add(self, record, step, *rows):
        with contextlib.redirect_stdout(io.StringIO()):
            record.add("part", step, list(rows), 1)

    def test_a_line_that_was_cut_off_is_none_and_one_that_is_wrong_is_named(self):
        self.add(Record(self.folder), "a", judged("x", "1", True, "1"))
        path = self.folder / "results.jsonl"
        whole = path.read_text()
        path.write_text(whole + whole[:20])
        self.assertEqual([row.verdict for row in Record(self.folder).rows()], ["met"])
        path.write_text("{}\n" + whole)
        with self.assertRaisesRegex(SystemExit, "results.jsonl:1: no row of a proof"):
            Record(self.folder)

    def test_after_a_line_that_was_cut_off_the_next_is_whole(self):
        self.add(Record(self.folder), "a", judged("x", "1", True, "1"))
        path = self.folder / "results.jsonl"
        path.write_text(path.read_text() + '{"point": "y"')
        self.add(Record(self.folder), "b", judged("z", "1", False, "1"))
        self.assertEqual([row.point for row in Record(self.folder).rows()], ["x", "z"])

    def test_what_a_step_says_anew_replaces_what_it_has_said(self):
        record = Record(self.folder)
        self.add(record, "a", Row("x", "1", "cut"), Row("y", "1", "met"))
        with mock.patch("time.time", return_value=time.time() + 1):
            self.add(record, "a", Row("x", "2", "met"))
        for found in (record, Record(self.folder)):
            self.assertEqual([(row.point, row.figure) for row in found.rows()], [("x", "2")])
        self.assertNotIn("cut", (self.folder / "table.txt").read_text())


def tests_of_suite():
    """The programs that carry the label cuda."""
    found = set()
    for path in [*(ROOT / "tests").rglob("CMakeLists.txt"), *(ROOT / "tessera").rglob("CMakeLists.txt")]:
        for words in re.findall(r"tessera_test\(([^)]*)\)", path.read_text()):
            name, *rest = words.split()
            if "LABELS" in rest and "cuda" in rest[rest.index("LABELS"):]:
                found.add(name)
    return sorted(found)


class Bundle(unittest.TestCase):
    """scripts/bundle, with programs that are copies of one that does nothing."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.bin = self.folder / "bin"
        self.bin.mkdir()

    def programs(self, *names):
        for name in names:
            shutil.copy("/bin/true", self.bin / name)

    def pack(self, *options):
        return subprocess.run([ROOT / "scripts" / "bundle", self.folder / "packed", "--bin", self.bin, "--python", self.folder, *options],
                              capture_output=True, text=True)

    def test_it_packs_all_that_the_proof_runs(self):
        import gpu
        import harness
        benchmarks = harness.programs_of(gpu.cases(1))
        self.assertLessEqual({"resnet50_cifar10", "resnet50_bench", "transformer_bench", "step_overhead_bench"}, set(benchmarks))
        names = ["tessera", *benchmarks, *tests_of_suite()]
        self.programs(*names)
        # Of other suites, whose names are alike.
        self.programs("plans_on_emulated_gpu_test", "generated_kernels_test")
        done = self.pack()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"bundle\.tgz: \d+\.\d MiB")
        subprocess.run(["tar", "-C", self.folder, "-xf", self.folder / "packed" / "bundle.tgz"], check=True)
        bundle = self.folder / "bundle"
        self.assertLessEqual(set(names), {path.name for path in (bundle / "bin").iterdir()})
        self.assertNotIn("generated_kernels_test", {path.name for path in (bundle / "bin").iterdir()})
        tests = (bundle / "cuda_tests").read_text().split()
        self.assertEqual(tests, tests_of_suite())
        self.assertLessEqual({"cuda_kernels_test", "plans_on_cuda_test", "training_on_cuda_test"}, set(tests))
        self.assertTrue((bundle / "commit").read_text().strip())
        self.assertFalse(list(bundle.rglob("*.pyc")))
        # What is unpacked stands by itself.
        own = bundle / "scripts" / "gpu_proof"
        said = subprocess.run([own, "--list"], capture_output=True, text=True, check=True, cwd=self.folder).stdout
        self.assertIn("training_on_cuda_test", said)
        done = subprocess.run([own, "--dry", "--parts", "programs", "--out", self.folder / "dry", "--work", self.folder / "work"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"{len(names)} of {len(names)}", done.stdout)

    def test_a_program_that_is_not_built_is_named(self):
        done = self.pack("tessera")
        self.assertEqual(done.returncode, 1)
        self.assertIn("tessera is not built: run cmake --build --preset release --target tessera", done.stderr)

    def test_programs_can_be_named(self):
        self.programs("tessera", "cuda_kernels_test")
        self.assertEqual(self.pack("tessera").returncode, 0)
        packed = subprocess.run(["tar", "-tf", self.folder / "packed" / "bundle.tgz"], capture_output=True, text=True, check=True)
        programs = [name for name in packed.stdout.splitlines() if name.startswith("bundle/bin/")]
        self.assertEqual(programs, ["bundle/bin/", "bundle/bin/tessera"])

    def test_the_operators_package_comes_with_the_program_that_reads_manifests_by_it(self):
        self.programs("tessera", "cuda_kernels_test")
        for program, comes in (("tessera", True), ("cuda_kernels_test", False)):
            self.assertEqual(self.pack(program).returncode, 0)
            subprocess.run(["tar", "-C", self.folder, "-xf", self.folder / "packed" / "bundle.tgz"], check=True)
            package = self.folder / "bundle" / "python" / "tessera_operator"
            own = ROOT / "deploy" / "operator" / "tessera_operator"
            expected = {file.name for file in own.iterdir() if file.is_file()} if comes else set()
            self.assertEqual({file.name for file in package.iterdir()} if package.exists() else set(), expected)
            shutil.rmtree(self.folder / "bundle")

    def test_its_help_says_what_is_in_it(self):
        said = subprocess.run([ROOT / "scripts" / "bundle", "--help"], capture_output=True, text=True, check=True).stdout
        for word in ("--kernels", "--xz", "cuda_tests", "scripts/gpu_proof", "TESSERA_TORCH_PYTHON"):
            self.assertIn(word, said)


if __name__ == "__main__":
    main()
