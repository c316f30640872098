import sys

from harness import BIN, Case, ROOT, Side

DOC = "a job that trains and loses a rank: from SIGKILL to the end of the next step, by the launcher that starts it again"


def cases(threads):
    def side(name, *options):
        command = [sys.executable, "-B", ROOT / "benchmarks" / "recovery_side.py", BIN, *options]
        return Side("ours", name, command, is_built=False, also=["train_job", "tessera", "resnet50_cifar10"], timeout_s=600)

    found = []
    for row, quantile in (("p50", 0.5), ("p99", 0.99)):
        found.append(Case(f"small network, 4 ranks, {row}", [side("tessera run", "--ranks", 4, "--quantile", quantile)], unit="s"))
    found.append(Case("ResNet-50, 2 ranks, p50", [side("tessera run", "--ranks", 2, "--network", "resnet50", "--kills", 3)], unit="s"))
    return found
