"""DistributedGradReducer: gradients over the ranks; PipelineGradReducer, of steps that are functions."""
import tessera

from mindspore import _check, ops
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


class PipelineGradReducer(Cell):
    """The gradients of a step that is a function, divided by scale_sense: they are whole as they come. parameters are those of the optimizer; opt_shard
    has no effect. Steps that are functions are not split into stages, which is refused where they are called: give a Model the Pipeline."""

    def __init__(self, parameters, scale_sense=1.0, opt_shard=None):
        super().__init__(auto_prefix=False)
        self.parameters_ = tuple(parameters)
        if opt_shard is not None:
            _check.boolean("PipelineGradReducer", "opt_shard", opt_shard)
        self.scale_sense = _check.number("PipelineGradReducer", "scale_sense", scale_sense)
        if scale_sense == 0:
            raise ValueError("For 'PipelineGradReducer', the 'scale_sense' must not be 0: gradients are divided by it.")

    def construct(self, grads):
        """One gradient for each of the parameters. RuntimeError where there are others."""
        if len(grads) != len(self.parameters_):
            raise RuntimeError(f"For 'PipelineGradReducer', there are {len(grads)} gradients of {len(self.parameters_)} parameters.")
        return tuple(gradient if self.scale_sense == 1 else gradient / self.scale_sense for gradient in grads)
