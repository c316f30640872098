from harness import BIN, Case, ROOT, Side

DOC = "memory of a ResNet-50 training step, and what less of it costs: against PyTorch (see the column of peaks)"

# Of the arena: about what leaves the whole process half of PyTorch's.
LIMITS = {"float32": "1.7GiB", "bfloat16": "1.1GiB"}


def cases(threads):
    found = []
    for precision, limit in LIMITS.items():
        options = ["--image_size", 224, "--batch_size", 32, "--threads", threads, "--precision", precision]
        ours = [BIN / "resnet50_bench", *options, "--kernels", "measured"]
        found.append(Case(f"training step 224x224 batch 32 {precision}", [
            Side("ours", "tessera", ours),
            Side("ours", f"tessera, within {limit}", [*ours, "--memory_limit", limit]),
            Side("peer", "pytorch, eager", [ROOT / "benchmarks" / "peers" / "torch_resnet50.py", *options, "--mode", "eager"],
                 needs_torch=True),
            Side("peer", "pytorch, compile", [ROOT / "benchmarks" / "peers" / "torch_resnet50.py", *options, "--mode", "compile"],
                 needs_torch=True),
        ]))
    return found
