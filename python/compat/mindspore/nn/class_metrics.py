"""Metrics of classes, curves and similarity."""
import math
import sys

import numpy as np

from mindspore import _check
from mindspore.nn import metrics as _metrics
from mindspore.nn import more_metrics as _more
from mindspore.nn.metrics import Metric, _array, rearrange_inputs

_EPS = sys.float_info.min


def _nothing(who):
    return RuntimeError(f"The '{who}' can not be calculated, because the number of samples is 0, please check whether your "
                        "inputs(predicted value, true value) are empty, or has called update method before calling eval method.")


def _two(who, inputs):
    if len(inputs) != 2:
        raise ValueError(f"For '{who}.update', it needs 2 inputs (predicted value, true value), but got {len(inputs)}.")
    return [_array(item) for item in inputs]


def _is_one_hot(labels):
    return labels.ndim > 1 and np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == 1).all()


class _Counts(Metric):
    """How often each class is predicted, is true, and both. eval_type: "classification" or "multilabel"."""

    def __init__(self, eval_type="classification"):
        if eval_type not in ("classification", "multilabel"):
            raise TypeError(f"For '{type(self).__name__}', the 'eval_type' must be in ['classification', 'multilabel'], but got {eval_type}.")
        self.eval_type = self._type = eval_type
        super().__init__()

    def clear(self):
        self._classes, self._hits, self._given, self._had = 0, [], [], []

    @rearrange_inputs
    def update(self, *inputs):
        who = type(self).__name__
        given, had = _two(who, inputs)
        is_classes = self._type == "classification"
        if is_classes and given.ndim == had.ndim and _is_one_hot(had):
            had = had.argmax(axis=1)
        if given.ndim < 2 or given.ndim != had.ndim + is_classes:
            raise ValueError(f"For '{who}.update', the labels {had.shape} do not fit the predictions {given.shape} of {self._type}.")
        if self._classes not in (0, given.shape[1]):
            raise ValueError(f"For '{who}.update', class number not match, last input predicted data contain {self._classes} classes, but current "
                             f"predicted data contain {given.shape[1]} classes, please check your predicted value(inputs[0]).")
        self._classes = count = given.shape[1]
        if is_classes:
            if had.max() + 1 > count:
                raise ValueError(f"For '{who}.update', predicted value (input[0]) should have the same classes number as true value (input[1]), but got "
                                 f"predicted value classes {count}, true value classes {had.max() + 1}.")
            had, given = np.eye(count)[had.reshape(-1)], np.eye(count)[given.argmax(axis=1).reshape(-1)]
        else:
            given, had = (item.swapaxes(1, 0).reshape(count, -1) for item in (given, had))
        made = (had * given).sum(axis=0), given.sum(axis=0), had.sum(axis=0)
        for held, new in zip((self._hits, self._given, self._had), made):
            held.append(new)

    def _total(self, held):
        """Of classes over all batches; of labels each batch's rows stand behind each other."""
        return np.sum(held, axis=0) if self._type == "classification" else np.concatenate(held)

    def _quotient(self, whole, average):
        if self._classes == 0:
            raise _nothing(type(self).__name__)
        if not isinstance(average, bool):
            raise TypeError(f"For '{type(self).__name__}', the 'average' must be bool, but got {type(average).__name__}.")
        result = self._total(self._hits) / (self._total(whole) + _EPS)
        return result.mean() if average else result


class Precision(_Counts):
    """Of each class: the part of the rows that are given it that has it. eval(average=True): the mean."""

    def eval(self, average=False):
        return self._quotient(self._given, average)


class Recall(_Counts):
    """Of each class: the part of the rows that have it that is given it. eval(average=True): the mean."""

    def eval(self, average=False):
        return self._quotient(self._had, average)


class Fbeta(_Counts):
    """(1 + beta^2) * hits / (beta^2 * true + predicted) of each class. eval(average=True): the mean."""

    def __init__(self, beta):
        if not 0 < beta < math.inf:
            raise ValueError(f"For 'Fbeta', the argument 'beta' must be greater than 0, but got {beta}.")
        self.beta = beta
        super().__init__()

    def eval(self, average=False):
        if self._classes == 0:
            raise _nothing("Fbeta")
        square = self.beta**2
        result = (1.0 + square) * self._total(self._hits) / (square * self._total(self._had) + self._total(self._given) + _EPS)
        return result.mean() if average else result


class F1(Fbeta):
    """2 * hits / (true + predicted) of each class. eval(average=True): the mean."""

    def __init__(self):
        super().__init__(1.0)


