"""The side of benchmarks/plan_quality.py: runs PROGRAM on a profile of this machine. All plans are left in
build/plan_quality/NETWORK.json; plot_plan_quality.py draws them.

    plan_quality_side.py TESSERA PROGRAM --network NETWORK ...
"""

import os
import sys
from pathlib import Path

from calibrated import profile_of_machine

FOLDER = Path(__file__).resolve().parent.parent / "build" / "plan_quality"


def main():
    tessera, program, *options = sys.argv[1:]
    profile = profile_of_machine(tessera)
    FOLDER.mkdir(parents=True, exist_ok=True)
    network = options[options.index("--network") + 1]
    os.execv(program, [program, *options, "--profile", str(profile), "--out", str(FOLDER / f"{network}.json")])


if __name__ == "__main__":
    main()
