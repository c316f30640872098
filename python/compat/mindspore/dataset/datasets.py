"""Data sets, each a value: map, shuffle, batch and repeat give new ones. `native` is tessera's."""
import collections.abc
import enum
import functools
import inspect
import itertools
import os
import threading

import numpy as np
import tessera
from tessera import data as _data
from tessera._keywords import unexpected

from mindspore import context
from mindspore.dataset import config, later_columns, samplers
from mindspore.dataset.ragged import Buckets, Padding, RaggedRows, column_of, names_behind, row_of
from mindspore.dataset.transforms.arrays import PadEnd


def check_shard(num_shards, shard_id):
    """(num_shards, shard_id), (1, 0) where none are given."""
    if (num_shards is None) != (shard_id is None):
        raise RuntimeError("num_shards is specified and currently requires shard_id as well." if shard_id is None else
                           "shard_id is specified but num_shards is not.")
    if num_shards is None:
        return 1, 0
    for name, value in (("num_shards", num_shards), ("shard_id", shard_id)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"The argument '{name}' must be int, but got {type(value).__name__}.")
    if num_shards < 1 or not 0 <= shard_id < num_shards:
        raise ValueError(f"Input shard_id is not within the required interval of [0, {num_shards - 1}], but got {shard_id}.")
    return num_shards, shard_id


def _in_turn(operations):
    """A function of several columns: the operations one after the other, each of what the one before gives."""

    def call(*columns):
        for operation in operations:
            if isinstance(operation, _data.Transform):
                if len(columns) != 1:
                    raise RuntimeError(f"map: {operation} takes one column, but there are {len(columns)}")
                columns = (operation(columns[0]).numpy(),)
            else:
                result = operation(*columns)
                columns = result if isinstance(result, (tuple, list)) else (result,)
        return tuple(column_of(column) for column in columns)

    return call


def _of_one(operation):
    """A function of one column, whose result may stand in a tuple."""

    def call(column):
        result = operation(column)
        if not isinstance(result, tuple):
            return result
        if len(result) != 1:
            raise RuntimeError(f"map: an operation gives {len(result)} columns; output_columns must name them")
        return result[0]

    return _data.function(call, getattr(operation, "__name__", type(operation).__name__))


def _natives(operation):
    """tessera's transforms of one that has them; else the operation."""
    if hasattr(operation, "natives"):
        return operation.natives
    return [getattr(operation, "native", operation)]


def _takes_samplers(init):
    """An __init__ that remembers its arguments, for use_sampler and add_sampler."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def made(self, *args, **kwargs):
        init(self, *args, **kwargs)
        given = dict(signature.bind(self, *args, **kwargs).arguments)
        given.pop(next(iter(signature.parameters)))
        self._made_by = (made, given | ({} if self._rows_source is None else {"source": self._rows_source}))

    return made


class _Epoch(threading.local):
    """Which epoch is read from data sets that a data set of one's own is made of, while Model.train reads it; None: each has a count of its own."""
    number = None


_epoch = _Epoch()


class _Epochs:
    """Rows of a data set; each loop over it is the data set's next epoch, whichever iterator it belongs to."""

    def __init__(self, dataset, num_epochs, convert):
        self._dataset, self._num_epochs, self._convert = dataset, num_epochs, convert
        self._num_begun, self._rows = 0, None

    def __iter__(self):
        self._rows = None
        return self

    def __next__(self):
        if self._rows is None:
            if 0 <= self._num_epochs <= self._num_begun:
                raise StopIteration
            self._rows = self._dataset.native.batches(1, self._dataset.num_workers or 1, self._dataset.begin_epoch())
            self._num_begun += 1
        try:
            return self._convert(next(self._rows))
        except StopIteration:
            self._rows = None
            raise

    def get_next(self):
        """The next row, as next() gives it."""
        return next(self)


def _check_settings(who, given, harmless, refused, others):
    """TypeError for keywords that nobody knows, NotImplementedError for those that would change what comes out."""
    for name, value in given.items():
        if name in refused and value:
            raise NotImplementedError(f"{who}: {name} is not available; {refused[name]}")
        if name not in harmless and name not in refused:
            raise TypeError(unexpected(f"{who}()", name, [*others, *harmless, *refused]))


def _rows_of(native, epoch):
    """The rows of an epoch, as tuples of arrays."""
    return native.rows(epoch) if isinstance(native, RaggedRows) else (tuple(column.numpy() for column in row) for row in native.batches(1, 0, epoch))


def _passes(natives, rows):
    """Opens an epoch of data sets' rows. rows(iterators) gives the rows from the sets' own."""
    return lambda epoch: rows([_rows_of(native, epoch) for native in natives])


def _ragged(native):
    """The rows of tessera's data set as those that Python makes."""
    if isinstance(native, RaggedRows):
        return native
    return RaggedRows.streamed(lambda epoch: _rows_of(native, epoch), native.column_names(), native.get_dataset_size(), native.num_shards(), config.get_seed())


def _stream(open_epoch, names, size, num_shards=1):
    """A data set of the rows that open_epoch(epoch) gives, which are those of this many shards."""
    native = _data.stream(open_epoch, names, size, 0, config.get_seed(), by_epoch=True)
    return native.as_part_of(num_shards) if num_shards > 1 else native


def _chained(iterators):
    for rows in iterators:
        yield from rows


def _side_by_side(iterators):
    for rows in zip(*iterators):
        yield [column for row in rows for column in row]


def _of_sets(who, datasets, names, size, rows):
    """One data set of the rows of several."""
    for dataset in datasets:
        if not isinstance(dataset, Dataset):
            raise TypeError(f"{who}: a Dataset is needed, but got {type(dataset).__name__}.")
        if dataset.is_batched:
            raise NotImplementedError(f"{who}: a data set after batch() is not available: call {who} first, then batch()")
    shards = {dataset.native.num_shards() for dataset in datasets}
    if len(shards) > 1:
        raise RuntimeError(f"{who}: the data sets have {sorted(shards)} shards; they must have as many")
    shards = shards.pop()
    natives = [dataset.native for dataset in datasets]
    ragged = None
    if any(dataset.ragged is not None for dataset in datasets):
        # `or` would count rows.
        ragged = _ragged_stream(_passes([dataset.native if dataset.ragged is None else dataset.ragged for dataset in datasets], rows), names, size, shards)
    is_ragged = any(isinstance(native, RaggedRows) for native in natives)
    made = Dataset(ragged if is_ragged else _stream(_passes(natives, rows), names, size, shards), datasets[0].num_workers)
    made.ragged = ragged
    return made


def _ragged_stream(open_epoch, names, size, num_shards):
    """Rows of Python's that open_epoch(epoch) gives; size -1: counted."""
    return RaggedRows.streamed(open_epoch, names, None if size < 0 else size, num_shards, config.get_seed())


def _rows_of_column(made):
    """The rows that a function has made of a column: an array, or a list of arrays."""
    return made if isinstance(made, np.ndarray) else [column_of(row) for row in made] if isinstance(made, (list, tuple)) else np.asarray(made)


