"""Data sets, each a value: map, shuffle, batch and repeat give new ones. `native` is tessera's."""
import inspect
import os

import numpy as np
import tessera
from tessera import data as _data

from mindspore import context
from mindspore.dataset import config


def _shard(num_shards, shard_id, sampler):
    if sampler is not None:
        raise NotImplementedError("sampler is not available; num_shards, shard_id, shuffle and num_samples are")
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
        return tuple(np.asarray(column) for column in columns)

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


class _Epochs:
    """Rows of a data set; each loop over it is an epoch."""

    def __init__(self, dataset, num_epochs, convert):
        self._dataset, self._num_epochs, self._convert = dataset, num_epochs, convert
        self._epoch, self._rows = 0, None

    def __iter__(self):
        self._rows = None
        return self

    def __next__(self):
        if self._rows is None:
            if 0 <= self._num_epochs <= self._epoch:
                raise StopIteration
            self._rows = self._dataset.native.batches(1, self._dataset.num_workers or 1, self._epoch)
            self._epoch += 1
        try:
            return self._convert(next(self._rows))
        except StopIteration:
            self._rows = None
            raise


class Dataset:
    """A data set; map, shuffle, batch, repeat, take and skip give new ones."""

    is_batched = False

    def __init__(self, native, num_workers=None):
        self.native = native
        self.num_workers = num_workers

    def _with(self, native, num_workers=None):
        made = Dataset(native, num_workers or self.num_workers)
        made.is_batched = self.is_batched
        return made

    def map(self, operations, input_columns=None, output_columns=None, column_order=None, num_parallel_workers=None, **kwargs):
        """Replaces columns by what the operations make of them, one after the other: transforms, or functions of as many
        arrays as there are columns. output_columns: the names of what comes out, where they differ; column_order: the
        columns that are kept, in their order."""
        operations = [op for given in (operations if isinstance(operations, (list, tuple)) else [operations]) for op in _natives(given)]
        columns = [input_columns] if isinstance(input_columns, str) else list(input_columns or self.native.column_names()[:1])
        outputs = [output_columns] if isinstance(output_columns, str) else list(output_columns or columns)
        for column in columns:
            if column not in self.native.column_names():
                raise RuntimeError(f"map: there is no column \"{column}\"; there are {self.native.column_names()}")
        for operation in operations:
            if not callable(operation):
                raise TypeError(f"map: an operation must be callable, but got {type(operation).__name__}.")
        native = self.native
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
        return self._with(native if column_order is None else native.project(list(column_order)), num_parallel_workers)

    def project(self, columns):
        """These columns, in this order."""
        return self._with(self.native.project([columns] if isinstance(columns, str) else list(columns)))

    def shuffle(self, buffer_size):
        """A new order in each epoch, as a buffer of so many rows gives it."""
        if isinstance(buffer_size, bool) or not isinstance(buffer_size, int):
            raise TypeError(f"Argument buffer_size with value {buffer_size} is not of type [<class 'int'>].")
        if buffer_size < 2:
            raise ValueError(f"Input buffer_size is not within the required interval of [2, 2147483647], but got {buffer_size}.")
        return self._with(self.native.shuffle(buffer_size))

    def batch(self, batch_size, drop_remainder=False, num_parallel_workers=None, **kwargs):
        """Rows of batch_size samples."""
        if isinstance(batch_size, bool) or not isinstance(batch_size, int):
            raise TypeError(f"Argument batch_size with value {batch_size} is not of type [<class 'int'>].")
        if batch_size < 1:
            raise ValueError(f"Input batch_size is not within the required interval of [1, 2147483647], but got {batch_size}.")
        made = self._with(self.native.batch(batch_size, drop_remainder), num_parallel_workers)
        made.is_batched = True
        return made

    def repeat(self, count=None):
        """count epochs become one; None or -1: no end."""
        count = -1 if count is None else count
        if isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(f"Argument count with value {count} is not of type [<class 'int'>].")
        if count < -1 or count == 0:
            raise ValueError(f"count should be either -1 or positive integer, but got {count}.")
        return self if count == 1 else self._with(self.native.repeat(count))

    def take(self, count=-1):
        """The first count rows."""
        return self if count == -1 else self._with(self.native.take(count))

    def skip(self, count):
        """All but the first count rows."""
        return self._with(self.native.skip(count))

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
        """NumPy's types of the columns."""
        return [np.dtype(dtype.name.rstrip("_")).type for dtype in self.native.output_types()]

    def output_shapes(self):
        """The sizes of a row's columns."""
        return [list(shape) for shape in self.native.output_shapes()]

    def reset(self):
        """Each iterator starts anew anyway."""

    def __len__(self):
        return self.get_dataset_size()

    def create_tuple_iterator(self, columns=None, num_epochs=-1, output_numpy=False, do_copy=True):
        """Lists of tensors, one per column; each loop over the iterator is an epoch, of num_epochs at most."""
        names = self.native.column_names()
        places = range(len(names)) if columns is None else [names.index(name) for name in columns]
        return _Epochs(self, num_epochs, lambda row: [row[i].numpy() if output_numpy else row[i] for i in places])

    def create_dict_iterator(self, num_epochs=-1, output_numpy=False, do_copy=True):
        """The same as dictionaries by column."""
        names = self.native.column_names()
        return _Epochs(self, num_epochs, lambda row: dict(zip(names, [column.numpy() for column in row] if output_numpy else row)))

    def __iter__(self):
        return self.create_tuple_iterator()


