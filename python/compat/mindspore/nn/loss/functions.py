"""Losses that functions of ops compute."""
import tessera
from tessera import ops as _ops

from mindspore import _check
from mindspore.nn.loss import LossBase
from mindspore.ops import neural, sequences


def weights_of(who, weight):
    """The numbers of a weight for each class; of None none."""
    if weight is None:
        return []
    if isinstance(weight, tessera.Parameter):
        weight = weight.whole_value()
    if not isinstance(weight, tessera.Tensor):
        raise TypeError(f"For '{who}', the 'weight' must be a Tensor, but got {type(weight).__name__}.")
    return weight.asnumpy().tolist()


class CrossEntropyLoss(LossBase):
    """(logits [n,c,...], labels) -> the cross entropy. Labels are class numbers [n,...], of which ignore_index does not count, or
    distributions [n,c,...]. weight: of each class. label_smoothing: the part of a label that is spread over all classes."""

    def __init__(self, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
        super().__init__(reduction)
        self.weight, self.ignore_index, self.label_smoothing = weight, ignore_index, label_smoothing
        self.native = tessera.nn.CrossEntropy(weights_of("CrossEntropyLoss", weight), ignore_index, self.reduction, label_smoothing, is_strict=False)

    def construct(self, logits, labels):
        return self.native(logits, labels)


def _of_one(lengths):
    """The length of the one sequence, as that of a batch."""
    return (lengths.reshape((1, )) if lengths.ndim == 0 else lengths) if hasattr(lengths, "ndim") else (lengths, ) if isinstance(lengths, int) else lengths


class CTCLoss(LossBase):
    """(log_probs [t,n,c], targets [n,s], input_lengths, target_lengths) -> ops.ctc_loss's loss. zero_infinity: a sequence that is too short
    for its target has the loss and the gradient 0. Of one sequence the batch may be left out: log_probs [t,c], targets [s]."""

    def __init__(self, blank=0, reduction="mean", zero_infinity=False):
        super().__init__(reduction)
        self.blank, self.zero_infinity = blank, _check.boolean("CTCLoss", "zero_infinity", zero_infinity)

    def construct(self, log_probs, targets, input_lengths, target_lengths):
        if log_probs.ndim == 2:
            log_probs, targets = log_probs.expand_dims(1), targets.expand_dims(0) if targets.ndim == 1 else targets
            loss = self.construct(log_probs, targets, *(_of_one(lengths) for lengths in (input_lengths, target_lengths)))
            return loss.reshape(()) if self.reduction == "none" else loss
        return sequences.ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity)[0]


class NLLLoss(LossBase):
    """(logarithms of probabilities [n,c], class numbers [n]) -> minus that of the label. weight: of each class."""

    def __init__(self, weight=None, ignore_index=-100, reduction="mean"):
        super().__init__(reduction)
        self.weight, self.ignore_index = weight, ignore_index

    def construct(self, logits, labels):
        return neural.nll_loss(logits, labels, self.weight, self.ignore_index, self.reduction)


class KLDivLoss(LossBase):
    """labels * (log(labels) - logits). reduction: none, sum, mean, batchmean."""

    def __init__(self, reduction="mean"):
        super().__init__("mean" if reduction == "batchmean" else reduction)
        self.reduction = reduction

    def construct(self, logits, labels):
        return neural.kl_div(logits, labels, self.reduction)


class HuberLoss(LossBase):
    """(x - y)^2 / 2 where |x - y| <= delta, else delta * (|x - y| - delta / 2)."""

    def __init__(self, reduction="mean", delta=1.0):
        super().__init__(reduction)
        self.delta = _check.positive("HuberLoss", "delta", delta)

    def construct(self, logits, labels):
        return neural.huber_loss(logits, labels, self.reduction, self.delta)


class SoftMarginLoss(LossBase):
    """log(1 + e^(-x y))."""

    def construct(self, logits, labels):
        return neural.soft_margin_loss(logits, labels, self.reduction)