class BatchInfo:
    """What a function per batch may ask: the epoch and the number of its batch, from 0."""

    def __init__(self, epoch, batch):
        self._epoch, self._batch = epoch, batch

    def get_batch_num(self):
        """The batch's number in its epoch."""
        return self._batch

    def get_epoch_num(self):
        """The epoch's number."""
        return self._epoch


class _RowsByBatch:
    """The rows of batches that a function has made."""

    def __init__(self, native, batch, function, inputs, outputs):
        self._native, self._batch, self._function = native, batch, function
        self._inputs, self._outputs = inputs, outputs

    def _batches(self, epoch):
        """Of each batch the rows of the columns by name."""
        names, (size, drops) = self._native.column_names(), self._batch
        if not isinstance(self._native, RaggedRows):
            for batch in self._native.batch(size, drops).batches(1, 0, epoch):
                yield {name: column.numpy() for name, column in zip(names, batch)}
            return
        rows = self._native.rows(epoch)
        while len(batch := list(itertools.islice(rows, size))) == size or batch and not drops:
            yield {name: list(column) for name, column in zip(names, zip(*batch))}

    def __call__(self, epoch):
        for number, columns in enumerate(self._batches(epoch)):
            size = len(next(iter(columns.values())))
            made = self._function(*[list(columns.pop(name)) for name in self._inputs], BatchInfo(epoch, number))
            made = made if isinstance(made, tuple) else (made,)
            if len(made) != len(self._outputs):
                raise RuntimeError(f"batch: per_batch_map gives {len(made)} columns; output_columns must name as many, they are {self._outputs}")
            columns = dict(zip(self._outputs, map(_rows_of_column, made))) | columns
            if any(len(column) != size for column in columns.values()):
                raise NotImplementedError(f"batch: per_batch_map makes {[len(column) for column in columns.values()]} rows of {size}; another number "
                                          "is not available: choose rows in the source")
            yield from zip(*columns.values())


