"""Checkpoints of networks."""
import atexit
import os
import threading

import numpy as np
import tessera
from tessera._job import finish_saves

from mindspore import _check, context
from mindspore._missing import missing
from mindspore.common.parameter import Parameter
from mindspore.communication.management import get_group_size, get_rank
from mindspore.train.conversion import (Layout, axes_of, build_searched_strategy, merge_pipeline_strategys, merge_sliced_parameter,  # noqa: F401
                                        rank_list_for_transform, restore_group_info_list, transform_checkpoint_by_rank,
                                        transform_checkpoints)
from mindspore.train.exporting import export  # noqa: F401
from mindspore.train.layouts import product
from mindspore.train.saving import appended_values, check_key, has_own_form, is_async, tensor_of

_FLOATS = (tessera.float16, tessera.float32, tessera.float64, tessera.bfloat16)
_INTS = (tessera.int8, tessera.int16, tessera.int32, tessera.int64)
_OF_RANKS = ".of_ranks"  # behind the name of a moving statistic: those of all ranks, in a row each
_REDUNDANT = "ranks that save in one directory write each slice once, and every rank finds what it needs in the manifest"


class _Writing:
    """The one thread that writes a checkpoint while the script goes on."""

    def __init__(self):
        self._thread, self._error = None, None
        atexit.register(finish_saves, self.wait)

    def start(self, write):
        """Begins write(), once the last one is done."""
        self.wait()

        def run():
            try:
                write()
            except Exception as error:  # noqa: BLE001: wait() raises it
                self._error = error

        self._thread = threading.Thread(target=run, name="asyn_save_ckpt")
        self._thread.start()

    def wait(self):
        """Returns when all is written; raises what went wrong."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error


_writing = _Writing()


def _with_added_states(cell):
    """The optimizers here and below that keep in checkpoints what is no parameter of theirs."""
    if hasattr(cell, "added_states"):
        yield cell
    for _, child in cell.children():
        yield from _with_added_states(child)


def values_to_save(save_obj, is_integrated=True, choice_func=None):
    """What is to be saved, by name. is_integrated: of parameters that are split over ranks the whole, which every rank must ask for."""
    if isinstance(save_obj, tessera.nn.Cell):
        items = [(parameter.name, parameter) for parameter in tessera.nn.Cell.parameters(save_obj)]
        items += [item for optimizer in _with_added_states(save_obj) for item in optimizer.added_states().items()]
    elif isinstance(save_obj, dict):
        items = list(save_obj.items())
    else:
        for item in save_obj:
            if not isinstance(item, Parameter) and not (isinstance(item, dict) and {"name", "data"} <= set(item)):
                raise TypeError("For 'save_checkpoint', when 'save_obj' is a list, its elements must be Parameter or "
                                f"{{'name': ..., 'data': ...}}, but got {type(item).__name__}.")
        items = [(item.name, item) if isinstance(item, Parameter) else (item["name"], item["data"]) for item in save_obj]
    return {name: tensor_of("save_checkpoint", data, is_integrated) for name, data in items if choice_func is None or choice_func(name)}


def _check_format(who, form):
    if form not in ("ckpt", "safetensors"):
        raise ValueError(f"For '{who}', the format must be 'safetensors' or 'ckpt', but got {form}.")


def save_checkpoint(save_obj, ckpt_file_name, integrated_save=True, async_save=False, append_dict=None, enc_key=None,
                    enc_mode="AES-GCM", choice_func=None, crc_check=False, format="ckpt"):
    """Writes a network's parameters, a dict of them, or a list of parameters or {"name": ..., "data": ...}.

    integrated_save: of parameters that are split over ranks the whole (every rank must ask), else this rank's slices. async_save: a
    thread writes; the next call waits for it. append_dict: numbers, texts and tensors after the parameters. crc_check: a checksum at
    the file's end. format: "ckpt" or "safetensors"."""
    who = "save_checkpoint"
    if not isinstance(save_obj, (tessera.nn.Cell, list, dict)):
        raise TypeError(f"For '{who}', the argument 'save_obj' should be nn.Cell or list, but got {type(save_obj).__name__}.")
    if not isinstance(ckpt_file_name, str):
        raise TypeError(f"For '{who}', the argument 'ckpt_file_name' must be string, but got {type(ckpt_file_name).__name__}.")
    if os.path.isdir(ckpt_file_name):
        raise IsADirectoryError(f"For '{who}', the argument 'ckpt_file_name' {ckpt_file_name} is a directory, it must be a file name.")
    if not isinstance(integrated_save, bool):
        raise TypeError(f"For '{who}', the argument 'integrated_save' must be bool, but got {type(integrated_save).__name__}.")
    async_save = is_async(who, async_save)
    _check_format(who, format)
    encryption = check_key(who, enc_key, enc_mode, format=format)
    values, appended = values_to_save(save_obj, integrated_save, choice_func), appended_values(who, "append_dict", append_dict)
    if format == "safetensors":
        name = ckpt_file_name if ckpt_file_name.endswith(".safetensors") else ckpt_file_name + ".safetensors"

        def write(values):
            tessera.checkpoint.save_safetensors(name, values | appended)
    else:
        def write(values):
            tessera.checkpoint.save(ckpt_file_name, values, appended, trailer=crc_check, **encryption)
    write_in_turn(values, write, async_save)


