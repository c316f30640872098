"""Evaluation: a Model's metrics, those that tessera computes and those of one's own, and what callbacks see of it."""
import numpy as np
import tessera

from mindspore.nn.class_metrics import F1, ROC, ConfusionMatrix, CosineSimilarity, Dice, Precision, Recall
from mindspore.nn.metrics import MAE, MSE, Accuracy, Loss, Metric, Top1CategoricalAccuracy, Top5CategoricalAccuracy, native_name
from mindspore.train.callback import RunContext, _CallbackManager

# "accuracy" refuses a single column, of which the reference computes what top-1 accuracy is.
_NATIVE = {"acc": "top_1_accuracy", "accuracy": "top_1_accuracy", "top_1_accuracy": "top_1_accuracy", "top_5_accuracy": "top_5_accuracy"}
_MADE = {"mae": MAE, "mse": MSE, "precision": Precision, "recall": Recall, "F1": F1, "dice": Dice, "confusion_matrix": ConfusionMatrix,
         "cosine_similarity": CosineSimilarity, "roc": ROC, "loss": Loss}  # the mean over the batches, as the reference has it; tessera's is over the rows
# What tessera computes for Model.eval, as metrics for an evaluation by a network of one's own.
_MADE_ALSO = {"acc": Accuracy, "accuracy": Accuracy, "top_1_accuracy": Top1CategoricalAccuracy, "top_5_accuracy": Top5CategoricalAccuracy}


class Metrics:
    """What a model is to measure: by name either tessera's name for it, or a Metric; with all_own a Metric."""

    def __init__(self, metrics, all_own=False):
        self._metrics = dict(_named(metrics, all_own))

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


def _named(metrics, all_own):
    """(name, tessera's name or a Metric) of each."""
    if metrics is None:
        return
    if isinstance(metrics, dict):
        for name, metric in metrics.items():
            if not isinstance(name, str) or not isinstance(metric, Metric):
                raise TypeError("For 'Model', if 'metrics' is dict, its keys must be string and its values must be Metric, but got "
                                f"key: {type(name).__name__}, value: {type(metric).__name__}.")
            yield name, metric if all_own else native_name(metric) or metric
        return
    if not isinstance(metrics, (set, list, tuple)):
        raise TypeError(f"For 'Model', the argument 'metrics' must be None, dict or set, but got {type(metrics).__name__}.")
    for name in metrics:
        if name not in _NATIVE and name not in _MADE:
            raise KeyError(f"For 'Model', the metric must be one of {[*_NATIVE, *_MADE]}, but got {name}.")
        yield name, _NATIVE[name] if name in _NATIVE and not all_own else (_MADE | _MADE_ALSO)[name]()


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


class NetworkEvaluation:
    """An evaluation by a network of one's own, which gives what metrics take; or with indexes = [i, j, k] a tuple with the loss at i, the
    output at j and the label at k."""

    def __init__(self, network, indexes):
        if not isinstance(network, tessera.nn.Cell):
            raise TypeError(f"For 'Model', the argument 'eval_network' must be Cell, but got {type(network).__name__}.")
        if indexes is not None and (not isinstance(indexes, list) or len(indexes) != 3 or any(not isinstance(i, int) for i in indexes)):
            raise ValueError("For 'Model', the argument 'eval_indexes' must be a list or None. If 'eval_indexes' is a list, length of it must be three. "
                             f"But got 'eval_indexes' {indexes}.")
        self.network, self._indexes = network, indexes

    def run(self, dataset, num_workers, metrics, callbacks, params):
        """The results by name, and the mean loss, None without indexes. dataset: tessera's; a shard is this rank's rows."""
        context, manager, losses = RunContext(params), _CallbackManager(callbacks), []
        for metric in metrics.own:
            metric.clear()
        modes = _modes_of(self.network)
        self.network.set_train(False)
        try:
            manager.on_eval_begin(context)
            manager.on_eval_epoch_begin(context)
            for batch in dataset.batches(1, num_workers, 0):
                params.cur_step_num += 1
                manager.on_eval_step_begin(context)
                made = self.network(*batch)
                made = _of_all_ranks(made if isinstance(made, (tuple, list)) else (made,), dataset.num_shards() > 1)
                params.net_outputs = made
                manager.on_eval_step_end(context)
                self._update(metrics, made, losses)
                if context.get_stop_requested():
                    break
            manager.on_eval_epoch_end(context)
        finally:
            for cell, mode in modes:
                if cell.training != mode:
                    cell.set_train(mode)
        params.metrics = metrics.results({})
        manager.on_eval_end(context)
        return params.metrics, float(np.mean(losses)) if losses else None

    def _update(self, metrics, made, losses):
        if self._indexes is not None and len(made) < 3:
            raise ValueError("For 'Model', if argument 'eval_network' is given with 'eval_indexes', the length of eval_network's outputs must be >= 3, "
                             f"but got {len(made)}.")
        loss, output, label = (made[i] for i in self._indexes) if self._indexes is not None else (None, None, None)
        if loss is not None:
            losses.append(float(np.mean(loss.asnumpy())))
        for metric in metrics.own:
            if self._indexes is None:
                metric.update(*made)
            elif isinstance(metric, Loss):
                metric.update(loss)
            else:
                metric.update(output, label)


def _modes_of(cell):
    """(cell, whether it runs as in training) of the cell and all below."""
    return [(cell, cell.training)] + [entry for _, child in cell.children() for entry in _modes_of(child)]


def _of_all_ranks(values, is_part):
    """The rows of all ranks where each has its own; of what has no dims the mean."""
    if not is_part or tessera.cluster.size() == 1:
        return tuple(values)
    return tuple(tessera.ops.all_gather(value) if value.ndim else tessera.ops.all_reduce(value) / float(tessera.cluster.size()) for value in values)
