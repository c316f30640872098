import os

from harness import BIN, Case, Side

DOC = "ResNet-50 on ranks of a thread each: against as many that know nothing of each other, and two over a slow link"

ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def counts():
    """2, 4, 8, ... ranks, as many as have a core each, and two on any machine."""
    found = [2]
    while found[-1] * 2 <= len(os.sched_getaffinity(0)):
        found.append(found[-1] * 2)
    return found


def cases(threads):
    def side(role, name, mode, *options):
        return Side(role, name, [BIN / "ranks_bench", "--mode", mode, *options], env=ONE_THREAD)

    found = []
    for ranks in counts():
        for name, options in (("", []), (", own statistics", ["--local_statistics"])):
            found.append(Case(f"data parallel 32x32 batch {ranks}x64{name}", [
                side("ours", f"{ranks} ranks", "parallel", "--ranks", ranks, *options),
                side("limit", f"{ranks} processes, each alone", "alone", "--ranks", ranks, *options),
            ]))
    for name, options in (("", []), (", own statistics", ["--local_statistics"])):
        found.append(Case(f"overlap with a link of 0.25 GB/s{name}", unit="s", sides=[
            side("ours", "with overlap", "overlap", "--ranks", 2, "--link", 0.25, *options),
            side("peer", "without overlap", "without overlap", "--ranks", 2, "--link", 0.25, *options),
            side("limit", "computing alone", "instant link", "--ranks", 2, *options),
        ]))
    return found
