"""CellList, SequentialCell, CellDict: cells in an order.

A cell that is added to one that is itself part of another cell is named as its neighbours are: what stands in front of the first cell's key in the name of
its first parameter is the prefix, and there is none where no cell in front of it has parameters. The reference names them so, and checkpoints have these
names."""
import itertools
from collections.abc import Iterable, Mapping

import tessera

from mindspore.nn.cell import Cell, named_parameters, rename


def _first_name(cell):
    """What the cell's first parameter is called; None without any."""
    return next((parameter.name for _, parameter in named_parameters(cell)), None)


class _Cells(Cell):
    """What they share: cells by key, in an order."""

    def __init__(self, auto_prefix=True):
        super().__init__(auto_prefix=auto_prefix)
        self.__dict__["_keys"] = []  # no attribute, by which all cells would count as changed

    def _cell_of(self, key):
        return getattr(self, key)

    def _check_cell(self, cell):
        if not isinstance(cell, tessera.nn.Cell):
            raise TypeError(f"For '{type(self).__name__}', each cell should be subclass of Cell, but got {type(cell).__name__}.")
        return cell

    def _prefix(self):
        """(what the names of parameters begin with in front of a cell's key, how many parts that are), as the first two cells tell that have parameters."""
        named = ((key, _first_name(self._cell_of(key))) for key in self._keys)
        told = list(itertools.islice(((key, name.split(".")) for key, name in named if name is not None), 2))
        prefix, place = "", 0
        for i, part in enumerate(told[0][1] if told else ()):
            if part == told[0][0]:
                prefix, place = "".join(f"{part}." for part in told[0][1][:i]), i
                if len(told) == 2 and told[1][1][i:i + 1] == [told[1][0]]:
                    break
        return prefix, place

    def _put(self, key, cell, prefix=None):
        """Holds a cell under a key, the last one unless it is there; prefix: in front of the key in the names of its parameters, None: they keep them."""
        self._hold(key, self._check_cell(cell))
        if key not in self._keys:
            self._keys.append(key)
        if prefix is not None:
            rename(cell, f"{prefix}{key}.")

    def _put_all(self, cells):
        """Holds these (key, cell) in place of all; what their parameters are called they go on to be called."""
        for key in self._keys:
            delattr(self, key)
        self._keys.clear()
        for key, cell in cells:
            self._put(key, cell)

    @staticmethod
    def _move(cell, prefix, place, key):
        """Names the parameters of a cell whose key is part number `place` of their names by another key."""
        for _, parameter in named_parameters(cell):
            parameter.given_name = f"{prefix}{key}." + ".".join(parameter.name.split(".")[place + 1:])

    def set_grad(self, flag=True):
        """Gradients are made where training asks for them, whatever flag says. Returns itself."""
        return self

    def __len__(self):
        return len(self._keys)

    def __bool__(self):
        return bool(self._keys)


class _InOrder(_Cells):
    """Cells by number."""

    def _place(self, index, high=0):
        """A number in [0, length + high)."""
        if not isinstance(index, int) or isinstance(index, bool):
            raise TypeError(f"For '{type(self).__name__}', the type of index must be int, but got {type(index).__name__}.")
        if not -len(self) <= index < len(self) + high:
            raise IndexError(f"For '{type(self).__name__}', the index must be in [{-len(self)}, {len(self)}{']' if high else ')'}, but got {index}.")
        return index if index >= 0 else index + len(self)

    def append(self, cell):
        """Adds a cell at the end. Returns itself."""
        prefix = self._prefix()[0] if self.auto_prefix else None
        self._put(str(len(self)), cell, prefix)
        return self

    def insert(self, index, cell):
        """Adds a cell in front of that one; those behind it have the next number."""
        place = self._place(index, high=1)
        self._check_cell(cell)
        prefix, part = self._prefix()
        cells = list(self)
        for i in range(len(cells) - 1, place - 1, -1):
            if self.auto_prefix:
                self._move(cells[i], prefix, part, i + 1)
        cells.insert(place, cell)
        self._put_all((str(i), one) for i, one in enumerate(cells))
        if self.auto_prefix:
            rename(cell, f"{prefix}{place}.")

    def __setitem__(self, index, cell):
        key = self._keys[self._place(index)]
        self._put(key, cell, self._prefix()[0] if self.auto_prefix else None)

    def __delitem__(self, index):
        keys = list(self._keys)
        del keys[index if isinstance(index, slice) else self._place(index)]
        self._put_all([(key, self._cell_of(key)) for key in keys])
        prefix, part = self._prefix()
        cells = [(key, self._cell_of(key)) for key in keys]
        for i, (key, cell) in enumerate(cells):
            if self._is_numbered(key):
                if self.auto_prefix:
                    self._move(cell, prefix, part, i)
                cells[i] = str(i), cell
        self._put_all(cells)

    def _is_numbered(self, key):
        """Whether the key is the cell's number."""
        return True

    def __getitem__(self, index):
        if isinstance(index, slice):
            keys = self._keys[index]
            return self._seen(keys) if tessera.nn.is_tracing() else self._part(keys)
        return self._cell_of(self._keys[self._place(index)])

    def __iter__(self):
        return iter([self._cell_of(key) for key in self._keys])


