"""compare_conversions.py OURS THEIRS: whether two packages have converted the same checkpoints to the same bytes.

Where MindSpore raises, Tessera may do better. Of a pipeline's stages the order of the tensors in a file may differ (MindSpore's
is that of a directory listing); Tessera may name fewer ranks than MindSpore, which counts all that take part in its collectives.
"""
import json
import sys
from collections import Counter
from pathlib import Path


def records(data):
    """The fields of a message, sorted: what it says, whatever the order."""
    def varint(at):
        number = shift = 0
        while True:
            number |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return number, at

    found, at = [], 0
    while at < len(data):
        begin = at
        key, at = varint(at)
        length, at = varint(at)
        at += length if key & 7 == 2 else 0
        found.append(data[begin:at])
    return sorted(found)


def same_order_aside(path, ours, theirs):
    """Whether two files say the same."""
    if path.suffix == ".json":
        return json.loads(ours) == json.loads(theirs)
    return records(ours) == records(theirs)


def answers(ours, theirs, failures, counts):
    """Compares what the functions returned or raised."""
    for name, their in theirs.items():
        our = ours[name]
        if our == their:
            counts["equal answers"] += 1
        elif isinstance(their, str):
            counts["MindSpore raises"] += 1
        elif ": ranks for" in name and isinstance(our, list) and set(our) < set(their):
            counts["fewer ranks"] += 1
        else:
            failures.append(f"{name}: {our}, MindSpore {their}")


def main():
    ours, theirs = Path(sys.argv[1]), Path(sys.argv[2])
    failures, counts = [], Counter()
    answers(*(json.loads((side / "facts.json").read_text()) for side in (ours, theirs)), failures, counts)
    for path in sorted(path.relative_to(theirs) for path in theirs.rglob("*") if path.is_file() and path.name != "facts.json"):
        if not (ours / path).exists():
            failures.append(f"{path} is missing")
            continue
        our, their = (ours / path).read_bytes(), (theirs / path).read_bytes()
        if our == their:
            counts["equal files"] += 1
        elif ("pipeline" in str(path) or path.stem == "merged") and same_order_aside(path, our, their):
            counts["in another order"] += 1
        else:
            failures.append(f"{path} has other bytes")
    for failure in failures:
        print(f"FAILED: conversion: {failure}")
    print("conversion: " + ", ".join(f"{number} {what}" for what, number in counts.items()) + f", {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
