"""What a training shows in TensorBoard. The files are TensorBoard's event files, not those of MindInsight."""
import os
import re
import struct
import zlib

import numpy as np
import tessera

from mindspore import _check, context
from mindspore._missing import missing
from mindspore.common.parameter import Parameter
from mindspore.train.callback import SeesModel

_WRITTEN = ("scalar", "image", "histogram")
_LEFT_OUT = ("tensor", "graph", "train_lineage", "eval_lineage", "dataset_graph", "custom_lineage_data", "explainer", "landscape")
_MODES = ("train", "eval")
# What collect_specified_data may say, and what each is without being said.
_DEFAULTS = {"collect_metric": True, "histogram_regular": None, "collect_graph": True, "collect_train_lineage": True, "collect_eval_lineage": True,
             "collect_input_data": True, "collect_dataset_graph": True, "collect_landscape": None}
_COLLECTED = ("collect_metric", "histogram_regular", "collect_graph")
_NUM_HISTOGRAMS = 5  # of the first parameters, where nothing says of which


def _writes():
    return not tessera.cluster.is_initialized() or tessera.cluster.rank() == 0


def _ignored(who, names):
    if names:
        context.warn_once(f"For '{who}', {', '.join(names)} {'have' if len(names) > 1 else 'has'} no effect: scalars, histograms, images and, by "
                          "SummaryCollector, the graph of the network are written, for TensorBoard")


def _array(value):
    return value.asnumpy() if isinstance(value, tessera.Tensor) else np.asarray(value)


