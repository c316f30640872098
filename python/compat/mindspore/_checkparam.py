"""Checks of arguments as scripts call them, those of the 2.x releases as functions and those of the earlier ones as Validator's: each returns the
value, or raises TypeError or ValueError naming whose argument must be what."""
import functools
import inspect
import operator

from mindspore._missing import missing

EQ, NE, LT, LE, GT, GE = range(1, 7)
INC_NEITHER, INC_LEFT, INC_RIGHT, INC_BOTH = range(7, 11)
IN, NOT_IN = 11, 12
_COMPARES = {EQ: (operator.eq, "="), NE: (operator.ne, "!="), LT: (operator.lt, "<"), LE: (operator.le, "<="), GT: (operator.gt, ">"), GE: (operator.ge, ">="),
             IN: (lambda found, values: found in values, "be in"), NOT_IN: (lambda found, values: found not in values, "not be in")}
# Whether the lower and the upper limit are inside.
_LIMITS = {INC_NEITHER: (False, False), INC_LEFT: (True, False), INC_RIGHT: (False, True), INC_BOTH: (True, True)}


def _compare(rel, value):
    """How to compare with the value, and what it is called."""
    if rel not in _COMPARES:
        raise ValueError(f"The argument 'rel' must be one of EQ, NE, LT, LE, GT, GE, IN and NOT_IN, but got {rel}.")
    if rel in (IN, NOT_IN) and not hasattr(value, "__contains__"):
        raise TypeError(f"The argument 'value' must be a list or such, in which IN and NOT_IN look, but got '{type(value).__name__}'.")
    return _COMPARES[rel]


def _subject(arg_name, prim_name):
    """How an error begins."""
    who = f"For '{prim_name}', the" if prim_name else "The"
    return f"{who} '{arg_name}'" if arg_name else f"{who} input value"


def _typed(arg_value, kind, arg_name, prim_name):
    if isinstance(arg_value, bool) and kind is not bool or not isinstance(arg_value, kind):
        raise TypeError(f"{_subject(arg_name, prim_name)} must be {kind.__name__}, but got '{type(arg_value).__name__}'")
    return arg_value


def _compared(arg_value, kind, rel, value, arg_name, prim_name):
    compare, sign = _compare(rel, value)
    if not compare(_typed(arg_value, kind, arg_name, prim_name), value):
        raise ValueError(f"{_subject(arg_name, prim_name)} must be {kind.__name__} and must {sign} {value}, but got '{arg_value}' with type "
                         f"'{type(arg_value).__name__}'.")
    return arg_value


def check_int(arg_value, value, rel, arg_name=None, prim_name=None):
    """An int that compares so with `value`."""
    return _compared(arg_value, int, rel, value, arg_name, prim_name)


def check_float(arg_value, value, rel, arg_name=None, prim_name=None):
    """A float that compares so with `value`."""
    return _compared(arg_value, float, rel, value, arg_name, prim_name)


def _sign_check(kind, rel, word):
    def check(arg_value, arg_name=None, prim_name=None):
        return _compared(arg_value, kind, rel, 0, arg_name, prim_name)

    check.__name__ = check.__qualname__ = f"check_{word}_{kind.__name__}"
    check.__doc__ = f"A {kind.__name__} {_COMPARES[rel][1]} 0."
    return check


check_positive_int, check_positive_float = _sign_check(int, GT, "positive"), _sign_check(float, GT, "positive")
check_non_negative_int, check_non_negative_float = _sign_check(int, GE, "non_negative"), _sign_check(float, GE, "non_negative")
check_negative_int, check_negative_float = _sign_check(int, LT, "negative"), _sign_check(float, LT, "negative")
check_non_positive_int, check_non_positive_float = _sign_check(int, LE, "non_positive"), _sign_check(float, LE, "non_positive")


def check_equal_int(arg_value, value, arg_name=None, prim_name=None):
    """That int."""
    return _compared(arg_value, int, EQ, value, arg_name, prim_name)


def check_number(arg_name, arg_value, value, rel, prim_name):
    """What compares so with `value`."""
    compare, sign = _compare(rel, value)
    if not compare(arg_value, value):
        raise ValueError(f"For '{prim_name}', the argument '{arg_name}' must {sign} {value}, but got {arg_value}.")
    return arg_value


