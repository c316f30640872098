"""Loss scales of training steps that are functions: scale the loss, unscale the gradients, adjust."""
import tessera
from tessera import ops as _ops

from mindspore import _check
from mindspore.common.parameter import Parameter
from mindspore.ops.functional import addn


def _map(inputs, change):
    """change(tensor) for each within tuples, lists and dicts; anything else stays as it is."""
    if isinstance(inputs, (tuple, list)):
        return type(inputs)(_map(item, change) for item in inputs)
    if isinstance(inputs, dict):
        return {name: _map(item, change) for name, item in inputs.items()}
    return change(inputs) if hasattr(inputs, "dtype") else inputs


def all_finite(inputs):
    """A bool: whether all elements of a tensor, or of several, are finite."""
    counts = []
    _map(inputs, lambda x: counts.append(_ops.reduce_sum(_ops.cast(_ops.logical_not(_ops.is_finite(x)), tessera.float32))))
    return _ops.less(addn(counts), 0.5)


class LossScaler:
    """To be derived: scale, unscale and adjust."""

    def scale(self, inputs):
        """The loss, or gradients, times the scale."""
        raise NotImplementedError

    def unscale(self, inputs):
        """The loss, or gradients, divided by the scale."""
        raise NotImplementedError

    def adjust(self, grads_finite):
        """Changes the scale by whether the gradients were finite."""
        raise NotImplementedError


class StaticLossScaler(LossScaler):
    """One scale for all steps."""

    def __init__(self, scale_value):
        value = _check.number(type(self).__name__, "scale_value", scale_value)
        if value < 1:
            raise ValueError(f"The argument 'scale_value' must be > 1, but got {scale_value}")
        self.scale_value = Parameter(tessera.Tensor(value, tessera.float32), name="scale_value", requires_grad=False)

    def scale(self, inputs):
        return _map(inputs, lambda x: x * _ops.cast(self.scale_value, x.dtype))

    def unscale(self, inputs):
        return _map(inputs, lambda x: x * _ops.cast(1.0 / self.scale_value, x.dtype))

    def adjust(self, grads_finite):
        return False


class DynamicLossScaler(StaticLossScaler):
    """The scale is divided by the factor where gradients were not finite, though not below 1, and multiplied by it after scale_window steps in a
    row in which they were."""

    def __init__(self, scale_value, scale_factor, scale_window):
        super().__init__(scale_value)
        self.scale_window = _check.integer("DynamicLossScaler", "scale_window", scale_window, 1)
        self.scale_factor = _check.integer("DynamicLossScaler", "scale_factor", scale_factor, 1)
        self.counter = Parameter(tessera.Tensor(0, tessera.int32), name="counter", requires_grad=False)

    def adjust(self, grads_finite):
        larger = self.scale_value * float(self.scale_factor)
        is_due = _ops.logical_and(_ops.equal(self.counter, self.scale_window - 1), _ops.is_finite(larger))
        smaller = _ops.maximum(self.scale_value / float(self.scale_factor), 1.0)
        finite = _ops.reshape(grads_finite, ())
        scale = _ops.select(finite, _ops.select(is_due, larger, self.scale_value + 0.0), smaller)
        is_last = _ops.equal(self.counter, self.scale_window - 1)
        none = _ops.zeros_like(self.counter)
        counter = _ops.select(_ops.logical_and(finite, _ops.logical_not(is_last)), self.counter + 1, none)
        self.scale_value.assign(scale)
        self.counter.assign(counter)
        return True
