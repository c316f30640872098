from harness import BIN, Case, ROOT, Side

DOC = "the data pipeline alone (crop, flip, resize, normalise, batch): against PyTorch's DataLoader, and writing that memory"


def cases(threads):
    found = []
    for size, batch in ((32, 128), (224, 32)):
        options = ["--image_size", size, "--batch_size", batch, "--threads", threads]
        found.append(Case(f"augment to {size}x{size} batch {batch}, {threads} workers", [
            Side("ours", "tessera", [BIN / "data_bench", *options]),
            Side("peer", "pytorch", [ROOT / "benchmarks" / "peers" / "torch_data.py", *options], needs_torch=True),
            Side("limit", "filling the memory", [BIN / "data_bench", *options, "--fill_only"]),
        ]))
    return found
