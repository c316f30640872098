"""A small network, and a training of it, for several tests."""
import numpy as np
import tessera
from tessera import nn


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4, 2)
        self.head = nn.Dense(2, 3)
        self.scale = tessera.Parameter(np.ones(3, np.float32))

    def construct(self, ids):
        return self.head(self.embed(ids)) * self.scale


IDS = np.arange(4, dtype=np.int32)


def trained(net, loss=None, **options):
    model = tessera.Model(net, loss or nn.CrossEntropyLoss(), nn.SGD(learning_rate=0.1), **options)
    model.train(1, tessera.data.tensors({"ids": IDS, "label": IDS % 3}).batch(4))
    return model
