"""x[key] and x[key] = value where the key has lists, arrays, tensors or truths, by NumPy's rules.

Slices, numbers, ... and None alone are the operators slice, squeeze and expand_dims. Here are the others: arrays of places become one
gather(), and what is set becomes one gather() of the old elements and the new ones, or a scatter_add() where the places are values.
"""
import builtins
import math
import operator
import sys
import weakref

import numpy as np
from tessera import _tessera

_ops = _tessera.ops
_TENSORS = (_tessera.Tensor, _tessera.Value, _tessera.nn.Parameter)
_UNKNOWN = "the shape of the result would depend on it; use ops.select with the mask, or multiply by it"


def get(x, key):
    """x[key]."""
    entries = _entries(x, key)
    if not any(_is_array(entry) for entry in entries):
        return _basic(x, entries)
    part = _Part(x, entries)
    rows = part.rows(_basic(x, part.slices))
    return _ops.gather(rows, part.places, part.axis)


def with_items(x, key, value):
    """x with x[key] = value; value: a tensor or number that broadcasts to x[key]. What is set twice has the last value."""
    if _is_mask_value(key):
        return _with_masked(x, key, value)
    entries = _entries(x, key)
    if any(isinstance(entry, _tessera.Value) for entry in entries):
        return _with_rows(x, entries, value)
    return _with_places(x, entries, value)


def _set_in_place(tensor, key, value):
    """tensor[key] = value; what the tensor is a part of, tensor = whole[...], changes with it, and so do the whole's other parts."""
    if isinstance(value, _tessera.Value) or _has_value(key):
        raise TypeError("a tensor that is there before construct() runs cannot take what construct() computes: copy it into a variable of "
                        "construct(), x = tensor + 0, and set x[...]")
    whole, places = getattr(tensor, "_part_of", (tensor, ()))
    array = np.array(whole.numpy())
    part, entries = _at(array, places), tuple(_entries(tensor, key))
    part[entries] = _as(_taken(value, tensor), part[entries].shape).numpy()
    for changed, at in [(whole, ()), *getattr(whole, "_parts", {}).values()]:
        changed = changed() if isinstance(changed, weakref.ref) else changed
        if changed is not None:
            changed.set_data(_tessera.Tensor(np.ascontiguousarray(_at(array, at)), changed.dtype))


def _at(array, places):
    """A view of the array: array[places[0]][places[1]]..."""
    for place in places:
        array = array[(*place, ...)]
    return array


def _part(native):
    """native: a class's x[key]. What it gives of a tensor remembers the tensor, unless the key has arrays."""
    def getitem(self, key):
        part = native(self, key)
        if _tessera.nn.is_tracing() or not isinstance(part, _tessera.Tensor) or part is self:
            return part
        entries = _entries(self, key)
        if not any(_is_array(entry) for entry in entries):
            whole, places = getattr(self, "_part_of", (self, ()))
            part._part_of = whole, (*places, entries)
            parts = whole.__dict__.setdefault("_parts", {})
            parts[id(part)] = weakref.ref(part, lambda _, name=id(part): parts.pop(name, None)), part._part_of[1]
        return part

    return getitem


def _set_parameter(parameter, key, value):
    """parameter[key] = value: inside construct() in every step."""
    if _tessera.nn.is_tracing():
        parameter.assign(with_items(parameter, key, value))
    else:
        _set_in_place(parameter, key, value)


def _refuse(value, key, item):
    """Values are not variables."""
    frame = sys._getframe(1)
    raise TypeError(f"{frame.f_code.co_filename}:{frame.f_lineno}: the items of what construct() computes can be set where the tensor is a "
                    "variable, in construct() and in the functions that it calls, as far as they have a source in Python; here use "
                    "ops.select or ops.concat")


def _is_array(entry):
    return isinstance(entry, (np.ndarray, _tessera.Value))


def _has_value(key):
    return any(isinstance(entry, _tessera.Value) for entry in (key if isinstance(key, (tuple, list)) else (key, )))


def _is_mask_value(key):
    return isinstance(key, _tessera.Value) and key.dtype == _tessera.bool_


def _number(bound):
    """A slice's bound."""
    if isinstance(bound, _tessera.Value):
        raise TypeError("the bounds of a slice cannot be computed in construct(): the shape of the result would depend on them; use a number")
    if bound is None or isinstance(bound, _TENSORS):
        return None if bound is None else int(bound)
    try:
        return operator.index(bound)
    except TypeError:
        raise TypeError(f"a slice's bound is a whole number, got {bound!r}") from None