class Dataset:
    """A data set; map, shuffle, batch, repeat, take, skip, rename, concat, zip, filter and split give new ones."""

    is_batched = False
    # How many epochs its own iterators have begun. Model.train counts its epochs by itself.
    _num_begun = 0
    # Of a source of Python's the source itself and how it is read, as long as only functions have changed its rows.
    _rows_of = None
    # Of a data set that a sampler can be given later, (its __init__, the arguments); whether it is read by numbers.
    _made_by, _is_list = None, True
    # Of a GeneratorDataset its source, which is kept where it can be read but once.
    _rows_source = None
    # Of a source of Python's its rows as Python makes them, whose sizes may differ: `native` itself where they do.
    ragged = None

    def __init__(self, native, num_workers=None, in_order=None):
        self.native = native
        self.num_workers = num_workers
        # The same rows in an order that is that of every epoch; None where there is none but by reading them.
        self._in_order = in_order

    def _sampled(self, sampler):
        """Only what a sampler chooses."""
        if sampler is not None:
            self.native = samplers.of(sampler).choose(self.native, self._in_order)
            self._in_order, self.ragged = None, self.native if isinstance(self.native, RaggedRows) else None

    def use_sampler(self, new_sampler):
        """Replaces the sampler, from the next iterator on; what that one chose of becomes the new one's child."""
        self._choose_by(new_sampler, lambda sampler: sampler.get_child())

    def add_sampler(self, new_sampler):
        """Chooses by the new sampler of what the sampler chooses, from the next iterator on."""
        self._choose_by(new_sampler, lambda sampler: sampler)

    def _choose_by(self, new_sampler, child_of):
        if self._made_by is None:
            raise NotImplementedError(f"{type(self).__name__}: use_sampler and add_sampler are not available behind map(), batch() and such: give the data set that is "
                                      "read its sampler=, or call them first")
        if not isinstance(new_sampler, samplers.Sampler):
            raise TypeError("Input sampler can not be None." if new_sampler is None else "Input sampler is not an instance of a sampler.")
        init, arguments = self._made_by
        sampler = arguments.get("sampler")
        if sampler is None:
            sampler = samplers.implied(**{name: arguments.get(name) for name in ("num_samples", "shuffle", "num_shards", "shard_id")}, is_list=self._is_list)
        elif not isinstance(sampler, samplers.Sampler):
            sampler, _ = samplers.limited(sampler, arguments.get("num_samples"))
        if child_of(sampler) is not None:
            new_sampler.add_child(child_of(sampler))
        kept = {name: value for name, value in arguments.items() if name not in ("num_samples", "shuffle", "num_shards", "shard_id")}
        made = object.__new__(type(self))
        init(made, **(kept | {"sampler": new_sampler}))
        self.__dict__.update({"ragged": None, "_rows_of": None} | made.__dict__)

    def _with(self, native, num_workers=None, in_order=None):
        made = Dataset(native, num_workers or self.num_workers, in_order)
        made.is_batched = self.is_batched
        return made

    def _step(self, step, num_workers=None):
        """What a step makes of the rows, each by itself or by its place."""
        return self._then(step, num_workers, None if self._in_order is None else step(self._in_order))

    def _then(self, step, num_workers=None, in_order=None):
        """What a step makes of the rows."""
        native = step(self.native)
        made = self._with(native, num_workers, in_order)
        if self.ragged is not None:
            made.ragged = native if isinstance(native, RaggedRows) else step(self.ragged)
        return made

    def _of_ragged(self, ragged, num_workers=None):
        """A data set of rows that Python makes."""
        made = self._with(ragged, num_workers)
        made.ragged = ragged
        return made

    def map(self, operations, input_columns=None, output_columns=None, column_order=None, num_parallel_workers=None, **kwargs):
        """Replaces columns by what the operations make of them, one after the other: transforms, or functions of as many
        arrays as there are columns. output_columns: the names of what comes out, where they differ; column_order: the
        columns that are kept, in their order."""
        _check_settings("map", kwargs, ("python_multiprocessing", "max_rowsize", "offload"), {
            "cache": "rows are made anew in each epoch", "callbacks": "callbacks of Model.train see every step"},
                        ("operations", "input_columns", "output_columns", "column_order", "num_parallel_workers"))
        operations = [op for given in (operations if isinstance(operations, (list, tuple)) else [operations]) for op in _natives(given)]
        columns = [input_columns] if isinstance(input_columns, str) else list(input_columns or self.native.column_names()[:1])
        outputs = [output_columns] if isinstance(output_columns, str) else list(output_columns or columns)
        for column in columns:
            if column not in self.native.column_names():
                raise RuntimeError(f"map: there is no column \"{column}\"; there are {self.native.column_names()}")
        for operation in operations:
            if not callable(operation):
                raise TypeError(f"map: an operation must be callable, but got {type(operation).__name__}.")
        if self._rows_of is not None and operations and not isinstance(self.native, RaggedRows) and not any(isinstance(operation, _data.Transform) for operation in operations):
            return self._mapped_source(operations, columns, outputs, column_order, num_parallel_workers)
        return self._step(lambda native: self._mapped(native, operations, columns, outputs, column_order), num_parallel_workers)

    @staticmethod
    def _mapped(native, operations, columns, outputs, column_order):
        if isinstance(native, RaggedRows):
            native = native.map_columns(columns, outputs, _in_turn(operations)) if operations else native
            return native if column_order is None else native.project(list(column_order))
        # What works on one column is tessera's to do, which gives each sample random numbers of its own.
        of_one = len(operations) if columns == outputs else next((i for i, op in enumerate(operations) if not isinstance(op, _data.Transform)), 0)
        if len(columns) == 1 and of_one:
            native = native.map(columns[0], [op if isinstance(op, _data.Transform) else _of_one(op) for op in operations[:of_one]])
            operations = operations[of_one:]
        if operations:
            if any(repr(operation).startswith("random") for operation in operations if isinstance(operation, _data.Transform)):
                raise NotImplementedError("map: a random transform must come first, in a map of one column")
            names = [getattr(operation, "__name__", type(operation).__name__) for operation in operations]
            native = native.map_columns(columns, outputs, _in_turn(operations), ", ".join(names))
        return native if column_order is None else native.project(list(column_order))

    def project(self, columns):
        """These columns, in this order."""
        names = [columns] if isinstance(columns, str) else list(columns)
        return self._step(lambda native: later_columns.projected(native, names))

    def rename(self, input_columns, output_columns):
        """The same columns under other names."""
        old, new = ([names] if isinstance(names, str) else list(names) for names in (input_columns, output_columns))
        every = self.native.column_names()
        if len(old) != len(new):
            raise ValueError(f"rename: there are {len(old)} input_columns and {len(new)} output_columns")
        for name in old:
            if name not in every:
                raise RuntimeError(f"rename: there is no column \"{name}\"; there are {every}")
        if self.is_batched:
            raise NotImplementedError("rename: a data set after batch() is not available: call rename first, then batch()")
        return self._step(lambda native: later_columns.renamed(native, dict(zip(old, new))))

    def concat(self, datasets):
        """The rows of this data set, then those of the others, which have as many columns of the same types."""
        every = [self, *(datasets if isinstance(datasets, (list, tuple)) else [datasets])]
        return _of_sets("concat", every, self.native.column_names(), sum(len(dataset) for dataset in every), _chained)

    def __add__(self, other):
        return self.concat(other)

    def zip(self, datasets):
        """Rows with the columns of all, as many as the shortest has."""
        return zip_datasets((self, *(datasets if isinstance(datasets, (list, tuple)) else [datasets])))

    def filter(self, predicate, input_columns=None, num_parallel_workers=None):
        """The rows of which predicate(columns) is true; all columns without input_columns."""
        names = self.native.column_names()
        chosen = names if not input_columns else [input_columns] if isinstance(input_columns, str) else list(input_columns)
        for name in chosen:
            if name not in names:
                raise RuntimeError(f"filter: there is no column \"{name}\"; there are {names}")
        if not callable(predicate):
            raise TypeError("Predicate should be a Python function or a callable Python object.")
        places = [names.index(name) for name in chosen]

        def kept(iterators):
            return (row for row in iterators[0] if predicate(*[row[i] for i in places]))

        made = _of_sets("filter", [self], names, -1, kept)
        made.num_workers = num_parallel_workers or made.num_workers
        return made

    def apply(self, apply_func):
        """apply_func(this data set), a data set."""
        if not callable(apply_func):
            raise TypeError("apply_func must be a function.")
        made = apply_func(self)
        if not isinstance(made, Dataset):
            raise TypeError("apply_func must return a dataset.")
        return made

    def split(self, sizes, randomize=True):
        """Data sets of so many rows each, or of these parts of all; a row is in the same one in every epoch. randomize: which rows a part has is
        drawn by the seed, and each part has a new order in each epoch."""
        if self.is_batched:
            raise NotImplementedError("split: a data set after batch() is not available: call split first, then batch()")
        counts = _split_counts(sizes, len(self))
        places = np.random.default_rng(config.get_seed() or 0).permutation(len(self)) if randomize else np.arange(len(self))
        ends = np.cumsum(counts)
        if self._in_order is None:
            raise NotImplementedError("split: rows have no order that is that of every epoch after shuffle(), repeat(), take(), skip(), zip() and such: call split first")
        return [self._piece(self._in_order, set(places[end - count:end].tolist()), randomize) for count, end in zip(counts, ends)]

    def _piece(self, ordered, places, randomize):
        def chosen(iterators):
            return (row for place, row in enumerate(iterators[0]) if place in places)

        stream = _ragged_stream if isinstance(ordered, RaggedRows) else _stream
        native = stream(_passes([ordered], chosen), ordered.column_names(), len(places), ordered.num_shards())
        made = Dataset(native.shuffle(len(places)) if randomize and len(places) > 1 else native, self.num_workers, native)
        made.ragged = made.native if isinstance(made.native, RaggedRows) else None
        return made

    def __getattr__(self, name):
        if name in _ABSENT:
            return _absent(f"{type(self).__name__}.{name}", _ABSENT[name])
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def shuffle(self, buffer_size):
        """A new order in each epoch, as a buffer of so many rows gives it."""
        if isinstance(buffer_size, bool) or not isinstance(buffer_size, int):
            raise TypeError(f"Argument buffer_size with value {buffer_size} is not of type [<class 'int'>].")
        if buffer_size < 2:
            raise ValueError(f"Input buffer_size is not within the required interval of [2, 2147483647], but got {buffer_size}.")
        return self._then(lambda native: native.shuffle(buffer_size))

    def batch(self, batch_size, drop_remainder=False, num_parallel_workers=None, **kwargs):
        """Rows of batch_size samples. per_batch_map(columns, as lists of rows, and a BatchInfo) makes the columns output_columns, or those it was
        given, of as many rows."""
        _check_batch_size(batch_size)
        source = self._batch_source(batch_size, drop_remainder, **kwargs)
        made = self._with(source.batch(batch_size, drop_remainder), num_parallel_workers)
        if isinstance(source, RaggedRows):
            made.ragged = made.native
        made.is_batched = True
        return made

    def padded_batch(self, batch_size, drop_remainder=False, num_parallel_workers=None, pad_info=None):
        """batch() of rows that pad_info brings to one size: {column: (shape, value)}, where a size None, or a shape, is the largest of the batch; {}: all
        columns, to the largest."""
        if pad_info is None:
            return self.batch(batch_size, drop_remainder, num_parallel_workers)
        padding = Padding("padded_batch", pad_info, self.get_col_names())
        if not isinstance(self.native, RaggedRows) and not self.is_batched and (padding.is_fixed or self.ragged is None):
            made = self
            for name, (shape, value) in pad_info.items():
                if shape is not None and any(size is not None for size in shape):
                    self._check_dims(name, shape)
                    made = made.map(PadEnd(list(shape), value), name)
            return made.batch(batch_size, drop_remainder, num_parallel_workers)
        _check_batch_size(batch_size)
        made = self._of_ragged(self._ragged_rows("padded_batch").batch(batch_size, drop_remainder, padding), num_parallel_workers)
        made.is_batched = True
        return made

    def _check_dims(self, name, shape):
        dims = len(self.native.output_shapes()[self.native.column_names().index(name)])
        if len(shape) != dims:
            raise RuntimeError(f"padded_batch: pad_info has {len(shape)} dims for column \"{name}\", whose rows have {dims}")

    def _ragged_rows(self, who):
        if self.is_batched:
            raise NotImplementedError(f"{who}: a data set after batch() is not available: call {who} first")
        return _ragged(self.native) if self.ragged is None else self.ragged

    def bucket_batch_by_length(self, column_names, bucket_boundaries, bucket_batch_sizes, element_length_function=None, pad_info=None,
                               pad_to_bucket_boundary=False, drop_remainder=False):
        """Batches of rows of about one length: bucket i is of lengths from boundary i - 1 up to boundary i, excluded, and gives batches of
        bucket_batch_sizes[i] rows. The length is that of the column, or what element_length_function makes of the columns. pad_info: as in
        padded_batch(); None: rows stay as they are. pad_to_bucket_boundary: sizes None become the boundary less 1."""
        _check_buckets(column_names, bucket_boundaries, bucket_batch_sizes, element_length_function)
        names = self.get_col_names()
        for name in column_names:
            if name not in names:
                raise RuntimeError(f"bucket_batch_by_length: there is no column \"{name}\"; there are {names}")
        padding = Padding("bucket_batch_by_length", {} if pad_info is None else pad_info, names)
        rows = self._ragged_rows("bucket_batch_by_length")
        buckets = Buckets(names, list(column_names), list(bucket_boundaries), list(bucket_batch_sizes), element_length_function, padding,
                          pad_to_bucket_boundary, drop_remainder)
        made = self._of_ragged(RaggedRows.streamed(lambda epoch: buckets(rows.rows(epoch)), names, None, rows.num_shards(), config.get_seed(),
                                                   buckets.unbatched(rows, config.get_seed())))
        made.is_batched = True
        return made

    def build_vocab(self, columns, freq_range, top_k, special_tokens, special_first):
        """text.Vocab.from_dataset() of this data set."""
        from mindspore.dataset.text import Vocab
        return Vocab.from_dataset(self, columns, freq_range, top_k, special_tokens, special_first)

    def _batch_source(self, batch_size, drop_remainder, per_batch_map=None, input_columns=None, output_columns=None, column_order=None, **others):
        """The rows that become batches; per_batch_map is called with the rows of each."""
        _check_settings("batch", others, ("python_multiprocessing", "max_rowsize"), {
            "pad_info": "pad rows in map(), transforms.PadEnd does it"},
                        ("batch_size", "drop_remainder", "num_parallel_workers", "per_batch_map", "input_columns", "output_columns", "column_order"))
        if per_batch_map is None:
            if input_columns or output_columns or column_order:
                raise ValueError("batch: input_columns, output_columns and column_order are those of per_batch_map, which is not given")
            return _stacked_batches(self.native) if self.is_batched and not isinstance(self.native, RaggedRows) else self.native
        if self.is_batched:
            raise NotImplementedError("batch: per_batch_map of a data set after batch() is not available: call it in the first batch()")
        names = self.native.column_names()
        inputs = [input_columns] if isinstance(input_columns, str) else list(input_columns or names)
        outputs = [output_columns] if isinstance(output_columns, str) else list(output_columns or inputs)
        for name in inputs:
            if name not in names:
                raise RuntimeError(f"batch: there is no column \"{name}\"; there are {names}")
        kept = [name for name in names if name not in inputs]
        size = len(self) // batch_size * batch_size if drop_remainder else len(self)
        source = self.native if self.ragged is None else self.ragged
        rows = _RowsByBatch(source, (batch_size, drop_remainder), per_batch_map, inputs, outputs)
        if isinstance(source, RaggedRows):
            native = _ragged_stream(rows, outputs + kept, size, self.native.num_shards())
        else:
            native = _stream(rows, outputs + kept, size, self.native.num_shards())
        order = column_order or (names if outputs == inputs else None)
        return native if order is None else native.project(list(order))

    def repeat(self, count=None):
        """count epochs become one; None or -1: no end."""
        count = -1 if count is None else count
        if isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(f"Argument count with value {count} is not of type [<class 'int'>].")
        if count < -1 or count == 0:
            raise ValueError(f"count should be either -1 or positive integer, but got {count}.")
        return self if count == 1 else self._then(lambda native: native.repeat(count))

    def take(self, count=-1):
        """The first count rows."""
        return self if count == -1 else self._then(lambda native: native.take(count))

    def skip(self, count):
        """All but the first count rows."""
        return self._then(lambda native: native.skip(count))

    def get_dataset_size(self):
        """Rows of an epoch: batches once batched."""
        return self.native.get_dataset_size()

    def get_batch_size(self):
        """1 where nothing is batched."""
        return self.native.get_batch_size()

    def get_repeat_count(self):
        """The product of the repeats; -1 without end."""
        return self.native.get_repeat_count()

    def get_col_names(self):
        """The names of the columns."""
        return self.native.column_names()

    def output_types(self):
        """NumPy's dtypes of the columns."""
        if isinstance(self.native, RaggedRows):
            return self.native.output_dtypes()
        return [np.dtype(dtype.name.rstrip("_")) for dtype in self.native.output_types()]

    def output_shapes(self, estimate=False):
        """The sizes of a row's columns, which all rows share, so that estimate has no effect."""
        return [list(shape) for shape in self.native.output_shapes()]

    def reset(self):
        """Each iterator starts anew anyway."""

    def __len__(self):
        return self.get_dataset_size()

    def begin_epoch(self):
        """The number of the epoch that begins. Ranks that run one program count alike."""
        if _epoch.number is not None:
            return _epoch.number
        self._num_begun += 1
        return self._num_begun - 1

    def create_tuple_iterator(self, columns=None, num_epochs=-1, output_numpy=False, do_copy=True):
        """Lists of tensors, one per column; each loop over the iterator is an epoch, of num_epochs at most. What is shuffled has a new order in each,
        also where a loop has an iterator of its own."""
        names = self.native.column_names()
        places = range(len(names)) if columns is None else [names.index(name) for name in columns]
        return _Epochs(self, num_epochs, lambda row: [row[i].numpy() if output_numpy else row[i] for i in places])

    def create_dict_iterator(self, num_epochs=-1, output_numpy=False, do_copy=True):
        """The same as dictionaries by column."""
        names = self.native.column_names()
        return _Epochs(self, num_epochs, lambda row: dict(zip(names, [column.numpy() for column in row] if output_numpy else row)))

    def __iter__(self):
        return self.create_tuple_iterator()


