"""Optimizer: what all optimizers share, those of Tessera and those that scripts derive."""
import functools
import inspect

import numpy as np
import tessera
from tessera import ops as _ops
from tessera._keywords import explained

from mindspore import _check, context
from mindspore._join import join_by_role
from mindspore._missing import missing
from mindspore.common.parameter import Parameter, ParameterTuple
from mindspore.nn.cell import Cell
from mindspore.nn.learning_rate_schedule import LearningRateSchedule

_GROUP_KEYS = ("params", "lr", "weight_decay", "grad_centralization", "order_params")


def opt_init_args_register(fn):
    """Decorates an optimizer's __init__: init_params, init_learning_rate and init_args hold what it was given."""
    signature = inspect.signature(fn)

    @functools.wraps(fn)
    def init(self, *args, **kwargs):
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        given = dict(list(bound.arguments.items())[1:])
        if "params" in given:
            self.__dict__["init_params"] = {"params": given.pop("params")}
        if "optimizer" in given:
            self.__dict__["init_params"] = {"params": given.pop("optimizer").init_params["params"]}
        if "learning_rate" in given:
            rates = given.pop("learning_rate")
            self.__dict__["init_learning_rate"] = (None if isinstance(rates, tessera.nn.Cell) else
                                                   rates.asnumpy().tolist() if isinstance(rates, tessera.Tensor) else rates)
        self.__dict__["init_args"] = given
        fn(self, *args, **kwargs)

    return init


class _Table(LearningRateSchedule):
    """One rate per step; the last one for those behind the table."""

    def __init__(self, values, name):
        super().__init__()
        self.learning_rate = Parameter(tessera.Tensor(np.array(values, np.float32)), name=name, requires_grad=False)
        self._last = len(values) - 1

    def construct(self, global_step):
        return _ops.gather(self.learning_rate, _ops.minimum(_ops.reshape(global_step, ()), self._last), 0)


class _Fixed(LearningRateSchedule):
    """The same rate at every step, where groups beside it have schedules."""

    def __init__(self, learning_rate):
        super().__init__()
        self.learning_rate = learning_rate

    def construct(self, global_step):
        return self.learning_rate + 0.0


