"""What help() of the classes of `mindspore.dataset.vision` says beside their own words: of those that take alike in the form that _help/rows.py reads, of the
others in that of tessera/_function_help.py."""

ROWS = """
= An image [height, width, 3] of integers or floats -> the same shape and dtype. Raises TypeError for a factor that is no number, ValueError for a negative
  one, RuntimeError where it is called with an image of another shape.
AdjustBrightness AdjustContrast AdjustSaturation: f(2.0)(image) -> [6, 4, 3] || f(-1.0) -> ValueError

= An image [height, width, 3] of integers or floats -> the same shape and dtype. Raises TypeError for what is no number, ValueError for one outside -0.5
  to 0.5, RuntimeError where it is called with an image of another shape.
AdjustHue: f(0.25)(image) -> [6, 4, 3] || f(0.75) -> ValueError

= An image [height, width, 3] of integers or floats -> the same shape and dtype. Raises TypeError for what is neither a number nor two, ValueError for a
  negative number and for bounds that fall, RuntimeError where it is called with an image of another shape.
RandomColorAdjust: f(brightness=0.5, hue=0.1)(image) -> [6, 4, 3] || f(brightness=-0.5) -> ValueError

= An image [height, width, channels] of any dtype -> [*size, channels] of the same. Raises TypeError for a size that is neither an int nor two, ValueError
  for one that is not positive, and where it is called with an image of other dims.
CenterCrop: f((4, 2))(image) -> [4, 2, 3] || f(0) -> ValueError

= An image [height, width, channels], uint8 or float32 -> [*size, channels] of the same dtype. Raises TypeError for arguments of other types, ValueError
  for a size that is not positive and bounds that fall, and where it is called with an image of other dims.
RandomResizedCrop: f((4, 2))(image) -> [4, 2, 3] || f(0) -> ValueError

= An image [height, width] or [height, width, channels] of any dtype -> [*size] or [*size, channels] of the same. Raises RuntimeError where it is called
  with an image that the window does not lie within.
Crop: f((1, 0), (4, 2))(image) -> [4, 2, 3] || f((5, 0), (4, 2))(image) -> RuntimeError

= An image [height, width, ...] of any dtype -> the same shape and dtype. Raises IndexError where it is called with fewer dims.
HorizontalFlip VerticalFlip: f()(image) -> [6, 4, 3] || f()(np.array(3)) -> IndexError

= An image [height, ...] of any dtype -> the same shape and dtype. Raises TypeError for what is no number, ValueError for one outside 0 to 1.
RandomVerticalFlip: f(1.0)(image) -> [6, 4, 3] || f(1.5) -> ValueError

= uint8 or floats of any shape -> the same shape and dtype. Raises TypeError where it is called with what is no number.
Invert: f()(image) -> [6, 4, 3] || f()("a") -> TypeError

= An image [height, width, ...] of any dtype -> [top + height + bottom, left + width + right, ...] of the same. Raises ValueError for another number of
  sides, NotImplementedError for another mode than CONSTANT.
Pad: f((1, 2))(image) -> [10, 6, 3] || f((1, 2, 3)) -> ValueError

= An image [height, width] or [height, width, channels] of integers or floats -> the same shape and dtype; fill_value where it has no pixel. Raises
  TypeError for what is no number, ValueError for a center that is not two, NotImplementedError for other interpolations than Inter.NEAREST and
  Inter.BILINEAR.
Rotate: f(90)(image) -> [6, 4, 3] || f("a") -> TypeError

= An image [height, width] or [height, width, channels] of integers or floats -> the same shape and dtype; fill_value where it has no pixel. Raises
  TypeError for what is neither a number nor two, ValueError for a negative number and for bounds that fall, NotImplementedError for other interpolations
  than Inter.NEAREST and Inter.BILINEAR.
RandomRotation: f(30)(image) -> [6, 4, 3] || f(-30) -> ValueError

= An image [height, width, channels] of any dtype -> a tuple of patches [ceil(height / num_height), ceil(width / num_width), channels], with SliceMode.DROP
  [height // num_height, width // num_width, channels]. Raises TypeError for numbers that are no ints, ValueError for those that are not positive,
  RuntimeError where it is called with an image that has no such patches.
SlicePatches: patches = f(2, 2)(image) && assert len(patches) == 4 and patches[0].shape == (3, 2, 3) || f(0, 2) -> ValueError

= Raises ValueError where it is called with other dims.
ToTensor: f()(image) -> [3, 6, 4] || f()(np.ones(3)) -> ValueError

= Numbers of any shape -> that shape, in the dtype, one of mindspore's or NumPy's. Raises TypeError for what is no dtype, and for bfloat16.
ToType: f(ms.float32)(image) -> [6, 4, 3] || f(ms.bfloat16) -> TypeError
"""

TEXTS = """
# Decode
Raises TypeError for what is neither bytes nor an array of one dim, ValueError for bytes of another kind of file, NotImplementedError for to_pil.

    header = np.array([58, 0, 54, 40, 1, 1], "<u4").tobytes() + np.array([1, 24], "<u2").tobytes() + bytes(24)
    image = ms.dataset.vision.Decode()(b"BM" + header + bytes(4))  # [1, 1, 3]
    ms.dataset.vision.Decode()(b"words")  # raises ValueError

# RandomCropDecodeResize
The bytes of a file, uint8 [size] -> uint8 [*size, 3]. Raises what both raise.

    header = np.array([58, 0, 54, 40, 1, 1], "<u4").tobytes() + np.array([1, 24], "<u2").tobytes() + bytes(24)
    image = ms.dataset.vision.RandomCropDecodeResize((4, 2))(b"BM" + header + bytes(4))  # [4, 2, 3]
    ms.dataset.vision.RandomCropDecodeResize(0)  # raises ValueError

# Inter
NEAREST, BILINEAR (or LINEAR), BICUBIC (or CUBIC), AREA and PILCUBIC; what takes one refuses ANTIALIAS. Raises ValueError for the number of none.

    assert ms.dataset.vision.Inter.LINEAR == ms.dataset.vision.Inter.BILINEAR
    ms.dataset.vision.Inter(9)  # raises ValueError

# SliceMode
PAD: the last ones are filled with fill_value; DROP: what is over is left out. Raises AttributeError for another name.

    patches = ms.dataset.vision.SlicePatches(4, 1, ms.dataset.vision.SliceMode.DROP)(np.ones((6, 4, 3), np.uint8))
    assert patches[0].shape == (1, 4, 3)
    ms.dataset.vision.SliceMode.CUT  # raises AttributeError
"""
