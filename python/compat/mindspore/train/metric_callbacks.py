"""Callbacks that look at losses and metrics, and what they do about them."""
import math
import os

import numpy as np
import tessera

from mindspore import _check, context
from mindspore.common.parameter import Parameter
from mindspore.train.callback import _MOMENTS, Callback, _print
from mindspore.train.serialization import load_checkpoint, save_checkpoint, values_to_save

_SMALLER_IS_BETTER = ("hausdorff_distance", "mae", "mse", "loss", "perplexity", "mean_surface_distance", "root_mean_square_distance", "eval_loss")


def _loss(outputs):
    """The mean of the first output."""
    first = outputs[0] if isinstance(outputs, (tuple, list)) else outputs
    return float(np.mean(first.asnumpy())) if isinstance(first, tessera.Tensor) else float(first)


def _number(who, name, value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"For '{who}', the type of '{name}' should be one of [float, int], but got type '{type(value).__name__}'.")
    return value


class _Monitor(Callback):
    """What watches one number at the end of each epoch: "loss", or of Model.fit's evaluations a metric, "eval_loss" among them. The number is
    the same on all ranks: losses and metrics are those of the whole batch."""

    def __init__(self, monitor, mode, patience, min_delta, verbose):
        super().__init__()
        who = type(self).__name__
        for name, value in (("monitor", monitor), ("mode", mode)):
            if not isinstance(value, str):
                raise TypeError(f"For '{who}', the type of '{name}' should be 'str', but got type '{type(value).__name__}'.")
        self.monitor, self.mode = monitor, mode
        self.min_delta = abs(_number(who, "min_delta", min_delta))
        self.patience = _check.integer(who, "patience", patience, 0)
        self.verbose = _check.boolean(who, "verbose", verbose)
        if mode not in ("auto", "min", "max"):
            raise ValueError(f"mode should be 'auto', 'min' or 'max', but got {mode}.")
        self._falls = mode == "min" or mode == "auto" and monitor in _SMALLER_IS_BETTER
        self._start()

    def _start(self):
        self.best = np.inf if self._falls else -np.inf
        self.wait = 0

    def is_improvement(self, value, best):
        """Whether the value is better than the best by min_delta at least."""
        return value < best - self.min_delta if self._falls else value > best + self.min_delta

    def on_train_begin(self, run_context):
        self._start()

    def _value(self, params):
        """The number; None, with a warning, where there is none."""
        results = params.get("eval_results") or {}
        value = _loss(params.net_outputs) if self.monitor == "loss" else results.get(self.monitor)
        if value is None:
            context.warn_once(f"{type(self).__name__} watches {self.monitor}, which is not there; there are {sorted(['loss', *results])}. "
                              "Metrics of evaluations are those of Model.fit")
            return None
        if np.shape(value) != ():
            raise ValueError(f"{type(self).__name__} only supports scalar monitor now.")
        # As in the reference, a value of 0 is none.
        return float(value) if value else None


class EarlyStopping(_Monitor):
    """Ends the training when `monitor` has not become better for `patience` epochs. baseline: what must be reached for an epoch to count as
    better; restore_best_weights: the network and its optimizer have the values of the best epoch in the end."""

    def __init__(self, monitor="eval_loss", min_delta=0, patience=0, verbose=False, mode="auto", baseline=None, restore_best_weights=False):
        super().__init__(monitor, mode, patience, min_delta, verbose)
        self.baseline = None if baseline is None else _number("EarlyStopping", "baseline", baseline)
        self.restore_best_weights = _check.boolean("EarlyStopping", "restore_best_weights", restore_best_weights)
        self.stopped_epoch = 0
        self.best_weights_param_dict = None

    def on_train_begin(self, run_context):
        super().on_train_begin(run_context)
        self.stopped_epoch, self.best_weights_param_dict = 0, None

    def _keep(self, params):
        if self.restore_best_weights:
            self.best_weights_param_dict = {p.name: tessera.Tensor(p.asnumpy().copy()) for p in tessera.nn.Cell.parameters(params.train_network)}

    def on_train_epoch_end(self, run_context):
        params = run_context.original_args()
        value = self._value(params)
        if value is None:
            return
        if self.best_weights_param_dict is None:
            self._keep(params)
        self.wait += 1
        if self.is_improvement(value, self.best):
            self.best = value
            self._keep(params)
            if self.baseline is None or self.is_improvement(value, self.baseline):
                self.wait = 0
        if self.wait < self.patience:
            return
        self.stopped_epoch = params.cur_epoch_num
        run_context.request_stop()
        if self.best_weights_param_dict is not None:
            if self.verbose:
                _print("Restoring model weights from the end of the best epoch.")
            for parameter in tessera.nn.Cell.parameters(params.train_network):
                parameter.set_data(self.best_weights_param_dict[parameter.name])

    def on_train_end(self, run_context):
        if self.stopped_epoch > 0 and self.verbose:
            _print(f"Epoch {self.stopped_epoch:05d}: early stopping")


