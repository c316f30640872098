"""Learning rates as cells: step -> rate."""
import math

import tessera
from tessera import ops as _ops

from mindspore._missing import missing
from mindspore.nn.cell import Cell


class LearningRateSchedule(Cell):
    """A learning rate as a function of the step, an i32[]; construct(global_step) is to be overridden."""

    _names_by_path = True


def _check(who, positive=(), steps=(), flags=()):
    for name, value in positive:
        if isinstance(value, bool) or not isinstance(value, float):
            raise TypeError(f"For '{who}', the '{name}' must be float, but got {type(value).__name__}.")
        if not 0 < value < math.inf:
            raise ValueError(f"For '{who}', the '{name}' must be " + ("finite and " if value == math.inf else "") + f"greater than 0.0, but got {value}.")
    for name, value in steps:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"For '{who}', the '{name}' must be int, but got {type(value).__name__}.")
        if value < 1:
            raise ValueError(f"For '{who}', the '{name}' must be greater than 0, but got {value}.")
    for name, value in flags:
        if not isinstance(value, bool):
            raise TypeError(f"For '{who}', the '{name}' must be bool, but got {type(value).__name__}.")


def _check_end(who, low_name, low, high_name, high):
    if isinstance(low, bool) or not isinstance(low, float):
        raise TypeError(f"For '{who}', the '{low_name}' must be float, but got {type(low).__name__}.")
    if low == math.inf:
        raise ValueError(f"For '{who}', the '{low_name}' must be finite and at least 0.0, but got {low}.")
    if not low >= 0:
        raise ValueError(f"For '{who}', the '{low_name}' must be at least 0.0, but got {low}.")
    if not low < high:
        raise ValueError(f"For '{who}', the '{high_name}' must be greater than the '{low_name}', but got {high} and {low}.")


class _Decay(LearningRateSchedule):
    def __init__(self, learning_rate, decay_rate, decay_steps, is_stair=False):
        super().__init__()
        _check(type(self).__name__, (("learning_rate", learning_rate), ("decay_rate", decay_rate)), (("decay_steps", decay_steps),),
               (("is_stair", is_stair),))
        self.learning_rate, self.decay_rate, self.decay_steps, self.is_stair = learning_rate, decay_rate, decay_steps, is_stair

    def decays(self, global_step):
        """How many times decay_steps steps have gone by."""
        p = _ops.cast(global_step, tessera.float32) / self.decay_steps
        return _ops.floor(p) if self.is_stair else p


class ExponentialDecayLR(_Decay):
    """learning_rate * decay_rate ^ (step / decay_steps)."""

    def construct(self, global_step):
        return self.learning_rate * _ops.pow(self.decay_rate, self.decays(global_step))


class NaturalExpDecayLR(_Decay):
    """learning_rate * e ^ (-decay_rate * step); is_stair: the step in steps of decay_steps."""

    def construct(self, global_step):
        step = self.decays(global_step) * self.decay_steps if self.is_stair else _ops.cast(global_step, tessera.float32)
        return self.learning_rate * _ops.exp(step * -self.decay_rate)


class InverseDecayLR(_Decay):
    """learning_rate / (1 + decay_rate * step / decay_steps)."""

    def construct(self, global_step):
        return self.learning_rate / (1.0 + self.decay_rate * self.decays(global_step))


class CosineDecayLR(LearningRateSchedule):
    """From max_lr to min_lr along half a cosine over decay_steps steps, then min_lr."""

    def __init__(self, min_lr, max_lr, decay_steps):
        super().__init__()
        _check("CosineDecayLR", (("max_lr", max_lr),), (("decay_steps", decay_steps),))
        _check_end("CosineDecayLR", "min_lr", min_lr, "max_lr", max_lr)
        self.min_lr, self.max_lr, self.decay_steps = min_lr, max_lr, decay_steps

    def construct(self, global_step):
        p = _ops.minimum(_ops.cast(global_step, tessera.float32), float(self.decay_steps))
        return self.min_lr + 0.5 * (self.max_lr - self.min_lr) * (1.0 + _ops.cos(p * (math.pi / self.decay_steps)))


class PolynomialDecayLR(LearningRateSchedule):
    """(learning_rate - end_learning_rate) * (1 - step / decay_steps) ^ power + end_learning_rate; update_decay_steps: after
    decay_steps steps the decay goes on over twice, then three times as many, ..."""

    def __init__(self, learning_rate, end_learning_rate, decay_steps, power, update_decay_steps=False):
        super().__init__()
        _check("PolynomialDecayLR", (("learning_rate", learning_rate), ("power", power)), (("decay_steps", decay_steps),),
               (("update_decay_steps", update_decay_steps),))
        _check_end("PolynomialDecayLR", "end_learning_rate", end_learning_rate, "learning_rate", learning_rate)
        self.learning_rate, self.end_learning_rate, self.power = learning_rate, end_learning_rate, power
        self.decay_steps, self.update_decay_steps = decay_steps, update_decay_steps

    def construct(self, global_step):
        step = _ops.cast(global_step, tessera.float32)
        end = float(self.decay_steps)
        if self.update_decay_steps:
            # -floor(-x) rounds up.
            end = end * _ops.maximum(-_ops.floor(step / -end), 1.0)
        p = _ops.minimum(step, end) / end
        return (self.learning_rate - self.end_learning_rate) * _ops.pow(1.0 - p, self.power) + self.end_learning_rate


class WarmUpLR(LearningRateSchedule):
    """From 0 in equal steps to learning_rate at step warmup_steps, then learning_rate."""

    def __init__(self, learning_rate, warmup_steps):
        super().__init__()
        _check("WarmUpLR", (), (("warmup_steps", warmup_steps),))
        _check_end("WarmUpLR", "learning_rate", learning_rate, "inf", math.inf)
        self.learning_rate, self.warmup_steps = learning_rate, warmup_steps

    def construct(self, global_step):
        return _ops.minimum(_ops.cast(global_step, tessera.float32), float(self.warmup_steps)) * (self.learning_rate / self.warmup_steps)


__getattr__ = missing(__name__)
del missing
