"""Transforms of images [height, width, channels]: tessera's, and small ones made of NumPy's functions."""
import math

import numpy as np
from tessera import data as _data

from mindspore.dataset.vision import interpolation as _interpolation
from mindspore.dataset.vision.interpolation import Inter


class _Transform:
    """Called with an image."""

    def __repr__(self):
        return type(self).__name__


def _pair(size):
    return (size, size) if isinstance(size, int) else tuple(size)


class NativeTransform(_Transform):
    """One of tessera's transforms, `native`: called with an image it gives an array."""

    def __init__(self, native):
        self.native = native

    def __call__(self, image):
        return self.native(np.asarray(image)).numpy()

    def __repr__(self):
        return repr(self.native)


def _size(who, size):
    """(height, width) of one number or two, all positive."""
    items = size if isinstance(size, (tuple, list)) else (size, size)
    if len(items) != 2 or any(isinstance(item, bool) or not isinstance(item, int) for item in items):
        raise TypeError(f"{who}: Argument size with value {size} is not an int, or a tuple or list of two.")
    for item in items:
        if item < 1:
            raise ValueError(f"{who}: Input is not within the required interval of [1, 16777216], but got {item}.")
    return tuple(items)


class _Resized(_Transform):
    """To a size, (height, width) or that of the shorter side, by an interpolation of NumPy's."""

    def __init__(self, size, interpolation):
        self._size, self._interpolation = size, interpolation

    def __call__(self, image):
        image = np.asarray(image)
        size = _interpolation.size_of_shorter(image.shape, self._size) if isinstance(self._size, int) else self._size
        return _interpolation.resized(image, size, self._interpolation)


def resize(who, size, interpolation):
    """The transform Resize: the bilinear one is tessera's."""
    _size(who, size)
    size = size if isinstance(size, int) else tuple(size)
    if _interpolation.check(who, interpolation) != Inter.BILINEAR:
        return _Resized(size, Inter(interpolation))
    return _data.resize_shorter_side(size) if isinstance(size, int) else _data.resize(size)


class Decode(NativeTransform):
    """The bytes of a file, JPEG, PNG or BMP, uint8 [size] -> the image uint8 [height, width, 3]."""

    def __init__(self, to_pil=False):
        if not isinstance(to_pil, bool):
            raise TypeError(f"Argument to_pil with value {to_pil} is not of type [<class 'bool'>], but got {type(to_pil)}.")
        if to_pil:
            raise NotImplementedError("Decode: to_pil=True is not available: transforms work on arrays")
        super().__init__(_data.decode())

    def __call__(self, img):
        if isinstance(img, bytes):
            img = np.frombuffer(img, np.uint8)
        if not isinstance(img, np.ndarray):
            raise TypeError(f"The type of the encoded image should be {np.ndarray}, but got {type(img)}.")
        if img.ndim != 1:
            raise TypeError(f"The number of array dimensions of the encoded image should be 1, but got {img.ndim}.")
        return super().__call__(img)


class CenterCrop(NativeTransform):
    """The window of that size, one number or (height, width), in the middle; zeros where the image is smaller."""

    def __init__(self, size):
        super().__init__(_data.center_crop(_size("CenterCrop", size)))


def _bounds(name, bounds, low):
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise TypeError(f"{name} should be a tuple or list of two numbers, but got {bounds}.")
    if any(isinstance(bound, bool) or not isinstance(bound, (int, float)) for bound in bounds):
        raise TypeError(f"{name} should be numbers, but got {bounds}.")
    if bounds[0] > bounds[1]:
        raise ValueError(f"{name} should be in (min,max) format. Got (max,min).")
    if bounds[0] < 0 or bounds[1] <= 0 or low is not None and bounds[0] <= low:
        raise ValueError(f"Input {name} is not within the required interval: it must be positive, but got {bounds}.")
    return float(bounds[0]), float(bounds[1])


def _window(shape, scale, ratio, max_attempts, draws):
    """(top, left, height, width) as tessera's random_resized_crop draws it; the largest in the middle where no attempt fits."""
    height, width = shape[:2]
    for _ in range(max_attempts):
        area, aspect = height * width * draws.uniform(*scale), math.exp(draws.uniform(*map(math.log, ratio)))
        h, w = math.floor(math.sqrt(area / aspect) + 0.5), math.floor(math.sqrt(area * aspect) + 0.5)
        if 1 <= h <= height and 1 <= w <= width:
            return int(draws.integers(0, height - h + 1)), int(draws.integers(0, width - w + 1)), h, w
    aspect = min(max(width / height, ratio[0]), ratio[1])
    h, w = min(height, max(1, math.floor(width / aspect + 0.5))), min(width, max(1, math.floor(height * aspect + 0.5)))
    return (height - h) // 2, (width - w) // 2, h, w


