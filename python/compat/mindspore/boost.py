"""Gradients of several steps added up, for training steps of one's own."""
import tessera

from mindspore import _check, ops
from mindspore._missing import missing
from mindspore.common.parameter import Parameter
from mindspore.nn.cell import Cell


class GradientAccumulation(Cell):
    """(loss, gradients) -> the loss: adds the gradients up, each divided by max_accumulation_step, and at every so many calls gives the sums to the
    optimizer and begins anew. Its parameters are grad_accumulation.NAME and accumulation_step."""

    def __init__(self, max_accumulation_step, optimizer):
        super().__init__()
        self._max_accumulation_step = _check.integer("GradientAccumulation", "max_accumulation_step", max_accumulation_step, 1)
        if not isinstance(optimizer, Cell):
            raise TypeError(f"For 'GradientAccumulation', the argument 'optimizer' must be an optimizer, but got {type(optimizer).__name__}.")
        self.optimizer, self.weights = optimizer, optimizer.parameters
        self._grad_accumulation = self.weights.clone(prefix="grad_accumulation", init="zeros")
        self._accumulation_step = Parameter(tessera.Tensor(0, tessera.int32), name="accumulation_step", requires_grad=False)
        for total in self._grad_accumulation:
            total.requires_grad = False

    def construct(self, loss, grads):
        totals = [ops.assign_add(total, grad / self._max_accumulation_step) for total, grad in zip(self._grad_accumulation, grads)]
        step = ops.assign_add(self._accumulation_step, 1)
        is_full = step >= self._max_accumulation_step
        updated = self.optimizer(tuple(totals)) if is_full else False
        for kept, total in zip(self._grad_accumulation, totals):
            ops.assign(kept, ops.select(is_full, ops.zeros_like(total), total))
        ops.assign(self._accumulation_step, ops.select(is_full, ops.zeros_like(step), step))
        return ops.depend(loss, updated)


__getattr__ = missing(__name__)
del missing
