import os

from harness import BIN, Case, ROOT, Side

DOC = ("training steps on a GPU (cuda:0): against the ways in which PyTorch runs them there, with the torch of the Python that "
       "TESSERA_TORCH_PYTHON names; and what they feel of checkpoints of 1 GiB")

PEERS = ("eager", "graph", "default", "reduce-overhead", "max-autotune")


def cases(threads):
    python = os.environ.get("TESSERA_TORCH_PYTHON", "python3")
    script = ROOT / "benchmarks" / "peers" / "torch_gpu.py"
    found = []

    def add(name, unit, program, model, options, ours=()):
        sides = [Side("ours", "tessera", [BIN / program, *options, *ours, "--device", "cuda:0", "--threads", threads], timeout_s=600)]
        sides += [Side("peer", f"pytorch, {mode}", [python, "-B", script, model, *options, "--serve", mode], is_built=False, timeout_s=1200)
                  for mode in PEERS]
        found.append(Case(name, sides, unit=unit))

    for size, batch in ((224, 256), (224, 32), (32, 128)):
        # A peer's batch stays on its device.
        add(f"ResNet-50 {size}x{size} batch {batch} bfloat16", "images/s", "resnet50_bench", "resnet50",
            ["--image_size", size, "--batch_size", batch, "--precision", "bfloat16"], ["--fed_once"])
    add("Transformer 32 x 64 tokens bfloat16", "tokens/s", "transformer_bench", "transformer",
        ["--batch_size", 32, "--tokens", 64, "--precision", "bfloat16"])
    return found + checkpoints(threads)


def checkpoints(threads):
    training = [BIN / "training_save_bench", "--device", "cuda:0", "--threads", threads, "--what"]
    raw = [BIN / "checkpoint_bench", "--raw"]
    found = []
    for name, what in (("longest", "longest"), ("mean", "mean")):
        found.append(Case(f"the {name} training step while 1 GiB is saved", unit="s", sides=[
            Side("ours", "async save", [*training, what]),
            Side("limit", "without a save", [*training, "step"]),
        ]))
    for name, what, limit in (("a save that is waited for, fsync", "save", raw), ("taking up training, from the page cache", "load", [*raw, "--load"])):
        found.append(Case(f"{name}, 1 GiB", unit="GB/s", sides=[
            Side("ours", "tessera", [*training, what]),
            Side("limit", "the bytes alone", limit),
        ]))
    return found
