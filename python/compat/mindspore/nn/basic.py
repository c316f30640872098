"""Small cells of arrays: what functions of ops do, with settings."""
import tessera
from tessera import ops as _ops

from mindspore import _check
from mindspore.nn.cell import Cell
from mindspore.ops import arithmetic, array, neural


class OneHot(Cell):
    """indices [...] -> [..., depth]: on_value at the index, off_value elsewhere; the new dim is at `axis`."""

    def __init__(self, axis=-1, depth=1, on_value=1.0, off_value=0.0, dtype=tessera.float32):
        super().__init__()
        self.axis, self.depth, self.dtype = _check.integer("OneHot", "axis", axis), _check.integer("OneHot", "depth", depth, 1), dtype
        self.on_value, self.off_value = on_value, off_value

    def construct(self, indices):
        on, off = (_ops.fill((), float(value), self.dtype) for value in (self.on_value, self.off_value))
        return _ops.one_hot(indices, self.depth, on, off, self.axis)


class ClipByNorm(Cell):
    """(x, clip_norm) -> x scaled so that its root of the sum of squares along axes, or of all, is at most clip_norm."""

    def __init__(self, axis=None):
        super().__init__()
        self.axis = axis

    def construct(self, x, clip_norm):
        squares = _ops.reduce_sum(_ops.square(x), self.axis, True)
        is_zero = _ops.equal(squares, 0.0)
        norm = _ops.select(is_zero, _ops.zeros_like(squares), _ops.sqrt(_ops.select(is_zero, _ops.ones_like(squares), squares)))
        return x * clip_norm / _ops.maximum(norm, clip_norm)


class Norm(Cell):
    """The root of the sum of squares along axes."""

    def __init__(self, axis=(), keep_dims=False):
        super().__init__()
        self.axis, self.keep_dims = axis, _check.boolean("Norm", "keep_dims", keep_dims)

    def construct(self, x):
        return _ops.sqrt(_ops.reduce_sum(_ops.square(x), self.axis, self.keep_dims))


class L1Regularizer(Cell):
    """scale * the sum of |weights|."""

    def __init__(self, scale):
        super().__init__()
        self.scale = _check.non_negative("L1Regularizer", "scale", scale)

    def construct(self, weights):
        return _ops.reduce_sum(_ops.abs(weights)) * self.scale


class Pad(Cell):
    """Elements around x, (before, after) of each dim: CONSTANT (zeros), REFLECT."""

    def __init__(self, paddings, mode="CONSTANT"):
        super().__init__()
        if _check.one_of("Pad", "mode", mode, ("CONSTANT", "REFLECT", "SYMMETRIC")) == "SYMMETRIC":
            raise NotImplementedError("For 'Pad', mode SYMMETRIC is not available: concat a flipped piece")
        self.paddings = [side for pair in reversed(paddings) for side in pair]
        self.mode = mode.lower()

    def construct(self, x):
        return neural.pad(x, self.paddings, self.mode)


def _padding(name, ndim, mode):
    class Padding(Cell):
        def __init__(self, padding, value=None):
            super().__init__()
            if value is not None and "Constant" not in name:
                raise TypeError(f"For '{name}', there are too many arguments: a value is that of ConstantPad{ndim}d.")
            self.padding = (padding, ) * (2 * ndim) if isinstance(padding, int) else tuple(padding)
            if len(self.padding) > 2 * ndim or len(self.padding) % 2:
                raise ValueError(f"For '{name}', the 'padding' must be int or pairs for at most {ndim} dims, but got {padding}.")
            self.value = None if value is None else float(value)

        def construct(self, x):
            return neural.pad(x, self.padding, mode, self.value)

    Padding.__name__ = Padding.__qualname__ = name
    Padding.__doc__ = f"Elements around the last {ndim} dims, {mode}: (left, right, top, bottom, ...)."
    return Padding


