"""Transforms of any column, made of NumPy's functions."""
import enum

import numpy as np
import tessera


class _Transform:
    """Called with an array."""

    def __repr__(self):
        return type(self).__name__


class Compose(_Transform):
    """Transforms one after the other."""

    def __init__(self, transforms):
        if not isinstance(transforms, list) or not transforms:
            raise TypeError("For 'Compose', the 'transforms' must be a list that is not empty.")
        self.transforms = transforms

    @property
    def natives(self):
        """What map() runs, one after the other: random ones draw for each sample anew there."""
        made = []
        for transform in self.transforms:
            made += transform.natives if hasattr(transform, "natives") else [getattr(transform, "native", transform)]
        return made

    def __call__(self, x):
        for transform in self.transforms:
            x = transform(x)
            x = x.numpy() if hasattr(x, "asnumpy") else x
        return x


class OneHot(_Transform):
    """A class number, or several, as [..., num_classes] of 1 and 0 in its dtype; smoothing_rate: that part is spread over all classes, in float64."""

    def __init__(self, num_classes, smoothing_rate=0.0):
        if isinstance(num_classes, bool) or not isinstance(num_classes, int) or num_classes < 1:
            raise TypeError(f"Argument num_classes with value {num_classes} is not of type [<class 'int'>].")
        self.num_classes, self.smoothing_rate = num_classes, smoothing_rate

    def __call__(self, x):
        x = np.asarray(x)
        if x.dtype.kind not in "iu":
            raise RuntimeError(f"OneHot: the class must be an integer, but its dtype is {x.dtype}; TypeCast(mindspore.int32) makes it one")
        if x.size and not 0 <= x.min() <= x.max() < self.num_classes:
            raise RuntimeError(f"OneHot: the class {x.max()} is not below num_classes {self.num_classes}")
        made = np.eye(self.num_classes, dtype=x.dtype)[x.astype(np.int64)]
        if self.smoothing_rate == 0:
            return made
        return (made * (1 - self.smoothing_rate) + self.smoothing_rate / self.num_classes).astype(np.float64)


class Fill(_Transform):
    """Every element is the value."""

    def __init__(self, fill_value):
        self.fill_value = fill_value

    def __call__(self, x):
        x = np.asarray(x)
        if (x.dtype.kind in "US") != isinstance(self.fill_value, (str, bytes)):
            raise RuntimeError(f"Fill: {self.fill_value!r} does not fill what is {x.dtype}")
        return np.full(x.shape, self.fill_value) if x.dtype.kind in "US" else np.full_like(x, self.fill_value)


class Concatenate(_Transform):
    """What is put before and behind the vector."""

    def __init__(self, axis=0, prepend=None, append=None):
        self.axis, self.prepend, self.append = axis, prepend, append

    def __call__(self, *x):
        return np.concatenate([np.asarray(item) for item in (self.prepend, *x, self.append) if item is not None], self.axis)


class Duplicate(_Transform):
    """The column twice."""

    def __call__(self, x):
        x = np.asarray(x)
        return x, x


class PadEnd(_Transform):
    """Brought to a shape: cut, or filled behind with a value. None keeps a size."""

    def __init__(self, pad_shape, pad_value=None):
        self.pad_shape, self.pad_value = pad_shape, pad_value

    def __call__(self, x):
        x = np.asarray(x)
        shape = [size if wanted is None else wanted for size, wanted in zip(x.shape, self.pad_shape)]
        is_text = x.dtype.kind in "US"
        value = self.pad_value if self.pad_value is not None else "" if is_text else 0
        if isinstance(value, (str, bytes)) != is_text:
            raise RuntimeError(f"PadEnd: {value!r} does not fill what is {x.dtype}")
        made = np.full(shape, value, np.result_type(x.dtype, np.asarray(value).dtype) if is_text else x.dtype)
        part = tuple(slice(0, min(a, b)) for a, b in zip(x.shape, shape))
        made[part] = x[part]
        return made


class Relational(enum.IntEnum):
    """How Mask compares an element with its number."""
    EQ, NE, GT, GE, LT, LE = range(6)


_COMPARE = {Relational.EQ: np.equal, Relational.NE: np.not_equal, Relational.GT: np.greater, Relational.GE: np.greater_equal,
            Relational.LT: np.less, Relational.LE: np.less_equal}


class Mask(_Transform):
    """Whether each element stands in that relation to the number, as bools or in another dtype."""

    def __init__(self, operator, constant, dtype=tessera.bool_):
        if not isinstance(operator, Relational):
            raise TypeError(f"Argument operator with value {operator} is not of type [<enum 'Relational'>], but got {type(operator)}.")
        if not isinstance(constant, (str, float, bool, int)):
            raise TypeError(f"Argument constant with value {constant} is not of type (str, float, bool, int), but got {type(constant)}.")
        self.operator, self.constant, self.dtype = operator, constant, np.dtype(dtype.name.rstrip("_"))

    def __call__(self, x):
        return _COMPARE[self.operator](np.asarray(x), self.constant).astype(self.dtype)


class Slice(_Transform):
    """Of each dim of an array of any shape what its entry says: an int, a list of ints, a slice, None for all; an Ellipsis stands for the dims that have
    no entry. Dims stay."""

    def __init__(self, *slices):
        for entry in slices:
            if not isinstance(entry, (int, list, slice, type(None), type(...))):
                raise TypeError(f"Argument slice with value {entry} is not of type [<class 'int'>, <class 'list'>, <class 'slice'>, None, Ellipsis], but got "
                                f"{type(entry)}.")
        if slices.count(...) > 1:
            raise ValueError("Slice: more than one Ellipsis")
        self.slices = slices

    def __call__(self, x):
        x, entries = np.asarray(x), list(self.slices)
        if ... in entries:
            place = entries.index(...)
            entries[place:place + 1] = [None] * (x.ndim - len(entries) + 1)
        if len(entries) > x.ndim:
            raise RuntimeError(f"Slice: {len(entries)} entries for a tensor of {x.ndim} dims")
        for dim, entry in enumerate(entries):
            if entry is None or entry is True:
                continue
            if isinstance(entry, slice):
                x = x[(slice(None), ) * dim + (entry, )]
                continue
            places = entry if isinstance(entry, list) else [entry]
            if any(not -x.shape[dim] <= place < x.shape[dim] for place in places):
                raise RuntimeError(f"Slice: {entry} is out of range for dim {dim} of size {x.shape[dim]}")
            x = x.take(places, dim)
        return x


class Unique(_Transform):
    """(the different elements in order, the place of each element among them, how often each is there); one column becomes three."""

    def __call__(self, x):
        values, places, counts = np.unique(np.asarray(x), return_inverse=True, return_counts=True)
        return values, places.reshape(-1).astype(np.int32), counts.astype(np.int32)
