"""A network over the parts of a batch."""
from tessera import ops as _ops

from mindspore import _check
from mindspore.nn.cell import Cell


class GradAccumulationCell(Cell):
    """(inputs) -> the sum of what the network makes of micro_size equal parts of their rows. The gradients are those of the sum, so
    that they are accumulated; the memory of one part at a time is had by network.recompute()."""

    def __init__(self, network, micro_size):
        super().__init__(auto_prefix=False)
        if not isinstance(network, Cell):
            raise TypeError(f"For 'GradAccumulationCell', the argument 'network' must cell type, but got the type : {type(network)}.")
        self.network = network
        self.micro_size = _check.integer("GradAccumulationCell", "micro_size", micro_size, 1)

    def construct(self, *inputs):
        for x in inputs:
            if x.shape[0] % self.micro_size:
                raise ValueError(f"For 'GradAccumulationCell', the rows of an input {x.shape} must be divisible by micro_size {self.micro_size}.")
        parts = [_ops.split(x, self.micro_size, 0) for x in inputs]
        total = self.network(*[part[0] for part in parts])
        for i in range(1, self.micro_size):
            total = total + self.network(*[part[i] for part in parts])
        return total
