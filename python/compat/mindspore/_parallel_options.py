"""tessera's options for what the context says."""
import math
import os
import zlib

import tessera

from mindspore import _layout, context
from mindspore._join import join_job, join_launched_job
from mindspore._search_parameters import get_algo_parameters
from mindspore.context import ParallelMode


def session_options():
    """Of how a step is run. GRAPH_OP_RUN=1: one operator after the other, each as a kernel of its own."""
    options = {}
    if os.environ.get("GRAPH_OP_RUN") == "1":
        options |= {"fuse": False, "overlap": False}
    limit = context.get_context("max_device_memory")
    if limit != context.default("max_device_memory"):
        options["memory_limit"] = limit.upper().replace("GB", "GiB")
    if context.get_context("deterministic") == "ON":
        options["deterministic"] = True
    if context.get_context("device_target") == "GPU" and (gpus := tessera.gpus()):
        # Ranks of a job have a GPU each, by their numbers on their host.
        number = context.get_context("device_id")
        if number >= len(gpus):
            raise ValueError(f"For 'context.set_context', the argument 'device_id' is {number}, but there are {len(gpus)} GPUs.")
        options["device"] = "cuda" if tessera.cluster.is_initialized() and tessera.cluster.size() > 1 else f"cuda:{number}"
    return options


def parallel_options():
    """Of how a training is spread over ranks."""
    get = context.get_auto_parallel_context
    mode = get("parallel_mode")
    context.check_mode(mode)
    if mode != ParallelMode.STAND_ALONE:
        join_job()
    else:
        join_launched_job()
    context.say_unused()
    if get("pipeline_stages") > 1 and tessera.cluster.size() > 1:  # one rank has all stages
        return _pipeline_options(get, mode)
    if context.was_set("pipeline_config"):
        context.warn_once("pipeline_config has no effect without pipeline_stages and their ranks")
    if mode == ParallelMode.STAND_ALONE:
        return {"parallel_mode": mode} if context.was_set("parallel_mode") else {}
    options = {"parameter_broadcast": get("parameter_broadcast")}
    if mode == ParallelMode.HYBRID_PARALLEL:
        if context.was_set("gradients_mean") and not get("gradients_mean"):
            context.warn_once("gradients_mean=False has no effect in hybrid_parallel: the gradients are those of the mean of the ranks' losses; "
                              "the reference adds them up, an effective learning rate as many times larger as there are ranks")
        return options | {"parallel_mode": mode}
    searches = mode == ParallelMode.AUTO_PARALLEL and not propagates()
    if not searches:
        options |= _optimizer_options(get)
    if mode == ParallelMode.DATA_PARALLEL:
        # The network sees statistics of the rank's own batch.
        return options | {"parallel_mode": mode, "gradients_mean": get("gradients_mean"), "batch_norm_statistics": "local"}
    context.warn_of_gradients_mean(mode)
    options["sliced_parameters"] = True
    strategy = get("dataset_strategy")
    if searches:
        options |= {"parallel_mode": mode, "search": search_options()}
    else:
        options |= {"parallel_mode": ParallelMode.SEMI_AUTO_PARALLEL}
    return options | {"full_batch": get("full_batch"),
                      "dataset_strategy": [] if isinstance(strategy, str) else _dataset_counts(strategy),
                      "sharding_propagation": propagates(),
                      "strategy_ckpt_save_file": get("strategy_ckpt_save_file"),
                      "strategy_ckpt_load_file": _strategies_to_repeat(get("strategy_ckpt_load_file")),
                      "group_ckpt_save_file": get("group_ckpt_save_file") or os.environ.get("GROUP_INFO_FILE", "")}


def _dataset_counts(strategy):
    """Of each column the counts. RuntimeError for layouts of other devices than there are."""
    if not _layout.is_one_rank():
        _layout.check_devices("set_auto_parallel_context", _layout.layouts_in(strategy))
    return [list(map(int, _layout.counts_of("set_auto_parallel_context", item))) for item in strategy]


def _pipeline_options(get, mode):
    """Of stages: as many ranks for each, semi-automatic parallel within. The micro-batches are the network's to say."""
    stages = get("pipeline_stages")
    if mode != ParallelMode.SEMI_AUTO_PARALLEL:
        raise RuntimeError(f"pipeline_stages={stages} needs parallel_mode=semi_auto_parallel, not {mode}")
    strategy = get("dataset_strategy")
    if not get("full_batch") and not isinstance(strategy, str) and any(
            count != 1 for item in strategy for count in _layout.counts_of("set_auto_parallel_context", item)):
        raise RuntimeError(f"dataset_strategy={strategy} is not available with pipeline_stages={stages}: with full_batch=True every rank reads the whole "
                           "batch, and without it each rank of a stage its own rows of it")
    for key in ("strategy_ckpt_load_file", "group_ckpt_save_file"):
        if get(key):
            raise RuntimeError(f"{key} is not available with pipeline_stages={stages} yet")
    context.warn_of_gradients_mean(mode)
    return _optimizer_options(get) | {"parallel_mode": "pipeline_parallel", "strategy_ckpt_save_file": get("strategy_ckpt_save_file"),
                                      "parameter_broadcast": get("parameter_broadcast"),
                                      "pipeline": {"stages": stages, "schedule": _schedule(get("pipeline_config")), "sum_losses": True}}


