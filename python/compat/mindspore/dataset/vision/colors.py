"""Transforms of images [height, width, 3] that change colors or turn them, some at random; made of NumPy's functions."""
import numpy as np
from tessera import data as _data

from mindspore.dataset.vision.images import _Transform

_GRAY = np.float32([0.299, 0.587, 0.114])  # ITU-R BT.601


def _as(dtype, image):
    """In the image's dtype: whole numbers rounded, and kept within their bounds."""
    if not np.issubdtype(dtype, np.integer):
        return image.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(np.rint(image), limits.min, limits.max).astype(dtype)


def _check_colors(who, image):
    if image.ndim != 3 or image.shape[2] != 3:
        raise RuntimeError(f"{who}: the image must be [height, width, 3], but got the shape {image.shape}")


def _gray(image):
    return _as(image.dtype, image.astype(np.float32) @ _GRAY).astype(np.float32)


def _blended(image, other, factor):
    return _as(image.dtype, image.astype(np.float32) * factor + np.float32(other) * (1 - factor))


def _number(who, name, value, low, high):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{who}: Argument {name} with value {value} is not of type [<class 'float'>, <class 'int'>], but got {type(value)}.")
    if not low <= value <= high:
        raise ValueError(f"{who}: Input {name} is not within the required interval of [{low}, {high}].")
    return float(value)


class _Adjust(_Transform):
    """A change of colors by a factor; 1 changes nothing."""

    def __init__(self, factor):
        self.factor = _number(type(self).__name__, "factor", factor, 0, float("inf"))

    def __call__(self, image):
        image = np.asarray(image)
        _check_colors(type(self).__name__, image)
        return self.adjusted(image, self.factor)


class AdjustBrightness(_Adjust):
    """x * brightness_factor."""

    def __init__(self, brightness_factor):
        super().__init__(brightness_factor)

    @staticmethod
    def adjusted(image, factor):
        """The image so."""
        return _as(image.dtype, image.astype(np.float32) * factor)


class AdjustContrast(_Adjust):
    """Between the mean gray of the image, at contrast_factor 0, and the image, at 1; and beyond."""

    def __init__(self, contrast_factor):
        super().__init__(contrast_factor)

    @staticmethod
    def adjusted(image, factor):
        """The image so."""
        mean = _gray(image).mean()
        return _blended(image, np.floor(mean + 0.5) if np.issubdtype(image.dtype, np.integer) else mean, factor)


class AdjustSaturation(_Adjust):
    """Between the gray image, at saturation_factor 0, and the image, at 1; and beyond."""

    def __init__(self, saturation_factor):
        super().__init__(saturation_factor)

    @staticmethod
    def adjusted(image, factor):
        """The image so."""
        return _blended(image, _gray(image)[:, :, None], factor)


class AdjustHue(_Transform):
    """Colors moved on by that part of the circle, hue_factor in [-0.5, 0.5]."""

    def __init__(self, hue_factor):
        self.factor = _number("AdjustHue", "hue_factor", hue_factor, -0.5, 0.5)

    def __call__(self, image):
        image = np.asarray(image)
        _check_colors("AdjustHue", image)
        return self.adjusted(image, self.factor)

    @staticmethod
    def adjusted(image, factor):
        """The image so."""
        rgb = image.astype(np.float64)
        high, low = rgb.max(2), rgb.min(2)
        chroma = np.where(high > low, high - low, 1)
        r, g, b = np.moveaxis(rgb, 2, 0)
        sixth = np.select([high == r, high == g], [(g - b) / chroma, 2 + (b - r) / chroma], 4 + (r - g) / chroma)
        sixth = (np.where(high > low, sixth, 0) + 6 * factor) % 6
        part = [np.clip(abs((sixth + shift) % 6 - 3) - 1, 0, 1) for shift in (0, 4, 2)]
        return _as(image.dtype, np.stack([high - (high - low) * (1 - weight) for weight in part], 2))


class _Random(_Transform):
    """Drawn for each sample and epoch anew. `native`: what map() runs."""

    def __init__(self):
        name = "".join("_" + c.lower() if c.isupper() else c for c in type(self).__name__)[1:]
        self.native = _data.function(lambda image, seed: self.drawn(image, np.random.default_rng(seed)), name, random=True)

    def __call__(self, image):
        return self.native(np.asarray(image)).numpy()

    def drawn(self, image, draws):
        """What becomes of the image."""
        raise NotImplementedError


def _factors(name, given, middle, low, high):
    """The bounds of a factor: of one number, those around the middle."""
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        if given < 0:
            raise ValueError(f"RandomColorAdjust: The input value of {name} cannot be negative.")
        given = (max(low, middle - given), middle + given)
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise TypeError(f"RandomColorAdjust: Argument {name} with value {given} is not a number or two.")
    bounds = tuple(_number("RandomColorAdjust", name, value, low, high) for value in given)
    if bounds[0] > bounds[1]:
        raise ValueError(f"RandomColorAdjust: {name} value should be in (min,max) format. Got ({bounds[0]}, {bounds[1]}).")
    return bounds


