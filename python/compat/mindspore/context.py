"""The context of a script: device and mode, and how it is spread over ranks."""
import contextlib
import copy
import difflib
import os
import re
import sys

import tessera

from mindspore import _key_uses, _search_parameters
from mindspore._parameter_server import get_ps_context, reset_ps_context, set_ps_context

GRAPH_MODE = 0
PYNATIVE_MODE = 1


class ParallelMode:
    """How a training is spread over ranks."""
    STAND_ALONE = "stand_alone"
    DATA_PARALLEL = "data_parallel"
    HYBRID_PARALLEL = "hybrid_parallel"
    SEMI_AUTO_PARALLEL = "semi_auto_parallel"
    AUTO_PARALLEL = "auto_parallel"
    MODE_LIST = [STAND_ALONE, DATA_PARALLEL, HYBRID_PARALLEL, SEMI_AUTO_PARALLEL, AUTO_PARALLEL]


_said = set()


def _rank():
    """This process's rank; before it has joined its job, what the launcher says of it."""
    if tessera.cluster.is_initialized():
        return tessera.cluster.rank()
    ranks = [os.environ[name] for name in ("TESSERA_RANK", "OMPI_COMM_WORLD_RANK", "RANK_ID", "SLURM_PROCID") if name in os.environ]
    return int(ranks[0]) if ranks and ranks[0].isdecimal() else 0


def warn_once(text, about=None):
    """One line on standard error, by rank 0, once per process; of several texts about one thing the first."""
    if (about or text) in _said:
        return
    _said.add(about or text)
    if _rank() == 0:
        print(f"[WARNING] {text}", file=sys.stderr, flush=True)


_DEFAULTS = {
    "mode": GRAPH_MODE, "device_target": "CPU", "device_id": 0, "save_graphs": False, "save_graphs_path": ".",
    "enable_graph_kernel": False, "max_device_memory": "1024GB", "memory_offload": "OFF", "max_call_depth": 1000, "enable_sparse": False,
    "enable_reduce_precision": True, "env_config_path": "", "auto_tune_mode": "NO_TUNE", "precompile_only": False,
    "enable_compile_cache": False, "reserve_class_name_in_scope": True, "pynative_synchronize": False, "runtime_num_threads": 30,
    "enable_dump": False, "save_dump_path": ".", "variable_memory_max_size": "30GB", "print_file_path": "", "deterministic": "OFF",
    # Settings of early releases, without effect since.
    "enable_hccl": False, "enable_task_sink": True, "enable_loop_sink": True, "enable_mem_reuse": True,
    "enable_dynamic_memory": False, "enable_auto_mixed_precision": False, "enable_profiling": False,
    "profiling_options": "training_trace", "check_bprop": False, "grad_for_scalar": False,
}
_context = dict(_DEFAULTS)
_DEVICES = ("CPU", "GPU", "Ascend", "Davinci")


def _check_type(who, key, value, default):
    """TypeError unless the value is of the default's type; a number does for a bool."""
    types = (bool, int) if isinstance(default, bool) else type(default)
    if not isinstance(value, types) or isinstance(value, bool) and isinstance(default, int) and not isinstance(default, bool):
        raise TypeError(f"For '{who}', the argument '{key}' must be {type(default).__name__}, but got {type(value).__name__}.")


def _check_device(target):
    _check_type("set_context", "device_target", target, "CPU")
    if target not in _DEVICES:
        raise ValueError(f"For 'context.set_context', the argument 'device_target' must be one of {list(_DEVICES)}, but got {target}.")
    if target == "CPU" or target == "GPU" and tessera.gpus():
        return
    why = "there is no GPU that NVIDIA's driver, libcuda.so.1, gives this process" if target == "GPU" else "Tessera computes on CPUs and NVIDIA's GPUs"
    text = f"device_target \"{target}\" is not available: {why}"
    strict = os.environ.get("TESSERA_STRICT_DEVICE") or "0"
    if strict not in ("0", "1"):
        raise RuntimeError(f"TESSERA_STRICT_DEVICE must be 0 or 1, got \"{strict}\"")
    if strict == "1":
        raise RuntimeError(text)
    warn_once(f"{text}; the CPU is used")


