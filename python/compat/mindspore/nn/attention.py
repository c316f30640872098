"""The Transformer of release 2: attention, encoder and decoder layers, and their stacks. nn.transformer has that of release 1."""
import copy
import math

import tessera
from tessera import ops as _ops

from mindspore import ops as P
from mindspore.common.initializer import HeUniform, Uniform, XavierNormal, XavierUniform, initializer
from mindspore.common.parameter import Parameter
from mindspore.nn.cell import Cell
from mindspore.nn.container import CellList
from mindspore.nn.layer import GELU, Dense, Dropout, LayerNorm, ReLU
from mindspore.ops import array, arithmetic


def _as_added(mask, dtype):
    """What is added to scores: of a bool mask -inf where it is true."""
    if mask.dtype != tessera.bool_:
        return _ops.cast(mask, dtype)
    return _ops.select(mask, _ops.fill(mask.shape, -math.inf, dtype), _ops.fill(mask.shape, 0.0, dtype))


def _check_mask(name, mask):
    if mask is not None and mask.dtype != tessera.bool_ and not arithmetic.is_floating_point(mask):
        raise ValueError(f"only bool and floating types of {name} are supported")


class MultiheadAttention(Cell):
    """(query [t,n,embed_dim], key [s,n,kdim], value [s,n,vdim]) -> (output [t,n,embed_dim], weights [n,t,s]); n before t and s with batch_first,
    absent where nothing is batched. Masks are true, or -inf, where a query must not look: key_padding_mask [n,s], attn_mask [t,s] or
    [n * num_heads,t,s]; numbers are added to the scores. need_weights=False: (output, ) alone; average_attn_weights=False: [n,num_heads,t,s].
    Parameters: in_proj_weight [3 embed_dim, embed_dim], or q_, k_ and v_proj_weight, in_proj_bias, out_proj."""

    _inner = "_drop"

    def __init__(self, embed_dim, num_heads, dropout=0.0, has_bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None, vdim=None,
                 batch_first=False, dtype=tessera.float32):
        super().__init__()
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise ValueError("The init argument 'embed_dim' must be divisible by 'num_heads'.")
        widths = {"q": embed_dim, "k": self.kdim, "v": self.vdim}
        self._is_packed = set(widths.values()) == {embed_dim}
        made = lambda init, shape, name: Parameter(initializer(init, shape, dtype), name)  # noqa: E731
        for letter, width in widths.items():
            name = f"{letter}_proj_weight"
            setattr(self, name, None if self._is_packed else made(XavierUniform(), (embed_dim, width), name))
        self.in_proj_weight = made(XavierUniform(), (3 * embed_dim, embed_dim), "in_proj_weight") if self._is_packed else None
        self.in_proj_bias = made("zeros", (3 * embed_dim, ), "in_proj_bias") if has_bias else None
        self.out_proj = _dense(embed_dim, embed_dim, dtype, has_bias)
        self.bias_k = made(XavierNormal(), (1, 1, embed_dim), "bias_k") if add_bias_kv else None
        self.bias_v = made(XavierNormal(), (1, 1, embed_dim), "bias_v") if add_bias_kv else None
        self.add_zero_attn, self.dtype = add_zero_attn, dtype
        self._drop = Dropout(p=dropout)

    def construct(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True):
        _check_mask("key_padding_mask", key_padding_mask)
        _check_mask("attn_mask", attn_mask)
        is_batched = query.ndim == 3
        if not is_batched:
            query, key, value = (_ops.expand_dims(x, 0) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else _ops.expand_dims(key_padding_mask, 0)
        elif not self.batch_first:
            query, key, value = (array.swapaxes(x, 0, 1) for x in (query, key, value))
        output, weights = self._attend(query, key, value, key_padding_mask, attn_mask, need_weights)
        if not is_batched:
            output = _ops.squeeze(output, 0)
        elif not self.batch_first:
            output = array.swapaxes(output, 0, 1)
        if not need_weights:
            return (output, )
        weights = _ops.reduce_mean(weights, 1) if average_attn_weights else weights
        return output, weights if is_batched else _ops.squeeze(weights, 0)

    def _projected(self, query, key, value):
        matrices = _ops.split(self.in_proj_weight, 3, 0) if self._is_packed else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        made = [_ops.matmul(x, w, False, True) for x, w in zip((query, key, value), matrices)]
        return made if self.in_proj_bias is None else [x + b for x, b in zip(made, _ops.split(self.in_proj_bias, 3, 0))]

    def _attend(self, query, key, value, padding_mask, mask, need_weights):
        """All [n,t or s,...] -> ([n,t,embed_dim], [n,num_heads,t,s])."""
        q, k, v = self._projected(query, key, value)
        n, s = k.shape[0], k.shape[1]
        if self.bias_k is not None:
            k, v = (_ops.concat([x, _ops.broadcast_to(b + 0.0, (n, 1, self.embed_dim))], 1) for x, b in ((k, self.bias_k), (v, self.bias_v)))
        if self.add_zero_attn:
            k, v = (_ops.concat([x, _ops.fill((n, 1, self.embed_dim), 0.0, x.dtype)], 1) for x in (k, v))
        q, k, v = (_ops.reshape(x, (n, -1, self.num_heads, self.head_dim)) for x in (q, k, v))
        added = self._masks(padding_mask, mask, n, s, k.shape[1] - s, q.dtype)
        if added is None and not need_weights and not (self.training and self.dropout):
            return self.out_proj(_ops.reshape(_ops.attention(q, k, v), query.shape)), None
        q, k, v = (_ops.transpose(x, (0, 2, 1, 3)) for x in (q, k, v))
        scores = _ops.matmul(q * (1.0 / math.sqrt(self.head_dim)), k, False, True)
        weights = self._drop(_ops.softmax(scores if added is None else scores + added))
        heads = _ops.transpose(_ops.matmul(weights, v), (0, 2, 1, 3))
        return self.out_proj(_ops.reshape(heads, query.shape)), weights

    def _masks(self, padding_mask, mask, n, s, more, dtype):
        """The sum of both masks, which broadcasts to [n,num_heads,t,s + more]; None without masks. Keys added by the cell are seen."""
        parts = []
        if mask is not None:
            added = _as_added(mask, dtype)
            parts.append(_ops.reshape(added, (n, self.num_heads, *added.shape[1:])) if added.ndim == 3 else _ops.expand_dims(added, (0, 1)))
        if padding_mask is not None:
            parts.append(_ops.reshape(_as_added(padding_mask, dtype), (n, 1, 1, s)))
        if not parts:
            return None
        added = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        return _ops.pad(added, (0, 0, 0, 0), (0, 0, 0, more), 0.0) if more else added


def _dense(size, made, dtype, has_bias=True):
    return Dense(size, made, HeUniform(math.sqrt(5)), Uniform(1 / math.sqrt(size)), has_bias, dtype=dtype)


def _activation(given):
    if isinstance(given, str):
        known = {"relu": P.relu, "gelu": P.gelu}
        if given not in known:
            raise ValueError(f"The activation must be relu/gelu, but get {given}")
        return known[given]
    is_known = isinstance(given, (ReLU, GELU)) if isinstance(given, Cell) else given in (P.relu, P.gelu)
    if not is_known:
        raise ValueError(f"The argument 'activation' must be \"relu\", \"gelu\", nn.ReLU, nn.GELU, ops.relu or ops.gelu instance, but get {given}.")
    return given


class _Layer(Cell):
    """What both layers share: attentions, the two dense layers, a norm and a dropout for each part."""

    def __init__(self, d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, dtype, attentions):
        super().__init__()
        for name in attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, dtype=dtype))
        self.dense1 = _dense(d_model, dim_feedforward, dtype)
        self.dropout = Dropout(p=dropout)
        self.dense2 = _dense(dim_feedforward, d_model, dtype)
        self.norm_first = norm_first
        places = range(1, len(attentions) + 2)
        for i in places:
            setattr(self, f"norm{i}", LayerNorm((d_model, ), epsilon=layer_norm_eps, dtype=dtype))
        for i in places:
            setattr(self, f"dropout{i}", Dropout(p=dropout))
        self.activation1 = activation
        self.activation = _activation(activation)
        self.d_model, self.nhead, self.dim_feedforward = d_model, nhead, dim_feedforward
        self.dropout_num, self.layernorm_eps, self.batch_first, self.dtype = dropout, layer_norm_eps, batch_first, dtype

    def _residual(self, norm, x, part):
        return x + part(norm(x)) if self.norm_first else norm(x + part(x))

    def _looks_at(self, attention, dropout, memory, mask, padding_mask):
        """The part of a layer that attends to the memory, None: to itself."""
        def part(x):
            seen = x if memory is None else memory
            return dropout(attention(x, seen, seen, attn_mask=mask, key_padding_mask=padding_mask, need_weights=False)[0])
        return part

    def _feeds_forward(self, dropout):
        return lambda x: dropout(self.dense2(self.dropout(self.activation(self.dense1(x)))))


