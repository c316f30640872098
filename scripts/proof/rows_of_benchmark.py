"""The rows of benchmarks/gpu.py as points of a proof: a step measures Tessera and a few sides in turn, and says what is left to wish."""

import json
import sys
from dataclasses import dataclass

from proof.machine import Cut
from proof.record import Row, judged
from proof.schedule import Step

ROUNDS = 5
# Of a peer's memory.
MEMORY_SHARE = 0.8


@dataclass
class Measured:
    case: str  # of benchmarks/gpu.py
    groups: tuple  # sides that are measured together: endings of their names
    goal: float = 0  # in the case's unit; 0: none
    seconds: float = 200


# Quick peers first, then those that compile for minutes. At 224x224 and a batch of 256 not all fit into 80 GB together.
RESNET_224_256 = "ResNet-50 224x224 batch 256 bfloat16"
RESNET_224_32 = "ResNet-50 224x224 batch 32 bfloat16"
RESNET_32 = "ResNet-50 32x32 batch 128 bfloat16"
RESNET_32_TF32 = "ResNet-50 32x32 batch 128 tf32"
TRANSFORMER = "Transformer 32 x 64 tokens bfloat16"
TRANSFORMER_TF32 = "Transformer 32 x 64 tokens tf32"
QUICK, COMPILED, TUNED = ("eager", "graph", "alone"), ("default", "reduce-overhead"), ("max-autotune",)
OF_TORCH = (*QUICK, *COMPILED, *TUNED, "pytorch")
SECONDS_OF_GROUP = {COMPILED: 300, TUNED: 450}  # with what torch.compile takes
TRAININGS = [
    Measured("the GPU itself: a copy of 2 GiB", (("pytorch",),), seconds=60),
    Measured("the GPU itself: a product of 8192^3 bfloat16", (("pytorch",),), seconds=60),
    Measured(RESNET_32, (QUICK, COMPILED, TUNED), 52_000),
    Measured(TRANSFORMER, (QUICK, COMPILED, TUNED), 370_000),
    Measured(RESNET_224_256, (("eager", "graph"), COMPILED, ("alone",), TUNED), 6_800),
    Measured(RESNET_224_32, (QUICK, COMPILED, TUNED), 5_600),
    Measured(RESNET_32_TF32, (QUICK, COMPILED, TUNED)),
    Measured(TRANSFORMER_TF32, (QUICK, COMPILED, TUNED)),
]
OVERHEAD = [Measured("1,000 matmuls of 4x4 in a row", (("eager", "graph"),), seconds=90)]
HEADLINE = [Measured("ResNet-50 from files, 224x224 batch 32 bfloat16", ((),), 3_125, seconds=90),
            Measured("ResNet-50 from files, 224x224 batch 32 float32", ((),), seconds=90)]
# What torch.compile takes minutes for, and needs nobody to wait for.
COMPILED_AHEAD = [("resnet50", "--image_size", 32, "--batch_size", 128),
                  ("transformer", "--batch_size", 32, "--tokens", 64, "--dropout", 0.1),
                  ("resnet50", "--image_size", 224, "--batch_size", 256),
                  ("resnet50", "--image_size", 224, "--batch_size", 32)]


def others(machine):
    """The cases of the benchmark that none of the lists names, each with all its sides."""
    sys.path.insert(0, str(machine.root / "benchmarks"))
    import gpu
    named = {case.case for case in TRAININGS + OVERHEAD + HEADLINE}
    return [Measured(case.name, (tuple(side.name for side in case.sides if side.role != "ours"),))
            for case in gpu.cases(machine.cores) if case.name not in named]


