"""Puts into sys.modules the places that _places.py names: modules that have nothing of their own."""
import importlib
import importlib.machinery
import sys
import types

from mindspore._missing import is_named, missing
from mindspore._places import ALSO_OF_OPS, HOMES, whole


def _public_names(module):
    return [name for name, item in vars(module).items() if not name.startswith("_") and not isinstance(item, types.ModuleType)]


class _Place(types.ModuleType):
    """A module that has nothing of its own."""

    @property
    def __all__(self):
        """What `import *` gives: the public names of the modules whose names it has, unless it was given others."""
        given = self.__dict__.get("_given")
        return given or sorted({name for home in whole(self.__name__) for name in _public_names(importlib.import_module(home))})

    @__all__.setter
    def __all__(self, names):
        self.__dict__["_given"] = names


def _appoint(path, homes):
    """Makes the place, or adds to the module that is there. Where its parent has a function of that name, scripts mean the function."""
    parent, _, own = path.rpartition(".")
    if path not in sys.modules:
        try:
            importlib.import_module(path)
        except ModuleNotFoundError:
            sys.modules[path] = _Place(path, "Names of " + (" and ".join(homes) or "what is refused") + ".")
            sys.modules[path].__spec__ = importlib.machinery.ModuleSpec(path, None)
            # Without a folder, so that an import of what is not there is answered by this package.
            vars(sys.modules[parent]).setdefault("__path__", [])
            if not is_named((parent, *whole(parent)), own):
                setattr(sys.modules[parent], own, sys.modules[path])
    sys.modules[path].__getattr__ = missing(path, *(home for home in homes if home != path))


def appoint_all(refused):
    """From here on scripts find every place. refused: paths of those that have nothing."""
    for path in sorted({*HOMES, *refused}):
        _appoint(path, HOMES.get(path, ()))
    for path in ALSO_OF_OPS.split():
        for module in ("mindspore.ops", "mindspore.ops.functional"):
            setattr(sys.modules[module], path.rpartition(".")[2], sys.modules[path])