def _orders(make, shuffle, num_workers):
    """What Dataset's __init__ takes, of make(shuffles): tessera's data set."""
    shuffles = True if shuffle is None else shuffle
    native = make(shuffles)
    return native, num_workers, make(False) if shuffles else native


def _check_batch_size(batch_size):
    if isinstance(batch_size, bool) or not isinstance(batch_size, int):
        raise TypeError(f"Argument batch_size with value {batch_size} is not of type [<class 'int'>].")
    if batch_size < 1:
        raise ValueError(f"Input batch_size is not within the required interval of [1, 2147483647], but got {batch_size}.")


def _check_buckets(column_names, boundaries, sizes, length):
    """TypeError or ValueError for what bucket_batch_by_length cannot do."""
    for name, value in (("column_names", column_names), ("bucket_boundaries", boundaries), ("bucket_batch_sizes", sizes)):
        if not isinstance(value, list):
            raise TypeError(f"Argument {name} with value {value} is not of type [{list}], but got {type(value)}.")
    if not column_names:
        raise ValueError("column_names should not be empty.")
    if length is None and len(column_names) != 1:
        raise ValueError("If element_length_function is not specified, exactly one column name should be passed.")
    if length is not None and not callable(length):
        raise TypeError("element_length_function object is not callable.")
    if not boundaries:
        raise ValueError("bucket_boundaries cannot be empty.")
    for name, values in (("bucket_boundaries", boundaries), ("bucket_batch_sizes", sizes)):
        if any(isinstance(value, bool) or not isinstance(value, int) for value in values):
            raise TypeError(f"{name} should be a list of int.")
    if min(boundaries) <= 0:
        raise ValueError("bucket_boundaries must only contain positive numbers.")
    if any(a >= b for a, b in zip(boundaries, boundaries[1:])):
        raise ValueError("bucket_boundaries should be strictly increasing.")
    if len(sizes) != len(boundaries) + 1:
        raise ValueError("bucket_batch_sizes must contain one element more than bucket_boundaries.")
    if min(sizes) < 1:
        raise ValueError("bucket_batch_sizes should be a list of positive numbers.")


