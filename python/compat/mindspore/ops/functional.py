"""Operators as functions."""
import functools

import tessera
from tessera.ops import (abs, add, cast, concat, cos, div, equal, exp, expand_dims, floor, gather, gelu, greater,
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


scalar_to_tensor = scalar_to_array


def tuple_to_array(values):
    """The numbers as a tensor of one dim."""
    return tessera.Tensor(list(values))


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
