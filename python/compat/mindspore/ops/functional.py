"""Operators as functions."""
import functools as _functools

import numpy as _np
import tessera as _tessera

from mindspore._missing import missing
from mindspore.ops.native import *
from mindspore.ops.native import abs, pow  # noqa: F401
from mindspore.ops.arithmetic import div  # noqa: F401, with rounding_mode


def _number(value):
    """A tensor of one element, of shape [1], as the scalar that it is."""
    return _tessera.ops.reshape(value, ()) if tuple(getattr(value, "shape", ())) == (1,) else value


def one_hot(indices, depth, on_value=1, off_value=0, axis=-1):
    """indices [...] -> [..., depth]: on_value at the index, off_value elsewhere."""
    return _tessera.ops.one_hot(indices, depth, _number(on_value), _number(off_value), axis)


def ones_like(input, *, dtype=None):
    """Ones in the shape of `input`, of its dtype or of that given."""
    made = _tessera.ops.ones_like(input)
    return made if dtype is None else cast(made, dtype)


def zeros_like(input, *, dtype=None):
    """Zeros in the shape of `input`, of its dtype or of that given."""
    made = _tessera.ops.zeros_like(input)
    return made if dtype is None else cast(made, dtype)


def identity(x):
    """x."""
    return x


def constexpr(fn=None, get_instance=True, name=None, reuse_result=True, check=True):
    """Decorates a function of constants, which is called while the network is traced. get_instance=False gives a class, called `name` where that is
    given, whose objects are called; reuse_result and check have no effect: what is constant is computed once for each trace."""
    if fn is None:
        return lambda function: constexpr(function, get_instance, name)
    return fn if get_instance else type(name or fn.__name__, (), {"__call__": staticmethod(fn), "__doc__": fn.__doc__})


def shape(input_x):
    """The sizes of input_x's dims, a tuple."""
    return input_x.shape


def dtype(x):
    """x's dtype."""
    return x.dtype


def rank(input_x):
    """The number of input_x's dims."""
    return input_x.ndim


def size(input_x):
    """The number of input_x's elements."""
    return input_x.size


def scalar_to_array(input_x):
    """The number as a tensor: f32, or i64 for an int."""
    return _tessera.Tensor(input_x)


def scalar_to_tensor(input_x, dtype=_tessera.float32):
    """The number as a tensor of that dtype."""
    return _tessera.Tensor(input_x, dtype)


def tuple_to_array(input_x):
    """The numbers as a tensor of one dim: i32 if all are ints, else f32."""
    if not isinstance(input_x, tuple) or not input_x:
        raise TypeError(f"For 'tuple_to_array', the 'input_x' must be a tuple of numbers that is not empty, but got {input_x!r}.")
    are_ints = all(isinstance(x, int) and not isinstance(x, bool) for x in input_x)
    return _tessera.Tensor(_np.array(input_x, _np.int32 if are_ints else _np.float32))


