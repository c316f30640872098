"""Filters and windows of three dims: x [n,c,d,h,w]."""
import math as _math

from tessera import ops as _ops


def _with_bias(x, bias):
    return x if bias is None else x + _ops.reshape(bias, (1, -1, 1, 1, 1))


def conv3d(input, weight, bias=None, stride=1, pad_mode="valid", padding=0, dilation=1, groups=1):
    """x [n,ci,d,h,w] with weight [co,ci/groups,kd,kh,kw] -> [n,co,d',h',w']. padding, with pad_mode "pad": one number, one for each dim, or
    (front, back, top, bottom, left, right)."""
    return _with_bias(_ops.conv3d(input, weight, stride, pad_mode, padding, dilation, groups), bias)


def max_pool3d(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The largest element of each window of x [n,c,d,h,w]; dilation and return_indices are refused."""
    if dilation not in (1, (1, 1, 1)) or return_indices:
        raise NotImplementedError("For 'max_pool3d', dilation and return_indices are not available: use max_pool2d on slices of one dim")
    return _ops.max_pool3d(x, kernel_size, kernel_size if stride is None else stride, "pad", padding, ceil_mode)


def avg_pool3d(input_x, kernel_size=1, stride=1, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=0):
    """The mean of each window of x [n,c,d,h,w]; with count_include_pad the zeros of padding count. ceil_mode is refused."""
    if ceil_mode:
        raise NotImplementedError("For 'avg_pool3d', ceil_mode is not available: pad the volume")
    made = _ops.avg_pool3d(input_x, kernel_size, stride, "pad", padding, count_include_pad or bool(divisor_override))
    if not divisor_override:
        return made
    sizes = (kernel_size, ) * 3 if isinstance(kernel_size, int) else kernel_size
    return made * (_math.prod(sizes) / float(divisor_override))
