"""Model: training, evaluation and prediction, spread over ranks as the context says."""
import os

import tessera

from mindspore import context
from mindspore._missing import WAITS, missing
from mindspore.context import ParallelMode
from mindspore.dataset.datasets import native_dataset
from mindspore.nn.cell import Cell
from mindspore.nn.metrics import _Metric
from mindspore.train.callback import Adapter, Callback, ModelCheckpoint, _InternalCallbackParam


class _LossFunction(Cell):
    """A function of (logits, labels) as a cell."""

    def __init__(self, function):
        super().__init__(auto_prefix=False)
        self._function = function

    def construct(self, logits, labels):
        return self._function(logits, labels)


def _metric_names(metrics):
    """(name of ours, tessera's name) of each."""
    if metrics is None:
        return []
    if isinstance(metrics, dict):
        pairs = []
        for name, metric in metrics.items():
            if not isinstance(metric, _Metric):
                raise NotImplementedError(f"metric \"{name}\": metrics of one's own are not available yet")
            pairs.append((name, metric.native))
        return pairs
    known = {"acc": "accuracy", "accuracy": "accuracy", "loss": "loss", "top_1_accuracy": "top_1_accuracy",
             "top_5_accuracy": "top_5_accuracy"}
    if not isinstance(metrics, (set, list, tuple)):
        raise TypeError(f"For 'Model', the argument 'metrics' must be None, dict or set, but got {type(metrics).__name__}.")
    for name in metrics:
        if name not in known:
            raise KeyError(f"For 'Model', the metric must be one of {list(known)}, but got {name}.")
    return [(name, known[name]) for name in metrics]


class Model:
    """A network with a loss and an optimizer."""

    def __init__(self, network, loss_fn=None, optimizer=None, metrics=None, eval_network=None, eval_indexes=None, amp_level="O0",
                 boost_level="O0", **kwargs):
        if not isinstance(network, tessera.nn.Cell):
            raise TypeError(f"For 'Model', the argument 'network' must be Cell, but got {type(network).__name__}.")
        if eval_network is not None or eval_indexes is not None:
            raise NotImplementedError("For 'Model', eval_network and eval_indexes are not available yet")
        if amp_level not in ("O0", None) or boost_level not in ("O0", "", None):
            raise RuntimeError(f"For 'Model', amp_level={amp_level} and boost_level={boost_level} are not available in "
                               "this package yet: use O0")
        if kwargs:
            raise ValueError(f"For 'Model', the keyword arguments {sorted(kwargs)} are not available")
        self._network, self._optimizer = network, optimizer
        self._loss_fn = loss_fn if loss_fn is None or isinstance(loss_fn, tessera.nn.Cell) else _LossFunction(loss_fn)
        self._metrics = _metric_names(metrics)
        self._options = _parallel_options()
        self._native = None

    def _model(self):
        if self._native is None:
            native_optimizer = None if self._optimizer is None else self._optimizer.native_for(self._network)
            self._native = tessera.Model(self._network, self._loss_fn, native_optimizer,
                                         metrics=[native for _, native in self._metrics], **self._options)
        return self._native

    def train(self, epoch, train_dataset, callbacks=None, dataset_sink_mode=True, sink_size=-1, initial_epoch=0):
        """Trains for `epoch` epochs. dataset_sink_mode: callbacks run once per sink_size steps, -1: once an epoch."""
        if isinstance(epoch, bool) or not isinstance(epoch, int):
            raise TypeError(f"For 'Model.train', the argument 'epoch' must be int, but got {type(epoch).__name__}.")
        if epoch < 1:
            raise ValueError(f"For 'Model.train', the argument 'epoch' must be greater than 0, but got {epoch}.")
        if not isinstance(dataset_sink_mode, bool):
            raise TypeError(f"For 'Model.train', the argument 'dataset_sink_mode' must be bool, but got {type(dataset_sink_mode).__name__}.")
        if isinstance(sink_size, bool) or not isinstance(sink_size, int) or sink_size < -1 or sink_size == 0:
            raise ValueError(f"For 'Model.train', The argument 'sink_size' must be equal to -1 or positive, but got {sink_size}.")
        if initial_epoch:
            raise NotImplementedError("For 'Model.train', initial_epoch is not available yet")
        dataset, num_workers = native_dataset(train_dataset)
        sinks = dataset_sink_mode and os.environ.get("GRAPH_OP_RUN") != "1"
        params = _InternalCallbackParam(train_network=self._network, network=self._network, loss_fn=self._loss_fn,
                                        optimizer=self._optimizer, train_dataset=train_dataset, mode="train",
                                        dataset_sink_mode=sinks, device_number=self._options.get("device_number", 1),
                                        parallel_mode=context.get_auto_parallel_context("parallel_mode"))
        self._model().train(epoch, dataset, _callbacks(callbacks, params), sinks, sink_size, num_workers)

    def eval(self, valid_dataset, callbacks=None, dataset_sink_mode=True):
        """The metrics over the data set, by name."""
        if not self._metrics:
            raise ValueError("For Model.eval, the model argument 'metrics' can not be None or empty, you should set the "
                             "argument 'metrics' for model.")
        dataset, num_workers = native_dataset(valid_dataset, trains=False)
        results = self._model().eval(dataset, num_workers)
        return {name: results[native] for name, native in self._metrics}

    def predict(self, *predict_data):
        """The network's result."""
        for data in predict_data:
            if isinstance(data, (int, float)):
                raise TypeError("For 'Model.predict', the inputs must be tensors: predict(x), without a number of epochs")
        return self._model().predict(*predict_data)

    def build(self, train_dataset=None, valid_dataset=None, sink_size=-1, epoch=1):
        """Compiles without running."""
        if isinstance(train_dataset, int):
            context.warn_once("Model.build(epoch, dataset): the arguments stand in the wrong order; the data set comes first")
            train_dataset, valid_dataset = valid_dataset, None
        self._model().build(native_dataset(train_dataset)[0], None if valid_dataset is None else native_dataset(valid_dataset, trains=False)[0])

    def __getattr__(self, name):
        waits = f"Model.{name} waits for {WAITS[name]}, which Tessera does not have yet" if name in WAITS else None
        raise AttributeError(waits or f"'Model' object has no attribute '{name}'")

    @property
    def train_network(self):
        """The network that is trained."""
        return self._network

    @property
    def eval_network(self):
        """The network that is evaluated."""
        return self._network

    @property
    def predict_network(self):
        """The network that predicts."""
        return self._network