# What data sets of the reference have, too, and what to use instead.
_ABSENT = {
    "flat_map": "make one data set of the rows by a GeneratorDataset",
    "save": "read its rows and write them by NumPy", "sync_wait": "callbacks of Model.train see every step",
    "sync_update": "callbacks of Model.train see every step", "to_json": "print it",
    "build_sentencepiece_vocab": "build it in Python",
}


def check_cache(who, cache):
    """NotImplementedError for a DatasetCache."""
    if cache is not None:
        raise NotImplementedError(f"{who}: cache is not available: the system keeps the files that were read, and rows are made anew in each epoch")


def _absent(name, instead):
    def refuse(*args, **kwargs):
        raise NotImplementedError(f"{name} is not available: {instead}")

    return refuse


def _split_counts(sizes, total):
    """The rows of each part."""
    if not isinstance(sizes, (list, tuple)) or not sizes:
        raise ValueError("sizes must be a list that is not empty.")
    if all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes):
        if sum(sizes) != total:
            raise RuntimeError(f"Sum of split sizes {sum(sizes)} is not equal to dataset size {total}.")
        return list(sizes)
    if not all(isinstance(size, float) and 0 < size <= 1 for size in sizes) or abs(sum(sizes) - 1) > 1e-6:
        raise ValueError(f"sizes must be positive ints, or floats in (0, 1] that sum to 1, but got {list(sizes)}.")
    counts = [round(size * total) for size in sizes]
    # What rounding has left is shared by the first ones.
    for i in range(len(counts) * 2):
        if sum(counts) != total:
            counts[i % len(counts)] += 1 if sum(counts) < total else -1
    if min(counts) < 1 or sum(counts) != total:
        raise RuntimeError(f"split: parts {list(sizes)} of {total} rows leave one without rows")
    return counts


def zip_datasets(datasets):
    """Rows with the columns of all data sets, as many as the shortest has."""
    if not isinstance(datasets, tuple):
        raise TypeError(f"Invalid datasets, expected Dataset object or tuple of Dataset, but got {type(datasets).__name__}.")
    names = [name for dataset in datasets if isinstance(dataset, Dataset) for name in dataset.get_col_names()]
    if len(set(names)) < len(names):
        raise RuntimeError(f"zip: the data sets have a column of one name, they are {names}: rename one")
    if not datasets:
        raise ValueError("zip: there are no data sets")
    size = min(len(dataset) if isinstance(dataset, Dataset) else 0 for dataset in datasets)
    return _of_sets("zip", list(datasets), names, size, _side_by_side)


class Cifar10Dataset(Dataset):
    """CIFAR-10's binary files: columns image uint8 [32,32,3] and label uint32. usage: train, test, all (None)."""

    @_takes_samplers
    def __init__(self, dataset_dir, usage=None, num_samples=None, num_parallel_workers=None, shuffle=None, sampler=None,
                 num_shards=None, shard_id=None, cache=None):
        check_cache("Cifar10Dataset", cache)
        if usage not in (None, "train", "test", "all"):
            raise ValueError(f"Input usage is not within the valid set of ['train', 'test', 'all'], but got {usage}.")
        shuffle, num_shards, shard_id = samplers.settings(sampler, shuffle, num_shards, shard_id, num_samples)
        shards, shard = check_shard(num_shards, shard_id)
        super().__init__(*_orders(lambda shuffles: _data.cifar10(dataset_dir, usage or "all", shuffles, num_samples or 0, shards, shard,
                                                                 config.get_seed()), shuffle, num_parallel_workers))
        self._sampled(sampler)


class MnistDataset(Dataset):
    """MNIST's IDX files: columns image uint8 [28,28,1] and label uint32. usage: train, test, all (None)."""

    @_takes_samplers
    def __init__(self, dataset_dir, usage=None, num_samples=None, num_parallel_workers=None, shuffle=None, sampler=None,
                 num_shards=None, shard_id=None, cache=None):
        check_cache("MnistDataset", cache)
        if usage not in (None, "train", "test", "all"):
            raise ValueError(f"Input usage is not within the valid set of ['train', 'test', 'all'], but got {usage}.")
        shuffle, num_shards, shard_id = samplers.settings(sampler, shuffle, num_shards, shard_id, num_samples)
        shards, shard = check_shard(num_shards, shard_id)
        if usage is None:  # what is there
            there = [part for part, file in (("train", "train-images-idx3-ubyte"), ("test", "t10k-images-idx3-ubyte"))
                     if os.path.exists(os.path.join(dataset_dir, file))]
            usage = there[0] if len(there) == 1 else "all"
        super().__init__(*_orders(lambda shuffles: _data.mnist(dataset_dir, usage, shuffles, num_samples or 0, shards, shard,
                                                               config.get_seed()), shuffle, num_parallel_workers))
        self._sampled(sampler)


class FashionMnistDataset(MnistDataset):
    """Fashion-MNIST's files, which are as MNIST's: Xiao et al., 2017."""


class KMnistDataset(MnistDataset):
    """KMNIST's files, which are as MNIST's: Clanuwat et al., 2018."""


class _ImageFiles:
    """Images in folders, whose sizes differ, by their numbers."""

    def __init__(self, directory, classes, extensions, decode):
        self._decode, self._paths, self.labels = _data.decode() if decode else None, [], []
        for name, label in sorted(classes.items()):
            folder = os.path.join(directory, name)
            found = [os.path.join(folder, file) for file in sorted(os.listdir(folder)) if not extensions or os.path.splitext(file)[1] in extensions]
            found = [path for path in found if not os.path.isdir(path)]
            self._paths += found
            self.labels += [label] * len(found)
        if not self._paths:
            raise RuntimeError(f"ImageFolderDataset: the folders of {directory} have no files{f' whose names end with {extensions}' if extensions else ''}")

    def __len__(self):
        return len(self._paths)

    def __getitem__(self, i):
        image = np.fromfile(self._paths[i], np.uint8)
        return image if self._decode is None else self._decode(image).numpy(), np.int32(self.labels[i])


