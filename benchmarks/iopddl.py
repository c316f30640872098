import os
import sys
from pathlib import Path

from harness import BIN, Case, ROOT, Side

DOC = "problems of the ASPLOS/EuroSys 2025 contest on intra-operator parallelism: costs, against the best that were ever published"

# Problem: the contest's time limit in seconds, best known cost (github asplos-contest/2025, ti2-group/iopddl_experiments).
PROBLEMS = {"A": (60, 6548641531), "B": (60, 532843), "G": (120, 217039), "K": (180, 2274276676), "L": (180, 1970993742),
            "M": (180, 49928460991), "S": (240, 1534613444), "V": (300, 1632051)}


def cases(threads):
    folder = Path(os.environ.get("TESSERA_SHARED", ROOT.parent / "shared")) / "data" / "iopddl"
    judge = [sys.executable, "-B", ROOT / "benchmarks" / "iopddl_side.py"]
    found = []
    for letter, (seconds, best) in PROBLEMS.items():
        # Measured once: a cost is no time, it hardly varies.
        found.append(Case(f"{letter}, {seconds} s", unit="cost", rounds=1, sides=[
            Side("ours", "tessera solve", [BIN / "tessera", folder / f"asplos-2025-iopddl-{letter}.json.gz", seconds], launcher=judge),
            Side("peer", "best known", [BIN / "tessera", best], launcher=judge),
        ]))
    return found