def _chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _png(pixels):
    """The bytes of a PNG file of uint8 [height, width, 1 or 3]."""
    height, width, channels = pixels.shape
    head = struct.pack(">2I5B", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")


def _pixels(who, value):
    """uint8 [height, width, channels] of the first of images [n, channels, height, width]."""
    images = _array(value)
    if images.ndim != 4 or images.shape[1] not in (1, 3) or 0 in images.shape:
        raise ValueError(f"For '{who}', the value of an image must be a Tensor [n, 1 or 3, height, width], but got the shape {images.shape}.")
    first = images[0].transpose(1, 2, 0)
    if first.dtype == np.uint8:
        return np.ascontiguousarray(first)
    low, high = np.nanmin(first), np.nanmax(first)
    scaled = (first - low) * (255 / (high - low)) if high > low else first * 0
    return np.ascontiguousarray(np.nan_to_num(scaled).astype(np.uint8))


class SummaryRecord:
    """Writes values by name into an event file of TensorBoard in log_dir, on rank 0: FILE_PREFIX.out.tfevents.TIME.HOST.PIDFILE_SUFFIX.
    add_value("scalar", "image" or "histogram", name, tensor) until record(step) writes them. raise_exception: where writing fails that is raised, else
    it is said, and record() gives False. num_process has no effect: a value is written when record() returns."""

    def __init__(self, log_dir, file_prefix="events", file_suffix="_MS", num_process=32, network=None, max_file_size=None, raise_exception=False,
                 export_options=None):
        if not isinstance(log_dir, (str, os.PathLike)):
            raise TypeError(f"For 'SummaryRecord', the argument 'log_dir' must be str, but got {type(log_dir).__name__}.")
        self._raises = _check.boolean("SummaryRecord", "raise_exception", raise_exception)
        for name, value in (("file_prefix", file_prefix), ("file_suffix", file_suffix)):
            if not isinstance(value, str) or "/" in value:
                raise ValueError(f"For 'SummaryRecord', the argument '{name}' must be a string without '/', but got {value!r}.")
        given = {"max_file_size": max_file_size, "export_options": export_options, "network": network}
        _ignored("SummaryRecord", [name for name, value in given.items() if value is not None])
        self._log_dir = os.path.realpath(log_dir)
        self._values, self._mode = [], "train"
        self._is_closed = False
        self._writer = tessera.EventWriter(self._log_dir, prefix=file_prefix, suffix=file_suffix) if _writes() else None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    @property
    def log_dir(self):
        """The path of the event file; of the directory on ranks that write none."""
        return self._log_dir if self._writer is None else self._writer.path

    def set_mode(self, mode):
        """"train" or "eval": in the latter, names are written behind eval/."""
        self._mode = _check.one_of("SummaryRecord", "mode", mode, _MODES)

    def add_value(self, plugin, name, value):
        """Keeps a value for the next record()."""
        if plugin not in _WRITTEN and plugin not in _LEFT_OUT:
            raise ValueError(f"For 'SummaryRecord.add_value', the argument 'plugin' must be one of {[*_WRITTEN, *_LEFT_OUT]}, but got {plugin}.")
        if not isinstance(name, str) or not name:
            raise ValueError(f"For 'SummaryRecord.add_value', the argument 'name' must be a string that is not empty, but got {name!r}.")
        if plugin in _LEFT_OUT:
            _ignored("SummaryRecord", [f"add_value({plugin!r}, ...)"])
            return
        if plugin == "image":
            value = _pixels("SummaryRecord.add_value", value)
        elif plugin == "scalar":
            value = _array(value)
            if value.size != 1:
                raise ValueError(f"For 'SummaryRecord.add_value', the value of a scalar must have one element, but got the shape {value.shape}.")
            value = float(value.reshape(()))
        else:
            value = np.array(_array(value))
        self._values.append((plugin, name if self._mode == "train" else f"eval/{name}", value))

    def record(self, step, train_network=None, plugin_filter=None):
        """Writes what was added since the last call. plugin_filter(plugin): whether values of that kind are written; others are dropped.
        train_network has no effect, with a warning. Returns True, or False where writing failed."""
        _check.integer("SummaryRecord.record", "step", step)
        if train_network is not None and not isinstance(train_network, tessera.nn.Cell):
            raise TypeError(f"For 'SummaryRecord.record', the argument 'train_network' must be Cell, but got {type(train_network).__name__}.")
        if self._is_closed:
            raise RuntimeError("For 'SummaryRecord.record', the record is closed")
        _ignored("SummaryRecord.record", [] if train_network is None else ["train_network"])
        values, self._values = self._values, []
        try:
            for plugin, name, value in values if self._writer is not None else []:
                if plugin_filter is None or plugin_filter(plugin):
                    self._add(plugin, name, value, step)
        except (RuntimeError, OSError) as error:
            if self._raises:
                raise
            context.warn_once(f"SummaryRecord.record: step {step} was not written: {error}")
            return False
        return True

    def _add(self, plugin, name, value, step):
        if plugin == "scalar":
            self._writer.add_scalar(name, value, step)
        elif plugin == "histogram":
            self._writer.add_histogram(name, tessera.Tensor(value), step)
        else:
            height, width, channels = value.shape
            self._writer.add_image(name, _png(value), height, width, step, channels)

    def flush(self):
        """What was recorded is with the system already."""

    def close(self):
        """Nothing can be recorded after it."""
        if self._writer is not None and not self._is_closed:
            self._writer.close()
        self._is_closed = True


class SummaryCollector(SeesModel):
    """Writes the network's graph, loss, learning rate, histograms of parameters and the metrics of Model.fit's evaluations into an event file of
    TensorBoard in summary_dir, on rank 0.

    collect_freq: after every so many steps, where the data set sinks after loops with such a step in them; metrics after each evaluation.
    collect_specified_data: {"collect_metric": False} leaves out all numbers, {"histogram_regular": "^conv"} takes the parameters whose names match;
    without it there are those of the first five, with keep_default_action=False there is only what is said. {"collect_graph": False} leaves out the
    graph; of a network that is a training step itself there is none. Its other keys, custom_lineage_data, collect_tensor_freq, max_file_size,
    export_options and num_process have no effect."""

    def __init__(self, summary_dir, collect_freq=10, num_process=32, collect_specified_data=None, keep_default_action=True, custom_lineage_data=None,
                 collect_tensor_freq=None, max_file_size=None, export_options=None):
        super().__init__()
        if not isinstance(summary_dir, (str, os.PathLike)):
            raise TypeError(f"For 'SummaryCollector', the argument 'summary_dir' must be str, but got {type(summary_dir).__name__}.")
        self._directory = os.path.realpath(summary_dir)
        self._frequency = _check.integer("SummaryCollector", "collect_freq", collect_freq, 1)
        _check.boolean("SummaryCollector", "keep_default_action", keep_default_action)
        said = self._check_said(collect_specified_data)
        others = {"custom_lineage_data": custom_lineage_data, "collect_tensor_freq": collect_tensor_freq, "max_file_size": max_file_size,
                  "export_options": export_options}
        _ignored("SummaryCollector", [name for name, value in said.items() if value and name not in _COLLECTED] +
                 [name for name, value in others.items() if value is not None])
        self._collects_metric = said.get("collect_metric", keep_default_action)
        self._collects_graph, self._wants_graph = said.get("collect_graph", keep_default_action), said.get("collect_graph", False)
        self._model = None
        self._expression, self._has_default = said.get("histogram_regular"), keep_default_action
        self._writer = None
        self._previous = 0

    @staticmethod
    def _check_said(said):
        if said is None:
            return {}
        if not isinstance(said, dict):
            raise TypeError(f"For 'SummaryCollector', the argument 'collect_specified_data' must be dict, but got {type(said).__name__}.")
        for name, value in said.items():
            if name not in _DEFAULTS:
                raise ValueError(f"For 'SummaryCollector', the keys of 'collect_specified_data' must be of {list(_DEFAULTS)}, but got {name!r}.")
            if name == "histogram_regular":
                if value is not None and not isinstance(value, str):
                    raise TypeError(f"For 'SummaryCollector', 'histogram_regular' must be str, but got {type(value).__name__}.")
                re.compile(value or "")
            elif name != "collect_landscape":
                _check.boolean("SummaryCollector", name, value)
        return said

    def see_model(self, model):
        if model is None and self._wants_graph:
            context.warn_once("For 'SummaryCollector', collect_graph has no effect on a network that is a training step itself: give Model the "
                              "network, the loss and the optimizer")
        self._model = model

    def begin(self, run_context):
        done = run_context.original_args().cur_step_num or 0
        self._previous = done
        self._close()
        # What an earlier process of the job has written of later steps is void; of a training that begins, all that was there.
        self._writer = tessera.EventWriter(self._directory, done + 1 if done else 0) if _writes() else None
        model, self._model = self._model, None
        if self._collects_graph and model is not None and self._writer is not None:
            self._writer.add_graph(model)

    def on_eval_begin(self, run_context):
        """Evaluations are seen where the epoch ends."""

    on_eval_epoch_begin = on_eval_step_begin = on_eval_step_end = on_eval_epoch_end = on_eval_end = on_eval_begin

    def step_end(self, run_context):
        params = run_context.original_args()
        step = params.cur_step_num
        previous, self._previous = self._previous, step
        if step // self._frequency == previous // self._frequency:
            return
        if self._collects_metric and self._writer is not None:
            self._add("loss/auto", _loss_of(params), step)
            self._add("learning_rate/auto", _rate_of(params.get("optimizer"), step), step)
        for parameter in self._parameters(params.train_network):
            value = parameter.asnumpy()  # on every rank: where it is split, all make it whole
            if self._writer is not None and np.issubdtype(value.dtype, np.number):
                self._writer.add_histogram(f"{parameter.name}/auto", tessera.Tensor(value), step)

    def epoch_end(self, run_context):
        params = run_context.original_args()
        if self._collects_metric and self._writer is not None:
            for name, value in (params.get("metrics") or {}).items():
                if np.ndim(value) == 0:
                    self._add(f"evaluation/{name}", float(value), params.cur_step_num)

    def end(self, run_context):
        self._close()

    def __exit__(self, *error):
        self._close()

    def _add(self, tag, value, step):
        if value is not None:
            self._writer.add_scalar(tag, value, step)

    def _parameters(self, network):
        trained = [parameter for parameter in tessera.nn.Cell.parameters(network) if parameter.requires_grad]
        if self._expression is not None:
            return [parameter for parameter in trained if re.match(self._expression, parameter.name)]
        return trained[:_NUM_HISTOGRAMS] if self._has_default else []

    def _close(self):
        if self._writer is not None:
            self._writer.close()
        self._writer = None


def _loss_of(params):
    """The mean of the first output; None where it is none."""
    outputs = params.net_outputs
    first = outputs[0] if isinstance(outputs, (tuple, list)) and outputs else outputs
    if isinstance(first, tessera.Tensor):
        first = first.asnumpy()
    return float(np.mean(first)) if isinstance(first, (int, float, np.ndarray, np.number)) else None


def _rate_of(optimizer, step):
    """The rate that the latest step was made with; None where it is not one number. step: from 1 on, where the optimizer does not count."""
    rate, counter = getattr(optimizer, "learning_rate", None), getattr(optimizer, "global_step", None)
    if isinstance(counter, Parameter):
        step = int(counter.asnumpy().reshape(-1)[0])
    if isinstance(rate, Parameter):
        rate = rate.asnumpy().reshape(-1)
        return float(rate[min(step, rate.size) - 1])
    if isinstance(rate, tessera.nn.Cell):
        return float(np.mean(rate(tessera.Tensor(max(step - 1, 0), tessera.int32)).asnumpy()))
    return None


__getattr__ = missing(__name__)
del missing
