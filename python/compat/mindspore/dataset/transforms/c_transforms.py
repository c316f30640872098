"""Transforms of any column."""
from tessera import data as _data

from mindspore._missing import missing
from mindspore.dataset.transforms.arrays import Compose, Concatenate, Duplicate, Fill, Mask, OneHot, PadEnd, Relational, Slice, Unique  # noqa: F401


def TypeCast(data_type):
    """To another dtype."""
    return _data.type_cast(data_type)


__getattr__ = missing(__name__)
del missing
