"""Losses."""
import tessera

from mindspore._missing import missing
from mindspore.nn.cell import Cell


class LossBase(Cell):
    """A loss of (logits, labels); reduction: mean, sum or none."""

    def __init__(self, reduction="mean"):
        super().__init__(auto_prefix=False)
        if reduction is None:
            reduction = "none"
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"For '{type(self).__name__}', the 'reduction' must be in ['mean', 'sum', 'none'], but got {reduction}.")
        self.reduction = reduction

    def get_loss(self, x, weights=1.0):
        """The reduction of x * weights."""
        x = x * weights
        if self.reduction == "none":
            return x
        return (tessera.ops.reduce_mean if self.reduction == "mean" else tessera.ops.reduce_sum)(x)


Loss = _Loss = LossBase


class _Native(LossBase):
    def __init__(self, reduction, make):
        super().__init__(reduction)
        self.native = make(self.reduction)

    def construct(self, logits, labels):
        return self.native(logits, labels)


class SoftmaxCrossEntropyWithLogits(_Native):
    """-sum of label * log softmax(logits); labels are class numbers if sparse, else distributions."""

    def __init__(self, sparse=False, reduction="none", is_grad=False):
        if not isinstance(sparse, bool):
            raise TypeError(f"For 'SoftmaxCrossEntropyWithLogits', the 'sparse' must be bool, but got {type(sparse).__name__}.")
        super().__init__(reduction, lambda checked: tessera.nn.SoftmaxCrossEntropyWithLogits(sparse, checked))
        self.sparse = sparse


class MSELoss(_Native):
    """(logits - labels)^2."""

    def __init__(self, reduction="mean"):
        super().__init__(reduction, tessera.nn.MSELoss)


class L1Loss(_Native):
    """|logits - labels|."""

    def __init__(self, reduction="mean"):
        super().__init__(reduction, tessera.nn.L1Loss)


__getattr__ = missing(__name__)
del missing
