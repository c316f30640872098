"""cell_attr_register: what layers of the reference, and layers of scripts that are written like them, decorate their __init__ with."""
import functools
import inspect

from mindspore._missing import missing


def cell_attr_register(fn=None, attrs=None):
    """Decorates a cell's __init__: cell_init_args is then the class with what __init__ was given, or with the attributes `attrs` (one name or a list)."""
    if fn is None:
        return functools.partial(cell_attr_register, attrs=attrs)

    @functools.wraps(fn)
    def init(self, *args, **kwargs):
        given = list(inspect.signature(fn).bind(self, *args, **kwargs).arguments.values())[1:]
        fn(self, *args, **kwargs)
        if attrs is not None and not isinstance(attrs, (list, str)):
            raise ValueError("attrs must be list or string")
        if isinstance(attrs, list) and not all(isinstance(name, str) for name in attrs):
            raise ValueError("attr must be a string")
        if isinstance(attrs, str):
            given = getattr(self, attrs) if attrs and hasattr(self, attrs) else []
        elif attrs is not None:
            given = [getattr(self, name) for name in attrs if hasattr(self, name)]
        self.cell_init_args = type(self).__name__ + (f"dict_values({given})" if attrs is None else str(given))

    return init


__getattr__ = missing(__name__)
del missing
