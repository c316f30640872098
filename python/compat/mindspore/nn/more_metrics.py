"""Metrics of translations, of surfaces of segments, of confusion by channel, and of what an image's parts contribute."""
from collections import Counter

import numpy as np
import tessera

from mindspore import _check
from mindspore.nn.cell import Cell
from mindspore.nn.metrics import Metric, rearrange_inputs


def _kind(who, name, value, kind):
    if not isinstance(value, kind) or isinstance(value, bool) and kind is not bool:
        raise TypeError(f"For '{who}', the type of '{name}' must be '{kind.__name__}', but got '{value}' with type '{type(value).__name__}'.")
    return value


def _inputs(who, inputs, what):
    if len(inputs) != len(what):
        raise ValueError(f"For '{who}.update', it needs {len(what)} inputs ({', '.join(what)}), but got {len(inputs)}.")
    return inputs


def _check_updated(metric):
    if not metric._is_update:
        raise RuntimeError("Please call the 'update' method before calling 'eval' method.")


class BleuScore(Metric):
    """BLEU of translations that are lists of words, up to n_gram words, each with several references: Papineni et al., ACL 2002. update(candidates,
    references)."""

    def __init__(self, n_gram=4, smooth=False):
        self.n_gram = _kind("BleuScore", "n_gram", n_gram, int)
        if not 1 <= n_gram <= 4:
            raise ValueError(f"For 'BleuScore', the argument 'n_gram' should range from 1 to 4, but got {n_gram}.")
        self.smooth = _kind("BleuScore", "smooth", smooth, bool)
        super().__init__()

    def clear(self):
        self._hits, self._given = np.zeros(self.n_gram), np.zeros(self.n_gram)
        self._length = self._reference_length = 0
        self._is_update = False

    def _grams(self, words):
        return Counter(tuple(words[i:i + size]) for size in range(1, self.n_gram + 1) for i in range(len(words) - size + 1))

    @rearrange_inputs
    def update(self, *inputs):
        candidates, references = _inputs("BleuScore", inputs, ("candidate_corpus", "reference_corpus"))
        if len(candidates) != len(references):
            raise ValueError(f"For 'BleuScore.update', 'translate_corpus' (inputs[0]) and 'reference_corpus' (inputs[1]) should be equal in length, but got "
                             f"{len(candidates)}, {len(references)}")
        for candidate, own in zip(candidates, references):
            self._length += len(candidate)
            self._reference_length += min((len(reference) for reference in own), key=lambda length: abs(len(candidate) - length))
            grams, known = self._grams(candidate), Counter()
            for reference in own:
                known |= self._grams(reference)
            for counts, found in ((self._hits, grams & known), (self._given, grams)):
                for gram, count in found.items():
                    counts[len(gram) - 1] += count
        self._is_update = True

    def eval(self):
        _check_updated(self)
        if self._hits.min() == 0:
            return np.array(0.0)
        more = 1 if self.smooth else 0
        mean = np.exp(np.log((self._hits + more) / (self._given + more)).mean())
        return (1.0 if self._length > self._reference_length else np.exp(1 - self._reference_length / self._length)) * mean


# --- surfaces


def _shifted(mask, dim, step):
    """The mask's neighbours along a dim; False where there are none."""
    made = np.zeros_like(mask)
    ahead, behind = [slice(None)] * mask.ndim, [slice(None)] * mask.ndim
    ahead[dim], behind[dim] = (slice(1, None), slice(None, -1)) if step > 0 else (slice(None, -1), slice(1, None))
    made[tuple(ahead)] = mask[tuple(behind)]
    return made


def _edges(mask):
    """What of a segment has a neighbour, along a dim, that is not of it."""
    inner = mask.copy()
    for dim in range(mask.ndim):
        for step in (1, -1):
            inner &= _shifted(mask, dim, step)
    return inner ^ mask


_DISTANCES = {"euclidean": lambda steps: np.sqrt((steps**2).sum(axis=-1)), "chessboard": lambda steps: steps.max(axis=-1),
              "taxicab": lambda steps: steps.sum(axis=-1)}
_BLOCK = 1 << 22


