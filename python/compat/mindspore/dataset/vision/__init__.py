"""Transforms of images."""
from mindspore.dataset.vision import c_transforms
from mindspore.dataset.vision.c_transforms import (HWC2CHW, Inter, Normalize, RandomCrop, RandomHorizontalFlip, Rescale, Resize,
                                                        SliceMode, SlicePatches)
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
