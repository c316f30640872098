"""Encoder, decoder, and both as a Transformer."""
import tessera

from mindspore._missing import missing
from mindspore.nn.cell import Cell
from mindspore.nn.container import CellList
from mindspore.nn.transformer.layers import (AttentionMask, FeedForward, MultiHeadAttention, TransformerDecoderLayer,
                                             TransformerEncoderLayer, VocabEmbedding, check_common)
from mindspore.nn.transformer.op_parallel_config import TransformerOpParallelConfig, default_transformer_config


def _set_parallel_configure_for_layer(network, layer_id, offset, parallel_config, layers):
    """A layer's pipeline stage, the id of its gradients' bucket, and whether it is recomputed. layers: of the whole network."""
    stages = parallel_config.pipeline_stage
    if layers < stages:
        raise ValueError(f"layers {layers} must be larger than pipeline stage {stages}")
    number = layer_id + offset
    network.pipeline_stage = min(number // max(layers // stages, 1), stages - 1)
    network.set_comm_fusion(number // max(layers // parallel_config.gradient_aggregation_group, 1) + 1)
    recompute = parallel_config.recompute
    if recompute.recompute:
        network.recompute(parallel_optimizer_comm_recompute=recompute.parallel_optimizer_comm_recompute,
                          mp_comm_recompute=recompute.mp_comm_recompute, recompute_slice_activation=recompute.recompute_slice_activation)


class _Stack(Cell):
    """Layers one after the other. Parameters: blocks.<i>.*"""

    def _add_blocks(self, num_layers, make, parallel_config, lambda_func, offset):
        if not isinstance(parallel_config, TransformerOpParallelConfig):
            raise TypeError(f"For '{type(self).__name__}', the 'parallel_config' must be TransformerOpParallelConfig, but got "
                            f"{type(parallel_config).__name__}.")
        self.num_layers = num_layers
        self.blocks = CellList()
        for i in range(num_layers):
            block = make()
            if lambda_func is not None:
                lambda_func(block, layer_id=i, layers=num_layers, offset=offset, parallel_config=parallel_config)
            else:
                _set_parallel_configure_for_layer(block, i, offset, parallel_config, num_layers)
            self.blocks.append(block)


class TransformerEncoder(_Stack):
    """(hidden_states [n,t,hidden_size], attention_mask [n,t,t]) -> (the same shape, for each layer a None or, with use_past, its keys and values)."""

    def __init__(self, batch_size, num_layers, hidden_size, ffn_hidden_size, seq_length, num_heads, attention_dropout_rate=0.1,
                 hidden_dropout_rate=0.1, hidden_act="gelu", post_layernorm_residual=False, layernorm_compute_type=tessera.float32,
                 softmax_compute_type=tessera.float32, param_init_type=tessera.float32, lambda_func=None, offset=0, use_past=False,
                 moe_config=None, parallel_config=default_transformer_config):
        super().__init__()
        check_common("TransformerEncoder", parallel_config, num_layers=num_layers)
        self._add_blocks(num_layers, lambda: TransformerEncoderLayer(
            batch_size, hidden_size, ffn_hidden_size, num_heads, seq_length, attention_dropout_rate, hidden_dropout_rate,
            post_layernorm_residual, layernorm_compute_type, softmax_compute_type, param_init_type, hidden_act, use_past, moe_config,
            parallel_config), parallel_config, lambda_func, offset)

    def construct(self, hidden_states, attention_mask, init_reset=True, batch_valid_length=None):
        presents = []
        for block in self.blocks:
            hidden_states, present = block(hidden_states, attention_mask, init_reset, batch_valid_length)
            presents.append(present)
        return hidden_states, tuple(presents)


class TransformerDecoder(_Stack):
    """(hidden_states [n,t,hidden_size], attention_mask [n,t,t], encoder_output [n,s,hidden_size], memory_mask [n,t,s]) ->
    (the shape of hidden_states, for each layer a None or, with use_past, its keys and values)."""

    def __init__(self, num_layers, batch_size, hidden_size, ffn_hidden_size, src_seq_length, tgt_seq_length, num_heads,
                 attention_dropout_rate=0.1, hidden_dropout_rate=0.1, post_layernorm_residual=False,
                 layernorm_compute_type=tessera.float32, softmax_compute_type=tessera.float32, param_init_type=tessera.float32,
                 hidden_act="gelu", lambda_func=None, use_past=False, offset=0, moe_config=None, parallel_config=default_transformer_config):
        super().__init__()
        check_common("TransformerDecoder", parallel_config, num_layers=num_layers)
        self._add_blocks(num_layers, lambda: TransformerDecoderLayer(
            hidden_size, ffn_hidden_size, num_heads, batch_size, src_seq_length, tgt_seq_length, attention_dropout_rate,
            hidden_dropout_rate, post_layernorm_residual, use_past, layernorm_compute_type, softmax_compute_type, param_init_type,
            hidden_act, moe_config, parallel_config), parallel_config, lambda_func, offset)

    def construct(self, hidden_states, attention_mask, encoder_output=None, memory_mask=None, init_reset=True, batch_valid_length=None):
        presents = []
        for block in self.blocks:
            hidden_states, present = block(hidden_states, attention_mask, encoder_output, memory_mask, init_reset, batch_valid_length)
            presents.append(present)
        return hidden_states, tuple(presents)


class Transformer(Cell):
    """(encoder_inputs, encoder_masks, decoder_inputs, decoder_masks, memory_mask) -> (output, a None for each encoder layer, a None
    for each decoder layer; with use_past the keys and values of encoder layers). With decoder_layers=0 the output is the encoder's. Vaswani et al., 2017."""

    def __init__(self, hidden_size, batch_size, ffn_hidden_size, src_seq_length, tgt_seq_length, encoder_layers=3, decoder_layers=3,
                 num_heads=2, attention_dropout_rate=0.1, hidden_dropout_rate=0.1, hidden_act="gelu", post_layernorm_residual=False,
                 layernorm_compute_type=tessera.float32, softmax_compute_type=tessera.float32, param_init_type=tessera.float32,
                 lambda_func=None, use_past=False, moe_config=None, parallel_config=default_transformer_config):
        super().__init__()
        if encoder_layers < 1:
            raise ValueError(f"For 'Transformer', the 'encoder_layers' must be greater than 0, but got {encoder_layers}.")
        if use_past and decoder_layers > 0:
            raise NotImplementedError("For 'Transformer', use_past=True beside decoder layers is not available: predict with TransformerEncoder and "
                                      "TransformerDecoder, which needs the encoder's whole output for each token")
        self.encoder_layers, self.decoder_layers = encoder_layers, decoder_layers
        common = dict(hidden_size=hidden_size, ffn_hidden_size=ffn_hidden_size, num_heads=num_heads, batch_size=batch_size,
                      attention_dropout_rate=attention_dropout_rate, hidden_dropout_rate=hidden_dropout_rate, hidden_act=hidden_act,
                      post_layernorm_residual=post_layernorm_residual, layernorm_compute_type=layernorm_compute_type,
                      softmax_compute_type=softmax_compute_type, param_init_type=param_init_type, use_past=use_past,
                      moe_config=moe_config, parallel_config=parallel_config, lambda_func=lambda_func or self._configure)
        self.encoder = TransformerEncoder(num_layers=encoder_layers, seq_length=src_seq_length, offset=0, **common)
        if decoder_layers > 0:
            self.decoder = TransformerDecoder(num_layers=decoder_layers, src_seq_length=src_seq_length, tgt_seq_length=tgt_seq_length,
                                              offset=encoder_layers, **common)

    def _configure(self, network, layer_id, layers, offset, parallel_config):
        _set_parallel_configure_for_layer(network, layer_id, offset, parallel_config, self.encoder_layers + max(self.decoder_layers, 0))

    def construct(self, encoder_inputs, encoder_masks, decoder_inputs=None, decoder_masks=None, memory_mask=None, init_reset=True,
                  batch_valid_length=None):
        output, encoder_present = self.encoder(encoder_inputs, encoder_masks, init_reset, batch_valid_length)
        decoder_present = None
        if self.decoder_layers > 0:
            if decoder_inputs is None:
                raise ValueError("For 'Transformer', the 'decoder_inputs' must be given where there are decoder layers")
            output, decoder_present = self.decoder(decoder_inputs, decoder_masks, output, memory_mask)
        return output, encoder_present, decoder_present


__getattr__ = missing(__name__)
del missing
