"""Attention, feed-forward and the layers that are made of them. Their products are computed in float16, softmax and residuals in float32,
normalisation in layernorm_compute_type; parameters are float32."""
import tessera

from mindspore import _check
from mindspore._missing import missing
from mindspore.context import warn_once
from mindspore.nn.cell import Cell
from mindspore.nn.transformer.op_parallel_config import (EmbeddingOpParallelConfig, OpParallelConfig, default_dpmp_config,
                                                         default_embedding_parallel_config)
from mindspore.nn.transformer.past import KeepsPast, attend


def check_common(who, parallel_config, expert_num=1, **sizes):
    """TypeError or ValueError for sizes that are no positive ints; what is not available is refused by name."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"For '{who}', the '{name}' must be int, but got {type(value).__name__}.")
        if value < 1:
            raise ValueError(f"For '{who}', the '{name}' must be greater than 0, but got {value}.")
    if not isinstance(parallel_config, OpParallelConfig):
        raise TypeError(f"For '{who}', the 'parallel_config' must be OpParallelConfig or one made of it, but got {type(parallel_config).__name__}.")
    if expert_num != 1:
        raise NotImplementedError(f"For '{who}', expert_num={expert_num} is not available: there are no experts")


def check_types(who, **types):
    """Of the types that parts are computed or begin in. A softmax and parameters are float32, more exact than a float16 that is asked for: a warning."""
    for name, dtype in types.items():
        if dtype not in (tessera.float16, tessera.float32):
            raise TypeError(f"For '{who}', the '{name}' must be float16 or float32, but got {dtype}.")
        if name in _ONLY_FLOAT32 and dtype != tessera.float32:
            warn_once(f"For '{who}', {name}=float16 has no effect: {_ONLY_FLOAT32[name]}")


_ONLY_FLOAT32 = {"softmax_compute_type": "attention computes its softmax in float32",
                 "param_init_type": "parameters are float32, and products are computed in float16"}


class _Native(Cell):
    """A cell of tessera's, whose parameters and children are this one's."""

    _inner = "_native"

    def __init__(self, native, compute_dtype=None):
        super().__init__(auto_prefix=False)
        self._native = native
        if compute_dtype is not None:
            native.to_float(compute_dtype)

    def __getattr__(self, name):
        if name.startswith("_"):
            return super().__getattr__(name)
        return getattr(self._native, name)


class AttentionMask(_Native):
    """input_mask [n,t] -> [n,t,t]: 1 where both are tokens and the column is not after the row, else 0."""

    def __init__(self, seq_length, parallel_config=default_dpmp_config):
        check_common("AttentionMask", parallel_config, seq_length=seq_length)
        super().__init__(tessera.nn.AttentionMask(seq_length, parallel_config.native()))

    def construct(self, input_mask):
        return self._native(input_mask)


class VocabEmbedding(_Native):
    """input_ids int32 [n,t] -> (rows of the table, the table). Parameter: embedding_table [vocab_size, embedding_size]."""

    def __init__(self, vocab_size, embedding_size, parallel_config=default_embedding_parallel_config, param_init="normal"):
        from mindspore.common.initializer import PendingTensor, to_native
        check_common("VocabEmbedding", parallel_config, vocab_size=vocab_size, embedding_size=embedding_size)
        if not isinstance(parallel_config, EmbeddingOpParallelConfig):
            raise TypeError(f"For 'VocabEmbedding', the 'parallel_config' must be EmbeddingOpParallelConfig, but got {type(parallel_config).__name__}.")
        init = param_init.init if isinstance(param_init, PendingTensor) else None if isinstance(param_init, tessera.Tensor) else to_native(param_init)
        super().__init__(tessera.nn.VocabEmbedding(vocab_size, embedding_size, init or "zeros", parallel_config.native()))
        if init is None:
            self.embedding_table.set_data(param_init)
        self.vocab_size, self.embedding_size = vocab_size, embedding_size

    def construct(self, input_ids):
        return self._native(input_ids), self._native.embedding_table


class MultiHeadAttention(_Native):
    """(query, key, value [n,t,hidden_size], attention_mask) -> (the same shape, None).

    use_past: the second is (key, value) for key_past and value_past of the next call. is_first_iteration, a flag: whether these
    are all tokens, or one more behind what key_past and value_past hold."""
    is_first_iteration = True

    def __init__(self, batch_size, src_seq_length, tgt_seq_length, hidden_size, num_heads, hidden_dropout_rate=0.1,
                 attention_dropout_rate=0.1, compute_dtype=tessera.float16, softmax_compute_type=tessera.float32,
                 param_init_type=tessera.float32, use_past=False, parallel_config=default_dpmp_config):
        check_common("MultiHeadAttention", parallel_config, src_seq_length=src_seq_length, tgt_seq_length=tgt_seq_length,
                     hidden_size=hidden_size, num_heads=num_heads)
        check_types("MultiHeadAttention", compute_dtype=compute_dtype, softmax_compute_type=softmax_compute_type, param_init_type=param_init_type)
        super().__init__(tessera.nn.MultiHeadAttention(hidden_size, num_heads, float(hidden_dropout_rate), float(attention_dropout_rate),
                                                       False, parallel_config.native()), compute_dtype)
        self._num_heads, self._use_past = num_heads, use_past
        self._batch_size = batch_size if batch_size is None else _check.integer("MultiHeadAttention", "batch_size", batch_size, 1)

    def construct(self, query_tensor, key_tensor, value_tensor, attention_mask, key_past=None, value_past=None, batch_valid_length=None):
        if self._use_past:
            if query_tensor.shape[0] != self._batch_size:
                raise ValueError(f"For 'MultiHeadAttention', use_past=True needs a batch of 'batch_size' {self._batch_size} rows, but got "
                                 f"{query_tensor.shape[0]}.")
            past = None if self.is_first_iteration else (key_past, value_past)
            return attend(self._native, self._num_heads, query_tensor, key_tensor, value_tensor, attention_mask, past, batch_valid_length)
        masks = () if attention_mask is None else (attention_mask,)
        return self._native(query_tensor, key_tensor, value_tensor, *masks), None


class FeedForward(_Native):
    """x [n,t,hidden_size] or [n,hidden_size] -> dropout(act(x M + b) P + c), the same shape."""

    def __init__(self, hidden_size, ffn_hidden_size, dropout_rate, hidden_act="gelu", expert_num=1, expert_group_size=None,
                 param_init_type=tessera.float32, parallel_config=default_dpmp_config):
        check_common("FeedForward", parallel_config, expert_num, hidden_size=hidden_size, ffn_hidden_size=ffn_hidden_size)
        check_types("FeedForward", param_init_type=param_init_type)
        _check.only("FeedForward", "expert_group_size", expert_group_size, (None, ), "there are no experts")
        super().__init__(tessera.nn.FeedForward(hidden_size, ffn_hidden_size, float(dropout_rate), hidden_act, parallel_config.native()),
                         tessera.float16)
        self.hidden_size = hidden_size

    def construct(self, x):
        if x.ndim == 3:
            return self._native(x)
        return tessera.ops.reshape(self._native(tessera.ops.reshape(x, (-1, 1, self.hidden_size))), x.shape)


def _in(dtype, layer, *parts):
    for part in parts:
        getattr(layer, part).to_float(dtype)
    return layer


class TransformerEncoderLayer(KeepsPast, _Native):
    """(x [n,t,hidden_size], input_mask [n,t,t]) -> (the same shape, None; with use_past the keys and values that are kept)."""

    def __init__(self, batch_size, hidden_size, ffn_hidden_size, num_heads, seq_length, attention_dropout_rate=0.1,
                 hidden_dropout_rate=0.1, post_layernorm_residual=False, layernorm_compute_type=tessera.float32,
                 softmax_compute_type=tessera.float32, param_init_type=tessera.float32, hidden_act="gelu", use_past=False,
                 moe_config=None, parallel_config=default_dpmp_config):
        check_common("TransformerEncoderLayer", parallel_config, getattr(moe_config, "expert_num", 1), hidden_size=hidden_size,
                     ffn_hidden_size=ffn_hidden_size, num_heads=num_heads, seq_length=seq_length)
        layer = tessera.nn.TransformerEncoderLayer(hidden_size, ffn_hidden_size, num_heads, float(attention_dropout_rate),
                                                   float(hidden_dropout_rate), hidden_act, post_layernorm_residual, parallel_config.native())
        check_types("TransformerEncoderLayer", layernorm_compute_type=layernorm_compute_type, softmax_compute_type=softmax_compute_type,
                    param_init_type=param_init_type)
        super().__init__(_in(layernorm_compute_type, _in(tessera.float16, layer, "attention", "output"), "layernorm1", "layernorm2"))
        self._post_layernorm_residual, self._use_past = post_layernorm_residual, use_past
        if use_past:
            self._add_past(batch_size, num_heads, hidden_size, seq_length)

    def construct(self, x, input_mask=None, init_reset=True, batch_valid_length=None):
        if not self._use_past:
            return self._native(*([x] if input_mask is None else [x, input_mask])), None
        x, present = self._attend_itself(x, input_mask, init_reset, batch_valid_length)
        return self._residual(self._native.layernorm2, x, self._native.output), present


class TransformerDecoderLayer(KeepsPast, _Native):
    """(hidden_stats [n,t,hidden_size], decoder_mask [n,t,t], encoder_output [n,s,hidden_size], memory_mask [n,t,s]) ->
    (the shape of hidden_stats, None; with use_past the keys and values that are kept of it). The encoder's output is needed whole,
    also where one token follows the other."""

    def __init__(self, hidden_size, ffn_hidden_size, num_heads, batch_size, src_seq_length, tgt_seq_length, attention_dropout_rate=0.1,
                 hidden_dropout_rate=0.1, post_layernorm_residual=False, use_past=False, layernorm_compute_type=tessera.float32,
                 softmax_compute_type=tessera.float32, param_init_type=tessera.float32, hidden_act="gelu", moe_config=None,
                 parallel_config=default_dpmp_config):
        check_common("TransformerDecoderLayer", parallel_config, getattr(moe_config, "expert_num", 1), hidden_size=hidden_size,
                     ffn_hidden_size=ffn_hidden_size, num_heads=num_heads, src_seq_length=src_seq_length, tgt_seq_length=tgt_seq_length)
        layer = tessera.nn.TransformerDecoderLayer(hidden_size, ffn_hidden_size, num_heads, float(attention_dropout_rate),
                                                   float(hidden_dropout_rate), hidden_act, post_layernorm_residual, parallel_config.native())
        check_types("TransformerDecoderLayer", layernorm_compute_type=layernorm_compute_type, softmax_compute_type=softmax_compute_type,
                    param_init_type=param_init_type)
        super().__init__(_in(layernorm_compute_type, _in(tessera.float16, layer, "attention", "cross_attention", "output"),
                             "layernorm1", "layernorm2", "cross_attention_layernorm"))
        self._post_layernorm_residual, self._use_past = post_layernorm_residual, use_past
        if use_past:
            self._add_past(batch_size, num_heads, hidden_size, tgt_seq_length)

    def construct(self, hidden_stats, decoder_mask, encoder_output=None, memory_mask=None, init_reset=True, batch_valid_length=None):
        if encoder_output is None:
            raise ValueError("For 'TransformerDecoderLayer', the 'encoder_output' must be given: there is nothing to attend to")
        masks = () if decoder_mask is None else (decoder_mask,) if memory_mask is None else (decoder_mask, memory_mask)
        if not self._use_past:
            return self._native(hidden_stats, encoder_output, *masks), None
        x, present = self._attend_itself(hidden_stats, decoder_mask, init_reset, batch_valid_length)
        x = self._residual(self._native.cross_attention_layernorm, x,
                           lambda tokens: self._native.cross_attention(tokens, encoder_output, encoder_output, *masks[1:]))
        return self._residual(self._native.layernorm2, x, self._native.output), present


__getattr__ = missing(__name__)
del missing