# Settings of the reference that decide how fast it computes or what it writes down, not what is computed.
_WITHOUT_EFFECT = {
    "ascend_config", "gpu_config", "jit_config", "jit_level", "jit_syntax_level", "memory_optimize_level", "mempool_block_size",
    "inter_op_parallel_num", "compile_cache_path", "graph_kernel_flags", "debug_level", "op_timeout", "exec_order", "aoe_tune_mode", "aoe_config",
    "support_binary", "disable_format_transform", "graph_memory_max_size"}
# Of set_auto_parallel_context: what is harmless, and what to do instead of another value.
_ABSENT = {
    "pipeline_result_broadcast": (False, "Model.predict gives each rank the result that it computes: tessera.ops.broadcast sends it to the others"),
    "auto_pipeline": (False, "pipeline_stages says how many there are, and Cell.pipeline_stage what is in them"),
    "enable_fold_pipeline": (False, "pipeline_config={\"pipeline_interleave\": True} gives each rank several stages"),
    "dump_local_norm": (False, "a Callback sees the parameters of each step"),
    "dump_local_norm_path": ("", "a Callback sees the parameters of each step"),
    "dump_device_local_norm": (False, "a Callback sees the parameters of each step"),
    "multi_subgraphs": (False, "every network is one graph"),
}


def _near(key, known):
    near = difflib.get_close_matches(key, known, 1, 0.5)
    return f" Did you mean {near[0]}?" if near else ""


def _check_context(key, value):
    if key in _WITHOUT_EFFECT:
        warn_once(f"{key} of set_context has no effect: it is a setting of the reference's compiler or devices")
        return
    if key not in _DEFAULTS:
        raise ValueError(f"For 'context.set_context', the keyword argument {key} is not recognized!{_near(key, _DEFAULTS)} "
                         "For detailed usage of 'set_context', please refer to help(mindspore.set_context).")
    _check_type("set_context", key, value, _DEFAULTS[key])
    if key == "max_device_memory" and not re.fullmatch(r"(?!0*(\.0*)?GB)[0-9]+(\.[0-9]*)?GB", value):
        raise ValueError(f"For 'context.set_context', the argument 'max_device_memory' must be a positive number and \"GB\", but got {value}.")
    if key in ("memory_offload", "deterministic") and value not in ("ON", "OFF"):
        raise ValueError(f"For 'context.set_context', the argument '{key}' must be \"ON\" or \"OFF\", but got {value}.")
    if key == "mode" and value not in (GRAPH_MODE, PYNATIVE_MODE):
        raise ValueError(f"For 'context.set_context', the argument 'mode' should be context.GRAPH_MODE (0) or "
                         f"context.PYNATIVE_MODE (1), but got {value}.")
    if key == "device_id" and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 4095):
        raise ValueError(f"For 'context.set_context', the argument 'device_id' must be in range [0, 4095], but got {value}.")


def set_context(**kwargs):
    """Sets mode, device_target, device_id and so on; ValueError for a key that does not exist. Where it raises it sets nothing."""
    if "device_target" in kwargs:
        _check_device(kwargs["device_target"])
    for key, value in kwargs.items():
        _check_context(key, value)
    if kwargs.get("memory_offload") == "ON":
        warn_once("memory_offload has no effect: all memory is the host's already; max_device_memory limits it")
    _context.update({key: value for key, value in kwargs.items() if key in _DEFAULTS})
    tessera.nn.retrace()


def get_context(attr_key):
    """ValueError for a key that does not exist."""
    if attr_key not in _context:
        raise ValueError(f"For 'context.get_context', the argument {attr_key} is not recognized! "
                         "For detailed usage of 'get_context', please refer to help(mindspore.set_context).")
    return _context[attr_key]


def default(attr_key):
    """What a key of set_context() is unless it is set."""
    return _DEFAULTS[attr_key]