class HingeEmbeddingLoss(LossBase):
    """x where the label is 1, max(0, margin - x) where it is -1."""

    def __init__(self, margin=1.0, reduction="mean"):
        super().__init__(reduction)
        self.margin = _check.number("HingeEmbeddingLoss", "margin", margin)

    def construct(self, logits, labels):
        return neural.hinge_embedding_loss(logits, labels, self.margin, self.reduction)


class MarginRankingLoss(LossBase):
    """(a, b, target) -> max(0, -target * (a - b) + margin)."""

    def __init__(self, margin=0.0, reduction="mean"):
        super().__init__(reduction)
        self.margin = _check.number("MarginRankingLoss", "margin", margin)

    def construct(self, input1, input2, target):
        return neural.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


class CosineEmbeddingLoss(LossBase):
    """(a, b, labels) -> 1 - cos(a, b) where the label is 1, max(0, cos(a, b) - margin) where it is -1."""

    def __init__(self, margin=0.0, reduction="mean"):
        super().__init__(reduction)
        self.margin = _check.number("CosineEmbeddingLoss", "margin", margin)

    def construct(self, logits_x1, logits_x2, labels):
        return neural.cosine_embedding_loss(logits_x1, logits_x2, labels, self.margin, self.reduction)


class TripletMarginLoss(LossBase):
    """(anchor, positive, negative, margin=1) -> max(0, |anchor - positive| - |anchor - negative| + margin)."""

    def __init__(self, p=2, swap=False, eps=1e-06, reduction="mean", margin=1.0):
        super().__init__(reduction)
        _check.number("TripletMarginLoss", "p", p)
        _check.non_negative("TripletMarginLoss", "eps", eps)
        self.settings, self.margin = (p, eps, swap), margin if isinstance(margin, tessera.Tensor) else _check.number("TripletMarginLoss", "margin", margin)

    def construct(self, x, positive, negative, margin=None):
        return neural.triplet_margin_loss(x, positive, negative, self.margin if margin is None else margin, *self.settings, self.reduction)


class GaussianNLLLoss(LossBase):
    """(x, y, variance) -> (log(variance) + (x - y)^2 / variance) / 2."""

    def __init__(self, *, full=False, eps=1e-06, reduction="mean"):
        super().__init__(reduction)
        self.settings = (full, _check.positive("GaussianNLLLoss", "eps", eps))

    def construct(self, logits, labels, var):
        return neural.gaussian_nll_loss(logits, labels, var, *self.settings, self.reduction)


class PoissonNLLLoss(LossBase):
    """e^x - y * x, or x - y * log(x + eps) where log_input is False; full: with Stirling's approximation of log(y!) for y > 1."""

    def __init__(self, log_input=True, full=False, eps=1e-08, reduction="mean"):
        super().__init__(reduction)
        self.log_input, self.full, self.eps = log_input, full, _check.non_negative("PoissonNLLLoss", "eps", eps)

    def construct(self, input, target):
        loss = _ops.exp(input) - target * input if self.log_input else input - target * _ops.log(input + self.eps)
        if self.full:
            safe = _ops.maximum(target, 1.0)
            stirling = target * _ops.log(safe + self.eps) - target + 0.5 * _ops.log(6.283185307179586 * (safe + self.eps))
            loss = loss + _ops.select(_ops.greater(target, 1.0), stirling, _ops.zeros_like(loss))
        return self.get_loss(loss)


class DiceLoss(LossBase):
    """1 - (2 * the sum of x y + smooth) / (the sum of x^2 + the sum of y^2 + smooth)."""

    def __init__(self, smooth=1e-05):
        super().__init__()
        self.smooth = _check.positive("DiceLoss", "smooth", smooth)

    def construct(self, logits, label):
        both = _ops.reduce_sum(logits * label)
        return 1.0 - (2.0 * both + self.smooth) / (_ops.reduce_sum(_ops.square(logits)) + _ops.reduce_sum(_ops.square(label)) + self.smooth)
