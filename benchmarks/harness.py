"""Runs a benchmark: all its sides take turns in one run, so that a change of the machine's speed meets all of them.

A benchmark is a module beside this one with DOC and cases(threads) -> [Case]. A side is a program that speaks the
protocol of protocol.h, or, for a case with `startup`, one that is started anew in each round and timed until it is ready.
"""

import argparse
import importlib
import json
import math
import os
import platform
import re
import selectors
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / "build" / "release" / "bin"
BENCHMARKS = ("resnet50", "gpu", "memory", "transformer", "step_overhead", "python_overhead", "data", "startup", "compile", "collectives",
              "ranks", "threads", "checkpoint", "reshard", "iopddl", "planning", "plan_quality", "pipelines", "servers",
              "recovery", "observing", "build", "first_minutes")
READY_TIMEOUT_S = 1200  # torch.compile of a whole network takes minutes
ROUND_TIMEOUT_S = 600

# glibc gives large blocks back to the system each time, which costs PyTorch page faults in every step.
TUNED_MALLOC = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=34359738368:"
                                  "glibc.malloc.trim_threshold=34359738368"}


@dataclass
class Side:
    role: str  # ours, peer or limit
    name: str
    command: list
    env: dict = field(default_factory=dict)
    launcher: list = field(default_factory=list)  # what starts the program, as several processes say
    also: list = field(default_factory=list)  # targets that it needs beside the program
    is_built: bool = True  # the program is a target of the build
    timeout_s: float = 0  # for getting ready and for a round, where they take longer than the constants above
    needs_torch: bool = False
    needs_package: bool = False  # a script that imports tessera
    # Once it has been measured:
    bytes: dict = field(default_factory=dict)  # memory by name, as it tells it
    gpu_mib: int | None = None  # what the first GPU had less of when it was ready


@dataclass
class Case:
    name: str
    sides: list
    unit: str = "images/s"
    startup: bool = False
    rounds: int | None = None  # instead of --rounds, where what is measured hardly varies
    only_by_name: bool = False  # runs where --case asks for it
    is_on_gpu: bool = False  # what each side takes of the first GPU's memory is told, too

    @property
    def higher_is_better(self):
        return self.unit.endswith("/s")


