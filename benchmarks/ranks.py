from harness import BIN, Case, Side

DOC = "ResNet-50 on two ranks of a thread each: against two that know nothing of each other, and over a slow link"

ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def cases(threads):
    def side(role, name, mode, *options):
        return Side(role, name, [BIN / "ranks_bench", "--ranks", 2, "--mode", mode, *options], env=ONE_THREAD)

    found = []
    for name, options in (("", []), (", own statistics", ["--local_statistics"])):
        found.append(Case(f"data parallel 32x32 batch 2x64{name}", [
            side("ours", "two ranks", "parallel", *options),
            side("limit", "two processes, each alone", "alone", *options),
        ]))
    for name, options in (("", []), (", own statistics", ["--local_statistics"])):
        found.append(Case(f"overlap with a link of 0.25 GB/s{name}", unit="s", sides=[
            side("ours", "with overlap", "overlap", "--link", 0.25, *options),
            side("peer", "without overlap", "without overlap", "--link", 0.25, *options),
            side("limit", "computing alone", "instant link", *options),
        ]))
    return found
