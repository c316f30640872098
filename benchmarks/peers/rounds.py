"""The Python side of benchmarks/protocol.h: a line of JSON when warm, then one for each "go" on standard input."""

import json
import sys


ROUND_SECONDS = 2  # as kRoundSeconds in protocol.h, which says why


def seconds_of_step_in_round(step, round_seconds=ROUND_SECONDS):
    """As the function of that name in protocol.h. step() runs a step and returns its seconds."""
    step()
    seconds = []
    while sum(seconds) < round_seconds:
        seconds.append(step())
    return sum(seconds) / len(seconds)


def serve_rounds(unit, about, run_round, bytes_now=dict):
    """run_round() returns the measured value in `unit`, or that and what there is to tell about the round; bytes_now() memory by name,
    as {"peak": 123}."""
    def with_bytes(told):
        return told | {"bytes": known for known in (bytes_now(),) if known}

    print(json.dumps(with_bytes({"ready": True, "unit": unit, "about": about})), flush=True)
    for line in sys.stdin:
        if line.strip() != "go":
            break
        found = run_round()
        value, *told = found if isinstance(found, tuple) else (found,)
        print(json.dumps(with_bytes({"value": value} | {"about": words for words in told})), flush=True)
