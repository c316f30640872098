"""compare.py OURS THEIRS TABLE [part]: how far what Tessera computed (OURS.npz, OURS.json) is from what MindSpore did.

Where they are apart, or where Tessera refuses, the table in the file TABLE says why: a line `| case or pattern | what | why |` between the
lines `<!-- differences -->` and `<!-- end -->`. A difference without a line is a failure, and so are a line without a difference and a name
of both packages without a case, unless only a part of the cases was computed.
"""
import fnmatch
import json
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np

# The largest difference of two elements over the largest magnitude in MindSpore's.
LIMITS = {"float64": 1e-6, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3.2e-2}

# Names that both packages have and that cannot be compared case by case.
NOT_COMPARED = {
    "needs several ranks": "ops.AllGather ops.AllReduce ops.AlltoAll ops.Broadcast ops.NeighborExchange ops.Receive ops.ReduceScatter ops.ReduceOp ops.Send ops.reshard nn.DistributedGradReducer nn.PipelineGradReducer",
    "abstract": "ops.Primitive nn.Optimizer nn.LossBase nn.Metric",
    "needs a trace of its own": "nn.GradAccumulationCell",
    "computes nothing": "ops.add_flags ops.constexpr nn.no_init_parameters",
}


class Side:
    """What one package computed."""

    def __init__(self, path):
        facts = json.loads(Path(path + ".json").read_text(encoding="utf-8"))
        self.cases, self.names = facts["cases"], facts["names"]
        with np.load(path + ".npz") as file:
            self.arrays = {name: file[str(i)] for i, name in enumerate(facts["arrays"])}

    def array(self, case, what):
        return self.arrays[f"{case} {what}"]


def deviation(ours, theirs):
    """Infinite for another shape, other places of infinities, or other NaNs."""
    if ours.shape != theirs.shape:
        return np.inf
    if theirs.dtype.kind not in "fiub":
        return 0.0 if (ours == theirs).all() else np.inf
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True) or not np.isfinite(ours[finite]).all():
        return np.inf
    if not finite.any():
        return 0.0
    return np.abs(ours[finite] - theirs[finite]).max() / max(np.abs(theirs[finite]).max(), 1e-6)


def difference(case, ours, theirs):
    """In words, or "" where they are equal."""
    mine, other = ours.cases[case]["dtypes"], theirs.cases[case]["dtypes"]
    if mine.keys() != other.keys():
        return f"Tessera gives {' '.join(mine)}, MindSpore {' '.join(other)}"
    words = []
    for what, dtype in other.items():
        a, b = ours.array(case, what), theirs.array(case, what)
        if a.shape != b.shape:
            words.append(f"{what}: shape {list(a.shape)}, MindSpore {list(b.shape)}")
            continue
        if mine[what] != dtype:
            words.append(f"{what}: {mine[what]}, MindSpore {dtype}")
        # A gradient is as exact as the dtype of the case; limits go by the less exact of the two.
        limit = max(LIMITS.get(mine[what], 0.0), LIMITS.get(dtype, 0.0), LIMITS.get(case.rpartition("[")[2][:-1], 0.0) if dtype in LIMITS else 0.0)
        apart = deviation(a, b)
        if not apart <= limit:
            words.append(f"{what}: apart by {apart:.1e}, limit {limit:.0e}")
    return "; ".join(words)


def read_table(path):
    """[(pattern, why)]"""
    text = Path(path).read_text(encoding="utf-8")
    part = text.partition("<!-- differences -->")[2].partition("<!-- end -->")[0]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in part.splitlines() if line.startswith("| `")]
    return [(pattern.strip("` "), row[-1]) for row in rows for pattern in row[0].split(", ")]


def uncovered(ours, theirs):
    """Names of both packages that no case is named after."""
    covered = {re.split(r"[ \[]", case)[0] for case in theirs.cases}
    excused = {name for names in NOT_COMPARED.values() for name in names.split()}
    both = {f"{module}.{name}" for module in ours.names for name in set(ours.names[module]) & set(theirs.names[module])}
    return sorted(both - covered - excused)


def main():
    ours, theirs = Side(sys.argv[1]), Side(sys.argv[2])
    table = read_table(sys.argv[3])
    used, counts, failures = set(), Counter(), []
    for case, facts in theirs.cases.items():
        mine = ours.cases[case]
        if "error" in facts:
            counts["refused by both" if "error" in mine else "Tessera alone has"] += 1
            continue
        what = mine["error"] if "error" in mine else difference(case, ours, theirs)
        if not what:
            counts["equal"] += 1
            continue
        reasons = [(pattern, why) for pattern, why in table if fnmatch.fnmatchcase(case.replace("[", "("), pattern.replace("[", "("))]
        used |= {pattern for pattern, _ in reasons}
        kind = "refused" if "error" in mine else "differing"
        if reasons:
            counts[kind] += 1
            print(f"{kind}: {case}: {what} ({reasons[0][1]})")
        else:
            failures.append(f"{case}: {what}")
    if len(sys.argv) < 5:
        failures += [f"{name} has no case" for name in uncovered(ours, theirs)]
        failures += [f"the table's line {pattern} says of nothing that it differs" for pattern, _ in table if pattern not in used]
    for failure in failures:
        print(f"FAILED: {failure}")
    print(f"reference: {counts['equal']} equal, {counts['differing']} differing (each explained), {counts['refused']} refused (each explained), "
          f"{counts['Tessera alone has']} that Tessera alone has, {counts['refused by both']} refused by both")
    print(f"{counts['equal'] + counts['differing'] + counts['refused']} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
