"""PyTorch's Transformer training step: nn.Transformer with layer normalisation in front, learned positions, AdamW; the better of
eager and torch.compile."""

import argparse
import math
import sys
import time

import torch
from rounds import seconds_of_step_in_round, serve_rounds
from torch import nn
from torch.nn import functional as F


class Translator(nn.Module):
    """Token numbers [n, s] and [n, t] -> logits [n * t, vocabulary]."""

    def __init__(self, vocabulary, max_length, width, heads, inner, layers, dropout):
        super().__init__()
        self.words = nn.ModuleList(nn.Embedding(vocabulary, width) for _ in range(2))
        self.positions = nn.ModuleList(nn.Embedding(max_length, width) for _ in range(2))
        self.dropout = nn.Dropout(dropout)
        activation = lambda x: F.gelu(x, approximate="tanh")
        self.base = nn.Transformer(width, heads, layers, layers, inner, dropout, activation, batch_first=True, norm_first=True)
        # Ours has no normalisation after the last layer.
        self.base.encoder.norm = self.base.decoder.norm = None
        self.head = nn.Linear(width, vocabulary, bias=False)

    def embed(self, i, ids):
        return self.dropout(self.words[i](ids) + self.positions[i].weight[:ids.shape[1]])

    def forward(self, source, target):
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        tokens = self.base(self.embed(0, source), self.embed(1, target), tgt_mask=causal, tgt_is_causal=True)
        return self.head(tokens).flatten(0, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=20000)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warmup_steps", type=int, default=2)
    parser.add_argument("--mode", choices=["best", "eager", "compile"], default="best")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)

    network = Translator(arguments.vocabulary, arguments.tokens, 512, 8, 2048, 6, arguments.dropout).train()
    shape = (arguments.batch_size, arguments.tokens)
    source, target, labels = (torch.randint(0, arguments.vocabulary, shape) for _ in range(3))
    labels = labels.flatten()
    optimizer = torch.optim.AdamW(network.parameters(), 1e-4, fused=True)
    half = arguments.precision == "bfloat16"

    def step(forward):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = F.cross_entropy(forward(source, target), labels)
        loss.backward()
        optimizer.step()
        value = loss.item()
        if not math.isfinite(value):
            raise SystemExit("torch_transformer: the loss is not finite")
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
    tokens = arguments.batch_size * arguments.tokens
    about = f"torch {torch.__version__}, {best}" + "".join(f", {mode} {tokens / s:.0f}" for mode, s in seconds.items() if s)
    serve_rounds("tokens/s", about, lambda: tokens / seconds_of_step_in_round(lambda: step(modes[best])))


if __name__ == "__main__":
    main()
