"""Cell, CellList, SequentialCell."""
import tessera

from mindspore.common.parameter import Parameter


class Cell(tessera.nn.Cell):
    """A piece of a network: parameters, child cells and construct(), which is traced once for each signature."""

    def __init__(self, auto_prefix=True, flags=None):
        super().__init__(auto_prefix=auto_prefix)
        if flags:
            self.add_flags(**flags)

    def construct(self, *inputs, **kwargs):
        """What the cell computes; to be overridden."""
        raise AttributeError(f"For 'Cell', the method 'construct' of {type(self).__name__} is not defined.")

    def get_parameters(self, expand=True):
        """The parameters here and below."""
        return iter(self.parameters())

    def trainable_params(self, recurse=True):
        """The parameters that training changes."""
        return [p for p in self.parameters() if p.requires_grad]

    def untrainable_params(self, recurse=True):
        """The others."""
        return [p for p in self.parameters() if not p.requires_grad]

    def parameters_and_names(self, name_prefix="", expand=True):
        """(name, parameter) of each."""
        prefix = name_prefix + "." if name_prefix else ""
        return ((prefix + p.name, p) for p in self.parameters())

    def parameters_dict(self, recurse=True):
        """Parameters by name."""
        return {p.name: p for p in self.parameters()}

    def cells(self):
        """The child cells."""
        return [cell for _, cell in self.children()]

    def name_cells(self):
        """The child cells by name."""
        return dict(self.children())

    def cells_and_names(self, cells=None, name_prefix=""):
        """(path, cell) of this cell and all below."""
        yield name_prefix, self
        for name, cell in self.children():
            path = f"{name_prefix}.{name}" if name_prefix else name
            if isinstance(cell, Cell):
                yield from cell.cells_and_names(cells, path)
            else:
                yield path, cell

    def insert_param_to_cell(self, param_name, param, check_name_contain_dot=True):
        """Makes the parameter an attribute."""
        if not param_name:
            raise KeyError("For 'insert_param_to_cell', the argument 'param_name' should not be None or empty.")
        if check_name_contain_dot and "." in param_name:
            raise KeyError("For 'insert_param_to_cell', the argument 'param_name' should not contain '.'.")
        if not isinstance(param, Parameter):
            raise TypeError(f"For 'insert_param_to_cell', the argument 'param' must be 'Parameter', but got {type(param).__name__}.")
        setattr(self, param_name, param)

    def insert_child_to_cell(self, child_name, child_cell):
        """Makes the cell an attribute."""
        if not child_name or "." in child_name:
            raise KeyError("For 'insert_child_to_cell', the argument 'child_name' must be a name without '.'.")
        if not isinstance(child_cell, tessera.nn.Cell):
            raise TypeError(f"For 'insert_child_to_cell', the argument 'child_cell' must be 'Cell', but got {type(child_cell).__name__}.")
        setattr(self, child_name, child_cell)

    def add_flags(self, **flags):
        """Sets attributes that construct() looks at. Returns itself."""
        for name, value in flags.items():
            setattr(self, name, value)
        return self

    def add_flags_recursive(self, **flags):
        """The same here and below."""
        for _, cell in self.cells_and_names():
            if isinstance(cell, Cell):
                cell.add_flags(**flags)
        return self

    def set_comm_fusion(self, fusion_type, recurse=True):
        """The fusion id of the trainable parameters; gradients of equal ids travel together."""
        if isinstance(fusion_type, bool) or not isinstance(fusion_type, int) or fusion_type < 0:
            raise ValueError(f"The argument 'fusion_type' must be an int >= 0, but got {fusion_type}.")
        for parameter in self.trainable_params(recurse):
            parameter.comm_fusion = fusion_type
        return self

    def recompute(self, **kwargs):
        """Refused until this package offers recomputation."""
        raise RuntimeError("Cell.recompute is not available in this package yet")

    def to_float(self, dst_type):
        """Refused until this package offers mixed precision."""
        raise RuntimeError("Cell.to_float is not available in this package yet")

    def set_grad(self, requires_grad=True):
        """Gradients are made where training asks for them. Returns itself."""
        return self

    def set_param_ps(self, recurse=True, init_in_server=False):
        """Refused until there is a parameter server."""
        raise RuntimeError("Cell.set_param_ps waits for the parameter server, which Tessera does not have yet")

    def update_parameters_name(self, prefix="", recurse=True):
        """Refused: names follow from attributes."""
        raise RuntimeError("Cell.update_parameters_name is not available: a parameter's name is the path of the attributes that lead to it")

    def set_auto_parallel(self):
        """How a network is split is the context's business."""

    def set_broadcast_flag(self, mode=True):
        """Whether values are broadcast is the context's business. Returns itself."""
        return self

    def init_parameters_data(self, auto_parallel_mode=False):
        """Parameters are initialized where they are used."""


class CellList(Cell):
    """Cells in a list, named by their position."""

    def __init__(self, *args, **kwargs):
        super().__init__(auto_prefix=kwargs.get("auto_prefix", True))
        self._count = 0
        self.extend(args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args)

    def append(self, cell):
        """Adds a cell at the end."""
        if not isinstance(cell, tessera.nn.Cell):
            raise TypeError(f"For 'CellList', each cell should be subclass of Cell, but got {type(cell).__name__}.")
        setattr(self, str(self._count), cell)
        self._count += 1
        return self

    def extend(self, cells):
        """Adds several."""
        for cell in cells:
            self.append(cell)
        return self

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(*index.indices(len(self)))])
        if not isinstance(index, int) or isinstance(index, bool):
            raise TypeError(f"For '{type(self).__name__}', the type of index must be int, but got {type(index).__name__}.")
        if not -len(self) <= index < len(self):
            raise IndexError(f"For '{type(self).__name__}', the index must be in [{-len(self)}, {len(self)}), but got {index}.")
        return getattr(self, str(index % len(self)))

    def __iter__(self):
        return (self[i] for i in range(len(self)))


class SequentialCell(CellList):
    """x -> the last cell of ... of the first cell of x."""

    def __init__(self, *args):
        if len(args) == 1 and isinstance(args[0], dict):
            super().__init__()
            for name, cell in args[0].items():
                setattr(self, name, cell)
            self._names = list(args[0])
            return
        super().__init__(*args)

    def construct(self, x):
        for cell in self:
            x = cell(x)
        return x

    def __iter__(self):
        names = getattr(self, "_names", None)
        return (getattr(self, name) for name in names) if names else super().__iter__()