class ConfusionMatrix(Metric):
    """[true class, predicted class]: how many rows; normalize: "no_norm", "target", "prediction" or "all". Scores of the labels'
    shape count as class 1 from the threshold on."""

    def __init__(self, num_classes, normalize="no_norm", threshold=0.5):
        if normalize not in ("target", "prediction", "all", "no_norm"):
            raise ValueError(f"For 'ConfusionMatrix', the argument 'normalize' must be in ['all', 'prediction', 'target', 'no_norm'], but got {normalize}.")
        if not isinstance(num_classes, int):
            raise TypeError(f"For 'ConfusionMatrix', the 'num_classes' must be int, but got {type(num_classes).__name__}.")
        self.num_classes, self.normalize, self.threshold = num_classes, normalize, _check.number("ConfusionMatrix", "threshold", threshold)
        super().__init__()

    def clear(self):
        self._matrix, self._is_updated = np.zeros((self.num_classes, self.num_classes)), False

    @rearrange_inputs
    def update(self, *inputs):
        given, had = _two("ConfusionMatrix", inputs)
        if given.ndim not in (had.ndim, had.ndim + 1):
            raise ValueError(f"For 'ConfusionMatrix.update', predicted value (input[0]) and true value (input[1]) should have same dimensions, or the "
                             f"dimension of predicted value equals the dimension of true value add 1, but got {given.ndim} and {had.ndim}.")
        if given.ndim == had.ndim + 1:
            given = given.argmax(axis=1)
        elif given.dtype.kind == "f":
            given = (given >= self.threshold).astype(int)
        places = (had.reshape(-1) * self.num_classes + given.reshape(-1)).astype(int)
        self._matrix += np.bincount(places, minlength=self.num_classes**2).reshape(self.num_classes, self.num_classes)
        self._is_updated = True

    def eval(self):
        if not self._is_updated:
            raise RuntimeError("Please call the 'update' method before calling 'eval' method.")
        if self.normalize == "no_norm":
            return self._matrix
        axis = {"target": 1, "prediction": 0, "all": None}[self.normalize]
        with np.errstate(invalid="ignore"):
            result = self._matrix / self._matrix.sum(axis=axis, keepdims=axis is not None)
        return np.nan_to_num(result, nan=0.0)


class Dice(Metric):
    """2 * the sum of x y over (the sum of x^2 + the sum of y^2 + smooth), of each batch; over the number of rows."""

    def __init__(self, smooth=1e-5):
        self.smooth = _check.positive("Dice", "smooth", smooth)
        super().__init__()

    def clear(self):
        self._sum, self._count = 0.0, 0

    @rearrange_inputs
    def update(self, *inputs):
        given, had = _two("Dice", inputs)
        if given.shape != had.shape:
            raise ValueError(f"For 'Dice.update', predicted value (input[0]) and true value (input[1]) should have same shape, but got {given.shape} and {had.shape}.")
        self._count += had.shape[0]
        given, had = given.reshape(-1), had.reshape(-1)
        self._sum += 2 * float(given @ had) / float(given @ given + had @ had + self.smooth)

    def eval(self):
        if self._count == 0:
            raise _nothing("Dice coefficient")
        return self._sum / float(self._count)


class Perplexity(Metric):
    """e to the mean of -log of the probability of each label; labels equal to ignore_label do not count."""

    def __init__(self, ignore_label=None):
        self.ignore_label = ignore_label
        super().__init__()

    def clear(self):
        self._sum, self._count = 0.0, 0

    @rearrange_inputs
    def update(self, *inputs):
        given, had = _two("Perplexity", inputs)
        if had.size * given.shape[-1] != given.size:
            raise RuntimeError(f"For 'Perplexity.update', predicted value (input[0]) and label (input[1]) should have the same shape, but got {given.shape} and {had.shape}.")
        had = had.reshape(-1).astype(int)
        chosen = given.reshape(-1, given.shape[-1])[np.arange(had.size), had]
        counts = had != self.ignore_label if self.ignore_label is not None else np.ones_like(had, bool)
        self._sum -= np.log(np.maximum(1e-10, chosen[counts])).sum()
        self._count += int(counts.sum())

    def eval(self):
        if self._count == 0:
            raise _nothing("Perplexity")
        return math.exp(self._sum / self._count)


class CosineSimilarity(Metric):
    """The products of all pairs of rows, of rows of length 1 for "cosine"; reduction: none, mean or sum of each row."""

    def __init__(self, similarity="cosine", reduction="none", zero_diagonal=True):
        if similarity not in ("dot", "cosine") or reduction not in ("none", "sum", "mean"):
            raise ValueError(f"For 'CosineSimilarity', the 'similarity' must be dot or cosine and the 'reduction' none, sum or mean, but got {similarity}, {reduction}.")
        self.similarity, self.reduction, self.zero_diagonal = similarity, reduction, zero_diagonal
        super().__init__()

    def clear(self):
        self._matrix = None

    @rearrange_inputs
    def update(self, inputs):
        rows = _array(inputs)
        if self.similarity == "cosine":
            rows = rows / np.linalg.norm(rows, ord=2, axis=1, keepdims=True)
        self._matrix = rows @ rows.T

    def eval(self):
        if self._matrix is None:
            raise RuntimeError("Please call the 'update' method before calling 'eval' method.")
        if self.zero_diagonal:
            np.fill_diagonal(self._matrix, 0)
        return self._matrix if self.reduction == "none" else (np.mean if self.reduction == "mean" else np.sum)(self._matrix, axis=-1)