class RandomColorAdjust(_Random):
    """Brightness, contrast, saturation and hue by factors drawn within bounds, one number v: (max(0, 1 - v), 1 + v), of hue (-v, v)."""

    def __init__(self, brightness=(1, 1), contrast=(1, 1), saturation=(1, 1), hue=(0, 0)):
        super().__init__()
        endless = float("inf")
        self._steps = [(AdjustBrightness, _factors("brightness", brightness, 1, 0, endless)), (AdjustContrast, _factors("contrast", contrast, 1, 0, endless)),
                       (AdjustSaturation, _factors("saturation", saturation, 1, 0, endless)), (AdjustHue, _factors("hue", hue, 0, -0.5, 0.5))]

    def drawn(self, image, draws):
        """In a random order."""
        _check_colors("RandomColorAdjust", image)
        for i in draws.permutation(len(self._steps)):
            step, (low, high) = self._steps[i]
            factor = draws.uniform(low, high)
            if factor != (0 if step is AdjustHue else 1):
                image = step.adjusted(image, factor)
        return image


class RandomVerticalFlip(_Random):
    """Top and bottom mirrored with that probability."""

    def __init__(self, prob=0.5):
        super().__init__()
        self._prob = _number("RandomVerticalFlip", "prob", prob, 0, 1)

    def drawn(self, image, draws):
        """Mirrored or not."""
        return np.ascontiguousarray(image[::-1]) if draws.random() < self._prob else image


_NEAREST, _BILINEAR = 0, 2


def _turned(image, degrees, resample, center, fill_value):
    """The image turned counterclockwise around a point (x, y)."""
    height, width = image.shape[:2]
    x0, y0 = ((width - 1) / 2, (height - 1) / 2) if center is None else center
    cosine, sine = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    y, x = np.mgrid[:height, :width].astype(np.float64)
    from_x = cosine * (x - x0) - sine * (y - y0) + x0
    from_y = sine * (x - x0) + cosine * (y - y0) + y0
    wide = np.empty((height + 2, width + 2, *image.shape[2:]), np.float64)
    wide[...] = fill_value
    wide[1:-1, 1:-1] = image

    def at(rows, columns):
        return wide[np.clip(rows, -1, height).astype(int) + 1, np.clip(columns, -1, width).astype(int) + 1]

    if resample == _NEAREST:
        # What stands half way by a rounding error belongs to the same side everywhere.
        return _as(image.dtype, at(np.floor(np.round(from_y, 6) + 0.5), np.floor(np.round(from_x, 6) + 0.5)))
    top, left = np.floor(from_y), np.floor(from_x)
    down, right = ((a - b).reshape(height, width, *(1, ) * (image.ndim - 2)) for a, b in ((from_y, top), (from_x, left)))
    rows = [at(top + i, left) * (1 - right) + at(top + i, left + 1) * right for i in (0, 1)]
    return _as(image.dtype, rows[0] * (1 - down) + rows[1] * down)


def _turning(who, resample, expand, center, fill_value):
    if resample not in (_NEAREST, _BILINEAR):
        raise NotImplementedError(f"{who}: only Inter.NEAREST and Inter.BILINEAR are available")
    if expand:
        raise NotImplementedError(f"{who}: expand=True is not available: Pad the image first, CenterCrop it afterwards")
    if center is not None and len(center) != 2:
        raise ValueError(f"{who}: Value center needs to be a 2-tuple.")
    return resample, center, fill_value


class Rotate(_Transform):
    """Turned counterclockwise by so many degrees; expand is refused."""

    def __init__(self, degrees, resample=_NEAREST, expand=False, center=None, fill_value=0):
        self._degrees = _number("Rotate", "degrees", degrees, -float("inf"), float("inf"))
        self._how = _turning("Rotate", resample, expand, center, fill_value)

    def __call__(self, image):
        return _turned(np.asarray(image), self._degrees, *self._how)


class RandomRotation(_Random):
    """Turned by an angle drawn within bounds, one number d: (-d, d) degrees; expand is refused."""

    def __init__(self, degrees, resample=_NEAREST, expand=False, center=None, fill_value=0):
        super().__init__()
        if isinstance(degrees, (int, float)) and not isinstance(degrees, bool):
            if degrees < 0:
                raise ValueError("RandomRotation: If degrees is a single number, it cannot be negative.")
            degrees = (-degrees, degrees)
        if not isinstance(degrees, (tuple, list)) or len(degrees) != 2:
            raise TypeError("RandomRotation: If degrees is a sequence, the length must be 2.")
        self._bounds = tuple(_number("RandomRotation", "degrees", value, -float("inf"), float("inf")) for value in degrees)
        if self._bounds[0] > self._bounds[1]:
            raise ValueError("RandomRotation: degrees should be in (min,max) format. Got (max,min).")
        self._how = _turning("RandomRotation", resample, expand, center, fill_value)

    def drawn(self, image, draws):
        """Turned."""
        return _turned(image, draws.uniform(*self._bounds), *self._how)
