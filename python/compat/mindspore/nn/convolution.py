"""Filters over sequences, and the transposes of filters."""
import math

import tessera
from tessera import ops as _ops

from mindspore import _check
from mindspore import ops as P
from mindspore.common.initializer import HeUniform, Uniform, initializer
from mindspore.common.parameter import Parameter
from mindspore.nn.cell import Cell


class Filters(Cell):
    """What these cells share: weight and bias. Without initializers both are even in +-1 / sqrt(fan_in)."""

    def __init__(self, in_channels, out_channels, weight_shape, group, has_bias, weight_init, bias_init, dtype):
        super().__init__()
        who = type(self).__name__
        self.in_channels, self.out_channels, self.group = in_channels, out_channels, group
        self.has_bias = _check.boolean(who, "has_bias", has_bias)
        weight_init = HeUniform(math.sqrt(5)) if weight_init is None else weight_init
        self.weight = Parameter(initializer(weight_init, weight_shape, dtype), name="weight")
        if has_bias:
            bias_init = Uniform(1 / math.sqrt(math.prod(weight_shape[1:]))) if bias_init is None else bias_init
            self.bias = Parameter(initializer(bias_init, [out_channels], dtype), name="bias")
        else:
            self.bias = None
        self.bias_add = P.BiasAdd()

    def with_bias(self, x):
        """x plus the bias, where there is one."""
        return self.bias_add(x, self.bias) if self.has_bias else x


def check_channels(who, in_channels, out_channels, group):
    """TypeError or ValueError unless all are positive and the group divides the channels."""
    for name, value in (("in_channels", in_channels), ("out_channels", out_channels), ("group", group)):
        _check.integer(who, name, value, 1)
    if in_channels % group or out_channels % group:
        raise ValueError(f"For '{who}', the channels {in_channels} and {out_channels} must be divisible by 'group' {group}.")


def _check_row(who, kernel_size, stride, pad_mode, padding, dilation):
    for name, value in (("kernel_size", kernel_size), ("stride", stride), ("dilation", dilation)):
        _check.integer(who, name, value, 1)
    _check.integer(who, "padding", padding, 0)
    _check.one_of(who, "pad_mode", pad_mode, ("valid", "same", "pad"))
    if padding and pad_mode != "pad":
        raise ValueError(f"For '{who}', the 'padding' must be zero when 'pad_mode' is '{pad_mode}', but got {padding}.")


def _of_row(who, weight_init):
    """A tensor of filters over sequences as one of filters over images of one row."""
    if not isinstance(weight_init, tessera.Tensor):
        return weight_init
    if weight_init.ndim != 3:
        raise ValueError(f"For '{who}', the 'weight_init' must have 3 dims, but got {weight_init.ndim}.")
    return weight_init.expand_dims(2)


def _as_image(who, x):
    if x.ndim != 3:
        raise ValueError(f"For '{who}', the dimension of input must be 3d, but got {x.ndim}.")
    return _ops.expand_dims(x, 2)


