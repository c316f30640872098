"""The loss of sequences that are not aligned: Graves et al., "Connectionist temporal classification", ICML 2006."""
import numpy as _np
import tessera as _tessera
from tessera import ops as _ops

from mindspore.ops import array as _array
from mindspore.ops import neural as _neural

__all__ = ["ctc_loss"]

_NEVER = -1e30  # the logarithm of what cannot be


def _lengths(name, given, count):
    if not isinstance(given, (_tessera.Tensor, _tessera.Value, _tessera.Parameter)):
        given = _tessera.Tensor(_np.asarray(given), _tessera.int32)
    if tuple(given.shape) != (count, ):
        raise ValueError(f"For 'ctc_loss', '{name}' must have one number for each of {count} sequences, but got the shape {tuple(given.shape)}.")
    return _ops.cast(given, _tessera.int32)


def _sum_of_exponents(terms):
    """log(e^a + e^b + ...)."""
    top = terms[0]
    for term in terms[1:]:
        top = _ops.maximum(top, term)
    top = _ops.stop_gradient(top)
    return top + _ops.log(sum(_ops.exp(term - top) for term in terms))


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """(loss, log_alpha [n, t, 2 s + 1]) of logarithms of probabilities [t, n, c] and class numbers [n, s], of which each sequence has so
    many; reduction "mean": over the sequences, each divided by its length."""
    if log_probs.ndim != 3 or targets.ndim != 2 or targets.shape[0] != log_probs.shape[1]:
        raise ValueError(f"For 'ctc_loss', 'log_probs' must be [t, n, c] and 'targets' [n, s], but got the shapes {tuple(log_probs.shape)} and "
                         f"{tuple(targets.shape)}.")
    steps, count, classes = log_probs.shape
    if isinstance(blank, bool) or not isinstance(blank, int) or not 0 <= blank < classes:
        raise ValueError(f"For 'ctc_loss', the 'blank' must be a class, in [0, {classes}), but got {blank}.")
    size, dtype = targets.shape[1], log_probs.dtype
    if dtype in (_tessera.float16, _tessera.bfloat16):
        log_probs = _ops.cast(log_probs, _tessera.float32)
    input_lengths, target_lengths = _lengths("input_lengths", input_lengths, count), _lengths("target_lengths", target_lengths, count)
    classes_of = _ops.cast(targets, _tessera.int32)
    blanks = _ops.fill((count, size), blank, _tessera.int32)
    states = _ops.concat([_ops.reshape(_ops.stack([blanks, classes_of], 2), (count, 2 * size)), _ops.fill((count, 1), blank, _tessera.int32)], 1)
    seen = _array.gather_elements(log_probs, 2, _ops.broadcast_to(_ops.expand_dims(states, 0), (steps, count, 2 * size + 1)))
    may_skip = _ops.logical_and(_ops.not_equal(states[:, 2:], states[:, :-2]), _ops.not_equal(states[:, 2:], blank)) if size else None
    never = lambda width: _ops.fill((count, width), _NEVER, seen.dtype)  # noqa: E731
    alpha = _ops.concat([seen[0][:, :2], never(2 * size - 1)], 1) if size else seen[0]
    alphas = [alpha]
    for step in range(1, steps):
        terms = [alpha]
        if size:
            skipped = _ops.select(may_skip, alpha[:, :-2], _ops.fill((count, 2 * size - 1), _NEVER, alpha.dtype))
            terms += [_ops.concat([never(1), alpha[:, :-1]], 1), _ops.concat([never(2), skipped], 1)]
        moved = _sum_of_exponents(terms) + seen[step]
        goes_on = _ops.broadcast_to(_ops.expand_dims(_ops.greater(input_lengths, step), 1), moved.shape)
        alphas.append(moved)
        alpha = _ops.select(goes_on, moved, alpha)
    last = _ops.expand_dims(target_lengths * 2, 1)
    ends = [_array.gather_elements(alpha, 1, last)]
    if size:
        before = _array.gather_elements(alpha, 1, _ops.maximum(last - 1, 0))
        ends.append(_ops.select(_ops.greater(last, 0), before, never(1)))
    losses = _ops.reshape(-_sum_of_exponents(ends), (count, ))
    instead = 0.0 if zero_infinity else float("inf")
    losses = _ops.select(_ops.greater(losses, -_NEVER / 2), _ops.zeros_like(losses) + instead, losses)
    if reduction == "mean":
        losses = losses / _ops.cast(_ops.maximum(target_lengths, 1), losses.dtype)
    log_alpha = _ops.stack(alphas, 1)
    log_alpha = _ops.select(_ops.less(log_alpha, _NEVER / 2), _ops.zeros_like(log_alpha) - float("inf"), log_alpha)
    return _ops.cast(_neural._reduced(losses, reduction), dtype), _ops.stop_gradient(log_alpha)
