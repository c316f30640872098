"""Pooling beyond that of layer.py: one dim, and results of a given size."""
import tessera
from tessera import ops as _ops

from mindspore import _check
from mindspore.nn.cell import Cell
from mindspore.nn.layer import AvgPool2d, MaxPool2d
from mindspore.ops import neural


class _Pool1d(Cell):
    """A pool of images of one row."""

    _inner = "pool"

    def __init__(self, pool, kernel_size, stride, pad_mode, padding, *settings):
        super().__init__()
        who = type(self).__name__
        for what, value in (("kernel_size", kernel_size), ("stride", stride)):
            _check.integer(who, what, value, 1)
        _check.one_of(who, "pad_mode", pad_mode.lower(), ("valid", "same", "pad"))
        sizes = padding if isinstance(padding, (tuple, list)) else (padding, )
        if len(sizes) != 1:
            raise ValueError(f"For '{who}', the 'padding' must be int or a tuple of one, but got {padding}.")
        self.pool = pool((1, kernel_size), (1, stride), pad_mode, (0, _check.integer(who, "padding", sizes[0], 0)), *settings)

    def construct(self, x):
        dims = (0, 2) if x.ndim == 2 else (2, )
        made = self.pool(_ops.expand_dims(x, dims))
        return tuple(_ops.squeeze(one, dims) for one in made) if isinstance(made, tuple) else _ops.squeeze(made, dims)


class MaxPool1d(_Pool1d):
    """The largest element of each window of x [n,c,l] or [c,l]; pad_mode: valid, same or pad. return_indices: with its place."""

    def __init__(self, kernel_size=1, stride=1, pad_mode="valid", padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__(MaxPool2d, kernel_size, stride, pad_mode, padding, dilation if dilation == 1 else (1, dilation), return_indices, ceil_mode)


class AvgPool1d(_Pool1d):
    """The mean of each window of x [n,c,l] or [c,l]; pad_mode: valid, same or pad."""

    def __init__(self, kernel_size=1, stride=1, pad_mode="valid", padding=0, ceil_mode=False, count_include_pad=True):
        super().__init__(AvgPool2d, kernel_size, stride, pad_mode, padding, ceil_mode, count_include_pad)


def _sizes(who, output_size):
    pair = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size, output_size)
    if len(pair) != 2:
        raise ValueError(f"For '{who}', the 'output_size' must be int or a tuple of 2, but got {output_size}.")
    for size in pair:
        if size is not None:
            _check.integer(who, "output_size", size, 1)
    return pair


class AdaptiveAvgPool2d(Cell):
    """x [n,c,h,w] -> [n,c,*output_size]: averages of windows that cover the image; a size None is the image's own."""

    def __init__(self, output_size):
        super().__init__()
        self.output_size = _sizes("AdaptiveAvgPool2d", output_size)
        self.pool = tessera.nn.AdaptiveAvgPool2d(*self.output_size)

    def construct(self, x):
        return self.pool(x) if x.ndim == 4 else _ops.squeeze(self.pool(_ops.expand_dims(x, 0)), 0)


class AdaptiveMaxPool2d(Cell):
    """The same with the largest element of each window; return_indices is refused."""

    def __init__(self, output_size, return_indices=False):
        super().__init__()
        if _check.boolean("AdaptiveMaxPool2d", "return_indices", return_indices):
            raise NotImplementedError("For 'AdaptiveMaxPool2d', return_indices is not available: use ops.argmax")
        self.output_size = _sizes("AdaptiveMaxPool2d", output_size)

    def construct(self, x):
        return neural.adaptive_max_pool2d(x, self.output_size)


class AdaptiveAvgPool1d(Cell):
    """x [..., l] -> [..., output_size]: averages of windows that cover the last dim."""

    def __init__(self, output_size):
        super().__init__()
        self.output_size = _check.integer("AdaptiveAvgPool1d", "output_size", output_size, 1)

    def construct(self, x):
        return neural.adaptive_avg_pool1d(x, self.output_size)


class AdaptiveMaxPool1d(AdaptiveAvgPool1d):
    """x [..., l] -> [..., output_size]: the largest of windows that cover the last dim."""

    def construct(self, x):
        return neural.adaptive_max_pool1d(x, self.output_size)
