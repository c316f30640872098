"""DistributedGradReducer: gradients over the ranks."""
import tessera

from mindspore import ops
from mindspore.common.dtype import float32
from mindspore.communication.management import GlobalComm
from mindspore.nn.cell import Cell


class DistributedGradReducer(Cell):
    """Gradients summed over the ranks in float32, or averaged; those of parameters that are layerwise_parallel stay as they are.

    degree: by what the sum is divided where mean is True; the number of ranks unless given. fusion_type has no effect: what travels together
    follows from the measured links."""

    def __init__(self, parameters, mean=True, degree=None, fusion_type=1, group=None):
        super().__init__(auto_prefix=False)
        if degree is not None and (isinstance(degree, bool) or not isinstance(degree, int) or degree < 1):
            raise ValueError(f"For 'DistributedGradReducer', the 'degree' must be an int greater than 0, but got {degree}.")
        self.parameters_ = tuple(parameters)
        self.all_reduce = ops.AllReduce(group=group or GlobalComm.WORLD_COMM_GROUP)
        self.degree = degree or tessera.cluster.size(self.all_reduce.native)
        self.mean = mean

    def _reduced(self, gradient):
        total = self.all_reduce(tessera.ops.cast(gradient, float32))
        return tessera.ops.cast(total * (1.0 / self.degree) if self.mean else total, gradient.dtype)

    def construct(self, gradients):
        return tuple(gradient if parameter.layerwise_parallel else self._reduced(gradient)
                     for parameter, gradient in zip(self.parameters_, gradients))