class Optimizer(Cell):
    """Updates parameters from their gradients: optimizer(gradients), in construct() or outside. To be derived: construct(gradients)
    assigns to `parameters` and to states, which are parameters of the cell.

    parameters: parameters, or dicts with params, lr, weight_decay, grad_centralization (of matrices and filters, whose second dim is a
    multiple of 16 as in the reference, the gradient less its mean over all dims but the first; before weight decay), order_params. learning_rate: a number, one per step, or a schedule."""

    _is_always_traced = True
    _keeps_names = _names_by_path = True

    def __init__(self, learning_rate, parameters, weight_decay=0.0, loss_scale=1.0):
        super().__init__(auto_prefix=False)
        who = type(self).__name__
        join_by_role(who)
        self.loss_scale = _check.positive(who, "loss_scale", loss_scale)
        groups, own, centralized = _taken(parameters)
        default_decay = _check.weight_decay(who, weight_decay)
        self.is_group = groups is not None
        self.is_group_lr = self.is_group and any("lr" in group for group in groups)
        self.global_step = Parameter(tessera.Tensor([0], tessera.int32), name="global_step", requires_grad=False)
        default_rate = self._rate_cell(rate(learning_rate), "learning_rate")
        group_of = {id(p): group for group in groups or () for p in group["params"]}
        if self.is_group_lr:
            made = {id(group): self._rate_cell(group["lr"], f"learning_rate_group_{i}") for i, group in enumerate(groups) if "lr" in group}
            self._rates = [made.get(id(group_of[id(p)]), default_rate) for p in own]
        else:
            self._rates = [default_rate] * len(own)
        self.dynamic_lr = any(isinstance(r, tessera.nn.Cell) for r in self._rates)
        if self.dynamic_lr:
            fixed = {id(r): _Fixed(r) for r in self._rates if not isinstance(r, tessera.nn.Cell)}
            self._rates = [fixed.get(id(r), r) for r in self._rates]
        for i, part in enumerate(dict.fromkeys(r for r in self._rates if isinstance(r, tessera.nn.Cell))):
            setattr(self, f"_rate_{i}", part)
        self.learning_rate = ParameterTuple(self._rates) if self.is_group_lr and not self.dynamic_lr else tuple(self._rates) if self.is_group_lr else default_rate
        self.parameters = ParameterTuple(own)
        # The words of the reference's own optimizers, which scripts that derive theirs copy.
        decays = [group_of[id(p)].get("weight_decay", default_decay) * self.loss_scale if self.is_group else default_decay * self.loss_scale for p in own]
        self.decay_flags = tuple(decay > 0 if self.is_group else "beta" not in p.name and "gamma" not in p.name for p, decay in zip(own, decays))
        self.weight_decay = (tuple(tessera.Tensor(decay, tessera.float32) for decay in decays) if self.is_group else
                             tessera.Tensor(default_decay * self.loss_scale, tessera.float32))
        self.exec_weight_decay = any(decays)
        self.dynamic_weight_decay, self.dynamic_decay_flags = False, (False, ) * len(own) if self.is_group else False
        self.grad_centralization = bool(centralized)
        self._centralized = {id(p) for p in centralized}
        self.grad_centralization_flags = tuple(id(p) in self._centralized for p in own)
        self.need_scale = self.loss_scale != 1.0
        self.reciprocal_scale = tessera.Tensor(1.0 / self.loss_scale, tessera.float32)
        self.param_length = len(own)
        # Every rank updates what it holds: a parallel optimizer is the plan's business.
        self.use_parallel, self.optim_filter, self.param_rank = False, (True, ) * len(own), None
        from mindspore import ops
        self.assignadd, self.hyper_map, self.map_ = ops.AssignAdd(), ops.HyperMap(), ops.Map()
        self.global_step_increase_tensor = tessera.Tensor([1], tessera.int32)

    @property
    def _parameters(self):
        return self.parameters

    def _is_dynamic_lr_or_weight_decay(self):
        """Whether global_step counts: the rate depends on it."""
        return self.dynamic_lr

    @staticmethod
    def _rate_cell(value, name):
        if isinstance(value, LearningRateSchedule):
            return value
        if isinstance(value, float):
            return Parameter(tessera.Tensor(value, tessera.float32), name=name, requires_grad=False)
        return _Table(value, name)

    def construct(self, gradients):
        """Updates the parameters; to be overridden."""
        raise NotImplementedError(f"For '{type(self).__name__}', construct(gradients) is not defined")

    def get_lr(self):
        """The rate of this step; of each parameter where groups have rates of their own."""
        rates = {id(r): _ops.reshape(r(_ops.reshape(self.global_step, ())), ()) if isinstance(r, tessera.nn.Cell) else r for r in self._rates}
        return tuple(rates[id(r)] for r in self._rates) if self.is_group_lr else rates[id(self._rates[0])]

    def get_weight_decay(self):
        """A tensor, times the loss scale; one for each parameter where there are groups."""
        return self.weight_decay

    def decay_weight(self, gradients):
        """The gradients, each with its parameter times the decay added; parameters with beta or gamma in their names are exempt where there
        are no groups."""
        if not self.exec_weight_decay:
            return gradients
        decay = self.get_weight_decay()
        decays = decay if self.is_group else (decay, ) * self.param_length
        return tuple(g + p * _ops.cast(decay, g.dtype) if flag else g for p, decay, flag, g in zip(self.parameters, decays, self.decay_flags, gradients))

    def gradients_centralization(self, gradients):
        """The gradients, those of centralized groups whose second dim is a multiple of 16 less their mean over all dims but the first."""
        return tuple(g - _ops.reduce_mean(g, tuple(range(1, g.ndim)), True) if id(p) in self._centralized and _is_centralized(g) else g
                     for p, g in zip(self.parameters, gradients))

    def scale_grad(self, gradients):
        """The gradients by the loss scale."""
        return tuple(g * (1.0 / self.loss_scale) for g in gradients) if self.need_scale else tuple(gradients)

    def flatten_gradients(self, gradients):
        """The gradients: parameters are not flattened."""
        return gradients

    def update_parameters_name(self, prefix="", recurse=True):
        """Puts the prefix in front of the names of the states and of the parameters that are updated."""
        if not isinstance(prefix, str):
            raise TypeError(f"For 'update_parameters_name', the 'prefix' must be str, but got {type(prefix).__name__}.")
        if prefix:
            for parameter in self.get_parameters(expand=_check.boolean("update_parameters_name", "recurse", recurse)):
                parameter.name = prefix + parameter.name

    def get_lr_parameter(self, param):
        """The Parameter or schedule that holds a parameter's rate; a list of a list."""
        places = {id(p): i for i, p in enumerate(self.parameters)}
        found = []
        for p in param if isinstance(param, list) else [param]:
            if not isinstance(p, Parameter):
                raise TypeError(f"For 'get_lr_parameter', the 'param' must be 'Parameter' or 'list' type, but got {type(p).__name__}.")
            if id(p) not in places:
                raise ValueError(f"For 'get_lr_parameter', the parameter {p.name} is not in optimizer, please check whether the argument 'param' is correct.")
            rate_of = self._rates[places[id(p)]]
            found.append(rate_of.learning_rate if isinstance(rate_of, (_Table, _Fixed)) else rate_of)
        return found if isinstance(param, list) else found[0]

    def broadcast_params(self, optim_result):
        """What the update gave: every rank has all of it."""
        return optim_result

    def _grad_sparse_indices_deduplicate(self, gradients):
        return gradients

    @property
    def target(self):
        """CPU: where parameters are updated."""
        return "CPU"

    @target.setter
    def target(self, value):
        self._set_base_target(value)

    def _set_base_target(self, value):
        if not isinstance(value, str):
            raise TypeError(f"For 'Optimizer', the property 'target' must be string, but got {type(value).__name__}.")
        if value not in ("CPU", "Ascend", "GPU"):
            raise ValueError(f"For 'Optimizer', the property 'target' must be one of ['CPU', 'Ascend' ,'GPU'], but got {value}.")
        if value != "CPU":
            raise ValueError(f"For 'Optimizer', the property 'target' cannot be set to '{value}' in the 'CPU' environment.")

    @property
    def unique(self):
        """Gradients are dense."""
        return True

    def state_parameters(self):
        """The states: what the cell holds beside what it updates."""
        own = {id(p) for p in self.parameters}
        return [p for p in tessera.nn.Cell.parameters(self) if id(p) not in own]

    @property
    def native(self):
        """What updates, as tessera takes it."""
        if "_traced" not in self.__dict__:
            self.__dict__["_traced"] = tessera.nn.TracedOptimizer(self._update_by_name, self.state_parameters)
        return self.__dict__["_traced"]

    def _update_by_name(self, gradients):
        """construct(), of what is trained; zeros for the others."""
        self(tuple(gradients[p.name] if p.name in gradients else _ops.zeros_like(p) for p in self.parameters))

    # Whether `native` updates parameters beside those that this one was given, in the same way.
    takes_any_parameters = False

    def native_for(self, *cells):
        """tessera's optimizer, for those parameters of what is trained, a network and perhaps its loss, that are among ours."""
        own = {id(p) for p in self.parameters}
        if all(id(p) in own for cell in cells for p in cell.trainable_parameters()):
            return self.native
        return tessera.nn.ChosenParameters(self.native, list(self.parameters))


