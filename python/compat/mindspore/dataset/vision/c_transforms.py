"""Transforms of images [height, width, channels]."""
from tessera import data as _data

from mindspore._missing import missing


class Inter:
    """How pixels between pixels are found."""
    NEAREST = 0
    ANTIALIAS = 1
    BILINEAR = LINEAR = 2
    BICUBIC = 3


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
    """Bilinear; one number: the shorter side, the aspect ratio is kept."""
    if interpolation != Inter.LINEAR:
        raise NotImplementedError("Resize: only the bilinear interpolation is available")
    return _data.resize_shorter_side(size) if isinstance(size, int) else _data.resize(size)


def Rescale(rescale, shift):
    """x * rescale + shift, to float32."""
    return _data.rescale(rescale, shift)


def Normalize(mean, std, is_hwc=True):
    """(x - mean[c]) / std[c] for each channel, to float32."""
    return _data.normalize(list(mean), list(std))


def HWC2CHW():
    """[h, w, c] -> [c, h, w]."""
    return _data.hwc2chw()


__getattr__ = missing(__name__)
del missing