def gelu(input, approximate="none"):
    """x * P(X <= x) for a standard normal X; approximate: "none", or "tanh" for that approximation."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"For 'gelu', the 'approximate' must be 'none' or 'tanh', but got {approximate}.")
    return _tessera.ops.gelu(input, approximate == "tanh")


def depend(value, expr):
    """value. Graphs are pure: what expr assigns is kept anyway."""
    return value


def assign(variable, value):
    """Makes value, in the variable's dtype, the variable's from here on, and returns it."""
    if isinstance(getattr(value, "dtype", None), type(variable.dtype)) and value.dtype != variable.dtype:
        value = cast(value, variable.dtype)
    variable.assign(value)
    return value


def assign_add(variable, value):
    """Adds value to the variable, and returns the sum."""
    total = variable + value
    variable.assign(total)
    return total


def assign_sub(variable, value):
    """Subtracts value from the variable, and returns the difference."""
    return assign_add(variable, -value)


def floor_div(x, y):
    """The largest whole number not above x / y, in their dtype."""
    quotient = floor(div(x, y))
    return cast(quotient, (x + y).dtype)


def squared_difference(x, y):
    """(x - y)^2."""
    return square(sub(x, y))


def div_no_nan(x, y):
    """x / y, and 0 where y is 0."""
    is_zero = equal(y, 0)
    return select(is_zero, zeros_like(x + y), div(x, select(is_zero, ones_like(y), y)))


def ceil(input):
    """The smallest whole number not below input."""
    return -floor(-input)


def tan(input):
    """sin(input) / cos(input)."""
    return sin(input) / cos(input)


def isnan(input):
    """Where input is not a number."""
    return not_equal(input, input)


def isinf(input):
    """Where input is infinite."""
    return equal(abs(input), float("inf"))


_FLOATING = (_tessera.float16, _tessera.float32, _tessera.float64, _tessera.bfloat16)


def _of_floats(name, doc):
    """The operator; whole numbers become float32, as where they meet a float."""
    operator = getattr(_tessera.ops, name)

    def function(input):
        return operator(input if getattr(input, "dtype", None) in (None, *_FLOATING) else cast(input, _tessera.float32))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


log1p = _of_floats("log1p", "log(1 + x), precise where x is small.")
expm1 = _of_floats("expm1", "exp(x) - 1, precise where x is small.")
sinh = _of_floats("sinh", "(e^x - e^-x) / 2.")
cosh = _of_floats("cosh", "(e^x + e^-x) / 2.")


def relu6(x):
    """min(max(x, 0), 6)."""
    return minimum(relu(x), 6.0)


def elu(input_x, alpha=1.0):
    """input_x where input_x > 0, else alpha * (e^input_x - 1)."""
    return select(greater(input_x, 0.0), input_x, alpha * expm1(minimum(input_x, 0.0)))


def softplus(input, beta=1, threshold=20):
    """log(1 + e^(beta * input)) / beta; the input itself where beta * input is beyond the threshold."""
    if beta == 1 and threshold == 20:  # above 20 both forms are the input, in float32
        return relu(input) + log1p(exp(-abs(input)))
    scaled = beta * input
    return select(greater(scaled, float(threshold)), input, (relu(scaled) + log1p(exp(-abs(scaled)))) / beta)


def softsign(x):
    """x / (1 + |x|)."""
    return x / (1.0 + abs(x))


def hsigmoid(x):
    """min(max(x + 3, 0), 6) / 6."""
    return relu6(x + 3.0) / 6.0


def hswish(x):
    """x * hsigmoid(x)."""
    return x * hsigmoid(x)


def mish(x):
    """x * tanh(log(1 + e^x))."""
    return x * tanh(softplus(x))


def addn(x):
    """The sum of several tensors."""
    if not isinstance(x, (tuple, list)) or not x:
        raise TypeError(f"For 'AddN', the input must be a tuple or list of tensors that is not empty, but got {type(x).__name__}.")
    return _functools.reduce(add, x)


def l2_loss(x):
    """Half the sum of the squares."""
    return _tessera.ops.reduce_sum(square(x)) * 0.5


def ones(shape, dtype=_tessera.float32):
    """Ones in that shape."""
    return _tessera.ops.fill(shape, 1, dtype)


def zeros(size, dtype=_tessera.float32):
    """Zeros in that size."""
    return _tessera.ops.fill(size, 0, dtype)


def fill(type, shape, value):
    """The number in that shape."""
    return _tessera.ops.fill(shape, value, type)


def broadcast_to(input, shape):
    """x repeated along dims of size 1 until it has that shape; -1 keeps a size."""
    return _tessera.ops.broadcast_to(input, shape)


def clip_by_value(x, clip_value_min=None, clip_value_max=None):
    """x, at least the one and at most the other."""
    if clip_value_min is None and clip_value_max is None:
        raise ValueError("For 'clip_by_value', at least one of 'clip_value_min' and 'clip_value_max' must be given.")
    if isinstance(x, (tuple, list)):
        return type(x)(clip_by_value(item, clip_value_min, clip_value_max) for item in x)
    dtype = x.dtype
    if clip_value_min is not None:
        x = maximum(x, clip_value_min)
    return cast(x if clip_value_max is None else minimum(x, clip_value_max), dtype)


def clip_by_global_norm(x, clip_norm=1.0, use_norm=None):
    """Tensors scaled so that the norm of all together is at most clip_norm."""
    if use_norm is not None:
        raise ValueError(f"For 'clip_by_global_norm', the 'use_norm' must be None, but got {use_norm}.")
    if not isinstance(clip_norm, (int, float)) or clip_norm <= 0:
        raise ValueError(f"For 'clip_by_global_norm', the 'clip_norm' must be greater than 0, but got {clip_norm}.")
    norm = sqrt(_functools.reduce(add, [_tessera.ops.reduce_sum(square(item)) for item in x]))
    scale = clip_norm / maximum(norm, clip_norm)
    return tuple(item * scale for item in x)


partial = _functools.partial

__getattr__ = missing(__name__)
del missing
