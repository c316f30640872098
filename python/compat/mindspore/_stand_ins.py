"""What stands for public names that are refused. A stand-in can be imported, passed on, compared, derived from, and used in isinstance() and
type hints; what makes, calls or reads it raises NotImplementedError with a word of what to use instead. An operator of mindspore.ops can be made,
too, as programs do when they are imported: what calls it raises the error."""
import types

_made = {}  # (module, name): stand-in
_bases = {}  # module: what its classes are derived from


class _ClassType(type):
    """The type of classes whose constants, and functions from_... that make one, can be named."""

    def __getattr__(cls, name):
        if name.isupper() and not name.startswith("_") or name.startswith("from_"):
            return _Name(cls.__module__, f"{cls.__name__}.{name}", cls._refusal)
        raise AttributeError(cls._refusal if not name.startswith("__") else name)


def _refuse(self, *args, **kwargs):
    raise NotImplementedError(self._refusal)


def _keep(self, *args, **kwargs):
    """The __init__ of an operator that is refused where it is called."""
    _bases["mindspore.ops"].__init__(self)
    self.init_attrs = {"args": args, **kwargs}


def _tell(self, name):
    raise AttributeError(self._refusal if not name.startswith("__") else name)


class _Name:
    """A function, dtype or other constant."""

    def __init__(self, module, name, text):
        self.__dict__.update(__module__=module, __name__=name, __qualname__=name, __doc__=text, _refusal=text)

    __call__ = __getitem__ = __iter__ = __enter__ = _refuse
    dtype = property(_refuse)  # NumPy asks what is to be a dtype for it

    def __getattr__(self, name):
        raise AttributeError(self._refusal if not name.startswith("__") else name)

    def __repr__(self):
        return f"<{self.__module__}.{self.__name__}, refused>"


def derive_from(module, base):
    """Has the stand-ins for classes of the module derive from the base, which is one of its own."""
    _bases[module] = base


def stand_in(module, name, text):
    """What stands for the name of a module, always the same; text: of the errors of its uses."""
    if (module, name) not in _made:
        _made[module, name] = _class(module, name, text) if name[0].isupper() else _Name(module, name, text)
    return _made[module, name]


def _class(module, name, text):
    body = {"__module__": module, "__doc__": text, "_refusal": text, "__new__": _refuse}
    if module not in _bases:
        return _ClassType(name, (), body)
    if module == "mindspore.ops":
        body = {"__module__": module, "__doc__": text, "_refusal": text, "__init__": _keep, "__call__": _refuse, "__getattr__": _tell}
    return types.new_class(name, (_bases[module], ), {}, lambda namespace: namespace.update(body))


def refusal(thing):
    """Why a thing is refused; "" where it is no stand-in."""
    if isinstance(thing, _Name) or isinstance(thing, type) and "_refusal" in vars(thing):
        return thing._refusal
    return ""