def looks_up_sparsely(parameters):
    """name -> whether lookups in that one of the parameters are sparse: their rows alone are updated."""
    return lambda name: any(p.name == name and getattr(p, "is_looked_up_sparsely", False) for p in parameters)


class NativeOptimizer(Optimizer):
    """One of Tessera's. params: as Optimizer's parameters; make: gives it, for groups."""

    # Whether parameters with beta or gamma anywhere in their names do not decay, where there are no groups.
    _spares_by_name = True

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls) and cls.__module__.startswith("mindspore."):
            cls.__init__ = _noted(cls.__init__)

    def __init__(self, params, make):
        Cell.__init__(self, auto_prefix=False)
        groups, own, centralized = _taken(params)
        # Tessera's own rule is narrower: the last name of the path is beta or gamma.
        spared = [p for p in own if ("beta" in p.name or "gamma" in p.name) and p.name.rpartition(".")[2] not in ("beta", "gamma")]
        if groups is not None or not self._spares_by_name:
            spared = []
        native = make([{"params": spared, "weight_decay": 0.0}] if spared else groups)
        flagged, centralized = {id(p) for p in centralized}, [p for p in centralized if _is_centralized(p)]
        rates = [self.__dict__.get("_rate_given"), *(group["lr"] for group in groups or () if "lr" in group)]
        self._native = tessera.nn.CentralizedGradients(native, centralized) if centralized else native
        states = self._native.state_parameters(own)
        early = [state for state in states if state.name == "global_step" or (state.name.startswith("learning_rate") and state.ndim == 0)]
        tables = [state for state in states if state.name.startswith("learning_rate") and state.ndim > 0]
        slots = [state for state in states if all(state is not other for other in (*early, *tables))]
        # Where each stands is where a checkpoint of the reference has it.
        self._step_states = ParameterTuple(early)
        self.parameters = ParameterTuple(own)
        self._slots = ParameterTuple(slots)
        self._tables = ParameterTuple(tables)
        self.__dict__.update(_slot_words=[state.name.split(".")[0] if "." in state.name else None for state in slots], _holds_optimizers=True,
                             _is_grouped=groups is not None, _groups=groups, _centralizes=[id(p) in flagged for p in own],
                             _has_schedule=any(isinstance(r, LearningRateSchedule) for r in rates))

    def construct(self, gradients):
        self._native.update(list(self.parameters), list(gradients))
        return True

    @property
    def takes_any_parameters(self):
        return not self._is_grouped and self.native is self._native

    @property
    def native(self):
        # What a class derived from one of Tessera's does beside it is not to be lost.
        return self._native if type(self).construct is NativeOptimizer.construct else super().native

    def state_parameters(self):
        return self._native.state_parameters(list(self.parameters))

    def __setattr__(self, name, value):
        if "_is_grouped" in self.__dict__ and name in _options_of(type(self)) and not self._holds(name):
            who = type(self).__name__
            raise AttributeError(f"{who}: an attribute '{name}' would change nothing, {name} was read when the optimizer was made: give it there, "
                                 f"{who}(params, {name}=...)")
        super().__setattr__(name, value)

    def _holds(self, name):
        """Whether the attribute is a state or one that a script has set, and not what the optimizer was given."""
        if name in self.__dict__ or any(word == name for word in self.__dict__["_slot_words"]):
            return True
        try:
            Optimizer.__getattr__(self, name)
        except AttributeError:
            return hasattr(type(self), name)
        return True

    def prefix_states(self, prefix):
        """Names the states by the prefix and what they are called alone."""
        self._native.set_state_prefix(prefix)
        self.state_parameters()
        # The cell holds them under their new names, in the same order.
        self._step_states, self.parameters, self._slots, self._tables = self._step_states, self.parameters, self._slots, self._tables

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            own = self.__dict__
            if name in _READ:
                return _READ[name](self)
            slots = [state for state, word in zip(own.get("_slots", ()), own.get("_slot_words", ())) if word == name]
            if slots:
                return ParameterTuple(slots)
            if name not in own.get("_given", ()):
                raise
            value = own["_given"][name]
            return tessera.Tensor(value, tessera.float32) if name in ("beta1", "beta2", "eps") and isinstance(value, (int, float)) else value


