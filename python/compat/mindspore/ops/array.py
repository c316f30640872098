"""Functions of shapes, places and order, made of tessera's operators. What gives a shape that depends on values works on tensors only:
in a traced construct() it says so."""
import math as _math

import numpy as _np
import tessera as _tessera
from tessera import ops as _ops

from mindspore import _check
from mindspore.ops.arithmetic import _is_tensor, _reversed_order
from mindspore.ops.native import _named

_range, _slice = range, slice


def _dtype_of(x, dtype):
    return x.dtype if dtype is None else dtype


def _sizes(size):
    sizes = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    return tuple(int(n) for n in sizes)


def _at_least_two_dims(who, x):
    if x.ndim < 2:
        raise ValueError(f"For '{who}', the input must have at least 2 dims, but got {list(x.shape)}.")


# --- new tensors
def full(size, fill_value, *, dtype=None):
    """The number in that shape: int64 for an int, else float32."""
    if dtype is None:
        dtype = _tessera.bool_ if isinstance(fill_value, bool) else _tessera.int64 if isinstance(fill_value, int) else _tessera.float32
    return _ops.fill((size, ) if isinstance(size, int) else size, fill_value, dtype)


def full_like(input, fill_value, *, dtype=None):
    """The number in x's shape."""
    return _ops.fill(input.shape, fill_value, _dtype_of(input, dtype))


def fills(x, value):
    """The number in x's shape and dtype."""
    return full_like(x, float(value))


def arange(start=0, end=None, step=1, *, dtype=None):
    """start, start + step, ... before end."""
    start, end = (0, start) if end is None else (start, end)
    numbers = [x.item() if isinstance(x, _tessera.Tensor) else x for x in (start, end, step)]
    if dtype is None:
        dtype = _tessera.int64 if [n for n in numbers if isinstance(n, float)] == [] else _tessera.float32
    return _ops.range(*[float(n) for n in numbers], dtype)


def range(start, end, step, maxlen=1000000):
    """start, start + step, ... before end, at most maxlen numbers."""
    if isinstance(maxlen, bool) or not isinstance(maxlen, int):
        raise TypeError(f"For 'Range', the 'maxlen' must be int, but got {type(maxlen).__name__}.")
    if maxlen < 1:
        raise ValueError(f"For 'Range', the 'maxlen' must be positive, but got {maxlen}.")
    first, last, by = [float(x.item() if isinstance(x, _tessera.Tensor) else x) for x in (start, end, step)]
    count = (last - first) / by if by and all(map(_math.isfinite, (first, last, by))) else 0
    # Far too many are not made first.
    made = arange(start, end, step) if count <= maxlen + 1 else None
    count = _math.ceil(count) if made is None else made.size
    if count > maxlen:
        raise ValueError(f"For 'Range', [{start}, {end}) by {step} has {count} numbers, 'maxlen' allows {maxlen}.")
    return made


def linspace(start, end, steps):
    """`steps` numbers at equal distances from start to end."""
    places = _ops.range(0.0, float(steps), 1.0, _tessera.float32)
    return places * ((end - start) / (steps - 1 if steps > 1 else 1)) + start


def logspace(start, end, steps, base=10, *, dtype=_tessera.float32):
    """Powers of the base, whose exponents are at equal distances."""
    return _ops.cast(_ops.exp(linspace(start, end, steps) * _math.log(base)), dtype)


def eye(n, m=None, dtype=None):
    """[n, m] with ones on the diagonal."""
    return _ops.one_hot(_ops.range(0.0, float(n), 1.0, _tessera.int32), n if m is None else m, *[
        _ops.fill((), value, _tessera.float32 if dtype is None else dtype) for value in (1.0, 0.0)])


