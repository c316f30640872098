"""Gradients with respect to integers: those of the same function of copies in float64, which become integers again as they do in the reference,
whole numbers that wrap around. The function is traced once more for them; what it assigns then is dropped, and a cast to an integer keeps
the copy a float, less what is behind the point, so that a gradient passes."""
import functools
import threading

import numpy as np
import tessera
from tessera import ops as _ops

from mindspore import context

_DTYPES = (tessera.int8, tessera.int16, tessera.int32, tessera.int64, tessera.uint8, tessera.uint16, tessera.uint32, tessera.uint64)
_FLOATS = (tessera.float16, tessera.bfloat16, tessera.float32, tessera.float64)
_now = threading.local()  # count: in how many traces of copies this thread is


def are_whole(value):
    """Whether it is a tensor of integers."""
    return getattr(value, "dtype", None) in _DTYPES


def passing(convert):
    """The cast `convert`, through which the gradient of a copy passes."""
    @functools.wraps(convert)
    def cast(x, dtype):
        made = convert(x, dtype)
        if getattr(_now, "count", 0) == 0 or not are_whole(made) or getattr(x, "dtype", None) != tessera.float64:
            return made
        return x + _ops.stop_gradient(_ops.cast(made, tessera.float64) - x)

    return cast


def tensors(results):
    """The tensors among results, in order."""
    for result in results if isinstance(results, (tuple, list)) else (results, ):
        if isinstance(result, (tuple, list)):
            yield from tensors(result)
        elif hasattr(result, "dtype"):
            yield result


def floats(results):
    """Those of them whose gradients there are."""
    return [result for result in tensors(results) if result.dtype in _FLOATS]


def starts_of(results, sens):
    """Of the gradients to start with, one for each tensor among the results or for each that is a float, those of the floats."""
    every = list(tensors(results))
    own = [result.dtype in _FLOATS for result in every]
    if len(sens) == len(every):
        return [start for start, is_float in zip(sens, own) if is_float]
    if len(sens) != sum(own):
        raise ValueError(f"For 'grad', there must be a gradient to start with for each of the {sum(own)} results, but got {len(sens)}.")
    return list(sens)


def with_gradients(differentiate, function, inputs, numbers, sens, only_first):
    """What differentiate() gives, (value, gradients), the last of which are those of `numbers`, with those of the inputs that are integers."""
    whole = [number for number in numbers if are_whole(inputs[number])]
    if not whole:
        return differentiate()
    done = []

    def as_it_is():
        done.append(differentiate())
        return done[0]

    def of_copies():
        try:
            return _gradients_of_copies(function, inputs, whole, done[0][0], sens, only_first)
        except Exception as error:  # what takes integers alone says so in its own way
            return error

    (value, made), found = tessera.nn.trace_branches(_ops.cast(_ops.fill((), 1.0, tessera.float32), tessera.bool_), as_it_is, of_copies)
    if isinstance(found, Exception):
        line = f"{type(found).__name__}: {found}".splitlines()[0]
        context.warn_once(f"the gradient with respect to the integers of input {', '.join(map(str, whole))} is zeros, for the function takes them as indices or "
                          f"labels: with floats in their place it ends with {line}; where it computes with them, too, give it a float for that")
        return value, made
    first = len(made) - len(numbers)
    of = dict(zip(whole, found))
    return value, tuple(of.get(numbers[i - first], one) if i >= first else one for i, one in enumerate(made))


def _gradients_of_copies(function, inputs, whole, value, sens, only_first):
    copies = {number: _ops.cast(inputs[number], tessera.float64) for number in whole}
    _now.count = getattr(_now, "count", 0) + 1
    try:
        results = list(tensors(function(*[copies.get(number, item) for number, item in enumerate(inputs)])))
    finally:
        _now.count -= 1
    if isinstance(sens, (tuple, list)):
        if len(sens) == len(results):
            starts = list(sens)
        else:  # one for each float
            starts = iter(starts_of(value, sens))
            starts = [next(starts) if one.dtype in _FLOATS else 0.0 for one in tensors(value)]
    else:
        starts = [sens] * (len(results) if isinstance(sens, float) and not only_first else 1)
    parts = [_ops.reduce_sum(_ops.cast(result, tessera.float64) * (start if isinstance(start, float) else _ops.cast(start, tessera.float64)))
             for result, start in zip(results, starts) if result.dtype in _FLOATS]
    if not parts:
        return [_ops.zeros_like(inputs[number]) for number in whole]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    made = tessera.nn.value_and_grad(lambda *_: total, list(copies.values()), (), list(range(len(whole))))[1]
    return [_whole(gradient, inputs[number].dtype) for gradient, number in zip(made, whole)]


def _whole(gradient, dtype):
    """The gradient without what is behind the point, wrapped around to the dtype."""
    if dtype != tessera.int64:
        limits = np.iinfo(dtype.name)
        size = float(limits.max) - float(limits.min) + 1.0
        gradient = _ops.cast(_ops.cast(gradient, tessera.int64), tessera.float64)
        gradient = gradient - _ops.floor((gradient - float(limits.min)) / size) * size
    return _ops.cast(gradient, dtype)
