"""Callbacks."""
import contextlib
import json
import os
import sys
import time

import numpy as np
import tessera
from tessera._callbacks import has_only_known_hooks

from mindspore import _check
from mindspore._missing import missing
from mindspore._recovery_files import remember_checkpoints
from mindspore.train.saving import appended_values, check_key, is_async
from mindspore.train.step_saving import SavesStep


def _print(line):
    """In one write: lines of several ranks do not mix."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Callback:
    """What happens around training and evaluation: override some of begin, epoch_begin, step_begin, step_end, epoch_end, end, each
    called with a RunContext; or, of only one of the two, on_train_begin, on_eval_begin and so on. With data sinking the step calls
    of training stand around each sink loop."""

    def begin(self, run_context):
        """Before training."""

    def epoch_begin(self, run_context):
        """Before an epoch."""

    def step_begin(self, run_context):
        """Before a step."""

    def step_end(self, run_context):
        """After a step."""

    def epoch_end(self, run_context):
        """After an epoch."""

    def end(self, run_context):
        """After training."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


_MOMENTS = ("begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end")


def _default(moment, what):
    def method(self, run_context):
        getattr(self, moment)(run_context)

    method.__name__ = f"on_{what}_{moment}"
    method.__doc__ = f"{moment}(), of {'training' if what == 'train' else 'evaluation'}."
    return method


for _what in ("train", "eval"):
    for _moment in _MOMENTS:
        setattr(Callback, f"on_{_what}_{_moment}", _default(_moment, _what))
has_only_known_hooks(Callback, (*_MOMENTS, *(f"on_{_what}_{_moment}" for _what in ("train", "eval") for _moment in _MOMENTS)))


class _NoEntry(KeyError, AttributeError):
    """Of a name that is no entry: KeyError as in the reference, and what hasattr() and getattr() with a default expect."""

    def __str__(self):
        return str(self.args[0])


# Entries that the reference has and that stay empty.
_EMPTY = ("last_save_ckpt_step", "latest_ckpt_file", "loss_scale_mananger", "initial_step")
_NO_BATCH = ("the callback's parameter train_dataset_element is not available: tessera reads the batches itself. Train by a cell, Model(TrainOneStepCell(...)), which "
             "has it, or iterate over the data set by create_tuple_iterator()")


class _InternalCallbackParam(dict):
    """Where training stands; entries are attributes."""

    def __init__(self, *entries, **named):
        super().__init__(dict.fromkeys(_EMPTY), **dict(*entries, **named)) if entries or named else super().__init__()

    def __getattr__(self, name):
        if name in self:
            return self[name]
        if name == "train_dataset_element" and self.get("mode") == "train":
            raise _NoEntry(_NO_BATCH)
        raise _NoEntry(f"the callback's parameters have no entry {name!r}; they have {', '.join(self)}")

    def __setattr__(self, name, value):
        self[name] = value


_NEEDS_MODEL = "ModelCheckpoint needs Model.train; save_checkpoint(network, path) saves what a loop of one's own has learnt"


class RunContext:
    """What a callback sees of the training, and how it ends it."""

    def __init__(self, original_args):
        if not isinstance(original_args, dict):
            raise TypeError("For 'RunContext', the argument 'original_args' must be dict, such as _InternalCallbackParam, but got "
                            f"{type(original_args).__name__}.")
        self._original_args = original_args
        self._stop_requested = False

    def original_args(self):
        """cur_epoch_num, cur_step_num, batch_num, epoch_num, net_outputs, train_network, ..."""
        return self._original_args

    def request_stop(self):
        """Training ends after this step."""
        self._stop_requested = True

    def get_stop_requested(self):
        """Whether request_stop() was called."""
        return self._stop_requested


@contextlib.contextmanager
def entered(callbacks):
    """The callbacks as a list, each entered as a context manager, and left when what they stand around is over."""
    callbacks = [] if callbacks is None else list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
    with contextlib.ExitStack() as stack:
        made = []
        for callback in callbacks:
            if not isinstance(callback, Callback):
                made.append(callback)  # refused by name where it is used
                continue
            target = stack.enter_context(callback)
            made.append(target if isinstance(target, Callback) else callback)
        yield made


class _CallbackManager(Callback):
    """Several callbacks as one, for training loops of one's own."""

    def __init__(self, callbacks):
        callbacks = [] if callbacks is None else callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise TypeError("When the 'callbacks' is a list, the elements in 'callbacks' must be Callback functions, but got "
                                f"{type(callback).__name__}.")
            if isinstance(callback, ModelCheckpoint):
                raise NotImplementedError(_NEEDS_MODEL)
        self._callbacks = list(callbacks)

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        self._callbacks = self._stack.enter_context(entered(self._callbacks))
        return self

    def __exit__(self, *error):
        return self._stack.__exit__(*error)

    def __bool__(self):
        return bool(self._callbacks)


