"""Functions of elements and reductions, made of tessera's operators."""
import functools as _functools
import math as _math

import numpy as _np
import tessera as _tessera
from tessera import ops as _ops

from mindspore import _check
from mindspore.ops.native import _named

_FLOATING = (_tessera.float16, _tessera.float32, _tessera.float64, _tessera.bfloat16)


def _is_tensor(x):
    return isinstance(x, (_tessera.Tensor, _tessera.Value, _tessera.Parameter))


_UNSIGNED = {"uint8": 2**8 - 1, "uint16": 2**16 - 1, "uint32": 2**32 - 1}


def _reversed_order(x):
    """x so that what was smallest is largest; done twice it is x. A minus would turn numbers around that have no opposite."""
    if x.dtype in _FLOATING:
        return -x
    if x.dtype == _tessera.bool_:
        return _ops.logical_not(x)
    return _ops.sub(_UNSIGNED.get(str(x.dtype).lower().split(".")[-1], -1), x)


def _floating(x):
    """x, or as float32 where it is of whole numbers."""
    return x if not _is_tensor(x) or x.dtype in _FLOATING else _ops.cast(x, _tessera.float32)


def _horner(x, coefficients):
    """The polynomial of these coefficients, the highest first."""
    value = coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


# --- exponentials and logarithms
def exp2(input):
    """2 to the power of x."""
    return _ops.exp(_floating(input) * _math.log(2.0))


def log2(input):
    """The logarithm to the base 2."""
    return _ops.log(_floating(input)) * (1.0 / _math.log(2.0))


def log10(input):
    """The logarithm to the base 10."""
    return _ops.log(_floating(input)) * (1.0 / _math.log(10.0))


def logaddexp(input, other):
    """log(e^x + e^y)."""
    return _ops.maximum(input, other) + _ops.log1p(_ops.exp(-_ops.abs(input - other)))


def logaddexp2(input, other):
    """log2(2^x + 2^y)."""
    return logaddexp(input * _math.log(2.0), other * _math.log(2.0)) * (1.0 / _math.log(2.0))


def logit(input, eps=None):
    """log(x / (1 - x)); x is first kept within eps and 1 - eps."""
    if eps is not None:
        input = _ops.minimum(_ops.maximum(input, eps), 1.0 - eps)
    return _ops.log(input / (1.0 - input))


def xlogy(input, other):
    """x * log(y), and 0 where x is 0."""
    is_zero = _ops.equal(input, 0)
    return _ops.select(is_zero, _ops.zeros_like(input * other), input * _ops.log(_ops.select(is_zero, _ops.ones_like(input * other), other + _ops.zeros_like(input))))


def hypot(input, other):
    """The root of x^2 + y^2."""
    return _ops.sqrt(_ops.square(input) + _ops.square(other))


# --- trigonometry
def asinh(input):
    """The inverse of sinh."""
    return _ops.asinh(_floating(input))


def acosh(input):
    """The inverse of cosh."""
    # Above 2^28 the root is x itself, and x^2 may be infinite.
    input = _floating(input)
    over = _ops.minimum(input, 2.0**28) - 1.0
    return _ops.select(_ops.greater(input, 2.0**28), _ops.log(input) + _math.log(2.0), _ops.log1p(over + _ops.sqrt(over * (over + 2.0))))


def atanh(input):
    """The inverse of tanh."""
    return _ops.atanh(_floating(input))


def atan(input):
    """The inverse of tan, between -pi/2 and pi/2."""
    # Moshier, "Methods and programs for mathematical functions" (1989): 0.66 and tan(3 pi / 8) part three ranges, each of
    # which is brought to |x| <= 0.66.
    size = _ops.abs(_floating(input))
    is_large, is_small = _ops.greater(size, 2.414213562373095), _ops.less_equal(size, 0.66)
    safe = _ops.maximum(size, 0.1)
    reduced = _ops.select(is_large, -1.0 / safe, _ops.select(is_small, size, (size - 1.0) / (size + 1.0)))
    start = _ops.select(is_large, _ops.ones_like(size) * (_math.pi / 2), _ops.select(is_small, _ops.zeros_like(size), _ops.ones_like(size) * (_math.pi / 4)))
    square = reduced * reduced
    series = square * _horner(square, (-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1, -1.228866684490136173410e2,
                                       -6.485021904942025371773e1)) / _horner(
        square, (1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2, 4.853903996359136964868e2, 1.945506571482613964425e2))
    angle = start + (reduced + reduced * series)
    # sign(0) is 0 and has no gradient: atan is odd.
    return _ops.select(_ops.less(input, 0.0), -angle, angle)


