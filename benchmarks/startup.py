from harness import BIN, Case, ROOT, Side

DOC = "seconds from starting a process to the end of its first ResNet-50 training step: against PyTorch (eager)"


def cases(threads):
    options = ["--image_size", 32, "--batch_size", 128, "--threads", threads, "--warmup_steps", 1]
    return [Case("first step 32x32 batch 128", [
        Side("ours", "tessera", [BIN / "resnet50_bench", *options]),
        Side("peer", "pytorch", [ROOT / "benchmarks" / "peers" / "torch_resnet50.py", *options, "--mode", "eager"],
             needs_torch=True),
    ], unit="s", startup=True)]