def _entry(key):
    """The key, or of what holds several places an integer or bool array, or value."""
    if key is None or key is Ellipsis or isinstance(key, (bool, np.bool_)):
        return bool(key) if isinstance(key, np.bool_) else key
    if isinstance(key, slice):
        return slice(_number(key.start), _number(key.stop), _number(key.step))
    if isinstance(key, _tessera.nn.Parameter):
        key = key + 0 if _tessera.nn.is_tracing() else key.value()
    if isinstance(key, (list, tuple, range)):
        items = list(key)
        if any(item is None or item is Ellipsis or isinstance(item, (list, tuple, slice)) for item in items):
            raise IndexError("a list of lists, slices or None is not available as an index: write a tuple where each stands for a dim, x[a, b], "
                             "or make the list a tensor")
        if any(isinstance(item, _tessera.Value) for item in items):
            key = _ops.stack([_ops.cast(item, _tessera.int64) if isinstance(item, _tessera.Value) else _tessera.Tensor(item, _tessera.int64)
                              for item in items])
        else:
            key = np.array([item.numpy() if isinstance(item, _tessera.Tensor) else item for item in items])
            key = key.astype(np.int64) if key.size == 0 else key
    if isinstance(key, _tessera.Value):
        if key.dtype == _tessera.bool_:
            raise TypeError(f"a mask that construct() computes cannot be an index: {_UNKNOWN}")
        if key.dtype not in _INTEGERS:
            raise IndexError(f"an index must be integer or bool, got a value of {key.dtype}")
        return key
    if isinstance(key, (_tessera.Tensor, np.ndarray)):
        array = np.asarray(key.numpy() if isinstance(key, _tessera.Tensor) else key)
        if array.dtype.kind not in "iub":
            raise IndexError(f"an index must be integer or bool, got an array of {array.dtype}")
        return array
    if hasattr(key, "__index__"):
        return key.__index__()
    raise IndexError(f"an index is a number, a slice, ..., None, True, or a list, array or tensor of integers or truths, got {type(key).__name__}")


_INTEGERS = (_tessera.int8, _tessera.int16, _tessera.int32, _tessera.int64, _tessera.uint8, _tessera.uint16, _tessera.uint32, _tessera.uint64)


def _entries(x, key):
    """The key as an entry for each dim of x, and None for each new one; masks as the places where they hold."""
    keys = list(key) if isinstance(key, tuple) else [key]
    made, dim = [], 0
    entries = [_entry(k) for k in keys]
    counts = [0 if e is None or e is Ellipsis or isinstance(e, bool) else e.ndim if isinstance(e, np.ndarray) and e.dtype == bool else 1
              for e in entries]
    if sum(counts) > x.ndim:
        raise IndexError(f"{sum(counts)} indices for a tensor of shape {tuple(x.shape)}")
    if sum(e is Ellipsis for e in entries) > 1:
        raise IndexError("an index has one ... at most")
    for entry, count in zip(entries, counts):
        if isinstance(entry, bool):
            if len(entries) > 1 or not entry:
                raise IndexError("True is an index of its own, which adds a dim; False, or truths beside other indices, are not available")
            entry = None
        if entry is Ellipsis:
            made += [slice(None)] * (x.ndim - sum(counts))
            dim += x.ndim - sum(counts)
            continue
        if isinstance(entry, np.ndarray):
            size = tuple(x.shape[dim:dim + count])
            if entry.dtype == bool:
                if entry.shape != size:
                    raise IndexError(f"a mask of shape {entry.shape} stands for dims of shape {size} of a tensor of shape {tuple(x.shape)}")
                made += list(np.nonzero(entry)) if count else [entry]
            else:
                made.append(_inside(entry, x, dim))
        elif isinstance(entry, int):
            made.append(int(_inside(np.array(entry), x, dim)))
        else:
            made.append(entry)
        dim += count
    if any(isinstance(e, np.ndarray) and e.dtype == bool for e in made):
        raise IndexError("a mask without dims is not available as an index: use ops.select")
    return made + [slice(None)] * (x.ndim - dim)


def _inside(places, x, dim):
    """Places from 0 on."""
    size = x.shape[dim]
    outside = places[(places < -size) | (places >= size)]
    if outside.size:
        raise IndexError(f"{outside.flat[0]} is outside dim {dim} of a tensor of shape {tuple(x.shape)}")
    return np.where(places < 0, places.astype(np.int64) + size, places.astype(np.int64))


def _basic(x, entries):
    return x if all(isinstance(e, slice) and e == slice(None) for e in entries) else x.__getitem__(tuple(entries))


def _constant(places):
    return _tessera.Tensor(places, _tessera.int64 if places.size and places.max() > 2**31 - 1 else _tessera.int32)


