"""Functions of functions: GradOperation, HyperMap, Map, MultitypeFuncGraph."""
import tessera
from tessera._branches import traced

from mindspore import _check
from mindspore._missing import missing
from mindspore.ops._traced import Traced, owner_of
from mindspore.ops.functional import clip_by_global_norm, clip_by_value  # noqa: F401


def _kind(value):
    if isinstance(value, (tessera.Tensor, tessera.Value, tessera.Parameter)):
        return "Tensor"
    if isinstance(value, bool):
        return "Bool"
    if callable(value):
        return "Function"
    if isinstance(value, (int, float)):
        return "Number"
    if isinstance(value, str):
        return "String"
    if isinstance(value, tuple):
        return "Tuple"
    if isinstance(value, list):
        return "List"
    return "None" if value is None else type(value).__name__


class MultitypeFuncGraph:
    """A function with a form for each combination of its arguments' kinds: "Tensor", "Number", "Bool", "Function", ..."""

    def __init__(self, name, read_value=False):
        if not isinstance(name, str):
            raise TypeError(f"For 'MultitypeFuncGraph', the 'name' must be str, but got {type(name).__name__}.")
        self.name = name
        self.entries = {}

    def register(self, *kinds):
        """Decorates the form for these kinds."""
        def add(function):
            self.entries[tuple(str(kind) for kind in kinds)] = function
            return function
        return add

    def __call__(self, *args):
        kinds = tuple(_kind(arg) for arg in args)
        for known, function in self.entries.items():
            if len(known) == len(kinds) and all(k == a or (k == "Number" and a == "Bool") for k, a in zip(known, kinds)):
                return traced(function)(*args) if tessera.nn.is_tracing() else function(*args)
        raise TypeError(f"The function '{self.name}' has no form for ({', '.join(kinds)}); it has "
                        f"{', '.join('(' + ', '.join(k) + ')' for k in self.entries)}.")


def _run(function, owner):
    """The function, part of a trace or compiled by itself."""
    alone = []  # made when it is needed

    def run(*inputs):
        if tessera.nn.is_tracing():
            return function(*inputs)
        if not alone:
            alone.append(Traced(function, owner))
        return alone[0](*inputs)

    return run


class GradOperation:
    """GradOperation(...)(function, weights)(*inputs): gradients of the function's first result.

    get_all: with respect to all inputs instead of the first; get_by_list: to the weights; sens_param: the last input is the
    gradient to start with. With get_all and get_by_list: (those of the inputs, those of the weights)."""

    def __init__(self, get_all=False, get_by_list=False, sens_param=False):
        self.get_all = _check.boolean("GradOperation", "get_all", get_all)
        self.get_by_list = _check.boolean("GradOperation", "get_by_list", get_by_list)
        self.sens_param = _check.boolean("GradOperation", "sens_param", sens_param)

    def __call__(self, function, weights=None):
        if not callable(function):
            raise TypeError(f"For 'GradOperation', the argument must be a function or a Cell, but got {type(function).__name__}.")
        if self.get_by_list and weights is None:
            raise TypeError("For 'GradOperation', get_by_list needs the weights")
        weights = [weights] if isinstance(weights, tessera.Parameter) else list(weights or [])

        def gradients(*inputs):
            inputs, sens = (inputs[:-1], inputs[-1]) if self.sens_param else (inputs, 1.0)
            own = list(weights) if self.get_by_list else []
            numbers = list(range(len(inputs))) if self.get_all else [] if self.get_by_list else [0]
            _, made = tessera.nn.value_and_grad(traced(function), list(inputs), own, numbers, sens)
            of_weights, of_inputs = made[:len(own)], made[len(own):]
            if self.get_all and self.get_by_list:
                return of_inputs, of_weights
            if self.get_by_list:
                return of_weights
            return of_inputs if self.get_all else of_inputs[0]

        return _run(gradients, owner_of(function, weights))


def value_and_grad(fn, grad_position=0, weights=None, has_aux=False):
    """The function (inputs) -> (fn's value, gradients): of the inputs at grad_position (a number, several, or None), and of the weights
    if given, then as (those of the inputs, those of the weights). has_aux: fn's first result only is differentiated."""
    if grad_position is None and weights is None:
        raise ValueError("For 'value_and_grad', the 'grad_position' and the 'weights' can not both be None.")
    positions = () if grad_position is None else (grad_position,) if isinstance(grad_position, int) else tuple(grad_position)
    own = [weights] if isinstance(weights, tessera.Parameter) else list(weights or [])

    def of(*inputs):
        value, made = tessera.nn.value_and_grad(traced(fn), list(inputs), own, list(positions), 1.0)
        of_weights, of_inputs = made[:len(own)], made[len(own):]
        of_inputs = of_inputs[0] if isinstance(grad_position, int) else of_inputs
        of_weights = of_weights[0] if isinstance(weights, tessera.Parameter) else of_weights
        return value, of_inputs if weights is None else of_weights if grad_position is None else (of_inputs, of_weights)

    return _run(of, owner_of(fn, own))


def grad(fn, grad_position=0, weights=None, has_aux=False):
    """The gradients of value_and_grad() alone; has_aux: with fn's other results."""
    both = value_and_grad(fn, grad_position, weights, has_aux)

    def run(*inputs):
        value, gradients = both(*inputs)
        return (gradients, value[1:]) if has_aux else gradients

    return run


def add_flags(fn=None, **flags):
    """The function or cell with attributes that tracing may look at; a decorator without fn."""
    def mark(function):
        if isinstance(function, tessera.nn.Cell):
            function.add_flags(**flags)
        else:
            function._func_graph_flags = {**getattr(function, "_func_graph_flags", {}), **flags}
        return function

    return mark if fn is None else mark(fn)


def core(fn=None, **flags):
    """Marks a function as part of the framework; a decorator."""
    return add_flags(fn, core=True, **flags)


class Map:
    """Applies a function to the corresponding items of sequences; gives a tuple."""

    def __init__(self, ops=None, reverse=False):
        self.ops = ops

    def __call__(self, *args):
        function, sequences = (self.ops, args) if self.ops is not None else (args[0], args[1:])
        if not callable(function):
            raise TypeError(f"For '{type(self).__name__}', the first argument must be a function, but got {type(function).__name__}.")
        return self.apply(function, sequences)

    def apply(self, function, sequences):
        """function of the corresponding items."""
        return tuple(function(*items) for items in self.together(sequences))

    def together(self, sequences):
        """The corresponding items."""
        if len({len(sequence) for sequence in sequences}) > 1:
            raise ValueError(f"For '{type(self).__name__}', the sequences must have the same length, but got {[len(s) for s in sequences]}.")
        return zip(*sequences)


class HyperMap(Map):
    """The same, through sequences of sequences."""

    def apply(self, function, sequences):
        if all(isinstance(item, (tuple, list)) for item in sequences):
            return tuple(self.apply(function, items) for items in self.together(sequences))
        return function(*sequences)


__getattr__ = missing(__name__)
del missing
