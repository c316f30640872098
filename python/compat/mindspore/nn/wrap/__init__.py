"""Cells around a network: its loss, its gradients, a step of its training."""
from mindspore.nn.wrap import cell_wrapper, grad_reducer, loss_scale
from mindspore.nn.wrap.cell_wrapper import (ParameterUpdate, TrainOneStepCell, VirtualDatasetCellTriple, WithEvalCell, WithGradCell,
                                            WithLossCell)
from mindspore.nn.wrap.grad_reducer import DistributedGradReducer, PipelineGradReducer
from mindspore.nn.wrap.loss_scale import DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell, TrainOneStepWithLossScaleCell
from mindspore.nn.wrap.micro_batches import MicroBatchInterleaved, PipelineCell
from mindspore._missing import missing

from mindspore.nn.wrap.accumulation import GradAccumulationCell  # noqa: E402

__getattr__ = missing(__name__)
del missing