class _Part:
    """What x[key] takes: `slices` first; then of `rows`, in which the dims with arrays of places are one dim, `axis`, the rows at `places`."""

    def __init__(self, x, entries):
        # Beside arrays a number is one, as in NumPy.
        chosen = [i for i, entry in enumerate(entries) if _is_array(entry) or isinstance(entry, int)]
        self.slices = [slice(None) if i in chosen else entry for i, entry in enumerate(entries)]
        sizes = [x.shape[d] for d in _dims(entries, chosen)]
        together = chosen == list(builtins.range(chosen[0], chosen[-1] + 1))
        self.axis = chosen[0] if together else 0
        self._chosen, self._together = chosen, together
        self.places = _joined([entries[i] for i in chosen], sizes)

    def rows(self, taken):
        """Of x[slices]."""
        self._shape = tuple(taken.shape)
        count = len(self._chosen)
        if not self._together:
            rest = [d for d in builtins.range(taken.ndim) if d not in self._chosen]
            self._order = self._chosen + rest
            taken = _ops.transpose(taken, self._order)
        self._split = tuple(taken.shape)
        if count == 1:
            return taken
        size = math.prod(self._split[self.axis:self.axis + count])
        return _ops.reshape(taken, (*self._split[:self.axis], size, *self._split[self.axis + count:]))

    def back(self, rows):
        """x[slices] of rows()."""
        taken = _ops.reshape(rows, self._split)
        return taken if self._together else _ops.transpose(taken, [int(d) for d in np.argsort(self._order)])


def _dims(entries, chosen):
    """The dims of x that these entries are for."""
    return [i - sum(entry is None for entry in entries[:i]) for i in chosen]


def _joined(entries, sizes):
    """The places in dims of these sizes as places in all of them, as one dim."""
    shapes = [tuple(entry.shape) if _is_array(entry) else () for entry in entries]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise IndexError(f"indices of shapes {', '.join(map(str, shapes))} do not broadcast") from None
    joined, fixed = None, np.zeros((), np.int64)
    for i, (entry, size) in enumerate(zip(entries, sizes)):
        stride = math.prod(sizes[i + 1:])
        if isinstance(entry, _tessera.Value):
            entry = _ops.cast(entry, _tessera.int64)
            entry = _ops.select(_ops.less(entry, 0), entry + size, entry)
            # What is outside must not fall on another row: gather() gives 0 for it, and scatter_add() leaves it out.
            entry = _ops.select(_ops.logical_and(_ops.greater_equal(entry, 0), _ops.less(entry, size)), entry * stride, -math.prod(sizes))
            joined = entry if joined is None else joined + entry
        else:
            fixed = fixed + np.asarray(entry, np.int64) * stride
    if joined is None:
        return _constant(np.broadcast_to(fixed, shape))
    joined = joined + _constant(fixed) if fixed.any() else joined
    return _ops.broadcast_to(joined, shape)


# --- setting
def _taken(value, x):
    """The value as a tensor of x's dtype."""
    if isinstance(value, (list, tuple, int, float, np.generic, np.ndarray)):
        if isinstance(value, (list, tuple)):
            items = [item if isinstance(item, _TENSORS) else _tessera.Tensor(item) for item in value]
            return _ops.cast(_ops.stack(items), x.dtype)
        value = _tessera.Tensor(np.asarray(value))
    if not isinstance(value, _TENSORS):
        raise TypeError(f"an item is set to a tensor or a number, got {type(value).__name__}")
    return _ops.cast(value, x.dtype)


def _as(value, shape):
    """The value in the shape of what it is set to: dims of size 1 in front of it may go."""
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = _ops.squeeze(value, 0)
    try:
        fits = np.broadcast_shapes(tuple(value.shape), shape) == tuple(shape)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"items of shape {tuple(shape)} cannot be set to a value of shape {tuple(value.shape)}")
    return value


def _with_masked(x, mask, value):
    if tuple(mask.shape) != tuple(x.shape[:mask.ndim]):
        raise IndexError(f"a mask of shape {tuple(mask.shape)} stands for dims of shape {tuple(x.shape[:mask.ndim])} of a tensor of shape "
                         f"{tuple(x.shape)}")
    value = _taken(value, x)
    if value.ndim > x.ndim - mask.ndim:
        one = value.ndim == x.ndim - mask.ndim + 1 and value.shape[0] == 1
        if not one:
            raise TypeError(f"x[mask] = value with a mask that construct() computes takes one value for all places: {_UNKNOWN}")
        value = _ops.squeeze(value, 0)
    mask = _ops.reshape(mask, (*mask.shape, *(1, ) * (x.ndim - mask.ndim)))
    shape = tuple(x.shape)
    return _ops.select(_ops.broadcast_to(mask, shape), _ops.broadcast_to(_as(value, shape[len(shape) - value.ndim:]), shape), x)


