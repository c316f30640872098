"""Images, rows and volumes of another size: each dim by itself, as sums of slices at places that the sizes tell."""
import math as _math

import numpy as _np
import tessera as _tessera
from tessera import ops as _ops

from mindspore.ops import neural as _neural

__all__ = ["interpolate", "upsample"]

# mode: (the numbers of dims that it takes, those of which a scale_factor may stand by itself, whether align_corners counts)
_MODES = {"nearest": ((3, 4, 5), (5, ), False), "linear": ((3, ), (), True), "bilinear": ((4, ), (), True), "trilinear": ((5, ), (5, ), True),
          "bicubic": ((4, ), (), True), "area": ((3, 4, 5), (3, 4, 5), False), "nearest-exact": ((3, 4), (), False)}
# Keys, 1981: with a as OpenCV has it, and where the borders of elements stay as TensorFlow has it, where places between are
# 1 / 1024 apart.
_CUBIC, _CUBIC_HALF_PIXEL, _PLACES = -0.75, -0.5, 1024


def _positions(size, made, scale, align_corners, half_pixel):
    """Where the made elements stand among the `size` old ones."""
    places = _np.arange(made, dtype=_np.float64)
    if align_corners:
        return places * ((size - 1) / (made - 1)) if made > 1 else _np.zeros(made)
    return (places + 0.5) * scale - 0.5 if half_pixel else places * scale


def _nearest(size, made, scale, align_corners=False, half_pixel=False):
    at = _positions(size, made, scale, align_corners, False)
    at = _np.floor(at + 0.5) if align_corners else _np.floor(at + (scale * 0.5 if half_pixel else 0.0))
    return [(_np.clip(at, 0, size - 1), None)]


def _linear(size, made, scale, align_corners=False, half_pixel=True):
    at = _np.maximum(_positions(size, made, scale, align_corners, half_pixel), 0)
    low = _np.minimum(_np.floor(at), size - 1)
    part = _np.where(low == size - 1, 0, at - low)
    return [(low, 1 - part), (_np.minimum(low + 1, size - 1), part)]


def _cubic(size, made, scale, align_corners=False, half_pixel=True):
    at = _positions(size, made, scale, align_corners, half_pixel)
    low, a = _np.floor(at), _CUBIC_HALF_PIXEL if half_pixel else _CUBIC
    part = _np.rint((at - low) * _PLACES) / _PLACES
    taps = []
    for step in (-1, 0, 1, 2):
        d = abs(part - step)
        weight = _np.where(d <= 1, (a + 2) * d**3 - (a + 3) * d**2 + 1, a * (d**3 - 5 * d**2 + 8 * d - 4))
        is_inside = (low + step >= 0) & (low + step < size)
        taps.append((_np.clip(low + step, 0, size - 1), weight * is_inside if half_pixel else weight))
    total = sum(weight for _, weight in taps)
    return [(place, weight / total) for place, weight in taps]


def _resized(x, sizes, taps, scales=None, **how):
    """x [n,c,...] with the last dims of these sizes."""
    dtype = x.dtype
    is_half = dtype in (_tessera.float16, _tessera.bfloat16)
    for i, made in enumerate(sizes):
        dim, size = 2 + i, x.shape[2 + i]
        parts = taps(size, made, size / made if scales is None else scales[i], **how)
        if size == made and all((at == _np.arange(size))[weight is None or weight != 0].all() for at, weight in parts):
            continue
        x = _ops.cast(x, _tessera.float32) if is_half and parts[0][1] is not None else x
        total = None
        for at, weight in parts:
            part = _ops.gather(x, _tessera.Tensor(at.astype(_np.int32)), dim)
            if weight is not None:
                part = part * _tessera.Tensor(weight.reshape(-1, *(1, ) * (x.ndim - dim - 1)).astype(_np.float32), x.dtype)
            total = part if total is None else total + part
        x = total
    return _ops.cast(x, dtype) if x.dtype != dtype else x


