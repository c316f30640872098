import os

from harness import BIN, Case, Side

DOC = "a ResNet-50 training step with 1, 2, 4, ... threads: against the best with fewer threads, on an idle and on a busy machine"

STEPS = (("32x32 bfloat16", 32, 128, "bfloat16"), ("32x32 float32", 32, 128, "float32"))


def counts():
    """1, 2, 4, ... threads, up to all cores. A machine of few cores shows what many threads cost when they outnumber its cores."""
    cores = len(os.sched_getaffinity(0))
    most = max(cores, 8)
    found = [1]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found + ([most] if found[-1] != most else [])


def cases(_):
    found = []
    for name, size, batch, precision in STEPS:
        for where, busy in (("", 0), (", beside a busy core", 1)):
            def side(role, threads):
                return Side(role, f"{threads} thread{'s' if threads > 1 else ''}",
                            [BIN / "resnet50_bench", "--image_size", size, "--batch_size", batch, "--precision", precision,
                             "--threads", threads, "--busy_cores", busy, "--kernels", "measured"],
                            env={"OMP_NUM_THREADS": str(threads)})

            for i, threads in enumerate(counts()):
                if i > 0:
                    found.append(Case(f"{name}, {threads} threads{where}",
                                      [side("ours", threads), *(side("limit", fewer) for fewer in counts()[:i])]))
    return found