class RandomResizedCrop(NativeTransform):
    """A window drawn at random, resized to `size`. scale: bounds of its part of the area; ratio: of its width over its height. interpolation: as
    Resize takes it; windows of one seed are others than those of the bilinear one."""

    def __init__(self, size, scale=(0.08, 1.0), ratio=(3.0 / 4.0, 4.0 / 3.0), interpolation=Inter.BILINEAR, max_attempts=10):
        who = "RandomResizedCrop"
        interpolation = _interpolation.check(who, interpolation)
        if isinstance(max_attempts, bool) or not isinstance(max_attempts, int):
            raise TypeError(f"Argument max_attempts with value {max_attempts} is not of type [<class 'int'>].")
        if max_attempts < 1:
            raise ValueError("Input max_attempts is not within the required interval of [1, 2147483647].")
        low, high = _bounds("scale", scale, None)
        size, scale, ratio = _size(who, size), (max(low, 1e-12), high), _bounds("ratio", ratio, 0)
        if interpolation == Inter.BILINEAR:
            super().__init__(_data.random_resized_crop(size, scale, ratio, max_attempts))
            return

        def cut(image, seed):
            top, left, height, width = _window(image.shape, scale, ratio, max_attempts, np.random.default_rng(seed))
            return _interpolation.resized(image[top:top + height, left:left + width], size, interpolation)

        super().__init__(_data.function(cut, "random_resized_crop", random=True))


class RandomCropDecodeResize(RandomResizedCrop):
    """Decode, then RandomResizedCrop."""

    natives = property(lambda self: [_data.decode(), self.native], doc="What map() runs.")

    def __call__(self, img):
        return super().__call__(Decode()(img))


class Crop(_Transform):
    """The window of that size at (row, column)."""

    def __init__(self, coordinates, size):
        self.coordinates, self.size = tuple(coordinates), _pair(size)

    def __call__(self, image):
        (top, left), (height, width) = self.coordinates, self.size
        if top + height > image.shape[0] or left + width > image.shape[1]:
            raise RuntimeError(f"Crop: the window {self.size} at {self.coordinates} is outside of an image {image.shape}")
        return image[top:top + height, left:left + width]


class Pad(_Transform):
    """Pixels around: one number, (left and right, top and bottom) or (left, top, right, bottom)."""

    def __init__(self, padding, fill_value=0, padding_mode=None):
        if padding_mode is not None and str(padding_mode).rpartition(".")[2].lower() != "constant":
            raise NotImplementedError("Pad: only the padding mode CONSTANT is available")
        sides = (padding, ) * 4 if isinstance(padding, int) else tuple(padding)
        self.left, self.top, self.right, self.bottom = sides * 2 if len(sides) == 2 else sides
        self.fill_value = fill_value

    def __call__(self, image):
        return np.pad(image, [(self.top, self.bottom), (self.left, self.right)] + [(0, 0)] * (image.ndim - 2), constant_values=self.fill_value)


class HorizontalFlip(_Transform):
    """Left and right mirrored."""

    def __call__(self, image):
        return np.ascontiguousarray(image[:, ::-1])


class VerticalFlip(_Transform):
    """Top and bottom mirrored."""

    def __call__(self, image):
        return np.ascontiguousarray(image[::-1])


class Invert(_Transform):
    """255 - x."""

    def __call__(self, image):
        return 255 - image


class ToTensor(_Transform):
    """[h, w, c] or [h, w] of 0 to 255 -> [c, h, w] of 0 to 1, in output_type."""

    def __init__(self, output_type=np.float32):
        self.output_type = np.dtype(getattr(output_type, "name", output_type))

    def __call__(self, image):
        image = np.asarray(image)
        image = image[:, :, None] if image.ndim == 2 else image
        return np.ascontiguousarray(image.transpose(2, 0, 1) / np.float32(255.0)).astype(self.output_type)


class ToType(_Transform):
    """To another dtype."""

    def __init__(self, data_type):
        self.data_type = np.dtype(getattr(data_type, "name", data_type))

    def __call__(self, x):
        return np.asarray(x).astype(self.data_type)

