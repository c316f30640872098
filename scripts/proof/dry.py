"""What a bundle shows without a GPU: that its programs start, and that the benchmarks' steps compile."""

import json
import re
import sys
from pathlib import Path

from proof.machine import Cut
from proof.record import Row, judged
from proof.schedule import Part, Step


def program_steps(machine):
    def start(machine, until):
        names = sorted(path.name for path in (machine.bundle / "bin").iterdir())
        failed = []
        for name in names:
            done = machine.run(machine.program(name, "--help"), until)
            if done.is_cut:
                raise Cut(f"{name} --help did not end")
            if done.code != 0:
                failed.append(f"{name}: {done.last_line()}")
        missing = [name for name in (machine.bundle / "cuda_tests").read_text().split() if name not in names]
        tests = f"without {', '.join(missing)}" if missing else "all"
        return [judged("programs that start", f"{len(names) - len(failed)} of {len(names)}", not failed, "all", "; ".join(failed[:3])),
                judged("tests of the suite cuda that are there", tests, not missing, "all")]

    return [Step("start", 120, start)]


# The programs that have `--device dry`.
KNOW_DRY = ("resnet50_bench", "transformer_bench", "step_overhead_bench")


def own_cases(machine):
    """{name of a case: (words of our side's command, environment)} of benchmarks/gpu.py, where a device that computes nothing will do."""
    sys.path.insert(0, str(machine.root / "benchmarks"))
    import gpu
    import harness
    found = {}
    for case in gpu.cases(machine.cores):
        side = case.sides[0]
        program = Path(side.command[0])
        if program.parent == harness.BIN and program.name in KNOW_DRY and (machine.bundle / "bin" / program.name).exists():
            words = ["dry" if word == "cuda:0" else word for word in side.command]
            found[case.name] = harness.from_bundle(words, machine.bundle), side.env
    return found


def compile_steps(machine):
    def step(name, command, env):
        def compile_it(machine, until):
            kernels = machine.bundle / "kernels"
            done = machine.run([*command, "--warmup_steps", 1], until, env | {"TESSERA_CUDA_CACHE": str(kernels)})
            if done.is_cut:
                raise Cut(f"not compiled in {done.seconds:.0f} s")
            if "compiler of kernels is not found" in done.output:
                return [Row(name, "", "skipped", detail=done.last_line())]
            ready = re.search(r'^\{"ready".*$', done.output, re.M)
            if done.code != 0 or not ready:
                raise RuntimeError(done.last_line())
            detail = f"{sum(1 for _ in kernels.glob('*.kernel')):,} kernels are kept"
            if arena := json.loads(ready[0]).get("bytes", {}).get("arena"):
                detail += f"; arena {arena / 2**20:,.0f} MiB"
            return [Row(f"{name}: compiles", f"{done.seconds:.1f} s", "told", detail=detail)]
        return Step(name, 300, compile_it)

    return [step(name, command, env) for name, (command, env) in own_cases(machine).items()]


PARTS = [
    Part("programs", "every program starts, and the tests of the suite cuda are there", 120, program_steps),
    Part("compile", "the benchmarks' steps compile for an H100; their kernels are kept in the bundle", 400, compile_steps),
]