class ImageFolderDataset(Dataset):
    """Images in the folders of a folder, one for each class: columns image, the bytes of a file or with decode=True uint8 [h,w,3], and
    label int32. extensions: of the files that count, as they are written; class_indexing: {folder: label}, others are left out. JPEG, PNG
    and BMP are decoded. Images become one size by map(), before batch()."""

    @_takes_samplers
    def __init__(self, dataset_dir, num_samples=None, num_parallel_workers=None, shuffle=None, sampler=None, extensions=None,
                 class_indexing=None, decode=False, num_shards=None, shard_id=None, cache=None, decrypt=None):
        check_cache("ImageFolderDataset", cache)
        if not isinstance(decode, bool):
            raise TypeError(f"Argument decode with value {decode} is not of type [<class 'bool'>], but got {type(decode)}.")
        if decrypt is not None:
            raise NotImplementedError("ImageFolderDataset: decrypt is not available")
        for name, value, kind in (("extensions", extensions, list), ("class_indexing", class_indexing, dict)):
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"Argument {name} with value {value} is not of type [{kind}], but got {type(value)}.")
        if not os.path.isdir(dataset_dir):
            raise ValueError(f"The folder {dataset_dir} does not exist or is not a directory or permission denied!")
        shuffle, num_shards, shard_id = samplers.settings(sampler, shuffle, num_shards, shard_id, num_samples)
        shards, shard = check_shard(num_shards, shard_id)
        self._classes = dict(class_indexing or _data.image_classes(dataset_dir))
        if sampler is not None and samplers.of(sampler).chooses_by_number:
            files = _ImageFiles(dataset_dir, self._classes, extensions, decode)
            rows = RaggedRows.listed(files, ["image", "label"], _data.tensors({"place": np.arange(len(files))}))
            rows.labels = files.labels
            super().__init__(rows, num_parallel_workers, rows)
            self._sampled(sampler)
            return

        def source(shuffles):
            native = _data.image_folder(dataset_dir, extensions or [], class_indexing or {}, shuffles, num_samples or 0, shards, shard, config.get_seed())
            return native.map("image", [_data.decode()]) if decode else native

        super().__init__(*_orders(source, shuffle, num_parallel_workers))
        self._sampled(sampler)

    def get_class_indexing(self):
        """{folder: label}."""
        return dict(self._classes)


def _opener(source):
    """The function that gives the rows of a source that is no list, from the first one on."""
    if not callable(source) and not hasattr(source, "__iter__"):
        raise TypeError(f"For 'GeneratorDataset', the 'source' must be a generator function, an iterable or have __getitem__ and __len__, but got {type(source).__name__}.")
    if not inspect.isfunction(source) and not inspect.ismethod(source) and hasattr(source, "__iter__"):
        return lambda: iter(source)

    @functools.wraps(source)
    def opened():
        rows = source()
        if not hasattr(rows, "__iter__"):
            raise TypeError(f"For 'GeneratorDataset', the 'source' must give rows one after the other, by yield, but it returned {type(rows).__name__}.")
        return rows
    return opened


def _is_read_once(source):
    """Whether it is an iterator that cannot begin anew, as a generator is; one of a class in Python begins anew in its __iter__."""
    return isinstance(source, collections.abc.Iterator) and not inspect.isfunction(getattr(type(source), "__iter__", None))


class _KeptRows:
    """The rows of an iterator, which are read once and kept as they come."""

    def __init__(self, rows):
        self._rows, self.kept, self._error, self._lock = rows, [], None, threading.Lock()

    def _has(self, place):
        """Whether there is a row of this number, the next one at most."""
        with self._lock:
            if place < len(self.kept):
                return True
            if self._error is not None:
                raise self._error
            try:
                self.kept.append(_own(next(self._rows)))
            except StopIteration:
                return False
            except Exception as error:
                self._error = error  # a generator that has raised would seem to be at its end
                raise
            return True

    def __iter__(self):
        place = 0
        while self._has(place):
            yield self.kept[place]
            place += 1


def _own(row):
    """The row with arrays of its own: a generator may fill the same ones again."""
    if isinstance(row, dict):
        return {name: _own(value) for name, value in row.items()}
    if isinstance(row, (tuple, list)):
        return tuple(map(_own, row)) if type(row) is tuple else list(map(_own, row)) if type(row) is list else row
    return row.copy() if isinstance(row, np.ndarray) else row


class GeneratorDataset(Dataset):
    """Samples from Python: a generator function, an iterable, or an object with __getitem__ and __len__. A data set is iterated over; to be shuffled or
    sharded its rows are read once and kept. batch_sampler: rows are batches, of the samples
    whose numbers it gives for each; collate_fn makes the columns of those of its samples, a list of arrays for each, else these are stacked. A source that draws
    random numbers tells their state by state() and set_state(state), or state_dict() and load_state_dict(state), see docs/cluster.md."""

    @_takes_samplers
    def __init__(self, source, column_names=None, column_types=None, schema=None, num_samples=None, num_parallel_workers=1,
                 shuffle=None, sampler=None, num_shards=None, shard_id=None, python_multiprocessing=True, max_rowsize=6, batch_sampler=None, collate_fn=None):
        if schema is not None:
            raise NotImplementedError("GeneratorDataset: a schema is not available: column_names and column_types say what it would")
        if column_names is None:
            raise ValueError("Neither columns_names nor schema are provided.")
        names = [column_names] if isinstance(column_names, str) else list(column_names)
        if isinstance(source, Dataset) and (shuffle or num_shards or sampler is not None):
            source = [tuple(np.array(value) for value in row) for row in source.create_tuple_iterator(num_epochs=1, output_numpy=True)]
        # What is read once is kept: no later pass draws.
        self._state_of = None if _is_read_once(source) else source
        source = _KeptRows(source) if _is_read_once(source) else source
        self._rows_source, self._is_list = source, _is_list(source)
        if batch_sampler is not None:
            others = dict(num_samples=num_samples, shuffle=shuffle, num_shards=num_shards, shard_id=shard_id, sampler=sampler)
            source = _SampledBatches(source, batch_sampler, collate_fn, [name for name, value in others.items() if value is not None]).opened
        elif collate_fn is not None:
            raise ValueError("GeneratorDataset: collate_fn makes the batches of batch_sampler, which is not given.")
        sampler, num_samples = samplers.limited(sampler, num_samples)
        shuffle, num_shards, shard_id = samplers.settings(sampler, shuffle, num_shards, shard_id, num_samples, ValueError)
        shards, shard = check_shard(num_shards, shard_id)
        is_list = hasattr(source, "__getitem__") and hasattr(source, "__len__")
        # Counted here: rows may have one size only after a map.
        size = None if is_list or shuffle else len(batch_sampler) if hasattr(batch_sampler, "__len__") else (
            sum(1 for _ in itertools.islice(_opener(source)(), num_samples or None)))
        self._rows_of = (source, dict(num_samples=num_samples or 0, shuffle=shuffle, shards=shards, shard=shard, size=size))
        super().__init__(*self._made(source, names, num_parallel_workers, **self._rows_of[1], state_of=self._state_of))
        if batch_sampler is None:
            self.ragged = self.native if isinstance(self.native, RaggedRows) else _ragged_source(source, names, **self._rows_of[1])
        for name, dtype in zip(names, column_types or ()):
            cast = _data.type_cast(dtype)
            self.native, self._in_order = (self._mapped(native, [cast], [name], [name], None) for native in (self.native, self._in_order))
            self.ragged = None if self.ragged is None else self._mapped(self.ragged, [cast], [name], [name], None)
        self._sampled(sampler)
        if column_types or sampler is not None:
            self._rows_of = None

    @staticmethod
    def _made(source, names, num_workers, num_samples, shuffle, shards, shard, size, state_of):
        """What Dataset's __init__ takes. size: of a source that is no list; state_of: whose random numbers the rows are made with."""
        if _has_ragged_rows(source, names):
            settings = dict(num_samples=num_samples, shards=shards, shard=shard, size=size)
            native = _ragged_source(source, names, shuffle=shuffle, **settings)
            return native, num_workers, _ragged_source(source, names, shuffle=False, **settings)
        if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
            return _orders(lambda shuffles: _data.generator(source, names, num_samples, shuffles, shards, shard, config.get_seed(), state_of), shuffle, num_workers)
        if shards > 1 or shuffle:
            raise RuntimeError("num_shards and shuffle need a source with __getitem__ and __len__")
        native = _data.stream(_opener(source), names, size, num_samples, config.get_seed(), state_of=state_of)
        return native, num_workers, native

    def _mapped_source(self, operations, columns, outputs, column_order, num_workers):
        """The data set of the source's rows as functions change them, which may have other sizes than each other before that."""
        source, settings = self._rows_of
        rows = _MappedRows(source, self.native.column_names(), columns, outputs, column_order, _in_turn(operations))
        is_list = hasattr(source, "__getitem__") and hasattr(source, "__len__")
        made = GeneratorDataset.__new__(GeneratorDataset)
        made._rows_of, made._state_of = (rows if is_list else rows.opened, settings), self._state_of
        Dataset.__init__(made, *self._made(*made._rows_of[:1], rows.names, num_workers or self.num_workers, **settings, state_of=self._state_of))
        made.ragged = made.native if isinstance(made.native, RaggedRows) else _ragged_source(made._rows_of[0], rows.names, **settings)
        return made


