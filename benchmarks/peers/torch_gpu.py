#!/usr/bin/env python3
"""PyTorch's training step of ResNet-50 or of a Transformer on a GPU, in the ways in which people run it: eager, eager in a CUDA
graph, torch.compile. It prints a line of JSON for each way: images or tokens in a second, the median of rounds, and the most
memory that was taken.

The way `limit` is the convolutions, matrix products and attentions of that step and nothing else, in a CUDA graph. Other models
say what a GPU can do at all: `tiny` runs 1,000 matrix products of 4x4 in a row, `copy` copies 2 GiB, `matmul` multiplies matrices
of 8192x8192 in bfloat16. `hold` takes all free memory but for --leave MiB, until its input ends."""
import argparse
import json
import statistics
import sys
import time

import torch
from rounds import ROUND_SECONDS, seconds_of_step_in_round, serve_rounds
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

UNITS = {"resnet50": "images/s", "transformer": "tokens/s", "tiny": "us", "copy": "GB/s", "matmul": "TFLOP/s"}
OPERATORS = 1000  # of `tiny`
COMPILED = ("default", "reduce-overhead", "max-autotune")


class Translator(nn.Module):
    """6 + 6 layers, norms in front, as nn::translator; the shapes and the arithmetic are what counts here."""

    def __init__(self, vocabulary, width=512, heads=8, hidden=2048, layers=6, tokens=64, dropout=0.1):
        super().__init__()
        self.words = nn.ModuleList([nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)])
        self.places = nn.ModuleList([nn.Embedding(tokens, width), nn.Embedding(tokens, width)])
        self.dropout = nn.Dropout(dropout)
        self.body = nn.Transformer(width, heads, layers, layers, hidden, dropout, activation="gelu", batch_first=True, norm_first=True)
        self.head = nn.Linear(width, vocabulary)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(tokens), persistent=False)
        self.register_buffer("positions", torch.arange(tokens), persistent=False)

    def forward(self, source, target):
        sides = [self.dropout(words(ids) + places(self.positions)) for words, places, ids in zip(self.words, self.places, (source, target))]
        return self.head(self.body(*sides, tgt_mask=self.mask, tgt_is_causal=True)).flatten(0, 1)


def make(options):
    device = "cuda"
    if options.model == "resnet50":
        import torchvision
        network = torchvision.models.resnet50(num_classes=10).to(device, memory_format=torch.channels_last)
        images = torch.randn(options.batch_size, 3, options.image_size, options.image_size, device=device).to(memory_format=torch.channels_last)
        inputs, labels = (images, ), torch.arange(options.batch_size, device=device) % 10
        optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9, foreach=True)
        items = options.batch_size
    else:
        vocabulary = options.vocabulary
        network = Translator(vocabulary, tokens=options.tokens, dropout=options.dropout).to(device)
        inputs = tuple(torch.randint(vocabulary, (options.batch_size, options.tokens), device=device) for _ in range(2))
        labels = torch.randint(vocabulary, (options.batch_size * options.tokens, ), device=device)
        optimizer = torch.optim.AdamW(network.parameters(), 1e-4, fused=True, capturable=True)
        items = options.batch_size * options.tokens
    network.train()
    return network, inputs, labels, optimizer, items


