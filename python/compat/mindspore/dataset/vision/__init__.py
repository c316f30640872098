"""Transforms of images."""
from mindspore.dataset.vision import c_transforms
from mindspore.dataset.vision.c_transforms import (HWC2CHW, Inter, Normalize, RandomCrop, RandomHorizontalFlip, Rescale, Resize,
                                                        SliceMode, SlicePatches)
from mindspore.dataset.vision.colors import (AdjustBrightness, AdjustContrast, AdjustHue, AdjustSaturation, RandomColorAdjust, RandomRotation,
                                             RandomVerticalFlip, Rotate)
from mindspore.dataset.vision.images import (CenterCrop, Crop, Decode, HorizontalFlip, Invert, Pad, RandomCropDecodeResize,
                                                  RandomResizedCrop, ToTensor, ToType, VerticalFlip)
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
