"""Optimizers whose steps follow what gradients were: Adagrad, Adadelta, AdaMax, RMSProp, FTRL, Rprop; and ASGD."""
import tessera

from mindspore import _check, ops
from mindspore.nn.optim.optimizer import NativeOptimizer, looks_up_sparsely, rate


class Adagrad(NativeOptimizer):
    """accum += g^2; p -= lr * g / sqrt(accum). Duchi et al., JMLR 2011."""

    def __init__(self, params, accum=0.1, learning_rate=0.001, update_slots=True, loss_scale=1.0, weight_decay=0.0):
        who = "Adagrad"
        settings = (_check.boolean(who, "update_slots", update_slots), _check.weight_decay(who, weight_decay),
                    _check.positive(who, "loss_scale", loss_scale))
        accum = _check.non_negative(who, "accum", accum)
        super().__init__(params, lambda groups: tessera.nn.Adagrad(rate(learning_rate), accum, *settings, groups))


class Adadelta(NativeOptimizer):
    """accum = rho * accum + (1 - rho) * g^2; step = g * sqrt(accum_update + epsilon) / sqrt(accum + epsilon);
    accum_update = rho * accum_update + (1 - rho) * step^2; p -= lr * step. Zeiler, 2012."""

    def __init__(self, params, learning_rate=1.0, rho=0.9, epsilon=1e-6, loss_scale=1.0, weight_decay=0.0):
        who = "Adadelta"
        if not 0 <= _check.number(who, "rho", rho) <= 1:
            raise ValueError(f"For '{who}', the 'rho' must be in range [0.0, 1.0], but got {rho}.")
        settings = (float(rho), _check.non_negative(who, "epsilon", epsilon), _check.weight_decay(who, weight_decay),
                    _check.positive(who, "loss_scale", loss_scale))
        super().__init__(params, lambda groups: tessera.nn.Adadelta(rate(learning_rate), *settings, groups))


class AdaMax(NativeOptimizer):
    """Adam with the largest decayed gradient in place of their mean square. Kingma and Ba, ICLR 2015."""

    def __init__(self, params, learning_rate=0.001, beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.0, loss_scale=1.0):
        who = "AdaMax"
        settings = (*_check.betas(who, beta1, beta2, eps), _check.weight_decay(who, weight_decay),
                    _check.positive(who, "loss_scale", loss_scale))
        super().__init__(params, lambda groups: tessera.nn.AdaMax(rate(learning_rate), *settings, groups))


class RMSProp(NativeOptimizer):
    """mean_square = decay * mean_square + (1 - decay) * g^2; moment = momentum * moment + lr * g / sqrt(mean_square + epsilon);
    p -= moment. centered: the square of the mean gradient is taken from mean_square. Tieleman and Hinton, 2012."""

    def __init__(self, params, learning_rate=0.1, decay=0.9, momentum=0.0, epsilon=1e-10, use_locking=False, centered=False,
                 loss_scale=1.0, weight_decay=0.0):
        who = "RMSProp"
        _check.boolean(who, "use_locking", use_locking)
        settings = (_check.non_negative(who, "decay", decay), _check.non_negative(who, "momentum", momentum), _check.positive(who, "epsilon", epsilon),
                    _check.boolean(who, "centered", centered), _check.weight_decay(who, weight_decay),
                    _check.positive(who, "loss_scale", loss_scale))
        super().__init__(params, lambda groups: tessera.nn.RMSProp(rate(learning_rate), *settings, groups, is_strict=False))


class FTRL(NativeOptimizer):
    """Follow the regularised leader: McMahan et al., KDD 2013. One fixed learning rate for all parameters. Of tables that
    nn.EmbeddingLookup(sparse=True), ops.EmbeddingLookup or ops.SparseGatherV2 look up, the rows alone that a step has looked up."""

    _spares_by_name = False

    def __init__(self, params, initial_accum=0.1, learning_rate=0.001, lr_power=-0.5, l1=0.0, l2=0.0, use_locking=False, loss_scale=1.0,
                 weight_decay=0.0):
        who = "FTRL"
        _check.boolean(who, "use_locking", use_locking)
        if isinstance(learning_rate, bool) or not isinstance(learning_rate, (int, float)):
            raise ValueError("For 'FTRL', dynamic learning rate and group learning rate are currently not supported in FTRL, they should all be false.")
        if _check.number(who, "lr_power", lr_power) > 0:
            raise ValueError(f"For 'FTRL', the 'lr_power' must be at most 0, but got {lr_power}.")
        settings = (float(lr_power), _check.non_negative(who, "l1", l1), _check.non_negative(who, "l2", l2),
                    _check.weight_decay(who, weight_decay), _check.positive(who, "loss_scale", loss_scale))
        accum = _check.non_negative(who, "initial_accum", initial_accum)

        own = []

        def make(groups):
            if groups and [group for group in groups if "lr" in group]:
                raise ValueError("For 'FTRL', group learning rate is not supported: all parameters have one.")
            return tessera.nn.FTRL(rate(learning_rate), accum, *settings, groups, looks_up_sparsely(own))

        super().__init__(params, make)
        own.extend(self.parameters)
        self.sparse_opt = ops.FusedSparseFtrl()


class Rprop(NativeOptimizer):
    """Steps whose lengths follow the signs of gradients: times etas[1] where a sign stays, etas[0] where it changes, within step_sizes.
    Riedmiller and Braun, ICNN 1993."""

    def __init__(self, params, learning_rate=0.1, etas=(0.5, 1.2), step_sizes=(1e-6, 50.0), weight_decay=0.0):
        who = "Rprop"
        for name, value in (("etas", etas), ("step_sizes", step_sizes)):
            if not isinstance(value, tuple):
                raise TypeError(f"For '{who}', the '{name}' must be a tuple, but got {type(value).__name__}.")
            if len(value) != 2:
                raise ValueError(f"For '{who}', the '{name}' must be a tuple of 2 numbers, but got {len(value)}.")
        smaller = _check.between(who, "etas[0]", etas[0], 0, 1, "(0.0, 1.0)")
        larger = _check.number(who, "etas[1]", etas[1])
        if larger <= 1:
            raise ValueError(f"For '{who}', the 'etas[1]' must be greater than 1.0, but got {larger}.")
        least, longest = (_check.number(who, f"step_sizes[{i}]", step_sizes[i]) for i in range(2))
        if least > longest:
            raise ValueError(f"For '{who}', the 'step_sizes' must not decrease, but got {least} and {longest}.")
        settings = (smaller, larger, least, longest, _check.weight_decay(who, weight_decay))
        super().__init__(params, lambda groups: tessera.nn.Rprop(rate(learning_rate), *settings, groups))


class ASGD(NativeOptimizer):
    """Steps down the gradient, and in ax_.<parameter> the mean of what they reach. Polyak and Juditsky, 1992."""

    def __init__(self, params, learning_rate=0.1, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0.0):
        who = "ASGD"
        settings = (*(_check.number(who, name, value) for name, value in (("lambd", lambd), ("alpha", alpha), ("t0", t0))),
                    _check.weight_decay(who, weight_decay))
        super().__init__(params, lambda groups: tessera.nn.ASGD(rate(learning_rate), *settings, groups))