def recorded(run):
    """`run` in a CUDA graph, and what it returned; three runs come first, so that libraries have chosen their kernels."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = run()
    return graph, result


class Products(TorchDispatchMode):
    """The calls of convolutions, products and attentions while it is entered, with their operands."""

    NAMES = ("convolution", "convolution_backward", "mm", "addmm", "bmm", "baddbmm")

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in self.NAMES or name.startswith("_scaled_dot_product"):
            self.calls.append((function, args, kwargs or {}))
        return function(*args, **(kwargs or {}))


def limit_of(step):
    """The products of a step, in a CUDA graph."""
    step()
    with Products() as products:
        step()

    @torch.no_grad()
    def run():
        for function, args, kwargs in products.calls:
            function(*args, **kwargs)

    graph, _ = recorded(run)
    done = torch.zeros((), device="cuda")

    def replay():
        graph.replay()
        return done
    return replay, len(products.calls)


def step_of(options, mode):
    """A step of a training; and what its time is multiplied or divided with, images or tokens."""
    network, inputs, labels, optimizer, items = make(options)
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(options.precision)

    def forward():
        with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None, cache_enabled=mode != "graph"):
            return nn.functional.cross_entropy(called(*inputs), labels)

    def step():
        optimizer.zero_grad(set_to_none=mode != "graph")
        loss = forward()
        loss.backward()
        optimizer.step()
        return loss

    called = network
    if mode in COMPILED:
        called = torch.compile(network, mode=mode)
    if mode == "limit":
        return limit_of(step)[0], items
    if mode != "graph":
        return step, items
    graph, loss = recorded(step)

    def replay():
        graph.replay()
        return loss
    return replay, items


def measure_of_machine(options, mode):
    """What runs once, and the value of a round, for the models that are no trainings."""
    if options.model == "tiny":
        weight, x = torch.eye(4, device="cuda"), torch.arange(16.0, device="cuda").reshape(4, 4)

        def chain():
            y = x
            for _ in range(OPERATORS):
                y = y @ weight
            return y

        graph, last = recorded(chain) if mode == "graph" else (None, None)

        def once():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            if graph:
                graph.replay()
            y = last if graph else chain()
            torch.cuda.synchronize()
            seconds = time.perf_counter() - begin
            if not torch.equal(y, x):
                raise SystemExit("torch_gpu: wrong result")
            return seconds * 1e6 / OPERATORS
        return once, lambda: min(once() for _ in range(20))

    if options.model == "copy":
        source = torch.randn(1 << 29, device="cuda")
        target = torch.empty_like(source)
        amount = 2 * source.nbytes / 1e9

        def work():
            target.copy_(source)
    else:
        size = 8192
        a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        product = torch.empty_like(a)
        amount = 2 * size**3 / 1e12

        def work():
            torch.mm(a, b, out=product)

    def once():
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(10):
            work()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / 10
    return once, lambda: amount / seconds_of_step_in_round(once, options.round_seconds)


def timed(step):
    def run():
        begin = time.perf_counter()
        step().item()
        return time.perf_counter() - begin
    return run


def measure(options, mode):
    """No value where no rounds are asked for: then it has compiled what there is to compile."""
    torch.cuda.reset_peak_memory_stats()
    step, items = step_of(options, mode)
    for _ in range(options.warmup_steps):
        step().item()
    values = [items / seconds_of_step_in_round(timed(step), options.round_seconds) for _ in range(options.rounds)]
    value = {"value": statistics.median(values), "spread": [min(values), max(values)]} if values else {}
    return {"mode": mode, **value, "peak_memory": torch.cuda.max_memory_allocated()}


def hold(options):
    free, _ = torch.cuda.mem_get_info()
    held = torch.empty(max(free - (options.leave << 20), 0), dtype=torch.uint8, device="cuda")
    print(json.dumps({"ready": True, "unit": "bytes", "about": f"holds {held.nbytes >> 20} MiB"}), flush=True)
    sys.stdin.read()


def peak():
    return {"peak": torch.cuda.max_memory_allocated()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=[*UNITS, "hold"])
    parser.add_argument("--modes", default="eager,graph", help="of eager, graph, default, reduce-overhead, max-autotune, limit")
    parser.add_argument("--serve", help="instead: rounds of this one, as benchmarks/run asks for them")
    parser.add_argument("--image_size", type=int, default=32)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=20000)
    parser.add_argument("--dropout", type=float, default=0.1, help="of the Transformer")
    parser.add_argument("--precision", default="bfloat16", choices=["float32", "tf32", "bfloat16", "float16"])
    parser.add_argument("--warmup_steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5, help="0: compile, and measure nothing")
    parser.add_argument("--round_seconds", type=float, default=ROUND_SECONDS, help="what the steps of a round take at least")
    parser.add_argument("--leave", type=int, default=2048, metavar="MiB", help="of `hold`: what it leaves free")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    if options.model == "hold":
        return hold(options)
    about = f"torch {torch.__version__} on {torch.cuda.get_device_name()}"
    if options.model in ("tiny", "copy", "matmul"):
        once, round_value = measure_of_machine(options, options.serve or "graph")
        for _ in range(options.warmup_steps):
            once()
        if options.serve:
            return serve_rounds(UNITS[options.model], about, round_value, peak)
        print(json.dumps({"mode": options.model, "unit": UNITS[options.model], "value": round_value()}))
        return None
    if options.serve:
        step, items = step_of(options, options.serve)
        for _ in range(options.warmup_steps):
            step().item()
        return serve_rounds(UNITS[options.model], about, lambda: items / seconds_of_step_in_round(timed(step), options.round_seconds), peak)
    for mode in options.modes.split(","):
        try:
            row = measure(options, mode)
        except Exception as error:  # a mode that fails is a row, too
            row = {"mode": mode, "error": str(error).splitlines()[0][:200]}
        print(json.dumps(row), flush=True)
        torch.cuda.empty_cache()
    return None


if __name__ == "__main__":
    main()