class ROC(Metric):
    """(false positive rates, true positive rates, thresholds), of several classes lists of them."""

    def __init__(self, class_num=None, pos_label=None):
        self.class_num, self.pos_label = class_num, pos_label
        super().__init__()

    def clear(self):
        self._given = self._had = None

    @rearrange_inputs
    def update(self, *inputs):
        given, had = _two("ROC", inputs)
        if given.ndim == had.ndim:
            if self.class_num not in (None, 1):
                raise ValueError(f"For 'ROC', when predicted value (input[0]) and true value (input[1]) have the same shape, the 'class_num' must be 1, but got {self.class_num}.")
            self.class_num, given = 1, given.reshape(-1)
            self.pos_label = 1 if self.pos_label is None else self.pos_label
        elif given.ndim != had.ndim + 1 or self.class_num != given.shape[1] or self.pos_label is not None:
            raise ValueError(f"For 'ROC', predictions {given.shape} and labels {had.shape} need 'class_num' to be the number of classes and no 'pos_label', but got "
                             f"{self.class_num} and {self.pos_label}.")
        self._given, self._had = given, had.reshape(-1)

    def eval(self):
        if self._given is None:
            raise RuntimeError("Please call the 'update' method before calling 'eval' method.")
        if self.class_num == 1:
            return _curve(self._given, self._had == self.pos_label)
        curves = [_curve(self._given[:, c], self._had == c) for c in range(self.class_num)]
        return tuple(list(part) for part in zip(*curves))


def _curve(scores, is_positive):
    order = np.argsort(scores, kind="mergesort")[::-1]
    scores, is_positive = scores[order], is_positive[order]
    last = np.r_[np.where(np.diff(scores))[0], scores.size - 1]  # of equal scores
    hits = np.cumsum(is_positive)[last]
    misses = 1 + last - hits
    if misses[-1] <= 0 or hits[-1] <= 0:
        raise ValueError(f"For 'ROC.eval', there is no {'negative' if misses[-1] <= 0 else 'positive'} samples in true value.")
    thresholds = scores[last]
    return np.r_[0, misses] / misses[-1], np.r_[0, hits] / hits[-1], np.r_[thresholds[0] + 1, thresholds]


def auc(x, y, reorder=False):
    """The area under the curve of these points, by trapezoids. x rises or falls, unless reorder sorts it."""
    if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray):
        raise TypeError(f"For 'auc', the argument 'x' and 'y' must all be np.ndarray, but got {type(x)}, {type(y)}")
    x, y = x.reshape(-1), y.reshape(-1)
    if x.size != y.size or x.size < 2:
        raise ValueError(f"For 'auc', x and y must have one size of at least 2, but got {x.size} and {y.size}.")
    if reorder:
        order = np.lexsort((y, x))
        x, y = x[order], y[order]
    steps = np.diff(x)
    if (steps < 0).any() and (steps > 0).any():
        raise ValueError(f"For 'auc', the argument 'x' array must be increasing or decreasing, but got 'x': {x}")
    area = float((steps * (y[1:] + y[:-1]) / 2).sum())
    return -area if (steps < 0).any() else area


_BY_NAME = {"accuracy": _metrics.Accuracy, "acc": _metrics.Accuracy, "precision": Precision, "recall": Recall, "F1": F1, "dice": Dice, "roc": ROC, "auc": auc,
            "topk": _metrics.TopKCategoricalAccuracy, "top_1_accuracy": _metrics.Top1CategoricalAccuracy,
            "top_5_accuracy": _metrics.Top5CategoricalAccuracy, "loss": _metrics.Loss, "mae": _metrics.MAE, "mse": _metrics.MSE,
            "cosine_similarity": CosineSimilarity, "confusion_matrix": ConfusionMatrix, "perplexity": Perplexity, "bleu_score": _more.BleuScore,
            "confusion_matrix_metric": _more.ConfusionMatrixMetric, "hausdorff_distance": _more.HausdorffDistance,
            "mean_surface_distance": _more.MeanSurfaceDistance, "root_mean_square_distance": _more.RootMeanSquareDistance,
            "occlusion_sensitivity": _more.OcclusionSensitivity}


def names():
    """The names that get_metric_fn() knows."""
    return sorted(_BY_NAME)


def get_metric_fn(name, *args, **kwargs):
    """The metric of that name, made with these settings."""
    if name not in _BY_NAME:
        raise KeyError(f"Unsupported metric {name}; there are {names()}.")
    return _BY_NAME[name](*args, **kwargs)


def get_metrics(metrics):
    """{name: metric} of a set of names, or of such a dict; None of None."""
    if metrics is None:
        return None
    if isinstance(metrics, dict):
        for name, metric in metrics.items():
            if not isinstance(name, str) or not isinstance(metric, Metric):
                raise TypeError(f"For 'get_metrics', if 'metrics' is dict, the key in 'metrics' must be string and value in 'metrics' must be Metric, but got "
                                f"key:{type(name)}, value:{type(metric)}.")
        return metrics
    if isinstance(metrics, set):
        return {name: get_metric_fn(name) for name in metrics}
    raise TypeError(f"For 'get_metrics', the argument 'metrics' must be None, dict or set, but got {metrics}")