def _with_places(x, entries, value):
    """Where each element comes from is known: from x, or from the value."""
    # The dims in front of which all is set stay apart, so that a batch may stay split.
    chosen = [i for i, entry in enumerate(entries) if _is_array(entry) or isinstance(entry, int)]
    together = not chosen or not any(_is_array(entries[i]) for i in chosen) or chosen == list(builtins.range(chosen[0], chosen[-1] + 1))
    lead = 0
    while together and lead < len(entries) - 1 and isinstance(entries[lead], slice) and entries[lead] == slice(None):
        lead += 1
    front, rest = tuple(x.shape[:lead]), tuple(x.shape[lead:])
    size = math.prod(rest)
    places = np.arange(size).reshape(rest)[tuple(entries[lead:])]
    value = _as(_taken(value, x), (*front, *places.shape))
    if places.size == 0:
        return x
    # The dims of the value that stand for the places may be fewer, or of size 1.
    own = tuple(value.shape[-places.ndim:]) if places.ndim else ()
    value = _ops.broadcast_to(_ops.reshape(value, (*value.shape[:value.ndim - len(own)], math.prod(own))), (*front, math.prod(own)))
    source = np.arange(size)
    source[places.reshape(-1)] = size + np.broadcast_to(np.arange(math.prod(own)).reshape(own), places.shape).reshape(-1)
    both = _ops.concat([_ops.reshape(x, (*front, size)), value], lead)
    return _ops.reshape(_ops.gather(both, _constant(source), lead), x.shape)


def _with_rows(x, entries, value):
    """The places are values."""
    part = _Part(x, entries)
    taken = _basic(x, part.slices)
    rows = part.rows(taken)
    if rows.dtype == _tessera.bool_:
        return _ops.cast(_with_rows(_ops.cast(x, _tessera.int32), entries, _ops.cast(_taken(value, x), _tessera.int32)), _tessera.bool_)
    places, axis = part.places, part.axis
    shape = (*rows.shape[:axis], *places.shape, *rows.shape[axis + 1:])
    value = _ops.broadcast_to(_as(_taken(value, x), shape), shape)
    flat = _ops.reshape(places, (-1, ))
    count, after = flat.size, (1, ) * (rows.ndim - axis - 1)
    # A place that is set again later is not set now.
    later = np.triu(np.ones((count, count), bool), 1)
    again = _ops.reduce_any(_ops.logical_and(_ops.equal(_ops.reshape(flat, (-1, 1)), _ops.reshape(flat, (1, -1))), _tessera.Tensor(later)), 1)
    again = _ops.broadcast_to(_ops.reshape(again, (*places.shape, *after)), shape)
    hits = _ops.scatter_add(_ops.fill((rows.shape[axis], ), 0, _tessera.float32), flat, _ops.fill((count, ), 1, _tessera.float32), 0)
    hits = _ops.broadcast_to(_ops.reshape(_ops.greater(hits, 0), (-1, *after)), rows.shape)
    kept = _ops.select(hits, _ops.zeros_like(rows), rows)
    made = part.back(_ops.scatter_add(kept, places, _ops.select(again, _ops.zeros_like(value), value), axis))
    return made if made.shape == x.shape and _basic(x, part.slices) is x else _with_places(x, part.slices, made)


def _whole_number(self):
    """The one element as Python's int: for range(), slices, and places in lists."""
    if self.dtype not in (*_INTEGERS, _tessera.bool_) or self.size != 1:
        raise TypeError(f"only a tensor of one integer counts as a whole number, this one is {self.dtype.name}{list(self.shape)}")
    return int(self)


def _rows(self):
    """The rows, one after the other. TypeError where there are none: Python, which would ask for x[0], x[1], ... until an IndexError, sees an empty sequence."""
    if self.ndim == 0:
        raise TypeError("iteration over a 0-d tensor, which has no rows: it is one element, as item() gives it")
    return (self[i] for i in range(self.shape[0]))


for _class in (_tessera.Tensor, _tessera.nn.Parameter, _tessera.Value):
    _class.__iter__ = _rows
for _class in (_tessera.Tensor, _tessera.nn.Parameter):
    _class.__getitem__ = _part(_class.__getitem__)
_tessera.Tensor.__setitem__ = _set_in_place
_tessera.Tensor.__index__ = _whole_number
_tessera.nn.Parameter.__setitem__ = _set_parameter
_tessera.Value.__setitem__ = _refuse