def _schedule(config):
    """What pipeline_config asks for, by Tessera's name."""
    scheduler = config.get("pipeline_scheduler", "1f1b")
    if scheduler == "zero_bubble_v":
        return "zb_v"
    return "interleaved_1f1b" if scheduler == "1f1b" and config.get("pipeline_interleave", False) else scheduler


def _optimizer_options(get):
    """Of parameters that replicas share."""
    options = {"parallel_optimizer": get("enable_parallel_optimizer")}
    threshold = get("parallel_optimizer_config").get("parallel_optimizer_threshold")
    if threshold is not None:
        options["parallel_optimizer_threshold"] = threshold * 1024
    if get("optimizer_weight_shard_size") > 1:
        options["optimizer_weight_shard_size"] = get("optimizer_weight_shard_size")
    return options


def propagates():
    """Whether operators without a strategy take over a neighbour's."""
    get = context.get_auto_parallel_context
    return get("search_mode") == "sharding_propagation" or get("sharding_propagation")


def search_options():
    """How automatic parallel searches. The certified solver, unless a search_mode was asked for."""
    options = {"fully_use_devices": context.was_set("fully_use_devices") and get_algo_parameters("fully_use_devices")}
    if get_algo_parameters("tensor_slice_align_enable"):
        options["slice_align_size"] = get_algo_parameters("tensor_slice_align_size")
    if context.was_set("search_mode"):
        options["algorithm"] = context.get_auto_parallel_context("search_mode")
    return options


def spread_options(who):
    """How a training step that is a cell or a function is split over the ranks, for tessera's Cell.spread."""
    context.say_unused(by_step=True)
    if context.get_auto_parallel_context("pipeline_stages") > 1:
        raise RuntimeError(f"For '{who}', pipeline_stages > 1 is not available: give nn.PipelineCell(network, micro_size) and the optimizer to a Model")
    strategy, full_batch = context.get_auto_parallel_context("dataset_strategy"), context.get_auto_parallel_context("full_batch")
    # One rank splits nothing.
    is_split = not isinstance(strategy, str) and not full_batch and tessera.cluster.size() > 1
    searches = context.get_auto_parallel_context("parallel_mode") == ParallelMode.AUTO_PARALLEL and not propagates()
    return {"strategies": not searches, "propagation": propagates(), "full_batch": full_batch,
            "search": search_options() if searches else None, "dataset_strategy": _dataset_counts(strategy) if is_split else []}


def _strategies_to_repeat(path):
    """The strategy file, where it is of as many ranks; that of others only says how a checkpoint is split."""
    if not path or not os.path.exists(path):
        return path
    sizes = {math.prod(layout.device_matrix) for layout in tessera.checkpoint.build_searched_strategy(path).values()}
    if tessera.cluster.size() in sizes:
        return path
    context.warn_once(f"strategy_ckpt_load_file {path} is of another number of ranks, {max(sizes, default=0)}: operators are split as the network says, not as the file")
    return ""


def agree_on_values(parallel_mode, *cells):
    """Says once where ranks start from different values. In semi-automatic and automatic parallel, and with parameter_broadcast,
    all take rank 0's. Every rank calls it."""
    parameters = [parameter for cell in cells if cell is not None for parameter in tessera.nn.Cell.parameters(cell) if not parameter.layerwise_parallel]
    crc = 0
    for parameter in parameters:
        crc = zlib.crc32(parameter.numpy().tobytes(), crc)
    all_of_them = tessera.ops.all_gather(tessera.Tensor([crc], tessera.int64)).numpy().tolist()
    if len(set(all_of_them)) == 1:
        return
    is_global = parallel_mode in (ParallelMode.SEMI_AUTO_PARALLEL, ParallelMode.AUTO_PARALLEL)
    if not is_global and not context.get_auto_parallel_context("parameter_broadcast"):
        context.warn_once("ranks start from different parameter values: the replicas will differ; use one seed, or parameter_broadcast")
        return
    for parameter in parameters:
        parameter.set_data(tessera.ops.broadcast(parameter.value()))
    if is_global:
        context.warn_once("the initial values of parameters differ between ranks: all take rank 0's")
