"""Functions that are compiled as a whole."""
import functools
import weakref

import tessera
from tessera._branches import traced

from mindspore import _modes
from mindspore._function_cell import FunctionCell
from mindspore._missing import missing


class _Function(FunctionCell):
    """A function as a cell; `owner`: the cell whose method it is."""

    def __init__(self, function, owner=None):
        super().__init__()
        if owner is not None:
            self.owner = owner
        self._function = traced(function)

    def __call__(self, *inputs, **kwargs):
        if not tessera.nn.is_tracing():
            # The cells that the function calls are not parts of this one.
            self.set_flags(**{_modes.FLAG: _modes.told()})
        return super().__call__(*inputs, **kwargs)

    def construct(self, *inputs):
        return self._function(*self._with_owner(inputs))

    def _with_owner(self, inputs):
        """The inputs, behind the owner where there is one."""
        return (self.owner, *inputs) if "owner" in self.__dict__ else inputs


def ms_function(fn=None, input_signature=None, hash_args=None, jit_config=None):
    """Decorates a function of tensors, or a method of a cell: called with tensors it is traced and compiled, once for each signature."""
    if fn is None:
        return functools.partial(ms_function, input_signature=input_signature)
    cells = weakref.WeakKeyDictionary()
    alone = _Function(fn)

    @functools.wraps(fn)
    def run(*inputs):
        if tessera.nn.is_tracing():
            return traced(fn)(*inputs)
        if inputs and isinstance(inputs[0], tessera.nn.Cell):
            owner = inputs[0]
            if owner not in cells:
                cells[owner] = _Function(lambda cell, *rest: fn(cell, *rest), owner)
            return cells[owner](*inputs[1:])
        return alone(*inputs)

    return run


jit = ms_function

__getattr__ = missing(__name__)
del missing
