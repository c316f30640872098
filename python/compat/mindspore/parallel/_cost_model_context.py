"""The parameters of the search for strategies in automatic parallel."""
from mindspore import context
from mindspore._missing import missing

_DEFAULTS = {"fully_use_devices": True, "elementwise_op_strategy_follow": True, "enable_algo_approxi": False, "algo_approxi_epsilon": 0.1,
             "tensor_slice_align_enable": False, "tensor_slice_align_size": 16}
_parameters = dict(_DEFAULTS)


def _check(key, value):
    if key not in _DEFAULTS:
        raise ValueError(f"For 'set_algo_parameters', the parameter '{key}' is not recognized; there are: {', '.join(_DEFAULTS)}")
    wanted = type(_DEFAULTS[key])
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise TypeError(f"For 'set_algo_parameters', '{key}' must be {wanted.__name__}, got {type(value).__name__}")
    if key == "tensor_slice_align_size" and not 1 <= value <= 1024:
        raise ValueError(f"For 'set_algo_parameters', 'tensor_slice_align_size' must be in [1, 1024], got {value}")
    if key == "algo_approxi_epsilon" and not 0 < value <= 1:
        raise ValueError(f"For 'set_algo_parameters', 'algo_approxi_epsilon' must be in (0, 1], got {value}")


def set_algo_parameters(**kwargs):
    """How automatic parallel searches. fully_use_devices: operators that can be split over all ranks are; only where it is set, for
    Tessera's search also looks at operators that every rank repeats. tensor_slice_align_enable, tensor_slice_align_size: the parts of the
    operands of products are multiples of so many elements. elementwise_op_strategy_follow, enable_algo_approxi and algo_approxi_epsilon are
    accepted: the search decides on elementwise operators with all others, and needs no approximation. ValueError for a parameter that
    does not exist or a value out of range, TypeError for one of another type."""
    for key, value in kwargs.items():
        _check(key, value)
    for key, value in kwargs.items():
        _parameters[key] = value
        context.note_set(key)


def get_algo_parameters(attr_key):
    """The value of a parameter of the search. ValueError for one that does not exist."""
    if attr_key not in _DEFAULTS:
        raise ValueError(f"For 'get_algo_parameters', the parameter '{attr_key}' is not recognized; there are: {', '.join(_DEFAULTS)}")
    return _parameters[attr_key]


def reset_algo_parameters():
    """All parameters of the search as they were."""
    _parameters.update(_DEFAULTS)
    for key in _DEFAULTS:
        context.note_set(key, False)


__getattr__ = missing(__name__)
del missing
