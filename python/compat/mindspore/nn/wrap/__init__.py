"""Cells around a network."""
import tessera

from mindspore import context, ops
from mindspore.communication.management import GlobalComm
from mindspore._missing import missing
from mindspore.nn.cell import Cell


class WithLossCell(Cell):
    """(data, label) -> loss_fn(backbone(data), label)."""

    def __init__(self, backbone, loss_fn):
        super().__init__(auto_prefix=False)
        self._backbone = backbone
        self._loss_fn = loss_fn

    def construct(self, data, label):
        return self._loss_fn(self._backbone(data), label)

    @property
    def backbone_network(self):
        """The network without the loss."""
        return self._backbone


class DistributedGradReducer(Cell):
    """Gradients summed over the ranks, or averaged; those of parameters that are layerwise_parallel stay as they are."""

    def __init__(self, parameters, mean=True, degree=None, fusion_type=1, group=GlobalComm.WORLD_COMM_GROUP):
        super().__init__(auto_prefix=False)
        self.parameters_ = tuple(parameters)
        self.all_reduce = ops.AllReduce(group=group)
        self.factor = 1.0 / (degree or tessera.cluster.size(self.all_reduce.native)) if mean else 1.0

    def construct(self, gradients):
        return tuple(gradient if parameter.layerwise_parallel else self.all_reduce(gradient) * self.factor
                     for parameter, gradient in zip(self.parameters_, gradients))


class TrainOneStepCell(Cell):
    """A training step: the network's loss, and the update of the optimizer's parameters by its gradients.

    In data and hybrid parallel the gradients are summed over the ranks (their mean with gradients_mean)."""

    def __init__(self, network, optimizer, sens=1.0):
        super().__init__(auto_prefix=False)
        self.network = network
        self.optimizer = optimizer
        self.weights = optimizer.parameters
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)
        self.sens = sens
        self.grad_reducer = lambda gradients: gradients
        mode = context.get_auto_parallel_context("parallel_mode")
        self.reducer_flag = mode in (context.ParallelMode.DATA_PARALLEL, context.ParallelMode.HYBRID_PARALLEL)
        if self.reducer_flag:
            self.grad_reducer = DistributedGradReducer(self.weights, context.get_auto_parallel_context("gradients_mean"))

    def construct(self, *inputs):
        loss, gradients = tessera.nn.value_and_grad(self.network, list(inputs), list(self.weights), sens=self.sens)
        self.optimizer(self.grad_reducer(gradients))
        return loss


__getattr__ = missing(__name__)
del missing
