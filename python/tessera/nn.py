"""What networks are made of: Cell, the layers, losses and optimizers that come with Tessera."""
import collections.abc as _abc
import difflib as _difflib
import sys
import typing as _typing

from tessera._tessera.nn import *
from tessera._tessera.nn import _divide_parameters, _is_ready, initializers, schedules  # noqa: F401
from tessera import _keywords


def _tree(cell, name="", indent=0):
    """Lines: the cell with its own parameters, then each of those below."""
    def shown(path, parameter):
        kind = "" if parameter.requires_grad else ", not trained"
        return f"{path} {parameter.dtype.name}[{','.join(map(str, parameter.shape))}]{kind}"

    children = Cell.children(cell)
    below = {id(parameter) for _, child in children for parameter in Cell.parameters(child)}
    own = [shown(path, parameter) for path, parameter in Cell.named_parameters(cell) if id(parameter) not in below]
    head = "  " * indent + (f"{name}: " if name else "") + f"{type(cell).__name__}({', '.join(own)})"
    return "\n".join([head, *(_tree(child, path, indent + 1) for path, child in children)])


def _shown(self):
    """A network as print() shows it: its cells, each with its parameters."""
    return _tree(self) if _is_ready(self) else object.__repr__(self)


Cell.__repr__ = _shown


class CellList(Cell):
    """Cells in a list, named by their position: "0", "1", ... It has no construct() of its own."""

    def __init__(self, cells: _abc.Iterable[Cell] = ()) -> None:
        super().__init__()
        self._size = 0
        for cell in cells:
            self.append(cell)

    def append(self, cell: Cell) -> "CellList":
        if not isinstance(cell, Cell):
            what = f"the class {cell.__name__}: it needs its arguments, {cell.__name__}(...)" if isinstance(cell, type) else repr(cell)
            if isinstance(cell, (list, tuple)):
                what = f"[{', '.join(type(one).__name__ for one in cell)}]"
            hint = ": write its cells one by one, Sequential(a, b)" if isinstance(cell, (list, tuple)) else ""
            raise TypeError(f"{type(self).__name__} holds cells, got {what}{hint}")
        setattr(self, str(self._size), cell)
        # As no attribute, by which all cells would count as changed.
        self.__dict__["_size"] += 1
        return self

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: _typing.Any) -> _typing.Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"cell \"{self.path()}\" has {len(self)} children, there is no number {index}")
        return getattr(self, str(index % len(self)))

    def __iter__(self) -> _abc.Iterator[_typing.Any]:
        return (self[i] for i in range(len(self)))


def group_parameters(network: Cell, settings: _abc.Mapping[str, _abc.Mapping[str, _typing.Any]]) -> list[dict[str, _typing.Any]]:
    """The groups that an optimizer takes, of patterns of names (see Cell.freeze) and their settings "lr" and "weight_decay":

        nn.AdamW(1e-3, groups=nn.group_parameters(network, {"*.bias": {"weight_decay": 0}, "backbone": {"lr": 1e-4}}))

    The first pattern that matches a parameter decides; one that none matches has the optimizer's settings. A pattern that is left without
    trainable parameters raises InvalidArgument."""
    for pattern, of in settings.items():
        for word in of:
            if word not in ("lr", "weight_decay"):
                near = {"learning_rate": ["lr"]}.get(word) or _difflib.get_close_matches(word, ["lr", "learning_rate", "weight_decay"], 1, 0.6)
                near = ["lr" if name == "learning_rate" else name for name in near]
                raise KeyError(f"group_parameters(): {pattern!r} has the setting {word!r}; " +
                               (f"did you mean {near[0]!r}?" if near else "there are 'lr' and 'weight_decay'"))
    divided = _divide_parameters(network, list(settings))
    return [{"params": parameters, **of} for parameters, of in zip(divided, settings.values())]


class Sequential(CellList):
    """x -> the last child of ... of the first child of x."""

    def __init__(self, *cells: Cell) -> None:
        super().__init__(cells)

    def construct(self, x: _typing.Any) -> _typing.Any:
        for cell in self:
            x = cell(x)
        return x


if not _typing.TYPE_CHECKING:  # it takes any name, and checkers would, too
    __getattr__ = _keywords.missing_from(sys.modules[__name__], _keywords.NN_WORDS)
schedules.__getattr__ = _keywords.missing_from(schedules, _keywords.SCHEDULE_WORDS)
