"""Images of another size by the interpolations of Inter beside the bilinear one, which is tessera's own. Each is a matrix of weights for the rows and one
for the columns: those of OpenCV's resize(), and for PILCUBIC those of Pillow's."""
import enum
import functools

import numpy as np


class Inter(enum.IntEnum):
    """How pixels between pixels are found."""
    NEAREST = 0
    ANTIALIAS = 1
    BILINEAR = LINEAR = 2
    BICUBIC = CUBIC = 3
    AREA = 4
    PILCUBIC = 5


def check(who, interpolation):
    """The Inter of what a script gives. TypeError for another thing."""
    if isinstance(interpolation, bool) or interpolation not in list(Inter):
        raise TypeError(f"{who}: Argument interpolation with value {interpolation} is not of type [<enum 'Inter'>], but got {type(interpolation)}.")
    if interpolation == Inter.ANTIALIAS:
        raise TypeError(f"{who}: Inter.ANTIALIAS is for PIL images, and transforms work on arrays: use Inter.PILCUBIC, which averages too, or Inter.AREA")
    return Inter(interpolation)


def _nearest(size, made):
    """Of the pixel whose begin is not behind the made one's."""
    weights = np.zeros((made, size))
    weights[np.arange(made), np.minimum(np.floor(np.arange(made) * (size / made)).astype(int), size - 1)] = 1
    return weights


def _spread(places, weights, size):
    """The matrix of the weights at these places, [made, taps]; places outside are those of the border."""
    matrix = np.zeros((len(places), size))
    np.add.at(matrix, (np.arange(len(places))[:, None], np.clip(places, 0, size - 1)), weights)
    return matrix


def _cubic(x, a):
    """Keys, "Cubic convolution interpolation for digital image processing", 1981."""
    x = abs(x)
    return np.where(x < 1, ((a + 2) * x - (a + 3)) * x * x + 1, np.where(x < 2, (((x - 5) * x + 8) * x - 4) * a, 0))


def _bicubic(size, made):
    """Of four pixels around, with a = -0.75."""
    centers = (np.arange(made) + 0.5) * (size / made) - 0.5
    places = np.floor(centers).astype(int)[:, None] + np.arange(-1, 3)
    return _spread(places, _cubic(centers[:, None] - places, -0.75), size)


def _covered(size, made):
    """The part of each pixel that a smaller image's pixel covers."""
    scale = size / made
    begin, pixels = np.arange(made)[:, None] * scale, np.arange(size)
    weights = np.clip(np.minimum(begin + scale, pixels + 1) - np.maximum(begin, pixels), 0, None)
    return weights / weights.sum(1, keepdims=True)


def _stretched(size, made):
    """AREA where an image grows: two pixels are blended only where the made one lies on both."""
    scale = size / made
    first = np.floor(np.arange(made) * scale).astype(int)
    part = np.arange(1, made + 1) - (first + 1) / scale
    part = np.where(part <= 0, 0, part - np.floor(part))
    return _spread(np.stack([first, first + 1], 1), np.stack([1 - part, part], 1), size)


def _pilcubic(size, made):
    """Of all pixels that a smaller image's pixel covers, with a = -0.5."""
    scale = size / made
    widening = max(scale, 1.0)
    centers = (np.arange(made) + 0.5) * scale
    # Pillow rounds where the pixels begin and end.
    begin, end = np.maximum((centers - 2 * widening + 0.5).astype(int), 0), np.minimum((centers + 2 * widening + 0.5).astype(int), size)
    pixels = np.arange(size)
    weights = _cubic((pixels + 0.5 - centers[:, None]) / widening, -0.5) * ((pixels >= begin[:, None]) & (pixels < end[:, None]))
    return weights / weights.sum(1, keepdims=True)


@functools.lru_cache(maxsize=64)  # images of a data set have few sizes
def _weights(interpolation, shape, size):
    """The matrices of the rows and of the columns."""
    is_smaller = all(made <= given for given, made in zip(shape, size))
    made = {Inter.NEAREST: _nearest, Inter.BICUBIC: _bicubic, Inter.AREA: _covered if is_smaller else _stretched, Inter.PILCUBIC: _pilcubic}[interpolation]
    return tuple(made(*sizes) for sizes in zip(shape, size))


def _rounded(dtype, values):
    if not np.issubdtype(dtype, np.integer):
        return values
    limits = np.iinfo(dtype)
    return np.clip(np.rint(values), limits.min, limits.max)


def resized(image, size, interpolation):
    """image: [height, width] or [height, width, channels]; size: (height, width). Of the image's dtype."""
    if image.ndim not in (2, 3):
        raise RuntimeError(f"Resize: the image must be [height, width] or [height, width, channels], but got the shape {image.shape}")
    if interpolation == Inter.PILCUBIC and (image.ndim != 3 or image.shape[2] != 3) and image.shape[:2] != tuple(size):
        raise RuntimeError(f"Resize: Inter.PILCUBIC is for images [height, width, 3], but got the shape {image.shape}")
    rows, columns = _weights(interpolation, image.shape[:2], tuple(size))
    values = np.asarray(image, np.float64)
    if interpolation == Inter.PILCUBIC:
        values = _rounded(image.dtype, np.einsum("wx,yx...->yw...", columns, values, optimize=True))  # as Pillow, between its passes
        values = np.einsum("hy,yw...->hw...", rows, values, optimize=True)
    else:
        values = np.einsum("hy,wx,yx...->hw...", rows, columns, values, optimize=True)
    return _rounded(image.dtype, values).astype(image.dtype)


def size_of_shorter(shape, side):
    """(height, width) of an image whose shorter side becomes `side`; the aspect ratio is kept."""
    height, width = shape[:2]
    return (side, width * side // height) if height < width else (height * side // width, side)