def asin(input):
    """The inverse of sin, between -pi/2 and pi/2."""
    return 2.0 * atan(input / (1.0 + _ops.sqrt((1.0 - input) * (1.0 + input))))


def acos(input):
    """The inverse of cos, between 0 and pi."""
    return _math.pi / 2 - asin(input)


def atan2(input, other):
    """The angle of the point (other, input), between -pi and pi."""
    zero = _ops.zeros_like(input + other)
    y, x = input + zero, other + zero
    is_on_axis = _ops.equal(x, 0.0)
    angle = atan(y / _ops.select(is_on_axis, _ops.ones_like(x), x))
    straight = _ops.sign(y) * (_math.pi / 2)
    turned = _ops.select(_ops.less(y, 0.0), angle - _math.pi, angle + _math.pi)
    return _ops.select(is_on_axis, straight, _ops.select(_ops.less(x, 0.0), turned, angle))


def sinc(input):
    """sin(pi x) / (pi x), and 1 for 0."""
    scaled = _floating(input) * _math.pi
    is_zero = _ops.equal(scaled, 0.0)
    safe = _ops.select(is_zero, _ops.ones_like(scaled), scaled)
    return _ops.select(is_zero, _ops.ones_like(scaled), _ops.sin(safe) / safe)


def deg2rad(x):
    """Degrees as radians."""
    return x * (_math.pi / 180)


def rad2deg(x):
    """Radians as degrees."""
    return x * (180 / _math.pi)


def _near_erf(x):
    """erf for |x| < 0.5: W. J. Cody, "Rational Chebyshev approximations for the error function", 1969."""
    square = x * x
    return x * _horner(square, (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3)) / _horner(
        square, (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3))


def _far_erfc(x):
    """erfc for x >= 0.46875 by the same, in two ranges that meet at 4."""
    near = _horner(x, (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1, 2.98635138197400131e2,
                       8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3)) / _horner(
        x, (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3, 3.29079923573345963e3,
            4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3))
    inverse = 1.0 / (x * x)
    far = (1.0 / _math.sqrt(_math.pi) - inverse * _horner(inverse, (
        1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4)) /
           _horner(inverse, (1.0, 2.56852019228982242e0, 1.87295284992346047e0, 5.27905102951428412e-1, 6.05183413124413191e-2,
                             2.33520497626869185e-3))) / x
    return _ops.exp(-x * x) * _ops.select(_ops.less(x, 4.0), near, far)


def erf(input):
    """2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x."""
    dtype = input.dtype
    x = _ops.cast(input, _tessera.float32) if dtype in (_tessera.float16, _tessera.bfloat16) else input
    size = _ops.abs(x)
    is_near = _ops.less(size, 0.5)
    near = _near_erf(_ops.select(is_near, x, _ops.zeros_like(x)))
    far = 1.0 - _far_erfc(_ops.minimum(_ops.select(is_near, _ops.ones_like(size), size), 6.0))
    return _ops.cast(_ops.select(is_near, near, _ops.select(_ops.less(x, 0.0), -far, far)), dtype)


def erfc(input):
    """1 - erf(x), to the precision of the type for large x, too."""
    dtype = input.dtype
    x = _ops.cast(input, _tessera.float32) if dtype in (_tessera.float16, _tessera.bfloat16) else input
    size = _ops.abs(x)
    is_near = _ops.less(size, 0.5)
    near = 1.0 - _near_erf(_ops.select(is_near, x, _ops.zeros_like(x)))
    far = _far_erfc(_ops.minimum(_ops.select(is_near, _ops.ones_like(size), size), 27.0))
    return _ops.cast(_ops.select(is_near, near, _ops.select(_ops.less(x, 0.0), 2.0 - far, far)), dtype)


