from harness import BIN, TUNED_MALLOC, Case, ROOT, Side

DOC = "a ResNet-50 training step, float32 and bfloat16: against PyTorch, and against oneDNN's kernels alone"


def cases(threads):
    found = []
    for precision in ("float32", "bfloat16"):
        for size, batch in ((224, 32), (32, 128)):
            options = ["--image_size", size, "--batch_size", batch, "--threads", threads, "--precision", precision]
            torch = [ROOT / "benchmarks" / "peers" / "torch_resnet50.py", *options]
            found.append(Case(f"training step {size}x{size} batch {batch} {precision}", [
                Side("ours", "tessera", [BIN / "resnet50_bench", *options, "--kernels", "measured"]),
                Side("peer", "pytorch", torch, needs_torch=True),
                Side("peer", "pytorch, tuned malloc", torch, env=TUNED_MALLOC, needs_torch=True),
                Side("limit", "oneDNN alone", [BIN / "onednn_limit", *options]),
            ]))
    return found
