import sys

from harness import BIN, Case, ROOT, Side

DOC = "predicted against measured step times of 64 plans of three networks on two ranks: Kendall's tau; and the plan that a search chooses"

# Sizes with which a step takes 5 to 50 ms.
NETWORKS = {"mlp": ["--scale", 64, "--rows", 256], "resnet": ["--scale", 16, "--rows", 32], "transformer": ["--scale", 32, "--rows", 64]}


def cases(threads):
    # What a machine can do is measured before its plans are.
    side = [sys.executable, "-B", ROOT / "benchmarks" / "plan_quality_side.py", BIN / "tessera"]
    return [Case(network, unit="Kendall's tau", sides=[
        Side("ours", "tessera", [BIN / "plan_quality_bench", "--network", network, *sizes], launcher=side, also=["tessera"]),
    ]) for network, sizes in NETWORKS.items()]
