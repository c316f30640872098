"""Pooling beyond that of layer.py: one dim, and results of a given size."""
import tessera
from tessera import ops as _ops

from mindspore import _check
from mindspore.nn.cell import Cell
from mindspore.ops import neural


def _one_dim(name, reduce):
    class Pool(Cell):
        def __init__(self, kernel_size=1, stride=1, pad_mode="valid"):
            super().__init__()
            for what, value in (("kernel_size", kernel_size), ("stride", stride)):
                _check.integer(name, what, value, 1)
            self.settings = ((1, kernel_size), (1, stride), _check.one_of(name, "pad_mode", pad_mode.lower(), ("valid", "same")))

        def construct(self, x):
            dims = (0, 2) if x.ndim == 2 else (2, )
            return _ops.squeeze(reduce(_ops.expand_dims(x, dims), *self.settings), dims)

    Pool.__name__ = Pool.__qualname__ = name
    Pool.__doc__ = f"{'The largest element' if 'Max' in name else 'The mean'} of each window of x [n,c,l] or [c,l]; pad_mode: valid or same."
    return Pool


MaxPool1d = _one_dim("MaxPool1d", _ops.max_pool2d)
AvgPool1d = _one_dim("AvgPool1d", _ops.avg_pool2d)


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