class Child:
    """A side while it runs. Its standard error goes where ours goes."""

    def __init__(self, side, environment):
        self.side = side
        self.process = subprocess.Popen([str(word) for word in side.launcher + side.command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=environment | side.env, text=True, bufsize=1)
        self.about = ""
        self.peak_mib = None  # of resident memory, of the process that speaks to us

    def read(self, timeout_s):
        """The next line that is JSON; a program may say other things before it."""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    raise RuntimeError(f"{self.side.name} said nothing for {timeout_s} s")
                line = self.process.stdout.readline()
                if not line:
                    raise RuntimeError(f"{self.side.name} ended with exit code {self.process.wait()}: "
                                       f"{' '.join(map(str, self.side.command))}")
                if line.startswith("{"):
                    return json.loads(line)

    def wait_ready(self):
        answer = self.read(max(READY_TIMEOUT_S, self.side.timeout_s))
        self.about = answer.get("about", "")
        self.side.bytes = answer.get("bytes", {})

    def round(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        answer = self.read(max(ROUND_TIMEOUT_S, self.side.timeout_s))
        value = answer["value"]
        self.about = answer.get("about", self.about)  # what is known only after the round
        self.side.bytes = answer.get("bytes", self.side.bytes)
        if not (math.isfinite(value) and value > 0):
            raise RuntimeError(f"{self.side.name} measured {value}")
        return value

    def close(self):
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            self.peak_mib = round(int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.M).group(1)) / 1024, 1)
        except (OSError, AttributeError):  # it has ended, or this is no Linux
            pass
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def used_gpu_mib():
    """What all processes together have of the first GPU's memory; None where nobody says so."""
    try:
        said = subprocess.run(["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=30, check=True).stdout
        return int(said)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def run_case(case, rounds, environment):
    """({side name: (side, about, values, peak of resident memory in MiB or None)}, {side name: why it failed}).

    A side that fails is left out from then on; the other sides are measured all the same."""
    values = {side.name: [] for side in case.sides}
    abouts = {}
    peaks = {}
    failures = {}

    def attempt(side, action):
        try:
            return action()
        except (RuntimeError, OSError, KeyError, json.JSONDecodeError) as error:
            failures[side.name] = str(error) or type(error).__name__
            print(f"benchmarks/run: {case.name}: {failures[side.name]}", file=sys.stderr, flush=True)
            return None

    if case.startup:
        def start_once(side):
            start = time.monotonic()
            child = Child(side, environment)
            try:
                child.wait_ready()
                values[side.name].append(time.monotonic() - start)
                abouts[side.name] = child.about
            finally:
                child.close()
                peaks[side.name] = child.peak_mib

        for _ in range(rounds):
            for side in case.sides:
                if side.name not in failures:
                    attempt(side, lambda: start_once(side))
    else:
        children = []
        try:
            # One after the other: warming up is part of nobody's measurement, and side by side it would take no less time.
            for side in case.sides:
                before = used_gpu_mib() if case.is_on_gpu else None
                child = attempt(side, lambda: Child(side, environment))
                if child:
                    children.append(child)
                    attempt(side, child.wait_ready)
                    abouts[side.name] = child.about
                if before is not None and (after := used_gpu_mib()) is not None:
                    side.gpu_mib = after - before
            for i in range(rounds):
                # Each begins a round in turn: what a side leaves behind, dirty pages or a hot core, meets all the others.
                first = i % max(len(children), 1)
                for child in children[first:] + children[:first]:
                    if child.side.name in failures:
                        continue
                    value = attempt(child.side, child.round)
                    if value is not None:
                        values[child.side.name].append(value)
                    abouts[child.side.name] = child.about
        finally:
            for child in children:
                child.close()
                peaks[child.side.name] = child.peak_mib
    for side in case.sides:
        if side.gpu_mib is not None and side.name in abouts:
            abouts[side.name] += f", {side.gpu_mib:,} MiB of the GPU"
    measured = [side for side in case.sides if side.name not in failures]
    return {side.name: (side, abouts[side.name], values[side.name], peaks.get(side.name)) for side in measured}, failures


def ratio(case, ours, other):
    """Above 1: ours is better."""
    if ours is None or other is None:
        return None
    return round(ours / other if case.higher_is_better else other / ours, 4)


def summarise(case, results, failures):
    """The row of the JSON form: the peer is the best of the peers, as is the limit."""
    medians = {}
    for side, _, values, _ in results.values():
        medians.setdefault(side.role, []).append(statistics.median(values))
    best = max if case.higher_is_better else min
    ours, peer, limit = (best(medians[role]) if role in medians else None for role in ("ours", "peer", "limit"))
    return {"case": case.name, "unit": case.unit, "ours": ours, "peer": peer, "limit": limit,
            "ours_over_peer": ratio(case, ours, peer), "ours_over_limit": ratio(case, ours, limit),
            "peak_mib": {name: peak for name, (_, _, _, peak) in results.items()},
            "sides": {side.name: told_of(side, results, failures) for side in case.sides}} | ({"failed": failures} if failures else {})


def told_of(side, results, failures):
    """A side in the JSON form; what nobody knows is left out."""
    known = {"role": side.role, "bytes": side.bytes, "gpu_mib": side.gpu_mib, "failed": failures.get(side.name)}
    if side.name in results:
        values = results[side.name][2]
        known |= {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}
    return {name: value for name, value in known.items() if value not in (None, {})}


def shown(value):
    return f"{value:,.2f}" if value >= 1 else f"{value:.4f}"


COLUMNS = ("", "median", "lowest", "highest", "ours/this", "peak MiB")
# So wide at least, as tables whose names are short have always been.
LEAST_WIDTHS = (28, 13, 13, 13, 11, 10)
GAP = 2


def table_lines(case, results, row):
    """The lines of a case's table: a column is as wide as what it holds, so that the next one stands apart from it."""
    rows, abouts = [COLUMNS], [""]
    for side, about, values, peak in results.values():
        median = statistics.median(values)
        own = ratio(case, row["ours"], median) if side.role != "ours" and row["ours"] is not None else None
        rows.append((side.name, shown(median), shown(min(values)), shown(max(values)), f"{own:.3f}" if own else "", f"{peak:,.0f}" if peak else ""))
        abouts.append(about)
    failed = row.get("failed", {})
    widths = [max(least, *(len(cells[column]) + (GAP if column else 0) for cells in rows)) for column, least in enumerate(LEAST_WIDTHS)]
    widths[0] = max(widths[0], *map(len, failed), 0)
    lines = []
    for cells, about in zip(rows, abouts):
        text = cells[0].ljust(widths[0]) + "".join(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:]))
        lines.append(f"  {text}  {about}".rstrip())
    return lines + [f"  {name.ljust(widths[0])} failed: {reason}" for name, reason in failed.items()]


