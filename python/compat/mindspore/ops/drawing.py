"""Functions that draw random numbers. In a traced construct() they draw anew in each step; where a shape or an order depends on what was
drawn, they work on tensors only, and say so. A seed tells what is drawn outside of construct() apart; inside it is a function of set_seed()'s
number, the cell's path and the step already, whatever the seed of the call."""
import numpy as _np
import tessera as _tessera
from tessera import nn as _nn, ops as _ops

from mindspore.common.seed import draws_before as _draws_before, get_seed as _get_seed
from mindspore.ops.array import _dtype_of, _sizes, _values, moveaxis as _moveaxis


def _generator(name, seed=None):
    if _nn.is_tracing():
        raise NotImplementedError(f"For '{name}', drawing in a compiled construct() is not available: it would draw once; draw before, and give what "
                                  "was drawn as an input")
    return _np.random.default_rng([_get_seed() or 0, _draws_before("ops"), seed or 0])


def _number(x):
    return x.asnumpy() if isinstance(x, _tessera.Tensor) else x


def _cast(x, dtype):
    return x if dtype is None or x.dtype == dtype else _ops.cast(x, dtype)


def rand(*size, dtype=None, seed=None):
    """Even in [0, 1)."""
    if _nn.is_tracing():
        return _nn.random_uniform(_sizes(size), dtype=_tessera.float32 if dtype is None else dtype)
    return _tessera.Tensor(_generator("rand", seed).random(_sizes(size), _np.float32), dtype)


def randn(*size, dtype=None, seed=None):
    """Gaussian around 0, of standard deviation 1."""
    if _nn.is_tracing():
        return _cast(_nn.random_normal(_sizes(size)), dtype)
    return _tessera.Tensor(_generator("randn", seed).standard_normal(_sizes(size), _np.float32), dtype)


def rand_like(input, seed=None, *, dtype=None):
    """rand() in x's shape."""
    return rand(*input.shape, dtype=_dtype_of(input, dtype), seed=seed)


def randn_like(input, seed=None, *, dtype=None):
    """randn() in x's shape."""
    return randn(*input.shape, dtype=_dtype_of(input, dtype), seed=seed)


def _traced_integers(low, high, size, dtype):
    if isinstance(low, int) and isinstance(high, int) and low >= high:
        raise ValueError(f"low >= high: no whole number is from {low} on and below {high}")
    # 53 bits: each number below 2^53 may come.
    drawn = _nn.random_uniform(_sizes((size, )) if isinstance(size, int) else _sizes(tuple(size)), dtype=_tessera.float64)
    return _ops.cast(_ops.floor(drawn * _cast_number(high - low)) + _cast_number(low), dtype)


def _cast_number(x):
    return x if isinstance(x, (int, float)) else _ops.cast(x, _tessera.float64)


def randint(low, high, size, seed=None, *, dtype=None):
    """Whole numbers from low on, below high."""
    if _nn.is_tracing():
        return _traced_integers(low, high, size, _tessera.int64 if dtype is None else dtype)
    return _tessera.Tensor(_generator("randint", seed).integers(low, high, size), _tessera.int64 if dtype is None else dtype)


def randint_like(input, low, high, seed=None, *, dtype=None):
    """randint() in x's shape."""
    return randint(low, high, tuple(input.shape), seed, dtype=_dtype_of(input, dtype))


def _one_seed(seed, seed2):
    """One seed of an operator's two."""
    for value in (seed, seed2):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"The seeds of an operator must be ints >= 0, but got {seed} and {seed2}.")
    return seed + (seed2 << 64)


def randperm(n, seed=0, offset=0, dtype=_tessera.int64):
    """0 to n - 1 in random order, another one for another seed or offset."""
    return _tessera.Tensor(_generator("randperm", _one_seed(seed or 0, offset)).permutation(n), dtype)


def uniform(shape, minval, maxval, seed=None, dtype=_tessera.float32):
    """Even in [minval, maxval)."""
    if _nn.is_tracing():
        if dtype == _tessera.int32:
            return _traced_integers(minval, maxval, shape, dtype)
        return _nn.random_uniform(shape, dtype=dtype) * (maxval - minval) + minval
    draws = _generator("uniform", seed)
    low, high = _number(minval), _number(maxval)
    made = draws.integers(low, high, shape) if dtype == _tessera.int32 else draws.random(shape, _np.float32) * (high - low) + low
    return _tessera.Tensor(_np.asarray(made), dtype)


