"""Training steps with a loss scale: the loss is multiplied by it before it is differentiated, the gradients are divided by it."""
import tessera

from mindspore import ops
from mindspore._missing import missing
from mindspore.common.dtype import float32, int32
from mindspore.common.parameter import Parameter
from mindspore.common.tensor import Tensor
from mindspore.context import ParallelMode
from mindspore.nn.cell import Cell
from mindspore.nn.wrap.cell_wrapper import TrainOneStepCell

_grad_scale = ops.MultitypeFuncGraph("grad_scale")
_grad_overflow = ops.MultitypeFuncGraph("_grad_overflow")
reciprocal = ops.Reciprocal()


@_grad_scale.register("Tensor", "Tensor")
def tensor_grad_scale(scale, grad):
    """grad / scale, of grad's dtype."""
    return grad * tessera.ops.cast(reciprocal(scale), grad.dtype)


@_grad_overflow.register("Tensor")
def _tensor_grad_overflow(grad):
    """[1.0] where an element of grad is not finite, else [0.0]."""
    finite = tessera.ops.reduce_all(tessera.ops.is_finite(grad))
    return tessera.ops.reshape(tessera.ops.cast(tessera.ops.logical_not(finite), float32), (1, ))


class DynamicLossScaleUpdateCell(Cell):
    """(loss_scale, overflow) -> overflow. The scale is divided by scale_factor, though not below 1, when a step overflows, and
    multiplied by it after scale_window clean steps."""

    def __init__(self, loss_scale_value, scale_factor, scale_window):
        super().__init__()
        for name, value in (("loss_scale_value", loss_scale_value), ("scale_factor", scale_factor), ("scale_window", scale_window)):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"For 'DynamicLossScaleUpdateCell', the '{name}' must be a number, but got {type(value).__name__}.")
            if value <= 0:
                raise ValueError(f"For 'DynamicLossScaleUpdateCell', the '{name}' must be greater than 0, but got {value}.")
        self.scale_factor, self.scale_window = float(scale_factor), int(scale_window)
        self.loss_scale_value = loss_scale_value
        self.cur_iter = Parameter(Tensor(1, int32), name="current_iterator_step", requires_grad=False)
        self.last_overflow_iter = Parameter(Tensor(0, int32), name="last_overflow_iterator_step", requires_grad=False)

    def get_loss_scale(self):
        """The scale to start with."""
        return self.loss_scale_value

    def construct(self, loss_scale, overflow):
        select = tessera.ops.select
        grows = tessera.ops.less_equal(self.scale_window, self.cur_iter - self.last_overflow_iter)
        self.last_overflow_iter = select(tessera.ops.logical_or(overflow, grows), self.cur_iter, self.last_overflow_iter)
        smaller = tessera.ops.maximum(loss_scale * (1.0 / self.scale_factor), 1.0)
        loss_scale.assign(select(overflow, smaller, select(grows, loss_scale * self.scale_factor, loss_scale)))
        self.cur_iter = self.cur_iter + 1
        return overflow


class FixedLossScaleUpdateCell(Cell):
    """(loss_scale, overflow) -> overflow. The scale stays."""

    def __init__(self, loss_scale_value):
        super().__init__()
        self.loss_scale_value = loss_scale_value

    def get_loss_scale(self):
        """The scale to start with."""
        return self.loss_scale_value

    def construct(self, _, overflow):
        return overflow


class TrainOneStepWithLossScaleCell(TrainOneStepCell):
    """A training step with a loss scale: (loss, overflow, scale). A step whose gradients are not finite updates nothing.

    scale_sense: a tensor of one element, or a cell that makes the next scale of (scale, overflow)."""

    def __init__(self, network, optimizer, scale_sense):
        super().__init__(network, optimizer)
        self.hyper_map = ops.HyperMap()
        self.base = Tensor(1, float32)
        self.less_equal = ops.LessEqual()
        self.is_distributed = self.parallel_mode in (ParallelMode.DATA_PARALLEL, ParallelMode.HYBRID_PARALLEL)
        # A step that is spread over the ranks sees all of them at once.
        self.allreduce = ops.AllReduce() if self.is_distributed else ops.Identity()
        self.loss_scaling_manager = None
        if isinstance(scale_sense, Cell):
            self.loss_scaling_manager = scale_sense
            scale_sense = Tensor(scale_sense.get_loss_scale(), float32)
        elif not isinstance(scale_sense, (tessera.Tensor, tessera.Parameter)):
            raise TypeError(f"The 'scale_sense' must be Cell or Tensor, but got {type(scale_sense).__name__}.")
        if tuple(scale_sense.shape) not in ((), (1,)):
            raise ValueError(f"The shape of 'scale_sense' must be (1,) or (), but got {tuple(scale_sense.shape)}.")
        self.scale_sense = Parameter(Tensor(scale_sense, float32), name="scale_sense", requires_grad=False)

    def construct(self, *inputs):
        weights = self.weights
        loss = self.network(*inputs)
        scaling_sens = self.scale_sense * 1.0  # as it is now: the parameter may change below
        status, scaling_sens = self.start_overflow_check(loss, scaling_sens)
        filled = ops.ones_like(loss) * ops.cast(scaling_sens, loss.dtype)
        grads = self.grad(self.network, weights)(*inputs, filled)
        grads = self.hyper_map(ops.partial(_grad_scale, scaling_sens), grads)
        grads = self.grad_reducer(grads)
        cond = self.get_overflow_status(status, grads)
        overflow = self.process_loss_scale(cond)
        updated = False if overflow else self.optimizer(grads)
        return ops.depend(loss, updated), cond, scaling_sens

    def set_sense_scale(self, sens):
        """Sets a scale that no cell decides."""
        if not isinstance(sens, (tessera.Tensor, tessera.Parameter)):
            raise TypeError(f"The input type must be Tensor, but got {type(sens).__name__}.")
        self.scale_sense.set_data(Tensor(sens, float32))

    def start_overflow_check(self, pre_cond, compute_input):
        """(status, compute_input); gradients are looked at themselves, so the status says nothing yet."""
        return tessera.Tensor(False), compute_input

    def get_overflow_status(self, status, compute_output):
        """Whether a gradient of any rank is not finite, a bool without dims."""
        finite = tessera.ops.logical_not(status)
        for gradient in compute_output:
            finite = tessera.ops.logical_and(finite, tessera.ops.reduce_all(tessera.ops.is_finite(gradient)))
        flag = tessera.ops.cast(tessera.ops.logical_not(finite), float32)
        return self.less_equal(self.base, self.allreduce(flag))

    def process_loss_scale(self, overflow):
        """Makes the next scale. Returns overflow."""
        if self.loss_scaling_manager is not None:
            return self.loss_scaling_manager(self.scale_sense, overflow)
        return overflow


__getattr__ = missing(__name__)
del missing