def _is_list(source):
    return hasattr(source, "__getitem__") and hasattr(source, "__len__")


def _has_ragged_rows(source, names):
    """Whether the first row has strings, or the last one other sizes than it; of rows that are kept any one."""
    if isinstance(source, _KeptRows):
        next(iter(source), None)
        rows = source.kept
    elif not _is_list(source):
        first = next(iter(_opener(source)()), None)
        rows = [] if first is None else [first]
    else:
        rows = [source[i] for i in dict.fromkeys((0, len(source) - 1))] if len(source) > 0 else []
    values = [[row[name] for name in names] if isinstance(row, dict) else row if isinstance(row, (tuple, list)) else (row, ) for row in rows]
    is_text = any(isinstance(value, (str, bytes)) or not hasattr(value, "asnumpy") and np.asarray(value).dtype.kind in "US" for row in values for value in row)
    return is_text or len({tuple(np.shape(value) for value in row) for row in values}) > 1


def _ragged_source(source, names, num_samples, shuffle, shards, shard, size):
    """The rows of a source as Python makes them, in the order in which tessera would read them."""
    if _is_list(source):
        numbers = _data.tensors({"place": np.arange(len(source))}, True if shuffle is None else shuffle, shards, shard, config.get_seed(), num_samples)
        return RaggedRows.listed(source, names, numbers, shards)
    if shards > 1 or shuffle:
        raise RuntimeError("num_shards and shuffle need a source with __getitem__ and __len__")
    made = RaggedRows.streamed(lambda epoch: _opener(source)(), names, size, 1, config.get_seed())
    return made.take(num_samples) if num_samples else made


class _SampledBatches:
    """Batches of a source of Python's whose samples a batch_sampler chooses."""

    def __init__(self, source, batch_sampler, collate_fn, others):
        if others:
            raise ValueError(f"GeneratorDataset: batch_sampler cannot be specified together with {', '.join(others)}.")
        if not hasattr(batch_sampler, "__iter__"):
            raise TypeError("batch_sampler should have __iter__: it must be iterable.")
        if collate_fn is not None and not callable(collate_fn):
            raise TypeError("collate_fn must be callable.")
        if not hasattr(source, "__getitem__"):
            raise RuntimeError("GeneratorDataset: batch_sampler needs a source with __getitem__.")
        self._source, self._collate = source, collate_fn
        self._batch_sampler = list(batch_sampler) if iter(batch_sampler) is batch_sampler else batch_sampler  # each pass begins anew

    def opened(self):
        """The batches of a pass, each a tuple of columns."""
        for numbers in self._batch_sampler:
            samples = [self._source[int(i)] for i in numbers]
            rows = [sample if isinstance(sample, tuple) else (sample, ) for sample in samples]
            columns = [[np.asarray(item) for item in column] for column in zip(*rows)]
            made = tuple(map(np.stack, columns)) if self._collate is None else self._collate(*columns)
            yield made if isinstance(made, tuple) else (made, )


class _MappedRows:
    """The rows of a source of Python's, some columns of which a function has made."""

    def __init__(self, source, names, columns, outputs, column_order, function):
        self._source, self._old, self._columns, self._outputs, self._function = source, names, columns, outputs, function
        self.names = names_behind(names, columns, outputs, column_order)

    def _row(self, row):
        found = dict(zip(self._old, row_of(row, self._old)))
        made = self._function(*[found[name] for name in self._columns])
        if len(made) != len(self._outputs):
            raise RuntimeError(f"map: the operations give {len(made)} columns, and output_columns names {len(self._outputs)}")
        found = {name: value for name, value in found.items() if name not in self._columns} | dict(zip(self._outputs, made))
        return tuple(found[name] for name in self.names)

    def __len__(self):
        return len(self._source)

    def __getitem__(self, i):
        return self._row(self._source[i])

    def opened(self):
        """Its rows, one by one, of a source that is no list."""
        return (self._row(row) for row in _opener(self._source)())


