"""The parameters of the search for strategies in automatic parallel, as set_algo_parameters() sets them."""
_DEFAULTS = {"fully_use_devices": True, "elementwise_op_strategy_follow": True, "enable_algo_approxi": False, "algo_approxi_epsilon": 0.1,
             "tensor_slice_align_enable": False, "tensor_slice_align_size": 16}
NAMES = tuple(_DEFAULTS)
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


def set_all(given):
    """These by name. ValueError for one that does not exist or is out of range, TypeError for one of another type; then none is set."""
    for key, value in given.items():
        _check(key, value)
    _parameters.update(given)


def get_algo_parameters(attr_key):
    """The value of a parameter of the search. ValueError for one that does not exist."""
    if attr_key not in _DEFAULTS:
        raise ValueError(f"For 'get_algo_parameters', the parameter '{attr_key}' is not recognized; there are: {', '.join(_DEFAULTS)}")
    return _parameters[attr_key]


def reset():
    """All of them as they were."""
    _parameters.update(_DEFAULTS)
