"""Filters and windows of three dims, and dropout of whole channels."""
import tessera
from tessera import ops as _ops

from mindspore import _check
from mindspore.nn.cell import Cell
from mindspore.nn.convolution import Filters, check_channels
from mindspore.nn.layer import Dropout


def _triple(who, name, value, low=1):
    made = (value, ) * 3 if isinstance(value, int) else value
    if not isinstance(made, tuple) or len(made) != 3:
        raise TypeError(f"For '{who}', the '{name}' must be int or a tuple of 3 int, but got {value!r}.")
    for size in made:
        _check.integer(who, name, size, low)
    return made


class _Filters3d(Filters):
    """What both share: settings, weight and bias."""

    def __init__(self, in_channels, out_channels, weight_shape, kernel_size, stride, pad_mode, padding, dilation, group, has_bias, weight_init,
                 bias_init, data_format, dtype):
        who = type(self).__name__
        check_channels(who, in_channels, out_channels, group)
        kernel = _triple(who, "kernel_size", kernel_size)
        _check.one_of(who, "pad_mode", pad_mode, ("valid", "same", "pad"))
        if pad_mode != "pad" and any((padding, ) if isinstance(padding, int) else padding):
            raise ValueError(f"For '{who}', the 'padding' must be zero when 'pad_mode' is '{pad_mode}', but got {padding}.")
        _check.one_of(who, "data_format", data_format, ("NCDHW", ))
        super().__init__(in_channels, out_channels, (*weight_shape, *kernel), group, has_bias, weight_init, bias_init, dtype)
        self.kernel_size, self.stride, self.dilation = kernel, _triple(who, "stride", stride), _triple(who, "dilation", dilation)
        self.pad_mode, self.padding = pad_mode, padding

    def _settings(self):
        return self.stride, self.pad_mode, self.padding, self.dilation, self.group


class Conv3d(_Filters3d):
    """x [n,in_channels,d,h,w] -> [n,out_channels,d',h',w']. Parameters weight [out, in / group, kd, kh, kw], bias if has_bias. padding, with
    pad_mode "pad": one number or (front, back, top, bottom, left, right)."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, pad_mode="same", padding=0, dilation=1, group=1, has_bias=False,
                 weight_init=None, bias_init=None, data_format="NCDHW", dtype=tessera.float32):
        super().__init__(in_channels, out_channels, (out_channels, in_channels // group), kernel_size, stride, pad_mode, padding, dilation, group,
                         has_bias, weight_init, bias_init, data_format, dtype)

    def construct(self, x):
        return self.with_bias(_ops.conv3d(x, self.weight, *self._settings()))


class Conv3dTranspose(_Filters3d):
    """The transpose of Conv3d. Parameters weight [in, out / group, kd, kh, kw], bias if has_bias."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, pad_mode="same", padding=0, dilation=1, group=1, output_padding=0,
                 has_bias=False, weight_init=None, bias_init=None, data_format="NCDHW", dtype=tessera.float32):
        super().__init__(in_channels, out_channels, (in_channels, out_channels // group), kernel_size, stride, pad_mode, padding, dilation, group,
                         has_bias, weight_init, bias_init, data_format, dtype)
        self.output_padding = _triple("Conv3dTranspose", "output_padding", output_padding, 0)

    def construct(self, x):
        return self.with_bias(_ops.conv3d_transpose(x, self.weight, *self._settings(), self.output_padding))


class MaxPool3d(Cell):
    """The largest element of each window of x [n,c,d,h,w]; dilation and return_indices are refused."""

    def __init__(self, kernel_size=1, stride=1, pad_mode="valid", padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__()
        if dilation not in (1, (1, 1, 1)) or return_indices:
            raise NotImplementedError("For 'MaxPool3d', dilation and return_indices are not available: use nn.MaxPool2d on slices of one dim")
        self.kernel_size, self.stride = _triple("MaxPool3d", "kernel_size", kernel_size), _triple("MaxPool3d", "stride", stride)
        self.pad_mode = _check.one_of("MaxPool3d", "pad_mode", pad_mode.lower(), ("valid", "same", "pad"))
        self.padding, self.ceil_mode = padding, _check.boolean("MaxPool3d", "ceil_mode", ceil_mode)

    def construct(self, x):
        given = x if x.ndim == 5 else _ops.expand_dims(x, 0)
        made = _ops.max_pool3d(given, self.kernel_size, self.stride, self.pad_mode, self.padding, self.ceil_mode)
        return made if x.ndim == 5 else _ops.squeeze(made, 0)


class AvgPool3d(Cell):
    """The mean of each window of x [n,c,d,h,w]; with count_include_pad the zeros of padding count. ceil_mode is refused."""

    def __init__(self, kernel_size=1, stride=1, pad_mode="valid", padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        super().__init__()
        if ceil_mode:
            raise NotImplementedError("For 'AvgPool3d', ceil_mode is not available: pad the volume")
        self.kernel_size, self.stride = _triple("AvgPool3d", "kernel_size", kernel_size), _triple("AvgPool3d", "stride", stride)
        self.pad_mode = _check.one_of("AvgPool3d", "pad_mode", pad_mode.lower(), ("valid", "same", "pad"))
        self.padding, self.count_include_pad = padding, _check.boolean("AvgPool3d", "count_include_pad", count_include_pad)
        self.divisor = None if divisor_override is None else _check.integer("AvgPool3d", "divisor_override", divisor_override, 1)

    def construct(self, x):
        given = x if x.ndim == 5 else _ops.expand_dims(x, 0)
        counts = self.count_include_pad or self.divisor is not None
        made = _ops.avg_pool3d(given, self.kernel_size, self.stride, self.pad_mode, self.padding, counts)
        if self.divisor is not None:
            d, h, w = self.kernel_size
            made = made * (d * h * w / self.divisor)
        return made if x.ndim == 5 else _ops.squeeze(made, 0)


def _channel_dropout(name, ndims, shape):
    class ChannelDropout(Cell):
        def __init__(self, p=0.5):
            super().__init__()
            if not 0 <= _check.number(name, "p", p) <= 1:
                raise ValueError(f"For '{name}', the 'p' must be a number in range [0, 1], but got {p}.")
            self.p = p
            self.drop = Dropout(p=p) if p < 1 else None

        def construct(self, x):
            if not self.training or self.p == 0:
                return x
            if x.ndim not in ndims:
                raise ValueError(f"For '{name}', the input must have {' or '.join(map(str, ndims))} dims, but got {x.ndim}.")
            if self.drop is None:
                return _ops.zeros_like(x)
            channels = x.shape[:x.ndim - ndims[-1] + 2]
            kept = self.drop(_ops.fill((*channels, *(1, ) * (x.ndim - len(channels))), 1.0, x.dtype))
            return x * kept

    ChannelDropout.__name__ = ChannelDropout.__qualname__ = name
    ChannelDropout.__doc__ = f"In training each channel of x {shape} is 0 with probability p, else divided by 1 - p."
    return ChannelDropout


Dropout1d = _channel_dropout("Dropout1d", (2, 3), "[n,c,l] or [c,l]")
Dropout2d = _channel_dropout("Dropout2d", (4, ), "[n,c,h,w]")
Dropout3d = _channel_dropout("Dropout3d", (5, ), "[n,c,d,h,w]")