def meshgrid(*inputs, indexing="xy"):
    """The coordinates of a grid; indexing: "xy" (the first two dims are swapped) or "ij"."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"For 'meshgrid', the 'indexing' must be 'xy' or 'ij', but got {indexing}.")
    items = list(inputs[0]) if len(inputs) == 1 and isinstance(inputs[0], (tuple, list)) else list(inputs)
    is_swapped = indexing == "xy" and len(items) > 1
    places = list(_range(len(items)))
    if is_swapped:
        places[:2] = 1, 0
    shape = [0] * len(items)
    for item, place in zip(items, places):
        shape[place] = item.size
    return tuple(_ops.broadcast_to(_ops.reshape(item, [-1 if i == place else 1 for i in _range(len(items))]), shape) for item, place in zip(items, places))


# --- shapes
def cat(tensors, axis=0):
    """Tensors one after the other along an axis."""
    return _ops.concat(tensors if _is_tensor(tensors) else list(tensors), axis)


def unsqueeze(input, dim):
    """A new dim of size 1."""
    return _ops.expand_dims(input, dim)


def permute(input, axis):
    """The dims in another order."""
    return _ops.transpose(input, axis)


def swapaxes(input, axis0, axis1):
    """Two dims exchanged."""
    order = list(_range(input.ndim))
    axis0, axis1 = _check.axis("swapaxes", "axis0", axis0, input.ndim), _check.axis("swapaxes", "axis1", axis1, input.ndim)
    order[axis0], order[axis1] = order[axis1], order[axis0]
    return _ops.transpose(input, order)


swapdims = _named(swapaxes, dim0="axis0", dim1="axis1")


def t(input):
    """The transpose of at most two dims."""
    return _ops.transpose(input) if input.ndim == 2 else input


def adjoint(x):
    """The last two dims exchanged."""
    _at_least_two_dims("adjoint", x)
    return swapaxes(x, -1, -2)


def moveaxis(x, source, destination):
    """Dims moved to other places; the others keep their order."""
    source, destination = ([i] if isinstance(i, int) else list(i) for i in (source, destination))
    source = [_check.axis("moveaxis", "source", i, x.ndim) for i in source]
    destination = [_check.axis("moveaxis", "destination", i, x.ndim) for i in destination]
    order = [i for i in _range(x.ndim) if i not in source]
    for place, dim in sorted(zip(destination, source)):
        order.insert(place, dim)
    return _ops.transpose(x, order)


movedim = moveaxis


def ravel(input):
    """All elements in one dim."""
    return _ops.reshape(input, (-1, ))


def flatten(input, order="C", *, start_dim=1, end_dim=-1):
    """The dims from start_dim to end_dim as one."""
    if order not in ("C", "F"):
        raise ValueError(f"For 'flatten', the 'order' must be in ['C', 'F'], but got {order}.")
    if order == "F":
        input = _ops.transpose(input)
        if (start_dim, end_dim) != (1, -1):
            raise NotImplementedError("For 'flatten', order F with start_dim or end_dim is not available: transpose first")
    if input.ndim < 2:
        return _ops.reshape(input, (-1, ))
    first, last = _check.axis("flatten", "start_dim", start_dim, input.ndim), _check.axis("flatten", "end_dim", end_dim, input.ndim)
    return _ops.reshape(input, (*input.shape[:first], _math.prod(input.shape[first:last + 1]), *input.shape[last + 1:]))


def expand(input_x, size):
    """x repeated along dims of size 1 until it has that shape."""
    return _ops.broadcast_to(input_x, size)


def expand_as(input, other):
    """x repeated until it has the other's shape."""
    return _ops.broadcast_to(input, other.shape)


def view_as(input, other):
    """x in the other's shape."""
    return _ops.reshape(input, other.shape)


def type_as(input, other):
    """x in the other's dtype."""
    return _ops.cast(input, other.dtype)


def _at_least(count):
    def of(inputs):
        if isinstance(inputs, (tuple, list)):
            return type(inputs)(of(item) for item in inputs)
        if inputs.ndim >= count:
            return inputs
        if count == 3 and inputs.ndim == 2:
            return _ops.expand_dims(inputs, 2)
        # A vector is a row.
        before = 1 if count == 3 and inputs.ndim == 1 else count - inputs.ndim
        return _ops.reshape(inputs, (*(1, ) * before, *inputs.shape, *(1, ) * (count - before - inputs.ndim)))

    of.__name__ = of.__qualname__ = f"atleast_{count}d"
    of.__doc__ = f"A tensor, or several, with new dims of size 1 up to {count}."
    return of


atleast_1d, atleast_2d, atleast_3d = _at_least(1), _at_least(2), _at_least(3)


