"""The side of benchmarks/plan_quality.py: measures the machine with TESSERA where that has not been done within the hour, then runs
PROGRAM on the profile. All plans are left in build/plan_quality/NETWORK.json; plot_plan_quality.py draws them.

    plan_quality_side.py TESSERA PROGRAM --network NETWORK ...
"""

import os
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "build" / "plan_quality"
HOUR = 3600


def main():
    tessera, program, *options = sys.argv[1:]
    profile = FOLDER / "profile.json"
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not profile.exists() or time.time() - profile.stat().st_mtime > HOUR:
        subprocess.run([tessera, "calibrate", "--out", profile], check=True, stdout=sys.stderr)
    network = options[options.index("--network") + 1]
    os.execv(program, [program, *options, "--profile", str(profile), "--out", str(FOLDER / f"{network}.json")])


if __name__ == "__main__":
    main()
