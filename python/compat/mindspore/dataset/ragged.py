"""Rows that Python makes, of strings or of sizes that differ from row to row: with the methods of tessera's data sets, whose rows are of one type."""
import bisect
import itertools

import numpy as np
import tessera
from tessera import data as _data


class Strings(np.ndarray):
    """A column of strings, which is no tensor."""

    def numpy(self):
        """The array."""
        return np.asarray(self)

    asnumpy = numpy


def column_of(value):
    """The array of a row's value; strings that Python holds as objects become an array of strings."""
    array = np.asarray(value)
    if array.dtype.kind == "O":
        items = array.ravel().tolist()
        if not items or not all(isinstance(item, str) for item in items):
            raise TypeError(f"a sample's value must be a number, a string, or an array of them, but it is {value!r}"[:300])
        array = array.astype("U")
    return array


def row_of(sample, names):
    """The columns of a sample: of a dict, a tuple, a list of as many, or a single value."""
    values = [sample[name] for name in names] if isinstance(sample, dict) else sample if isinstance(sample, (tuple, list)) else (sample, )
    if len(values) != len(names):
        raise ValueError(f"a sample has {len(values)} values, the data set has {len(names)} columns: {', '.join(names)}")
    return tuple(column_of(value) for value in values)


def _given(column):
    """What a script gets of a column."""
    return column.view(Strings) if column.dtype.kind in "US" else tessera.Tensor(column)


def names_behind(names, columns, outputs, order=None):
    """The names of a data set whose columns a function has made into others."""
    if order:
        return list(order)
    kept = [name for name in names if name not in columns]
    at = min((names.index(name) for name in columns), default=0)
    before = [name for name in kept if names.index(name) < at]
    return [*before, *outputs, *[name for name in kept if name not in before]]


def _stacked(columns, names, who):
    """One array of each column's rows."""
    made = []
    for name, rows in zip(names, columns):
        if len({row.shape for row in rows}) > 1:
            raise RuntimeError(f"{who}: the rows of column \"{name}\" have the shapes {sorted({row.shape for row in rows})} and make no batch: padded_batch or "
                               "bucket_batch_by_length pads them, transforms.PadEnd in map() brings them to one size")
        made.append(np.stack(rows))
    return tuple(made)


def _is_text(array):
    return array.dtype.kind in "US"


class Padding:
    """What padded_batch and bucket_batch_by_length do to rows. info: {column: (shape, value)}; {}: all columns, to the largest of a batch."""

    def __init__(self, who, info, names):
        self._who, self._names, self._info = who, names, {}
        if not isinstance(info, dict):
            raise TypeError(f"Argument pad_info with value {info} is not of type [{dict}], but got {type(info)}.")
        for name, given in info.items():
            if not isinstance(given, tuple) or len(given) != 2:
                raise TypeError(f"Argument pad_info with value {given} is not of type [{tuple}] of 2, but got {type(given)}.")
            shape, value = given
            if name not in names:
                raise RuntimeError(f"{who}: there is no column \"{name}\" to pad; there are {names}")
            for size in shape or ():
                if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
                    raise ValueError("Input dim of shape in pad_info is not within the required interval of [1, 2147483647].")
            self._info[name] = (None if shape is None else list(shape), value)
        self._pads_all = not info

    @property
    def is_fixed(self):
        """Whether each column that is padded has a size of its own."""
        return not self._pads_all and all(shape is not None and None not in shape for shape, _ in self._info.values())

    @property
    def has_open_sizes(self):
        """Whether a column's size that is not given could become a boundary."""
        return any(shape is None or None in shape for shape, _ in self._info.values())

    def _padded(self, name, rows, boundary):
        shape, value = self._info.get(name, (None, None))
        ndim = rows[0].ndim
        if any(row.ndim != ndim for row in rows):
            raise RuntimeError(f"{self._who}: the rows of column \"{name}\" have {sorted({row.ndim for row in rows})} dims; padding keeps their number")
        if shape is not None and len(shape) != ndim:
            raise RuntimeError(f"{self._who}: pad_info has {len(shape)} dims for column \"{name}\", whose rows have {ndim}")
        wanted = shape if shape is not None else [None] * ndim
        if boundary is not None and name in self._info:
            wanted = [boundary if size is None else size for size in wanted]
        wanted = [max(row.shape[i] for row in rows) if size is None else size for i, size in enumerate(wanted)]
        if value is not None and isinstance(value, (str, bytes)) != _is_text(rows[0]):
            raise RuntimeError(f"{self._who}: pad_info fills column \"{name}\", which is {rows[0].dtype}, with {value!r}")
        made = []
        for row in rows:
            if _is_text(row):
                fill = value or ""
                fill = fill.encode() if row.dtype.kind == "S" and isinstance(fill, str) else fill
                padded = np.full(wanted, fill, np.result_type(row.dtype, np.asarray(fill).dtype))
            else:
                padded = np.full(wanted, 0 if value is None else value, row.dtype)
            part = tuple(slice(0, min(a, b)) for a, b in zip(row.shape, wanted))
            padded[part] = row[part]
            made.append(padded)
        return made

    def of(self, columns, boundary=None):
        """The rows of each column, padded. boundary: what sizes that are not given become, where they are not to be the largest."""
        return [self._padded(name, rows, boundary) if self._pads_all or name in self._info else rows for name, rows in zip(self._names, columns)]


