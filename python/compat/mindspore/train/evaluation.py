"""Evaluation: a Model's metrics, those that tessera computes and those of one's own, and what callbacks see of it."""
import numpy as np
import tessera

from mindspore.nn.class_metrics import F1, ROC, ConfusionMatrix, CosineSimilarity, Dice, Precision, Recall
from mindspore.nn.metrics import MAE, MSE, Loss, Metric, native_name
from mindspore.train.callback import RunContext, _CallbackManager

_NATIVE = {"acc": "accuracy", "accuracy": "accuracy", "loss": "loss", "top_1_accuracy": "top_1_accuracy", "top_5_accuracy": "top_5_accuracy"}
_MADE = {"mae": MAE, "mse": MSE, "precision": Precision, "recall": Recall, "F1": F1, "dice": Dice, "confusion_matrix": ConfusionMatrix,
         "cosine_similarity": CosineSimilarity, "roc": ROC}


class Metrics:
    """What a model is to measure: by name either tessera's name for it, or a Metric."""

    def __init__(self, metrics):
        self._metrics = dict(_named(metrics))

    def __bool__(self):
        return bool(self._metrics)

    @property
    def native(self):
        """tessera's names."""
        return [metric for metric in self._metrics.values() if isinstance(metric, str)]

    @property
    def own(self):
        """Those of one's own."""
        return [metric for metric in self._metrics.values() if not isinstance(metric, str)]

    def results(self, native):
        """By name, from what tessera has computed."""
        return {name: native[metric] if isinstance(metric, str) else metric.eval() for name, metric in self._metrics.items()}


def _named(metrics):
    """(name, tessera's name or a Metric) of each."""
    if metrics is None:
        return
    if isinstance(metrics, dict):
        for name, metric in metrics.items():
            if not isinstance(name, str) or not isinstance(metric, Metric):
                raise TypeError("For 'Model', if 'metrics' is dict, its keys must be string and its values must be Metric, but got "
                                f"key: {type(name).__name__}, value: {type(metric).__name__}.")
            yield name, native_name(metric) or metric
        return
    if not isinstance(metrics, (set, list, tuple)):
        raise TypeError(f"For 'Model', the argument 'metrics' must be None, dict or set, but got {type(metrics).__name__}.")
    for name in metrics:
        if name not in _NATIVE and name not in _MADE:
            raise KeyError(f"For 'Model', the metric must be one of {[*_NATIVE, *_MADE]}, but got {name}.")
        yield name, _NATIVE[name] if name in _NATIVE else _MADE[name]()


class Evaluation:
    """One pass over a data set: tessera shows it the batches."""

    def __init__(self, metrics, callbacks, params):
        self._metrics, self._params = metrics, params
        self._callbacks, self._context = _CallbackManager(callbacks), RunContext(params)

    def run(self, evaluate):
        """The results by name. evaluate(observers): tessera's, by its names."""
        for metric in self._metrics.own:
            metric.clear()
        self._callbacks.on_eval_begin(self._context)
        self._callbacks.on_eval_epoch_begin(self._context)
        self._begin_step()
        results = evaluate([self] if self._metrics.own or self._callbacks else [])
        self._callbacks.on_eval_epoch_end(self._context)
        self._params.metrics = self._metrics.results(results)
        self._callbacks.on_eval_end(self._context)
        return self._params.metrics

    def _begin_step(self):
        self._params.cur_step_num += 1
        self._callbacks.on_eval_step_begin(self._context)

    def update(self, output, label, loss):
        """A batch was evaluated; output and label have the rows of all ranks."""
        if self._context.get_stop_requested():
            return
        loss = tessera.Tensor(np.float32(loss))
        self._params.net_outputs = (loss, output, label)
        self._callbacks.on_eval_step_end(self._context)
        for metric in self._metrics.own:
            metric.update(*((loss,) if isinstance(metric, Loss) else (output, label)))
        if self._params.cur_step_num < self._params.batch_num and not self._context.get_stop_requested():
            self._begin_step()
