"""A data set of one's own, of which each process reads its part, and that goes on in the middle of an epoch:

    python custom_data_set.py                                              trains from beginning to end
    tessera run -n 2 python custom_data_set.py                             the same losses, each process reads half of the rows
    tessera run -n 2 python custom_data_set.py --stop_after 17             ends in the middle of an epoch, with a checkpoint
    tessera run -n 2 python custom_data_set.py --resume                    goes on there, with the losses of the first command

What has `len` and an index needs none of this: tessera.data.generator takes it, Model.train gives each process its rows, and a
checkpoint says how far it was read. A class as this one is for data that must be read in its own way, in a loop of one's own.
"""
import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tessera
from numpy.typing import NDArray
from tessera import nn

Arrays = tuple[NDArray[Any], NDArray[Any]]
FEATURES, LINES = 4, 400


class Readings:
    """The lines of a text file, each with four numbers and the one to be predicted. Only the places of the lines are in memory.

    Iterating gives this process's part of each batch that is left of the epoch: x f32[n,4] and y f32[n,1]. state() says how far it has
    come, in rows of all processes, so that any number of them can go on from it."""

    def __init__(self, path: Path, batch_size: int, rank: int, size: int, seed: int) -> None:
        self.path, self.batch_size, self.rank, self.size, self.seed = path, batch_size, rank, size, seed
        self.epoch, self.next_row = 0, 0
        with open(path, "rb") as file:
            ends = np.cumsum([len(line) for line in file])
        self.places = np.concatenate([[0], ends[:-1]])

    def state(self) -> dict[str, int]:
        return {"epoch": self.epoch, "next_row": self.next_row, "seed": self.seed}

    def load_state(self, state: dict[str, int]) -> None:
        self.epoch, self.next_row, self.seed = state["epoch"], state["next_row"], state["seed"]

    def __iter__(self) -> Iterator[Arrays]:
        # The order is a function of seed and epoch: it need not be saved, and all processes have the same one.
        order = np.random.default_rng((self.seed, self.epoch)).permutation(len(self.places))
        while self.next_row + self.batch_size <= len(order):
            batch = order[self.next_row:self.next_row + self.batch_size]
            self.next_row += self.batch_size  # before the batch is given away: once it is trained on, state() is behind it
            first, last = (self.batch_size * part // self.size for part in (self.rank, self.rank + 1))
            yield self._read(batch[first:last])
        self.epoch, self.next_row = self.epoch + 1, 0

    def _read(self, lines: NDArray[Any]) -> Arrays:
        rows = []
        with open(self.path, encoding="ascii") as file:
            for line in lines:
                file.seek(int(self.places[line]))
                rows.append([float(word) for word in file.readline().split()])
        numbers = np.array(rows, np.float32)
        return numbers[:, :FEATURES], numbers[:, FEATURES:]


def write_readings(path: Path) -> None:
    """A made-up file, the same bytes wherever it is made."""
    x = np.random.default_rng(1).uniform(-1, 1, (LINES, FEATURES))
    y = np.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]
    np.savetxt(path, np.concatenate([x, y], 1), fmt="%.5f")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3, help="in all, those of --resume included")
    parser.add_argument("--batch_size", type=int, default=40, help="rows of a step, over all processes")
    parser.add_argument("--stop_after", type=int, default=0, metavar="STEP", help="end after this step, as if the time were over")
    parser.add_argument("--checkpoint", type=Path, default=Path("readings.ckpt"), help="where the training is saved when it ends")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    options = parser.parse_args()
    rank, size = tessera.cluster.rank(), tessera.cluster.size()
    if options.epochs < 1 or options.stop_after < 0:
        parser.error("--epochs must be at least 1, --stop_after must not be negative")
    if not size <= options.batch_size <= LINES or options.batch_size % size != 0:
        parser.error(f"--batch_size must be at most {LINES} and a multiple of the number of processes, {size}, is {options.batch_size}")
    if options.resume and not options.checkpoint.exists():
        parser.error(f"--resume: there is no {options.checkpoint}")

    with tempfile.TemporaryDirectory() as made:  # each process has its own
        write_readings(file := Path(made) / "readings.txt")
        rows = Readings(file, options.batch_size, rank, size, seed=1)
        network = nn.Sequential(nn.Dense(FEATURES, 32, weight_init="xavier_uniform", activation="tanh"), nn.Dense(32, 1, weight_init="xavier_uniform"))
        model = tessera.Model(network, nn.MSELoss(), nn.Adam(0.01), parallel_mode="data_parallel", seed=1)
        if options.resume:
            model.load_checkpoint(options.checkpoint)
            rows.load_state(json.loads(str(tessera.checkpoint.open(options.checkpoint)["readings"])))
        while rows.epoch < options.epochs and not 0 < options.stop_after <= model.step:
            for x, y in rows:
                loss = model.train_step(x, y, global_rows=options.batch_size)
                if rank == 0:
                    print(f"step {model.step}: loss {loss:.6f}", flush=True)
                if model.step == options.stop_after:
                    break
        # Beside parameters, the optimizer's states and the step: what the data set says, as a text. Every process saves.
        saved = model.save_checkpoint(options.checkpoint, append_info={"readings": json.dumps(rows.state())})
        if rank == 0:
            print(f"{os.fsdecode(saved)}: {rows.epoch} of {options.epochs} epochs are done, and {rows.next_row} of {LINES} rows of the next", flush=True)


if __name__ == "__main__":
    main()
