"""What training steps of published scripts ask of the context."""
import tessera

from mindspore.context import ParallelMode, get_auto_parallel_context

_SPREAD = (ParallelMode.SEMI_AUTO_PARALLEL, ParallelMode.AUTO_PARALLEL)


def _get_parallel_mode():
    return get_auto_parallel_context("parallel_mode")


def _is_in_auto_parallel_mode():
    return _get_parallel_mode() in _SPREAD


def _is_in_data_parallel_mode():
    return _get_parallel_mode() == ParallelMode.DATA_PARALLEL


def _is_in_hybrid_parallel_mode():
    return _get_parallel_mode() == ParallelMode.HYBRID_PARALLEL


def _is_parallel_mode():
    return _get_parallel_mode() != ParallelMode.STAND_ALONE


def _is_sharding_propagation():
    """Whether the search decides for operators without strategies only."""
    return get_auto_parallel_context("search_mode") == "sharding_propagation"


def _get_device_num():
    """What the context says, else the ranks of the job."""
    device_num = get_auto_parallel_context("device_num")
    return device_num if device_num > 1 or not tessera.cluster.is_initialized() else tessera.cluster.size()


def _get_global_rank():
    return tessera.cluster.rank() if tessera.cluster.is_initialized() else 0


def _get_stage_device_num():
    return _get_device_num() // _get_pipeline_stages()


def _get_pipeline_stages():
    return get_auto_parallel_context("pipeline_stages")


def _get_gradients_mean():
    return get_auto_parallel_context("gradients_mean")


def _get_full_batch():
    return get_auto_parallel_context("full_batch")


def _get_parameter_broadcast():
    return get_auto_parallel_context("parameter_broadcast")


def _get_enable_parallel_optimizer():
    return get_auto_parallel_context("enable_parallel_optimizer")
