"""One network, written in two ways for any number of ranks: with slices and an all_reduce by hand (hybrid parallel), and
for one device with a strategy (semi-automatic parallel). Both print the same losses, which are those of one rank:

    export PYTHONPATH=$(python -m tessera compat-path)
    mpirun -n 4 python hybrid_parallel.py
"""
import numpy as np
from mindspore import (Callback, Model, Parameter, Tensor, dataset, nn, ops, reset_auto_parallel_context,
                       set_auto_parallel_context)
from mindspore.communication import get_group_size, get_rank, init

FEATURES, CHANNELS = 512, 128
STEPS = 5


def some_numbers(shape, seed):
    """Any numbers, the same on every rank."""
    return np.random.RandomState(seed).uniform(-0.5, 0.5, shape).astype(np.float32)


class HybridParallelNet(nn.Cell):
    """The weight's columns are split: each rank sums over its own, the all_reduce over all."""

    def __init__(self):
        super().__init__()
        columns = np.array_split(some_numbers((FEATURES, CHANNELS), 1), get_group_size(), axis=1)
        self.weight = Parameter(Tensor(columns[get_rank()]), layerwise_parallel=True)
        self.fc = ops.MatMul()
        self.reduce = ops.ReduceSum()
        self.all_reduce = ops.AllReduce(op="sum")

    def construct(self, x):
        return self.all_reduce(self.reduce(self.fc(x, self.weight), -1))


class SemiAutoParallelNet(nn.Cell):
    """The strategy says the same; what must be communicated follows from it."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(some_numbers((FEATURES, CHANNELS), 1)))
        self.fc = ops.MatMul().shard(((1, 1), (1, get_group_size())))
        self.reduce = ops.ReduceSum()

    def construct(self, x):
        return self.reduce(self.fc(x, self.weight), -1)


class PrintLoss(Callback):
    """A line for each step, from the first rank."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def step_end(self, run_context):
        params = run_context.original_args()
        if get_rank() == 0:
            print(f"{self.name} step {params.cur_step_num}: loss {params.net_outputs.asnumpy():.4f}", flush=True)


def train(parallel_mode, network_class):
    """In both ways every rank reads the whole batch."""
    reset_auto_parallel_context()
    set_auto_parallel_context(parallel_mode=parallel_mode, full_batch=True)
    network = network_class()
    optimizer = nn.Momentum(network.trainable_params(), 1e-4, 0.9)
    batch = dataset.NumpySlicesDataset({"x": some_numbers((8, FEATURES), 2), "y": some_numbers((8,), 3)}, shuffle=False).batch(8)
    Model(network, nn.MSELoss(), optimizer).train(STEPS, batch, PrintLoss(network_class.__name__), dataset_sink_mode=False)


if __name__ == "__main__":
    init()
    train("hybrid_parallel", HybridParallelNet)
    train("semi_auto_parallel", SemiAutoParallelNet)
