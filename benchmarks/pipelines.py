import sys

from harness import BIN, Case, ROOT, Side

DOC = "steps of pipelines: simulated, against schedules that have a name and the proven bound; a Transformer in two stages of a core each"

PROGRAM = BIN / "pipelines_bench"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def simulated(stages, micro_batches, name, *options):
    """One round says all: equal problems have equal schedules."""
    def side(role, about, mode):
        return Side(role, about, [PROGRAM, "--mode", mode, "--stages", stages, "--micro_batches", micro_batches, *options])

    return Case(f"simulated: {stages} stages, {micro_batches} micro-batches, {name}", unit="s", rounds=1, sides=[
        side("ours", "auto", "searched"),
        side("peer", "the best that has a name", "named"),
        side("limit", "the proven bound", "bound"),
    ])


def cases(threads):
    calibrated = [sys.executable, "-B", ROOT / "benchmarks" / "calibrated.py", BIN / "tessera"]

    def side(role, name, mode, *options, on_profile=False):
        return Side(role, name, [PROGRAM, "--mode", mode, "--micro_batches", 8, *options], env=ONE_THREAD,
                    launcher=calibrated if on_profile else [], also=["tessera"] if on_profile else [])

    found = []
    for stages, micro_batches in ((4, 16), (8, 32), (16, 64)):
        found.append(simulated(stages, micro_batches, "equal"))
        found.append(simulated(stages, micro_batches, "unequal", "--unequal"))
        found.append(simulated(stages, micro_batches, "unequal, in the memory of 1f1b", "--unequal", "--limited"))
    for schedule in ("1f1b", "zb_h1"):
        found.append(Case(f"measured: two ranks of a core, 8 micro-batches, {schedule}", unit="s", sides=[
            side("ours", "two stages", "stages", "--schedule", schedule, on_profile=True),
            side("peer", "data parallel", "data parallel"),
            side("peer", "one rank", "one rank"),
            side("limit", "predicted", "predicted", "--schedule", schedule, on_profile=True),
        ]))
    return found