class NumpySlicesDataset(Dataset):
    """Row i of each array is sample i."""

    @_takes_samplers
    def __init__(self, data, column_names=None, num_samples=None, num_parallel_workers=1, shuffle=None, sampler=None,
                 num_shards=None, shard_id=None):
        sampler, num_samples = samplers.limited(sampler, num_samples)
        shuffle, num_shards, shard_id = samplers.settings(sampler, shuffle, num_shards, shard_id, num_samples, ValueError)
        shards, shard = check_shard(num_shards, shard_id)
        if isinstance(data, dict):
            columns = data
        else:
            arrays = data if isinstance(data, tuple) else (data,)
            names = [column_names] if isinstance(column_names, str) else column_names or [f"column_{i}" for i in range(len(arrays))]
            if len(names) != len(arrays):
                raise ValueError(f"For 'NumpySlicesDataset', the data has {len(arrays)} column{'s' if len(arrays) > 1 else ''}, but 'column_names' has "
                                 f"{len(names)}: {names}.")
            columns = dict(zip(names, arrays))
        columns = {name: column_of(array) for name, array in columns.items()}

        def source(shuffles):
            if not any(array.dtype.kind in "US" for array in columns.values()):
                return _data.tensors(columns, shuffles, shards, shard, config.get_seed(), num_samples or 0)
            rows = list(zip(*columns.values()))
            return _ragged_source(rows, list(columns), num_samples or 0, shuffles, shards, shard, None)

        super().__init__(*_orders(source, shuffle, num_parallel_workers))
        self.ragged = self.native if isinstance(self.native, RaggedRows) else None
        self._sampled(sampler)


class RowsOfRanks(enum.Enum):
    """What the ranks of a job read of the data sets that they train on."""
    OWN = "each what its data set gives"
    PARTS = "rows of its own of each batch"
    WHOLE = "all the same rows"


def rows_of_ranks():
    """What the context says of it now."""
    setting = context.get_auto_parallel_context
    if setting("parallel_mode") in (context.ParallelMode.STAND_ALONE, context.ParallelMode.HYBRID_PARALLEL):
        return RowsOfRanks.OWN
    has_strategy = not isinstance(setting("dataset_strategy"), str)
    return RowsOfRanks.WHOLE if setting("full_batch") or has_strategy else RowsOfRanks.PARTS


def native_dataset(dataset, rows=RowsOfRanks.OWN, num_stages=1):
    """tessera's data set of a Dataset, or of an object of one's own with get_dataset_size and create_tuple_iterator (or
    __iter__), whose rows are batches; and how many workers it wants. rows: of a data set to train on rows_of_ranks(), which the ranks of each of
    so many stages share."""
    if isinstance(dataset, Dataset):
        native, num_workers = dataset.native, dataset.num_workers or config.get_num_parallel_workers()
        native = native.uniform() if isinstance(native, RaggedRows) else native
        if not dataset.is_batched:
            native = _of_batches(native)
    else:
        native, num_workers = dataset if isinstance(dataset, _data.Dataset) else _own_dataset(dataset), 1
    return _of_this_rank(native, rows, num_stages), num_workers


def of_this_many_ranks(native, rows):
    """What this rank evaluates on: a part of another number than there are ranks counts as its part of theirs."""
    parts, ranks = native.num_shards(), tessera.cluster.size()
    if rows is not RowsOfRanks.PARTS or parts in (1, ranks) or tessera.cluster.num_servers() > 0:
        return native
    context.warn_once(f"eval: the data set has num_shards={parts}, and there {'is 1 rank' if ranks == 1 else f'are {ranks} ranks'}: some rows nobody "
                      "evaluates, or several ranks do")
    return native.as_part_of(ranks)


def _of_this_rank(native, rows, num_stages):
    """What this rank trains on, whether its source was sharded or not."""
    # Beside servers all read whole batches, of which each that trains takes its rows; a source that was sharded is refused there.
    if rows is RowsOfRanks.OWN or rows is RowsOfRanks.PARTS and tessera.cluster.num_servers() > 0:
        return native
    if rows is RowsOfRanks.PARTS:
        return native.as_part_of(max(tessera.cluster.size() // num_stages, 1))
    if native.num_shards() > 1:
        context.warn_once(f"full_batch and dataset_strategy mean that all ranks read the same rows; with num_shards={native.num_shards()} "
                          "they do not")
    return native.as_part_of(1)


class _Rows:
    """The rows of the batches of a data set of one's own, with the batch's size once known."""

    def __init__(self, dataset):
        self.dataset = dataset

    def batches(self, epoch=0):
        dataset = self.dataset
        # What it reads of other data sets is of the same epoch, however often it was read before: a training that is resumed reads on.
        _epoch.number = epoch
        try:
            if hasattr(dataset, "reset"):
                dataset.reset()
            make = getattr(dataset, "create_tuple_iterator", None)
            batches = iter(make(num_epochs=1) if make is not None else dataset)
            batch = next(batches, None)
        finally:
            _epoch.number = None
        while batch is not None:  # a loop over `batches` might begin it anew
            yield [np.asarray(column) for column in (batch if isinstance(batch, (tuple, list)) else (batch,))]
            batch = next(batches, None)

    def rows(self, epoch):
        for batch in self.batches(epoch):
            yield from zip(*batch)


class _RowsOfBatches:
    """The rows of a data set whose own rows are batches."""

    def __init__(self, native):
        self._native = native

    def rows(self, epoch):
        """Those of an epoch."""
        size = None
        for number, batch in enumerate(self._native.batches(1, 0, epoch)):
            columns = [column.numpy() for column in batch]
            size = self._size(columns, number, size)
            yield from zip(*columns)

    def _size(self, columns, number, size):
        shapes = {name: list(column.shape) for name, column in zip(self._native.column_names(), columns)}
        sizes = {shape[0] if shape else None for shape in shapes.values()} | ({size} if size is not None else set())
        if None in sizes or len(sizes) > 1:
            raise ValueError(f"a data set without batch() gives its rows as batches, of one size in each column: row {number} has the shapes "
                             f"{shapes}{'' if size is None else f', the rows before it {size} samples'}")
        return sizes.pop()


def _stacked_batches(native):
    """Batches as samples of another batch, all of one size."""
    return _stream(lambda epoch: ([column.numpy() for column in batch] for batch in native.batches(1, 0, epoch)), native.column_names(),
                   native.get_dataset_size(), native.num_shards())


def _of_batches(native):
    """A data set that was not batched, because its rows are batches already."""
    rows = _RowsOfBatches(native)
    shapes = dict(zip(native.column_names(), native.output_shapes()))
    size = rows._size([np.empty(shape, bool) for shape in shapes.values()], 0, None)
    return _stream(rows.rows, native.column_names(), native.get_dataset_size() * size, native.num_shards()).batch(size, True)


def _own_dataset(dataset):
    if not hasattr(dataset, "create_tuple_iterator") and not hasattr(dataset, "__iter__"):
        raise TypeError(f"The data set must be a Dataset or have create_tuple_iterator, but got {type(dataset).__name__}.")
    arrays = (np.ndarray, tessera.Tensor)
    if isinstance(dataset, arrays) or isinstance(dataset, (tuple, list)) and dataset and all(isinstance(item, arrays) for item in dataset):
        raise TypeError(f"The data set must be a Dataset, whose rows are batches, but got {type(dataset).__name__}"
                        f"{'' if isinstance(dataset, arrays) else ' of arrays'}: NumpySlicesDataset((data, label), [\"data\", \"label\"]).batch(32) makes one of arrays.")
    rows = _Rows(dataset)
    first = next(rows.batches())
    size = first[0].shape[0]
    count = dataset.get_dataset_size() if hasattr(dataset, "get_dataset_size") else sum(1 for _ in rows.batches())
    return _data.stream(rows.rows, [f"column_{i}" for i in range(len(first))], count * size, by_epoch=True).batch(size, True)
