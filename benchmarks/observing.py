import sys

from harness import BIN, Case, ROOT, Side

DOC = ("a training step while its timeline or its logs are recorded, and four ranks while a hundred look at their page: what looking on costs; "
       "at most 3 % (ours_over_limit at least 0.97)")


def pages():
    def side(role, name, *options):
        command = [sys.executable, "-B", ROOT / "benchmarks" / "observing_readers_side.py", BIN, *options]
        return Side(role, name, command, is_built=False, also=["tessera", "train_job", "resnet50_cifar10"])

    yield Case("four ranks, a hundred readers of their page",
               [side("limit", "nobody looks on", "--readers", 0), side("ours", "a hundred look on", "--readers", 100)], unit="steps/s")
    yield Case("four ranks with a page", [side("limit", "there is no page"), side("ours", "nobody looks on", "--readers", 0)], unit="steps/s")


def steps(threads):
    def side(role, name, mode, network):
        return Side(role, name, [BIN / "observing_bench", "--mode", mode, "--network", network, "--threads", threads])

    for name, network in (("ResNet-50 32x32, batch 32", "resnet50"), ("an MLP on images of 32x32, batch 64", "mlp")):
        yield Case(name, [
            side("limit", "nobody looks on", "plain", network),
            side("ours", "the timeline is recorded", "trace", network),
            side("ours", "logs are written after each step", "logs", network),
        ], unit="us")


def cases(threads):
    return [*steps(threads), *pages()]
