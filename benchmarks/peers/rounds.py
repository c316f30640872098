"""The Python side of benchmarks/protocol.h: a line of JSON when warm, then one for each "go" on standard input."""

import json
import sys


def serve_rounds(unit, about, run_round):
    """run_round() returns the measured value in `unit`."""
    print(json.dumps({"ready": True, "unit": unit, "about": about}), flush=True)
    for line in sys.stdin:
        if line.strip() != "go":
            break
        print(json.dumps({"value": run_round()}), flush=True)
