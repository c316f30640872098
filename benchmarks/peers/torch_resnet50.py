"""PyTorch's ResNet-50 training step: channels-last, momentum; in bfloat16 by torch.autocast; the better of eager and torch.compile."""

import argparse
import math
import sys
import time

import resnet50
import torch
from rounds import seconds_of_step_in_round, serve_rounds
from torch.nn import functional as F


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image_size", type=int, default=224)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warmup_steps", type=int, default=2)
    parser.add_argument("--mode", choices=["best", "eager", "compile"], default="best")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)

    network = resnet50.ResNet50(exact_padding=False)
    resnet50.initialise(network, 0)
    network = network.to(memory_format=torch.channels_last).train()
    size = arguments.image_size
    images = torch.randn(arguments.batch_size, 3, size, size).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (arguments.batch_size,))
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9)

    def step(forward):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bfloat16"):
            loss = F.cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()
        value = loss.item()
        if not math.isfinite(value):
            raise SystemExit("torch_resnet50: the loss is not finite")
        return time.perf_counter() - start

    modes = {"eager": network}
    if arguments.mode != "eager":
        modes["compile"] = torch.compile(network)
    if arguments.mode == "compile":
        del modes["eager"]
    seconds = {}
    for mode, forward in list(modes.items()):
        try:
            for _ in range(arguments.warmup_steps):
                step(forward)
            seconds[mode] = min(step(forward) for _ in range(2)) if len(modes) > 1 else 0.0
        except Exception as error:  # torch.compile needs a compiler and more; without it the peer is eager alone
            if mode != "compile" or arguments.mode == "compile":
                raise
            print(f"torch.compile: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)
            torch.compiler.reset()
    best = min(seconds, key=seconds.get)
    about = f"torch {torch.__version__}, {best}" + "".join(f", {mode} {arguments.batch_size / s:.1f}" for mode, s in seconds.items() if s)
    serve_rounds("images/s", about, lambda: arguments.batch_size / seconds_of_step_in_round(lambda: step(modes[best])))


if __name__ == "__main__":
    main()