class TransformerEncoderLayer(_Layer):
    """src [s,n,d_model], or [n,s,d_model] with batch_first -> the same shape."""

    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation="relu", layer_norm_eps=1e-5, batch_first=False,
                 norm_first=False, dtype=tessera.float32):
        super().__init__(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, dtype, ("self_attn", ))

    def construct(self, src, src_mask=None, src_key_padding_mask=None):
        x = self._residual(self.norm1, src, self._looks_at(self.self_attn, self.dropout1, None, src_mask, src_key_padding_mask))
        return self._residual(self.norm2, x, self._feeds_forward(self.dropout2))


class TransformerDecoderLayer(_Layer):
    """(tgt [t,n,d_model], memory [s,n,d_model]), n first with batch_first -> the shape of tgt."""

    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation="relu", layer_norm_eps=1e-5, batch_first=False,
                 norm_first=False, dtype=tessera.float32):
        super().__init__(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, dtype,
                         ("self_attn", "multihead_attn"))

    def construct(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None):
        x = self._residual(self.norm1, tgt, self._looks_at(self.self_attn, self.dropout1, None, tgt_mask, tgt_key_padding_mask))
        x = self._residual(self.norm2, x, self._looks_at(self.multihead_attn, self.dropout2, memory, memory_mask, memory_key_padding_mask))
        return self._residual(self.norm3, x, self._feeds_forward(self.dropout3))