def write_in_turn(values, write, async_save):
    """Calls write(values), with async_save on a thread, of a copy; what was to be written before is written first."""
    if not async_save:
        _writing.wait()  # for what is older, which may go to the same file
        write(values)
        return
    copies = {name: value if isinstance(value, str) else tessera.Tensor(value.numpy().copy(), value.dtype) for name, value in values.items()}
    _writing.start(lambda: write(copies))


def finish_writing():
    """Returns when all that threads write is written; raises what went wrong."""
    _writing.wait()


def _prefixes(name, value):
    if value is None:
        return ()
    prefixes = (value,) if isinstance(value, str) else value
    if not isinstance(prefixes, (list, tuple)) or not all(isinstance(prefix, str) for prefix in prefixes):
        raise TypeError(f"For 'load_checkpoint', the argument '{name}' must be str, list or tuple of str, but got {value!r}.")
    if not prefixes or not all(prefixes):
        raise ValueError(f"For 'load_checkpoint', the argument '{name}' must not be empty.")
    return tuple(prefixes)


def load_checkpoint(ckpt_file_name, net=None, strict_load=False, filter_prefix=None, dec_key=None, dec_mode="AES-GCM", specify_prefix=None,
                    choice_func=None, crc_check=False, remove_redundancy=False, format="ckpt"):
    """The parameters of a file by name, texts as str; with a net they are loaded into it, too.

    filter_prefix: what begins so is left out; specify_prefix: what does not is. choice_func(name): whether to take it. A damaged file raises
    ValueError, with crc_check or without, which has no other effect. Rows of moving statistics, one for each rank of a training, are no entries of
    their own: load_param_into_net() finds them at the statistic, as rows_of_ranks."""
    _check.boolean("load_checkpoint", "crc_check", crc_check)
    _check_format("load_checkpoint", format)
    _check.only("load_checkpoint", "remove_redundancy", remove_redundancy, (False, ), _REDUNDANT)
    if not isinstance(ckpt_file_name, str):
        raise TypeError(f"For 'load_checkpoint', the argument 'ckpt_file_name' must be string, but got {type(ckpt_file_name).__name__}.")
    if not ckpt_file_name.endswith("." + format):
        raise ValueError(f"For 'load_checkpoint', the checkpoint file must be a string that ends with '.{format}', but got {ckpt_file_name}.")
    if not isinstance(strict_load, bool):
        raise TypeError(f"For 'load_checkpoint', the argument 'strict_load' must be bool, but got {type(strict_load).__name__}.")
    decryption = check_key("load_checkpoint", dec_key, dec_mode, "dec", format)
    left_out, wanted = _prefixes("filter_prefix", filter_prefix), _prefixes("specify_prefix", specify_prefix)
    _writing.wait()
    if not os.path.exists(ckpt_file_name):
        raise ValueError(f"For 'load_checkpoint', the checkpoint file: {ckpt_file_name} does not exist, please check whether the "
                         "'ckpt_file_name' is correct.")
    if decryption.get("dec_mode") == "AES-CBC" and has_own_form(ckpt_file_name):
        context.warn_once(f"For 'load_checkpoint', {ckpt_file_name} has Tessera's form of AES-GCM, in which what is saved with 'AES-CBC' is written, too: dec_mode "
                          "'AES-CBC' reads it as 'AES-GCM' does")
    file = tessera.checkpoint.load_safetensors(ckpt_file_name) if format == "safetensors" else tessera.checkpoint.open(ckpt_file_name, **decryption)
    parameters = {}
    names = file.keys()
    for name in names:
        statistic = name.removesuffix(_OF_RANKS)
        if statistic != name and statistic in names:
            if statistic in parameters:
                parameters[statistic].rows_of_ranks = Parameter(file[name], name=statistic)
            continue
        if name.startswith(left_out) or (wanted and not name.startswith(wanted)) or (choice_func is not None and not choice_func(name)):
            continue
        value = file[name]
        parameters[name] = value if isinstance(value, str) else Parameter(value, name=name)
    if not parameters:
        raise ValueError("The loaded parameter dict is empty after filter or specify, please check whether 'filter_prefix' or "
                         f"'specify_prefix' was set correctly: {ckpt_file_name}.")
    if net is not None:
        load_param_into_net(net, parameters, strict_load)
    return parameters


