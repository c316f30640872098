"""NumPy's functions on tensors: those that ops has, under NumPy's names, and new tensors."""
import functools as _functools
import math as _math

import numpy as _np
import tessera as _tessera

from mindspore import _check
from mindspore import ops as _ops
from mindspore._missing import missing
from mindspore.common.dtype import bool_, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64  # noqa: F401
from mindspore.ops import arithmetic as _arithmetic
from mindspore.ops import array as _array
from mindspore.ops import drawing as _drawing
from mindspore.ops import neural as _neural
from mindspore.ops.arithmetic import (arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh, copysign, deg2rad, exp2, fix, fmod, heaviside, hypot,  # noqa: F401
                                      isclose, isneginf, isposinf, kron, log2, log10, logaddexp, logaddexp2, rad2deg, remainder, signbit,
                                      sinc, tensor_dot as tensordot, trunc)
from mindspore.ops.array import atleast_1d, atleast_2d, atleast_3d, column_stack, dstack, fliplr, flipud, hstack, moveaxis, ravel, vstack, where  # noqa: F401
from mindspore.ops.functional import (ceil, cos, cosh, exp, expm1, floor, isfinite, isinf, isnan, log, log1p, maximum, minimum, not_equal, ones_like,  # noqa: F401
                                      reciprocal, sign, sin, sinh, sqrt, square, stack, tan, tanh, zeros_like)
from mindspore.ops.functional import abs, equal, greater, greater_equal, less, less_equal, logical_and, logical_not, logical_or, logical_xor, matmul  # noqa: F401
from mindspore.ops.native import negative, subtract, true_divide  # noqa: F401

pi, e, inf, nan = _math.pi, _math.e, float("inf"), float("nan")
float_, int_ = float32, int32
absolute = fabs = abs
add, divide, multiply, power, mod = _ops.add, _ops.div, _ops.mul, _ops.pow, _arithmetic.floor_mod
float_power, floor_divide, positive = _ops.pow, _arithmetic.floor_divide, _arithmetic.positive
radians, rint = deg2rad, _arithmetic.round


def _tensor(a, dtype=None):
    made = a if _array.is_tensor(a) else _tessera.Tensor(_np.asarray(a))
    return made if dtype is None else made.astype(dtype)


def array(obj, dtype=None, copy=True, ndmin=0):
    """A tensor of an array, a number or a sequence, of at least ndmin dims. copy=False: a tensor of that dtype is given back as it is."""
    made = _tensor(obj, dtype)
    if copy and made is obj and isinstance(made, _tessera.Tensor):
        made = _array.deepcopy(made)
    return _ops.reshape(made, (*(1, ) * (ndmin - made.ndim), *made.shape)) if made.ndim < ndmin else made


def asarray(a, dtype=None):
    """A tensor of an array, a number or a sequence."""
    return _tensor(a, dtype)


def asfarray(a, dtype=float32):
    """asarray() of a floating dtype."""
    return _tensor(a, dtype)


def zeros(shape, dtype=float32):
    """Zeros in that shape."""
    return _ops.zeros(shape, dtype)


def ones(shape, dtype=float32):
    """Ones in that shape."""
    return _ops.ones(shape, dtype)


def empty(shape, dtype=float32):
    """Zeros in that shape."""
    return _ops.zeros(shape, dtype)


def empty_like(prototype, dtype=None, shape=None):
    """Zeros in the prototype's shape."""
    return _ops.zeros(prototype.shape if shape is None else shape, prototype.dtype if dtype is None else dtype)


def full(shape, fill_value, dtype=None):
    """The number in that shape."""
    return _array.full(shape, fill_value, dtype=dtype)


def full_like(a, fill_value, dtype=None, shape=None):
    """The number in a's shape."""
    return _array.full(a.shape if shape is None else shape, fill_value, dtype=a.dtype if dtype is None else dtype)


def arange(start, stop=None, step=None, dtype=None):
    """start, start + step, ... before stop."""
    return _array.arange(start, stop, 1 if step is None else step, dtype=dtype)


def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0):
    """num numbers at equal distances from start to stop, which is the last if endpoint."""
    if axis != 0:
        raise NotImplementedError("For 'linspace', axis is not available: use swapaxes")
    step = (stop - start) / ((num - 1 if endpoint else num) or 1)
    made = _array.linspace(start, start + step * (num - 1), num) if num > 1 else _ops.fill(_tessera.float32, (num, ), start)
    made = made if dtype is None else made.astype(dtype)
    return (made, step) if retstep else made


