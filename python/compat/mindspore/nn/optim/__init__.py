"""Optimizers."""
import numpy as np
import tessera

from mindspore import _check, context
from mindspore._missing import missing
from mindspore.common.parameter import Parameter, ParameterTuple
from mindspore.nn.learning_rate_schedule import LearningRateSchedule
from mindspore.nn.optim.states import States

_GROUP_KEYS = ("params", "lr", "weight_decay", "grad_centralization", "order_params")


class Optimizer:
    """Updates parameters from their gradients. params: parameters, or dicts with params, lr, weight_decay,
    grad_centralization (of matrices and filters the gradient less its mean over all dims but the first; before weight decay),
    order_params."""

    def __init__(self, params, make):
        if isinstance(params, Parameter) or not hasattr(params, "__iter__"):
            raise TypeError(f"For 'Optimizer', the argument parameters must be Iterable type of 'Parameter' or 'dict', but got {type(params).__name__}.")
        params = list(params)
        if not params:
            raise ValueError("For 'Optimizer', the argument parameters must not be empty.")
        groups, centralized = None, []
        if all(isinstance(p, dict) for p in params):
            groups, params, centralized = _read_groups(params)
        for parameter in params:
            if not isinstance(parameter, Parameter):
                raise TypeError(f"For 'Optimizer', the argument parameters must be Iterable type of 'Parameter' or 'dict', "
                                f"but got {type(parameter).__name__}.")
        if len({id(p) for p in params}) != len(params):
            raise RuntimeError("For 'Optimizer', a parameter is in the argument parameters twice.")
        _check_parallel(len(params))
        self.parameters = ParameterTuple(params)
        self.native = tessera.nn.CentralizedGradients(make(groups), centralized) if centralized else make(groups)
        self.states = States()

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


def _check_parallel(num_parameters):
    """RuntimeError where the context asks for a parallel optimizer in a mode that has none, or of too few parameters."""
    if not context.get_auto_parallel_context("enable_parallel_optimizer"):
        return
    mode = context.get_auto_parallel_context("parallel_mode")
    if mode in (context.ParallelMode.STAND_ALONE, context.ParallelMode.HYBRID_PARALLEL):
        raise RuntimeError(f"For 'Optimizer', the parallel optimizer is not supported in {mode}, you should set parallel mode to "
                           "'data_parallel', 'semi_auto_parallel' or 'auto_parallel'.")
    devices = context.get_auto_parallel_context("device_num")
    if mode == context.ParallelMode.DATA_PARALLEL and num_parameters < devices:
        raise RuntimeError(f"For 'Optimizer', the number of parameters {num_parameters} must not be less than the number of devices "
                           f"{devices} when the parallel optimizer is on.")


def _read_groups(dicts):
    """The groups as tessera takes them, all their parameters, and those whose gradients are to be centralized."""
    groups, params, centralized, order = [], [], [], None
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
        own = list(group["params"])
        if _check.boolean("Optimizer", "grad_centralization", group.get("grad_centralization", False)):
            centralized += own
        params += own
        made = {"params": own}
        if "lr" in group:
            made["lr"] = rate(group["lr"])
        if "weight_decay" in group:
            made["weight_decay"] = _check.non_negative("Optimizer", "weight_decay", group["weight_decay"])
        groups.append(made)
    if order is not None and sorted(map(id, order)) != sorted(map(id, params)):
        raise ValueError("For 'Optimizer', the 'order_params' must have the parameters of all groups, each once.")
    return groups, order or params, centralized


def rate(value):
    """A learning rate, one per step, or a schedule, as tessera takes it. TypeError or ValueError for anything else."""
    if isinstance(value, LearningRateSchedule):
        return value
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
    if isinstance(value, str):
        raise TypeError("For 'Optimizer', the argument 'learning_rate' must be int, float, Tensor or Iterable, but got str.")
    try:
        values = [float(x) for x in np.atleast_1d(np.asarray(value if isinstance(value, np.ndarray) else list(value)))]
    except TypeError:
        raise TypeError(f"For 'Optimizer', the argument 'learning_rate' must be int, float, Tensor or Iterable, but got {type(value).__name__}.") from None
    return values[0] if isinstance(value, np.ndarray) and value.ndim == 0 else values


def _betas(who, beta1, beta2, eps):
    return (_check.between(who, "beta1", beta1, 0, 1, "(0.0, 1.0)"), _check.between(who, "beta2", beta2, 0, 1, "(0.0, 1.0)"),
            _check.positive(who, "eps", eps))


class Momentum(Optimizer):
    """v = momentum * v + g; p -= lr * v. use_nesterov: p -= lr * g + lr * momentum * v."""

    def __init__(self, params, learning_rate, momentum, weight_decay=0.0, loss_scale=1.0, use_nesterov=False):
        who = "Momentum"
        settings = (_check.non_negative(who, "momentum", momentum), _check.non_negative(who, "weight_decay", weight_decay),
                    _check.positive(who, "loss_scale", loss_scale), _check.boolean(who, "use_nesterov", use_nesterov))
        super().__init__(params, lambda groups: tessera.nn.Momentum(rate(learning_rate), *settings, groups))


class SGD(Optimizer):
    """p -= lr * v, v = momentum * v + (1 - dampening) * g."""

    def __init__(self, params, learning_rate=0.1, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, loss_scale=1.0):
        who = "SGD"
        settings = (_check.non_negative(who, "momentum", momentum), _check.non_negative(who, "dampening", dampening),
                    _check.non_negative(who, "weight_decay", weight_decay), _check.positive(who, "loss_scale", loss_scale),
                    _check.boolean(who, "nesterov", nesterov))
        super().__init__(params, lambda groups: tessera.nn.SGD(rate(learning_rate), *settings, groups))


class Adam(Optimizer):
    """Kingma and Ba, ICLR 2015."""

    def __init__(self, params, learning_rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, use_locking=False, use_nesterov=False,
                 weight_decay=0.0, loss_scale=1.0):
        who = "Adam"
        _check.boolean(who, "use_locking", use_locking)
        settings = (*_betas(who, beta1, beta2, eps), _check.non_negative(who, "weight_decay", weight_decay),
                    _check.positive(who, "loss_scale", loss_scale), _check.boolean(who, "use_nesterov", use_nesterov))
        super().__init__(params, lambda groups: tessera.nn.Adam(rate(learning_rate), *settings, groups))


class LazyAdam(Adam):
    """Adam: gradients are dense, so no row of a parameter is left out."""


class AdamWeightDecay(Optimizer):
    """Adam without bias correction; the decay does not pass through the moments."""

    def __init__(self, params, learning_rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.0):
        who = "AdamWeightDecay"
        settings = (*_betas(who, beta1, beta2, eps), _check.non_negative(who, "weight_decay", weight_decay))
        super().__init__(params, lambda groups: tessera.nn.AdamWeightDecay(rate(learning_rate), *settings, groups))


class Lamb(Optimizer):
    """Adam whose step is as long, for each parameter, as the parameter times the rate. You et al., ICLR 2020."""

    def __init__(self, params, learning_rate, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.0):
        who = "Lamb"
        settings = (*_betas(who, beta1, beta2, eps), _check.non_negative(who, "weight_decay", weight_decay))
        super().__init__(params, lambda groups: tessera.nn.Lamb(rate(learning_rate), *settings, groups=groups))


__getattr__ = missing(__name__)
del missing
