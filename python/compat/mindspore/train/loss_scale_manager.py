"""Loss scales, as Model and build_train_network take them."""
import tessera

from mindspore._missing import missing
from mindspore.nn.wrap.loss_scale import DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell


class LossScaleManager:
    """What managers have in common."""

    def get_loss_scale(self):
        """The present scale."""

    def update_loss_scale(self, overflow):
        """Tells whether a step has overflowed."""

    def get_update_cell(self):
        """The cell that updates the scale in a training step; None: nothing is checked."""


class FixedLossScaleManager(LossScaleManager):
    """A scale that stays. Without drop_overflow_update nothing is checked, and dividing by the scale is the optimizer's
    (its loss_scale)."""

    def __init__(self, loss_scale=128.0, drop_overflow_update=True):
        if not loss_scale >= 1:
            raise ValueError(f"For 'FixedLossScaleManager', the argument 'loss_scale' must be >= 1, but got {loss_scale}.")
        self._loss_scale = loss_scale
        self._drop_overflow_update = drop_overflow_update

    def get_loss_scale(self):
        return self._loss_scale

    def get_drop_overflow_update(self):
        """Whether steps that overflow are skipped."""
        return self._drop_overflow_update

    def update_loss_scale(self, overflow):
        """Nothing."""

    def get_update_cell(self):
        return FixedLossScaleUpdateCell(self._loss_scale) if self._drop_overflow_update else None

    def native(self):
        """tessera's."""
        return tessera.nn.fixed_loss_scale(float(self._loss_scale), bool(self._drop_overflow_update))


class DynamicLossScaleManager(LossScaleManager):
    """A scale that falls when a step overflows and grows after scale_window clean steps."""

    def __init__(self, init_loss_scale=2 ** 24, scale_factor=2, scale_window=2000):
        if init_loss_scale < 1.0:
            raise ValueError(f"For 'DynamicLossScaleManager', the argument 'init_loss_scale' must be >= 1, but got {init_loss_scale}.")
        for name, value in (("scale_factor", scale_factor), ("scale_window", scale_window)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"For 'DynamicLossScaleManager', the argument '{name}' must be int, but got {type(value).__name__}.")
            if value <= 0:
                raise ValueError(f"For 'DynamicLossScaleManager', the argument '{name}' must be > 0, but got {value}.")
        self.loss_scale, self.scale_factor, self.scale_window = init_loss_scale, scale_factor, scale_window
        self.cur_iter, self.last_overflow_iter = 1, 0

    def get_loss_scale(self):
        return self.loss_scale

    def update_loss_scale(self, overflow):
        if overflow:
            self.loss_scale = max(self.loss_scale / self.scale_factor, 1)
            self.last_overflow_iter = self.cur_iter
        elif self.cur_iter - self.last_overflow_iter >= self.scale_window:
            self.loss_scale *= self.scale_factor
            self.last_overflow_iter = self.cur_iter
        self.cur_iter += 1

    def get_drop_overflow_update(self):
        """True: steps that overflow are skipped."""
        return True

    def get_update_cell(self):
        return DynamicLossScaleUpdateCell(self.loss_scale, self.scale_factor, self.scale_window)

    def native(self):
        """tessera's."""
        return tessera.nn.dynamic_loss_scale(float(self.loss_scale), float(self.scale_factor), self.scale_window)


__getattr__ = missing(__name__)
del missing