def eye(N, M=None, k=0, dtype=float32):
    """[N, M] with ones on the diagonal k right of the main one."""
    columns = N if M is None else M
    return _ops.one_hot(_array.arange(N) + k, columns, 1.0, 0.0).astype(dtype)


def identity(n, dtype=float32):
    """The unit matrix."""
    return eye(n, dtype=dtype)


def diag(v, k=0):
    """Of a vector the matrix with that diagonal, of a matrix its diagonal."""
    return _array.diagflat(v, k) if v.ndim == 1 else _array.diagonal(v, k)


def diagflat(v, k=0):
    """The matrix with these elements on a diagonal."""
    return _array.diagflat(v, k)


def diagonal(a, offset=0, axis1=0, axis2=1):
    """The elements of a diagonal, as the last dim."""
    return _array.diagonal(a, offset, axis1, axis2)


def trace(a, offset=0, axis1=0, axis2=1, dtype=None):
    """The sum of a diagonal."""
    return _arithmetic.sum(_array.diagonal(a, offset, axis1, axis2), -1, dtype=dtype)


def tri(N, M=None, k=0, dtype=float32):
    """Ones on and left of a diagonal."""
    return _array.tril(_ops.ones((N, N if M is None else M), dtype), k)


def tril(m, k=0):
    """Zeros right of a diagonal."""
    return _array.tril(m, k)


def triu(m, k=0):
    """Zeros left of a diagonal."""
    return _array.triu(m, k)


def meshgrid(*xi, sparse=False, indexing="xy"):
    """The coordinates of a grid."""
    if sparse:
        raise NotImplementedError("For 'meshgrid', sparse is not available: expand_dims makes tensors that broadcast")
    return list(_array.meshgrid(*xi, indexing=indexing))


def reshape(x, new_shape):
    """The elements in another shape."""
    return _ops.reshape(x, new_shape)


def transpose(a, axes=None):
    """The dims in another order, without one reversed."""
    return _tessera.ops.transpose(a, axes)


def swapaxes(x, axis1, axis2):
    """Two dims exchanged."""
    return _array.swapaxes(x, axis1, axis2)


def expand_dims(a, axis):
    """A new dim of size 1."""
    return _ops.expand_dims(a, axis)


def squeeze(a, axis=None):
    """Without dims of size 1."""
    return _tessera.ops.squeeze(a, axis)


def concatenate(arrays, axis=0):
    """Tensors one after the other along an axis; None: flattened."""
    return _ops.concat([_array.ravel(a) for a in arrays], 0) if axis is None else _ops.concat(list(arrays), axis)


def append(arr, values, axis=None):
    """concatenate() of two."""
    return concatenate((arr, values), axis)


def tile(a, reps):
    """a repeated so many times along dims."""
    reps = (reps, ) if isinstance(reps, int) else tuple(reps)
    a = _ops.reshape(a, (*(1, ) * (len(reps) - a.ndim), *a.shape)) if a.ndim < len(reps) else a
    return _ops.tile(a, (*(1, ) * (a.ndim - len(reps)), *reps))


def repeat(a, repeats, axis=None):
    """Every slice, or element, so many times."""
    return _array.repeat_interleave(a, repeats, axis)


def broadcast_to(array, shape):
    """a repeated along dims of size 1."""
    return _ops.broadcast_to(array, shape)


def split(x, indices_or_sections, axis=0):
    """Equal pieces, or pieces that begin at these places."""
    axis = _check.axis("split", "axis", axis, x.ndim)
    if isinstance(indices_or_sections, int) and x.shape[axis] % indices_or_sections:
        raise ValueError(f"For 'split', {x.shape[axis]} elements are not divisible into {indices_or_sections} pieces; array_split does it")
    return _array.tensor_split(x, indices_or_sections, axis)


def array_split(x, indices_or_sections, axis=0):
    """Pieces, larger ones first, or pieces that begin at these places."""
    return _array.tensor_split(x, indices_or_sections, axis)


def roll(a, shift, axis=None):
    """The elements moved on along axes."""
    return _array.roll(a, shift, axis)


