"""Attention that keeps the keys and values of earlier tokens, so that a sequence can be predicted token by token."""
import numpy as np
import tessera
from tessera import ops

from mindspore.common.parameter import Parameter

_HALF = tessera.float16
_HIDDEN = 10000.0  # taken from the score of a key that is not seen


def make_past(who, batch_size, num_heads, hidden_size, seq_length):
    """(key_past [n,h,d,s], value_past [n,h,s,d]): float16 parameters that training leaves alone, zeros."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"For '{who}', use_past=True needs a 'batch_size' of at least 1, but got {batch_size}.")
    depth = hidden_size // num_heads
    shapes = {"key_past": (batch_size, num_heads, depth, seq_length), "value_past": (batch_size, num_heads, seq_length, depth)}
    return tuple(Parameter(tessera.Tensor(np.zeros(shape, np.float16)), name=name, requires_grad=False) for name, shape in shapes.items())


def attend(attention, num_heads, query, key, value, mask, past, batch_valid_length):
    """(query [n,t,hidden], key, value [n,s,hidden], mask [n,t,s]) -> (the result [n,t,hidden], (key [n,h,d,s], value [n,h,s,d]) to keep).

    Without a past: all tokens at once; what stands behind the first batch_valid_length int32 [n] tokens is not kept. With one,
    (key, value) as kept before: one token, t = 1, which comes behind those that were kept and sees them and itself."""
    batch, _, hidden = query.shape

    def heads(x, part):
        return ops.cast(ops.reshape(part(ops.reshape(x, (-1, hidden))), (batch, -1, num_heads, hidden // num_heads)), _HALF)

    queries, keys, values = heads(query, attention.dense1), heads(key, attention.dense2), heads(value, attention.dense3)
    if past is None:
        places = ops.range(0, keys.shape[1])
        is_kept = ops.cast(places < ops.expand_dims(batch_valid_length, 1), _HALF)[:, :, None, None]
        kept = keys * is_kept, values * is_kept
        seen = None if mask is None else ops.expand_dims(mask, 1)
    else:
        before = ops.transpose(past[0], (0, 3, 1, 2)), ops.transpose(past[1], (0, 2, 1, 3))
        places = ops.range(0, before[0].shape[1])
        number = ops.reduce_sum(ops.cast(ops.reduce_any(ops.not_equal(before[0], 0), (2, 3)), tessera.int32), 1, True)
        is_here = ops.cast(ops.equal(places, number), _HALF)[:, :, None, None]
        keys, values = kept = before[0] + keys * is_here, before[1] + values * is_here
        seen = (places <= number)[:, None, None, :]
    added = None if seen is None else (ops.cast(seen, tessera.float32) - 1.0) * _HIDDEN
    mixed = ops.reshape(ops.attention(queries, keys, values, added), (-1, hidden))
    result = ops.reshape(attention.dropout(attention.projection(mixed)), query.shape)
    return result, (ops.transpose(kept[0], (0, 2, 3, 1)), ops.transpose(kept[1], (0, 2, 1, 3)))


class KeepsPast:
    """What layers with use_past=True have: key_past and value_past, and attention that goes on from there.

    add_flags_recursive(is_first_iteration=True): all tokens are there at once, batch_valid_length of them count. False: one
    more. init_reset=False forgets what was kept."""
    is_first_iteration = True
    key_past = value_past = None

    def _add_past(self, *sizes):
        self.key_past, self.value_past = make_past(type(self).__name__, *sizes)

    def _attend_itself(self, x, mask, init_reset, batch_valid_length):
        """x with what its tokens see of each other and of earlier ones, and (key, value) as kept."""
        past, present = self._past(x, init_reset, batch_valid_length), None

        def attention(tokens):
            nonlocal present
            result, present = attend(self._native.attention, self.key_past.shape[1], tokens, tokens, tokens, mask, past, batch_valid_length)
            return result

        x = self._residual(self._native.layernorm1, x, attention)
        self.key_past, self.value_past = present
        return x, present

    def _past(self, x, init_reset, batch_valid_length):
        """(key, value) that were kept, None where all tokens are there at once; after a look at what was passed."""
        who = type(self).__name__
        if self.training:
            raise RuntimeError(f"For '{who}', use_past=True is for prediction: call set_train(False) first")
        if self.is_first_iteration and batch_valid_length is None:
            raise ValueError(f"For '{who}', use_past=True needs the 'batch_valid_length', int32 [batch_size], in the first iteration")
        tokens = self.value_past.shape[2] if self.is_first_iteration else 1
        if x.shape[:2] != (self.key_past.shape[0], tokens):
            raise ValueError(f"For '{who}', 'x' must be of {(self.key_past.shape[0], tokens)} tokens where is_first_iteration is "
                             f"{self.is_first_iteration}, but got {x.shape}.")
        if self.is_first_iteration:
            return None
        reuse = ops.cast(tessera.Tensor([init_reset]) if isinstance(init_reset, bool) else init_reset, _HALF)
        return self.key_past * reuse, self.value_past * reuse

    def _residual(self, norm, x, part):
        """x (or, with post_layernorm_residual, norm(x)) + part(norm(x))."""
        normed = ops.reshape(norm(ops.reshape(x, (-1, x.shape[-1]))), x.shape)
        return (normed if self._post_layernorm_residual else x) + part(normed)