def compile_ahead(machine):
    """Has torch.compile fill its cache, while parts run that measure no times. Returns the processes."""
    if not machine.torch_facts:
        return []
    # Tests compile, too, meanwhile, and are waited for.
    few = {"TORCHINDUCTOR_COMPILE_THREADS": str(max(machine.cores // 4, 1))}
    with open(machine.log, "a") as log:
        return [machine.start(["nice", *machine.torch(*options, "--modes", "default,reduce-overhead", "--rounds", 0, "--warmup_steps", 1)],
                              few, stdout=log) for options in COMPILED_AHEAD]


def steps(measured):
    """Of all cases the first group, then of all the second one, and so on."""
    found = []
    for number in range(max(len(case.groups) for case in measured)):
        found += [step_of(case, case.groups[number], number == 0) for case in measured if number < len(case.groups)]
    return found


def step_of(case, group, is_first):
    def run(machine, until):
        result = machine.work / "benchmark.json"
        result.unlink(missing_ok=True)
        if any(ending in OF_TORCH for ending in group) and not machine.torch_facts:
            return [Row(case.case, "", "skipped", detail=f"no torch to be measured with: {', '.join(group)}")]
        done = machine.run([machine.root / "benchmarks" / "run", "gpu", "--bundle", machine.bundle, "--case", case.case, "--rounds", ROUNDS,
                            "--threads", max(machine.cores // 2, 1), "--json", result, "--sides", ",".join(group) or "tessera"], until)
        if done.is_cut:
            raise Cut(f"{', '.join(group) or 'ours'}: not measured in {done.seconds:.0f} s")
        if not result.exists():
            raise RuntimeError(done.last_line())
        rows = json.loads(result.read_text())["rows"]
        if len(rows) != 1:
            raise RuntimeError(f"{len(rows)} rows of benchmarks/gpu.py are called \"{case.case}\"")
        return points_of(case, rows[0], is_first)

    sides = f"/{'+'.join(group)}" if group and len(case.groups) > 1 else ""
    return Step(case.case + sides, max(case.seconds, SECONDS_OF_GROUP.get(group, 0)), run)


def shown(value, unit):
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:,.3g} {unit}"


def points_of(case, row, is_first):
    """The points of a row of the JSON form (benchmarks/README.md). `is_first`: those of ours alone are told, too."""
    unit, sides = row["unit"], row["sides"]
    is_more_better = unit.endswith("/s")
    points = [Row(f"{case.case}: {name}", "", "failed" if side["role"] == "ours" else "told", detail=side["failed"][:300])
              for name, side in sides.items() if "failed" in side]
    ours = next((side for side in sides.values() if side["role"] == "ours"), None)
    if ours and "failed" in ours:
        return points
    if ours and is_first:
        points.append(point_of_ours(case, ours, unit))
        points += arena_of(case, ours)
    for name, side in sides.items():
        if side["role"] == "ours" or "failed" in side:
            continue
        value = shown(side["median"], unit)
        if ours is None:
            points.append(Row(case.case, value, "told", detail=f"{side['lowest']:,.5g} to {side['highest']:,.5g}"))
            continue
        ratio = ours["median"] / side["median"] if is_more_better else side["median"] / ours["median"]
        both = f"{shown(ours['median'], unit)} beside {value}"
        if side["role"] == "limit":
            points.append(Row(f"{case.case}: share of {name}", f"{ratio:.3f}", "told", detail=both))
            continue
        way = name.removeprefix("pytorch, ")
        points.append(judged(f"{case.case}: over {way}", f"{ratio:.3f}", ratio > 1, "> 1", both))
        points += memory_of(case, way, ours, side)
    return points


def point_of_ours(case, ours, unit):
    figure, detail = shown(ours["median"], unit), f"{ours['lowest']:,.5g} to {ours['highest']:,.5g}"
    if not case.goal:
        return Row(case.case, figure, "told", detail=detail)
    return judged(case.case, figure, ours["median"] >= case.goal, f">= {shown(case.goal, unit)}", detail)


def arena_of(case, ours):
    """That the arena is what the plan says, and what the process has beside it."""
    known = ours.get("bytes", {})
    if "arena" not in known or "plan" not in known:
        return []
    detail = f"{known['arena'] / 2**20:,.0f} MiB"
    if "gpu_mib" in ours:
        detail += f"; beside it {ours['gpu_mib'] - known['arena'] / 2**20:,.0f} MiB of the driver, the libraries and code"
    return [judged(f"{case.case}: arena over its plan", f"{known['arena'] / known['plan']:.3f}", known["arena"] == known["plan"], "= 1",
                   detail)]


def memory_of(case, way, ours, side):
    """Ours against a peer's: the arena against the most that its tensors took, and what both processes have of the device."""
    arena, peak = ours.get("bytes", {}).get("arena"), side.get("bytes", {}).get("peak")
    if not arena or not peak:
        return []
    processes = f"; processes {ours['gpu_mib']:,} and {side['gpu_mib']:,} MiB" if "gpu_mib" in ours and "gpu_mib" in side else ""
    return [judged(f"{case.case}: memory over {way}'s", f"{arena / peak:.3f}", arena <= MEMORY_SHARE * peak, f"<= {MEMORY_SHARE}",
                   f"arena {arena / 2**20:,.0f} MiB, peak of tensors {peak / 2**20:,.0f} MiB{processes}")]
