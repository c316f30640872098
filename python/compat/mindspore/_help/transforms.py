"""What help() of the classes of `mindspore.dataset.transforms` says beside their own words, in the forms of _help/vision.py."""

ROWS = """
= What the first takes, of any shape -> what the last gives. Raises TypeError for what is no list, and for an empty one.
Compose: f([ms.dataset.vision.HWC2CHW(), ms.dataset.transforms.Fill(3)])(image) -> [3, 6, 4] || f([]) -> TypeError

= Arrays of one dtype, [n] -> [before + n + behind]; along the axis where they have more dims. Raises ValueError where it is called with shapes that do
  not fit.
Concatenate: f(0, np.array([0.0]), np.array([1.0, 2.0]))(np.ones(3)) -> [6] || f(0, np.ones((2, 2)))(np.ones(3)) -> ValueError

= Any shape and dtype -> two arrays of these. Raises TypeError where it is called with several columns.
Duplicate: once, again = f()(image) && assert once.shape == again.shape == (6, 4, 3) || f()(image, image) -> TypeError

= Any shape and dtype -> the same. Raises RuntimeError where it is called with strings and the value is none, or the other way around.
Fill: f(3)(image) -> [6, 4, 3] || f("a")(image) -> RuntimeError

= Any shape -> the same shape, bool unless another dtype is given. Raises TypeError for an operator that is no Relational, and for a constant that is
  neither a number nor a text.
Mask: f(ms.dataset.transforms.Relational.GT, 1)(image) -> [6, 4, 3] || f(">", 1) -> TypeError

= Integers [...] from 0 to num_classes - 1 -> [..., num_classes]. Raises TypeError for a num_classes that is no positive int, RuntimeError where it is
  called with what is no class.
OneHot: f(4)(np.array([0, 3])) -> [2, 4] || f(4)(4) -> RuntimeError

= Any dtype, which is kept; the value is 0 unless given, "" of strings. Raises ValueError where it is called with an array of more dims than pad_shape
  has, RuntimeError where the value is of another kind.
PadEnd: f([2, None, 5])(image) -> [2, 4, 5] || f([2])(image) -> ValueError

= Any dtype, which is kept: of a dim its entry leaves so many elements as it names. Raises TypeError for entries of other types, ValueError for more than
  one Ellipsis, RuntimeError where it is called with an array that does not have such a dim or place.
Slice: f(slice(0, 2), ..., [0, 2])(image) -> [2, 4, 2] || f(6)(image) -> RuntimeError

= Any shape, which becomes one dim -> (elements [k] of the same dtype, places int32 [n], counts int32 [k]). Raises TypeError where it is called with
  several columns.
Unique: found, places, counts = f()(np.array([3, 1, 3])) && assert found.tolist() == [1, 3] and places.tolist() == [1, 0, 1] and counts.tolist() == [1, 2] || f()(image, image) -> TypeError
"""

TEXTS = """
# Relational
EQ, NE, GT, GE, LT and LE. Raises ValueError for the number of none.

    mask = ms.dataset.transforms.Mask(ms.dataset.transforms.Relational.LT, 2)
    assert mask(np.array([1, 2])).tolist() == [True, False]
    ms.dataset.transforms.Relational(9)  # raises ValueError
"""