def print_case(case, results, row):
    print(f"\n{case.name}, {case.unit}")
    for line in table_lines(case, results, row):
        print(line, flush=True)


# The widest vector or matrix instructions of a CPU, as /proc/cpuinfo names them: a figure says little without them.
INSTRUCTION_SETS = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")


def machine():
    """The CPU by name, family and model (virtual machines often hide the name), its widest instructions, cores and memory."""
    model = platform.processor() or platform.machine()
    try:
        cpu = dict(re.findall(r"^(\S[^\t:]*)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M))
        model = cpu["model name"]
        if "cpu family" in cpu:
            model += f", family {cpu['cpu family']} model {cpu['model']}"
        model += "".join(f", {isa}" for isa in INSTRUCTION_SETS if isa in cpu.get("flags", "").split())
        memory = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text()).group(1)) / 2**20
    except (OSError, AttributeError, KeyError):
        return f"{model}, {os.cpu_count()} cores"
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB"


def commit():
    """The commit that is measured, with a + where the tree differs from it; "unknown" without git."""
    try:
        git = lambda *words: subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout
        return git("rev-parse", "--short=12", "HEAD").strip() + ("+" if git("status", "--porcelain", "-uno").strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def python_of(environment):
    """The interpreter of a virtual environment that a script in scripts/ makes."""
    python = subprocess.run([sys.executable, ROOT / "scripts" / environment], stdout=subprocess.PIPE, text=True)
    if python.returncode != 0:
        raise RuntimeError(f"scripts/{environment} failed")
    return python.stdout.strip()


def use_package(sides):
    """Runs them with the package of this build. Returns the options that CMake needs for it."""
    if not sides:
        return []
    python = python_of("python_env.py")
    for side in sides:
        side.command = [python, "-B", *side.command]
        side.env["PYTHONPATH"] = str(ROOT / "build" / "release" / "python")
    return ["-DTESSERA_PYTHON=ON", f"-DPython_EXECUTABLE={python}"]


def programs_of(cases):
    """The names of the build's programs that their sides run."""
    words = [word for case in cases for side in case.sides for word in side.command]
    return sorted({word.name for word in words if isinstance(word, Path) and word.parent == BIN})


def from_bundle(command, bundle):
    """The command with the programs that scripts/bundle has packed, in place of the build's."""
    words = []
    for word in command:
        is_program = isinstance(word, Path) and word.parent == BIN
        if is_program and not (bundle / "bin" / word.name).exists():
            raise RuntimeError(f"{bundle} has no {word.name}: pack it with scripts/bundle")
        words += [bundle / "run", word.name] if is_program else [word]
    return words


def use_bundle(sides, bundle):
    """Has the sides run what is packed. Returns the commit that it was made of."""
    for side in sides:
        if side.needs_torch or side.needs_package:
            raise RuntimeError(f"{side.name} needs an environment that a bundle has not; leave it out with --sides")
        side.command = from_bundle(side.command, bundle)
    try:
        return (bundle / "commit").read_text().strip()
    except OSError as error:
        raise RuntimeError(f"{bundle} is no folder that scripts/bundle has packed: {error}") from error


def build(targets, options):
    log = ROOT / "build" / "benchmarks.log"
    log.parent.mkdir(exist_ok=True)
    with open(log, "w") as out:
        for command in (["cmake", "--preset", "release", "-DTESSERA_BENCHMARKS=ON", *options],
                        ["cmake", "--build", "--preset", "release", "--target", *targets]):
            if subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT).returncode != 0:
                raise RuntimeError(f"cannot build {' '.join(targets)}, see {log}:\n" +
                                   "".join(log.read_text().splitlines(keepends=True)[-20:]))