class Cifar10Dataset(Dataset):
    """CIFAR-10's binary files: columns image uint8 [32,32,3] and label uint32. usage: train, test, all (None)."""

    def __init__(self, dataset_dir, usage=None, num_samples=None, num_parallel_workers=None, shuffle=None, sampler=None,
                 num_shards=None, shard_id=None, cache=None):
        if usage not in (None, "train", "test", "all"):
            raise ValueError(f"Input usage is not within the valid set of ['train', 'test', 'all'], but got {usage}.")
        shards, shard = _shard(num_shards, shard_id, sampler)
        super().__init__(_data.cifar10(dataset_dir, usage or "all", True if shuffle is None else shuffle, num_samples or 0, shards,
                                       shard, config.get_seed()), num_parallel_workers)


class MnistDataset(Dataset):
    """MNIST's IDX files: columns image uint8 [28,28,1] and label uint32. usage: train, test, all (None)."""

    def __init__(self, dataset_dir, usage=None, num_samples=None, num_parallel_workers=None, shuffle=None, sampler=None,
                 num_shards=None, shard_id=None, cache=None):
        if usage not in (None, "train", "test", "all"):
            raise ValueError(f"Input usage is not within the valid set of ['train', 'test', 'all'], but got {usage}.")
        shards, shard = _shard(num_shards, shard_id, sampler)
        super().__init__(_data.mnist(dataset_dir, usage or "all", True if shuffle is None else shuffle, num_samples or 0, shards,
                                     shard, config.get_seed()), num_parallel_workers)


class FashionMnistDataset(MnistDataset):
    """Fashion-MNIST's files, which are as MNIST's: Xiao et al., 2017."""


class KMnistDataset(MnistDataset):
    """KMNIST's files, which are as MNIST's: Clanuwat et al., 2018."""


class ImageFolderDataset(Dataset):
    """Images in the folders of a folder, one for each class: columns image, the bytes of a file or with decode=True uint8 [h,w,3], and
    label int32. extensions: of the files that count, as they are written; class_indexing: {folder: label}, others are left out. JPEG, PNG
    and BMP are decoded. Images become one size by map(), before batch()."""

    def __init__(self, dataset_dir, num_samples=None, num_parallel_workers=None, shuffle=None, sampler=None, extensions=None,
                 class_indexing=None, decode=False, num_shards=None, shard_id=None, cache=None, decrypt=None):
        if not isinstance(decode, bool):
            raise TypeError(f"Argument decode with value {decode} is not of type [<class 'bool'>], but got {type(decode)}.")
        if decrypt is not None:
            raise NotImplementedError("ImageFolderDataset: decrypt is not available")
        for name, value, kind in (("extensions", extensions, list), ("class_indexing", class_indexing, dict)):
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"Argument {name} with value {value} is not of type [{kind}], but got {type(value)}.")
        if not os.path.isdir(dataset_dir):
            raise ValueError(f"The folder {dataset_dir} does not exist or is not a directory or permission denied!")
        shards, shard = _shard(num_shards, shard_id, sampler)
        native = _data.image_folder(dataset_dir, extensions or [], class_indexing or {}, True if shuffle is None else shuffle, num_samples or 0,
                                    shards, shard, config.get_seed())
        super().__init__(native.map("image", [_data.decode()]) if decode else native, num_parallel_workers)
        self._classes = dict(class_indexing or _data.image_classes(dataset_dir))

    def get_class_indexing(self):
        """{folder: label}."""
        return dict(self._classes)


class GeneratorDataset(Dataset):
    """Samples from Python: a generator function, an iterable, or an object with __getitem__ and __len__."""

    def __init__(self, source, column_names=None, column_types=None, schema=None, num_samples=None, num_parallel_workers=1,
                 shuffle=None, sampler=None, num_shards=None, shard_id=None, python_multiprocessing=True, max_rowsize=6):
        if column_names is None:
            raise ValueError("Neither columns_names nor schema are provided.")
        names = [column_names] if isinstance(column_names, str) else list(column_names)
        shards, shard = _shard(num_shards, shard_id, sampler)
        if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
            native = _data.generator(source, names, num_samples or 0, True if shuffle is None else shuffle, shards, shard, config.get_seed())
        else:
            if shards > 1 or shuffle:
                raise RuntimeError("num_shards and shuffle need a source with __getitem__ and __len__")
            opened = source if inspect.isfunction(source) or inspect.ismethod(source) or not hasattr(source, "__iter__") else lambda: iter(source)
            native = _data.stream(opened, names, -1, num_samples or 0, config.get_seed())
        if column_types is not None:
            for name, dtype in zip(names, column_types):
                native = native.map(name, [_data.type_cast(dtype)])
        super().__init__(native, num_parallel_workers)


