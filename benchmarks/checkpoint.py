from harness import BIN, Case, ROOT, Side

DOC = "saving and loading 1 GiB: against torch.save and torch.load, writing and reading plainly; what sums cost, what training feels"


def disk_at_best():
    """Reads past the page cache that nobody looks at, with the number in flight and the size that are fastest on this disk."""
    return Side("limit", "the disk at best", [BIN / "disk_bench", "--best"])


def cases(threads):
    program = BIN / "checkpoint_bench"
    torch = ROOT / "benchmarks" / "peers" / "torch_checkpoint.py"
    found = []
    for name, options in (("save, fsync", []), ("load, from the page cache", ["--load"]), ("load, from the disk", ["--load", "--cold"])):
        found.append(Case(f"{name}, 1 GiB", unit="GB/s", sides=[
            Side("ours", "tessera", [program, *options]),
            Side("peer", "torch.load" if options else "torch.save", [torch, *options], needs_torch=True),
            Side("limit", "the bytes alone", [program, *options, "--raw"]),
        ] + ([disk_at_best()] if "--cold" in options else [])))
    for name, sums, without, named in (("CRC-32C", "crc", "none", "without sums"), ("hash", "crc+hash", "crc", "with CRC-32C only")):
        found.append(Case(f"saving with {name}, fsync, 1 GiB", unit="GB/s", sides=[
            Side("ours", f"with {name}", [program, "--sums", sums]),
            Side("limit", named, [program, "--sums", without]),
        ]))
    training = BIN / "training_save_bench"
    for name, what in (("longest", "longest"), ("mean", "mean")):
        found.append(Case(f"the {name} training step while 1 GiB is saved", unit="s", sides=[
            Side("ours", "async save", [training, "--what", what, "--threads", threads]),
            Side("limit", "without a save", [training, "--what", "step", "--threads", threads]),
        ]))
    found.append(Case("the call that begins an async save, 1 GiB", unit="GB/s", sides=[
        Side("ours", "save_checkpoint", [training, "--what", "call", "--threads", threads]),
        Side("limit", "copying the values", [training, "--what", "copy", "--threads", threads]),
    ]))
    found.append(Case("taking up training, from the page cache, 1 GiB", unit="GB/s", sides=[
        Side("ours", "load_checkpoint", [training, "--what", "load", "--threads", threads]),
        Side("limit", "the bytes alone", [program, "--load", "--raw"]),
    ]))
    found.append(Case("taking up training, from the disk, 1 GiB", unit="GB/s", sides=[
        Side("ours", "load_checkpoint", [training, "--what", "load", "--cold", "--threads", threads]),
        disk_at_best(),
    ]))
    return found