def main():
    parser = argparse.ArgumentParser(prog="benchmarks/run", description="Measures Tessera against its peers and limits.")
    parser.add_argument("name", nargs="?", choices=BENCHMARKS, metavar="NAME", help=" | ".join(BENCHMARKS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result to this file")
    parser.add_argument("--list", action="store_true", help="print the benchmarks")
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each side, at least 5 (default: 7)")
    parser.add_argument("--threads", type=int, default=2, help="compute threads of each side (default: 2)")
    parser.add_argument("--case", default="", metavar="TEXT", help="only the cases whose name holds this text")
    parser.add_argument("--sides", default="", metavar="TEXT[,TEXT...]", help="of each case only ours and the sides whose names end so")
    parser.add_argument("--bundle", type=Path, metavar="FOLDER", help="build nothing, and run what scripts/bundle has packed")
    arguments = parser.parse_args()
    modules = {name: importlib.import_module(name) for name in BENCHMARKS}
    if arguments.list:
        for name, module in modules.items():
            print(f"{name:<16}{module.DOC}")
        return 0
    if not arguments.name:
        parser.error("give a benchmark's NAME, or --list")
    if arguments.rounds < 5:
        parser.error("fewer than 5 rounds say little about the spread; give --rounds 5 or more")
    cases = [case for case in modules[arguments.name].cases(arguments.threads)
             if arguments.case in case.name and (arguments.case or not case.only_by_name)]
    if not cases:
        parser.error(f"no case of {arguments.name} holds '{arguments.case}' in its name")

    if arguments.sides:
        endings = tuple(arguments.sides.split(","))
        for case in cases:
            case.sides = [side for side in case.sides if side.role == "ours" or side.name.endswith(endings)]
    sides = [side for case in cases for side in case.sides]
    environment = os.environ | {"OMP_NUM_THREADS": str(arguments.threads)}
    try:
        measured = use_bundle(sides, arguments.bundle.resolve()) if arguments.bundle else commit()
        targets = {"_tessera" if side.needs_package else Path(side.command[0]).name for side in sides if side.is_built and not side.needs_torch}
        targets |= {target for side in sides for target in side.also}
        if targets and not arguments.bundle:
            build(sorted(targets), use_package([side for side in sides if side.needs_package]))
        if any(side.needs_torch for side in sides):
            python = python_of("torch_env.py")
            for side in sides:
                if side.needs_torch:
                    side.command = [python, "-B", *side.command]
        result = {"machine": machine(), "commit": measured, "rows": []}
        print(f"{arguments.name}: {result['machine']}; commit {result['commit']}; {arguments.threads} threads, "
              f"{arguments.rounds} rounds, sides in turn", flush=True)
        for case in cases:
            results, failures = run_case(case, case.rounds or arguments.rounds, environment)
            row = summarise(case, results, failures)
            result["rows"].append(row)
            print_case(case, results, row)
            if arguments.json:  # after each case: what was measured outlives what comes after it
                arguments.json.parent.mkdir(parents=True, exist_ok=True)
                arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    except RuntimeError as error:
        print(f"benchmarks/run: {error}", file=sys.stderr)
        return 1
    return 1 if any("failed" in row for row in result["rows"]) else 0