def _num_ranks():
    return tessera.cluster.size() if tessera.cluster.is_initialized() else 1


def _stored(parameter, parameter_dict):
    """What the dict has for the parameter; for a statistic of each rank's own batches the rows that all ranks together have saved beside it, where
    the ranks are as many; None for nothing."""
    value = parameter_dict.get(parameter.name)
    rows = getattr(value, "rows_of_ranks", None) if parameter.is_statistic and _num_ranks() > 1 else None
    if isinstance(rows, Parameter) and rows.shape == (_num_ranks(), *parameter.shape):
        return rows
    return value if isinstance(value, Parameter) else None


def _row_of_rank(parameter, tensor):
    """Where the tensor has a row per rank of a training for a statistic: this rank's row, or their mean where the ranks are not as many."""
    if not parameter.is_statistic or len(tensor.shape) != len(parameter.shape) + 1 or tensor.shape[1:] != parameter.shape:
        return tensor
    rows = tensor.numpy()
    row = rows[tessera.cluster.rank()] if len(rows) == _num_ranks() > 1 else rows.mean(0, dtype=np.float64)
    return tessera.Tensor(row.astype(rows.dtype))


def _load(parameter, value, strict_load):
    """Gives a parameter the value of another one; where it is split over ranks, of a slice or of the whole."""
    if parameter.dtype != value.dtype:
        one_family = any({parameter.dtype, value.dtype} <= set(family) for family in (_FLOATS, _INTS))
        if strict_load or not one_family:
            raise RuntimeError(f"For 'load_param_into_net', {parameter.name} in the argument 'net' should have the same type as "
                               f"{parameter.name} in the argument 'parameter_dict'. But got its type {parameter.dtype} in the argument "
                               f"'net' and type {value.dtype} in the argument 'parameter_dict'.")
        context.warn_once(f"the type of {value.name}, {value.dtype}, is converted to {parameter.dtype}, that of the network")
    tensor = value.value() if parameter.dtype == value.dtype else value.value().astype(parameter.dtype)
    tensor = _row_of_rank(parameter, tensor)
    if tensor.shape != parameter.shape and tensor.shape != parameter.whole_shape:
        if tensor.shape[:len(parameter.shape)] != parameter.shape or set(tensor.shape[len(parameter.shape):]) != {1}:
            raise RuntimeError(f"For 'load_param_into_net', {parameter.name} in the argument 'net' should have the same shape as "
                               f"{parameter.name} in the argument 'parameter_dict'. But got its shape {parameter.shape} in the "
                               f"argument 'net' and shape {value.shape} in the argument 'parameter_dict'. A checkpoint of slices is loaded "
                               "after Model.build or Model.infer_predict_layout, which give parameters the shapes of slices.")
        tensor = tensor.reshape(parameter.shape)
    tessera.Parameter.set_data(parameter, tensor)


def _load_without_prefix(parameters, parameter_dict, strict_load, taken):
    """Loads what the dict has under one more prefix, whose names it adds to `taken`; what is left."""
    for parameter in parameters:
        prefix = next((name[:-len(parameter.name)] for name in parameter_dict if name.endswith(parameter.name) and name != parameter.name), None)
        if prefix is None:
            continue
        context.warn_once(f"For 'load_param_into_net', remove parameter prefix name: {prefix}, continue to load.")
        found = [parameter for parameter in parameters if isinstance(parameter_dict.get(prefix + parameter.name), Parameter)]
        for other in found:
            _load(other, parameter_dict[prefix + other.name], strict_load)
            taken.add(prefix + other.name)
        left = [parameter for parameter in parameters if all(parameter is not other for other in found)]
        return _load_without_prefix(left, parameter_dict, strict_load, taken) if found else left
    return parameters


