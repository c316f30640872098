"""Cells that take a batch in pieces, and one for their gradients, where later releases have them, and Transformers, where 1.8 and 1.9 have them."""
from mindspore.nn.transformer import (AttentionMask, CrossEntropyLoss, EmbeddingOpParallelConfig, FeedForward, MultiHeadAttention,  # noqa: F401
                                      OpParallelConfig, Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder,
                                      TransformerEncoderLayer, TransformerOpParallelConfig, TransformerRecomputeConfig, VocabEmbedding)
from mindspore.nn.wrap.accumulation import GradAccumulationCell as GradAccumulation  # noqa: F401
from mindspore.nn.wrap.grad_reducer import PipelineGradReducer  # noqa: F401
from mindspore.nn.wrap.micro_batches import MicroBatchInterleaved, PipelineCell  # noqa: F401

Pipeline = PipelineCell