_PARALLEL_DEFAULTS = {
    "device_num": 1, "global_rank": 0, "gradients_mean": False, "gradient_fp32_sync": True, "loss_repeated_mean": True,
    "parallel_mode": ParallelMode.STAND_ALONE, "search_mode": "dynamic_programming", "auto_parallel_search_mode": "dynamic_programming",
    "parameter_broadcast": False, "strategy_ckpt_load_file": "", "strategy_ckpt_save_file": "", "group_ckpt_save_file": "",
    "full_batch": False, "dataset_strategy": "data_parallel", "enable_parallel_optimizer": False, "parallel_optimizer_config": {},
    "optimizer_weight_shard_size": -1, "optimizer_weight_shard_aggregated_save": False, "pipeline_stages": 1,
    "grad_accumulation_step": 1, "all_reduce_fusion_config": [], "comm_fusion": None, "enable_alltoall": False,
    "communi_parallel_mode": "all_group_parallel", "sharding_propagation": False, "force_fp32_communication": False,
    "pipeline_config": {"pipeline_interleave": False, "pipeline_scheduler": "1f1b"},
}
# The later way to name the two strategy files. Layouts of parameters that training leaves alone are written in any case.
_STRATEGY_CONFIG = {"load_file": "", "save_file": "", "only_trainable_params": True}
_PARALLEL_DEFAULTS["strategy_ckpt_config"] = _STRATEGY_CONFIG
_parallel = dict(_PARALLEL_DEFAULTS)
_set_keys = set()
_OLD_NAMES = {"mirror_mean": "gradients_mean", "cast_before_mirror": "gradient_fp32_sync"}
_BOOLS = [key for key, value in _PARALLEL_DEFAULTS.items() if isinstance(value, bool)]
_RANGES = {"device_num": (1, 4096), "global_rank": (0, 4095), "pipeline_stages": (1, None), "grad_accumulation_step": (1, None),
           "optimizer_weight_shard_size": (2, None)}
_CHOICES = {
    "parallel_mode": ParallelMode.MODE_LIST,
    "search_mode": ["dynamic_programming", "recursive_programming", "sharding_propagation"],
    "communi_parallel_mode": ["all_group_parallel", "same_server_group_parallel", "no_group_parallel"],
}
_COMM_KINDS = ("allreduce", "allgather", "reducescatter")


def check_comm_fusion(config):
    """TypeError, KeyError or ValueError for what a dict of communication fusion may not be."""
    if not isinstance(config, dict):
        raise TypeError(f"The input 'comm_fusion' must be a dict, but got {type(config).__name__}.")
    if "openstate" in config:
        if not isinstance(config["openstate"], bool):
            raise TypeError("The value of 'openstate' must be bool.")
        return
    for kind, setting in config.items():
        if kind not in _COMM_KINDS:
            raise KeyError(f"The key of 'comm_fusion' must be one of {_COMM_KINDS}, but got {kind}.")
        if not isinstance(setting, dict):
            raise TypeError(f"The config of '{kind}' must be a dict, but got {type(setting).__name__}.")
        if set(setting) != {"mode", "config"}:
            raise KeyError(f"The config of '{kind}' must have the keys 'mode' and 'config', but got {sorted(setting)}.")
        modes = ("auto", "size", "index") if kind == "allreduce" else ("auto", "size")
        if setting["mode"] not in modes:
            raise KeyError(f"The mode of '{kind}' must be one of {modes}, but got {setting['mode']}.")
        if setting["mode"] == "size" and not isinstance(setting["config"], int) or \
                setting["mode"] == "index" and not isinstance(setting["config"], list):
            raise TypeError(f"The 'config' of '{kind}' in mode '{setting['mode']}' has the wrong type {type(setting['config']).__name__}.")
        if setting["mode"] == "size" and setting["config"] < 1:
            raise ValueError(f"The 'config' of '{kind}' in mode 'size' must be greater than 0, but got {setting['config']}.")
        if setting["mode"] == "index":
            _check_fusion_indices("comm_fusion", setting["config"])


def _check_fusion_indices(key, indices):
    if not isinstance(indices, list):
        raise TypeError(f"For 'set_auto_parallel_context', '{key}' must be a list, but got {type(indices).__name__}.")
    if any(isinstance(i, bool) or not isinstance(i, int) for i in indices):
        raise TypeError(f"For 'set_auto_parallel_context', '{key}' must be a list of ints, but got {indices}.")
    if not indices or indices[0] < 0 or sorted(set(indices)) != indices:
        raise ValueError(f"For 'set_auto_parallel_context', '{key}' must not be empty, and its elements must rise from at least 0, but got {indices}.")


_DICT_ENTRIES = {
    "strategy_ckpt_config": {"load_file": str, "save_file": str, "only_trainable_params": bool},
    "parallel_optimizer_config": {"gradient_accumulation_shard": bool, "parallel_optimizer_threshold": int, "optimizer_weight_shard_size": int,
                                  "optimizer_level": str},
    "pipeline_config": {"pipeline_interleave": bool, "pipeline_scheduler": str},
}
_SCHEDULERS = ("1f1b", "gpipe", "zero_bubble_v")
_LEVELS = ("level1", "level2", "level3")


