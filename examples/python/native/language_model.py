"""A small GPT (Radford et al., 2018) that learns to write as a text does, byte by byte, and then writes:

    python language_model.py                                                   one process, the project's own pages as the text
    tessera run -n 2 python language_model.py                                  two processes, each computes half of a batch
    tessera run -n 2 python language_model.py --parallel_mode auto_parallel    a search decides what they share
    python language_model.py --resume --prompt "A rank"                        its epochs are done: it only writes

The losses are the same for any number of processes, but for rounding. A token is a byte, so that any text will do.
"""
import argparse
from pathlib import Path

import numpy as np
import tessera
from tessera import nn, ops

BYTES, HEADS = 256, 4
PAGES = Path(__file__).resolve().parents[3] / "docs"
HELD_OUT_ROWS = 64  # at the end of the text, which are not trained on


class Block(nn.Cell):
    """x [n,t,hidden] -> the same: attention to a token and those before it, then a feed-forward network, both added to x."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm((hidden_size,))
        self.attention = nn.MultiHeadAttention(hidden_size, HEADS, 0.0, 0.0, causal=True)
        self.norm2 = nn.LayerNorm((hidden_size,))
        self.feed_forward = nn.FeedForward(hidden_size, 4 * hidden_size, 0.0)

    def construct(self, x: tessera.Tensor) -> tessera.Tensor:
        normed = self.norm1(x)
        x = x + self.attention(normed, normed, normed)
        x = x + self.feed_forward(self.norm2(x))
        return x


class Gpt(nn.Cell):
    """tokens int32[n,t] -> logits [n,256,t] of the byte that follows each of them."""

    def __init__(self, length: int, hidden_size: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.TokenEmbedding(BYTES, length, hidden_size)
        self.blocks = nn.Sequential(*[Block(hidden_size) for _ in range(layers)])
        self.norm = nn.LayerNorm((hidden_size,))
        self.head = nn.Dense(hidden_size, BYTES, weight_init="xavier_uniform", has_bias=False)

    def construct(self, tokens: tessera.Tensor) -> tessera.Tensor:
        logits = self.head(self.norm(self.blocks(self.embed(tokens))))
        return ops.transpose(logits, (0, 2, 1))  # classes are the second dim, as the loss wants them


def rows_of(text: bytes, length: int, shuffle: bool) -> tessera.data.Dataset:
    """A row for each `length` bytes of the text: these, and as the label those that follow each of them."""
    tokens = np.frombuffer(text, np.uint8).astype(np.int32)
    rows = (len(tokens) - 1) // length
    columns = {"tokens": tokens[:rows * length].reshape(rows, length), "following": tokens[1:rows * length + 1].reshape(rows, length)}
    return tessera.data.tensors(columns, shuffle=shuffle, seed=1)


def write(model: tessera.Model, prompt: str, length: int, count: int, temperature: float) -> str:
    """The prompt and `count` bytes more: the most probable ones, or, with a temperature, drawn from a distribution that is the flatter the
    higher the temperature is. Every rank calls it: they draw alike."""
    draws, written = np.random.default_rng(1), list(prompt.encode())
    for _ in range(count):
        window = written[-length:]
        # Always of one shape, so that it is compiled once; a token does not see what is behind it.
        tokens = np.array([window + [0] * (length - len(window))], np.int32)
        logits = model.predict(tokens).numpy()[0, :, len(window) - 1].astype(np.float64)
        weights = np.exp((logits - logits.max()) / temperature) if temperature > 0 else logits == logits.max()
        written.append(int(draws.choice(BYTES, p=weights / weights.sum())))
    return bytes(written).decode(errors="replace")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", type=Path, default=sorted(PAGES.glob("*.md")), help="files to learn from (default: docs/*.md)")
    parser.add_argument("--parallel_mode", choices=["data_parallel", "auto_parallel"], default="data_parallel", help="how processes share a step")
    parser.add_argument("--epochs", type=int, default=3, help="in all, those of --resume included")
    parser.add_argument("--steps", type=int, default=100, help="of an epoch, at most")
    parser.add_argument("--batch_size", type=int, default=32, help="rows of a step, over all processes")
    parser.add_argument("--length", type=int, default=64, help="bytes of a row, and how far back the network sees")
    parser.add_argument("--hidden_size", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--learning_rate", type=float, default=5e-3, help="the first one, which falls along half a cosine")
    parser.add_argument("--save", default="language_model", help="the directory where a checkpoint of each epoch goes")
    parser.add_argument("--resume", action="store_true", help="go on from the newest one there, if there is one")
    parser.add_argument("--prompt", default="The ", help="how what is written begins")
    parser.add_argument("--count", type=int, default=120, help="bytes to write")
    parser.add_argument("--temperature", type=float, default=0.7, help="of the second text; the first one has 0")
    options = parser.parse_args()
    if min(options.epochs, options.steps, options.batch_size, options.length, options.layers, len(options.prompt)) < 1:
        parser.error("numbers of epochs, steps, rows, bytes and layers must be at least 1, and --prompt must not be empty")
    if options.hidden_size < HEADS or options.hidden_size % HEADS != 0 or options.temperature <= 0:
        parser.error(f"--hidden_size must be a multiple of {HEADS}, is {options.hidden_size}; --temperature above 0, is {options.temperature}")
    if missing := [path for path in options.text if not path.exists()]:
        parser.error(f"there is no {missing[0]}")
    text = b"\n".join(path.read_bytes() for path in options.text)
    held_out = HELD_OUT_ROWS * options.length + 1
    if len(text) < held_out + options.batch_size * options.length + 1:
        parser.error(f"the text has {len(text)} bytes, one batch and the {HELD_OUT_ROWS} rows that are held out need more: name files by --text")
    rows = rows_of(text[:-held_out], options.length, shuffle=True).batch(options.batch_size, drop_remainder=True).take(options.steps)
    valid = rows_of(text[-held_out:], options.length, shuffle=False).batch(options.batch_size)
    optimizer = nn.AdamW(nn.schedules.cosine(options.learning_rate, options.epochs * len(rows), options.learning_rate / 100))
    network = Gpt(options.length, options.hidden_size, options.layers)
    model = tessera.Model(network, nn.CrossEntropy(), optimizer, metrics=["loss"], parallel_mode=options.parallel_mode, seed=1)
    saver = tessera.ModelCheckpoint("gpt", options.save, save_checkpoint_steps=len(rows))
    model.train(options.epochs, rows, [tessera.EpochSummary(valid=valid), saver], resume="auto" if options.resume else None)
    for temperature in (0.0, options.temperature):
        written = write(model, options.prompt, options.length, options.count, temperature)
        if tessera.cluster.rank() == 0:
            print(f"--- temperature {temperature}:\n{written}", flush=True)


if __name__ == "__main__":
    main()
