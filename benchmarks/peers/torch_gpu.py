#!/usr/bin/env python3
"""PyTorch's training step of ResNet-50 or of a Transformer on a GPU, in the ways in which people run it: eager, eager in a CUDA
graph, torch.compile. It prints a line of JSON for each way: images or tokens in a second, the median of rounds, and the most
memory that was taken."""
import argparse
import json
import statistics
import time

import torch
from rounds import seconds_of_step_in_round, serve_rounds
from torch import nn


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
        network = Translator(vocabulary, tokens=options.tokens).to(device)
        inputs = tuple(torch.randint(vocabulary, (options.batch_size, options.tokens), device=device) for _ in range(2))
        labels = torch.randint(vocabulary, (options.batch_size * options.tokens, ), device=device)
        optimizer = torch.optim.AdamW(network.parameters(), 1e-4, fused=True, capturable=True)
        items = options.batch_size * options.tokens
    network.train()
    return network, inputs, labels, optimizer, items


def step_of(options, mode):
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
    if mode in ("default", "reduce-overhead", "max-autotune"):
        called = torch.compile(network, mode=mode)
    if mode != "graph":
        return step, items
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss
    return replay, items


def timed(step):
    def run():
        begin = time.perf_counter()
        step().item()
        return time.perf_counter() - begin
    return run


def measure(options, mode):
    torch.cuda.reset_peak_memory_stats()
    step, items = step_of(options, mode)
    for _ in range(options.warmup_steps):
        step().item()
    values = [items / seconds_of_step_in_round(timed(step)) for _ in range(options.rounds)]
    return {"mode": mode, "value": statistics.median(values), "spread": [min(values), max(values)],
            "peak_memory": torch.cuda.max_memory_allocated()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=["resnet50", "transformer"])
    parser.add_argument("--modes", default="eager,graph", help="of eager, graph, default, reduce-overhead, max-autotune")
    parser.add_argument("--serve", help="instead: rounds of this one, as benchmarks/run asks for them")
    parser.add_argument("--image_size", type=int, default=32)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=20000)
    parser.add_argument("--precision", default="bfloat16", choices=["float32", "tf32", "bfloat16", "float16"])
    parser.add_argument("--warmup_steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    if options.serve:
        step, items = step_of(options, options.serve)
        for _ in range(options.warmup_steps):
            step().item()
        about = f"torch {torch.__version__} on {torch.cuda.get_device_name()}"
        return serve_rounds("images/s" if options.model == "resnet50" else "tokens/s", about,
                            lambda: items / seconds_of_step_in_round(timed(step)))
    for mode in options.modes.split(","):
        try:
            row = measure(options, mode)
        except Exception as error:  # a mode that fails is a row, too
            row = {"mode": mode, "error": str(error).splitlines()[0][:200]}
        print(json.dumps(row), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
