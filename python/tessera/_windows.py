"""Filters and windows of three dims, as sums and maxima of those of two, and the places of largest elements."""
import math
from typing import Any

from tessera._tessera import Tensor as _Tensor
from tessera._tessera import int64
from tessera._tessera import ops as _ops


def _triple(who, name, value, count=3):
    """Three numbers of one number or three; with count 6 the sides (front, back, top, bottom, left, right)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value, ) * count
    made = tuple(value)
    if count == 6 and len(made) == 3:
        made = tuple(side for size in made for side in (size, size))
    if len(made) != count:
        raise ValueError(f"{who}: {name} must be one number or {count}, got {value}")
    return made


def _same_sides(sizes, kernel, stride, dilation):
    """What surrounds x where the result has ceil(size / stride): an odd element is behind."""
    sides = []
    for size, k, s, d in zip(sizes, kernel, stride, dilation):
        missing = max((-(-size // s) - 1) * s + d * (k - 1) + 1 - size, 0)
        sides += [missing // 2, missing - missing // 2]
    return tuple(sides)


def _sides(who, x, kernel, stride, dilation, pad_mode, padding):
    if pad_mode == "pad":
        return _triple(who, "padding", padding, 6)
    if pad_mode not in ("valid", "same"):
        raise ValueError(f"{who}: unknown pad_mode {pad_mode!r}; the known ones are valid, same, pad")
    return _same_sides(x.shape[2:], kernel, stride, dilation) if pad_mode == "same" else (0, ) * 6


def _depths(x, kernel, stride, dilation):
    """For each place of a window along the depth the images there, [n * depths, c, h, w], and how many depths there are."""
    n, c, depth, h, w = x.shape
    count = (depth - dilation * (kernel - 1) - 1) // stride + 1
    if count < 1:
        raise ValueError(f"a window of {kernel} with dilation {dilation} does not fit into the depth {depth}")
    first = _ops.transpose(x, (0, 2, 1, 3, 4))
    parts = [_ops.slice(first, (0, i * dilation, 0, 0, 0), (n, i * dilation + (count - 1) * stride + 1, c, h, w), (1, stride, 1, 1, 1)) for i in range(kernel)]
    return [_ops.reshape(part, (n * count, c, h, w)) for part in parts], count


def _volume(images, n, count):
    """[n * count, c, h, w] -> [n, c, count, h, w]."""
    return _ops.transpose(_ops.reshape(images, (n, count, *images.shape[1:])), (0, 2, 1, 3, 4))


def conv3d(x: Any, weight: Any, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, dilation: Any = 1, groups: int = 1) -> _Tensor:
    """x [n,ci,d,h,w] with weight [co,ci/groups,kd,kh,kw] -> [n,co,d',h',w']. padding, with pad_mode "pad": one number, one for each dim, or
    (front, back, top, bottom, left, right)."""
    stride, dilation = _triple("conv3d", "stride", stride), _triple("conv3d", "dilation", dilation)
    kernel = tuple(weight.shape[2:])
    front, back, *sides = _sides("conv3d", x, kernel, stride, dilation, pad_mode, padding)
    x = _ops.pad(x, (0, 0, front, 0, 0), (0, 0, back, 0, 0)) if front or back else x
    parts, count = _depths(x, kernel[0], stride[0], dilation[0])
    filters = [_ops.squeeze(one, 2) for one in _ops.split(weight, kernel[0], 2)]
    made = [_ops.conv2d(part, one, stride[1:], "pad", sides, dilation[1:], groups) for part, one in zip(parts, filters)]
    return _volume(sum(made[1:], made[0]), x.shape[0], count)


def conv3d_transpose(x: Any, weight: Any, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, dilation: Any = 1, groups: int = 1, output_padding: Any = 0) -> _Tensor:
    """The transpose of conv3d: x [n,ci,d,h,w] with weight [ci,co/groups,kd,kh,kw]."""
    stride, dilation = _triple("conv3d_transpose", "stride", stride), _triple("conv3d_transpose", "dilation", dilation)
    more = _triple("conv3d_transpose", "output_padding", output_padding)
    kernel = tuple(weight.shape[2:])
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
    if pad_mode == "same":
        sizes = [size * s for size, s in zip(x.shape[2:], stride)]
        sides = _same_sides(sizes, kernel, stride, dilation)
    else:
        sides = _triple("conv3d_transpose", "padding", padding, 6) if pad_mode == "pad" else (0, ) * 6
        sizes = [(size - 1) * s + r - sides[2 * i] - sides[2 * i + 1] + (more[i] if pad_mode == "pad" else 0)
                 for i, (size, s, r) in enumerate(zip(x.shape[2:], stride, reach))]
    n, c, depth, h, w = x.shape
    images = _ops.reshape(_ops.transpose(x, (0, 2, 1, 3, 4)), (n * depth, c, h, w))
    filters = [_ops.squeeze(one, 2) for one in _ops.split(weight, kernel[0], 2)]
    made = [_ops.conv2d_transpose(images, one, stride[1:], "pad", sides[2:], dilation[1:], groups, sizes[1:]) for one in filters]
    whole = max((depth - 1) * stride[0] + reach[0], sides[0] + sizes[0])
    total = None
    for i, part in enumerate(made):
        volume = _spread(_volume(part, n, depth), stride[0], i * dilation[0], whole)
        total = volume if total is None else total + volume
    return _narrow(total, sides[0], sizes[0])


def _narrow(x, first, count):
    """So many depths of x."""
    n, c, _, h, w = x.shape
    return _ops.slice(x, (0, 0, first, 0, 0), (n, c, first + count, h, w))


def _spread(x, stride, first, whole):
    """The depths of x at every stride-th place from `first` on, zeros elsewhere."""
    n, c, depth, h, w = x.shape
    if stride > 1:
        apart = _ops.pad(_ops.expand_dims(x, 3), (0, ) * 6, (0, 0, 0, stride - 1, 0, 0))
        x = _narrow(_ops.reshape(apart, (n, c, depth * stride, h, w)), 0, (depth - 1) * stride + 1)
    return _ops.pad(x, (0, 0, first, 0, 0), (0, 0, whole - first - x.shape[2], 0, 0))


def _ceil_sides(size, kernel, stride, before, after, dilation=1):
    """`after`, with what a last window needs that begins in x or in front of it."""
    reach = dilation * (kernel - 1) + 1
    count = -(-(size + before + after - reach) // stride) + 1
    if (count - 1) * stride >= size + before:
        count -= 1
    return max(after, (count - 1) * stride + reach - size - before)


def _pooled(x, kernel, stride, sides, pool):
    front, back, *rest = sides
    parts, count = _depths(_ops.pad(x, (0, 0, front, 0, 0), (0, 0, back, 0, 0), -math.inf if pool is _ops.max_pool2d else 0.0) if front or back else x,
                           kernel[0], stride[0], 1)
    return [_volume(pool(part, kernel[1:], stride[1:], "pad", rest), x.shape[0], count) for part in parts]


def max_pool3d(x: Any, kernel: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, ceil_mode: bool = False) -> _Tensor:
    """The largest element of each window of x [n,c,d,h,w]; padding never wins. ceil_mode: a last window may reach beyond x."""
    kernel, stride = _triple("max_pool3d", "kernel", kernel), _triple("max_pool3d", "stride", stride)
    sides = list(_sides("max_pool3d", x, kernel, stride, (1, 1, 1), pad_mode, padding))
    if ceil_mode:
        for d in range(3):
            sides[2 * d + 1] = _ceil_sides(x.shape[2 + d], kernel[d], stride[d], sides[2 * d], sides[2 * d + 1])
    made = _pooled(x, kernel, stride, sides, _ops.max_pool2d)
    largest = made[0]
    for one in made[1:]:
        largest = _ops.maximum(largest, one)
    return largest


def avg_pool3d(x: Any, kernel: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Any = 0, count_include_pad: bool = False) -> _Tensor:
    """The mean of each window of x [n,c,d,h,w]; the zeros of padding count with count_include_pad only."""
    kernel, stride = _triple("avg_pool3d", "kernel", kernel), _triple("avg_pool3d", "stride", stride)
    sides = _sides("avg_pool3d", x, kernel, stride, (1, 1, 1), pad_mode, padding)
    total = _window_sums(x, kernel, stride, sides)
    if count_include_pad or not any(sides):
        return total / float(math.prod(kernel))
    return total / _window_sums(_ops.ones_like(x), kernel, stride, sides)


def _window_sums(x, kernel, stride, sides):
    padded = _ops.pad(x, (0, 0, *sides[::2]), (0, 0, *sides[1::2])) if any(sides) else x
    made = _pooled(padded, kernel, stride, (0, ) * 6, _ops.avg_pool2d)
    return sum(made[1:], made[0]) * float(kernel[1] * kernel[2])


def _pair(value):
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


def max_pool2d_with_places(x: Any, kernel: Any = 1, stride: Any = 1, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> tuple[_Tensor, _Tensor]:
    """The largest element of each window of x [n,c,h,w], and its place in the image, row * w + column, int64; of equal ones the first. padding: one
    number or (rows, columns). ceil_mode: a last window may reach beyond the image."""
    kernel, stride, padding, dilation = (_pair(value) for value in (kernel, stride, padding, dilation))
    n, c, *sizes = x.shape
    after = [_ceil_sides(size, k, s, p, p, d) if ceil_mode else p for size, k, s, p, d in zip(sizes, kernel, stride, padding, dilation)]
    padded = _ops.pad(x, (0, 0, *padding), (0, 0, *after), -math.inf)
    rows, columns = ((size + p + a - d * (k - 1) - 1) // s + 1 for size, k, s, p, a, d in zip(sizes, kernel, stride, padding, after, dilation))
    if min(rows, columns) < 1:
        raise ValueError(f"max_pool2d_with_places: a window of {kernel} does not fit into {tuple(x.shape)}")
    parts = [_ops.slice(padded, (0, 0, i, j), (n, c, i + (rows - 1) * stride[0] + 1, j + (columns - 1) * stride[1] + 1), (1, 1, *stride))
             for i in range(0, kernel[0] * dilation[0], dilation[0]) for j in range(0, kernel[1] * dilation[1], dilation[1])]
    windows = _ops.stack(parts, 0)
    which = _ops.cast(_ops.argmax(_ops.stop_gradient(windows), 0), int64)
    chosen = _ops.one_hot(which, len(parts), 1.0, 0.0, 0)
    largest = _ops.reduce_sum(_ops.select(_ops.greater(chosen, 0.5), windows, _ops.zeros_like(windows)), 0)
    down = _ops.cast(_ops.floor((_ops.cast(which, "float32") + 0.5) / float(kernel[1])), int64)
    right = which - down * kernel[1]
    first_rows = _ops.reshape(_ops.range(-padding[0], rows * stride[0] - padding[0], stride[0], "int64"), (1, 1, rows, 1))
    first_columns = _ops.reshape(_ops.range(-padding[1], columns * stride[1] - padding[1], stride[1], "int64"), (1, 1, 1, columns))
    return largest, (first_rows + down * dilation[0]) * sizes[1] + first_columns + right * dilation[1]
