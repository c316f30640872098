"""One side of benchmarks/iopddl.py: solves a problem with TESSERA in SECONDS and evaluates the answer from the problem's file, or
says a cost that is KNOWN.

    iopddl_side.py TESSERA PROBLEM.json.gz SECONDS
    iopddl_side.py TESSERA KNOWN
"""

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ENDLESS = 10**18


def evaluate(problem, choices):
    """The cost of the choices, straight from the contest's definition; exits where they are not feasible."""
    nodes, edges = problem["nodes"], problem["edges"]
    if len(choices) != len(nodes["costs"]):
        sys.exit(f"iopddl: {len(choices)} choices for {len(nodes['costs'])} nodes")
    costs = [nodes["costs"][n][choice] for n, choice in enumerate(choices)]
    for (u, v), values in zip(edges["nodes"], edges["costs"]):
        costs.append(values[choices[u] * len(nodes["costs"][v]) + choices[v]])
    if max(costs) >= ENDLESS:
        sys.exit("iopddl: a forbidden choice")
    changes = {}
    for (begin, end), usages, choice in zip(nodes["intervals"], nodes["usages"], choices):
        if begin < end:
            changes[begin] = changes.get(begin, 0) + usages[choice]
            changes[end] = changes.get(end, 0) - usages[choice]
    usage = 0
    for time in sorted(changes):
        usage += changes[time]
        if usage > problem["usage_limit"]:
            sys.exit(f"iopddl: usage {usage} at {time}, limit {problem['usage_limit']}")
    return sum(costs)


def solve(tessera, path, seconds):
    text = gzip.open(path, "rt").read()
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "problem.json"
        plain.write_text(text)
        done = subprocess.run([tessera, "solve", plain, "--timeout", seconds, "--json", "--quiet"], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"iopddl: tessera solve ended with exit code {done.returncode}")
    result = json.loads(done.stdout)
    cost = evaluate(json.loads(text)["problem"], result["choices"])
    if result["bound"] > cost:
        sys.exit(f"iopddl: the bound {result['bound']} is above the cost {cost}")
    return {"value": cost, "about": f"bound {result['bound']:.10g}, gap {100 * result['gap']:.3f} %, {result['seconds']:.0f} s"}


def main():
    tessera, *rest = sys.argv[1:]
    if len(rest) == 2 and not Path(rest[0]).exists():
        sys.exit(f"iopddl: {rest[0]} is not there; TESSERA_SHARED names the folder that has data/iopddl")
    print(json.dumps({"ready": True, "unit": "cost", "about": ""}), flush=True)
    for line in sys.stdin:
        if line.strip() != "go":
            break
        print(json.dumps(solve(tessera, *rest) if len(rest) == 2 else {"value": int(rest[0])}), flush=True)


if __name__ == "__main__":
    main()