def _callbacks(callbacks, params):
    if callbacks is None:
        return []
    made = []
    for callback in callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]:
        if not isinstance(callback, Callback):
            raise TypeError(f"For 'Model.train', the argument 'callbacks' must be Callback or list of Callback, but got {type(callback).__name__}.")
        made.append(callback.native if isinstance(callback, ModelCheckpoint) else Adapter(callback, params))
    return made


def _parallel_options():
    """tessera's options for the context's settings."""
    get = context.get_auto_parallel_context
    mode = get("parallel_mode")
    if mode == ParallelMode.STAND_ALONE:
        return {}
    tessera.cluster.init()
    options = {"parameter_broadcast": get("parameter_broadcast")}
    if mode == ParallelMode.HYBRID_PARALLEL:
        return options | {"parallel_mode": mode}
    options |= {"parallel_optimizer": get("enable_parallel_optimizer")}
    threshold = get("parallel_optimizer_config").get("parallel_optimizer_threshold")
    if threshold is not None:
        options["parallel_optimizer_threshold"] = threshold * 1024
    if get("optimizer_weight_shard_size") > 1:
        options["optimizer_weight_shard_size"] = get("optimizer_weight_shard_size")
    if mode == ParallelMode.DATA_PARALLEL:
        # The network sees statistics of the rank's own batch.
        return options | {"parallel_mode": mode, "gradients_mean": get("gradients_mean"), "batch_norm_statistics": "local"}
    if get("gradients_mean"):
        size = tessera.cluster.size()
        context.warn_once(f"gradients_mean=True in {mode}: the loss is global already, so the gradient is that of one device; the "
                          f"reference would have divided it by the size of each parameter's group, {size} at most: an "
                          f"effective learning rate of lr/{size}")
    if mode == ParallelMode.AUTO_PARALLEL:
        context.warn_once("auto_parallel: there is no search for strategies yet; training is data parallel")
        return options | {"parallel_mode": ParallelMode.DATA_PARALLEL}
    strategy = get("dataset_strategy")
    return options | {"parallel_mode": mode, "full_batch": get("full_batch"),
                      "dataset_strategy": [] if isinstance(strategy, str) else [list(item) for item in strategy],
                      "sharding_propagation": get("search_mode") == "sharding_propagation" or get("sharding_propagation"),
                      "strategy_ckpt_save_file": get("strategy_ckpt_save_file"),
                      "strategy_ckpt_load_file": get("strategy_ckpt_load_file"),
                      "group_ckpt_save_file": get("group_ckpt_save_file")}


__getattr__ = missing(__name__)
del missing
