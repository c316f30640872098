"""Trains a small network by the package `tessera` on the device that is named, prints the loss of each step, and the names of the GPUs."""

import sys

import numpy as np
import tessera
from tessera import nn, ops


class Mlp(nn.Cell):
    def __init__(self):
        super().__init__()
        self.up = nn.Dense(64, 256)
        self.down = nn.Dense(256, 10)

    def construct(self, x):
        return self.down(ops.relu(self.up(x)))


tessera.set_seed(1)
x = np.random.default_rng(1).standard_normal((320, 64), dtype=np.float32)
rows = tessera.data.tensors({"x": x, "label": x[:, :10].argmax(1).astype(np.int32)}).batch(32)
model = tessera.Model(Mlp(), nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), nn.Momentum(learning_rate=0.02),
                      device=sys.argv[1])
model.train(1, rows, [tessera.LossMonitor(1)])
print("gpus:", ", ".join(tessera.gpus()))