class NumpySlicesDataset(Dataset):
    """Row i of each array is sample i."""

    def __init__(self, data, column_names=None, num_samples=None, num_parallel_workers=1, shuffle=None, sampler=None,
                 num_shards=None, shard_id=None):
        shards, shard = _shard(num_shards, shard_id, sampler)
        if isinstance(data, dict):
            columns = data
        else:
            arrays = data if isinstance(data, tuple) else (data,)
            names = [column_names] if isinstance(column_names, str) else column_names or [f"column_{i}" for i in range(len(arrays))]
            columns = dict(zip(names, arrays, strict=True))
        columns = {name: np.asarray(array)[:num_samples] for name, array in columns.items()}
        super().__init__(_data.tensors(columns, True if shuffle is None else shuffle, shards, shard, config.get_seed()), num_parallel_workers)


def native_dataset(dataset, trains=True):
    """tessera's data set of a Dataset, or of an object of one's own with get_dataset_size and create_tuple_iterator (or
    __iter__), whose rows are batches; and how many workers it wants."""
    if isinstance(dataset, Dataset):
        native, num_workers = dataset.native, dataset.num_workers or config.get_num_parallel_workers()
        if not dataset.is_batched:
            native = _of_batches(native)
    else:
        native, num_workers = dataset if isinstance(dataset, _data.Dataset) else _own_dataset(dataset), 1
    return _of_this_rank(native) if trains else native, num_workers


def _of_this_rank(native):
    """What a script trains on are rows of its rank's own, whether its source was sharded or not; or, with full_batch or a
    dataset_strategy, the rows that all ranks read."""
    setting = context.get_auto_parallel_context
    mode = setting("parallel_mode")
    if mode in (context.ParallelMode.STAND_ALONE, context.ParallelMode.HYBRID_PARALLEL):
        return native
    has_strategy = not isinstance(setting("dataset_strategy"), str)
    if not setting("full_batch") and not has_strategy:
        return native.as_part_of(tessera.cluster.size())
    if native.num_shards() > 1:
        context.warn_once(f"full_batch and dataset_strategy mean that all ranks read the same rows; with num_shards={native.num_shards()} "
                          "they do not")
    return native.as_part_of(1)


class _Rows:
    """The rows of the batches of a data set of one's own, with the batch's size once known."""

    def __init__(self, dataset):
        self.dataset = dataset

    def batches(self):
        dataset = self.dataset
        if hasattr(dataset, "reset"):
            dataset.reset()
        make = getattr(dataset, "create_tuple_iterator", None)
        for batch in make(num_epochs=1) if make is not None else iter(dataset):
            yield [np.asarray(column) for column in (batch if isinstance(batch, (tuple, list)) else (batch,))]

    def rows(self):
        for batch in self.batches():
            yield from zip(*batch)


class _RowsOfBatches:
    """The rows of a data set whose own rows are batches."""

    def __init__(self, native):
        self._native, self._epoch = native, 0

    def rows(self):
        native, epoch, size = self._native, self._epoch, None
        self._epoch += 1
        for number, batch in enumerate(native.batches(1, 0, epoch)):
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


def _of_batches(native):
    """A data set that was not batched, because its rows are batches already."""
    rows = _RowsOfBatches(native)
    shapes = dict(zip(native.column_names(), native.output_shapes()))
    size = rows._size([np.empty(shape, bool) for shape in shapes.values()], 0, None)
    made = _data.stream(rows.rows, native.column_names(), native.get_dataset_size() * size).batch(size, True)
    return made.as_part_of(native.num_shards()) if native.num_shards() > 1 else made


def _own_dataset(dataset):
    if not hasattr(dataset, "create_tuple_iterator") and not hasattr(dataset, "__iter__"):
        raise TypeError(f"The data set must be a Dataset or have create_tuple_iterator, but got {type(dataset).__name__}.")
    rows = _Rows(dataset)
    first = next(rows.batches())
    size = first[0].shape[0]
    count = dataset.get_dataset_size() if hasattr(dataset, "get_dataset_size") else sum(1 for _ in rows.batches())
    return _data.stream(rows.rows, [f"column_{i}" for i in range(len(first))], count * size).batch(size, True)
