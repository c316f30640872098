from harness import BIN, Case, Side

DOC = "a training step while its timeline or its logs are recorded: what looking on costs; at most 3 % (ours_over_limit at least 0.97)"


def cases(threads):
    def side(role, name, mode, network):
        return Side(role, name, [BIN / "observing_bench", "--mode", mode, "--network", network, "--threads", threads])

    return [Case(name, [
        side("limit", "nobody looks on", "plain", network),
        side("ours", "the timeline is recorded", "trace", network),
        side("ours", "logs are written after each step", "logs", network),
    ], unit="us") for name, network in (("ResNet-50 32x32, batch 32", "resnet50"), ("an MLP on images of 32x32, batch 64", "mlp"))]