# --- rounding and remainders
def trunc(input):
    """The whole number next to x on the way to 0."""
    if input.dtype not in _FLOATING:
        return input
    return _ops.select(_ops.less(input, 0), -_ops.floor(-_floating(input)), _ops.floor(_floating(input))).astype(input.dtype)


fix = trunc


def round(input, *, decimals=0):
    """The nearest whole number; of two the even one. decimals: digits behind the point that are kept."""
    if input.dtype not in _FLOATING:
        return input
    scaled = input * float(10**decimals) if decimals else input
    low = _ops.floor(scaled)
    rest = scaled - low
    is_odd = _ops.not_equal(low - 2.0 * _ops.floor(low * 0.5), 0.0)
    is_up = _ops.logical_or(_ops.greater(rest, 0.5), _ops.logical_and(_ops.equal(rest, 0.5), is_odd))
    rounded = low + _ops.cast(is_up, low.dtype)
    return rounded / float(10**decimals) if decimals else rounded


def frac(x):
    """x - trunc(x)."""
    return x - trunc(x)


def floor_mod(x, y):
    """What is left of x beyond a whole number of y, with y's sign."""
    return x % y


remainder = _named(floor_mod, input="x", other="y")


def fmod(input, other):
    """What is left of x beyond a whole number of y, with x's sign."""
    left = _ops.abs(input) % (_ops.abs(other) if _is_tensor(other) else abs(other))
    return _ops.select(_ops.less(input, 0), -left, left)


truncate_mod = _named(fmod, x="input", y="other")


def truncate_div(x, y):
    """x / y without what is behind the point."""
    dtype = (x + y).dtype
    if dtype not in _FLOATING:  # divided as float64, exactly up to 2^53
        x, y = (_ops.cast(part, _tessera.float64) if _is_tensor(part) else part for part in (x, y))
    return _ops.cast(trunc(_ops.div(x, y)), dtype)


def floor_divide(input, other):
    """The largest whole number not above x / y."""
    return input // other


def div(input, other, *, rounding_mode=None):
    """input / other; rounding_mode: None, "floor" or "trunc"."""
    if rounding_mode not in (None, "floor", "trunc"):
        raise ValueError(f"For 'div', the 'rounding_mode' must be None, 'floor' or 'trunc', but got {rounding_mode!r}.")
    if rounding_mode is None:
        return _ops.div(input, other)
    return floor_divide(input, other) if rounding_mode == "floor" else truncate_div(input, other)


# --- elementwise arithmetic under other names
divide = div
arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh = acos, acosh, _named(asin, x="input"), asinh, atan, atan2, atanh


def float_power(input, exponent):
    """x to the power of y, in float64."""
    wide = lambda x: _ops.cast(x, _tessera.float64) if _is_tensor(x) else x  # noqa: E731
    return _ops.pow(wide(input), wide(exponent))


def positive(input):
    """x."""
    return input


def lerp(input, end, weight):
    """start + weight * (end - start)."""
    return input + weight * (end - input)


def addcmul(input, tensor1, tensor2, value=1):
    """x + value * a * b."""
    return input + value * (tensor1 * tensor2)


def addcdiv(input, tensor1, tensor2, value=1):
    """x + value * a / b."""
    return input + value * (tensor1 / tensor2)


def accumulate_n(x):
    """The sum of several tensors."""
    return _functools.reduce(_ops.add, x)


def clamp(input, min=None, max=None):
    """x, at least min and at most max; each may be absent, but not both."""
    if min is None and max is None:
        raise ValueError("For 'clamp', at least one of 'min' and 'max' must not be None.")
    if isinstance(input, (tuple, list)):
        return type(input)(clamp(item, min, max) for item in input)
    x = input if min is None else _ops.maximum(input, min)
    return _ops.cast(x if max is None else _ops.minimum(x, max), input.dtype)


clip = clamp


_LARGEST = {"float16": 65504.0, "bfloat16": float.fromhex("0x1.fep127"), "float64": float(_np.finfo(_np.float64).max)}


