"""Losses."""
import tessera
from tessera import ops as _ops

from mindspore import _check
from mindspore._missing import missing
from mindspore.nn.cell import Cell
from mindspore.ops import functional as _functional
from mindspore.ops import neural as _neural


class LossBase(Cell):
    """A loss of (logits, labels); reduction: mean, sum or none."""

    def __init__(self, reduction="mean"):
        super().__init__(auto_prefix=False)
        if reduction is None:
            reduction = "none"
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"For '{type(self).__name__}', the 'reduction' must be in ['mean', 'sum', 'none'], but got {reduction}.")
        self.reduction = reduction
        # As classes that derive from this one read them.
        self.reduce, self.average = reduction != "none", reduction == "mean"

    def get_axis(self, x):
        """All axes of x."""
        return tuple(range(len(x.shape)))

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
        _check.only("SoftmaxCrossEntropyWithLogits", "is_grad", is_grad, (False, ), "ops.grad and ops.GradOperation give gradients")
        super().__init__(reduction, lambda checked: tessera.nn.SoftmaxCrossEntropyWithLogits(sparse, checked))
        self.sparse = sparse


class _Broadcasting(_Native):
    """A loss of each element: of operands of different shapes, which are broadcast, what the function gives."""

    def construct(self, logits, labels):
        for name, value in (("logits", logits), ("labels", labels)):
            if not hasattr(value, "dtype"):  # a tensor, or a value of a traced graph
                raise TypeError(f"For '{self.cls_name}', the '{name}' must be a Tensor, but got {type(value).__name__}.")
        if logits.shape == labels.shape:
            return self.native(logits, labels)
        return self.function(logits, labels, self.reduction)


class MSELoss(_Broadcasting):
    """(logits - labels)^2."""
    function = staticmethod(_neural.mse_loss)

    def __init__(self, reduction="mean"):
        super().__init__(reduction, tessera.nn.MSELoss)


class L1Loss(_Broadcasting):
    """|logits - labels|."""
    function = staticmethod(_neural.l1_loss)

    def __init__(self, reduction="mean"):
        super().__init__(reduction, tessera.nn.L1Loss)


class SmoothL1Loss(LossBase):
    """(logits - labels)^2 / (2 beta) where |logits - labels| < beta, else |logits - labels| - beta / 2, of two tensors of floats of one shape."""

    def __init__(self, beta=1.0, reduction="none"):
        super().__init__(reduction)
        self.beta = _check.positive("SmoothL1Loss", "beta", beta)

    def construct(self, logits, labels):
        return _neural.smooth_l1_loss(logits, labels, self.beta, self.reduction)


class MAELoss(LossBase):
    """|logits - labels|."""

    def construct(self, logits, labels):
        return self.get_loss(_ops.abs(logits - labels))


class RMSELoss(LossBase):
    """The square root of the mean of (logits - labels)^2."""

    def __init__(self):
        super().__init__()

    def construct(self, logits, labels):
        return _ops.sqrt(_ops.reduce_mean(_ops.square(logits - labels)))


class BCELoss(LossBase):
    """-(labels * log(logits) + (1 - labels) * log(1 - logits)) * weight, for logits in (0, 1)."""

    def __init__(self, weight=None, reduction="mean"):
        super().__init__(reduction)
        self.weight = weight

    def construct(self, logits, labels):
        # As large as 100 where the logarithm would be infinite.
        log = lambda x: _ops.maximum(_ops.log(x), -100.0)  # noqa: E731
        loss = -(labels * log(logits) + (1.0 - labels) * log(1.0 - logits))
        return self.get_loss(loss if self.weight is None else loss * self.weight)


class BCEWithLogitsLoss(LossBase):
    """The same of sigmoid(logits); pos_weight: a factor of the labels' term."""

    def __init__(self, reduction="mean", weight=None, pos_weight=None):
        super().__init__(reduction)
        self.weight, self.pos_weight = weight, pos_weight

    def construct(self, logits, labels):
        # -log sigmoid(x) and -log(1 - sigmoid(x)).
        positive = _functional.softplus(-logits)
        loss = labels * (positive if self.pos_weight is None else positive * self.pos_weight) + (1.0 - labels) * _functional.softplus(logits)
        return self.get_loss(loss if self.weight is None else loss * self.weight)


__getattr__ = missing(__name__)
del missing
