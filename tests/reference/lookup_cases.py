"""More cases: tables of which a step looks up some rows."""
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from kinds import SINGLE, add, cell, ints, seeded, value

IDS = ([[1, 0], [4, 4]], [[1, 2], [1, 2]], [[0, 3], [2, 0]])


class Squares(nn.Cell):
    """The sum of the squares of rows."""

    def __init__(self, **settings):
        super().__init__()
        self.lookup = nn.EmbeddingLookup(6, 3, **settings)
        self.square, self.sum = ops.Square(), ops.ReduceSum()

    def construct(self, ids):
        return self.sum(self.square(self.lookup(ids)))


def sparsely(label, make):
    """The table after each of several steps. MindSpore's gradients of lookups are sparse in graphs only."""
    def compute(_):
        ms.set_context(mode=ms.GRAPH_MODE)
        try:
            network = Squares()
            table = network.trainable_params()[0]
            table.set_data(Tensor(seeded("table").uniform(-1, 1, (6, 3)).astype(np.float32)))
            optimizer = make(network)
            optimizer.target = "CPU"
            step = nn.TrainOneStepCell(network, optimizer)
            step.set_train()
            found = {}
            for number, ids in enumerate(IDS):
                found[f"loss.{number}"] = step(Tensor(ids, ms.int32))
                found[f"table.{number}"] = table.asnumpy().copy()
            return found
        finally:
            ms.set_context(mode=ms.PYNATIVE_MODE)

    add(label, SINGLE, compute)


cell("nn.EmbeddingLookup dense", lambda: nn.EmbeddingLookup(6, 3, target="DEVICE", sparse=False), ints(2, 3))
cell("nn.EmbeddingLookup max_norm", lambda: nn.EmbeddingLookup(6, 3, target="DEVICE", sparse=False, max_norm=0.7), ints(2, 3))
value("nn.EmbeddingLookup", lambda: nn.EmbeddingLookup(6, 3, "ones")(Tensor([[1, 0], [5, 5]], ms.int32)))
value("ops.SparseGatherV2", lambda: ops.SparseGatherV2()(Tensor(np.arange(6.0).reshape(3, 2), ms.float32), Tensor([2, 0], ms.int32), 0))
for words in ({}, {"use_nesterov": True}, {"weight_decay": 0.1}, {"loss_scale": 4.0}, {"beta1": 0.6, "beta2": 0.9, "eps": 0.1}):
    label = " ".join(["nn.LazyAdam sparse", *words])
    sparsely(label, lambda net, words=words: nn.LazyAdam(net.trainable_params(), 0.1, **words))
sparsely("nn.Adam sparse", lambda net: nn.Adam(net.trainable_params(), 0.1))
for words in ({}, {"l2": 0.1}, {"loss_scale": 4.0}):
    label = " ".join(["nn.FTRL sparse", *words])
    sparsely(label, lambda net, words=words: nn.FTRL(net.trainable_params(), learning_rate=0.1, **words))