def nan_to_num(input, nan=None, posinf=None, neginf=None):
    """x with these numbers for NaN (0) and the infinities (the dtype's largest numbers)."""
    largest = _LARGEST.get(str(input.dtype).lower().split(".")[-1], float(_np.finfo(_np.float32).max))
    is_nan = _ops.not_equal(input, input)
    input = _ops.select(is_nan, _ops.zeros_like(input) if nan is None else _ops.ones_like(input) * float(nan), input)
    input = _ops.select(_ops.equal(input, float("inf")), largest if posinf is None else float(posinf), input)
    return _ops.select(_ops.equal(input, float("-inf")), -largest if neginf is None else float(neginf), input)


def heaviside(input, values):
    """0 where x < 0, values where it is 0, 1 where it is more."""
    return _ops.select(_ops.equal(input, 0), values + _ops.zeros_like(input), _ops.cast(_ops.greater(input, 0), input.dtype) + _ops.zeros_like(values))


def copysign(x, other):
    """|x| with the sign of the other."""
    return _ops.select(_ops.less(other, 0), -_ops.abs(x), _ops.abs(x))


def signbit(input):
    """Where x is below 0."""
    return _ops.less(input, 0)


def sgn(input):
    """-1, 0 or 1."""
    return _ops.sign(input)