def load_param_into_net(net, parameter_dict, strict_load=False, remove_redundancy=False):
    """Gives a network's parameters the values of those of the same names. Returns (the names of the network that found none, the names of the dict
    that fit nowhere).

    Unless strict_load, floats and integers of other sizes are converted, and where names of the network are not found those that
    have one more prefix are taken. After Model.build and Model.infer_predict_layout a parameter that is split over ranks takes this
    rank's slice (or the whole). An optimizer is a cell, whose parameters are what it updates and its states. Moving statistics are each rank's own: where
    a file has a row for each of as many ranks each takes its own, of another number of rows the mean."""
    if not isinstance(net, tessera.nn.Cell):
        raise TypeError(f"For 'load_param_into_net', the argument 'net' should be a Cell, but got {type(net).__name__}.")
    if not isinstance(parameter_dict, dict):
        raise TypeError(f"For 'load_param_into_net', the argument 'parameter_dict' should be a dict, but got {type(parameter_dict).__name__}.")
    if not isinstance(strict_load, bool):
        raise TypeError(f"For 'load_param_into_net', the argument 'strict_load' must be bool, but got {type(strict_load).__name__}.")
    _check.only("load_param_into_net", "remove_redundancy", remove_redundancy, (False, ), _REDUNDANT)
    for name, value in parameter_dict.items():
        if not isinstance(name, str) or not isinstance(value, (Parameter, str)):
            raise TypeError("For 'load_param_into_net', the element in the argument 'parameter_dict' should be a 'str' and "
                            f"'Parameter' type, but got {type(name).__name__} and {type(value).__name__}.")
    not_loaded, taken = [], set()
    for parameter in tessera.nn.Cell.parameters(net):
        value = _stored(parameter, parameter_dict)
        if value is not None:
            _load(parameter, value, strict_load)
            taken.add(parameter.name)
        elif not parameter.name.startswith("accu_grads"):
            not_loaded.append(parameter)
    if not_loaded and not strict_load:
        not_loaded = _load_without_prefix(not_loaded, parameter_dict, strict_load, taken)
    for optimizer in _with_added_states(net):
        optimizer.take_added_states(parameter_dict)
        taken.update(optimizer.added_states())
    names = [parameter.name for parameter in not_loaded]
    if names:
        context.warn_once(f"parameters in the network that are not loaded, {len(names)}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}")
    return names, [name for name in parameter_dict if name not in taken]


def _check_predict_strategy(predict_strategy):
    """Of load_distributed_checkpoint."""
    if predict_strategy is None:
        return
    if not isinstance(predict_strategy, dict):
        raise ValueError(f"For 'load_distributed_checkpoint', the 'predict_strategy' must be dict, but got {type(predict_strategy).__name__}.")
    for name, entry in predict_strategy.items():
        good = isinstance(name, str) and isinstance(entry, (list, tuple)) and len(entry) >= 4
        if not good or not all(isinstance(part, (list, tuple)) for part in entry[:3]) or not isinstance(entry[3], int):
            raise ValueError("For 'load_distributed_checkpoint', the 'predict_strategy' must be {name: [dev_matrix, tensor_map, "
                             f"param_split_shape, field_size, ...]}}, but has {name!r}: {entry!r}.")


def _slice_for_prediction(name, whole, entry):
    """This rank's part of a tensor, as infer_predict_layout has it."""
    layout = Layout(name, list(entry[0]), axes_of(entry[1]))
    part = tessera.checkpoint.slice_parameter(whole, layout, tessera.cluster.rank() % product(entry[0])) if entry[1] else whole
    group = entry[5] if len(entry) > 5 else ""
    if not group:
        return part
    rows = Layout(name, [get_group_size(group)], [[0]] + [[]] * (len(part.shape) - 1))
    return tessera.checkpoint.slice_parameter(part, rows, get_rank(group))