def _rate_of(who, params):
    """The optimizer's one rate."""
    rate = params.optimizer.learning_rate
    if not isinstance(rate, Parameter):
        raise ValueError(f"{who} does not support dynamic learning rate and group learning rate now.")
    return rate


class ReduceLROnPlateau(_Monitor):
    """Multiplies the learning rate by `factor`, down to min_lr, when `monitor` has not become better for `patience` epochs; `cooldown` epochs
    after that are not counted."""

    def __init__(self, monitor="eval_loss", factor=0.1, patience=10, verbose=False, mode="auto", min_delta=1e-4, cooldown=0, min_lr=0):
        if not isinstance(factor, float):
            raise TypeError(f"For 'ReduceLROnPlateau', the type of 'factor' must be 'float', but got '{type(factor).__name__}'.")
        self.factor = _check.between("ReduceLROnPlateau", "factor", factor, 0.0, 1.0, "(0.0, 1.0)")
        super().__init__(monitor, mode, patience, min_delta, verbose)
        self.cooldown = _check.integer("ReduceLROnPlateau", "cooldown", cooldown, 0)
        self.min_lr = _number("ReduceLROnPlateau", "min_lr", min_lr)
        self.cooldown_counter = 0

    def on_train_begin(self, run_context):
        super().on_train_begin(run_context)
        self.cooldown_counter = 0

    def on_train_epoch_end(self, run_context):
        params = run_context.original_args()
        parameter = _rate_of("ReduceLROnPlateau", params)
        value = self._value(params)
        if value is None:
            return
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.wait = 0
        if self.is_improvement(value, self.best):
            self.best, self.wait = value, 0
            return
        if self.cooldown_counter > 0:
            return
        self.wait += 1
        if self.wait < self.patience:
            return
        rate = parameter.asnumpy().item()
        if rate > self.min_lr:
            lower = max(rate * self.factor, self.min_lr)
            parameter.set_data(tessera.Tensor(np.float32(lower)))
            if self.verbose:
                _print(f"Epoch {params.cur_epoch_num:05d}: ReduceLROnPlateau reducing learning rate to {lower}.")
        self.cooldown_counter, self.wait = self.cooldown, 0


class LearningRateScheduler(Callback):
    """After each step the learning rate becomes learning_rate_function(rate, number of the step)."""

    def __init__(self, learning_rate_function):
        super().__init__()
        self.learning_rate_function = learning_rate_function

    def step_end(self, run_context):
        params = run_context.original_args()
        parameter = _rate_of("LearningRateScheduler", params)
        rate = parameter.asnumpy().item()
        wanted = self.learning_rate_function(rate, params.cur_step_num)
        if not math.isclose(rate, wanted, rel_tol=1e-10):
            parameter.set_data(tessera.Tensor(np.float32(wanted)))


class History(Callback):
    """history: {"net_output": the last loss of each epoch, and each metric of evaluations: theirs}; epoch: {"epoch": their numbers}."""

    def __init__(self):
        super().__init__()
        self.history, self.epoch = {}, None

    def begin(self, run_context):
        self.epoch = {"epoch": []}

    def epoch_end(self, run_context):
        params = run_context.original_args()
        self.epoch["epoch"].append(params.get("cur_epoch_num", 1))
        for name, value in {"net_output": _loss(params.net_outputs), **(params.get("metrics") or {})}.items():
            self.history.setdefault(name, []).append(value)