class _Stack(Cell):
    """num_layers copies of a layer, which start from its values, and a norm."""

    def __init__(self, layer, num_layers, norm):
        super().__init__()
        self.layers = CellList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def _through(self, x, *others, **masks):
        for layer in self.layers:
            x = layer(x, *others, **masks)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """num_layers copies of encoder_layer one after the other, and a norm."""

    def __init__(self, encoder_layer, num_layers, norm=None):
        super().__init__(encoder_layer, num_layers, norm)

    def construct(self, src, src_mask=None, src_key_padding_mask=None):
        return self._through(src, src_mask=src_mask, src_key_padding_mask=src_key_padding_mask)


class TransformerDecoder(_Stack):
    """num_layers copies of decoder_layer one after the other, and a norm."""

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__(decoder_layer, num_layers, norm)

    def construct(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None):
        return self._through(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                             memory_key_padding_mask=memory_key_padding_mask)


class Transformer(Cell):
    """(src [s,n,d_model], tgt [t,n,d_model]), n first with batch_first -> the shape of tgt. Vaswani et al., NIPS 2017."""

    def __init__(self, d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048, dropout=0.1, activation="relu",
                 custom_encoder=None, custom_decoder=None, layer_norm_eps=1e-5, batch_first=False, norm_first=False, dtype=tessera.float32):
        super().__init__()
        settings = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, dtype)

        def norm():
            return LayerNorm((d_model, ), epsilon=layer_norm_eps, dtype=dtype)

        self.encoder = custom_encoder if custom_encoder is not None else TransformerEncoder(
            TransformerEncoderLayer(*settings), num_encoder_layers, norm())
        self.decoder = custom_decoder if custom_decoder is not None else TransformerDecoder(
            TransformerDecoderLayer(*settings), num_decoder_layers, norm())
        for parameter in self.get_parameters():
            if parameter.ndim > 1:
                parameter.set_data(initializer("xavier_uniform", parameter.shape, parameter.dtype))
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def construct(self, src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None, tgt_key_padding_mask=None,
                  memory_key_padding_mask=None):
        if src.ndim == 3 and tgt.ndim == 3 and src.shape[0 if self.batch_first else 1] != tgt.shape[0 if self.batch_first else 1]:
            raise ValueError("The number of batch size for 'src' and 'tgt' must be equal.")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ValueError("The number of features for 'src' and 'tgt' must be equal to `d_model`.")
        memory = self.encoder(src, src_mask=src_mask, src_key_padding_mask=src_key_padding_mask)
        return self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                            memory_key_padding_mask=memory_key_padding_mask)
