import os

from harness import BIN, Case, ROOT, Side

DOC = ("training steps on a GPU (cuda:0): against the ways in which PyTorch runs them there, with the torch of the Python that "
       "TESSERA_TORCH_PYTHON names; and what they feel of checkpoints of 1 GiB")

PEERS = ("eager", "graph", "default", "reduce-overhead", "max-autotune")
# A step there takes milliseconds: this is a hundred of them, and six sides take turns in a few seconds.
ROUND_SECONDS = 0.7


def cases(threads):
    python = os.environ.get("TESSERA_TORCH_PYTHON", "python3")
    script = ROOT / "benchmarks" / "peers" / "torch_gpu.py"
    found = []

    def torch(role, name, way, model, *options):
        return Side(role, name, [python, "-B", script, model, *options, "--serve", way], is_built=False, timeout_s=1200)

    def add(name, unit, program, model, options, precision, ours=()):
        options = [*options, "--round_seconds", ROUND_SECONDS]
        # What is asked of torch as a type is said to our programs by the environment.
        is_tf32 = precision == "tf32"
        own = [*options, "--precision", "float32" if is_tf32 else precision, *ours, "--device", "cuda:0", "--threads", threads]
        theirs = [*options, "--precision", precision]
        sides = [Side("ours", "tessera", [BIN / program, *own], timeout_s=600, env={"TESSERA_CUDA_TF32": "1"} if is_tf32 else {})]
        sides += [torch("peer", f"pytorch, {way}", way, model, *theirs) for way in PEERS]
        sides.append(torch("limit", "products alone", "limit", model, *theirs))
        found.append(Case(f"{name} {precision}", sides, unit=unit, is_on_gpu=True))

    for size, batch, precision in ((224, 256, "bfloat16"), (224, 32, "bfloat16"), (32, 128, "bfloat16"), (32, 128, "tf32")):
        # A peer's batch stays on its device.
        add(f"ResNet-50 {size}x{size} batch {batch}", "images/s", "resnet50_bench", "resnet50",
            ["--image_size", size, "--batch_size", batch], precision, ours=["--fed_once"])
    for precision in ("bfloat16", "tf32"):
        add("Transformer 32 x 64 tokens", "tokens/s", "transformer_bench", "transformer",
            ["--batch_size", 32, "--tokens", 64, "--dropout", 0.1], precision)
    found.append(Case("1,000 matmuls of 4x4 in a row", [
        Side("ours", "tessera", [BIN / "step_overhead_bench", "--device", "cuda:0", "--threads", threads], timeout_s=600),
        *(torch("peer", f"pytorch, {way}", way, "tiny") for way in ("eager", "graph")),
    ], unit="us", is_on_gpu=True))
    for precision in ("bfloat16", "float32"):
        found.append(Case(f"ResNet-50 from files, 224x224 batch 32 {precision}", [
            Side("ours", "tessera", ["python3", "-B", ROOT / "benchmarks" / "from_files_side.py", "--", BIN / "resnet50_cifar10",
                                     "--image_size", 224, "--batch_size", 32, "--precision", precision, "--device", "cuda:0"],
                 also=["resnet50_cifar10"], is_built=False, timeout_s=600),
        ], is_on_gpu=True))
    for name, model, unit in (("a copy of 2 GiB", "copy", "GB/s"), ("a product of 8192^3 bfloat16", "matmul", "TFLOP/s")):
        side = torch("limit", "pytorch", "graph", model, "--round_seconds", ROUND_SECONDS)
        found.append(Case(f"the GPU itself: {name}", [side], unit=unit))
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
