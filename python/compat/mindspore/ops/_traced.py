"""A function as a cell, so that it can be traced: all that it calls becomes one graph."""
import tessera

from mindspore._function_cell import FunctionCell


class Traced(FunctionCell):
    """(inputs) -> function(inputs). part: the cell that it calls, if it is one."""

    def __init__(self, function, part=None):
        super().__init__()
        if isinstance(part, tessera.nn.Cell):
            self.part = part
        self.function = function

    def construct(self, *inputs):
        return self.function(*inputs)
