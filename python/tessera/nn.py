"""What networks are made of: Cell, the layers, losses and optimizers that come with Tessera."""
from tessera._tessera.nn import *
from tessera._tessera.nn import initializers  # noqa: F401


class CellList(Cell):
    """Cells in a list, named by their position: "0", "1", ... It has no construct() of its own."""

    def __init__(self, cells=()):
        super().__init__()
        self._size = 0
        for cell in cells:
            self.append(cell)

    def append(self, cell):
        if not isinstance(cell, Cell):
            what = f"the class {cell.__name__}: it needs its arguments, {cell.__name__}(...)" if isinstance(cell, type) else repr(cell)
            hint = ": write its cells one by one, Sequential(a, b)" if isinstance(cell, (list, tuple)) else ""
            raise TypeError(f"{type(self).__name__} holds cells, got {what}{hint}")
        setattr(self, str(self._size), cell)
        # As no attribute, by which all cells would count as changed.
        self.__dict__["_size"] += 1
        return self

    def __len__(self):
        return self._size

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"cell \"{self.path()}\" has {len(self)} children, there is no number {index}")
        return getattr(self, str(index % len(self)))

    def __iter__(self):
        return (self[i] for i in range(len(self)))


class Sequential(CellList):
    """x -> the last child of ... of the first child of x."""

    def __init__(self, *cells):
        super().__init__(cells)

    def construct(self, x):
        for cell in self:
            x = cell(x)
        return x
