"""Transforms of images, where early releases had them."""
from mindspore.dataset.transforms.vision import c_transforms