def _distances(edges, others, metric):
    """Of each place of an edge the distance to the nearest one of the other edge; infinite where there is none."""
    places, targets = np.argwhere(edges), np.argwhere(others)
    if not len(targets):
        return np.full(len(places), np.inf)
    rows = max(1, _BLOCK // (len(targets) * edges.ndim))
    parts = [_DISTANCES[metric](np.abs(places[i:i + rows, None] - targets[None]).astype(np.float64)).min(axis=1) for i in range(0, len(places), rows)]
    return np.concatenate(parts) if parts else np.zeros(0)


class _Surfaces(Metric):
    """The edges of a segment, as predicted and true. update(predicted, true, the segment's label)."""

    def __init__(self, distance_metric):
        who = type(self).__name__
        self.distance_metric = _kind(who, "distance_metric", distance_metric, str)
        if distance_metric not in _DISTANCES:
            raise ValueError(f"For '{who}', the 'distance_metric' must be str and must be in '{list(_DISTANCES)}', but got '{distance_metric}'.")
        super().__init__()

    def clear(self):
        self._y_pred_edges = self._y_edges = None
        self._is_update = False

    @rearrange_inputs
    def update(self, *inputs):
        who = type(self).__name__
        given, had, label = _inputs(who, inputs, ("predicted value", "true value", "label index"))
        given, had = self._convert_data(given), self._convert_data(had)
        if not isinstance(label, (int, float)):
            raise (TypeError if who == "RootMeanSquareDistance" else ValueError)(
                f"For '{who}.update', the label index (input[2]) must be int or float, but got {type(label)}.")
        if label not in given and label not in had:
            raise ValueError(f"For '{who}.update', the label index (input[2]) must be in predicted value (input[0]) or true value (input[1]), but {label} is not.")
        if np.size(given) == 0 or np.shape(given) != np.shape(had):
            raise ValueError(f"For '{who}.update', predicted value and true value must have one shape, and not be empty, but got {np.shape(given)} and "
                             f"{np.shape(had)}.")
        self._y_pred_edges, self._y_edges = _edges(np.asarray(given) == label), _edges(np.asarray(had) == label)
        self._is_update = True

    def _both(self):
        """The distances of the predicted edge to the true one, and the other way round."""
        _check_updated(self)
        pair = (self._y_pred_edges, self._y_edges)
        return _distances(*pair, self.distance_metric), _distances(*pair[::-1], self.distance_metric)


class HausdorffDistance(_Surfaces):
    """The largest distance, or this percentile of all, of an edge from the other one. directed: of the predicted one from the true one. crop has no effect on
    it."""

    def __init__(self, distance_metric="euclidean", percentile=None, directed=False, crop=True):
        who = "HausdorffDistance"
        self.percentile = percentile if percentile is None else _kind(who, "percentile", percentile, float)
        self.directed = directed if directed is None else _kind(who, "directed", directed, bool)
        self.crop = crop if crop is None else _kind(who, "crop", crop, bool)
        super().__init__(distance_metric)

    def _largest(self, distances):
        if not distances.size:
            return np.inf
        if not self.percentile:
            return distances.max()
        if not 0 <= self.percentile <= 100:
            raise ValueError(f"For 'HausdorffDistance', the value of the argument 'percentile' must be [0, 100], but got {self.percentile}.")
        return np.percentile(distances, self.percentile)

    def eval(self):
        first, second = self._both()
        return self._largest(first) if self.directed else max(self._largest(first), self._largest(second))


class MeanSurfaceDistance(_Surfaces):
    """The mean distance of the predicted edge from the true one. symmetric: also the other way round."""

    def __init__(self, symmetric=False, distance_metric="euclidean"):
        self.symmetric = _kind(type(self).__name__, "symmetric", symmetric, bool)
        super().__init__(distance_metric)

    def eval(self):
        first, second = self._both()
        if not first.size or self.symmetric and not second.size:
            return np.inf
        return np.mean((first.mean(), second.mean())) if self.symmetric else first.mean()


class RootMeanSquareDistance(MeanSurfaceDistance):
    """The root of the mean square of the distances of both edges from each other, where symmetric; else, as in the reference, the mean square of the predicted
    edge's."""

    def eval(self):
        first, second = self._both()
        if not first.size or self.symmetric and not second.size:
            return np.inf
        return np.sqrt(np.mean(((first**2).mean(), (second**2).mean()))) if self.symmetric else (first**2).mean()


# --- confusion

_RATES = {
    "tpr": "sensitivity recall hit_rate true_positive_rate", "tnr": "specificity selectivity true_negative_rate",
    "ppv": "precision positive_predictive_value", "npv": "negative_predictive_value", "fnr": "miss_rate false_negative_rate",
    "fpr": "fall_out false_positive_rate", "fdr": "false_discovery_rate", "for": "false_omission_rate", "pt": "prevalence_threshold",
    "ts": "threat_score critical_success_index csi", "acc": "accuracy", "ba": "balanced_accuracy", "f1": "f1_score",
    "mcc": "matthews_correlation_coefficient", "fm": "fowlkes_mallows_index", "bm": "informedness bookmaker_informedness", "mk": "markedness deltap",
}
_SHORT = {word: short for short, words in _RATES.items() for word in (short, *words.split())}


def _rate(name, counts):
    """The rate of counts [..., 4]: true positives, false positives, true negatives, false negatives. NaN where it is of nothing."""
    tp, fp, tn, fn = (counts[..., i] for i in range(4))
    p, n = tp + fn, fp + tn

    def of(part, whole):
        return np.where(whole > 0, part / whole, np.nan)

    tpr, tnr, ppv, npv = of(tp, p), of(tn, n), of(tp, tp + fp), of(tn, tn + fn)
    whole, apart = tpr + tnr - 1, tp * tn - fp * fn
    product = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    return {"tpr": tpr, "tnr": tnr, "ppv": ppv, "npv": npv, "fnr": of(fn, p), "fpr": of(fp, n), "fdr": of(fp, tp + fp), "for": of(fn, tn + fn),
            "pt": np.where(whole != 0, (np.sqrt(tpr * (1 - tnr)) + tnr - 1) / whole, np.nan), "ts": of(tp, tp + fn + fp), "acc": of(tp + tn, p + n),
            "ba": (tpr + tnr) / 2, "f1": of(2 * tp, 2 * tp + fn + fp), "mcc": of(apart, product), "fm": np.sqrt(ppv * tpr), "bm": whole,
            "mk": ppv + npv - 1}[name]


# The axes of [sample, class] that are summed, or whose means are taken.
_DECREASES = {"none": (), "mean": (1, 0), "sum": ((0, 1), ), "mean_batch": (0, ), "sum_batch": (0, ), "mean_channel": (1, ), "sum_channel": (1, )}


def _decreased(chart, decrease):
    """(the chart's sums or means, of how many that are no NaN)."""
    known = (~np.isnan(chart)).astype(float)
    chart = np.where(known > 0, chart, 0)
    for axis in _DECREASES[decrease]:
        count = known.sum(axis=axis)
        chart = chart.sum(axis=axis)
        if decrease.startswith("mean"):
            chart = np.where(count > 0, chart / np.maximum(count, 1), 0)
        known = (count > 0).astype(float) if decrease == "mean" and np.ndim(count) else count
    return chart, known


class ConfusionMatrixMetric(Metric):
    """A rate of confusion of predictions and labels [sample, class, ...] of 0 and 1, by its name or a short one: metric_name. calculation_method: the mean of
    the samples' own rates, each decreased as `decrease` says; else the rate of all counts. skip_channel=False leaves class 0 out."""

    def __init__(self, skip_channel=True, metric_name="sensitivity", calculation_method=False, decrease="mean"):
        who = "ConfusionMatrixMetric"
        self.skip_channel, self.calculation_method = (_kind(who, name, value, bool) for name, value in
                                                      (("skip_channel", skip_channel), ("calculation_method", calculation_method)))
        self.metric_name = _kind(who, "metric_name", metric_name, str)
        _check.only(who, "decrease", _kind(who, "decrease", decrease, str), tuple(_DECREASES), "one of these says over what a mean or a sum is taken")
        self.decrease = decrease
        super().__init__()

    def clear(self):
        self._total, self._number, self._counts = 0.0, 0, np.zeros(4)

    @rearrange_inputs
    def update(self, *inputs):
        given, had = (np.asarray(self._convert_data(item)) for item in _inputs("ConfusionMatrixMetric", inputs, ("predicted value", "true value")))
        if not (had.astype(np.uint8) == had).all():
            raise ValueError("For 'ConfusionMatrix.update', the true value (input[1]) must be a binarized ndarray.")
        if given.ndim < 2:
            raise ValueError(f"For 'ConfusionMatrix.update', the predicted value (input[0]) must have at least 2 dimensions, but got {given.ndim}.")
        if given.shape != had.shape:
            raise ValueError(f"For 'ConfusionMatrix.update', the shapes {given.shape} and {had.shape} must be one.")
        if not self.skip_channel and given.shape[1] > 1:
            given, had = given[:, 1:], had[:, 1:]
        given, had = (item.astype(float).reshape(*item.shape[:2], -1) for item in (given, had))
        hits, misses = (given + had == 2).sum(axis=2).astype(float), (given + had == 0).sum(axis=2).astype(float)
        positive = had.sum(axis=2)
        counts = np.stack([hits, had.shape[-1] - positive - misses, misses, positive - hits], axis=-1)
        if not self.calculation_method:
            self._counts += counts.sum(axis=(0, 1))
            return
        if inputs[0].ndim == 2 or inputs[0].ndim == 3 and inputs[0].shape[-1] == 1:
            raise ValueError("For 'ConfusionMatrixMetric.update', calculation_method=True needs predictions of more than one place for each class.")
        with np.errstate(all="ignore"):
            chart, known = _decreased(_rate(self._name(), counts), self.decrease)
        self._total += np.asarray(chart).item() * int(np.asarray(known).item())
        self._number += int(np.asarray(known).item())

    def _name(self):
        name = self.metric_name.replace(" ", "_").lower()
        if name not in _SHORT:
            raise NotImplementedError(f"The metric is not implemented: ConfusionMatrixMetric knows {', '.join(_SHORT)}.")
        return _SHORT[name]

    def eval(self):
        if not self.calculation_method:
            with np.errstate(all="ignore"):
                return _rate(self._name(), self._counts[None])
        if self._number == 0:
            raise RuntimeError("The 'ConfusionMatrixMetric' can not be calculated, because the number of samples is 0, please check whether your inputs(predicted "
                               "value, true value) are empty, or has called update method before calling eval method.")
        return self._total / self._number


class OcclusionSensitivity(Metric):
    """How much less of a class a network says where a square of an image is pad_val: of each place, or those of b_box. update(network, one image, label)."""

    def __init__(self, pad_val=0.0, margin=2, n_batch=128, b_box=None):
        who = "OcclusionSensitivity"
        self.pad_val, self.margin, self.n_batch = (_kind(who, name, value, kind) for name, value, kind in
                                                   (("pad_val", pad_val, float), ("margin", margin, int), ("n_batch", n_batch, int)))
        self.b_box = b_box if b_box is None else _kind(who, "b_box", b_box, list)
        super().__init__()

    def clear(self):
        self._baseline = self._sensitivity = 0
        self._is_update = False

    def _bounds(self, sizes):
        if self.b_box is None:
            return np.zeros(len(sizes), int), sizes - 1
        if len(self.b_box) != 2 * len(sizes):
            raise ValueError(f"For 'OcclusionSensitivity', 'b_box' must have a least and a largest number for each of {len(sizes)} dims, but it has {len(self.b_box)}.")
        low, high = np.maximum(self.b_box[::2], 0), np.array(self.b_box[1::2])
        high = np.where(high < 0, sizes - 1, high)
        if (high >= sizes).any() or (low > high).any():
            raise ValueError(f"For 'OcclusionSensitivity', the bounding box {self.b_box} must lie within an image of {list(sizes)}, each minimum at or below its "
                             "maximum.")
        return low, high

    @rearrange_inputs
    def update(self, *inputs):
        model, image, label = _inputs("OcclusionSensitivity", inputs, ("classification model", "predicted value", "label"))
        image, label = np.asarray(self._convert_data(image)), label if isinstance(label, int) else int(np.asarray(self._convert_data(label)).item())
        if not isinstance(model, Cell):
            raise TypeError(f"For 'OcclusionSensitivity.update', the model must be a Cell, but got {type(model).__name__}.")
        if image.shape[0] != 1:
            raise RuntimeError(f"For 'OcclusionSensitivity.update', the shape at index 0 of the predicted value (input[1]) must be 1, but got {image.shape[0]}.")
        sizes = np.array(image.shape[1:])
        low, high = self._bounds(sizes)
        self._baseline = model(tessera.Tensor(image)).asnumpy()[0, label].item()
        scores, batch, shape = [], [], high - low + 1
        for number in range(int(shape.prod())):
            place = np.array(np.unravel_index(number, shape)) + low
            hidden = image.copy()
            hidden[(0, *(slice(max(0, at - self.margin), min(size, at + self.margin)) for at, size in zip(place, sizes)))] = self.pad_val
            batch.append(hidden)
            if len(batch) == self.n_batch or number == shape.prod() - 1:
                scores.append(model(tessera.Tensor(np.concatenate(batch))).asnumpy()[:, label])
                batch = []
        self._sensitivity = np.concatenate(scores).reshape(shape)
        self._is_update = True

    def eval(self):
        _check_updated(self)
        return self._baseline - np.squeeze(self._sensitivity)
