from harness import BIN, Case, ROOT, Side

DOC = "microseconds per operator of a graph of 1,000 tiny operators, called as a cell from Python: against the same graph in C++"


def cases(threads):
    options = ["--threads", threads]
    return [Case("1,000 matmuls of 4x4", [
        Side("ours", "tessera, Python", [ROOT / "benchmarks" / "python_overhead_step.py", *options], needs_package=True),
        Side("limit", "tessera, C++", [BIN / "step_overhead_bench", *options]),
    ], unit="us")]