class Conv1d(Filters):
    """x [n,in_channels,l] -> [n,out_channels,l']. Parameters weight [out_channels, in_channels / group, 1, kernel_size], bias if has_bias."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, pad_mode="same", padding=0, dilation=1, group=1, has_bias=False,
                 weight_init=None, bias_init=None, dtype=tessera.float32):
        _check_row("Conv1d", kernel_size, stride, pad_mode, padding, dilation)
        check_channels("Conv1d", in_channels, out_channels, group)
        super().__init__(in_channels, out_channels, [out_channels, in_channels // group, 1, kernel_size], group, has_bias,
                         _of_row("Conv1d", weight_init), bias_init, dtype)
        self.kernel_size, self.stride, self.dilation = (1, kernel_size), (1, stride), (1, dilation)
        self.pad_mode, self.padding = pad_mode, (0, 0, padding, padding)
        self.conv2d = P.Conv2D(out_channels, self.kernel_size, 1, pad_mode, self.padding, self.stride, self.dilation, group)

    def construct(self, x):
        return _ops.squeeze(self.with_bias(self.conv2d(_as_image("Conv1d", x), self.weight)), 2)


class _Transposed(Filters):
    """What the transposes share: the size of what they make."""

    def _set(self, kernel_size, stride, pad_mode, padding, dilation, group):
        self.kernel_size, self.stride, self.dilation = kernel_size, stride, dilation
        self.pad_mode, self.padding = pad_mode, padding
        self.conv2d_transpose = P.Conv2DTranspose(self.in_channels, kernel_size, pad_mode, padding, None, 1, stride, dilation, group)

    def _length(self, size, d):
        kernel, stride, dilation = self.kernel_size[d], self.stride[d], self.dilation[d]
        reach = kernel + (kernel - 1) * (dilation - 1)
        if self.pad_mode == "same":
            return size * stride
        if self.pad_mode == "valid":
            return size * stride + max(reach - stride, 0)
        return size * stride - self.padding[2 * d] - self.padding[2 * d + 1] + reach - stride

    def transposed(self, x):
        """x of images -> the larger ones, with the bias."""
        sizes = (x.shape[0], self.out_channels, self._length(x.shape[2], 0), self._length(x.shape[3], 1))
        return self.with_bias(self.conv2d_transpose(x, self.weight, sizes))

    def shard(self, strategy):
        """The strategy of the operator. Returns itself."""
        self.conv2d_transpose.shard(strategy)
        return self


class Conv2dTranspose(_Transposed):
    """x [n,in_channels,h,w] -> [n,out_channels,h',w'], the transpose of a convolution.
    Parameters weight [in_channels, out_channels / group, kh, kw], bias if has_bias."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, pad_mode="same", padding=0, output_padding=0, dilation=1, group=1,
                 has_bias=False, weight_init=None, bias_init=None, dtype=tessera.float32):
        who = "Conv2dTranspose"
        pairs = []
        for name, value in (("kernel_size", kernel_size), ("stride", stride), ("dilation", dilation)):
            _check.sizes(who, name, value)
            pairs.append(value if isinstance(value, tuple) else (value, value))
        _check.sizes(who, "padding", padding, count=4, low=0)
        if not isinstance(output_padding, (int, tuple)) or isinstance(output_padding, bool):
            raise TypeError(f"For '{who}', the 'output_padding' must be int or tuple, but got {type(output_padding).__name__}.")
        if isinstance(output_padding, tuple) and len(output_padding) != 2:
            raise ValueError(f"For '{who}', the 'output_padding' must have 2 elements, but got {output_padding}.")
        check_channels(who, in_channels, out_channels, group)
        _check.one_of(who, "pad_mode", pad_mode, ("valid", "same", "pad"))
        super().__init__(in_channels, out_channels, [in_channels, out_channels // group, *pairs[0]], group, has_bias, weight_init, bias_init, dtype)
        self._set(pairs[0], pairs[1], pad_mode, padding if isinstance(padding, tuple) else (padding,) * 4, pairs[2], group)
        self.output_padding = output_padding

    def construct(self, x):
        made = self.transposed(x)
        rows, columns = more = self.output_padding if isinstance(self.output_padding, tuple) else (self.output_padding,) * 2
        for d, name in enumerate(("h", "w")):
            if not 0 <= more[d] < max(self.stride[d], self.dilation[d]):
                raise ValueError(f"output_padding must be in range of [0, max(stride_{name}, dilation_{name})).")
        if more == (0, 0):
            return made
        if self.pad_mode != "pad":
            raise ValueError("when output_padding is not zero, pad_mode must be 'pad'")
        return _ops.pad(made, (0, 0, 0, 0), (0, 0, rows, columns))


class Conv1dTranspose(_Transposed):
    """x [n,in_channels,l] -> [n,out_channels,l'], the transpose of a convolution.
    Parameters weight [in_channels, out_channels / group, 1, kernel_size], bias if has_bias."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, pad_mode="same", padding=0, dilation=1, group=1, has_bias=False,
                 weight_init=None, bias_init=None, dtype=tessera.float32):
        who = "Conv1dTranspose"
        _check_row(who, kernel_size, stride, pad_mode, padding, dilation)
        check_channels(who, in_channels, out_channels, group)
        super().__init__(in_channels, out_channels, [in_channels, out_channels // group, 1, kernel_size], group, has_bias, _of_row(who, weight_init),
                         bias_init, dtype)
        self._set((1, kernel_size), (1, stride), pad_mode, (0, 0, padding, padding), (1, dilation), group)

    def construct(self, x):
        return _ops.squeeze(self.transposed(_as_image("Conv1dTranspose", x)), 2)