ConstantPad1d, ConstantPad2d, ConstantPad3d = (_padding(f"ConstantPad{n}d", n, "constant") for n in (1, 2, 3))
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = (_padding(f"ReflectionPad{n}d", n, "reflect") for n in (1, 2, 3))
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = (_padding(f"ReplicationPad{n}d", n, "replicate") for n in (1, 2, 3))
ZeroPad2d = _padding("ZeroPad2d", 2, "constant")


class PixelShuffle(Cell):
    """[..., c r^2, h, w] -> [..., c, h r, w r]."""

    def __init__(self, upscale_factor):
        super().__init__()
        self.upscale_factor = _check.integer("PixelShuffle", "upscale_factor", upscale_factor, 1)

    def construct(self, x):
        return neural.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(Cell):
    """[..., c, h r, w r] -> [..., c r^2, h, w]."""

    def __init__(self, downscale_factor):
        super().__init__()
        self.downscale_factor = _check.integer("PixelUnshuffle", "downscale_factor", downscale_factor, 1)

    def construct(self, x):
        return neural.pixel_unshuffle(x, self.downscale_factor)


class ChannelShuffle(Cell):
    """The channels of all groups in turns."""

    def __init__(self, groups):
        super().__init__()
        self.groups = _check.integer("ChannelShuffle", "groups", groups, 1)

    def construct(self, x):
        return neural.channel_shuffle(x, self.groups)


class Unflatten(Cell):
    """One dim as several."""

    def __init__(self, axis, unflattened_size):
        super().__init__()
        self.axis, self.unflattened_size = _check.integer("Unflatten", "axis", axis), tuple(unflattened_size)

    def construct(self, x):
        axis = self.axis % x.ndim
        return _ops.reshape(x, (*x.shape[:axis], *self.unflattened_size, *x.shape[axis + 1:]))


class Tril(Cell):
    """(x, k=0) -> the last two dims with zeros right of a diagonal."""

    def construct(self, x, k=0):
        return array.tril(x, k)


class Triu(Cell):
    """(x, k=0) -> the last two dims with zeros left of a diagonal."""

    def construct(self, x, k=0):
        return array.triu(x, k)


class Roll(Cell):
    """The elements moved on along axes; what leaves at the end comes in in front."""

    def __init__(self, shift, axis):
        super().__init__()
        self.shift, self.axis = shift, axis

    def construct(self, x):
        return array.roll(x, self.shift, self.axis)


class Range(Cell):
    """start, start + delta, ... before limit; one argument: the limit."""

    def __init__(self, start, limit=None, delta=1):
        super().__init__()
        first, last = (0, start) if limit is None else (start, limit)
        numbers = (first, last, delta)
        is_whole = all(isinstance(n, int) for n in numbers)
        self.settings = (*[float(n) for n in numbers], tessera.int32 if is_whole else tessera.float32)

    def construct(self):
        return _ops.range(*self.settings)


class ReduceLogSumExp(Cell):
    """The logarithm of the sum of e^x along axes."""

    def __init__(self, axis, keep_dims=False):
        super().__init__()
        self.axis, self.keep_dims = axis, _check.boolean("ReduceLogSumExp", "keep_dims", keep_dims)

    def construct(self, x):
        return arithmetic.logsumexp(x, self.axis, self.keep_dims)


class Moments(Cell):
    """(mean, variance) along axes, or of all."""

    def __init__(self, axis=None, keep_dims=None):
        super().__init__()
        self.axis, self.keep_dims = axis, bool(keep_dims)

    def construct(self, x):
        variance, mean = arithmetic.var_mean(x, self.axis, 0, self.keep_dims)
        return mean, variance


class MatMul(Cell):
    """The product of matrices, of which each may be transposed first."""

    def __init__(self, transpose_x1=False, transpose_x2=False):
        super().__init__()
        self.settings = (_check.boolean("MatMul", "transpose_x1", transpose_x1), _check.boolean("MatMul", "transpose_x2", transpose_x2))

    def construct(self, x1, x2):
        return _ops.matmul(x1, x2, *self.settings)
