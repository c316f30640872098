"""Layout: the devices as a grid with named axes, and which of the axes split which dim of a tensor."""
import math

import tessera

from mindspore import context

# Where a strategy counts; elsewhere the network sees what is its rank's own.
SPLITTING = (context.ParallelMode.SEMI_AUTO_PARALLEL, context.ParallelMode.AUTO_PARALLEL)


class _Count(int):
    """Into how many parts a dim is split, and along which axes of the grid, outer first."""

    def __new__(cls, count, axes):
        made = super().__new__(cls, count)
        made.axes = axes
        return made


class Layout:
    """The devices as a row-major grid, device_matrix, with a name for each axis, the last one varying fastest. Called with a name for each dim of a
    tensor, "None" where it is whole, or a tuple of names, outer first, it is a strategy for that tensor."""

    def __init__(self, device_matrix, alias_name, rank_list=None):
        for name, value in (("device_matrix", device_matrix), ("alias_name", alias_name)):
            if not isinstance(value, tuple):
                raise TypeError(f"For 'Layout', the '{name}' must be a tuple, but got {type(value).__name__}.")
        if len(device_matrix) != len(alias_name):
            raise ValueError(f"For 'Layout', the device_matrix {device_matrix} and the alias_name {alias_name} must be of equal length.")
        for size in device_matrix:
            if isinstance(size, bool) or not isinstance(size, int):
                raise TypeError(f"For 'Layout', the elements of 'device_matrix' must be ints, but got {type(size).__name__}.")
            if size < 1:
                raise ValueError(f"For 'Layout', the elements of 'device_matrix' must be at least 1, but got {size}.")
        for name in alias_name:
            if not isinstance(name, str):
                raise TypeError(f"For 'Layout', the elements of 'alias_name' must be strs, but got {type(name).__name__}.")
            if name in ("", "None"):
                raise ValueError(f"For 'Layout', an axis cannot be called {name!r}: 'None' says that a dim is whole.")
        if len(set(alias_name)) != len(alias_name):
            raise ValueError(f"For 'Layout', the names in alias_name {alias_name} must differ.")
        if "interleaved_parallel" in alias_name:
            raise NotImplementedError("For 'Layout', the axis 'interleaved_parallel' is not available: an operator is one kernel on its rank, and "
                                      "collectives run beside others anyway; leave the axis out")
        self._device_matrix, self._alias_name, self._dims = device_matrix, alias_name, None
        self._check_rank_list(rank_list)

    def _check_rank_list(self, rank_list):
        count = math.prod(self._device_matrix)
        if rank_list is None:
            return
        if not isinstance(rank_list, list):
            raise TypeError(f"For 'Layout', the 'rank_list' must be a list, but got {type(rank_list).__name__}.")
        if any(isinstance(rank, bool) or not isinstance(rank, int) for rank in rank_list):
            raise TypeError(f"For 'Layout', the elements of 'rank_list' must be ints, but got {rank_list}.")
        if len(rank_list) != count:
            raise ValueError(f"For 'Layout', the rank_list must have {count} ranks, the product of {self._device_matrix}, but got {len(rank_list)}.")
        first = rank_list[0] if rank_list else 0
        if rank_list != list(range(first, first + count)):
            raise NotImplementedError(f"For 'Layout', the rank_list {rank_list} is not available: ranks lie in their order; name the axes of "
                                      "device_matrix in the order in which they vary, the last one fastest")

    def __call__(self, *tensor_map):
        used = []

        def axis_of(name):
            if name not in self._alias_name:
                raise ValueError(f"For 'Layout', there is no axis {name!r}; the axes are {self._alias_name}.")
            if name in used:
                raise ValueError(f"For 'Layout', the axis {name!r} cannot split twice; it is there more than once in {tensor_map}.")
            used.append(name)
            return self._alias_name.index(name)

        made = Layout(self._device_matrix, self._alias_name)
        made._dims = tuple(tuple(axis_of(name) for name in (item if isinstance(item, tuple) else (item, )) if name != "None") for item in tensor_map)
        made._tensor_map = tuple(self._mapped(item) for item in tensor_map)
        return made

    def _mapped(self, item):
        """As the reference counts axes: from the last one, -1 for none."""
        if isinstance(item, tuple):
            return tuple(self._mapped(name) for name in item)
        return -1 if item == "None" else len(self._alias_name) - 1 - self._alias_name.index(item)

    def to_dict(self):
        """What it says. ValueError where it was not called with the names for a tensor's dims."""
        self.counts("Layout.to_dict")
        return {"device_matrix": self._device_matrix, "tensor_map": self._tensor_map, "interleaved_parallel": False,
                "alias_name": self._alias_name, "rank_list": list(range(self.num_devices()))}

    def counts(self, who):
        """Into how many parts each dim is split, which knows the axes."""
        if self._dims is None:
            raise ValueError(f"For '{who}', the layout {self!r} says nothing of a tensor: call it with a name for each dim, layout(\"{self._alias_name[0]}\", "
                             "\"None\").")
        splitting = [tuple(axis for axis in axes if self._device_matrix[axis] > 1) for axes in self._dims]
        return tuple(_Count(math.prod(self._device_matrix[axis] for axis in axes), axes) for axes in splitting)

    def check_leads(self, who, what, layouts):
        """NotImplementedError unless in each of the layouts, this one among them, the axes that split dims are the outermost ones in the order of the
        dims, as counts alone have them; ValueError where they are of several grids."""
        for layout in layouts:
            layout.counts(who)
            splitting = [axis for axis, size in enumerate(layout._device_matrix) if size > 1]
            used = [axis for axes in layout._dims for axis in axes if axis in splitting]
            if used != splitting[:len(used)]:
                raise NotImplementedError(f"For '{who}', the {what} {layout!r} is not available: its axes must be the outermost ones of "
                                          f"{layout._alias_name}, in the order of the dims; \"full_batch\" gives the network the same rows")
        check_one_grid(who, layouts)

    def grid(self):
        """The sizes of the axes."""
        return self._device_matrix

    def num_devices(self):
        """Of the grid."""
        return math.prod(self._device_matrix)

    def __eq__(self, other):
        return isinstance(other, Layout) and vars(self) == vars(other)

    def __hash__(self):
        return hash((self._device_matrix, self._alias_name, self._dims))

    def __repr__(self):
        text = f"Layout({self._device_matrix}, {self._alias_name})"
        if self._dims is None:
            return text
        names = [tuple(self._alias_name[axis] for axis in axes) for axes in self._dims]
        return text + "(" + ", ".join(repr(item[0] if len(item) == 1 else item or "None") for item in names) + ")"