def _check_dict(key, config):
    who, entries = "For 'set_auto_parallel_context', the", _DICT_ENTRIES[key]
    if not isinstance(config, dict):
        raise TypeError(f"{who} argument '{key}' must be dict, but got {type(config).__name__}.")
    for name, value in config.items():
        if name not in entries:
            raise ValueError(f"{who} '{key}' has the keys {list(entries)}, not {name}.")
        if not isinstance(value, entries[name]) or isinstance(value, bool) and entries[name] is not bool:
            raise TypeError(f"{who} '{name}' must be {entries[name].__name__}, but got {type(value).__name__}.")
    if config.get("parallel_optimizer_threshold", 0) < 0:
        raise ValueError(f"{who} 'parallel_optimizer_threshold' must be at least 0, but got {config['parallel_optimizer_threshold']}.")
    if config.get("optimizer_weight_shard_size", 1) < 1:
        raise ValueError(f"{who} 'optimizer_weight_shard_size' must be at least 1, but got {config['optimizer_weight_shard_size']}.")
    if config.get("optimizer_level", _LEVELS[0]) not in _LEVELS:
        raise ValueError(f"{who} 'optimizer_level' must be one of {_LEVELS}, but got {config['optimizer_level']}.")
    if config.get("pipeline_scheduler", _SCHEDULERS[0]) not in _SCHEDULERS:
        raise ValueError(f"{who} 'pipeline_scheduler' must be one of {_SCHEDULERS}, but got {config['pipeline_scheduler']}.")


def check_dataset_strategy(value, who="set_auto_parallel_context", name="dataset_strategy"):
    """TypeError or ValueError for what says nothing of how the inputs lie."""
    if isinstance(value, str):
        if value not in ("full_batch", "data_parallel"):
            raise ValueError(f"For '{who}', the argument '{name}' must be 'full_batch' or 'data_parallel', but got {value}.")
        return
    if not isinstance(value, tuple):
        raise TypeError(f"For '{who}', the argument '{name}' must be str or tuple, but got {type(value).__name__}.")
    layouts = [item for item in value if hasattr(item, "check_leads")]  # their class counts on the context
    if layouts and len(layouts) == len(value):
        layouts[0].check_leads(who, name, layouts)
        return
    for item in value:
        if not isinstance(item, tuple):
            raise TypeError(f"For '{who}', the elements of '{name}' must be tuples, or all of them Layouts.")
        if any(isinstance(n, bool) or not isinstance(n, int) for n in item):
            raise TypeError(f"For '{who}', '{name}' must be tuples of ints.")


def _check_parallel(key, value):
    if key in _BOOLS and not isinstance(value, bool):
        raise TypeError(f"For 'set_auto_parallel_context', the argument '{key}' must be bool, but got {type(value).__name__}.")
    if key in _RANGES:
        low, high = _RANGES[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"For 'set_auto_parallel_context', the argument '{key}' must be int, but got {type(value).__name__}.")
        if value < low or (high is not None and value > high):
            raise ValueError(f"For 'set_auto_parallel_context', the argument '{key}' must be in range [{low}, {high if high else 'inf'}], but got {value}.")
    if key in _CHOICES:
        _check_type("set_auto_parallel_context", key, value, "")
    if key in _CHOICES and value not in _CHOICES[key]:
        raise ValueError(f"For 'set_auto_parallel_context', the argument '{key}' must be one of {_CHOICES[key]}, but got {value}.")
    if key in ("strategy_ckpt_load_file", "strategy_ckpt_save_file", "group_ckpt_save_file") and not isinstance(value, str):
        raise TypeError(f"For 'set_auto_parallel_context', the argument '{key}' must be str, but got {type(value).__name__}.")
    if key == "comm_fusion":
        check_comm_fusion(value)
    if key == "all_reduce_fusion_config":
        _check_fusion_indices(key, value)
    if key in _DICT_ENTRIES:
        _check_dict(key, value)
    if key == "dataset_strategy":
        check_dataset_strategy(value)


