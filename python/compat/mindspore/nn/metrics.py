"""Metrics: clear(), update(...) once per batch, eval()."""
import functools

import numpy as np

from mindspore._missing import missing


def _array(value):
    return value.asnumpy() if hasattr(value, "asnumpy") else np.asarray(value)


def rearrange_inputs(func):
    """Decorates an update(): its inputs are those that set_indexes() names."""

    @functools.wraps(func)
    def rearranged(self, *inputs):
        return func(self, *([inputs[i] for i in self.indexes] if self.indexes else inputs))

    return rearranged


class Metric:
    """A metric of one's own overrides clear, update and eval. Model.eval tells update() the outputs and labels of each batch, of all
    ranks; a Loss the batch's loss."""
    _indexes = None

    def __init__(self):
        self.clear()

    @property
    def indexes(self):
        """Which inputs an update() decorated with rearrange_inputs takes; None: all as they come."""
        return self._indexes

    def set_indexes(self, indexes):
        """Picks and orders the inputs of update(). Returns itself."""
        if not isinstance(indexes, list) or not all(isinstance(i, int) for i in indexes):
            raise ValueError("For 'set_indexes', the argument 'indexes' must be a list and all its elements must be int, but got "
                             f"{indexes}.")
        self._indexes = indexes
        return self

    def _convert_data(self, data):
        """A tensor's, a list's or an array's numbers as an array: what scripts that derive metrics call."""
        if not hasattr(data, "asnumpy") and not isinstance(data, (list, np.ndarray)):
            raise TypeError(f"For 'Metric', the type of input data must be Tensor, list or numpy.ndarray, but got {type(data).__name__}.")
        return _array(data)

    def _check_onehot_data(self, data):
        """Whether the rows of an array are zeros but for a one."""
        if data.ndim < 2 or not np.equal(data**2, data).all():
            return False
        return bool(np.equal(data.sum(axis=1), 1).all())

    def clear(self):
        """Forgets what update() was told."""
        raise NotImplementedError(f"{type(self).__name__}.clear")

    def update(self, *inputs):
        """Takes a batch into account."""
        raise NotImplementedError(f"{type(self).__name__}.update")

    def eval(self):
        """The metric of all batches since clear()."""
        raise NotImplementedError(f"{type(self).__name__}.eval")


class _Average(Metric):
    """A sum over a number of samples."""

    def clear(self):
        self._sum, self._count = 0.0, 0

    def eval(self):
        if self._count == 0:
            raise RuntimeError(f"The '{type(self).__name__}' can not be calculated, because the number of samples is 0, please check whether your "
                               "inputs(predicted value, true value) are empty, or has called update method before calling eval method.")
        return self._sum / self._count

    def _inputs(self, count, inputs):
        if len(inputs) != count:
            raise ValueError(f"For '{type(self).__name__}.update', it needs {count} inputs, but got {len(inputs)}.")
        return [_array(item) for item in inputs]


class Accuracy(_Average):
    """The part of rows whose largest logit is the label's; labels are class numbers, or rows with the largest at the class.
    multilabel: the part of rows, of zeros and ones, that are predicted wholly."""

    def __init__(self, eval_type="classification"):
        if eval_type not in ("classification", "multilabel"):
            raise TypeError(f"For 'Accuracy', the 'eval_type' must be in ['classification', 'multilabel'], but got {eval_type}.")
        self.eval_type = eval_type
        super().__init__()

    @rearrange_inputs
    def update(self, *inputs):
        logits, labels = self._inputs(2, inputs)
        if self.eval_type == "multilabel":
            self._update_multilabel(logits, labels)
            return
        if labels.ndim == logits.ndim > 1 and labels.shape[1] == logits.shape[1]:
            labels = labels.argmax(axis=1)
        if labels.ndim != logits.ndim - 1:
            raise ValueError(f"For 'Accuracy.update', the labels {labels.shape} do not fit the predictions {logits.shape}: predictions have a column per "
                             "class, one dim more than labels that are class numbers.")
        hits = logits.argmax(axis=1) == labels
        self._sum += hits.sum()
        self._count += hits.size

    def _update_multilabel(self, predictions, labels):
        if predictions.ndim < 2 or labels.shape != predictions.shape:
            raise ValueError(f"For 'Accuracy.update', the labels {labels.shape} do not fit the predictions {predictions.shape}.")
        hits = np.equal(predictions, labels).all(axis=1)
        self._sum += hits.sum()
        self._count += hits.size


class Loss(_Average):
    """The mean loss of the batches."""

    @rearrange_inputs
    def update(self, *inputs):
        loss, = self._inputs(1, inputs)
        if loss.size != 1:
            raise ValueError(f"For 'Loss.update', the loss must have one element, but got {loss.shape}.")
        self._sum += float(loss.reshape(()))
        self._count += 1


class MAE(_Average):
    """The sum of |prediction - label| over the number of rows."""

    @rearrange_inputs
    def update(self, *inputs):
        predictions, labels = self._inputs(2, inputs)
        self._sum += self._errors(labels.reshape(predictions.shape) - predictions).sum()
        self._count += labels.shape[0]

    def _errors(self, difference):
        return np.abs(difference)


class MSE(MAE):
    """The sum of (prediction - label)^2 over the number of rows."""

    def _errors(self, difference):
        return difference**2


class TopKCategoricalAccuracy(_Average):
    """The part of rows whose label is among the k largest logits."""

    def __init__(self, k):
        if isinstance(k, bool) or not isinstance(k, int):
            raise TypeError(f"For 'TopKCategoricalAccuracy', the 'k' should be int, but got {type(k).__name__}.")
        if k < 1:
            raise ValueError(f"For 'TopKCategoricalAccuracy', the 'k' must be greater than 0, but got {k}.")
        self.k = k
        super().__init__()

    @rearrange_inputs
    def update(self, *inputs):
        logits, labels = self._inputs(2, inputs)
        if labels.ndim == logits.ndim:
            labels = labels.argmax(axis=1)
        best = np.argsort(-logits, axis=1, kind="stable")[:, :self.k]
        self._sum += (best == labels[:, None]).any(axis=1).sum()
        self._count += labels.shape[0]


class Top1CategoricalAccuracy(TopKCategoricalAccuracy):
    """The part of rows whose label is the largest logit."""
    def __init__(self):
        super().__init__(1)


class Top5CategoricalAccuracy(TopKCategoricalAccuracy):
    """The part of rows whose label is among the five largest logits."""
    def __init__(self):
        super().__init__(5)


# "accuracy" refuses a single column, of which the reference computes what top-1 accuracy is.
_NATIVE = {Accuracy: "top_1_accuracy", Top1CategoricalAccuracy: "top_1_accuracy", Top5CategoricalAccuracy: "top_5_accuracy"}


def native_name(metric):
    """tessera's name for what it computes itself; None for a metric of one's own, also for one derived from these."""
    is_ours = not metric.indexes and getattr(metric, "eval_type", "classification") == "classification"
    return _NATIVE.get(type(metric)) if is_ours else None


__getattr__ = missing(__name__)
del missing
