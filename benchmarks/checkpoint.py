from harness import BIN, Case, ROOT, Side

DOC = "saving and loading 1 GiB in one file: against torch.save and torch.load, and writing and reading plainly; what sums cost"


def cases(threads):
    program = BIN / "checkpoint_bench"
    torch = ROOT / "benchmarks" / "peers" / "torch_checkpoint.py"
    found = []
    for name, options in (("save, fsync", []), ("load, from the page cache", ["--load"]), ("load, from the disk", ["--load", "--cold"])):
        found.append(Case(f"{name}, 1 GiB", unit="GB/s", sides=[
            Side("ours", "tessera", [program, *options]),
            Side("peer", "torch.load" if options else "torch.save", [torch, *options], needs_torch=True),
            Side("limit", "the bytes alone", [program, *options, "--raw"]),
        ]))
    for name, sums in (("with CRC-32C", "crc"), ("with CRC-32C and hash", "crc+hash")):
        found.append(Case(f"writing {name}, fsync, 1 GiB", unit="GB/s", sides=[
            Side("ours", name, [program, "--raw", "--sums", sums]),
            Side("limit", "the bytes alone", [program, "--raw"]),
        ]))
    return found
