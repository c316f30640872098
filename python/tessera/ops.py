"""The operators as functions of tensors, of parameters, and of what construct() computes."""
import sys as _sys
import typing as _typing

from tessera._tessera.ops import *
from tessera._windows import avg_pool3d as avg_pool3d, conv3d as conv3d, conv3d_transpose as conv3d_transpose  # said so for type checkers
from tessera._windows import max_pool2d_with_places as max_pool2d_with_places, max_pool3d as max_pool3d
from tessera import _keywords

# As NumPy and PyTorch call them.
mean, sum, where = reduce_mean, reduce_sum, select

if not _typing.TYPE_CHECKING:  # it takes any name, and checkers would, too
    __getattr__ = _keywords.missing_from(_sys.modules[__name__], _keywords.OPS_WORDS)
del _keywords