def _each(name):
    def method(self, run_context):
        for callback in self._callbacks:
            getattr(callback, name)(run_context)

    method.__name__ = name
    return method


for _name in [*_MOMENTS, *(f"on_{_what}_{_moment}" for _what in ("train", "eval") for _moment in _MOMENTS)]:
    setattr(_CallbackManager, _name, _each(_name))


class LossMonitor(Callback):
    """Prints `epoch: 1 step: 20, loss is 2.3025851` every per_print_times steps; 0: never. has_trained_epoch: so many epochs came before, and are
    counted with these."""

    def __init__(self, per_print_times=1, has_trained_epoch=0):
        if isinstance(per_print_times, bool) or not isinstance(per_print_times, int) or per_print_times < 0:
            raise ValueError(f"The argument 'per_print_times' must be int and >= 0, but got {per_print_times}")
        self._per_print_times = per_print_times
        self._trained_epochs = _check.integer("LossMonitor", "has_trained_epoch", has_trained_epoch, 0)
        self._last_print_time = 0

    def begin(self, run_context):
        done = run_context.original_args().cur_step_num
        if done and self._per_print_times:  # lines come when they would have come in one process
            self._last_print_time = done - done % self._per_print_times

    def step_end(self, run_context):
        params = run_context.original_args()
        loss = params.net_outputs
        loss = loss[0] if isinstance(loss, (tuple, list)) else loss
        loss = np.float32(np.mean(loss.asnumpy()) if isinstance(loss, tessera.Tensor) else loss)
        step = (params.cur_step_num - 1) % params.batch_num + 1
        if np.isnan(loss) or np.isinf(loss):
            raise ValueError(f"epoch: {params.cur_epoch_num + self._trained_epochs} step: {step}. Invalid loss, terminating training.")
        if params.cur_step_num < self._last_print_time:  # another training
            self._last_print_time = 0
        if self._per_print_times and params.cur_step_num - self._last_print_time >= self._per_print_times:
            self._last_print_time = params.cur_step_num
            _print(f"epoch: {params.cur_epoch_num + self._trained_epochs} step: {step}, loss is {loss!s}")


class TimeMonitor(Callback):
    """Prints `Train epoch time: 1234.567 ms, per step time: 12.345 ms` after each epoch. data_size: the steps of an epoch where callbacks see no number
    of them. data_time: with the time from one step's end to the next one's begin, in which the batch is waited for, where callbacks see every step."""

    def __init__(self, data_size=None, data_time=False):
        if not isinstance(data_time, bool):
            raise TypeError(f"For 'TimeMonitor', the argument 'data_time' must be bool, but got {type(data_time).__name__}.")
        self.data_size, self.data_time = data_size, data_time
        self.epoch_time = self._waits_since = time.time()
        self._waited_s = 0.0

    def on_train_step_begin(self, run_context):
        self._waited_s += time.time() - self._waits_since

    def on_train_step_end(self, run_context):
        self._waits_since = time.time()

    def epoch_begin(self, run_context):
        self.epoch_time = self._waits_since = time.time()
        self._waited_s = 0.0

    def epoch_end(self, run_context):
        milliseconds = (time.time() - self.epoch_time) * 1000
        params = run_context.original_args()
        batches = params.get("batch_num")
        steps = batches if isinstance(batches, int) and batches > 0 else self.data_size
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise ValueError(f"The argument 'data_size' must be a positive int, but got {steps}.")
        waited = ""
        if self.data_time and not params.get("dataset_sink_mode"):
            waited = f" (data time: {self._waited_s * 1000 / steps:5.3f} ms)"
        _print(f"{(params.get('mode') or '').title()} epoch time: {milliseconds:5.3f} ms, per step time: {milliseconds / steps:5.3f} ms{waited}")


def _append_info(entries):
    """(names of "epoch_num" and "step_num", further values) of append_info."""
    if entries is None:
        return [], {}
    if not isinstance(entries, list):
        raise TypeError(f"For 'CheckpointConfig', the argument 'append_info' must be list, but got {type(entries).__name__}.")
    names, values = [], {}
    for entry in entries:
        if isinstance(entry, dict):
            values |= appended_values("CheckpointConfig", "append_info", entry)
        elif entry in ("epoch_num", "step_num"):
            names.append(entry)
        else:
            wrong = ValueError if isinstance(entry, str) else TypeError
            raise wrong("For 'CheckpointConfig', the elements of 'append_info' must be dict, \"epoch_num\" or \"step_num\", "
                            f"but got {entry!r}.")
    return names, values


