from harness import BIN, Case, ROOT, Side

DOC = "microseconds per operator of a graph of 1,000 tiny operators: what running one costs beside its arithmetic"


def cases(threads):
    options = ["--threads", threads]
    return [Case("1,000 matmuls of 4x4", [
        Side("ours", "tessera", [BIN / "step_overhead_bench", *options]),
        Side("peer", "pytorch, eager", [ROOT / "benchmarks" / "peers" / "torch_step_overhead.py", *options], needs_torch=True),
    ], unit="us")]
