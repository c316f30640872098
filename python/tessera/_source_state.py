"""The state of random numbers that a data set's source draws by itself: asked of the source and given back to it by functions of its own."""
import base64
import importlib
import inspect
import json

import numpy as np

# What a source may have, to ask and to give back.
_FUNCTIONS = (("state", "set_state"), ("state_dict", "load_state_dict"))
# What draws, and what begins a generator anew: who does that for each sample draws by its number.
_DRAWS = {"random", "randint", "randrange", "rand", "randn", "randperm", "uniform", "standard_normal", "gauss", "shuffle", "permutation", "integers",
          "choice", "choices", "getrandbits"}
_BEGINS = {"seed", "manual_seed", "default_rng", "RandomState", "Random"}


def how(source):
    """"told": the source tells its state; "untold": it draws random numbers and does not; "": it draws none, as far as its code shows."""
    source = _owner(source)
    return "told" if _functions_of(source) else "untold" if _draws(source) else ""


def ask(source):
    """The state as text. Raises TypeError for one of other values than numbers, texts, bytes, arrays, and lists, tuples and dicts of these."""
    get = _functions_of(_owner(source))[0]
    try:
        return json.dumps(_written(get()))
    except _Unknown as unknown:
        raise TypeError(f"{type(_owner(source)).__name__}.{get.__name__}() returns a {unknown.args[0]}: a state that is kept has numbers, texts, bytes, "
                        "arrays, and lists, tuples and dicts of these") from None


def give(source, text):
    """The state that ask() has returned, in this process or another one. Raises ValueError for a text that is none."""
    try:
        state = _read(json.loads(text))
    except (ImportError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"the state that a checkpoint or another rank has for the data set's source {type(_owner(source)).__name__} cannot be read: "
                         f"{type(error).__name__}: {error}") from None
    _functions_of(_owner(source))[1](state)


def _owner(source):
    """The object whose method it is, else the source itself."""
    return source.__self__ if inspect.ismethod(source) else source


def _functions_of(source):
    for names in _FUNCTIONS:
        found = [getattr(source, name, None) for name in names]
        if all(map(callable, found)):
            return found
    return None


def _codes(source):
    """The code of the functions that give the source's samples, and of those within."""
    found = [source] if inspect.isfunction(source) else [getattr(type(source), name, None) for name in ("__getitem__", "__iter__", "__next__", "__call__")]
    codes = [function.__code__ for function in map(inspect.unwrap, filter(None, found)) if inspect.isfunction(function)]
    if inspect.isgenerator(source):
        codes.append(source.gi_code)
    while codes:
        code = codes.pop()
        yield code
        codes += [part for part in code.co_consts if inspect.iscode(part)]


def _draws(source):
    # The package's own sources draw by the number of the sample.
    module = getattr(source if inspect.isfunction(source) else type(source), "__module__", None) or ""
    if module.partition(".")[0] in ("tessera", "mindspore"):
        return False
    names = {name for code in _codes(source) for name in code.co_names}
    return bool(names & _DRAWS) and not names & _BEGINS


class _Unknown(Exception):
    pass


def _written(value):
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic) and not isinstance(value.item(), np.generic):  # a long double is its own
        return _written(value.item())
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [_written(one) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [_written(one) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[_written(key), _written(one)] for key, one in value.items()]}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return {"array": [value.dtype.str, list(value.shape), base64.b64encode(value.tobytes()).decode()]}
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "numpy"):
        return {"torch": _written(value.numpy())}
    raise _Unknown(type(value).__name__)


def _read(value):
    if isinstance(value, list):
        return [_read(one) for one in value]
    if not isinstance(value, dict):
        return value
    (kind, content), = value.items()
    if kind == "bytes":
        return base64.b64decode(content)
    if kind == "tuple":
        return tuple(_read(content))
    if kind == "dict":
        return {_read(key): _read(one) for key, one in content}
    if kind == "array":
        dtype, shape, data = content
        return np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()
    if kind != "torch":
        raise ValueError(f"a {kind} is none of its values")
    return importlib.import_module("torch").from_numpy(_read(content))
