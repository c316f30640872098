"""A function as a cell, so that it can be traced: all that it calls becomes one graph."""
import weakref

import tessera

from mindspore._function_cell import FunctionCell

_programs = {}  # by the id of an owner, as long as that lives


class Traced(FunctionCell):
    """(inputs) -> function(inputs), traced at each call: the function may look at what has changed since the last one. What gives a
    graph that calls of the same owner have given before is not compiled again."""

    def __init__(self, function, owner):
        super().__init__()
        # As no attribute, by which other cells would count as changed.
        self.__dict__.update(function=function, _programs=programs_of(owner))

    def construct(self, *inputs):
        return self.function(*inputs)


def owner_of(function, weights):
    """What lives as long as calls of the function are compiled: a script may write the function itself anew for each call."""
    if weights:
        return weights[0]
    return function if isinstance(function, tessera.nn.Cell) else getattr(function, "__code__", function)


def programs_of(owner):
    """What calls of this owner were compiled into."""
    if id(owner) not in _programs:
        made = tessera.nn.TracedPrograms()
        try:
            weakref.finalize(owner, _programs.pop, id(owner), None).atexit = False
        except TypeError:  # nothing tells when it is gone
            return made
        _programs[id(owner)] = made
    return _programs[id(owner)]
