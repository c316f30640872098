"""Functions of functions: GradOperation, HyperMap, Map, MultitypeFuncGraph."""
import functools

import tessera
from tessera._branches import called, traced

from mindspore import _check, context
from mindspore._missing import missing
from mindspore.ops import _whole_numbers
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
    """A function with a form for each combination of its arguments' kinds: "Tensor", "Number", "Bool", "Function", ... read_value has no effect:
    a form may read and assign parameters."""

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


def _value_and_grad(function, inputs, weights, numbers, sens, only_first=False):
    """(the function's value, gradients by weights and the inputs of these numbers): of all results together, which begin with `sens`, a number or as
    many tensors as there are results, or, where that is one tensor or only_first says so, of the first one."""
    inputs = list(inputs)
    for weight in weights:
        if _whole_numbers.are_whole(weight):
            context.warn_once(f"the gradient with respect to {weight.name!r} is zeros, for a Parameter of integers has none here: give its value as an input of the "
                              "function, grad_position=...")
    own = list(inputs)  # which become values
    return _whole_numbers.with_gradients(lambda: _of_floats(function, own, weights, numbers, sens, only_first), function, inputs, numbers, sens, only_first)


def _of_floats(function, inputs, weights, numbers, sens, only_first):
    """The same; the gradients with respect to integers are zeros."""
    starts_each = isinstance(sens, (tuple, list))
    try:
        value, made = tessera.nn.value_and_grad(function, inputs, weights, numbers, 1.0 if starts_each else sens)
        found, is_made = _whole_numbers.floats(value), True
    except ValueError as error:
        if "gradients: the value must be floating" not in str(error):
            raise
        value, made = function(*inputs), tuple(tessera.ops.zeros_like(item) for item in (*weights, *(inputs[i] for i in numbers)))
        found, is_made = _whole_numbers.floats(value), False
        if only_first or not found:  # no gradient flows to an integer or a bool
            return value, made
    if is_made and (only_first or not starts_each and (len(found) < 2 or not isinstance(sens, float))):
        return value, made
    # Of what was computed already, so that draws and statistics happen once; `inputs` holds the values that it was made of.
    parts = [result * start for result, start in zip(found, _whole_numbers.starts_of(value, sens))] if starts_each else found
    total = functools.reduce(lambda one, other: one + other, [tessera.ops.reduce_sum(tessera.ops.cast(part, tessera.float32)) for part in parts])
    return value, tessera.nn.value_and_grad(lambda *_: total, inputs, weights, numbers, 1.0 if starts_each else sens)[1]


class GradOperation:
    """GradOperation(...)(function, weights)(*inputs): gradients of the function's results, of their sum where there are several.

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
            _, made = _value_and_grad(traced(function), inputs, own, numbers, sens)
            of_weights, of_inputs = made[:len(own)], made[len(own):]
            if self.get_all and self.get_by_list:
                return of_inputs, of_weights
            if self.get_by_list:
                return of_weights
            return of_inputs if self.get_all else of_inputs[0]

        return _run(gradients, owner_of(function, weights))


def value_and_grad(fn, grad_position=0, weights=None, has_aux=False, return_ids=False, sens_param=False):
    """The function (inputs) -> (fn's value, gradients): of the inputs at grad_position (a number, several, or None), and of the weights
    if given, then as (those of the inputs, those of the weights). has_aux: fn's first result only is differentiated, else the sum of all. return_ids:
    in place of each gradient (the input's position or the weight's name, the gradient), for get_grad(). sens_param: the last input, or `sens`, is the
    gradient to start with, a tuple where fn gives several results."""
    for name, value in (("has_aux", has_aux), ("return_ids", return_ids), ("sens_param", sens_param)):
        _check.boolean("value_and_grad", name, value)
    if not callable(fn):
        raise TypeError(f"For 'value_and_grad', the 'fn' must be a function or a Cell, but got {type(fn).__name__}.")
    if isinstance(weights, tessera.nn.Cell):
        raise TypeError(f"For 'value_and_grad', the 'weights' must be a Parameter or several, but got {type(weights).__name__}: network.trainable_params() gives them.")
    if grad_position is None and weights is None:
        raise ValueError("For 'value_and_grad', the 'grad_position' and the 'weights' can not both be None.")
    positions = () if grad_position is None else (grad_position,) if isinstance(grad_position, int) else tuple(grad_position)
    own = [weights] if isinstance(weights, tessera.Parameter) else list(weights or [])

    def of(*inputs):
        inputs, sens = (inputs[:-1], inputs[-1]) if sens_param else (inputs, 1.0)
        value, made = _value_and_grad(traced(fn), inputs, own, list(positions), sens, only_first=has_aux)
        if return_ids:
            made = tuple(zip((*[weight.name for weight in own], *positions), made))
        of_weights, of_inputs = made[:len(own)], made[len(own):]
        of_inputs = of_inputs[0] if isinstance(grad_position, int) else of_inputs
        of_weights = of_weights[0] if isinstance(weights, tessera.Parameter) else of_weights
        return value, of_inputs if weights is None else of_weights if grad_position is None else (of_inputs, of_weights)

    run = _run(of, owner_of(fn, own))
    return (lambda *inputs, sens=None: run(*inputs, *([] if sens is None else [sens]))) if sens_param else run


def grad(fn, grad_position=0, weights=None, has_aux=False, return_ids=False, sens_param=False):
    """The gradients of value_and_grad() alone; has_aux: with fn's other results."""
    both = value_and_grad(fn, grad_position, weights, has_aux, return_ids, sens_param)

    def run(*inputs, **sens):
        value, gradients = both(*inputs, **sens)
        return (gradients, value[1:]) if has_aux else gradients

    return run


def get_grad(gradients, identifier):
    """Of what grad() and value_and_grad() give with return_ids=True, the gradient of the input at a position, or of a Parameter."""
    name = identifier.name if isinstance(identifier, tessera.Parameter) else identifier
    if isinstance(name, bool) or not isinstance(name, int) and not isinstance(identifier, tessera.Parameter):
        raise TypeError(f"For 'get_grad', the 'identifier' must be int or Parameter, but got {type(identifier).__name__}.")

    def found(part):
        if len(part) == 2 and isinstance(part[0], (int, str)):
            return [part[1]] if type(part[0]) is type(name) and part[0] == name else []
        return [one for inner in part if isinstance(inner, (tuple, list)) for one in found(inner)]

    if not isinstance(gradients, (tuple, list)):
        raise TypeError(f"For 'get_grad', the 'gradients' must be what return_ids=True gives, a tuple, but got {type(gradients).__name__}.")
    gradient = found(gradients)
    if not gradient:
        raise ValueError(f"For 'get_grad', there is no gradient of {name!r}: ask for it by grad_position or weights, with return_ids=True.")
    return gradient[0]


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
    """Applies a function to the corresponding items of sequences; gives a tuple. reverse has no effect: the items do not depend on each other."""

    def __init__(self, ops=None, reverse=False):
        self.ops = ops

    def __call__(self, *args):
        function, sequences = (self.ops, args) if self.ops is not None else (args[0], args[1:])
        if not callable(function):
            raise TypeError(f"For '{type(self).__name__}', the first argument must be a function, but got {type(function).__name__}.")
        return self.apply(called(function) if tessera.nn.is_tracing() else function, sequences)

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