def _nothing(run_context):
    """What a moment without a function of one's own does."""


class LambdaCallback(Callback):
    """Calls functions of a RunContext: on_train_begin, on_train_epoch_begin, ..., on_eval_end."""

    def __init__(self, on_train_epoch_begin=None, on_train_epoch_end=None, on_train_step_begin=None, on_train_step_end=None, on_train_begin=None,
                 on_train_end=None, on_eval_epoch_begin=None, on_eval_epoch_end=None, on_eval_step_begin=None, on_eval_step_end=None,
                 on_eval_begin=None, on_eval_end=None):
        super().__init__()
        given = dict(locals())  # which reads all arguments
        for what in ("train", "eval"):
            for moment in _MOMENTS:
                name = f"on_{what}_{moment}"
                setattr(self, name, given[name] or _nothing)


class BackupAndRestore(Callback):
    """Saves the network and the states of its optimizer as backup_dir/backup.ckpt every save_freq epochs, and begins with what is there.
    delete_checkpoint: the file is removed at the end of the training. Of ranks that train together one writes in each directory."""

    def __init__(self, backup_dir, save_freq="epoch", delete_checkpoint=True):
        super().__init__()
        os.makedirs(backup_dir, exist_ok=True)
        self.backup_file = os.path.join(backup_dir, "backup.ckpt")
        self.save_freq = 1 if save_freq == "epoch" else _check.integer("BackupAndRestore", "save_freq", save_freq, 1)
        self.delete_checkpoint = _check.boolean("BackupAndRestore", "delete_checkpoint", delete_checkpoint)

    def on_train_begin(self, run_context):
        mode = context.get_auto_parallel_context("parallel_mode")
        self.is_parallel = mode != context.ParallelMode.STAND_ALONE and tessera.cluster.size() > 1
        directory = os.path.dirname(self.backup_file)
        self.writes = not self.is_parallel or tessera.checkpoint.find_writer(directory) == tessera.cluster.rank()
        found = self._together("cannot look for the backup", lambda: "found" if os.path.exists(self.backup_file) else "")
        shared = self._together("cannot look for the backup", lambda: "" if self.writes else "shared")
        if any(shared) and mode == context.ParallelMode.HYBRID_PARALLEL:
            raise ValueError(f"For 'BackupAndRestore', in hybrid_parallel each rank backs up its own values, but some share the directory "
                             f"{directory}; name one for each rank.")
        if any(found) and not all(found):
            without = [rank for rank, words in enumerate(found) if not words]
            raise ValueError(f"For 'BackupAndRestore', rank {without[0]} has no {self.backup_file}, but rank {found.index('found')} has; copy it to "
                             "where it is missing, or remove it everywhere.")
        if all(found):
            load_checkpoint(self.backup_file, net=run_context.original_args().train_network)

    def on_train_epoch_end(self, run_context):
        params = run_context.original_args()
        if params.cur_epoch_num % self.save_freq == 0:
            values = values_to_save(params.train_network)
            self._write("cannot save", lambda: save_checkpoint(values, self.backup_file))

    def on_train_end(self, run_context):
        if self.delete_checkpoint:
            self._write("cannot remove the backup", self._remove)

    def _together(self, what_fails, work):
        """What work() returned on each rank; no rank goes on before all have done it."""
        return tessera.cluster.run_together(what_fails, work) if self.is_parallel else [work()]

    def _write(self, what_fails, work):
        def if_writer():
            if self.writes:
                work()
            return ""
        self._together(what_fails, if_writer)

    def _remove(self):
        # Under this name nobody misses it, whatever interrupts the removal.
        removing = self.backup_file + ".removing"
        if os.path.exists(self.backup_file):
            os.replace(self.backup_file, removing)
        for path in (self.backup_file + ".manifest", removing):
            if os.path.exists(path):
                os.remove(path)
