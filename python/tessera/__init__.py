"""Tessera trains a neural network that was written for one device on many.

    import tessera
    from tessera import nn

    network = nn.Dense(64, 10)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = tessera.Model(network, loss, nn.Momentum(learning_rate=0.1), metrics=["accuracy"])
    model.train(10, dataset, [tessera.LossMonitor()])

Names are those of the C++ classes: help(tessera.nn.Conv2d), help(tessera.ops.matmul). What does not fit raises
InvalidArgument, a ValueError; a lost disk or rank IoError, an OSError; a loss that is not finite NonFiniteLoss.
"""
import sys
from typing import TYPE_CHECKING

from tessera._tessera import *
from tessera._tessera import __version__ as __version__
from tessera import _callbacks, _copies, _equality, _indexing, _job, _numpy  # noqa: F401
if TYPE_CHECKING:  # checkers take only names in this form for a module's own
    from tessera import checkpoint as checkpoint, cluster as cluster, data as data, nn as nn, ops as ops
else:  # modules of these names have come from _tessera, too
    import tessera.checkpoint as checkpoint
    import tessera.cluster as cluster
    import tessera.data as data
    import tessera.nn as nn
    import tessera.ops as ops
from tessera.nn import Cell as Cell, Parameter as Parameter
from tessera._onnx import export_onnx as export_onnx
from tessera._examples import add_to_help
from tessera._function_help import add_to_functions
from tessera._keywords import TESSERA_WORDS, explain_attributes, explain_modules, missing_from

_callbacks.has_only_known_hooks(Callback, ("begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end"))
explain_modules([checkpoint, cluster, data, nn, ops])
add_to_help(sys.modules[__name__])
add_to_functions(sys.modules[__name__])
explain_attributes(Model, nn.Optimizer, Tensor, Parameter, Value)
if not TYPE_CHECKING:  # it takes any name, and checkers would, too
    __getattr__ = missing_from(sys.modules[__name__], TESSERA_WORDS)
del TESSERA_WORDS, add_to_functions, add_to_help, explain_attributes, explain_modules, missing_from, sys, TYPE_CHECKING