def check_number_range(arg_value, lower_limit, upper_limit, rel, value_type, arg_name=None, prim_name=None):
    """One of that type between the limits."""
    _typed(arg_value, value_type, arg_name, prim_name)
    if rel not in _LIMITS:
        raise ValueError(f"The argument 'rel' must be one of INC_NEITHER, INC_LEFT, INC_RIGHT and INC_BOTH, but got {rel}.")
    has_lower, has_upper = _LIMITS[rel]
    if not (arg_value >= lower_limit if has_lower else arg_value > lower_limit) or not (arg_value <= upper_limit if has_upper else arg_value < upper_limit):
        raise ValueError(f"{_subject(arg_name, prim_name)} must be in range of {'(['[has_lower]}{lower_limit}, {upper_limit}{')]'[has_upper]}, but got "
                         f"{arg_value} with type '{type(arg_value).__name__}'.")
    return arg_value


def check_int_range(arg_value, lower_limit, upper_limit, rel, arg_name=None, prim_name=None):
    """An int between the limits."""
    return check_number_range(arg_value, lower_limit, upper_limit, rel, int, arg_name, prim_name)


def check_float_range(arg_value, lower_limit, upper_limit, rel, arg_name=None, prim_name=None):
    """A float or int between the limits."""
    return check_number_range(arg_value, lower_limit, upper_limit, rel, int if isinstance(arg_value, int) else float, arg_name, prim_name)


def check_bool(arg_value, arg_name=None, prim_name=None):
    """A bool."""
    if not isinstance(arg_value, bool):
        raise TypeError(f"{_subject(arg_name, prim_name)} must be a bool, but got {type(arg_value).__name__}.")
    return arg_value


def check_is_int(arg_value, arg_name=None, prim_name=None):
    """An int."""
    return _typed(arg_value, int, arg_name, prim_name)


def check_is_float(arg_value, arg_name=None, prim_name=None):
    """A float."""
    return _typed(arg_value, float, arg_name, prim_name)


def check_string(arg_value, valid_values, arg_name=None, prim_name=None):
    """One of several texts."""
    if not isinstance(arg_value, str) or arg_value not in valid_values:
        raise ValueError(f"{_subject(arg_name, prim_name)} must be str and must be in '{valid_values}', but got '{arg_value}'.")
    return arg_value


def check_value_type(arg_name, arg_value, valid_types, prim_name=None):
    """One of a type, or of one of several; True is no int. None stands for its type."""
    kinds = tuple(type(None) if kind is None else kind for kind in (valid_types if isinstance(valid_types, (list, tuple)) else (valid_types, )))
    if not isinstance(arg_value, kinds) or isinstance(arg_value, bool) and bool not in kinds:
        who = f"For '{prim_name}', the" if prim_name else "The"
        names = f"'{kinds[0].__name__}'" if len(kinds) == 1 else f"one of '{', '.join(kind.__name__ for kind in kinds)}'"
        raise TypeError(f"{who} type of '{arg_name}' should be {names}, but got type '{type(arg_value).__name__}'.")
    return arg_value


def check_isinstance(arg_name, arg_value, classes):
    """One of these classes."""
    if not isinstance(arg_value, classes):
        raise ValueError(f"The parameter '{arg_name}' must be isinstance of {classes}, but got {arg_value}.")
    return arg_value


def check_type_name(arg_name, arg_type, valid_types, prim_name):
    """One of several dtypes."""
    valid = valid_types if isinstance(valid_types, (list, tuple)) else (valid_types, )
    if arg_type not in valid:
        raise TypeError(f"For '{prim_name}', the '{arg_name}' should be {' or '.join(map(str, valid))}, but got '{arg_type}'.")
    return arg_type


def args_type_check(*type_args, **type_kwargs):
    """Decorates a function: TypeError where an argument has none of the types given for it. None is taken by all."""

    def decorate(function):
        signature = inspect.signature(function)
        kinds = signature.bind_partial(*type_args, **type_kwargs).arguments

        @functools.wraps(function)
        def checked(*args, **kwargs):
            for name, value in signature.bind(*args, **kwargs).arguments.items():
                if value is not None and name in kinds and not isinstance(value, kinds[name]):
                    raise TypeError(f"The parameter '{name}' must be {kinds[name]}, but got {type(value)}")
            return function(*args, **kwargs)

        return checked

    return decorate


class Rel:
    """How two numbers compare, as releases of 1.x name it."""
    EQ, NE, LT, LE, GT, GE = EQ, NE, LT, LE, GT, GE
    INC_NEITHER, INC_LEFT, INC_RIGHT, INC_BOTH = INC_NEITHER, INC_LEFT, INC_RIGHT, INC_BOTH
    IN, NOT_IN = IN, NOT_IN


class Validator:
    """The checks, as releases of 1.x name them."""


for _name, _check in list(globals().items()):
    if _name.startswith("check_"):
        setattr(Validator, _name, staticmethod(_check))

__getattr__ = missing(__name__)
del missing, _check, _name
