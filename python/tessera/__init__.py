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
from tessera._tessera import *
from tessera._tessera import __version__  # noqa: F401
from tessera import _callbacks, _copies, _indexing, _job, _numpy  # noqa: F401
import tessera.checkpoint as checkpoint
import tessera.cluster as cluster
import tessera.data as data
import tessera.nn as nn
import tessera.ops as ops
from tessera.nn import Cell, Parameter  # noqa: F401
from tessera._onnx import export_onnx  # noqa: F401
from tessera._keywords import explain_modules

_callbacks.has_only_known_hooks(Callback, ("begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end"))
explain_modules([checkpoint, cluster, data, nn, ops])
del explain_modules
