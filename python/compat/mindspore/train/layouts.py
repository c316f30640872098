"""How parameters lie on the ranks, in the words of scripts."""
import tessera

_groups = set()


def product(numbers):
    """1 for none."""
    result = 1
    for number in numbers:
        result *= number
    return result


def _slice_shape(layout, rank):
    """Of the rank's slice, which optimizer shards cut further."""
    shape = list(layout.tensor_shape)
    for dim, axes in enumerate(layout.tensor_map):
        for axis in axes:
            parts = layout.device_matrix[-1 - axis]
            stride = product(layout.device_matrix[len(layout.device_matrix) - axis:])
            shape[dim] = shape[dim] // parts + (rank // stride % parts < shape[dim] % parts)
    return shape


def _shard_group(layout, rank):
    """The name of the group whose ranks share the rank's slice; "" where they do not. Every rank asks for the same layouts."""
    step, size = layout.opt_weight_shard_step, layout.opt_weight_shard_size
    if step < 1 or size <= 1:
        return ""

    def group_of(member):
        first = member - member // step % size * step
        return f"optimizer_shards-{first}-{step}-{size}", [first + i * step for i in range(size)]

    for member in range(tessera.cluster.size()):
        name, ranks = group_of(member)
        if name not in _groups:
            _groups.add(name)
            tessera.cluster.create_group(name, ranks)
    return group_of(rank)[0]


def layout_dict(layouts):
    """{parameter: (device_matrix, tensor_map, slice_shape, field, uniform_split, opt_shard_group, full_shape)}.

    device_matrix: the ranks as a grid. tensor_map: for each dim the axis that splits it, 0 the last one, -1: none; a list where
    several do. opt_shard_group: the ranks that share the slice's rows, "" where each has all of them."""
    rank = tessera.cluster.rank() if layouts else 0
    result = {}
    for layout in layouts:
        tensor_map = [axes[0] if len(axes) == 1 else axes or -1 for axes in layout.tensor_map]
        result[layout.name] = (list(layout.device_matrix), tensor_map, _slice_shape(layout, rank), layout.field, True,
                               _shard_group(layout, rank), list(layout.tensor_shape))
    return result


def whole_layouts(network):
    """The same where one rank holds everything."""
    return {parameter.name: ([1], [-1] * len(parameter.shape), list(parameter.shape), 0, True, "", list(parameter.shape))
            for parameter in tessera.nn.Cell.parameters(network)}