def normal(shape, mean, stddev, seed=None):
    """Gaussian."""
    if _nn.is_tracing():
        return _nn.random_normal(shape) * stddev + mean
    return _tessera.Tensor(_np.asarray(_generator("normal", seed).standard_normal(shape, _np.float32) * _number(stddev) + _number(mean)), _tessera.float32)


def standard_normal(shape, seed=None):
    """Gaussian around 0, of standard deviation 1."""
    return normal(shape, 0.0, 1.0, seed)


def bernoulli(input, p=0.5, seed=None):
    """1 with probability p, else 0, in x's shape."""
    if isinstance(p, (int, float)) and not 0 <= p <= 1:
        raise ValueError(f"For 'bernoulli', the 'p' must be from 0 to 1, but got {p}.")
    if _nn.is_tracing():
        return _ops.cast(_ops.less(_nn.random_uniform(tuple(input.shape)), p), input.dtype)
    return _tessera.Tensor(_np.asarray(_generator("bernoulli", seed).random(tuple(input.shape)) < _number(p)), input.dtype)


def shuffle(x, seed=None):
    """The slices along the first dim in random order."""
    return _ops.gather(x, randperm(x.shape[0], seed or 0), 0)


def multinomial(input, num_samples, replacement=True, seed=None):
    """Places drawn with these probabilities, which need not sum to 1."""
    draws, weights = _generator("multinomial", seed), _np.atleast_2d(_values("multinomial", input, "draw before the network"))
    rows = [draws.choice(weights.shape[1], num_samples, replacement, row / row.sum()) for row in weights]
    return _tessera.Tensor(_np.stack(rows) if input.ndim == 2 else rows[0], _tessera.int32)


def gumbel_softmax(logits, tau=1.0, hard=False, dim=-1):
    """Softmax of the logits with Gumbel noise, over tau; hard: one-hot of the greatest, with the gradient of the soft one. Jang et al.,
    ICLR 2017."""
    if not tau > 0:
        raise ValueError(f"For 'gumbel_softmax', the 'tau' must be above 0, but got {tau}.")
    drawn = rand(*logits.shape, dtype=logits.dtype)
    tiny = 1e-7
    soft = _ops.softmax((logits - _ops.log(-_ops.log(drawn + tiny) + tiny)) / tau, dim)
    if not hard:
        return soft
    axis = dim % logits.ndim
    ones = _moveaxis(_ops.cast(_ops.one_hot(_ops.argmax(soft, axis), logits.shape[axis]), soft.dtype), -1, axis)
    return _ops.stop_gradient(ones - soft) + soft


def _dropped(input, p, kept_dims, seed):
    if not 0 <= p <= 1:
        raise ValueError(f"For 'dropout', the 'p' must be from 0 to 1, but got {p}.")
    if p == 0:
        return input
    if p == 1:
        return _ops.zeros_like(input)
    drawn = rand(*(size if dim < kept_dims else 1 for dim, size in enumerate(input.shape)), seed=seed)
    return input * _ops.cast(_ops.less(drawn, 1.0 - p), input.dtype) / (1.0 - p)


def dropout(input, p=0.5, training=True, seed=None):
    """Each element with probability p 0, else divided by 1 - p; x where training is False."""
    return _dropped(input, p, input.ndim, seed) if training else input


def _dropout_of_channels(name, dims):
    def function(input, p=0.5, training=True):
        if input.ndim not in dims:
            raise ValueError(f"For '{name}', the input must have {' or '.join(map(str, dims))} dims, but got {list(input.shape)}.")
        return _dropped(input, p, 2 if input.ndim == dims[-1] else 1, None) if training else input

    function.__name__, function.__doc__ = name, "Each channel with probability p 0, else divided by 1 - p; x where training is False."
    return function


dropout1d, dropout2d, dropout3d = (_dropout_of_channels(f"dropout{n}d", dims) for n, dims in ((1, (2, 3)), (2, (4, )), (3, (5, ))))
