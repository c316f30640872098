"""A network with its loss, and a step of its training."""
import tessera

from mindspore import context, ops
from mindspore._join import join_job
from mindspore._missing import missing
from mindspore._parallel_options import agree_on_values, spread_options
from mindspore.common.parameter import Parameter, ParameterTuple
from mindspore.context import ParallelMode
from mindspore.nn.cell import Cell
from mindspore.nn.wrap.grad_reducer import DistributedGradReducer


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


class WithEvalCell(Cell):
    """(data, label) -> (loss, output, label), what metrics are made of."""

    def __init__(self, network, loss_fn, add_cast_fp32=False):
        super().__init__(auto_prefix=False)
        if not isinstance(add_cast_fp32, bool):
            raise TypeError(f"For 'WithEvalCell', the 'add_cast_fp32' must be bool, but got {type(add_cast_fp32).__name__}.")
        self._network, self._loss_fn, self.add_cast_fp32 = network, loss_fn, add_cast_fp32

    def construct(self, data, label):
        output = self._network(data)
        if self.add_cast_fp32:
            output = tessera.ops.cast(output, tessera.float32)
        return self._loss_fn(output, label), output, label


class WithGradCell(Cell):
    """(data, label) -> the gradients of the loss with respect to the network's trainable parameters."""

    _is_always_traced = True

    def __init__(self, network, loss_fn=None, sens=None):
        super().__init__(auto_prefix=False)
        self.network_with_loss = network if loss_fn is None else WithLossCell(network, loss_fn)
        self.weights = ParameterTuple(network.trainable_params())
        self.sens = 1.0 if sens is None else sens

    def construct(self, *inputs):
        return tessera.nn.value_and_grad(self.network_with_loss, list(inputs), list(self.weights), sens=self.sens)[1]


class _VirtualDatasetCell(Cell):
    """Its backbone, called as it is: how data are split is the context's dataset_strategy."""

    def __init__(self, backbone):
        super().__init__(auto_prefix=False)
        self._backbone = backbone

    def construct(self, *inputs):
        return self._backbone(*inputs)


class VirtualDatasetCellTriple(_VirtualDatasetCell):
    """Its backbone, called with three inputs: how data are split is the context's dataset_strategy."""

    def construct(self, a, b, c):
        return self._backbone(a, b, c)


class ParameterUpdate(Cell):
    """x -> x, which becomes the parameter's value."""

    def __init__(self, param):
        super().__init__(auto_prefix=False)
        if not isinstance(param, Parameter):
            raise TypeError(f"For 'ParameterUpdate', the 'param' must be Parameter, but got {type(param).__name__}.")
        self._param = param

    def construct(self, x):
        self._param = x
        return x


class _StepGradient(ops.GradOperation):
    """The gradients of a training step with respect to its weights, given the gradient to start with.

    With gradient accumulation a step has parameters accu_grads.W, to which it adds its gradients while its flag `accumulation`
    is set; when it is not, the gradient of W is accu_grads.W + its own: the optimizer gets the sum of all."""

    def __init__(self, step):
        super().__init__(get_by_list=True, sens_param=True)
        self.step = step

    def __call__(self, function, weights=None):
        run = super().__call__(function, weights)
        return lambda *inputs: self._with_accumulated(weights, run(*inputs))

    def _with_accumulated(self, weights, gradients):
        accumulators = getattr(self.step, "accu_grads", None)
        steps = context.get_auto_parallel_context("grad_accumulation_step")
        if accumulators is None or steps == 1 or getattr(self.step, "accumulation", False):
            return gradients
        by_name = {accumulator.name: accumulator for accumulator in accumulators}
        held = [by_name.get(f"accu_grads.{weight.name}") for weight in weights]
        return tuple(gradient if accumulator is None else accumulator + gradient for accumulator, gradient in zip(held, gradients))


class TrainOneStepCell(Cell):
    """A training step: the network's loss, and the update of the optimizer's parameters by its gradients.

    sens: the gradient to start with, 1 where it is None. return_grad: calls give (the loss, {parameter's name: gradient}). In data and hybrid
    parallel the gradients are summed over the ranks (their mean with gradients_mean). In semi-automatic and automatic parallel the step is that of
    one device on the rows of all ranks, split over them."""

    _is_always_traced = True

    def __init__(self, network, optimizer, sens=None, return_grad=False):
        super().__init__(auto_prefix=False)
        if not isinstance(sens, (type(None), tessera.Tensor, tessera.Value, tessera.Parameter)) and sens == 0:
            raise ValueError("The input argument of 'sens' can not be 0.")
        self.return_grad = bool(return_grad)
        network.set_train()
        self.network = network
        self.optimizer = optimizer
        self.weights = optimizer.parameters
        self.grad = _StepGradient(self)
        self.sens = 1.0 if sens is None else sens
        self.weights_name = [weight.name for weight in self.weights]
        self.grad_reducer = lambda gradients: gradients
        self.parallel_mode = context.get_auto_parallel_context("parallel_mode")
        self.reducer_flag = self.parallel_mode in (ParallelMode.DATA_PARALLEL, ParallelMode.HYBRID_PARALLEL)
        self.mean = context.get_auto_parallel_context("gradients_mean")
        if self.parallel_mode not in (ParallelMode.SEMI_AUTO_PARALLEL, ParallelMode.AUTO_PARALLEL):
            context.say_unused(by_step=True)
        if self.reducer_flag:
            self.grad_reducer = DistributedGradReducer(self.weights, self.mean or self.parallel_mode == ParallelMode.HYBRID_PARALLEL)
        elif self.parallel_mode != ParallelMode.STAND_ALONE:
            self._spread_over_ranks()

    def __call__(self, *inputs, **kwargs):
        if self.parallel_mode != ParallelMode.STAND_ALONE and not tessera.nn.is_tracing() and not self.__dict__.get("_has_agreed"):
            self.__dict__["_has_agreed"] = True
            agree_on_values(self.parallel_mode, self)
        return super().__call__(*inputs, **kwargs)

    def _spread_over_ranks(self):
        context.check_mode(self.parallel_mode)
        join_job()
        context.warn_of_gradients_mean(self.parallel_mode)
        if context.is_literal_gradients_mean(self.parallel_mode):
            self._scale_literally()
        self.spread(**spread_options(type(self).__name__))

    def _scale_literally(self):
        if self.parallel_mode == ParallelMode.SEMI_AUTO_PARALLEL:
            raise RuntimeError(f"For '{type(self).__name__}', TESSERA_LITERAL_GRADIENTS_MEAN=1 needs to know how parameters are split: give the "
                               "network, its loss and the optimizer to a Model")
        # Every rank has every parameter.
        size = tessera.cluster.size()
        factor = (1 / size if self.mean else 1.0) * (1 if context.get_auto_parallel_context("loss_repeated_mean") else size)
        self.grad_reducer = lambda gradients: tuple(gradient * factor for gradient in gradients)

    def construct(self, *inputs):
        loss = self.network(*inputs)
        sens = tessera.ops.fill(loss.shape, self.sens, loss.dtype)
        gradients = self.grad_reducer(self.grad(self.network, self.weights)(*inputs, sens))
        self.optimizer(gradients)
        return (loss, dict(zip(self.weights_name, gradients))) if self.return_grad else loss


from mindspore.nn.wrap.micro_batches import MicroBatchInterleaved, PipelineCell  # noqa: E402, F401

__getattr__ = missing(__name__)
del missing