def flip(m, axis=None):
    """The elements in the opposite order along axes, all without one."""
    return _array.flip(_tensor(m), tuple(range(_tensor(m).ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis, ))


def rot90(a, k=1, axes=(0, 1)):
    """Turned by right angles."""
    return _array.rot90(a, k, axes)


def take(a, indices, axis=None, mode="clip"):
    """The slices, or elements, at these places."""
    return _array.take(a, indices, axis, mode)


def take_along_axis(arr, indices, axis):
    """The element at the index along an axis."""
    return _array.gather_elements(_array.ravel(arr), 0, indices) if axis is None else _array.gather_elements(arr, axis, indices)


def pad(arr, pad_width, mode="constant", constant_values=0):
    """Elements around: (before, after) of each dim; mode: constant, reflect, edge, wrap."""
    pairs = _np.broadcast_to(_np.asarray(pad_width), (arr.ndim, 2)).tolist()
    modes = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    if mode not in modes:
        raise NotImplementedError(f"For 'pad', mode={mode!r} is not available: there are {list(modes)}")
    return _neural.pad(arr, [side for pair in reversed(pairs) for side in pair], modes[mode], constant_values if mode == "constant" else None)


def clip(x, xmin, xmax, dtype=None):
    """x within bounds."""
    made = _arithmetic.clamp(x, xmin, xmax)
    return made if dtype is None else made.astype(dtype)


def _reduced(function):
    def reduce(a, axis=None, keepdims=False, dtype=None):
        made = function(a, axis, keepdims)
        return made if dtype is None else made.astype(dtype)

    reduce.__name__, reduce.__qualname__, reduce.__doc__ = function.__name__, function.__name__, function.__doc__
    return reduce


mean, prod = _reduced(_arithmetic.mean), _reduced(_arithmetic.prod)


def _extreme(name, function, text):
    def extreme(a, axis=None, keepdims=False, initial=None, where=True, dtype=None):
        _check.only(name, "initial", initial, (None, ), "compare with it afterwards")
        _check.only(name, "where", where, (True, ), "choose the elements first, numpy.where(condition, a, other)")
        made = function(a, axis, keepdims)
        return made if dtype is None else made.astype(dtype)

    extreme.__name__, extreme.__qualname__, extreme.__doc__ = name, name, text
    return extreme


amax = max = _extreme("amax", _arithmetic.amax, "The largest along axes, or of all.")
amin = min = _extreme("amin", _arithmetic.amin, "The smallest along axes, or of all.")


def sum(a, axis=None, dtype=None, keepdims=False, initial=None):
    """The sum along axes, and initial."""
    made = _arithmetic.sum(a, axis, keepdims, dtype=dtype)
    return made if initial is None else made + initial


def var(x, axis=None, ddof=0, keepdims=False):
    """The variance along axes."""
    return _arithmetic.var(x, axis, ddof, keepdims)


def std(x, axis=None, ddof=0, keepdims=False):
    """The standard deviation along axes."""
    return _arithmetic.std(x, axis, ddof, keepdims)


def ptp(x, axis=None, keepdims=False):
    """The largest less the smallest."""
    return _arithmetic.amax(x, axis, keepdims) - _arithmetic.amin(x, axis, keepdims)


def average(x, axis=None, weights=None, returned=False):
    """The mean, of weights where they are given."""
    weights = _ops.ones_like(x) if weights is None else _ops.broadcast_to(weights, x.shape)
    total = _arithmetic.sum(weights, axis)
    made = _arithmetic.sum(x * weights, axis) / total
    return (made, total) if returned else made


def argmax(a, axis=None):
    """The place of the largest."""
    return _arithmetic.argmax(a, axis)


def argmin(a, axis=None):
    """The place of the smallest."""
    return _arithmetic.argmin(a, axis)


def cumsum(a, axis=None, dtype=None):
    """Sums so far."""
    return _arithmetic.cumsum(_array.ravel(a) if axis is None else a, 0 if axis is None else axis, dtype)


def cumprod(a, axis=None, dtype=None):
    """Products so far."""
    return _arithmetic.cumprod(_array.ravel(a) if axis is None else a, 0 if axis is None else axis, dtype)


def diff(a, n=1, axis=-1, prepend=None, append=None):
    """Differences of neighbours."""
    return _arithmetic.diff(a, n, axis, prepend, append)


def count_nonzero(x, axis=None, keepdims=False):
    """How many are not 0."""
    return _arithmetic.count_nonzero(x, axis, keepdims)


def dot(a, b):
    """The product of matrices, of vectors the inner product."""
    return _arithmetic.dot(a, b)


def inner(a, b):
    """Sums over the last dims."""
    return _arithmetic.inner(a, b)


def outer(a, b):
    """a[i] * b[j]."""
    return _arithmetic.outer(_array.ravel(a), _array.ravel(b))


def norm(x, ord=None, axis=None, keepdims=False):
    """The norm of vectors or, along two axes, of matrices; without ord and axis of all elements as one vector."""
    return _arithmetic.norm(_tensor(x, float32) if _tensor(x).dtype not in (float16, float32, float64) else _tensor(x), ord, axis, keepdims)


def cross(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None):
    """The vector product of vectors of size 3 along an axis."""
    if axis is None and (axisa, axisb, axisc) != (-1, -1, -1):
        raise NotImplementedError("For 'cross', axisa, axisb and axisc are not available: use swapaxes, or axis")
    return _arithmetic.cross(a, b, -1 if axis is None else axis)


def unique(x, return_inverse=False):
    """The values in order, and where each element stands among them; of a tensor, not in a compiled network."""
    _array.unique(x)
    values, places = _np.unique(x.asnumpy(), return_inverse=True)
    return (_tessera.Tensor(values), _tessera.Tensor(places, int32)) if return_inverse else _tessera.Tensor(values)


def nansum(a, axis=None, dtype=None, keepdims=False):
    """The sum of what is a number."""
    return _arithmetic.nansum(a, axis, keepdims, dtype=dtype)


def nanmean(a, axis=None, dtype=None, keepdims=False):
    """The mean of what is a number."""
    return _arithmetic.nanmean(a, axis, keepdims, dtype=dtype)


def size(a, axis=None):
    """The number of elements, or that of an axis."""
    return a.size if axis is None else a.shape[axis]


def isscalar(element):
    """Whether it is a number."""
    return _np.isscalar(element)


def rand(*shape, dtype=float32):
    """Even in [0, 1)."""
    return _drawing.rand(*shape, dtype=dtype)


def randn(*shape, dtype=float32):
    """Gaussian around 0."""
    return _drawing.randn(*shape, dtype=dtype)


def randint(minval, maxval=None, shape=None, dtype=int32):
    """Whole numbers from minval on, below maxval; of one argument from 0 on."""
    low, high = (0, minval) if maxval is None else (minval, maxval)
    return _drawing.randint(low, high, (1, ) if shape is None else shape, dtype=dtype)


def _by_numpys_names(function, names, casts):
    """The function, whose arguments have these names, too; casts: dtype is what its result is cast to."""

    @_functools.wraps(function)
    def call(*args, **named):
        dtype = named.pop("dtype", None) if casts else None
        given = list(args)
        for name in names[len(given):]:
            if name not in named:
                break
            given.append(named.pop(name))
        made = function(*given, **named)
        return made if dtype is None else made.astype(dtype)

    return call


# (names of arguments, whether there is a dtype, functions)
for _names, _casts, _functions in (
        ("x", True, "abs absolute arccosh arcsin arcsinh arctan arctanh ceil cos cosh deg2rad exp exp2 expm1 fabs floor isfinite isinf isnan log log10 log1p "
                    "log2 rad2deg radians reciprocal rint sign signbit sin sinh sqrt square tan tanh trunc"),
        ("x1 x2", True, "add arctan2 copysign divide equal float_power floor_divide fmod greater greater_equal heaviside hypot less less_equal logaddexp "
                        "logaddexp2 logical_and logical_or logical_xor matmul maximum minimum mod multiply not_equal power remainder subtract true_divide"),
        ("input", True, "arccos"), ("a", True, "logical_not negative positive"), ("x", False, "fix isneginf isposinf ravel"),
        ("a b", False, "isclose kron tensordot"), ("tup", False, "column_stack dstack hstack vstack"), ("arrays axis", False, "stack"),
        ("m", False, "fliplr flipud"), ("a", False, "moveaxis"), ("condition x y", False, "where")):
    for _name in _functions.split():
        globals()[_name] = _by_numpys_names(globals()[_name], _names.split(), _casts)


def _of_one_number(number):
    def like(a, dtype=None, shape=None):
        a = _tensor(a)
        shape = tuple(a.shape) if shape is None else (shape, ) if isinstance(shape, int) else tuple(shape)
        made = _tessera.ops.fill(shape, number, a.dtype)
        return made if dtype is None else made.astype(dtype)

    like.__name__ = like.__qualname__ = "ones_like" if number else "zeros_like"
    like.__doc__ = f"{'Ones' if number else 'Zeros'} in the shape of a, or that given, of its dtype or that given."
    return like


zeros_like, ones_like = _of_one_number(0.0), _of_one_number(1.0)

__getattr__ = missing(__name__)
del missing
