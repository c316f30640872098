"""Transforms of images [height, width, channels]."""
import numpy as np
from tessera import data as _data

from mindspore._missing import missing
from mindspore.dataset.vision.colors import RandomColorAdjust, RandomRotation, RandomVerticalFlip  # noqa: F401
from mindspore.dataset.vision.images import (CenterCrop, Crop, Decode, HorizontalFlip, Invert, Pad, RandomCropDecodeResize,  # noqa: F401
                                             RandomResizedCrop, VerticalFlip, resize)
from mindspore.dataset.vision.interpolation import Inter


def RandomCrop(size, padding=None, pad_if_needed=False, fill_value=0, padding_mode=None):
    """Pads with zeros, (left, top, right, bottom), then cuts a window of `size` at a random place."""
    if pad_if_needed or fill_value not in (0, (0, 0, 0)) or padding_mode is not None:
        raise NotImplementedError("RandomCrop: pad_if_needed, fill_value and padding_mode are not available: it pads with zeros")
    return _data.random_crop(size, padding)


def RandomHorizontalFlip(prob=0.5):
    """Mirrors left and right with that probability."""
    if isinstance(prob, bool) or not isinstance(prob, (int, float)):
        raise TypeError(f"Argument prob with value {prob} is not of type [<class 'float'>, <class 'int'>].")
    if not 0 <= prob <= 1:
        raise ValueError(f"Input prob is not within the required interval of [0.0, 1.0], but got {prob}.")
    return _data.random_horizontal_flip(prob)


def Resize(size, interpolation=Inter.LINEAR):
    """To (height, width); one number: the shorter side, the aspect ratio is kept. interpolation: an Inter; PILCUBIC is of uint8 images with three
    channels, ANTIALIAS is refused."""
    return resize("Resize", size, interpolation)


def Rescale(rescale, shift):
    """x * rescale + shift, to float32."""
    return _data.rescale(rescale, shift)


def Normalize(mean, std, is_hwc=True):
    """(x - mean[c]) / std[c] for each channel of [h, w, c], or of [c, h, w] where is_hwc is False, to float32."""
    return _data.normalize(list(mean), list(std), channels_first=not is_hwc)


def HWC2CHW():
    """[h, w, c] -> [c, h, w]."""
    return _data.hwc2chw()


class SliceMode:
    """What SlicePatches does with an image that is no multiple of its patches."""
    PAD = 0
    DROP = 1


class SlicePatches:
    """An image as num_height * num_width patches, row by row, each a column of its own: padded with fill_value at the lower
    and right border, or cut there (SliceMode.DROP), where the sizes do not go up."""

    def __init__(self, num_height=1, num_width=1, slice_mode=SliceMode.PAD, fill_value=0):
        for name, value in (("num_height", num_height), ("num_width", num_width)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"Argument {name} with value {value} is not of type [<class 'int'>].")
            if value < 1:
                raise ValueError(f"Input {name} is not within the required interval of [1, 2147483647], but got {value}.")
        if slice_mode not in (SliceMode.PAD, SliceMode.DROP):
            raise TypeError(f"Argument slice_mode with value {slice_mode} is not of type [<enum 'SliceMode'>].")
        if isinstance(fill_value, bool) or not isinstance(fill_value, int) or not 0 <= fill_value <= 255:
            raise ValueError(f"Input fill_value is not within the required interval of [0, 255], but got {fill_value}.")
        self._num_height, self._num_width = num_height, num_width
        self._pads, self._fill_value = slice_mode == SliceMode.PAD, fill_value

    def __call__(self, image):
        """image: [height, width, channels]."""
        image = np.asarray(image)
        height, width = (-(-size // num) if self._pads else size // num
                         for size, num in zip(image.shape, (self._num_height, self._num_width)))
        if height == 0 or width == 0:
            raise RuntimeError(f"SlicePatches: an image of {image.shape} has no {self._num_height} x {self._num_width} patches")
        if self._pads:
            missing_rows, missing_columns = height * self._num_height - image.shape[0], width * self._num_width - image.shape[1]
            image = np.pad(image, [(0, missing_rows), (0, missing_columns), (0, 0)], constant_values=self._fill_value)
        return tuple(image[y * height:(y + 1) * height, x * width:(x + 1) * width]
                     for y in range(self._num_height) for x in range(self._num_width))


__getattr__ = missing(__name__)
del missing
