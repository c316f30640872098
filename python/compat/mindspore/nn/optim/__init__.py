"""Optimizers."""
import numpy as np
import tessera

from mindspore._missing import missing
from mindspore.common.parameter import Parameter, ParameterTuple
from mindspore.nn.learning_rate_schedule import LearningRateSchedule

_GROUP_KEYS = ("params", "lr", "weight_decay", "grad_centralization", "order_params")


class Optimizer:
    """Updates parameters from their gradients. params: parameters, or dicts with params, lr, weight_decay, order_params."""

    def __init__(self, params, make):
        params = list(params)
        if not params:
            raise ValueError("For 'Optimizer', the argument parameters must not be empty.")
        groups = None
        if all(isinstance(p, dict) for p in params):
            groups, params = _read_groups(params)
        for parameter in params:
            if not isinstance(parameter, Parameter):
                raise TypeError(f"For 'Optimizer', the argument parameters must be Iterable type of 'Parameter' or 'dict', "
                                f"but got {type(parameter).__name__}.")
        if len({id(p) for p in params}) != len(params):
            raise RuntimeError("For 'Optimizer', a parameter is in the argument parameters twice.")
        self.parameters = ParameterTuple(params)
        self.native = make(groups)

    def __call__(self, gradients):
        """Inside construct(): updates the parameters by these gradients. Returns True."""
        self.native.update(list(self.parameters), list(gradients))
        return True

    def native_for(self, network):
        """tessera's optimizer, for the network's parameters that are among ours."""
        own = {id(p) for p in self.parameters}
        if all(id(p) in own for p in network.trainable_parameters()):
            return self.native
        return tessera.nn.ChosenParameters(self.native, list(self.parameters))


def _read_groups(dicts):
    groups, params, order = [], [], None
    for group in dicts:
        unknown = [key for key in group if key not in _GROUP_KEYS]
        if unknown:
            raise KeyError(f"The key in group params must be one of {_GROUP_KEYS}, but got {unknown}.")
        if "order_params" in group:
            if len(group) > 1:
                raise ValueError("The order params dict in group parameters should only include the 'order_params' key.")
            order = list(group["order_params"])
            continue
        if not group.get("params"):
            raise ValueError("Optimizer got an empty group params.")
        if group.get("grad_centralization"):
            raise NotImplementedError("grad_centralization is not available")
        own = list(group["params"])
        params += own
        made = {"params": own}
        if "lr" in group:
            made["lr"] = rate(group["lr"])
        if "weight_decay" in group:
            made["weight_decay"] = float(group["weight_decay"])
        groups.append(made)
    return groups, order or params


def rate(value):
    """A learning rate, or one per step, as tessera takes it. TypeError or ValueError for anything else."""
    if isinstance(value, LearningRateSchedule):
        return value.table()
    if isinstance(value, bool):
        raise TypeError("For 'Optimizer', the argument 'learning_rate' must not be bool.")
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"For 'Optimizer', the argument 'learning_rate' must be a non-negative float, but got {value}.")
        return float(value)
    if isinstance(value, tessera.Tensor):
        value = value.asnumpy()
    if isinstance(value, np.ndarray) and value.ndim > 1:
        raise ValueError("For 'Optimizer', if 'learning_rate' is Tensor type, its dimension should be 0 or 1.")
    try:
        values = [float(x) for x in np.atleast_1d(np.asarray(value if isinstance(value, np.ndarray) else list(value)))]
    except TypeError:
        raise TypeError(f"For 'Optimizer', the argument 'learning_rate' must be int, float, Tensor or Iterable, but got {type(value).__name__}.") from None
    return values[0] if isinstance(value, np.ndarray) and value.ndim == 0 else values


def _non_negative(who, **values):
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"For '{who}', the argument '{name}' must be float, but got {type(value).__name__}.")
        if value < 0:
            raise ValueError(f"For '{who}', the argument '{name}' must be at least 0.0, but got {value}.")


class Momentum(Optimizer):
    """v = momentum * v + g; p -= lr * v. use_nesterov: p -= lr * g + lr * momentum * v."""

    def __init__(self, params, learning_rate, momentum, weight_decay=0.0, loss_scale=1.0, use_nesterov=False):
        _non_negative("Momentum", momentum=momentum, weight_decay=weight_decay)
        super().__init__(params, lambda groups: tessera.nn.Momentum(rate(learning_rate), float(momentum), float(weight_decay),
                                                                    float(loss_scale), use_nesterov, groups))


class SGD(Optimizer):
    """p -= lr * v, v = momentum * v + (1 - dampening) * g."""

    def __init__(self, params, learning_rate=0.1, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, loss_scale=1.0):
        _non_negative("SGD", momentum=momentum, dampening=dampening, weight_decay=weight_decay)
        super().__init__(params, lambda groups: tessera.nn.SGD(rate(learning_rate), float(momentum), float(dampening),
                                                               float(weight_decay), float(loss_scale), nesterov, groups))


class Adam(Optimizer):
    """Kingma and Ba, ICLR 2015."""

    def __init__(self, params, learning_rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, use_locking=False, use_nesterov=False,
                 weight_decay=0.0, loss_scale=1.0):
        _non_negative("Adam", weight_decay=weight_decay)
        super().__init__(params, lambda groups: tessera.nn.Adam(rate(learning_rate), beta1, beta2, eps, float(weight_decay),
                                                                float(loss_scale), use_nesterov, groups))


class AdamWeightDecay(Optimizer):
    """Adam without bias correction; the decay does not pass through the moments."""

    def __init__(self, params, learning_rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.0):
        _non_negative("AdamWeightDecay", weight_decay=weight_decay)
        super().__init__(params, lambda groups: tessera.nn.AdamWeightDecay(rate(learning_rate), beta1, beta2, eps,
                                                                           float(weight_decay), groups))


__getattr__ = missing(__name__)
del missing
