"""What `from mindspore.nn import *` gives, of each public module."""
import sys
import types

MODULES = ("mindspore", "mindspore.amp", "mindspore.common", "mindspore.common.dtype", "mindspore.common.initializer", "mindspore.communication",
           "mindspore.communication.management", "mindspore.dataset", "mindspore.dataset.transforms", "mindspore.dataset.transforms.c_transforms",
           "mindspore.dataset.vision", "mindspore.dataset.vision.c_transforms", "mindspore.nn", "mindspore.nn.loss", "mindspore.nn.optim",
           "mindspore.nn.transformer", "mindspore.nn.wrap", "mindspore.numpy", "mindspore.ops", "mindspore.ops.composite",
           "mindspore.ops.functional", "mindspore.ops.operations", "mindspore.parallel", "mindspore.train", "mindspore.train.callback",
           "mindspore.train.serialization")

# What modules of the package share, and constants that a script may call its own variables by.
_OWN = {"PendingTensor", "to_native", "e", "inf", "nan", "pi"}


def publish():
    """Gives each module its `__all__`: what it has, but for modules and what begins with an underscore."""
    for name in MODULES:
        module = sys.modules[name]
        module.__all__ = sorted(own for own, item in vars(module).items()
                                if not own.startswith("_") and own not in _OWN and not isinstance(item, types.ModuleType))
