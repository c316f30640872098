from harness import BIN, Case, ROOT, Side

DOC = "conversion of a checkpoint from 8 ranks to 3 and to 4, synced: against cat and sync of the same files"


def cases(threads):
    torch = ROOT / "benchmarks" / "peers" / "torch_reshard.py"
    found = []
    for gibibytes in (1, 4, 16):
        for to in (3, 4):
            program = [BIN / "reshard_bench", "--to", to, "--mib", 1024 * gibibytes]
            found.append(Case(f"8 ranks to {to}, {gibibytes} GiB", unit="GB/s", only_by_name=gibibytes > 4, sides=[
                Side("ours", "tessera, verified", program),
                Side("ours", "tessera, --no_verify", [*program, "--no_verify"]),
                Side("peer", "torch.distributed.checkpoint", [torch, "--to", to, "--mib", 1024 * gibibytes], needs_torch=True),
                Side("limit", "cat src* > f && sync", [*program, "--cat"]),
            ]))
    return found
