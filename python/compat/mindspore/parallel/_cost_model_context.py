"""The parameters of the search for strategies in automatic parallel."""
from mindspore import _check, _search_parameters, context
from mindspore._missing import missing
from mindspore._search_parameters import get_algo_parameters


def set_algo_parameters(**kwargs):
    """How automatic parallel searches. fully_use_devices: operators that can be split over all ranks are; only where it is set, for
    Tessera's search also looks at operators that every rank repeats. tensor_slice_align_enable, tensor_slice_align_size: the parts of the
    operands of products are multiples of so many elements. elementwise_op_strategy_follow, enable_algo_approxi and algo_approxi_epsilon are
    accepted: the search decides on elementwise operators with all others, and needs no approximation. ValueError for a parameter that
    does not exist or a value out of range, TypeError for one of another type."""
    _search_parameters.set_all(kwargs)
    for key in kwargs:
        context.note_set(key)


def reset_algo_parameters():
    """All parameters of the search as they were."""
    _search_parameters.reset()
    for key in _search_parameters.NAMES:
        context.note_set(key, False)


def _set_multi_subgraphs(multi_subgraph=True):
    """A hint for the reference's search, that its graph has several parts, without effect: a search sees the whole step."""
    _check.boolean("_set_multi_subgraphs", "multi_subgraph", multi_subgraph)
    context.warn_once("_set_multi_subgraphs has no effect: the search for strategies sees the whole step, however many parts it has")


__getattr__ = missing(__name__)
del missing