class Buckets:
    """bucket_batch_by_length's: batches of rows of about one length."""

    def __init__(self, names, columns, boundaries, sizes, length, padding, pads_to_boundary, drops):
        self._places = [names.index(name) for name in columns]
        self._names, self._boundaries, self._sizes, self._length = names, boundaries, sizes, length
        self._padding, self._pads_to_boundary, self._drops = padding, pads_to_boundary, drops

    def _length_of(self, row):
        columns = [row[place] for place in self._places]
        if self._length is None:
            return int(columns[0]) if columns[0].ndim == 0 else columns[0].shape[0]
        made = np.asarray(self._length(*columns))
        if made.size != 1 or made.dtype.kind not in "iu" or int(made.ravel()[0]) < 0:
            raise RuntimeError(f"bucket_batch_by_length: element_length_function must give a whole number of at least 0, but it gave {made}")
        return int(made.ravel()[0])

    def _batch(self, rows, bucket):
        columns = list(zip(*rows))
        boundary = None
        if self._pads_to_boundary and self._padding.has_open_sizes:
            if bucket == len(self._boundaries):
                raise RuntimeError(f"bucket_batch_by_length: pad_to_bucket_boundary needs a boundary above every row, but one has the length "
                                   f"{self._length_of(rows[0])} and the last boundary is {self._boundaries[-1]}")
            boundary = self._boundaries[bucket] - 1
        return _stacked(self._padding.of(columns, boundary), self._names, "bucket_batch_by_length")

    def unbatched(self, rows, seed):
        """RaggedRows' `unbatched` of the batches: what tessera can batch where all have one size, else a text that says what they lack."""
        who = "bucket_batch_by_length"
        if not self._padding.is_fixed:
            return f"{who} whose pad_info has not a size for each column's dims, {{column: ([size], value)}},"
        if len(set(self._sizes)) > 1:
            return f"{who} with bucket_batch_sizes that differ, {self._sizes},"
        opened = RaggedRows.streamed(lambda epoch: self._rows_of_full(rows.rows(epoch)), self._names, None, rows.num_shards(), seed)
        return opened, self._sizes[0], self._drops, ()

    def _rows_of_full(self, rows):
        """The rows of the batches, of which none but the last may be short."""
        size, wanted = None, self._sizes[0]
        for batch in self(rows):
            if size is not None and size != wanted:
                raise RuntimeError(f"bucket_batch_by_length: buckets keep rows for batches that are short of {wanted} rows; to train on batches of one size, leave them "
                                   "out by drop_remainder=True; or train in a loop over create_tuple_iterator(), by TrainOneStepCell, whose batches may differ")
            size = len(batch[0])
            yield from zip(*batch)

    def __call__(self, rows):
        """The batches of the rows: each when its bucket is full, then what is left in the buckets, in their order."""
        buckets = [[] for _ in self._sizes]
        for row in rows:
            place = bisect.bisect_right(self._boundaries, self._length_of(row))
            buckets[place].append(row)
            if len(buckets[place]) == self._sizes[place]:
                yield self._batch(buckets[place], place)
                buckets[place] = []
        if not self._drops:
            yield from (self._batch(left, place) for place, left in enumerate(buckets) if left)


class _Listed:
    """Rows of a source with __getitem__ and __len__: tessera's data set is of their numbers."""

    def __init__(self, source, native):
        self._source, self._native = source, native

    def opened(self):
        """(tessera's data set of numbers, what gives the sample of a number)."""
        return self._native, lambda place: self._source[int(place)]