def num_devices():
    """Ranks that a strategy may use; None where that is not known yet."""
    if context.get_auto_parallel_context("device_num") > 1:
        return context.get_auto_parallel_context("device_num") // context.get_auto_parallel_context("pipeline_stages")
    return tessera.cluster.size() if tessera.cluster.is_initialized() else None


def is_one_rank():
    """Whether the job is one rank, for which the script counts no devices either: strategies then have no effect."""
    return tessera.cluster.is_initialized() and tessera.cluster.size() == 1 and not context.was_set("device_num")


def say_one_rank(name):
    """Says once that a strategy, of `name`, has no effect on one rank."""
    context.warn_once(f"strategies (shard, set_strategy) have no effect on one rank, '{name}' has one: start several by tessera run -n N", "strategies on one rank")


def is_tuple_of_counts(item):
    """Whether it is a tuple of ints."""
    return isinstance(item, tuple) and all(isinstance(n, int) and not isinstance(n, bool) for n in item)


def check_strategy(name, strategy, what="in_strategy", nones=False):
    """TypeError unless it is a tuple of tuples of ints, or of layouts, which say something of a tensor and are all of one grid, else ValueError.
    nones: an element may be None, too."""
    if not isinstance(strategy, tuple):
        raise TypeError(f"For '{name}', the {what} must be a tuple, but got type: {type(strategy).__name__}.")
    items = [item for item in strategy if not (nones and item is None)]
    layouts = [item for item in items if isinstance(item, Layout)]
    if not layouts and all(map(is_tuple_of_counts, items)):
        return
    if len(layouts) != len(items):
        raise TypeError(f"For '{name}', the {what} must be a tuple of tuples of ints, or a tuple of Layouts, but got {strategy}.")
    for layout in layouts:
        layout.counts(name)
    check_one_grid(name, layouts)


def check_one_grid(name, layouts):
    """ValueError where layouts of one operator or cell are of several grids."""
    for layout in layouts[1:]:
        if layout.to_dict() | {"tensor_map": ()} != layouts[0].to_dict() | {"tensor_map": ()}:
            raise ValueError(f"For '{name}', the layouts must have one device_matrix and alias_name, but got {layouts[0]!r} and {layout!r}.")


def layouts_in(*strategies):
    """The layouts in strategies, which may be None."""
    return [item for strategy in strategies for item in strategy or () if isinstance(item, Layout)]


def check_devices(name, layouts):
    """RuntimeError where a layout is of other devices than there are, as far as they are known."""
    devices = num_devices()
    for layout in layouts:
        if devices is not None and layout.num_devices() != devices:
            raise RuntimeError(f"For '{name}', the {layout!r} is of {layout.num_devices()} devices, but there are {devices}.")


def counts_of(name, item):
    """The counts of an element of a strategy."""
    return item.counts(name) if isinstance(item, Layout) else item


def axes_of(counts):
    """For each dim the axes of the grid that split it."""
    return [list(count.axes) if isinstance(count, _Count) else [] for count in counts]


def check_dims(name, counts, shape, what):
    """RuntimeError unless it has one count per dim of the shape, from 1 to the dim's size."""
    if len(counts) != len(shape):
        raise RuntimeError(f"For '{name}', the {what} {tuple(map(int, counts))} has {len(counts)} values, but the shape {shape} has {len(shape)} dims.")
    if any(count < 1 for count in counts):
        raise RuntimeError(f"For '{name}', the values of the {what} {tuple(map(int, counts))} must be at least 1.")
    if any(count > size for count, size in zip(counts, shape)):
        raise RuntimeError(f"For '{name}', the {what} {tuple(map(int, counts))} splits a dim of the shape {shape} into more parts than it has elements.")


def check_counts(name, counts, shape, what):
    """RuntimeError unless the counts fit the shape and the ranks share the parts equally, as far as they are known and split anything."""
    check_dims(name, counts, shape, what)
    parts, devices = math.prod(counts), num_devices()
    if is_one_rank() or context.parallel_mode_of_trace() not in SPLITTING:
        return
    if devices is not None and (parts > devices or devices % parts):
        raise RuntimeError(f"For '{name}', the {what} {tuple(map(int, counts))} makes {parts} parts, which {devices} devices cannot share equally.")


def lay_out(name, x, item, what):
    """The tensor inside construct(), split as a tuple of counts or a layout says."""
    counts = counts_of(name, item)
    check_counts(name, counts, tuple(x.shape), what)
    if num_devices() in (1, None):
        return x
    if isinstance(item, Layout):
        return tessera.ops.lay_out(x, [int(count) for count in counts], list(item.grid()), axes_of(counts))
    return tessera.ops.lay_out(x, list(counts))
