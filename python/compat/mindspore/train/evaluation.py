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


class Losses:
    """The losses of the batches of an evaluation."""

    def __init__(self):
        self._losses = []

    def update(self, output, label, loss):
        """A batch was evaluated."""
        self._losses.append(float(loss))

    def mean(self):
        """Over the batches."""
        return float(np.mean(self._losses))


class EvaluatesEpochs(tessera.Callback):
    """Calls evaluate() after every frequency-th epoch, or after those of a list."""

    def __init__(self, frequency, evaluate):
        super().__init__()
        self._frequency, self._evaluate = frequency, evaluate

    def epoch_end(self, run):
        """Before the script's callbacks see the end of the epoch."""
        if run.epoch in self._frequency if isinstance(self._frequency, list) else run.epoch % self._frequency == 0:
            self._evaluate()


class ForgetsResults(tessera.Callback):
    """Takes the results of an evaluation away once all callbacks have seen them."""

    def __init__(self, params):
        super().__init__()
        self._params = params

    def epoch_end(self, run):
        """After the script's callbacks."""
        self._params.pop("metrics", None)
        self._params.pop("eval_results", None)


class Evaluation:
    """One pass over a data set: tessera shows it the batches. losses: Losses whose mean callbacks see as eval_results, with the metrics."""

    def __init__(self, metrics, callbacks, params, losses=None):
        self._metrics, self._params, self._losses = metrics, params, losses
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
        if self._losses is not None:
            self._params.eval_results = self._params.metrics | {"eval_loss": self._losses.mean()}
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