def _parallel_key(given):
    """The present name of a key of set_auto_parallel_context()."""
    key = "search_mode" if given == "auto_parallel_search_mode" else _OLD_NAMES.get(given, given)
    if key not in _PARALLEL_DEFAULTS:
        raise ValueError(f"For 'set_auto_parallel_context', the keyword argument {key} is not recognized!{_near(key, _PARALLEL_DEFAULTS)} "
                         "For detailed usage of 'set_auto_parallel_context', please refer to "
                         "help(mindspore.set_auto_parallel_context).")
    return key


def _is_absent(key, value):
    """Whether this is a key of the reference that this package lacks; NotImplementedError unless the value asks for nothing."""
    if key not in _ABSENT:
        return False
    harmless, remedy = _ABSENT[key]
    if value != harmless:
        raise NotImplementedError(f"For 'set_auto_parallel_context', {key}={value!r} is not available: {remedy}.")
    return True


def set_auto_parallel_context(**kwargs):
    """How training is spread over ranks. ValueError for a key that does not exist or a value out of range, TypeError for
    one of another type: then nothing is set. To be called before the network is made."""
    settings = [(_parallel_key(given), value) for given, value in kwargs.items() if not _is_absent(given, value)]
    for key, value in settings:
        _check_parallel(key, value)
    for key, value in settings:
        _put(key, value)
    tessera.nn.retrace()


def _put(key, value):
    """Sets a key to a value that is checked, and what follows from it."""
    if key == "search_mode":
        _parallel["auto_parallel_search_mode"] = value
    if key == "strategy_ckpt_config":
        value = _STRATEGY_CONFIG | value
        _parallel.update(strategy_ckpt_load_file=value["load_file"], strategy_ckpt_save_file=value["save_file"])
    if key == "parallel_optimizer_config" and "optimizer_weight_shard_size" in value:
        size = value["optimizer_weight_shard_size"]
        _parallel["optimizer_weight_shard_size"] = size if size > 1 else _PARALLEL_DEFAULTS["optimizer_weight_shard_size"]
    if key == "dataset_strategy" and isinstance(value, str):
        _parallel["full_batch"] = value == "full_batch"
    _parallel[key] = copy.deepcopy(value)
    _set_keys.add(key)


@contextlib.contextmanager
def spread_as(settings):
    """Within, the parallel context is what set_auto_parallel_context(**settings), whose values are checked, makes of that of a script which has set
    nothing; None: as it is. What is set within ends with it."""
    if settings is None:
        yield
        return
    outer, outer_keys = dict(_parallel), set(_set_keys)
    _replace(_PARALLEL_DEFAULTS, outer_keys - set(_PARALLEL_DEFAULTS))  # parameters of the search stay
    try:
        for key, value in settings.items():
            _put(key, value)
        yield
    finally:
        _replace(outer, outer_keys)


def _replace(values, keys):
    _parallel.clear()
    _parallel.update(values)
    _set_keys.clear()
    _set_keys.update(keys)


def get_auto_parallel_context(attr_key):
    """ValueError for a key that does not exist. device_num and global_rank are those of the job once it is initialized."""
    key = _OLD_NAMES.get(attr_key, attr_key)
    if key in _ABSENT:
        return _ABSENT[key][0]
    if key not in _PARALLEL_DEFAULTS:
        raise ValueError(f"For 'get_auto_parallel_context', the argument '{attr_key}' is not recognized! "
                         "For detailed usage of 'get_auto_parallel_context', please refer to "
                         "help(mindspore.set_auto_parallel_context).")
    if key in ("device_num", "global_rank") and key not in _set_keys and tessera.cluster.is_initialized():
        return tessera.cluster.size() if key == "device_num" else tessera.cluster.rank()
    return copy.deepcopy(_parallel[key])


def reset_auto_parallel_context():
    """All settings as they are at first."""
    _replace(_PARALLEL_DEFAULTS, ())
    tessera.nn.retrace()


_mode_of_trace = None


@contextlib.contextmanager
def traced_in(parallel_mode):
    """What is traced within is for this parallel mode, whatever the script has set since."""
    global _mode_of_trace
    outer, _mode_of_trace = _mode_of_trace, parallel_mode
    try:
        yield
    finally:
        _mode_of_trace = outer


def parallel_mode_of_trace():
    """The parallel mode that a network is traced for: its Model's, else the context's."""
    return _mode_of_trace or _parallel["parallel_mode"]


