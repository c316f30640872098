"""Images of another size, and their windows."""
from tessera import ops as _ops

from mindspore import _check
from mindspore.nn.cell import Cell
from mindspore.ops import neural, resize


class Upsample(Cell):
    """ops.interpolate with these settings."""

    def __init__(self, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None):
        super().__init__()
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def construct(self, x):
        return resize.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)


class ResizeBilinear(Cell):
    """(x [n,c,h,w], size or scale_factor, a whole number) -> the image of that size, bilinear."""

    def __init__(self, half_pixel_centers=False):
        super().__init__()
        self.half_pixel_centers = _check.boolean("ResizeBilinear", "half_pixel_centers", half_pixel_centers)

    def construct(self, x, size=None, scale_factor=None, align_corners=False):
        if (size is None) == (scale_factor is None):
            raise ValueError("For 'ResizeBilinear', one of 'size' and 'scale_factor' must be given, and not both.")
        if size is None:
            _check.integer("ResizeBilinear", "scale_factor", scale_factor, 1)
            size = (x.shape[2] * scale_factor, x.shape[3] * scale_factor)
        return resize.resize_by("ResizeBilinear", "linear", x, size, align_corners, self.half_pixel_centers)


class Unfold(Cell):
    """The windows of x [n,c,h,w], [n, kh * kw * c, rows, columns]: the channels at a window's first place, then those at its next one.
    ksizes, strides, rates: (1, height, width, 1); padding: valid or same."""

    def __init__(self, ksizes, strides, rates, padding="valid"):
        super().__init__()
        pairs = []
        for name, given in (("ksizes", ksizes), ("strides", strides), ("rates", rates)):
            if not isinstance(given, (tuple, list)):
                raise TypeError(f"For 'Unfold', the type of '{name}' must be tuple/list, but got {type(given).__name__}.")
            if len(given) != 4 or given[0] != 1 or given[3] != 1:
                raise ValueError(f"For 'Unfold', '{name}' must be (1, height, width, 1), but got {given}.")
            pairs.append(tuple(_check.integer("Unfold", name, n, 1) for n in given[1:3]))
        self.kernel, self.stride, self.dilation = pairs
        self.padding = _check.one_of("Unfold", "padding", padding.lower() if isinstance(padding, str) else padding, ("valid", "same"))

    def construct(self, x):
        if self.padding == "same":
            before, after = [0, 0], [0, 0]
            for d in range(2):
                size, stride = x.shape[2 + d], self.stride[d]
                more = max((-(-size // stride) - 1) * stride + self.dilation[d] * (self.kernel[d] - 1) + 1 - size, 0)
                before.append(more // 2)
                after.append(more - more // 2)
            x = _ops.pad(x, before, after)
        return _ops.concat(neural._windows("Unfold", x, self.kernel, self.stride, self.dilation), 1)
