import sys

from harness import BIN, Case, ROOT, Side

DOC = "a job that trains and loses a rank, a scheduler whose workers return at once, and one at whose port strangers do what they can"
QUANTILES = (("p50", 0.5), ("p99", 0.99))
TIMEOUT_S = 2  # after which a rank that is stopped is lost


def script(name, file, *options, role="ours", also=()):
    command = [sys.executable, "-B", ROOT / "benchmarks" / file, BIN, *options]
    return Side(role, name, command, is_built=False, also=["tessera", *also], timeout_s=1800)


def job(name, *options, role="ours"):
    return script(name, "recovery_side.py", *options, role=role, also=["train_job", "resnet50_cifar10"])


def losses():
    for row, quantile in QUANTILES:
        yield Case(f"small network, 4 ranks, {row}", [job("tessera run", "--quantile", quantile)], unit="s")
    # Values of 100 MiB, by sockets and TLS between the ranks, as between hosts.
    wide = ("--network", "wide", "--transport", "tls")
    for row, quantile in QUANTILES:
        yield Case(f"100 MiB of values, 4 ranks, TLS, {row}", [job("tessera run", *wide, "--quantile", quantile)], unit="s")
        yield Case(f"100 MiB of values, 4 ranks, TLS, the others have left, {row}", [job("tessera run", *wide, "--measure", "left", "--quantile", quantile)], unit="s")
    # From SIGKILL to the first operator of the next step: a spare takes the place of the lost rank. The scheduler's connections are TLS in each; between the
    # ranks of one host values go through its memory, unless it is said that they go as between hosts.
    for name, network, transport in (("the small network, TLS", "small", ["--transport", "tls"]), ("100 MiB of values, TLS", "wide", ["--transport", "tls"]),
                                     ("100 MiB of values, the host's memory", "wide", [])):
        for row, quantile in QUANTILES:
            yield Case(f"{name}, 4 ranks, a spare, survivors {row}",
                       [job("a spare is ready", "--network", network, *transport, "--measure", "survivors", "--quantile", quantile)], unit="s")
    for row, quantile in QUANTILES:
        yield Case(f"SIGSTOP, timeout {TIMEOUT_S} s, 4 ranks, {row}",
                   [job("tessera run", "--signal", "SIGSTOP", "--timeout", TIMEOUT_S, "--quantile", quantile, "--kills", 10)], unit="s")
    yield Case("ResNet-50, 2 ranks, p50", [job("tessera run", "--ranks", 2, "--network", "resnet50", "--kills", 3)], unit="s")


def resizes():
    """By hand: from the command to the first operator of the next step."""
    for change in ("4to3", "3to2", "2to4"):
        numbers = change.replace("to", " to ")
        yield Case(f"resize from {numbers} ranks", [job("tessera cluster resize", "--transport", "tls", "--measure", "resize", "--change", change)],
                   unit="s", rounds=10)


def steps():
    """A step of data parallel beside one of a job that keeps nothing and has no scheduler: heartbeats, generations and copies are between."""
    for name, network, steps_of_a_round in (("the small network", "small", 4000), ("100 MiB of values", "wide", 200), ("ResNet-50", "resnet50", 40)):
        own = ("--measure", "own", "--network", network, "--ranks", 2, "--steps", steps_of_a_round)
        yield Case(f"step of {name}, 2 ranks", [job("recovers", *own), job("keeps nothing", *own, "--restarts", 0, role="limit")], unit="s")


def buddies():
    """A step where each of two ranks has a slice of the optimizer's states that no other rank has, and its buddy keeps it."""
    for name, network, steps_of_a_round in (("100 MiB of values", "wide", 200), ("ResNet-50", "resnet50", 40)):
        own = ("--measure", "own", "--network", network, "--ranks", 2, "--launchers", 2, "--shards", "--steps", steps_of_a_round)
        yield Case(f"step of {name}, slices of 2 ranks", [job("with buddies", *own), job("without", *own, "--no_buddies", role="limit")], unit="s")


def schedulers():
    for workers in (100, 1000, 10000):
        for measure, unit in (("time", "s"), ("cpu", "s"), ("memory", "MiB")):
            yield Case(f"scheduler, {workers:,} workers return, {measure}",
                       [script("tessera scheduler", "scheduler_side.py", "--workers", workers, "--measure", measure)], unit=unit)


def hostile():
    def side(name, *options, role="ours"):
        return script(name, "hostile_side.py", *options, role=role, also=["train_job", "resnet50_cifar10"])

    # Ten rounds of a minute.
    yield Case("hostile load, 4 ranks", [side("under load"), side("undisturbed", "--quiet", role="limit")], unit="steps/s", rounds=10)
    yield Case("hostile load, an answer of the scheduler, p99", [side("under load", "--measure", "answer")], unit="s", rounds=10)


def cases(threads):
    return [*losses(), *resizes(), *steps(), *buddies(), *schedulers(), *hostile()]
