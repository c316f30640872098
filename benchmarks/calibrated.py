"""Runs a benchmark's program on a profile of this machine: COMMAND with --profile FILE, which `tessera calibrate` has written within the hour.

    calibrated.py TESSERA COMMAND ...
"""

import os
import subprocess
import sys
import time
from pathlib import Path

PROFILE = Path(__file__).resolve().parent.parent / "build" / "calibrated" / "profile.json"
HOUR = 3600


def profile_of_machine(tessera):
    """The file; measures where that has not been done within the hour."""
    PROFILE.parent.mkdir(parents=True, exist_ok=True)
    if not PROFILE.exists() or time.time() - PROFILE.stat().st_mtime > HOUR:
        subprocess.run([tessera, "calibrate", "--out", PROFILE], check=True, stdout=sys.stderr)
    return PROFILE


def main():
    tessera, *command = sys.argv[1:]
    os.execv(command[0], [*command, "--profile", str(profile_of_machine(tessera))])


if __name__ == "__main__":
    main()
