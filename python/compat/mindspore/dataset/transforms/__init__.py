"""Transforms of any column."""
from mindspore.dataset.transforms import c_transforms, vision
from mindspore.dataset.transforms.arrays import Compose, Concatenate, Duplicate, Fill, Mask, OneHot, PadEnd, Relational, Slice, Unique
from mindspore.dataset.transforms.c_transforms import TypeCast
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