def _noted(init):
    """The __init__ of one of ours, which notes what it is given: classes that derive from ours read it."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def note(self, *args, **kwargs):
        if "_given" not in self.__dict__:
            try:
                bound = signature.bind(self, *args, **kwargs)
            except TypeError:
                return explained(init)(self, *args, **kwargs)  # which says what is wrong
            bound.apply_defaults()
            self.__dict__["_rate_given"] = bound.arguments.get("learning_rate")
            self.__dict__["_given"] = {name: value for name, value in bound.arguments.items() if name not in ("self", "params", "learning_rate")}
        return init(self, *args, **kwargs)

    return note


def _decays(optimizer):
    """The weight decay of each parameter, times the loss scale."""
    default = optimizer.__dict__["_given"].get("weight_decay", 0.0)
    own = {id(p): group.get("weight_decay", default) for group in optimizer.__dict__["_groups"] or () for p in group["params"]}
    return [own.get(id(p), default) for p in optimizer.parameters]


# What optimizers of ours have under the words of the reference's, for classes that derive from them.
_READ = {
    "params": lambda optimizer: optimizer.parameters,
    "param_length": lambda optimizer: len(optimizer.parameters),
    "is_group": lambda optimizer: optimizer.__dict__["_is_grouped"],
    "is_group_lr": lambda optimizer: any("lr" in group for group in optimizer.__dict__["_groups"] or ()),
    "dynamic_lr": lambda optimizer: bool(optimizer._tables) or optimizer.__dict__["_has_schedule"],
    "loss_scale": lambda optimizer: float(optimizer.__dict__["_given"].get("loss_scale", 1.0)),
    "need_scale": lambda optimizer: optimizer.loss_scale != 1.0,
    "reciprocal_scale": lambda optimizer: tessera.Tensor(1.0 / optimizer.loss_scale, tessera.float32),
    "exec_weight_decay": lambda optimizer: any(not isinstance(decay, (int, float)) or decay > 0 for decay in _decays(optimizer)),
    "grad_centralization": lambda optimizer: any(optimizer.grad_centralization_flags),
    "grad_centralization_flags": lambda optimizer: tuple(optimizer.__dict__["_centralizes"]),
}


@functools.cache
def _options_of(cls):
    """What an optimizer of ours reads when it is made; nothing of a class derived with an __init__() of its own, whose attributes are called as it likes."""
    if not cls.__module__.startswith("mindspore."):
        cls = next(base for base in cls.__mro__ if "__init__" in vars(base))
    return set(inspect.signature(cls.__init__).parameters) - {"self", "params"} if cls.__module__.startswith("mindspore.") else set()


def _taken(params):
    """(groups, None without any; all parameters, in order; those whose gradients are centralized)."""
    if isinstance(params, Parameter) or not hasattr(params, "__iter__"):
        raise TypeError(f"For 'Optimizer', the argument parameters must be Iterable type of 'Parameter' or 'dict', but got {type(params).__name__}."
                        + (" network.trainable_params() gives them." if isinstance(params, tessera.nn.Cell) else ""))
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
    return groups, params, centralized


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


def _is_centralized(gradient):
    """Whether grad_centralization changes a gradient of this shape, as in the reference."""
    return len(gradient.shape) > 1 and gradient.shape[1] % 16 == 0


def _warn_of_uncentralized(parameters):
    left = [p.name for p in parameters if len(p.shape) > 1 and not _is_centralized(p)]
    if left:
        context.warn_once(f"grad_centralization leaves gradients as they are whose second dim is no multiple of 16, as in the reference: {', '.join(left[:3])}"
                          f"{', ...' if len(left) > 3 else ''}")


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
            _warn_of_uncentralized(own)
        params += own
        made = {"params": own}
        if "lr" in group:
            made["lr"] = rate(group["lr"])
        if "weight_decay" in group:
            made["weight_decay"] = _check.weight_decay("Optimizer", group["weight_decay"])
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


__getattr__ = missing(__name__)
del missing