def vstack(inputs):
    """Tensors one under the other."""
    return _ops.concat([atleast_2d(item) for item in inputs], 0)


row_stack = _named(vstack, tensors="inputs")


def hstack(tensors):
    """Tensors side by side."""
    items = [atleast_1d(item) for item in tensors]
    return _ops.concat(items, 0 if items[0].ndim == 1 else 1)


def dstack(tensors):
    """Tensors behind each other, along the third dim."""
    return _ops.concat([atleast_3d(item) for item in tensors], 2)


def column_stack(tensors):
    """Vectors as columns, and matrices, side by side."""
    return _ops.concat([_ops.reshape(item, (-1, 1)) if item.ndim < 2 else item for item in tensors], 1)


def split(tensor, split_size_or_sections, axis=0):
    """Pieces along an axis: of that size (the last may be smaller), or of those sizes."""
    size = tensor.shape[_check.axis("split", "axis", axis, tensor.ndim)]
    if isinstance(split_size_or_sections, int):
        part = split_size_or_sections
        sizes = [part] * (size // part) + ([size % part] if size % part else [])
    else:
        sizes = list(split_size_or_sections)
    return tuple(_ops.split_sizes(tensor, sizes, axis))


def chunk(input, chunks, axis=0):
    """At most so many pieces along an axis, of one size but the last."""
    return split(input, -(-input.shape[_check.axis("chunk", "axis", axis, input.ndim)] // chunks), axis)


def tensor_split(input, indices_or_sections, axis=0):
    """So many pieces along an axis, larger ones first; or pieces that begin at these places."""
    size = input.shape[_check.axis("tensor_split", "axis", axis, input.ndim)]
    if isinstance(indices_or_sections, int):
        low, more = divmod(size, indices_or_sections)
        sizes = [low + 1] * more + [low] * (indices_or_sections - more)
    else:
        places = [0, *[i if i < size else size for i in indices_or_sections], size]
        sizes = [end - begin if end > begin else 0 for begin, end in zip(places, places[1:])]
    return tuple(_ops.split_sizes(input, sizes, axis))


def vsplit(input, indices_or_sections):
    """tensor_split() along the first dim."""
    return tensor_split(input, indices_or_sections, 0)


def hsplit(input, indices_or_sections):
    """tensor_split() along the second dim, of a vector the first."""
    return tensor_split(input, indices_or_sections, 1 if input.ndim > 1 else 0)


def dsplit(input, indices_or_sections):
    """tensor_split() along the third dim."""
    return tensor_split(input, indices_or_sections, 2)


def unstack(input_x, axis=0):
    """The slices along an axis, which is no longer there."""
    axis = _check.axis("unstack", "axis", axis, input_x.ndim)
    return tuple(_ops.squeeze(piece, axis) for piece in _ops.split(input_x, input_x.shape[axis], axis))


def unbind(input, dim=0):
    """The slices along a dim, which is no longer there."""
    return unstack(input, dim)


def narrow(input, axis, start, length):
    """`length` elements along an axis, from start on."""
    return input[(*(_slice(None), ) * _check.axis("narrow", "axis", axis, input.ndim), _slice(start, start + length))]


def slice(input_x, begin, size):
    """size elements in each dim from begin on; -1: all that follow."""
    ends = [input_x.shape[i] if n == -1 else b + n for i, (b, n) in enumerate(zip(begin, size))]
    return _ops.slice(input_x, begin, ends)


def _slice_masks(**masks):
    """Those of P.StridedSlice by name, checked. TypeError or ValueError for one that is none."""
    checked = {name: _check.integer("StridedSlice", name, mask, 0) for name, mask in masks.items()}
    ellipsis = checked["ellipsis_mask"]
    if ellipsis & (ellipsis - 1):
        raise ValueError(f"For 'StridedSlice', only one bit of the 'ellipsis_mask' may be set, but got {ellipsis}.")
    return checked


def _masked_slice(x, begin, end, strides, masks):
    """x[begin:end:strides] in every dim, with the bits of the masks for each entry."""
    def entry(i, first, last, stride):
        bit = {name: mask >> i & 1 for name, mask in masks.items()}
        if bit["ellipsis_mask"] or bit["new_axis_mask"]:
            return ... if bit["ellipsis_mask"] else None
        return first if bit["shrink_axis_mask"] else _slice(None if bit["begin_mask"] else first, None if bit["end_mask"] else last, stride)

    return x[tuple(entry(i, *place) for i, place in enumerate(zip(begin, end, strides, strict=True)))]


def strided_slice(input_x, begin, end, strides, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0):
    """What P.StridedSlice does with these masks."""
    return _masked_slice(input_x, begin, end, strides, _slice_masks(begin_mask=begin_mask, end_mask=end_mask, ellipsis_mask=ellipsis_mask,
                                                                    new_axis_mask=new_axis_mask, shrink_axis_mask=shrink_axis_mask))


def repeat_elements(x, rep, axis=0):
    """Every slice along an axis so many times."""
    axis = _check.axis("repeat_elements", "axis", axis, x.ndim)
    wide = _ops.expand_dims(x, axis + 1)
    repeated = _ops.broadcast_to(wide, (*x.shape[:axis + 1], rep, *x.shape[axis + 1:]))
    return _ops.reshape(repeated, (*x.shape[:axis], x.shape[axis] * rep, *x.shape[axis + 1:]))


def repeat_interleave(input, repeats, axis=None):
    """Every slice along an axis, or every element, so many times: one number, or one for each."""
    if axis is None:
        input, axis = ravel(input), 0
    axis = _check.axis("repeat_interleave", "axis", axis, input.ndim)
    if isinstance(repeats, int):
        return repeat_elements(input, repeats, axis)
    counts = repeats.asnumpy().tolist() if isinstance(repeats, _tessera.Tensor) else list(repeats)
    if len(counts) == 1:
        return repeat_elements(input, counts[0], axis)
    if len(counts) != input.shape[axis]:
        raise ValueError(f"For 'repeat_interleave', the 'repeats' must be one number, or {input.shape[axis]}, as many as dim {axis} has, but got "
                         f"{len(counts)}.")
    return _ops.gather(input, _tessera.Tensor(_np.repeat(_np.arange(len(counts)), counts), _tessera.int32), axis)


def flip(input, dims):
    """The elements backwards along dims."""
    for dim in (dims, ) if isinstance(dims, int) else dims:
        dim = _check.axis("flip", "dims", dim, input.ndim)
        input = _ops.gather(input, _ops.range(float(input.shape[dim] - 1), -1.0, -1.0, _tessera.int32), dim)
    return input


def reverse(x, axis):
    """The elements backwards along axes."""
    return flip(x, axis)


def flipud(input):
    """flip() along the first dim."""
    return flip(input, 0)


def fliplr(input):
    """flip() along the second dim."""
    return flip(input, 1)


def rot90(input, k, dims):
    """Turned k times by a right angle, in the plane of two dims, from the first to the second."""
    for _ in _range(k % 4):
        input = flip(swapaxes(input, *dims), dims[0])
    return input


def roll(input, shifts, dims=None):
    """The elements moved on along dims; what leaves at the end comes in in front. Without dims: of the flattened tensor."""
    if dims is None:
        return _ops.reshape(roll(ravel(input), shifts if isinstance(shifts, int) else shifts[0], 0), input.shape)
    shifts, dims = ((i, ) if isinstance(i, int) else tuple(i) for i in (shifts, dims))
    if len(shifts) != len(dims):
        raise ValueError(f"For 'roll', the 'shifts' and 'dims' must be as many, but got {shifts} and {dims}.")
    for shift, dim in zip(shifts, dims):
        size = input.shape[_check.axis("roll", "dims", dim, input.ndim)]
        if size and shift % size:
            input = _ops.concat(_ops.split_sizes(input, [size - shift % size, shift % size], dim)[::-1], dim)
    return input


def diag(input):
    """Of a vector the matrix with that diagonal; of a tensor [...] the tensor [..., ...] with its elements at equal places of both."""
    return _ops.reshape(diagflat(input), (*input.shape, *input.shape))


def diagflat(input, offset=0):
    """The matrix with these elements on a diagonal, `offset` right of the main one."""
    values = ravel(input)
    size = values.size + abs(offset)
    before, after = (-offset if offset < 0 else 0), (offset if offset > 0 else 0)
    rows = _ops.pad(values, [before], [after])
    mask = _ops.equal(_columns(size, size) - _rows(size, size), offset)
    return _ops.select(mask, _ops.broadcast_to(_ops.expand_dims(rows, 1), (size, size)), _ops.zeros_like(_ops.broadcast_to(_ops.expand_dims(rows, 1), (size, size))))


def diagonal(input, offset=0, dim1=0, dim2=1):
    """The elements whose place in dim2 is `offset` more than that in dim1, as the last dim."""
    dim1, dim2 = _check.axis("diagonal", "dim1", dim1, input.ndim), _check.axis("diagonal", "dim2", dim2, input.ndim)
    x = _ops.transpose(input, [i for i in _range(input.ndim) if i not in (dim1, dim2)] + [dim1, dim2])
    rows, columns = x.shape[-2:]
    first_row, first_column = (-offset if offset < 0 else 0), (offset if offset > 0 else 0)
    length = (rows - first_row if rows - first_row < columns - first_column else columns - first_column)
    if length < 1:
        raise ValueError(f"For 'diagonal', the 'offset' {offset} is outside of a matrix {(rows, columns)}.")
    places = (_np.arange(length) + first_row) * columns + _np.arange(length) + first_column
    return _ops.gather(_ops.reshape(x, (*x.shape[:-2], rows * columns)), _tessera.Tensor(places, _tessera.int32), x.ndim - 2)


def trace(input):
    """The sum of the diagonal of a matrix."""
    return _ops.reduce_sum(diagonal(input))


def _rows(n, m):
    return _ops.broadcast_to(_ops.expand_dims(_ops.range(0.0, float(n), 1.0, _tessera.int32), 1), (n, m))


def _columns(n, m):
    return _ops.broadcast_to(_ops.expand_dims(_ops.range(0.0, float(m), 1.0, _tessera.int32), 0), (n, m))


def _masked(input, mask):
    return _ops.select(_ops.broadcast_to(mask, input.shape), input, _ops.zeros_like(input))


def tril(input, diagonal=0):
    """The last two dims with zeros right of a diagonal."""
    _at_least_two_dims("tril", input)
    n, m = input.shape[-2:]
    return _masked(input, _ops.less_equal(_columns(n, m) - _rows(n, m), diagonal))


def triu(input, diagonal=0):
    """The last two dims with zeros left of a diagonal."""
    _at_least_two_dims("triu", input)
    n, m = input.shape[-2:]
    return _masked(input, _ops.greater_equal(_columns(n, m) - _rows(n, m), diagonal))


def tril_indices(row, col, offset=0, *, dtype=_tessera.int64):
    """The places of a lower triangle: (rows, columns), [2, n]."""
    return _tessera.Tensor(_np.stack(_np.tril_indices(row, offset, col)), dtype)


def triu_indices(row, col, offset=0, *, dtype=_tessera.int64):
    """The places of an upper triangle: (rows, columns), [2, n]."""
    return _tessera.Tensor(_np.stack(_np.triu_indices(row, offset, col)), dtype)


def vander(x, N=None):
    """The powers of a vector as columns, falling."""
    count = x.size if N is None else N
    return _ops.concat([_ops.expand_dims(_ops.ones_like(x) if i == 0 else _power(x, i), 1) for i in _range(count - 1, -1, -1)], 1)


def _power(x, n):
    made = x
    for _ in _range(n - 1):
        made = made * x
    return made


# --- choosing
def where(condition, input, other):
    """x where the condition holds, else the other."""
    if condition.dtype != _tessera.bool_:
        condition = _ops.not_equal(condition, 0)
    return _ops.select(condition, input, other)


def masked_fill(input_x, mask, value):
    """x with the value where the mask holds."""
    value = value if isinstance(value, (int, float)) else _ops.cast(value, input_x.dtype)
    shape = _np.broadcast_shapes(tuple(input_x.shape), tuple(mask.shape))
    return _ops.select(_ops.broadcast_to(mask, shape), _ops.ones_like(input_x) * value, input_x)


def _positive_places(index, size):
    return _ops.select(_ops.less(index, 0), index + size, index)


def _checked_places(places, size, all_places):
    """Places in a dim of that size; what lies outside becomes a place that no tensor of all_places elements has, which stops the step,
    instead of another row's."""
    inside = _ops.logical_and(_ops.greater_equal(places, 0), _ops.less(places, size))
    return _ops.select(inside, places, all_places)


def index_select(input, axis, index):
    """The slices along an axis at these places."""
    return _ops.gather(input, index, _check.axis("index_select", "axis", axis, input.ndim))


def take(input, index=None, axis=None, mode="clip", indices=None):
    """The slices along an axis, or the elements, at these places, which are `index` or `indices`; mode: "clip" to the ends, or "wrap" around."""
    if (index is None) == (indices is None):
        raise TypeError("For 'take', the places must be given once, as 'index' or as 'indices'.")
    indices = index if indices is None else indices
    if axis is None:
        input, axis = ravel(input), 0
    axis = _check.axis("take", "axis", axis, input.ndim)
    size = input.shape[axis]
    if mode == "wrap":
        indices = indices % size
    elif mode == "clip":
        indices = indices.clip(0, size - 1)
    else:
        raise NotImplementedError(f"For 'take', mode={mode!r} is not available: use 'clip' or 'wrap'")
    return _ops.gather(input, indices, axis)


def _linear_places(shape, dim, index):
    """Where x[..., index[i], ...] stands among all elements of a tensor of that shape."""
    strides = [_math.prod(shape[i + 1:]) for i in _range(len(shape))]
    places = _checked_places(_positive_places(_ops.cast(index, _tessera.int64), shape[dim]), shape[dim], _math.prod(shape)) * strides[dim]
    for i, size in enumerate(index.shape):
        if i != dim:
            along = _ops.reshape(_ops.range(0.0, float(size), 1.0, _tessera.int64), [size if k == i else 1 for k in _range(len(shape))])
            places = places + along * strides[i]
    return places


def gather_elements(input, dim, index):
    """The element at the index along a dim, for each place of the index."""
    return _ops.gather(ravel(input), _linear_places(tuple(input.shape), _check.axis("gather_elements", "dim", dim, input.ndim), index), 0)


def gather_d(x, dim, index):
    """The element at the index along a dim, for each place of the index."""
    return gather_elements(x, dim, index)


def _nd_places(shape, indices):
    depth = indices.shape[-1]
    strides = [_math.prod(shape[i + 1:depth]) for i in _range(depth)]
    weights = _tessera.Tensor(_np.array(strides), _tessera.int64)
    sizes = _tessera.Tensor(_np.array(shape[:depth]), _tessera.int64)
    places = _checked_places(_ops.cast(indices, _tessera.int64), sizes, _math.prod(shape[:depth]))
    return _ops.reduce_sum(places * weights, -1)


def gather_nd(input_x, indices):
    """The slices at places that the last dim of the indices tells."""
    depth = indices.shape[-1]
    rows = _ops.reshape(input_x, (-1, *input_x.shape[depth:]))
    return _ops.gather(rows, _nd_places(tuple(input_x.shape), indices), 0)


def tensor_scatter_add(input_x, indices, updates):
    """x with updates added at the places that the last dim of the indices tells."""
    depth = indices.shape[-1]
    rows = _ops.reshape(input_x, (-1, *input_x.shape[depth:]))
    places = ravel(_nd_places(tuple(input_x.shape), indices))
    changes = _ops.reshape(updates, (-1, *input_x.shape[depth:]))
    return _ops.reshape(_ops.scatter_add(rows, places, changes, 0), input_x.shape)


def tensor_scatter_sub(input_x, indices, updates):
    """x less the updates at these places."""
    return tensor_scatter_add(input_x, indices, -updates)


def scatter_nd(indices, updates, shape):
    """Zeros with the updates added at these places."""
    return tensor_scatter_add(_ops.fill(shape, 0, updates.dtype), indices, updates)


def index_add(x, indices, y, axis, use_lock=True, check_index_bound=True):
    """x with y's slices added at these places along an axis. use_lock and check_index_bound have no effect: indices are looked at always."""
    return _ops.scatter_add(x, indices, y, _check.axis("index_add", "axis", axis, x.ndim))


def unsorted_segment_sum(input_x, segment_ids, num_segments):
    """The sum of the slices of each segment."""
    count = segment_ids.ndim
    shape = tuple(input_x.shape[count:])
    return _ops.scatter_add(_ops.fill((num_segments, *shape), 0, input_x.dtype), ravel(segment_ids), _ops.reshape(input_x, (-1, *shape)), 0)


def tensor_scatter_elements(input_x, indices, updates, axis=0, reduction="none"):
    """x with updates at the index along an axis, for each place of the index; reduction "add": added. With "none" each place may be
    told once."""
    axis = _check.axis("tensor_scatter_elements", "axis", axis, input_x.ndim)
    places = ravel(_linear_places(tuple(input_x.shape), axis, indices))
    flat = ravel(input_x)
    if reduction == "none":
        hits = _ops.scatter_add(_ops.zeros_like(flat), places, _ops.ones_like(ravel(updates)), 0)
        flat = _ops.select(_ops.greater(hits, 0), _ops.zeros_like(flat), flat)
    elif reduction != "add":
        raise NotImplementedError(f"For 'tensor_scatter_elements', reduction={reduction!r} is not available: use 'none' or 'add'")
    return _ops.reshape(_ops.scatter_add(flat, places, ravel(updates), 0), input_x.shape)


def scatter(input, axis, index, src):
    """x with src at the index along an axis, for each place of the index; each place may be told once."""
    return tensor_scatter_elements(input, index, src, axis)


def tensor_scatter_update(input_x, indices, updates):
    """x with updates at the places that the last dim of the indices tells; each place may be told once."""
    depth = indices.shape[-1]
    rows = _ops.reshape(input_x, (-1, *input_x.shape[depth:]))
    places = ravel(_nd_places(tuple(input_x.shape), indices))
    changes = _ops.reshape(updates, (-1, *input_x.shape[depth:]))
    hits = _ops.scatter_add(_ops.zeros_like(rows), places, _ops.ones_like(changes), 0)
    kept = _ops.select(_ops.greater(hits, 0), _ops.zeros_like(rows), rows)
    return _ops.reshape(_ops.scatter_add(kept, places, changes, 0), input_x.shape)


def sequence_mask(lengths, maxlen=None):
    """[..., maxlen]: true at places before the length."""
    if maxlen is None:
        maxlen = int(_values("sequence_mask", lengths, "give maxlen").max())
    return _ops.less(_ops.range(0.0, float(maxlen), 1.0, lengths.dtype), _ops.expand_dims(lengths, -1))


# --- order
def topk(input, k, dim=None, largest=True, sorted=True):
    """(values, places) of the k largest, or smallest, along a dim, the last by default; in order, also where sorted is False."""
    dim = _check.axis("topk", "dim", -1 if dim is None else dim, input.ndim)
    x = swapaxes(input, dim, -1)
    values, places = _ops.top_k(x if largest else _reversed_order(x), k)
    return swapaxes(values if largest else _reversed_order(values), dim, -1), swapaxes(places, dim, -1)


def top_k(input_x, k, sorted=True):
    """(values, places) of the k largest along the last dim; in order, also where sorted is False."""
    return tuple(_ops.top_k(input_x, k))


def sort(input_x, axis=-1, descending=False):
    """(values, places) in order along an axis."""
    return topk(input_x, input_x.shape[_check.axis("sort", "axis", axis, input_x.ndim)], axis, descending)


def argsort(input, axis=-1, descending=False):
    """The places of the values in order along an axis."""
    return sort(input, axis, descending)[1]


def msort(input):
    """The values in order along the first dim."""
    return sort(input, 0)[0]


def median(input, axis=-1, keepdims=False):
    """(the middle value, its place) along an axis; of an even number the lower of the two."""
    values, places = sort(input, axis)
    middle = (input.shape[axis] - 1) // 2
    found = [narrow(item, axis, middle, 1) for item in (values, _ops.cast(places, _tessera.int64))]
    return tuple(found if keepdims else [_ops.squeeze(item, axis) for item in found])


# --- what is known of tensors
def is_tensor(obj):
    """Whether it is a tensor."""
    return isinstance(obj, (_tessera.Tensor, _tessera.Value, _tessera.Parameter))


def numel(input):
    """The number of elements."""
    return input.size


def is_nonzero(input):
    """Whether the one element is not 0."""
    return bool(_values("is_nonzero", input, "compare it and use ops.select").reshape(()) != 0)


def deepcopy(input_x):
    """A copy."""
    return input_x + _ops.zeros_like(input_x) if input_x.dtype != _tessera.bool_ else _ops.logical_not(_ops.logical_not(input_x))


# --- on tensors only: shapes that depend on values
def _values(name, x, instead):
    if isinstance(x, _tessera.Parameter):
        x = x.value()
    if not isinstance(x, _tessera.Tensor):
        raise NotImplementedError(f"For '{name}', a value of construct() is not available: the result's shape would depend on it; {instead}")
    return x.asnumpy()


def nonzero(input, *, as_tuple=False):
    """The places of what is not 0, [n, ndim], or a tuple of one vector for each dim."""
    places = _np.nonzero(_values("nonzero", input, "use ops.where or a mask"))
    if as_tuple:
        return tuple(_tessera.Tensor(place, _tessera.int64) for place in places)
    return _tessera.Tensor(_np.stack(places, -1), _tessera.int64)


def argwhere(input):
    """The places of what is not 0, [n, ndim]."""
    return nonzero(input)


def masked_select(input, mask):
    """The elements where the mask holds."""
    x, mask = _np.broadcast_arrays(_values("masked_select", input, "multiply by the mask"), _values("masked_select", mask, "multiply by the mask"))
    return _tessera.Tensor(x[mask])


def unique(input):
    """(the values in the order in which they first come, where each element stands among them)."""
    _, first, places = _np.unique(_values("unique", input, "compute it before the network"), return_index=True, return_inverse=True)
    order = _np.argsort(first)
    ranks = _np.argsort(order)[places]
    values = _values("unique", input, "").reshape(-1)[first[order]]
    return _tessera.Tensor(values), _tessera.Tensor(ranks.reshape(input.shape), _tessera.int32 if input.dtype != _tessera.int64 else _tessera.int64)


def bincount(input, weights=None, minlength=0):
    """How often each number is there."""
    weights = None if weights is None else _values("bincount", weights, "use ops.one_hot and a sum")
    return _tessera.Tensor(_np.bincount(_values("bincount", input, "use ops.one_hot and a sum"), weights, minlength), _tessera.float32)


def searchsorted(sorted_sequence, values, *, out_int32=False, right=False, side=None, sorter=None):
    """Where values would have to stand in what is ordered along its last dim, of several vectors each in its own. right, or side="right": behind
    equal elements, else, or with side="left", in front of them. sorter: the places that bring sorted_sequence into order."""
    for name, value in (("out_int32", out_int32), ("right", right)):
        _check.boolean("searchsorted", name, value)
    if side not in (None, "left", "right"):
        raise ValueError(f"For 'searchsorted', the argument 'side' should be one of in [None, 'left', 'right'], but got {side}.")
    if side == "left" and right:
        raise ValueError("For 'searchsorted', side and right can't be set to opposites, got side of left while right was True.")
    ordered, wanted = (_values("searchsorted", x, "compare and sum") for x in (sorted_sequence, values))
    if sorter is not None:
        ordered = _np.take_along_axis(ordered, _values("searchsorted", sorter, "compare and sum"), -1)
    where = "right" if right or side == "right" else "left"
    if ordered.ndim == 1:
        places = _np.searchsorted(ordered, wanted, where)
    elif ordered.shape[:-1] != wanted.shape[:-1]:
        raise ValueError(f"For 'searchsorted', the dims of 'sorted_sequence' {ordered.shape} and 'values' {wanted.shape} must be the same but for the last.")
    else:
        rows = zip(ordered.reshape(-1, ordered.shape[-1]), wanted.reshape(-1, wanted.shape[-1]))
        places = _np.stack([_np.searchsorted(row, own, where) for row, own in rows]).reshape(wanted.shape)
    return _tessera.Tensor(places, _tessera.int32 if out_int32 else _tessera.int64)
