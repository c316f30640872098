"""Checks of arguments: each returns the value, or raises TypeError or ValueError naming who wanted what."""
import math
import operator

import tessera


def boolean(who, name, value):
    """A bool."""
    if not isinstance(value, bool):
        raise TypeError(f"For '{who}', the '{name}' must be bool, but got {type(value).__name__}.")
    return value


def integer(who, name, value, low=None):
    """An int, at least `low`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"For '{who}', the '{name}' must be int, but got {type(value).__name__}.")
    if low is not None and value < low:
        raise ValueError(f"For '{who}', the '{name}' must be " + (f"greater than 0, but got {value}." if low == 1 else f"at least {low}, but got {value}."))
    return value


def any_number(who, name, value):
    """An int or float, as a float, which may be infinite or NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"For '{who}', the '{name}' must be float, but got {type(value).__name__}.")
    return float(value)


def number(who, name, value):
    """An int or float that is finite, as a float."""
    if not math.isfinite(any_number(who, name, value)):
        raise ValueError(f"For '{who}', the '{name}' must be a finite number, but got {value}.")
    return float(value)


def non_negative(who, name, value):
    """A number from 0 on."""
    if number(who, name, value) < 0:
        raise ValueError(f"For '{who}', the '{name}' must be at least 0.0, but got {value}.")
    return float(value)


def weight_decay(who, value):
    """A number from 0 on. TypeError for a cell that computes it."""
    if isinstance(value, tessera.nn.Cell):
        raise TypeError(f"For '{who}', the 'weight_decay' must be float, but got the cell {type(value).__name__}: a decay that follows the step is not available. Give "
                        "a number, several for groups of parameters, or derive nn.Optimizer, whose construct(gradients) may count a decay from self.global_step")
    return non_negative(who, "weight_decay", value)


def positive(who, name, value):
    """A number above 0."""
    if number(who, name, value) <= 0:
        raise ValueError(f"For '{who}', the '{name}' must be greater than 0.0, but got {value}.")
    return float(value)


def between(who, name, value, low, high, text):
    """A number inside of (low, high); `text` is how the error writes the range."""
    if not low < number(who, name, value) < high:
        raise ValueError(f"For '{who}', the '{name}' must be in range {text}, but got {value}.")
    return float(value)


def betas(who, beta1, beta2, eps):
    """The settings of moments: two numbers inside of (0, 1) and one above 0."""
    return (between(who, "beta1", beta1, 0, 1, "(0.0, 1.0)"), between(who, "beta2", beta2, 0, 1, "(0.0, 1.0)"),
            positive(who, "eps", eps))


def one_of(who, name, value, choices):
    """One of several values."""
    if value not in choices:
        raise ValueError(f"For '{who}', the '{name}' must be one of {list(choices)}, but got {value}.")
    return value


def only(who, name, value, choices, instead):
    """One of `choices`, of which the first is what it is without being given; NotImplementedError for any other."""
    if not any(value is choice or type(value) is type(choice) and value == choice for choice in choices):
        raise NotImplementedError(f"For '{who}', {name}={repr(value) if isinstance(value, str) else value} is not available: {instead}")
    return value


def sizes(who, name, value, count=2, low=1):
    """A size, or a tuple of `count`; all at least `low`."""
    items = value if isinstance(value, tuple) else (value,)
    if isinstance(value, tuple) and len(value) != count:
        raise ValueError(f"For '{who}', the '{name}' must be int or a tuple of {count} ints, but got {value}.")
    for item in items:
        integer(who, name, item, low)
    return value


def axis(who, name, value, ndim):
    """A dim of a tensor that has so many, counted from 0; one below 0 counts from the end."""
    try:
        place = operator.index(value)
    except TypeError:
        raise TypeError(f"For '{who}', the '{name}' must be int, but got {type(value).__name__}.") from None
    if not -ndim <= place < ndim:
        raise ValueError(f"For '{who}', the '{name}' must be in range [{-ndim}, {ndim}), the dims of the tensor, but got {place}.")
    return place % ndim


def place(who, role, rank_id):
    """RuntimeError unless it is this process, alone."""
    if not isinstance(role, str) or isinstance(rank_id, bool) or not isinstance(rank_id, int):
        raise TypeError(f"{who}.place takes a role, str, and a rank_id, int, but got {role!r} and {rank_id!r}.")
    size = tessera.cluster.size() if tessera.cluster.is_initialized() else 1
    if role != "MS_WORKER" or rank_id != 0 or size != 1:
        raise RuntimeError(f"{who}.place({role!r}, {rank_id}) is not available: in a job of {size} process{'es' if size > 1 else ''} operators run where the "
                           "plan has them, and servers keep what set_param_ps() names; a strategy of shard() or a rank's own network in "
                           "hybrid_parallel says where operators run")