class _Streamed:
    """Rows that open(epoch) gives one after the other: tessera's data set is of tickets for those that were read and not yet taken."""

    def __init__(self, open_epoch, size, seed):
        self._open, self._size, self._seed = open_epoch, size, seed

    def opened(self):
        """(tessera's data set of tickets, what gives the sample of a ticket, once)."""
        waiting, tickets, is_first = {}, itertools.count(), [True]

        def numbered(epoch):
            if is_first:  # tessera looks at a sample's type
                is_first.clear()
                yield (np.int64(0), )
                return
            for sample in self._open(epoch):
                ticket = next(tickets)
                waiting[ticket] = sample
                yield (np.int64(ticket), )

        if self._size is None:
            self._size = sum(1 for _ in self._open(0))
        if self._size < 1:
            raise RuntimeError("the data set has no rows")
        return _data.stream(numbered, ["place"], self._size, 0, self._seed, by_epoch=True), lambda place: waiting.pop(int(place))


class RaggedRows:
    """The rows of a source as numbers or tickets of tessera's, which orders, repeats and batches these; and what makes rows of them."""

    def __init__(self, source, make, names, num_shards=1, steps=(), unbatched=None):
        # unbatched: (the rows, batch_size, drop_remainder, the steps after it) of what can be batches of tessera's, a text where it cannot.
        self._source, self._make, self._names, self._num_shards, self._steps, self._unbatched = source, make, list(names), num_shards, tuple(steps), unbatched
        # Of images in folders the classes' numbers, which are known without reading them.
        self.labels = None

    @staticmethod
    def listed(source, names, numbers, num_shards=1):
        """Of a source with __getitem__; numbers: tessera's data set of the numbers that are read, in a column."""
        return RaggedRows(_Listed(source, numbers), lambda fetch, place: row_of(fetch(place), names), names, num_shards)

    @staticmethod
    def streamed(open_epoch, names, size=None, num_shards=1, seed=None, unbatched=None):
        """Of what open_epoch(epoch) gives, so many rows; None: counted."""
        return RaggedRows(_Streamed(open_epoch, size, seed), lambda fetch, place: row_of(fetch(place), names), names, num_shards, (), unbatched)

    def _with(self, **changes):
        settings = dict(source=self._source, make=self._make, names=self._names, num_shards=self._num_shards, steps=self._steps, unbatched=self._unbatched)
        return RaggedRows(**(settings | changes))

    def _stepped(self, step):
        unbatched = self._unbatched
        if isinstance(unbatched, tuple):
            unbatched = (*unbatched[:3], (*unbatched[3], step))
        return self._with(steps=(*self._steps, step), unbatched=unbatched)

    def _opened(self):
        native, fetch = self._source.opened()
        for step in self._steps:
            native = step(native)
        return native, fetch

    def by_number(self):
        """What gives the row of a number, of a list all of whose rows are read in order; else None."""
        if self._steps or not isinstance(self._source, _Listed):
            return None
        _, fetch = self._source.opened()
        return lambda place: self._make(fetch, place)

    def rows(self, epoch):
        """The rows of an epoch: tuples of arrays."""
        native, fetch = self._opened()
        for (place, ) in native.batches(1, 0, epoch):
            yield self._make(fetch, place.numpy())

    def batches(self, num_epochs=1, num_workers=1, first_epoch=0):
        """Tuples of tensors, and of arrays of strings, one per column."""
        epochs = itertools.count(first_epoch) if num_epochs < 0 else range(first_epoch, first_epoch + num_epochs)
        return (tuple(_given(column) for column in row) for epoch in epochs for row in self.rows(epoch))

    def map_columns(self, inputs, outputs, function, name=None):
        """Replaces columns by those that a function makes."""
        inputs, outputs, names = list(inputs), list(outputs), self._names
        after = names_behind(names, inputs, outputs)

        def make(fetch, place):
            found = dict(zip(names, self._make(fetch, place)))
            made = function(*[found[name] for name in inputs])
            if len(made) != len(outputs):
                raise RuntimeError(f"map: the operations give {len(made)} columns, and output_columns names {len(outputs)}")
            found = {name: value for name, value in found.items() if name not in inputs} | dict(zip(outputs, map(column_of, made)))
            return tuple(found[name] for name in after)

        unbatched = "map() after batch()" if self._unbatched is not None else None
        return self._with(make=make, names=after, unbatched=unbatched)

    def project(self, columns):
        """These columns, in this order."""
        for name in columns:
            if name not in self._names:
                raise RuntimeError(f"project: there is no column \"{name}\"; there are {self._names}")
        places = [self._names.index(name) for name in columns]

        def make(fetch, place):
            row = self._make(fetch, place)
            return tuple(row[i] for i in places)

        unbatched = self._unbatched
        if isinstance(unbatched, tuple):
            unbatched = (unbatched[0].project(columns), *unbatched[1:])
        return self._with(make=make, names=list(columns), unbatched=unbatched)

    def batch(self, size, drop_remainder=False, padding=None):
        """Rows of so many rows, padded where padding says how."""
        who = "batch" if padding is None else "padded_batch"

        def make(fetch, places):
            columns = list(zip(*[self._make(fetch, place) for place in places]))
            return _stacked(columns if padding is None else padding.of(columns), self._names, who)

        rows = self
        if padding is not None and padding.is_fixed:
            rows = self._with(make=lambda fetch, place: tuple(rows[0] for rows in padding.of([[column] for column in self._make(fetch, place)])))
        if self._unbatched is not None:
            unbatched = "batch() after batch()"
        else:
            unbatched = (rows, size, drop_remainder, ()) if padding is None or padding.is_fixed else "sizes that differ from batch to batch"

        def batched(native):
            if native.get_batch_size() > 1 or self._unbatched is not None:
                def numbers(epoch):
                    return ((column[0].numpy(), ) for column in native.batches(1, 0, epoch))

                return _data.stream(numbers, ["place"], native.get_dataset_size(), 0, None, by_epoch=True).batch(size, drop_remainder)
            return native.batch(size, drop_remainder)

        return self._with(make=make, steps=(*self._steps, batched), unbatched=unbatched)

    def shuffle(self, buffer_size):
        """A new order in each epoch."""
        return self._stepped(lambda native: native.shuffle(buffer_size))

    def repeat(self, count=-1):
        """count epochs become one."""
        return self._stepped(lambda native: native.repeat(count))

    def take(self, count):
        """The first so many rows."""
        return self._stepped(lambda native: native.take(count))

    def skip(self, count):
        """All but the first so many rows."""
        return self._stepped(lambda native: native.skip(count))

    def as_part_of(self, num_parts):
        """The same rows, as one rank's part of so many."""
        return self._with(num_shards=num_parts)

    def get_dataset_size(self):
        """Rows of an epoch."""
        return self._opened()[0].get_dataset_size()

    def get_batch_size(self):
        """1 where nothing is batched, and where batches have sizes of their own."""
        return self._opened()[0].get_batch_size()

    def get_repeat_count(self):
        """The product of the repeats; -1 without end."""
        return self._opened()[0].get_repeat_count()

    def num_shards(self):
        """Of how many ranks' parts this is one."""
        return self._num_shards

    def column_names(self):
        """The names of the columns."""
        return list(self._names)

    def first(self):
        """The first row."""
        return next(self.rows(0))

    def output_dtypes(self):
        """NumPy's dtypes of the columns, as the first row has them; of strings that of no length."""
        return [np.dtype(column.dtype.kind) if _is_text(column) else column.dtype for column in self.first()]

    def output_shapes(self):
        """The sizes of the first row's columns."""
        return [tuple(column.shape) for column in self.first()]

    def __len__(self):
        return self.get_dataset_size()

    def __repr__(self):
        return f"rows of Python's: {', '.join(self._names)}"

    def _checked(self, epoch):
        """The rows, which must be of one type to be trained on."""
        types = None
        for row in self.rows(epoch):
            for name, column in zip(self._names, row):
                if _is_text(column):
                    raise RuntimeError(f"the column \"{name}\" is of strings, which no network takes: make them numbers in map(), text.Lookup does it, or "
                                       "leave the column out by project()")
            found = {name: (column.dtype, column.shape) for name, column in zip(self._names, row)}
            types = types or found
            if found != types:
                raise RuntimeError(f"rows must have one size to be trained on, but there are {_told(types)} and {_told(found)}: give padded_batch the sizes in "
                                   "pad_info, or train in a loop of one's own, by TrainOneStepCell, whose batches may differ")
            yield row

    def uniform(self):
        """tessera's data set of the same rows, which must be of numbers and of one size."""
        if isinstance(self._unbatched, str):
            raise NotImplementedError(f"Model.train, Model.eval and DatasetHelper: {self._unbatched} is not available: bring rows to one size in map() or by "
                                      "pad_info, then batch(); or train in a loop over create_tuple_iterator(), by TrainOneStepCell, whose batches may differ")
        rows, size, drop, steps = self._unbatched or (self, None, False, ())
        native = _data.stream(rows._checked, rows.column_names(), rows.get_dataset_size(), 0, None, by_epoch=True)
        native = native.as_part_of(self._num_shards) if self._num_shards > 1 else native
        native = native if size is None else native.batch(size, drop)
        for step in steps:
            native = step(native)
        return native


def _told(types):
    return ", ".join(f"{name} {dtype}{list(shape)}" for name, (dtype, shape) in types.items())
