"""Which keys of the parallel context have an effect in which mode: what a script sets and nothing reads is said once."""
from typing import NamedTuple

_STAND, _DATA, _HYBRID, _SEMI, _AUTO = _ALL = ("stand_alone", "data_parallel", "hybrid_parallel", "semi_auto_parallel", "auto_parallel")
_SPLIT = (_SEMI, _AUTO)
_PARALLEL = (_DATA, _HYBRID, *_SPLIT)


class Use(NamedTuple):
    """The modes in which a key is read (or in which what it asks for is done in any case), by a Model that is given a network, a loss
    and an optimizer, and by a training step that is a function or a cell; and why other ways to train do without it."""
    by_model: tuple
    by_step: tuple
    reason: str = ""


_NO_FUSION = "the size of buckets follows from the measured links, and no result depends on it"
_ONLY_MODEL = "a training step that is a function or a cell has whole parameters between two calls"
USES = {
    "parallel_mode": Use(_ALL, _ALL),
    # These two are compared with the job's own.
    "device_num": Use(_ALL, _ALL),
    "global_rank": Use(_ALL, _ALL),
    "gradients_mean": Use(_PARALLEL, _PARALLEL),
    "gradient_fp32_sync": Use((), (), "gradients of parameters and their sums over ranks are float32 always"),
    # What it asks for is done in any case.
    "force_fp32_communication": Use(_ALL, _ALL),
    "loss_repeated_mean": Use(_SPLIT, _SPLIT),
    "search_mode": Use((_AUTO,), (_AUTO,)),
    "auto_parallel_search_mode": Use((_AUTO,), (_AUTO,)),
    "parameter_broadcast": Use(_PARALLEL, _PARALLEL),
    "strategy_ckpt_load_file": Use(_SPLIT, (), _ONLY_MODEL),
    "strategy_ckpt_save_file": Use(_SPLIT, (), _ONLY_MODEL),
    "strategy_ckpt_config": Use(_SPLIT, (), _ONLY_MODEL),
    "group_ckpt_save_file": Use(_SPLIT, (), _ONLY_MODEL),
    # In data parallel data sets read them: all ranks read the same rows.
    "full_batch": Use((_DATA, *_SPLIT), _SPLIT),
    "dataset_strategy": Use((_DATA, *_SPLIT), _SPLIT),
    # Optimizers refuse it in the modes that have no replicas.
    "enable_parallel_optimizer": Use((_STAND, _HYBRID, _DATA, _SEMI), (_STAND, _HYBRID), _ONLY_MODEL),
    "parallel_optimizer_config": Use((_DATA, _SEMI), (), _ONLY_MODEL),
    "optimizer_weight_shard_size": Use((_DATA, _SEMI), (), _ONLY_MODEL),
    "optimizer_weight_shard_aggregated_save": Use((), (), "integrated_save of a checkpoint says whether it is whole"),
    # More than one is refused in the other modes.
    "pipeline_stages": Use(_ALL, _ALL),
    "pipeline_config": Use((_SEMI,), (), _ONLY_MODEL),
    "grad_accumulation_step": Use((), _ALL, "a training step with accu_grads reads it"),
    "all_reduce_fusion_config": Use((), (), _NO_FUSION),
    "comm_fusion": Use((), (), _NO_FUSION),
    "enable_alltoall": Use(_ALL, _ALL),
    "communi_parallel_mode": Use((), (), "every group of ranks communicates in the same way"),
    "sharding_propagation": Use(_SPLIT, _SPLIT),
}
# Parameters of the search that set_algo_parameters() sets.
SEARCH_PARAMETERS = ("fully_use_devices", "tensor_slice_align_enable")
_SEARCH = Use((_AUTO,), (_AUTO,))


def unused_lines(settings, changed, mode, by_step=False):
    """One line for each key among `changed` that has no effect in this mode. `settings`: the values by key."""
    lines = []
    for key in sorted(changed):
        use = _SEARCH if key in SEARCH_PARAMETERS else USES[key]
        modes = use.by_step if by_step else use.by_model
        if key in ("search_mode", "auto_parallel_search_mode") and settings[key] == "sharding_propagation":
            modes = _SPLIT
        if mode in modes:
            continue
        where = " of a training step that is a function or a cell" if by_step else ""
        reason = use.reason if use.reason and (by_step or not modes) else f"it is read in {', '.join(modes)}"
        lines.append(f"{key} has no effect in {mode}{where}: {reason}")
    return lines
