"""Adagrad, RMSProp, FTRL."""
import tessera

from mindspore import _check
from mindspore.nn.optim.optimizer import NativeOptimizer, rate


class Adagrad(NativeOptimizer):
    """accum += g^2; p -= lr * g / sqrt(accum). Duchi et al., JMLR 2011."""

    def __init__(self, params, accum=0.1, learning_rate=0.001, update_slots=True, loss_scale=1.0, weight_decay=0.0):
        who = "Adagrad"
        settings = (_check.boolean(who, "update_slots", update_slots), _check.non_negative(who, "weight_decay", weight_decay),
                    _check.positive(who, "loss_scale", loss_scale))
        accum = _check.non_negative(who, "accum", accum)
        super().__init__(params, lambda groups: tessera.nn.Adagrad(accum, rate(learning_rate), *settings, groups))


class RMSProp(NativeOptimizer):
    """mean_square = decay * mean_square + (1 - decay) * g^2; moment = momentum * moment + lr * g / sqrt(mean_square + epsilon);
    p -= moment. centered: the square of the mean gradient is taken from mean_square. Tieleman and Hinton, 2012."""

    def __init__(self, params, learning_rate=0.1, decay=0.9, momentum=0.0, epsilon=1e-10, use_locking=False, centered=False,
                 loss_scale=1.0, weight_decay=0.0):
        who = "RMSProp"
        _check.boolean(who, "use_locking", use_locking)
        settings = (_check.non_negative(who, "decay", decay), _check.non_negative(who, "momentum", momentum), _check.positive(who, "epsilon", epsilon),
                    _check.boolean(who, "centered", centered), _check.non_negative(who, "weight_decay", weight_decay),
                    _check.positive(who, "loss_scale", loss_scale))
        super().__init__(params, lambda groups: tessera.nn.RMSProp(rate(learning_rate), *settings, groups))


class FTRL(NativeOptimizer):
    """Follow the regularised leader: McMahan et al., KDD 2013. One fixed learning rate for all parameters."""

    def __init__(self, params, initial_accum=0.1, learning_rate=0.001, lr_power=-0.5, l1=0.0, l2=0.0, use_locking=False, loss_scale=1.0,
                 weight_decay=0.0):
        who = "FTRL"
        _check.boolean(who, "use_locking", use_locking)
        if isinstance(learning_rate, bool) or not isinstance(learning_rate, (int, float)):
            raise ValueError("For 'FTRL', dynamic learning rate and group learning rate are currently not supported in FTRL, they should all be false.")
        if _check.number(who, "lr_power", lr_power) > 0:
            raise ValueError(f"For 'FTRL', the 'lr_power' must be at most 0, but got {lr_power}.")
        settings = (float(lr_power), _check.non_negative(who, "l1", l1), _check.non_negative(who, "l2", l2),
                    _check.non_negative(who, "weight_decay", weight_decay), _check.positive(who, "loss_scale", loss_scale))
        accum = _check.non_negative(who, "initial_accum", initial_accum)

        def make(groups):
            if groups and [group for group in groups if "lr" in group]:
                raise ValueError("For 'FTRL', group learning rate is not supported: all parameters have one.")
            return tessera.nn.FTRL(accum, rate(learning_rate), *settings, groups)

        super().__init__(params, make)
