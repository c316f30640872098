"""What a script gets that asks for a name which is not here: of a refused one something that refuses to be used, _stand_ins.py; of another
an error. Both say what there is instead."""
import dis
import difflib
import importlib
import pkgutil
import sys
import types

from mindspore._refused import has_remedy, home, remedy
from mindspore._stand_ins import stand_in

def _refusal(module, name):
    """Why the module's name is refused, and what to use instead; "" where nothing is known of it."""
    instead = remedy(module, name)
    return f"{module}.{name} is not part of Tessera's mindspore package; {instead}" if instead else ""


def _unknown(module, name, names):
    """Of the error for a name that is none of `names`."""
    near = difflib.get_close_matches(name, names, 1)
    return f"{module}.{name} is not part of Tessera's mindspore package; " + (f"it has {near[0]}" if near else f"its names are in help({module})")


def _held(module, name):
    """What the module has of that name: no module, and, behind an underscore, only what it defines itself; else None."""
    found = vars(importlib.import_module(module)).get(name)
    if isinstance(found, types.ModuleType) or name.startswith("_") and getattr(found, "__module__", None) != module:
        return None
    return found


def is_named(modules, name):
    """Whether one of the modules has that name, or refuses it."""
    return any(_held(module, name) is not None or has_remedy(module, name) for module in modules)


def missing(module, *others):
    """The module's __getattr__. others: modules whose names it has, too."""

    def __getattr__(name):
        if name.startswith("__"):
            raise AttributeError(name)
        for other in others:
            found = _held(other, name)
            if found is not None:
                return found
        own = home(module, name)
        refusal = _refusal(own, name)
        if refusal:
            return stand_in(own, name, refusal)
        text = _unknown(module, name, [n for n in vars(sys.modules[module]) if not n.startswith("_")])
        frame = sys._getframe(1)
        is_import = dis.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"
        raise (ImportError if is_import else AttributeError)(text)

    return __getattr__


class _MissingModules:
    """The last to be asked for a module: says of one of this package's that it is not there."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if not name.startswith("mindspore."):
            return None
        parent, _, own = name.rpartition(".")
        names = [f"{parent}.{module.name}" for module in pkgutil.iter_modules(path or ()) if not module.name.startswith("_")]
        near = difflib.get_close_matches(name, names, 1, cutoff=0.8)
        instead = remedy(parent, own) or (f"it has {near[0]}" if near else f"see help({parent})")
        raise ModuleNotFoundError(f"{name} is not part of Tessera's mindspore package; {instead}", name=name)


def explain_missing_modules():
    """From here on an import of a module that is not here says so."""
    if _MissingModules not in sys.meta_path:
        sys.meta_path.append(_MissingModules)