class _Slices:
    """The checkpoints of all ranks of a training, and how they split its parameters."""

    def __init__(self, files, strategy_file):
        self.files = files
        self.layouts = {}  # (stage, layout) by name
        for name, layout in tessera.checkpoint.build_searched_strategy(strategy_file).items():
            stage, dash, own = name.partition("-")
            is_merged = dash and stage.isdigit()
            self.layouts.setdefault(own if is_merged else name, (int(stage) if is_merged else 0, layout))
        counts = {stage: product(layout.device_matrix) for stage, layout in self.layouts.values()}  # ranks by stage
        self.first_ranks = [0]  # by stage, and behind the last one
        for stage in range(1 + max(counts, default=0)):
            self.first_ranks.append(self.first_ranks[-1] + counts.get(stage, max(counts.values())))
        self.num_ranks = self.first_ranks[-1]

    def whole(self, name):
        """The tensor, whole; None where no rank has it."""
        stage, layout = self.layouts.get(name, (0, None))
        first, end = self.first_ranks[stage], self.first_ranks[stage + 1]
        if name not in self.files[first]:
            return None
        if layout is None:
            return self.files[first][name]
        return tessera.checkpoint.merge_sliced_parameter([file[name] for file in self.files[first:end]], layout)


def load_distributed_checkpoint(network, checkpoint_filenames=None, predict_strategy=None, train_strategy_filename=None, strict_load=False,
                                dec_key=None, dec_mode="AES-GCM", format="ckpt", unified_safetensors_dir=None, dst_safetensors_dir=None, rank_id=None,
                                output_format="safetensors", name_map=None, max_process_num=64, return_param_dict=False):
    """Loads the slices that the ranks of a training have saved, in rank order, into a network that predicts.

    train_strategy_filename: the training's strategy file; None: the context's strategy_ckpt_load_file. predict_strategy: what
    Model.infer_predict_layout gives; None: the network is whole on this rank. One parameter at a time is whole in memory. max_process_num has no
    effect; what is about directories of safetensors files is refused."""
    who = "load_distributed_checkpoint"
    for name, value, choices in (("format", format, ("ckpt", )), ("unified_safetensors_dir", unified_safetensors_dir, (None, )),
                                 ("dst_safetensors_dir", dst_safetensors_dir, (None, )), ("output_format", output_format, ("safetensors", "ckpt")),
                                 ("rank_id", rank_id, (None, )), ("name_map", name_map, (None, )), ("return_param_dict", return_param_dict, (False, ))):
        _check.only(who, name, value, choices, "give the .ckpt files of the ranks in order; transform_checkpoints converts them to other ranks, and "
                    "load_checkpoint(path, format='safetensors') reads one file of that format")
    if not isinstance(network, tessera.nn.Cell):
        raise ValueError(f"For '{who}', the 'network' must be Cell, but got {type(network).__name__}.")
    if not isinstance(checkpoint_filenames, (list, tuple)):
        raise TypeError(f"For '{who}', the 'checkpoint_filenames' must be list, but got {type(checkpoint_filenames).__name__}.")
    for index, name in enumerate(checkpoint_filenames):
        if not isinstance(name, str) or not name.endswith(".ckpt") or not os.path.exists(name) or os.path.getsize(name) == 0:
            raise ValueError(f"For '{who}', please check 'checkpoint_filenames': {name} at index {index} must be the name of a checkpoint "
                             "file that ends with '.ckpt' and is not empty.")
    _check_predict_strategy(predict_strategy)
    decryption = check_key(who, dec_key, dec_mode, "dec")
    strategy_file = train_strategy_filename if train_strategy_filename is not None else context.get_auto_parallel_context("strategy_ckpt_load_file")
    build_searched_strategy(strategy_file)  # says what is wrong with the name
    slices = _Slices([tessera.checkpoint.open(name, **decryption) for name in checkpoint_filenames], strategy_file)
    if slices.num_ranks != len(checkpoint_filenames):
        raise ValueError(f"For '{who}', the length of 'checkpoint_filenames' should be equal to the device count of training process. But "
                         f"got {len(checkpoint_filenames)} files and the device count is {slices.num_ranks}.")
    not_loaded = []
    for parameter in tessera.nn.Cell.parameters(network):
        whole = slices.whole(parameter.name)
        if whole is None:
            not_loaded.append(parameter.name)
            continue
        entry = predict_strategy.get(parameter.name) if predict_strategy else None
        part = whole if entry is None else _slice_for_prediction(parameter.name, whole, entry)
        _load(parameter, Parameter(part, name=parameter.name), strict_load)
    if not_loaded:
        context.warn_once(f"For '{who}', parameters in the network that are not in the checkpoints, {len(not_loaded)}: {', '.join(not_loaded[:5])}")


__getattr__ = missing(__name__)
del missing