def say_unused(by_step=False):
    """Says once of each key that the script has changed and that has no effect in its parallel mode; and where it counts other devices
    than the job has. `by_step`: the training step is a function or a cell."""
    mode = _parallel["parallel_mode"]
    if mode == ParallelMode.AUTO_PARALLEL and (_parallel["sharding_propagation"] or _parallel["search_mode"] == "sharding_propagation"):
        mode = ParallelMode.SEMI_AUTO_PARALLEL  # which is what runs then
    # A search_mode counts where it is set, for Tessera's own is another than the reference's.
    changed = {key for key in _set_keys & set(_PARALLEL_DEFAULTS) if _parallel[key] != _PARALLEL_DEFAULTS[key] or key == "search_mode"}
    changed |= {key for key in _key_uses.SEARCH_PARAMETERS if key in _set_keys and _search_parameters.get_algo_parameters(key)}
    for line in _key_uses.unused_lines(_parallel, changed, mode, by_step):
        warn_once(line)
    if "gradient_accumulation_shard" in _parallel["parallel_optimizer_config"]:
        warn_once("gradient_accumulation_shard of parallel_optimizer_config has no effect: accumulated gradients are each rank's partial sums")
    if _parallel["enable_parallel_optimizer"] and _parallel["parallel_optimizer_config"].get("optimizer_level") == _LEVELS[-1]:
        warn_once("optimizer_level=\"level3\" shares parameters, states and gradients as \"level2\" does: backward reads the parameters that forward has "
                  "gathered, unless recompute(parallel_optimizer_comm_recompute=True) of a cell gathers them again")
    if _parallel["full_batch"] and not isinstance(_parallel["dataset_strategy"], str) and mode in (
            ParallelMode.SEMI_AUTO_PARALLEL, ParallelMode.AUTO_PARALLEL):
        warn_once(f"dataset_strategy={_parallel['dataset_strategy']} has no effect beside full_batch=True: every rank gives whole batches")
    if mode == ParallelMode.STAND_ALONE or not tessera.cluster.is_initialized():
        return
    for key, own in (("device_num", tessera.cluster.size()), ("global_rank", tessera.cluster.rank())):
        if key in changed and _parallel[key] != own:
            warn_once(f"{key}={_parallel[key]} has no effect: the job says {own}")


def check_mode(parallel_mode):
    """RuntimeError for a parallel mode that PYNATIVE_MODE has not."""
    if get_context("mode") == PYNATIVE_MODE and parallel_mode not in (ParallelMode.STAND_ALONE, ParallelMode.DATA_PARALLEL):
        raise RuntimeError(f"PYNATIVE_MODE supports stand_alone and data_parallel, not {parallel_mode}: splitting operators needs the "
                           "whole graph, set_context(mode=GRAPH_MODE)")


def is_literal_gradients_mean(parallel_mode):
    """Whether gradients are scaled as the reference does where that depends on the plan."""
    return (os.environ.get("TESSERA_LITERAL_GRADIENTS_MEAN") == "1"
            and parallel_mode in (ParallelMode.SEMI_AUTO_PARALLEL, ParallelMode.AUTO_PARALLEL))


def was_set(key):
    """Whether the script has set this key of the parallel context, or this parameter of the search."""
    return key in _set_keys


def note_set(key, is_set=True):
    """Remembers that a parameter of the search was set, or forgets it."""
    (_set_keys.add if is_set else _set_keys.discard)(key)


def warn_of_gradients_mean(parallel_mode):
    """Says once what gradients_mean and loss_repeated_mean would do in the reference, in semi-automatic and automatic parallel."""
    size = tessera.cluster.size()
    if size == 1:
        return
    does = "does" if is_literal_gradients_mean(parallel_mode) else "would have done, and TESSERA_LITERAL_GRADIENTS_MEAN=1 does"
    if _parallel["gradients_mean"]:
        warn_once(f"gradients_mean=True in {parallel_mode}: the loss is global already; what the reference {does}: the gradient is "
                  f"divided by the size of each parameter's group, {size} at most, an effective learning rate of lr/{size}")
    if not _parallel["loss_repeated_mean"]:
        warn_once(f"loss_repeated_mean=False in {parallel_mode}: the loss is counted once; what the reference {does}: the gradient is "
                  f"multiplied by {size}, the ranks that have it")


from mindspore._missing import missing  # noqa: E402

__getattr__ = missing(__name__)
del missing
