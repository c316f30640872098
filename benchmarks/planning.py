from harness import BIN, Case, Side

DOC = "seconds and peak memory from a network to the plan of its training step, on one core, without a device"

MODELS = ("resnet50", "gpt2_small", "llama_8b", "gpt3_96")
DEVICES = (8, 64, 1024)


def cases(threads):
    return [Case(f"{model}, {devices} devices{title}", unit="s", sides=[
        Side("ours", "tessera", [BIN / "planning_bench", "--model", model, "--devices", devices, *options], launcher=["taskset", "-c", "0"]),
    ]) for model in MODELS for devices in DEVICES for title, options in (("", ()), (", simulated", ("--choose",)))]