def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Where |x - y| <= atol + rtol * |y|."""
    near = _ops.logical_and(_ops.less_equal(_ops.abs(input - other), atol + rtol * _ops.abs(other)), _ops.is_finite(other - other))
    near = _ops.logical_or(near, _ops.equal(input, other))
    return _ops.logical_or(near, _ops.logical_and(_ops.not_equal(input, input), _ops.not_equal(other, other))) if equal_nan else near


def approximate_equal(x, y, tolerance=1e-5):
    """Where |x - y| is below the tolerance."""
    return _ops.less(_ops.abs(x - y), tolerance)


def isneginf(input):
    """Where x is -inf."""
    return _ops.equal(input, float("-inf"))


def isposinf(input):
    """Where x is inf."""
    return _ops.equal(input, float("inf"))


def isreal(input):
    """True everywhere: there are no complex numbers."""
    return _ops.equal(_ops.zeros_like(input), 0)


def is_complex(input):
    """False: there are no complex numbers."""
    return False


def is_floating_point(input):
    """Whether x is of a floating dtype."""
    return input.dtype in _FLOATING


# --- reductions
def _axes(axis):
    return () if axis is None else axis


def all(input, axis=None, keep_dims=False):
    """Whether all are true along the axes."""
    return _ops.reduce_all(_ops.not_equal(input, 0) if input.dtype != _tessera.bool_ else input, _axes(axis), keep_dims)


def any(input, axis=None, keep_dims=False):
    """Whether one is true along the axes."""
    return _ops.reduce_any(_ops.not_equal(input, 0) if input.dtype != _tessera.bool_ else input, _axes(axis), keep_dims)


def sum(input, dim=None, keepdim=False, *, dtype=None):
    """The sum along dims."""
    if input.dtype == _tessera.bool_:
        input = _ops.cast(input, _tessera.int64)
    return _ops.reduce_sum(input if dtype is None else _ops.cast(input, dtype), _axes(dim), keepdim)


def mean(x, axis=None, keep_dims=False):
    """The mean along axes."""
    return _ops.reduce_mean(x, _axes(axis), keep_dims)


def prod(input, axis=None, keep_dims=False, dtype=None):
    """The product along axes."""
    return _ops.reduce_prod(input if dtype is None else _ops.cast(input, dtype), _axes(axis), keep_dims)


def amax(input, axis=None, keepdims=False, *, initial=None, where=None):
    """The largest along axes; initial and where are refused."""
    if initial is not None or where is not None:
        raise NotImplementedError("For 'amax', initial and where are not available: use ops.maximum and ops.where")
    return _ops.reduce_max(input, _axes(axis), keepdims)


def amin(input, axis=None, keepdims=False, *, initial=None, where=None):
    """The smallest along axes; initial and where are refused."""
    if initial is not None or where is not None:
        raise NotImplementedError("For 'amin', initial and where are not available: use ops.minimum and ops.where")
    return _ops.reduce_min(input, _axes(axis), keepdims)


def _kept(x, axis, keepdims):
    return _ops.expand_dims(x, axis) if keepdims else x


def max(input, axis=None, keepdims=False, *, initial=None, where=None):
    """(the largest, their places) along an axis; without one the largest of all and place 0."""
    if axis is None:
        return amax(input, None, False, initial=initial, where=where), _tessera.Tensor(0, _tessera.int64)
    return amax(input, axis, keepdims, initial=initial, where=where), _kept(_ops.cast(_ops.argmax(input, axis), _tessera.int64), axis, keepdims)


def min(input, axis=None, keepdims=False, *, initial=None, where=None):
    """(the smallest, their places) along an axis; without one the smallest of all and place 0."""
    if axis is None:
        return amin(input, None, False, initial=initial, where=where), _tessera.Tensor(0, _tessera.int64)
    return amin(input, axis, keepdims, initial=initial, where=where), _kept(_ops.cast(_ops.argmax(_reversed_order(input), axis), _tessera.int64), axis, keepdims)


def _over_axes(reduce):
    def over_axes(x, axis=()):
        return reduce(x, axis)

    over_axes.__name__ = over_axes.__qualname__ = reduce.__name__
    over_axes.__doc__ = f"{reduce.__name__} over axes, all of them where none is named."
    return over_axes


reduce_sum, reduce_mean, reduce_max, reduce_min = map(_over_axes, (_ops.reduce_sum, _ops.reduce_mean, _ops.reduce_max, _ops.reduce_min))


def aminmax(input, *, axis=0, keepdims=False):
    """(the smallest, the largest) along an axis; None: of all."""
    return amin(input, axis, keepdims), amax(input, axis, keepdims)


def argmax(input, dim=None, keepdim=False):
    """The place of the largest along a dim, the first of several; without one in the flattened tensor. int64."""
    if dim is None:
        return _ops.cast(_ops.argmax(_ops.reshape(input, (-1, )), 0), _tessera.int64)
    return _kept(_ops.cast(_ops.argmax(input, dim), _tessera.int64), dim, keepdim)


def argmin(input, axis=None, keepdims=False):
    """The place of the smallest along an axis, the first of several. int32."""
    return _ops.cast(argmax(_reversed_order(input), axis, keepdims), _tessera.int32)


def _center(input, axis):
    return input - _ops.reduce_mean(input, _axes(axis), True)


def _count(input, axis):
    if axis is None or axis == ():
        return input.size
    return _math.prod(input.shape[i] for i in (axis if isinstance(axis, (tuple, list)) else (axis, )))


def var(input, axis=None, ddof=0, keepdims=False):
    """The sum of squared distances from the mean over the number of elements less ddof (True: 1)."""
    return _ops.reduce_sum(_ops.square(_center(input, axis)), _axes(axis), keepdims) / float(_count(input, axis) - int(ddof))


def std(input, axis=None, ddof=0, keepdims=False):
    """The root of var()."""
    return _ops.sqrt(var(input, axis, ddof, keepdims))


def var_mean(input, axis=None, ddof=0, keepdims=False):
    """(var, mean)."""
    return var(input, axis, ddof, keepdims), _ops.reduce_mean(input, _axes(axis), keepdims)


def std_mean(input, axis=None, ddof=0, keepdims=False):
    """(std, mean)."""
    return std(input, axis, ddof, keepdims), _ops.reduce_mean(input, _axes(axis), keepdims)


def logsumexp(input, dim=None, keepdim=False, *, axis=None, keep_dims=None):
    """The logarithm of the sum of e^x along dims, which 2.0 calls axis, as it calls keepdim keep_dims."""
    if (dim is None) == (axis is None):
        raise TypeError("For 'logsumexp', the 'dim' must be given, or the 'axis', as it is called in 2.0, and not both.")
    dim, keepdim = axis if dim is None else dim, keepdim if keep_dims is None else keep_dims
    largest = _ops.stop_gradient(_ops.reduce_max(input, dim, True))
    total = _ops.log(_ops.reduce_sum(_ops.exp(input - largest), dim, True)) + largest
    return total if keepdim else _ops.reshape(total, _ops.reduce_max(input, dim, False).shape)


def nansum(input, axis=None, keepdims=False, *, dtype=None):
    """The sum along axes of what is a number."""
    return sum(_ops.select(_ops.not_equal(input, input), _ops.zeros_like(input), input), axis, keepdims, dtype=dtype)


def nanmean(input, axis=None, keepdims=False, *, dtype=None):
    """The mean along axes of what is a number."""
    counts = _ops.reduce_sum(_ops.cast(_ops.equal(input, input), input.dtype), _axes(axis), keepdims)
    return nansum(input, axis, keepdims, dtype=dtype) / counts


def count_nonzero(x, axis=(), keep_dims=False, dtype=_tessera.int32):
    """How many along the axes are not 0."""
    return _ops.cast(_ops.reduce_sum(_ops.cast(_ops.not_equal(x, 0), _tessera.int32), _axes(axis), keep_dims), dtype)


def vector_norm(x, ord=2, axis=None, keepdims=False, *, dtype=None):
    """The norm of order `ord` of the elements along axes: a number, inf or -inf."""
    x = _ops.abs(_floating(x) if dtype is None else _ops.cast(x, dtype))
    if ord == float("inf"):
        return _ops.reduce_max(x, _axes(axis), keepdims)
    if ord == float("-inf"):
        return _ops.reduce_min(x, _axes(axis), keepdims)
    if ord == 0:
        return _ops.reduce_sum(_ops.cast(_ops.not_equal(x, 0), x.dtype), _axes(axis), keepdims)
    if ord == 1:
        return _ops.reduce_sum(x, _axes(axis), keepdims)
    if ord == 2:
        return _ops.sqrt(_ops.reduce_sum(_ops.square(x), _axes(axis), keepdims))
    return _ops.pow(_ops.reduce_sum(_ops.pow(x, float(ord)), _axes(axis), keepdims), 1.0 / float(ord))


def norm(A, ord=None, dim=None, keepdim=False, *, dtype=None):
    """The norm along dims: of vectors, and of matrices the Frobenius norm ("fro", None), the largest row or column sum (inf, 1)
    or the smallest (-inf, -1). The nuclear and the spectral norm need singular values, which are refused."""
    dims = list(range(A.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if ord is None or ord == "fro" or len(dims) == 1 or (dim is None and A.ndim == 1):
        return vector_norm(A, 2 if ord in (None, "fro") else ord, tuple(dims), keepdim, dtype=dtype)
    if ord in (1, -1, float("inf"), float("-inf")) and len(dims) == 2:
        rows, columns = dims if abs(ord) == 1 else dims[::-1]
        sums = _ops.reduce_sum(_ops.abs(A if dtype is None else _ops.cast(A, dtype)), rows, True)
        best = (_ops.reduce_max if ord > 0 else _ops.reduce_min)(sums, columns, True)
        return best if keepdim else _ops.squeeze(best, tuple(dims))
    raise NotImplementedError(f"For 'norm', ord={ord!r} of a matrix is not available: compute it with numpy.linalg.norm of asnumpy()")


def dist(input, other, p=2):
    """The norm of order p of the difference."""
    return vector_norm(input - other, p)


def clip_by_norm(x, max_norm, norm_type=2.0, error_if_nonfinite=False):
    """Tensors, or one, scaled so that the norm of all of them together is at most max_norm."""
    if error_if_nonfinite:
        raise NotImplementedError("For 'clip_by_norm', error_if_nonfinite is not available: training stops at a loss that is not finite")
    items = list(x) if isinstance(x, (tuple, list)) else [x]
    if norm_type == float("inf"):
        total = _functools.reduce(_ops.maximum, [vector_norm(item, norm_type) for item in items])
    else:
        powers = [_ops.reduce_sum(_ops.pow(_ops.abs(item), float(norm_type))) for item in items]
        total = _ops.pow(_functools.reduce(_ops.add, powers), 1.0 / float(norm_type))
    factor = _ops.minimum(float(max_norm) / (total + 1e-6), 1.0)
    scaled = [item * _ops.cast(factor, item.dtype) for item in items]
    return type(x)(scaled) if isinstance(x, (tuple, list)) else scaled[0]


# --- products
def mm(input, mat2):
    """The product of two matrices."""
    return _ops.matmul(input, mat2)


def bmm(input_x, mat2):
    """Products of the matrices of two batches."""
    return _ops.batch_matmul(input_x, mat2)


def mv(mat, vec):
    """A matrix times a vector."""
    return _ops.matmul(mat, vec)


def dot(input, other):
    """Products of the last dim of x with the last but one of y; of vectors their inner product."""
    if input.ndim == 1 or other.ndim <= 2:
        return _ops.matmul(input, other)
    return tensor_dot(input, other, ((input.ndim - 1, ), (other.ndim - 2, )))


def inner(input, other):
    """Sums over the last dims of both."""
    if input.ndim == 0 or other.ndim == 0:
        return input * other
    return tensor_dot(input, other, ((input.ndim - 1, ), (other.ndim - 1, )))


def outer(input, vec2):
    """x[i] * y[j]."""
    return _ops.expand_dims(input, 1) * _ops.expand_dims(vec2, 0)


ger = outer


def tensor_dot(x1, x2, axes):
    """Sums of products over axes: a number (the last of x, the first of y), or a pair of lists of them."""
    if isinstance(axes, int):
        first, second = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        first, second = ([item] if isinstance(item, int) else list(item) for item in axes)
    first, second = [i % x1.ndim for i in first], [i % x2.ndim for i in second]
    kept_first = [i for i in range(x1.ndim) if i not in first]
    kept_second = [i for i in range(x2.ndim) if i not in second]
    left = _ops.reshape(_ops.transpose(x1, (*kept_first, *first)), (-1, _math.prod(x1.shape[i] for i in first)))
    right = _ops.reshape(_ops.transpose(x2, (*second, *kept_second)), (_math.prod(x2.shape[i] for i in second), -1))
    return _ops.reshape(_ops.matmul(left, right), (*(x1.shape[i] for i in kept_first), *(x2.shape[i] for i in kept_second)))


def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """beta * x + alpha * a b."""
    return beta * input + alpha * _ops.matmul(mat1, mat2)


def addmv(input, mat, vec, *, beta=1, alpha=1):
    """beta * x + alpha * a v."""
    return beta * input + alpha * _ops.matmul(mat, vec)


def addr(x, vec1, vec2, *, beta=1, alpha=1):
    """beta * x + alpha * outer(a, b)."""
    return beta * x + alpha * outer(vec1, vec2)


def baddbmm(input, batch1, batch2, beta=1, alpha=1):
    """beta * x + alpha * the products of two batches."""
    return beta * input + alpha * _ops.batch_matmul(batch1, batch2)


def addbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """beta * x + alpha * the sum of the products of two batches."""
    return beta * input + alpha * _ops.reduce_sum(_ops.batch_matmul(batch1, batch2), 0)


def kron(input, other):
    """Every element of x times all of y."""
    ndim = input.ndim if input.ndim > other.ndim else other.ndim
    a, b = (1, ) * (ndim - input.ndim) + tuple(input.shape), (1, ) * (ndim - other.ndim) + tuple(other.shape)
    product = _ops.reshape(input, [n for size in a for n in (size, 1)]) * _ops.reshape(other, [n for size in b for n in (1, size)])
    return _ops.reshape(product, [m * n for m, n in zip(a, b)])


def cross(input, other, dim=None):
    """The vector product along a dim of size 3; without one the first such."""
    if dim is None:
        if 3 not in tuple(input.shape):
            raise ValueError(f"For 'cross', one dim must have size 3, but got {list(input.shape)}.")
        dim = tuple(input.shape).index(3)
    dim = _check.axis("cross", "dim", dim, input.ndim)
    x, y = _ops.split(input, 3, dim), _ops.split(other, 3, dim)
    return _ops.concat([x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]], dim)


def vecdot(x, y, *, axis=-1):
    """Sums of products along an axis."""
    return _ops.reduce_sum(x * y, axis)


def cosine_similarity(x1, x2, dim=1, eps=1e-08):
    """The cosine of the angle between vectors along a dim."""
    norms = _ops.maximum(_ops.reduce_sum(_ops.square(x1), dim) * _ops.reduce_sum(_ops.square(x2), dim), eps * eps)
    return _ops.reduce_sum(x1 * x2, dim) / _ops.sqrt(norms)


def cumsum(x, axis, dtype=None):
    """Sums of the elements so far along an axis."""
    return _ops.cumsum(x if dtype is None else _ops.cast(x, dtype), axis)


def cumprod(input, dim, dtype=None):
    """Products of the elements so far along a dim."""
    x = input if dtype is None else _ops.cast(input, dtype)
    if x.shape[_check.axis("cumprod", "dim", dim, x.ndim)] < 2:
        return x
    pieces = list(_ops.split(x, x.shape[dim], dim))
    for i in range(1, len(pieces)):
        pieces[i] = pieces[i - 1] * pieces[i]
    return _ops.concat(pieces, dim)


def diff(x, n=1, axis=-1, prepend=None, append=None):
    """Differences of neighbours along an axis, n times."""
    axis = _check.axis("diff", "axis", axis, x.ndim)
    x = _ops.concat([item for item in (prepend, x, append) if item is not None], axis)
    for _ in range(n):
        size = x.shape[axis]
        whole = (slice(None), ) * axis
        x = x[(*whole, slice(1, size))] - x[(*whole, slice(0, size - 1))]
    return x


def einsum(equation, *operands):
    """Sums of products, as the equation says with a letter for each dim: "ij,jk->ik"."""
    operands = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else list(operands)
    left, arrow, result = equation.replace(" ", "").partition("->")
    if "." in left:
        raise NotImplementedError("For 'einsum', ... is not available: write a letter for each dim")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ValueError(f"For 'einsum', the equation {equation} has {len(terms)} operands, but got {len(operands)}.")
    if not arrow:
        letters = "".join(terms)
        result = "".join(letter for letter in sorted(set(letters)) if letters.count(letter) == 1)
    if _any_repeats(terms):
        raise NotImplementedError("For 'einsum', a letter that is twice in one operand is not available: take its diagonal first")
    term, value = terms[0], operands[0]
    for i in range(1, len(terms)):
        later = set(result).union(*terms[i + 1:])
        term, value = _contract(term, value, terms[i], operands[i], later)
    gone = [dim for dim, letter in enumerate(term) if letter not in result]
    if gone:
        value, term = _ops.reduce_sum(value, gone), "".join(letter for letter in term if letter in result)
    return _ops.transpose(value, [term.index(letter) for letter in result]) if len(result) > 1 else value


def _any_repeats(terms):
    """Whether a term has a letter twice."""
    return [term for term in terms if len(set(term)) != len(term)] != []


def _contract(first, x, second, y, later):
    """Two operands of einsum as one: a product of matrices over the letters that both have and nobody asks for later."""
    summed = [c for c in first if c in second and c not in later]
    both = [c for c in first if c in second and c in later]
    # What only one has, and nobody asks for, goes at once.
    for name, value in ((first, x), (second, y)):
        gone = [dim for dim, c in enumerate(name) if c not in later and c not in (second if name is first else first)]
        if gone:
            kept = "".join(c for dim, c in enumerate(name) if dim not in gone)
            if name is first:
                return _contract(kept, _ops.reduce_sum(value, gone), second, y, later)
            return _contract(first, x, kept, _ops.reduce_sum(value, gone), later)
    rows, columns = [c for c in first if c not in second], [c for c in second if c not in first]
    sizes = {**dict(zip(first, x.shape)), **dict(zip(second, y.shape))}
    count = lambda letters: _math.prod(sizes[c] for c in letters)  # noqa: E731
    x = _ops.transpose(x, [first.index(c) for c in both + rows + summed]) if len(first) > 1 else x
    y = _ops.transpose(y, [second.index(c) for c in both + summed + columns]) if len(second) > 1 else y
    product = _ops.batch_matmul(_ops.reshape(x, (count(both), count(rows), count(summed))), _ops.reshape(y, (count(both), count(summed), count(columns))))
    letters = both + rows + columns
    return "".join(letters), _ops.reshape(product, [sizes[c] for c in letters])
