"""Functions of functions: HyperMap, Map, MultitypeFuncGraph."""
import tessera

from mindspore._missing import missing


def _kind(value):
    if isinstance(value, (tessera.Tensor, tessera.Value, tessera.Parameter)):
        return "Tensor"
    if isinstance(value, bool):
        return "Bool"
    if callable(value):
        return "Function"
    if isinstance(value, (int, float)):
        return "Number"
    if isinstance(value, str):
        return "String"
    if isinstance(value, tuple):
        return "Tuple"
    if isinstance(value, list):
        return "List"
    return "None" if value is None else type(value).__name__


class MultitypeFuncGraph:
    """A function with a form for each combination of its arguments' kinds: "Tensor", "Number", "Bool", "Function", ..."""

    def __init__(self, name, read_value=False):
        self.name = name
        self.entries = {}

    def register(self, *kinds):
        """Decorates the form for these kinds."""
        def add(function):
            self.entries[tuple(str(kind) for kind in kinds)] = function
            return function
        return add

    def __call__(self, *args):
        kinds = tuple(_kind(arg) for arg in args)
        for known, function in self.entries.items():
            if len(known) == len(kinds) and all(k == a or (k == "Number" and a == "Bool") for k, a in zip(known, kinds)):
                return function(*args)
        raise TypeError(f"The function '{self.name}' has no form for ({', '.join(kinds)}); it has "
                        f"{', '.join('(' + ', '.join(k) + ')' for k in self.entries)}.")


class Map:
    """Applies a function to the corresponding items of sequences; gives a tuple."""

    def __init__(self, ops=None, reverse=False):
        self.ops = ops

    def __call__(self, *args):
        function, sequences = (self.ops, args) if self.ops is not None else (args[0], args[1:])
        return tuple(self._apply(function, items) for items in zip(*sequences, strict=True))

    def _apply(self, function, items):
        return function(*items)


class HyperMap(Map):
    """The same, through sequences of sequences."""

    def _apply(self, function, items):
        if all(isinstance(item, (tuple, list)) for item in items):
            return tuple(self._apply(function, inner) for inner in zip(*items, strict=True))
        return function(*items)

    def __call__(self, *args):
        function, sequences = (self.ops, args) if self.ops is not None else (args[0], args[1:])
        return self._apply(function, sequences)


__getattr__ = missing(__name__)
del missing