class CellList(_InOrder):
    """Cells in a list, named by their position."""

    def __init__(self, *args, **kwargs):
        super().__init__(auto_prefix=kwargs.get("auto_prefix", True))
        self.extend(args[0] if len(args) == 1 and isinstance(args[0], (list, tuple, CellList)) else args)

    def extend(self, cells):
        """Adds several. Returns itself."""
        if not isinstance(cells, (list, tuple, CellList)):
            raise TypeError(f"For '{type(self).__name__}', the new cells should be instance of list, but got {type(cells).__name__}.")
        prefix = self._prefix()[0] if self.auto_prefix else None
        for cell in list(cells):
            if isinstance(cell, CellDict):
                raise TypeError(f"For '{type(self).__name__}', the type of cell can not be CellDict, but got {type(cell).__name__}.")
            self._put(str(len(self)), cell, prefix)
        return self

    def __iadd__(self, cells):
        return self.extend(cells)

    def _part(self, keys):
        """These cells as a list of its own, which names them."""
        return CellList([self._cell_of(key) for key in keys])

    def _seen(self, keys):
        """These cells, whose names stay: what construct() does names nothing."""
        return [self._cell_of(key) for key in keys]


class SequentialCell(_InOrder):
    """x -> the last cell of ... of the first cell of x. args: cells, one list of them, or one dict by name."""

    def __init__(self, *args):
        super().__init__()
        self.__dict__["_named"] = set()
        cells = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple, dict)) else args
        if isinstance(cells, dict):
            self._named.update(cells)
            cells = cells.items()
        else:
            cells = [(str(i), cell) for i, cell in enumerate(cells)]
        for key, cell in cells:
            self._put(key, cell, "")

    def _is_numbered(self, key):
        return key not in self._named

    def _part(self, keys):
        return type(self)({key: self._cell_of(key) for key in keys})

    def _seen(self, keys):
        known = self.__dict__.setdefault("_parts_seen", {})
        cells = [self._cell_of(key) for key in keys]
        if tuple(keys) not in known or list(known[tuple(keys)]) != cells:
            part = type(self)()
            part.__dict__["auto_prefix"] = False
            for key, cell in zip(keys, cells):
                part._put(key, cell)
            known[tuple(keys)] = part
        return known[tuple(keys)]

    def extend(self, cells):
        """Adds several. Returns itself."""
        for cell in list(cells):
            self.append(cell)
        return self

    @property
    def cell_list(self):
        """The cells."""
        return list(self)

    def construct(self, x):
        for cell in self:
            x = cell(x)
        return x


class CellDict(_Cells):
    """Cells by name: a dict, or pairs (name, cell). No CellList, SequentialCell or CellDict is among them."""

    def __init__(self, *args, **kwargs):
        super().__init__(auto_prefix=kwargs.get("auto_prefix", True))
        if len(args) == 1:
            self.update(args[0])

    def update(self, cells):
        """Adds cells: a dict, or pairs (name, cell)."""
        if not isinstance(cells, Iterable):
            raise TypeError(f"CellDict.update() should be called with an iterable of key-value pairs, but got {type(cells).__name__}")
        if isinstance(cells, (Mapping, CellDict)):
            cells = cells.items()
        for i, pair in enumerate(cells):
            if not isinstance(pair, Iterable):
                raise TypeError(f"CellDict update sequence element #{i} should be Iterable; but got {type(pair).__name__}")
            if len(pair) != 2:
                raise ValueError(f"CellDict update sequence element #{i}, length should be 2; but has length {len(pair)}")
            self[pair[0]] = pair[1]

    def _check_key(self, key):
        who = type(self).__name__
        if not isinstance(key, str):
            raise TypeError(f"For '{who}', the type of key should be string but got {type(key).__name__}.")
        if key not in self._keys and hasattr(self, key):
            raise KeyError(f"For '{who}', the key can not be same with the attributes of Cell, but got key {key}.")
        if "." in key or not key:
            raise KeyError(f"For '{who}', key can not contain \".\" and can not be empty, but got key {key!r}")

    def __setitem__(self, name, cell):
        self._check_key(name)
        if not isinstance(cell, tessera.nn.Cell):
            raise TypeError(f"For 'CellDict', the type of cell should be Cell, but got {type(cell).__name__}.")
        if isinstance(cell, _Cells):
            raise TypeError(f"For 'CellDict', the type of cell can not be CellDict, CellList or SequentialCell, but got {type(cell).__name__}.")
        self._put(name, cell, self._prefix()[0] if self.auto_prefix else None)

    def __getitem__(self, name):
        if name not in self._keys:
            raise KeyError(f"For 'CellDict', there is no cell {name}; there are {self._keys}.")
        return self._cell_of(name)

    def __delitem__(self, name):
        self[name]  # noqa: B018: whether it is there
        self._keys.remove(name)
        delattr(self, name)

    def __contains__(self, name):
        return name in self._keys

    def __iter__(self):
        return iter(list(self._keys))

    def clear(self):
        """Removes all cells."""
        self._put_all([])

    def pop(self, key):
        """Removes a cell, and returns it."""
        cell = self[key]
        del self[key]
        return cell

    def keys(self):
        """The names."""
        return list(self._keys)

    def values(self):
        """The cells."""
        return [self._cell_of(key) for key in self._keys]

    def items(self):
        """(name, cell) of each."""
        return [(key, self._cell_of(key)) for key in self._keys]