def _wanted(who, x, size, scale_factor, recompute):
    """(the sizes, the scales where they count by themselves)."""
    count = x.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ValueError(f"For '{who}', " + ("'size' and 'scale_factor' cannot be set simultaneously" if size is not None else
                                             "'size' and 'scale_factor' cannot be both empty"))
    if size is not None:
        if recompute:
            raise ValueError(f"For '{who}', it is incorrect to set 'recompute_scale_factor' to True after specifying an explicit 'size'.")
        sizes = [size] * count if isinstance(size, int) else list(size)
        if len(sizes) != count or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in sizes):
            raise ValueError(f"For '{who}', the 'size' must be a positive int or {count} of them, but got {size}.")
        return sizes, None
    factors = [scale_factor] * count if isinstance(scale_factor, (int, float)) else list(scale_factor)
    if len(factors) != count or any(isinstance(n, bool) or not isinstance(n, (int, float)) or n <= 0 for n in factors):
        raise ValueError(f"For '{who}', the 'scale_factor' must be a positive float or {count} of them, but got {scale_factor}.")
    sizes = [_math.floor(n * factor) for n, factor in zip(x.shape[2:], factors)]
    if min(sizes) < 1:
        raise ValueError(f"For '{who}', the 'scale_factor' {scale_factor} leaves nothing of {tuple(x.shape)}.")
    return sizes, None if recompute else [1 / factor for factor in factors]


def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None):
    """x [n,c,l], [n,c,h,w] or [n,c,d,h,w] of another size, or of floor(scale_factor * its own). mode: nearest, nearest-exact, linear,
    bilinear, trilinear, bicubic or area; align_corners: the corners keep their values, else the borders of elements stay."""
    if not isinstance(mode, str) or mode not in _MODES:
        raise ValueError(f"For 'interpolate', 'mode' must be in '{list(_MODES)}', but got {mode}")
    dims, of_scale, has_corners = _MODES[mode]
    if input.ndim not in dims:
        raise ValueError(f"For 'interpolate', {mode} only support '{list(dims)}'D, but got {input.ndim}D")
    if align_corners is not None and not has_corners:
        raise ValueError(f"For 'interpolate', 'align_corners' option cannot currently be set with the mode = {mode}, and dim = {input.ndim}D")
    sizes, scales = _wanted("interpolate", input, size, scale_factor, recompute_scale_factor)
    if scales is not None and input.ndim not in of_scale:
        raise ValueError(f"For 'interpolate', 'scale_factor' option cannot currently be set with the mode = {mode} and dim = {input.ndim}D: "
                         "give recompute_scale_factor=True, or the size.")
    if mode == "area":
        return _averaged(input, sizes)
    if mode.startswith("nearest"):
        return _resized(input, sizes, _nearest, scales, half_pixel=mode == "nearest-exact")
    align_corners = bool(align_corners)
    return _resized(input, sizes, _cubic if mode == "bicubic" else _linear, None if align_corners else scales, align_corners=align_corners,
                    half_pixel=not align_corners)


upsample = interpolate


def _averaged(x, sizes):
    """Averages of windows that cover each dim."""
    if len(sizes) == 2:
        return _neural.adaptive_avg_pool2d(x, tuple(sizes))
    for i, made in enumerate(sizes):
        x = _neural._adaptive(x, 2 + i, made, _ops.reduce_mean)
    return x


def check_corners(who, align_corners, half_pixel_centers):
    """ValueError where both are asked for."""
    if align_corners and half_pixel_centers:
        raise ValueError(f"For {who}, the half_pixel_centers must be false when align_corners is true, but half_pixel_centers got True.")


def resize_by(who, kind, x, size, align_corners=False, half_pixel_centers=False):
    """What the operators of that name make of x [n,c,h,w]; size: two numbers, or a tensor of them."""
    check_corners(who, align_corners, half_pixel_centers)
    if isinstance(size, (_tessera.Tensor, _tessera.Parameter)):
        size = size.asnumpy().tolist()
    if isinstance(size, _tessera.Value):
        raise NotImplementedError(f"For '{who}', a size that construct() computes is not available: the result's shape would depend on it; give numbers")
    size = [int(n) for n in size]
    if x.ndim != 4 or len(size) != 2 or min(size) < 1:
        raise ValueError(f"For '{who}', x must be [n,c,h,w] and 'size' two positive ints, but got the shape {tuple(x.shape)} and {size}.")
    taps = {"nearest": _nearest, "linear": _linear, "cubic": _cubic}[kind]
    return _resized(x, size, taps, align_corners=align_corners, half_pixel=half_pixel_centers)
