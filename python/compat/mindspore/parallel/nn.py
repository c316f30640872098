"""Cells that take a batch in pieces, where later releases have them."""
from mindspore.nn.wrap.accumulation import GradAccumulationCell as GradAccumulation  # noqa: F401
from mindspore.nn.wrap.micro_batches import MicroBatchInterleaved, PipelineCell  # noqa: F401

Pipeline = PipelineCell
