"""Operators as functions."""
import functools

import numpy as np
import tessera
from tessera.ops import (abs, add, cast, concat, cos, div, equal, exp, expand_dims, floor, gather, greater,
                         greater_equal, less, less_equal, log, logical_and, logical_not, logical_or, matmul, maximum, minimum,
                         mul, neg, not_equal, one_hot, ones_like, pow, relu, reshape, select, sigmoid, sign, sin, softmax, sqrt,
                         square, squeeze, stack, sub, tanh, tile, transpose, zeros_like)

from mindspore._missing import missing

tensor_add = add
tensor_sub = sub
tensor_mul = mul
tensor_div = div


def shape(x):
    """The sizes of x's dims, a tuple."""
    return x.shape


def dtype(x):
    """x's dtype."""
    return x.dtype


def rank(x):
    """The number of x's dims."""
    return x.ndim


def size(x):
    """The number of x's elements."""
    return x.size


def scalar_to_array(value):
    """The number as a tensor: f32, or i64 for an int."""
    return tessera.Tensor(value)


def scalar_to_tensor(input_x, dtype=tessera.float32):
    """The number as a tensor of that dtype."""
    return tessera.Tensor(input_x, dtype)


def tuple_to_array(input_x):
    """The numbers as a tensor of one dim: i32 if all are ints, else f32."""
    if not isinstance(input_x, tuple) or not input_x:
        raise TypeError(f"For 'tuple_to_array', the 'input_x' must be a tuple of numbers that is not empty, but got {input_x!r}.")
    are_ints = all(isinstance(x, int) and not isinstance(x, bool) for x in input_x)
    return tessera.Tensor(np.array(input_x, np.int32 if are_ints else np.float32))


def gelu(input_x, approximate="none"):
    """x * P(X <= x) for a standard normal X; approximate: "none", or "tanh" for that approximation."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"For 'gelu', the 'approximate' must be 'none' or 'tanh', but got {approximate}.")
    return tessera.ops.gelu(input_x, approximate == "tanh")


def depend(value, expr):
    """value. Graphs are pure: what expr assigns is kept anyway."""
    return value


def assign(parameter, value):
    """Makes value the parameter's from here on, and returns it."""
    parameter.assign(value)
    return value


def assign_add(parameter, value):
    """Adds value to the parameter, and returns the sum."""
    total = parameter + value
    parameter.assign(total)
    return total


def assign_sub(parameter, value):
    """Subtracts value from the parameter, and returns the difference."""
    return assign_add(parameter, -value)


partial = functools.partial

__getattr__ = missing(__name__)
del missing
