"""Transforms of images [height, width, channels] that draw nothing, made of NumPy's functions."""
import numpy as np


class _Transform:
    """Called with an image."""

    def __repr__(self):
        return type(self).__name__


def _pair(size):
    return (size, size) if isinstance(size, int) else tuple(size)


class CenterCrop(_Transform):
    """The window of that size, one number or (height, width), in the middle; zeros where the image is smaller."""

    def __init__(self, size):
        self.size = _pair(size)

    def __call__(self, image):
        missing = [max(wanted - has, 0) for wanted, has in zip(self.size, image.shape)]
        if any(missing):
            image = np.pad(image, [(n // 2, n - n // 2) for n in missing] + [(0, 0)] * (image.ndim - 2))
        top, left = (int(round((has - wanted) / 2.0)) for wanted, has in zip(self.size, image.shape))
        return image[top:top + self.size[0], left:left + self.size[1]]


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

