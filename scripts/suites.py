"""Runs the test suites; scripts/test calls this.

A suite is a ctest label (`fast`, `multiprocess`, ...: whatever the CMakeLists.txt give their tests) or one of
  asan-ubsan         the fast suite, less what is labelled no-sanitizer, built with those sanitizers
                     (`fuzz` is a label of its own, and runs in that build too)
  tsan               the tests labelled threads: those in which threads of ours meet
  lint               layers, clang-format, clang-tidy
Each ends with a line `N passed, N failed[, N skipped]` that counts test cases, not programs.

Where time is limited (--minutes), what is not begun in time is named as skipped. The fast suite and lint come first and are whole.
The others come in an order that the commit draws, and each begins its tests, in such an order too, for its share of the time that is
left, SUITE_MINUTES at most. Last come the suites that need a build of their own, for which with a cold cache of compiled objects all
that time would not do. To these a part of it is kept, which they share; each compiles its programs in an order that the commit draws
until half of its share is over. What is compiled by then runs in the other half.
"""

import argparse
import concurrent.futures
import difflib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree
from dataclasses import dataclass, field
from pathlib import Path

import lint

ROOT = Path(__file__).resolve().parent.parent
JOBS = len(os.sched_getaffinity(0))
SANITIZERS = ("asan-ubsan", "tsan")
SANITIZER_LABEL = {"asan-ubsan": "fast", "tsan": "threads"}
# Suites that run in another build than release, and the one target that they need of it.
OTHER_BUILD = {"fuzz": ("asan-ubsan", "fuzz")}
# What the release build has to compile where only this suite runs; else everything.
ONLY_TARGET = {("fast",): "suite_fast", ("house",): "suite_house"}
# Minutes after which a machine that tests every change (it says so by CI=true) begins no further suite. Such machines end a
# run that takes too long, and then nothing of it counts.
CI_MINUTES = 62
# Of limited time a suite begins its tests for so long at most, and for so many times an equal part of what is left: most suites need
# less than that.
SUITE_MINUTES = 5
SUITE_PARTS = 1.5
# These are whole wherever they run.
ALWAYS_WHOLE = ("fast", "lint")
# The part of limited time that only suites with a build of their own have.
KEPT_SHARE = 0.2
# So many programs are asked for at once, where a build may be cut short.
PROGRAMS_AT_ONCE = 6
# What a test of very many cases says of them at its end.
SUMMARY = (r"^\d+ cases, \d+ failures.*$|^\d+ of \d+ mutants killed.*$|^reference: \d+ equal.*$|^\d+ wrong calls$"
           r"|^\d+ names work, \d+ are refused$")
NO_SUITE = {"no-sanitizer", "privileged", "threads"}  # labels that say something about a test but name no suite
WITHIN_OTHERS = {"house"}  # suites whose tests belong to another one each: they run by themselves where they are named

# Objects compiled in one clone serve another.
os.environ.setdefault("CCACHE_BASEDIR", str(ROOT))
os.environ.setdefault("CCACHE_NOHASHDIR", "1")

ENVIRONMENT = {
    # Tests that count allocations replace some of operator new's forms and not others.
    "asan-ubsan": {"ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:alloc_dealloc_mismatch=0", "UBSAN_OPTIONS": "print_stacktrace=1"},
    # libgomp is not built with TSan, which therefore sees races in its barriers: one OpenMP thread per rank. The threads
    # of ranks, transports and data workers are ours and are checked.
    "tsan": {"TSAN_OPTIONS": "halt_on_error=1", "OMP_THREAD_LIMIT": "1"},
}


@dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: list[str] = field(default_factory=list)  # "test: reason"

    def line(self):
        skipped = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def python_options():
    """What makes the Python packages part of the build; where they cannot be, one line says why."""
    if subprocess.run([ROOT / "scripts" / "setup", "python"]).returncode == 0:
        made = subprocess.run([sys.executable, ROOT / "scripts" / "python_env.py"], stdout=subprocess.PIPE, text=True)
        if made.returncode == 0:
            return ["-DTESSERA_PYTHON=ON", f"-DPython_EXECUTABLE={made.stdout.strip()}"]
    print("the Python packages are left out: their virtual environment could not be made", flush=True)
    return ["-DTESSERA_PYTHON=OFF"]