class CheckpointConfig:
    """When checkpoints are saved, what they hold and which are kept.

    integrated_save: of parameters that are split over ranks the whole; else each rank writes its slices. async_save: a thread writes
    a copy while training goes on. append_info: a list of "epoch_num", "step_num" and dicts of further values. exception_save: when
    training ends with an exception, what this rank holds is written as PREFIX-EPOCH_STEP_breakpoint.ckpt. crc_check has no effect: manifests
    have checksums in any case."""

    def __init__(self, save_checkpoint_steps=1, save_checkpoint_seconds=0, keep_checkpoint_max=5, keep_checkpoint_per_n_minutes=0,
                 integrated_save=True, async_save=False, saved_network=None, append_info=None, enc_key=None, enc_mode="AES-GCM",
                 exception_save=False, crc_check=False, remove_redundancy=False, format="ckpt"):
        for name, value in (("save_checkpoint_steps", save_checkpoint_steps), ("save_checkpoint_seconds", save_checkpoint_seconds),
                            ("keep_checkpoint_max", keep_checkpoint_max),
                            ("keep_checkpoint_per_n_minutes", keep_checkpoint_per_n_minutes)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise ValueError(f"For 'CheckpointConfig', the argument '{name}' must be int and >= 0, but got {value}.")
        if not (save_checkpoint_steps or save_checkpoint_seconds or keep_checkpoint_max or keep_checkpoint_per_n_minutes):
            raise ValueError("The input arguments 'save_checkpoint_steps', 'save_checkpoint_seconds', 'keep_checkpoint_max' and "
                             "'keep_checkpoint_per_n_minutes' can't be all None or 0.")
        if saved_network is not None:
            raise NotImplementedError("saved_network is not available: save_checkpoint(network, path) in a callback saves a part")
        _check.only("CheckpointConfig", "remove_redundancy", remove_redundancy, (False, ), "ranks that save in one directory write each slice once")
        _check.only("CheckpointConfig", "format", format, ("ckpt", ), "save_checkpoint(network, path, format='safetensors') in a callback writes such files")
        for name, value in (("integrated_save", integrated_save), ("exception_save", exception_save), ("crc_check", crc_check)):
            if not isinstance(value, bool):
                raise TypeError(f"For 'CheckpointConfig', the argument '{name}' must be bool, but got {type(value).__name__}.")
        self.encryption = check_key("CheckpointConfig", enc_key, enc_mode)
        self.save_checkpoint_steps = save_checkpoint_steps or 0
        self.save_checkpoint_seconds = 0 if save_checkpoint_steps else save_checkpoint_seconds or 0
        self.keep_checkpoint_max = keep_checkpoint_max or 0
        self.keep_checkpoint_per_n_minutes = 0 if keep_checkpoint_max else keep_checkpoint_per_n_minutes or 0
        self.integrated_save, self.exception_save, self.crc_check = integrated_save, exception_save, crc_check
        self.async_save = is_async("CheckpointConfig", async_save)
        self.append_info, self.append_dict = _append_info(append_info)


_COMMON_SETTINGS = ("save_checkpoint_steps", "save_checkpoint_seconds", "keep_checkpoint_max", "keep_checkpoint_per_n_minutes",
                    "integrated_save", "async_save", "append_info")


class ModelCheckpoint(Callback):
    """Saves DIRECTORY/PREFIX-EPOCH_STEP.ckpt. directory: "." unless given."""

    def __init__(self, prefix="CKP", directory=None, config=None):
        if not isinstance(prefix, str) or "/" in prefix:
            raise ValueError(f"For 'ModelCheckpoint', the argument 'prefix' is invalid, it must be a string without '/', but got {prefix}.")
        if config is not None and not isinstance(config, CheckpointConfig):
            raise TypeError(f"For 'ModelCheckpoint', the type of argument 'config' should be 'CheckpointConfig', but got {type(config).__name__}.")
        self._config = config = config or CheckpointConfig()
        self._prefix, self._directory, self._of_step = prefix, directory or ".", None
        self.native = tessera.ModelCheckpoint(prefix, self._directory, config.save_checkpoint_steps, config.save_checkpoint_seconds,
                                              config.keep_checkpoint_max, config.keep_checkpoint_per_n_minutes, config.integrated_save,
                                              config.async_save, config.append_info, config.append_dict, **config.encryption)
        remember_checkpoints(self._directory)

    @property
    def latest_ckpt_file_name(self):
        """The path of the newest one."""
        return self.native.latest if self._of_step is None else self._of_step.latest

    def of_step(self, step, is_shared):
        """What saves in its place where the training is that of a cell that is a step."""
        self._of_step = SavesStep(self._prefix, self._directory, self._config, step, is_shared)
        return self._of_step

    def to_text(self):
        """What another rank needs to take part in the saves; None where there is a key, which no other rank is told. Values of append_info's own are
        not among it: rank 0 writes those."""
        if self._config.encryption:
            return None
        arguments = {name: getattr(self._config, name) for name in _COMMON_SETTINGS}
        return json.dumps([self._prefix, os.path.abspath(self._directory), arguments])

    @staticmethod
    def from_text(text):
        """One that takes part in the saves of the rank whose to_text() this is."""
        prefix, directory, arguments = json.loads(text)
        return ModelCheckpoint(prefix, directory, CheckpointConfig(**arguments))

    @property
    def saves_breakpoints(self):
        """Whether an exception that ends training leaves a file."""
        return self._config.exception_save

    def save_breakpoint(self, model, epoch, step):
        """Writes what this rank holds after a step of an epoch, without asking the others, who may be gone. Where that fails it says so: what
        has ended the training is the error to be raised."""
        rank = f"_rank_{tessera.cluster.rank()}" if tessera.cluster.is_initialized() and tessera.cluster.size() > 1 else ""
        path = os.path.join(self._directory, f"{self._prefix}-{epoch}_{step}{rank}_breakpoint.ckpt")
        numbers = {"epoch_num": epoch, "step_num": model.step}
        try:
            appended = {name: tessera.Tensor(numbers[name]) for name in self._config.append_info} | self._config.append_dict
            tessera.checkpoint.save(path, {name: model.local_value(name) for name in model.names()}, appended, **self._config.encryption)
        except Exception as error:
            print(f"[WARNING] {path} was not saved: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


class Whereabouts(tessera.Callback):
    """Where a training stands, for what ends in an exception."""

    def __init__(self, initial_epoch):
        super().__init__()
        self._epoch, self._step_in_epoch, self._step = initial_epoch + 1, 0, None

    def step_begin(self, run):
        self._epoch, self._step_in_epoch, self._step = run.epoch, run.step_in_epoch - 1, run.step

    def at(self, step):
        """(epoch, step in it) of a step since training began, one of the latest loop of steps."""
        return self._epoch, self._step_in_epoch + (0 if self._step is None else step - self._step)


class CountsOn(tessera.Callback):
    """The first callback: epochs count from this one on."""

    def __init__(self, initial_epoch):
        super().__init__()
        self._initial_epoch = initial_epoch

    def epoch_begin(self, run):
        run.epoch += self._initial_epoch


class SeesModel(Callback):
    """One that is shown what trains before begin()."""

    def see_model(self, model):
        """tessera's model, whose step is compiled; None where the network is a training step itself."""


class Adapter(tessera.Callback):
    """Tells one of the above what tessera says."""

    def __init__(self, callback, params, initial_epoch=0):
        super().__init__()
        self.callback, self.params, self._initial_epoch = callback, params, initial_epoch

    def _show_model(self, run):
        if isinstance(self.callback, SeesModel):
            self.callback.see_model(run.model if isinstance(run, tessera.RunContext) else None)

    def _tell(self, name, run, numbers=()):
        self.params.update(numbers)
        context = RunContext(self.params)
        getattr(self.callback, f"on_train_{name}")(context)
        if context.get_stop_requested():
            run.request_stop()

    def begin(self, run):
        # Steps that another process of the job has done of this training.
        done = run.step - run.first_step if run.number else 0
        self._show_model(run)
        self._tell("begin", run, {"epoch_num": run.num_epochs, "batch_num": run.steps_per_epoch, "cur_epoch_num": 0, "cur_step_num": done})

    def epoch_begin(self, run):
        self._tell("epoch_begin", run, {"cur_epoch_num": run.epoch})

    def step_begin(self, run):
        self._tell("step_begin", run)

    def step_end(self, run):
        step = (run.epoch - 1 - self._initial_epoch) * run.steps_per_epoch + run.step_in_epoch
        seen = {"net_outputs": tessera.Tensor(np.float32(run.loss))} if isinstance(run, tessera.RunContext) else run.seen
        self._tell("step_end", run, {"cur_epoch_num": run.epoch, "cur_step_num": step} | seen)

    def epoch_end(self, run):
        self._tell("epoch_end", run)

    def end(self, run):
        if not run.has_failed:
            self._tell("end", run)


__getattr__ = missing(__name__)
del missing
