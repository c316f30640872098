"""compare.py judges made-up results: it must find what differs, and nothing else."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
VALUE = np.array([1.0, -2.0, np.inf, np.nan], np.float32)
TABLE = "<!-- differences -->\n| case | what differs | why |\n|---|---|---|\n{}<!-- end -->\n"
ROW = "| `ops.Known *` | the value | for a reason |\n"


def write(path, cases, names):
    """cases: {name: (dtype, array) or an error}."""
    facts = {f"{name} [float32]": {"error": found} if isinstance(found, str) else {"dtypes": {"value": found[0]}} for name, found in cases.items()}
    arrays = {f"{name} [float32] value": found[1] for name, found in cases.items() if not isinstance(found, str)}
    np.savez(path + ".npz", **{str(i): array for i, array in enumerate(arrays.values())})
    Path(path + ".json").write_text(json.dumps({"cases": facts, "arrays": list(arrays), "names": {"ops": names}}))


def judge(ours, theirs, table="", our_names=("Same",), their_names=("Same",)):
    """(exit status, output) of the comparer."""
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/ours", ours, list(our_names))
        write(f"{folder}/theirs", theirs, list(their_names))
        Path(f"{folder}/table.md").write_text(TABLE.format(table))
        done = subprocess.run([sys.executable, "-B", HERE / "compare.py", f"{folder}/ours", f"{folder}/theirs", f"{folder}/table.md"],
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def same(value=VALUE, dtype="float32"):
    return {"ops.Same": (dtype, value)}


CHECKS = {
    "equal": (judge(same(), same()), 0, "1 equal, 0 differing"),
    "a little apart": (judge(same(VALUE * np.float32(1 + 3e-6)), same()), 0, "1 equal"),
    "apart": (judge(same(VALUE * np.float32(1 + 3e-5)), same()), 1, "FAILED: ops.Same [float32]: value: apart by 3.0e-05"),
    "NaN elsewhere": (judge(same(VALUE[::-1].copy()), same()), 1, "apart by inf"),
    "another shape": (judge(same(VALUE[:2]), same()), 1, "shape [2], MindSpore [4]"),
    "another dtype": (judge(same(dtype="float16"), same()), 1, "float16, MindSpore float32"),
    "refused": (judge({"ops.Same": "no"}, same()), 1, "FAILED: ops.Same [float32]: no"),
    "Tessera alone": (judge(same(), {"ops.Same": "no"}), 0, "1 that Tessera alone has"),
    "refused by both": (judge({"ops.Same": "no"}, {"ops.Same": "no"}), 0, "1 refused by both"),
    "explained": (judge({"ops.Known": ("float32", VALUE * 2)} | same(), {"ops.Known": ("float32", VALUE)} | same(), ROW), 0,
                  "1 equal, 1 differing (each explained)"),
    "refused and explained": (judge({"ops.Known": "no"} | same(), {"ops.Known": ("float32", VALUE)} | same(), ROW), 0, "1 refused (each explained)"),
    "explained in vain": (judge(same(), same(), ROW), 1, "the table's line ops.Known * says of nothing that it differs"),
    "a name without a case": (judge(same(), same(), our_names=("Same", "Other"), their_names=("Same", "Other")), 1, "ops.Other has no case"),
    "a name of one package": (judge(same(), same(), our_names=("Same", "Other")), 0, "1 equal"),
}


def converted(ours, theirs):
    """The same of compare_conversions.py. Each side: (answers, {path: bytes})."""
    with tempfile.TemporaryDirectory() as folder:
        for side, (facts, files) in (("ours", ours), ("theirs", theirs)):
            for path, data in ({"facts.json": json.dumps(facts).encode()} | files).items():
                (Path(folder) / side / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / side / path).write_bytes(data)
        done = subprocess.run([sys.executable, "-B", HERE / "compare_conversions.py", f"{folder}/ours", f"{folder}/theirs"], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


RECORDS = b"\x0a\x01a", b"\x0a\x01b"
RANKS = "case: ranks for 0"
CHECKS |= {
    "equal files": (converted(({"a": 1}, {"x": b"1"}), ({"a": 1}, {"x": b"1"})), 0, "1 equal answers, 1 equal files, 0 failed"),
    "other bytes": (converted(({}, {"x": b"1"}), ({}, {"x": b"2"})), 1, "FAILED: conversion: x has other bytes"),
    "a missing file": (converted(({}, {}), ({}, {"x": b"2"})), 1, "FAILED: conversion: x is missing"),
    "another order": (converted(({}, {"pipeline/x": RECORDS[0] + RECORDS[1]}), ({}, {"pipeline/x": RECORDS[1] + RECORDS[0]})), 0, "1 in another order"),
    "other records": (converted(({}, {"pipeline/x": RECORDS[0] * 2}), ({}, {"pipeline/x": RECORDS[1] + RECORDS[0]})), 1, "has other bytes"),
    "fewer ranks": (converted(({RANKS: [1]}, {}), ({RANKS: [0, 1]}, {})), 0, "1 fewer ranks"),
    "other ranks": (converted(({RANKS: [2]}, {}), ({RANKS: [0, 1]}, {})), 1, "FAILED: conversion: case: ranks for 0: [2], MindSpore [0, 1]"),
    "MindSpore raises": (converted(({RANKS: [2]}, {}), ({RANKS: "ValueError"}, {})), 0, "1 MindSpore raises"),
    "Tessera raises": (converted(({RANKS: "ValueError"}, {}), ({RANKS: [0]}, {})), 1, "FAILED"),
}


def main():
    failed = 0
    for name, ((status, output), expected, words) in CHECKS.items():
        if status != expected or words not in output:
            failed += 1
            print(f"FAILED: {name}: exit {status}, expected {expected} and \"{words}\" in\n{output}")
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