def configure(preset, options=()):
    log = ROOT / "build" / f"{preset}.configure.log"
    log.parent.mkdir(exist_ok=True)
    command = ["cmake", "--preset", preset]
    if preset == "release":
        # scripts/demo may have left these off.
        command += ["-DTESSERA_TESTS=ON", "-DTESSERA_BENCHMARKS=ON", *options]
    with open(log, "w") as out:
        status = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT).returncode
    if status != 0:
        print("".join(log.read_text().splitlines(keepends=True)[-40:]), end="")
        print(f"cannot configure the preset {preset}, see {log}", flush=True)
    return status == 0


def end_group(child, patience_s=20):
    """Ends a process with all of its group; what ninja was compiling is no file then."""
    for number in (signal.SIGINT, signal.SIGKILL):
        os.killpg(child.pid, number)
        try:
            child.wait(patience_s)
            return
        except subprocess.TimeoutExpired:
            pass


# Ninja writes its one changing line to a terminal; elsewhere only what went wrong is worth reading. Returns None where the
# build was not done by `deadline`: what it has compiled is kept.
def build(preset, targets, deadline):
    command = ["cmake", "--build", "--preset", preset, "--target", *targets, "--", "-k", "0"]
    log = ROOT / "build" / f"{preset}.build.log"
    with open(log, "w") as out:
        streams = {} if sys.stdout.isatty() else {"stdout": out, "stderr": subprocess.STDOUT}
        # Where it may be cut short, cmake and the ninja that it starts are a group, so that both hear of it.
        child = subprocess.Popen(command, cwd=ROOT, start_new_session=deadline is not None, **streams)
        try:
            status = child.wait(None if deadline is None else max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            end_group(child)
            return None
    if sys.stdout.isatty():
        return status == 0
    lines = log.read_text(errors="replace").splitlines()
    if status != 0:
        print("\n".join([line for line in lines if not re.match(r"\[\d+/\d+\] (Building|Linking)", line)][-200:]))
    print(f"{preset}: " + (lines[-1] if lines else "nothing to build"), flush=True)
    return status == 0


def build_in_groups(preset, programs, deadline):
    """As build(), so that where it is cut short, some programs are whole."""
    groups = [programs[i:i + PROGRAMS_AT_ONCE] for i in range(0, len(programs), PROGRAMS_AT_ONCE)]
    for group in groups:
        if (built := build(preset, group, deadline)) is not True:
            return built
    return True


def targets_of(preset):
    """What may be asked of a preset's build, by name."""
    listing = subprocess.run(["ninja", "-C", ROOT / "build" / preset, "-t", "targets", "all"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return set(re.findall(r"^([^/\s:]+): phony$", listing, re.M))


def stale_targets(preset):
    """The programs that a build would still link, by name."""
    plan = subprocess.run(["ninja", "-C", ROOT / "build" / preset, "-n"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return {Path(path).name for path in re.findall(r"Linking CXX executable (\S+)", plan.stdout)}


def drawn_order(names):
    """The names in an order that the commit draws."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    except FileNotFoundError:  # the sources need no git
        head = ""
    return random.Random(head.strip()).sample(sorted(names), len(names))


@dataclass
class Test:
    labels: set[str]
    program: Path | None  # that it starts; None where there is none to be found
    is_alone: bool = False  # nothing else may run meanwhile


def tests_of(preset):
    """The tests that ctest knows in a preset's build folder, by name."""
    listing = subprocess.run(["ctest", "--test-dir", ROOT / "build" / preset, "--show-only=json-v1"], cwd=ROOT,
                             capture_output=True, text=True, check=True).stdout
    tests = {}
    for test in json.loads(listing)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        command = test.get("command")
        tests[test["name"]] = Test(set(properties.get("LABELS", [])), Path(command[0]) if command else None,
                                   properties.get("RUN_SERIAL") is True)
    return tests


def suites_of(tests, order=sorted):
    """The suites that run where none is named, with `order` for those whose place is free; and those that run only where they are named."""
    labels = {label for test in tests.values() for label in test.labels} - NO_SUITE
    others = labels - {*OTHER_BUILD, *ALWAYS_WHOLE} - WITHIN_OTHERS
    return [*ALWAYS_WHOLE, *order(others), *OTHER_BUILD, *SANITIZERS], sorted(labels & WITHIN_OTHERS)


def compiled_tests(preset, label):
    """The tests of a label by whether their program is there and what it is made of is no newer: (those of which it is so, the others)."""
    stale = stale_targets(preset)
    compiled, missing = [], []
    for name, test in tests_of(preset).items():
        if label in test.labels and "no-sanitizer" not in test.labels:
            is_there = test.program is not None and test.program.exists() and test.program.name not in stale
            (compiled if is_there else missing).append(name)
    return compiled, missing


def count_test(name, output, ok):
    """The cases of one ctest entry: GoogleTest's summary, or the plain line, or else the entry itself."""
    count = Count()
    ran = re.findall(r"^\[  PASSED  \] (\d+) tests?\.", output, re.M)
    plain = re.findall(r"^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", output, re.M)
    if ran:
        count.passed = int(ran[-1])
        failed = re.findall(r"^\[  FAILED  \] (\d+) tests?, listed below:", output, re.M)
        count.failed = int(failed[-1]) if failed else 0
        skipped = re.findall(r"^\[  SKIPPED \] (\S+) \(\d+ ms\)$", output, re.M)
        for case in skipped:
            reason = re.search(r"^\[ RUN      \] " + re.escape(case) + r"\n(.*?)^\[  SKIPPED \]", output, re.M | re.S)
            reason = reason.group(1).partition("Skipped\n")[2].strip() if reason else ""
            count.skipped.append(f"{name}: {case}" + (f": {reason.splitlines()[0]}" if reason else ""))
    elif plain:
        passed, failed, skipped = plain[-1]
        count.passed, count.failed = int(passed), int(failed)
        count.skipped += re.findall(r"^skipped: (.*)$", output, re.M) or [name] * int(skipped or 0)
    elif ok:
        count.passed = 1
    if not ok and count.failed == 0:
        count.failed = 1  # a crash, a time-out, or a failure after the last case
    return count


def run_tests(preset, label, full, name=None):
    """The tests of a label, which print as they end; or that of a name, whose words come with its count: (Count, text)."""
    count = Count()
    folder = ROOT / "build" / preset
    report = folder / f"suite-{label}{'' if name is None else '-' + name}.xml"
    report.unlink(missing_ok=True)
    environment = os.environ | ENVIRONMENT.get(preset, {})
    # Tests run side by side: a thread that waits must not spin on the core that another test needs.
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if full:
        environment["TESSERA_TEST_FULL"] = "1"
    command = ["ctest", "--test-dir", folder, "-L", f"^{re.escape(label)}$", "-j", str(JOBS), "--output-on-failure",
               "--no-tests=error", "--test-output-size-passed", "10000000", "--test-output-size-failed", "10000000",
               "--output-junit", report]
    if preset in SANITIZERS:
        command += ["-LE", "^no-sanitizer$"]
    if name is not None:
        command += ["-R", f"^{re.escape(name)}$"]
    streams = {} if name is None else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, errors="replace", **streams)
    if not report.exists():
        count.failed = 1
        return count, done.stdout or ""
    summaries = []
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        skipped = case.find("skipped")
        if skipped is not None and "SKIP_" in skipped.get("message", ""):
            count.skipped.append(case.get("name"))
            continue
        summaries += re.findall(SUMMARY, output, re.M)
        one = count_test(case.get("name"), output, case.get("status") == "run")
        count.passed += one.passed
        count.failed += one.failed
        count.skipped += one.skipped
    if done.returncode != 0 and count.failed == 0:
        count.failed = 1
    if name is None:
        print("".join(line + "\n" for line in summaries), end="", flush=True)
        return count, ""
    report.unlink()
    # Of what ctest prints of one test only its line, and what a failure adds.
    lines = [line for line in done.stdout.splitlines() if not re.match(r"^(Internal ctest|Test project|    Start |$)", line.rstrip())]
    cut = next((at for at, line in enumerate(lines) if re.match(r"\d+% tests passed", line)), len(lines))
    return count, "".join(line + "\n" for line in [*lines[:cut], *summaries])


def run_until(preset, label, full, names, until):
    """Those of the tests that can begin by `until` of time.monotonic(), in an order that the commit draws."""
    count, running, tests = Count(), {}, tests_of(preset)

    def wait(when):
        done, _ = concurrent.futures.wait(running, return_when=when)
        for future in done:
            part, text = future.result()
            count.passed, count.failed, count.skipped = count.passed + part.passed, count.failed + part.failed, count.skipped + part.skipped
            print(f"{running.pop(future):>6.0f} s into it: {text}", end="", flush=True)

    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for name in drawn_order(names):
            while running and (len(running) >= JOBS or tests[name].is_alone):
                wait(concurrent.futures.FIRST_COMPLETED)
            if time.monotonic() > until:
                count.skipped.append(f"{name}: the time was over")
                continue
            running[pool.submit(run_tests, preset, label, full, name)] = time.monotonic() - begin
            if tests[name].is_alone:
                wait(concurrent.futures.ALL_COMPLETED)
        while running:
            wait(concurrent.futures.ALL_COMPLETED)
    return count


class Runner:
    def __init__(self, chosen, full, deadline):
        self.release_target = ONLY_TARGET.get(tuple(chosen), "all")
        self.full = full
        self.deadline = deadline  # of time.monotonic(), or None
        self.parts = []  # (name, seconds, Count or None)
        self.built = {}  # (preset, target) -> whether its build worked; None: it was cut short
        self.share = deadline  # until when the next suite may take
        self.build_by = deadline  # until when its build may

    def timed(self, name, function):
        start = time.monotonic()
        result = function()
        self.parts.append([name, time.monotonic() - start, result if isinstance(result, Count) else None])
        return result

    def prepare(self, preset, target):
        if (preset, target) not in self.built:
            name = f"build {preset}" + ("" if target == "all" else f" {target}")
            print(f"== {name}", flush=True)
            self.built[preset, target] = self.timed(name, lambda: configure(preset) and self.build(preset, target))
        return self.built[preset, target]

    def build(self, preset, target):
        if preset not in SANITIZERS or target != "all" or self.deadline is None:
            return build(preset, [target], self.build_by)
        # ctest knows no program of a test that was never built; its name is that of its target.
        programs = targets_of(preset) & {name for name, test in tests_of(preset).items()
                                         if SANITIZER_LABEL[preset] in test.labels and "no-sanitizer" not in test.labels}
        return build_in_groups(preset, drawn_order(programs), self.build_by)

    # `waiting`: how many suites, this one among them, want a share of the time until `deadline`, after which none of them begins.
    # `has_own_build`: half of the share is for compiling.
    def run(self, suite, waiting, deadline, has_own_build):
        if self.deadline is not None:
            now = time.monotonic()
            part = max(deadline - now, 0) / waiting
            self.share = now + part if has_own_build else min(deadline, now + min(60 * SUITE_MINUTES, SUITE_PARTS * part))
            self.build_by = (now + self.share) / 2 if has_own_build else deadline
        preset, target = OTHER_BUILD.get(suite, (suite, "all") if suite in SANITIZERS else ("release", self.release_target))
        built = self.prepare(preset, target)
        print(f"== {suite}", flush=True)
        is_over = deadline is not None and time.monotonic() > deadline
        if suite in SANITIZERS and self.deadline is not None and built is not False:
            count = self.timed(suite, lambda: self.run_compiled(suite))
            built = True
        elif built is None or is_over:
            count = self.timed(suite, lambda: Count(skipped=[f"{suite}: the whole suite, because the time was over"]))
            built = True
        elif suite == "lint":
            count = self.timed(suite, self.run_lint)
        elif self.deadline is not None and suite not in ALWAYS_WHOLE:
            names = [name for name, test in tests_of(preset).items() if suite in test.labels]
            count = self.timed(suite, lambda: run_until(preset, suite, self.full, names, self.share))
        else:
            label = SANITIZER_LABEL.get(suite, suite)
            count = self.timed(suite, lambda: run_tests(preset, label, self.full)[0])
        if not built:
            count.failed += 1  # what did not compile is not among the tests that ran
        for test in count.skipped:
            print(f"skipped: {test}")
        print(count.line(), flush=True)

    def run_compiled(self, suite):
        """The tests of a suite that has limited time, as far as they are compiled and it lasts."""
        compiled, missing = compiled_tests(suite, SANITIZER_LABEL[suite])
        count = run_until(suite, SANITIZER_LABEL[suite], self.full, compiled, self.share)
        count.skipped[:0] = [f"{name}: its program was not compiled in time" for name in missing]
        return count

    def run_lint(self):
        count = Count()
        count.passed, count.failed = lint.run(ROOT, ROOT / "build" / "release", JOBS, self.full)
        return count

    def print_table(self):
        print(f"\n{'part':<24}{'minutes':>8}{'passed':>9}{'failed':>9}{'skipped':>9}")
        for name, seconds, count in self.parts:
            cells = (count.passed, count.failed, len(count.skipped)) if count else ("", "", "")
            print(f"{name:<24}{seconds / 60:>8.1f}" + "".join(f"{cell:>9}" for cell in cells))
        counts = [count for _, _, count in self.parts if count]
        print(f"{'total':<24}{sum(part[1] for part in self.parts) / 60:>8.1f}{sum(c.passed for c in counts):>9}"
              f"{sum(c.failed for c in counts):>9}{sum(len(c.skipped) for c in counts):>9}", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="scripts/test", description="Builds Tessera and runs its tests.",
                                     epilog="Without --all: the fast suite.")
    parser.add_argument("--all", nargs="*", metavar="SUITE", help="every suite, or those named")
    parser.add_argument("--full", action="store_true", help="whole suites where otherwise a seeded sample runs")
    parser.add_argument("--list", action="store_true", help="print the suites and how many tests each has")
    parser.add_argument("--minutes", type=float, default=CI_MINUTES if os.environ.get("CI") == "true" else None,
                        help=f"begin no suite after so many minutes, and no test of a suite but {ALWAYS_WHOLE[0]} after {SUITE_MINUTES} of its own "
                             f"(default: no limit; with CI=true {CI_MINUTES})")
    arguments = parser.parse_args()
    deadline = None if arguments.minutes is None else time.monotonic() + 60 * arguments.minutes

    wants_python = arguments.all is not None and (
        not arguments.all or not {"python", "reference", "servers", "tutorials"}.isdisjoint(arguments.all))
    if not configure("release", python_options() if wants_python else ()):
        return 1
    tests = tests_of("release")
    suites, within = suites_of(tests, sorted if deadline is None else drawn_order)
    if arguments.list:
        for suite in [*suites, *within]:
            size = sum(1 for test in tests.values() if suite in test.labels)
            print(f"{suite:<16}" + (f"{size} test programs" if size else "see scripts/suites.py"))
        return 0

    chosen = ["fast"] if arguments.all is None else arguments.all or suites
    known = [*suites, *within]
    for suite in chosen:
        if suite not in known:
            close = difflib.get_close_matches(suite, known, 1)
            parser.error(f"no suite '{suite}'" + (f", did you mean '{close[0]}'?" if close else "") +
                         f" Suites: {' '.join(known)}")
    if "lint" in chosen and subprocess.run([ROOT / "scripts" / "setup", "lint"]).returncode != 0:
        return 1

    # Where Slurm cannot be installed, its tests say that they are skipped.
    if "slurm" in chosen:
        subprocess.run([ROOT / "scripts" / "setup", "slurm"])

    runner = Runner(chosen, arguments.full, deadline)
    with_builds = [suite for suite in chosen if suite in OTHER_BUILD or suite in SANITIZERS]
    begin_by = None if deadline is None else deadline - 60 * arguments.minutes * (KEPT_SHARE if with_builds else 0)
    sharing = [suite for suite in chosen if suite not in with_builds and suite not in ALWAYS_WHOLE]
    for suite in chosen:
        alike = next((suites for suites in (with_builds, sharing) if suite in suites), [suite])
        is_built = alike is with_builds
        runner.run(suite, len(alike) - alike.index(suite), deadline if is_built else begin_by, is_built)
    runner.print_table()
    counts = [count for _, _, count in runner.parts if count]
    return 1 if any(count.failed for count in counts) or not any(count.passed for count in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
