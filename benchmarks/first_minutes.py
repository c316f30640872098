import sys

from harness import Case, ROOT, Side

DOC = ("seconds of a newcomer on a bare Debian 12: pip install and 4 ranks train, apt install and the same, a program compiled with tessera-dev; "
       "wants root, debootstrap, and first scripts/package wheel and deb")

ROWS = {"wheel": "wheel: pip install, then train on 4 ranks", "deb": "deb: apt install, then train on 4 ranks",
        "cmake": "cmake: a program of one's own configured and compiled"}


def cases(threads):
    return [Case(name, [Side("ours", "tessera", [sys.executable, "-B", ROOT / "benchmarks" / "first_minutes_side.py", row],
                             is_built=False, timeout_s=3600)], unit="s", rounds=3)
            for row, name in ROWS.items()]
