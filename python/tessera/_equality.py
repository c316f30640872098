"""`x == other` where other is nothing that can be compared elementwise: None, a text, a dict, a class.

Python then compares what is left to compare, which object it is: `x == None` is False and `x != None` True, as for NumPy's arrays and a text.
"""
import collections.abc
import functools
import numbers

import numpy as np

from tessera import _tessera

_KINDS = (_tessera.Tensor, _tessera.Value, _tessera.nn.Parameter)
_COMPARED = (*_KINDS, numbers.Number, np.ndarray, np.generic, collections.abc.Sequence)
_ARRAYS = ("__array__", "__array_interface__", "__dlpack__")


def _is_compared(other):
    """Whether elements are compared with it, or it is refused as wrong numbers are."""
    if isinstance(other, (str, bytes, bytearray, type)):
        return False
    return isinstance(other, _COMPARED) or any(hasattr(other, name) for name in _ARRAYS)


def _or_identity(method):
    @functools.wraps(method)
    def compare(self, other):
        return method(self, other) if _is_compared(other) else NotImplemented

    return compare


for _kind in _KINDS:
    for _name in ("__eq__", "__ne__"):
        setattr(_kind, _name, _or_identity(getattr(_kind, _name)))
