"""What Transformers are made of."""
from mindspore.nn.transformer import layers, loss, op_parallel_config, transformer
from mindspore.nn.transformer.layers import (AttentionMask, FeedForward, MultiHeadAttention, TransformerDecoderLayer,
                                             TransformerEncoderLayer, VocabEmbedding)
from mindspore.nn.transformer.loss import CrossEntropyLoss
from mindspore.nn.transformer.op_parallel_config import (EmbeddingOpParallelConfig, OpParallelConfig, TransformerOpParallelConfig,
                                                         TransformerRecomputeConfig)
from mindspore.nn.transformer.transformer import Transformer, TransformerDecoder, TransformerEncoder
from mindspore._missing import missing

__all__ = ["AttentionMask", "CrossEntropyLoss", "EmbeddingOpParallelConfig", "FeedForward", "MultiHeadAttention", "OpParallelConfig",
           "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
           "TransformerOpParallelConfig", "TransformerRecomputeConfig", "VocabEmbedding"]
__getattr__ = missing(__name__)
del missing
