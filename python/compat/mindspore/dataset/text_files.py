"""Data sets of text files: lines, and tables of comma-separated values."""
import csv
import glob
import os
import re

import numpy as np
from tessera import data as _data

from mindspore.dataset import config
from mindspore.dataset.datasets import Dataset, check_cache, check_shard
from mindspore.dataset.ragged import RaggedRows
from mindspore.dataset.samplers import Shuffle


def _files(patterns):
    """The files that a path, a pattern or a list of these names, sorted."""
    patterns = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(patterns, (list, tuple)) or not all(isinstance(pattern, str) for pattern in patterns):
        raise TypeError(f"Argument dataset_files with value {patterns} is not of type [<class 'str'>, <class 'list'>], but got {type(patterns)}.")
    unmatched = [pattern for pattern in patterns if not glob.glob(pattern)]
    if unmatched:
        raise ValueError(f"The following patterns did not match any files: {unmatched}.")
    return sorted(file for pattern in patterns for file in glob.glob(pattern))


def _read(path):
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise RuntimeError(f"{path} cannot be read as text: {error}") from error


def _lines(path):
    """The lines that are not empty."""
    return [line for line in _read(path).split("\n") if line]


def _mode(shuffle):
    if isinstance(shuffle, bool):
        return Shuffle.GLOBAL if shuffle else Shuffle.FALSE
    if not isinstance(shuffle, Shuffle):
        raise TypeError("shuffle must be of boolean or enum of 'Shuffle' values like 'Shuffle.ADAPTIVE' or 'Shuffle.GLOBAL' or 'Shuffle.PARTIAL' or "
                        "'Shuffle.FILES' or 'Shuffle.INFILE'.")
    if shuffle in (Shuffle.INFILE, Shuffle.PARTIAL):
        raise NotImplementedError(f"shuffle={shuffle} is not available of text files: Shuffle.GLOBAL shuffles all rows, Shuffle.FILES the files")
    return Shuffle.GLOBAL if shuffle == Shuffle.ADAPTIVE else shuffle


class _Places:
    """Which rows of files of these sizes a shard reads, and in which order: workers take the files in turn, and give a row each in turn. The last shards begin
    anew with the first row, so that all have as many."""

    def __init__(self, sizes, shards, shard, num_workers):
        self._sizes, self._num_workers = sizes, max(1, min(num_workers, len(sizes)))
        total = sum(sizes)
        self.count = -(-total // shards)
        self._first = shard * self.count

    def of(self, files):
        """The numbers of the rows, where the files are read in this order."""
        begins = np.cumsum([0, *self._sizes])
        every = np.concatenate([np.arange(begins[file], begins[file + 1]) for file in files])
        own = np.repeat(np.arange(len(files)), [self._sizes[file] for file in files])
        wanted = np.arange(self._first, self._first + self.count) % len(every)
        parts = np.split(wanted, np.flatnonzero(np.diff(own[wanted]) | (np.diff(wanted) < 0)) + 1)
        queues = [list(every[np.concatenate(parts[worker::self._num_workers])]) for worker in range(min(self._num_workers, len(parts)))]
        made = []
        for turn in range(max(map(len, queues))):
            made += [queue[turn] for queue in queues if turn < len(queue)]
        return np.array(made, np.int64)


class _FileDataset(Dataset):
    """Rows of files, read whole when the data set is made."""

    def __init__(self, names, read, files, num_samples, num_parallel_workers, shuffle, num_shards, shard_id, cache):
        who = type(self).__name__
        check_cache(who, cache)
        shuffle = _mode(shuffle)
        if num_samples is not None and (isinstance(num_samples, bool) or not isinstance(num_samples, int)):
            raise TypeError(f"Argument num_samples with value {num_samples} is not of type [<class 'int'>], but got {type(num_samples)}.")
        if num_samples is not None and num_samples < 0:
            raise ValueError("num_samples exceeds the boundary between 0 and 9223372036854775807(INT64_MAX)!")
        self._names, self._num_samples = names, num_samples or 0
        self._shards, shard = check_shard(num_shards, shard_id)
        found = [read(file) for file in files]
        self._rows = [row for rows in found for row in rows]
        if not self._rows:
            raise RuntimeError(f"{who}: there are no rows in {', '.join(files)}")
        places = _Places([len(rows) for rows in found], self._shards, shard, num_parallel_workers or config.get_num_parallel_workers())
        order = places.of(range(len(files)))
        in_order = self._of(_data.tensors({"place": order}, False, 1, 0, config.get_seed(), self._num_samples))
        native = in_order
        if shuffle == Shuffle.GLOBAL:
            native = self._of(_data.tensors({"place": order}, True, 1, 0, config.get_seed(), self._num_samples))
        elif shuffle == Shuffle.FILES:
            seed = config.get_seed() or 0

            def opened(epoch):
                return ((place, ) for place in places.of(np.random.default_rng((seed, epoch)).permutation(len(files))))

            native = self._of(_data.stream(opened, ["place"], places.count, self._num_samples, seed, by_epoch=True))
        super().__init__(native, num_parallel_workers, in_order)
        self.ragged = native if isinstance(native, RaggedRows) else None

    def _of(self, numbers):
        return RaggedRows.listed(self._rows, self._names, numbers, self._shards)


class TextFileDataset(_FileDataset):
    """The lines of text files that are not empty, in the column text. dataset_files: a path, a pattern or a list of these."""

    def __init__(self, dataset_files, num_samples=None, num_parallel_workers=None, shuffle=Shuffle.GLOBAL, num_shards=None, shard_id=None, cache=None):
        super().__init__(["text"], lambda file: [(line, ) for line in _lines(file)], _files(dataset_files), num_samples, num_parallel_workers, shuffle,
                         num_shards, shard_id, cache)


_NUMBER = re.compile(r"\s*([+-]?\d+)")
_DECIMAL = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")


class _Table:
    """Reads files of comma-separated values."""

    def __init__(self, delimiter, defaults, names):
        self._delimiter, self._defaults, self._names, self._has_header = delimiter, defaults, names, names is None

    def _records(self, file):
        """(line, record) of a file, but for empty lines."""
        reader = csv.reader(_read(file).splitlines(keepends=True), delimiter=self._delimiter)
        return [(reader.line_num, record) for record in reader if record]

    def names(self, files):
        """Of the columns: of the first file's first line, where none are given."""
        if self._names is None:
            records = self._records(files[0])
            if not records or len(set(records[0][1])) < len(records[0][1]):
                raise RuntimeError(f"CSVDataset: the first line of {files[0]} does not name the columns, each another way; column_names does")
            self._names = records[0][1]
        return self._names

    def rows(self, file):
        """Of a file."""
        records = self._records(file)
        if self._has_header:
            if not records or records[0][1] != self._names:
                raise RuntimeError(f"CSVDataset: the first line of {file} does not name the columns {self._names}")
            records = records[1:]
        return [self._row(file, *record) for record in records]

    def _row(self, file, line, record):
        if len(record) != len(self._names):
            raise RuntimeError(f"CSVDataset: {file}, line {line} has {len(record)} values for the columns {self._names}")
        if self._defaults is None:
            return tuple(record)
        if len(self._defaults) > len(record):
            raise RuntimeError(f"CSVDataset: {file}, line {line} has {len(record)} values, column_defaults {len(self._defaults)}")
        defaults = [*self._defaults, *[""] * (len(record) - len(self._defaults))]
        return tuple(self._value(file, line, text, default) for text, default in zip(record, defaults))

    @staticmethod
    def _value(file, line, text, default):
        if isinstance(default, str):
            return text
        is_whole = isinstance(default, int)
        found = (_NUMBER if is_whole else _DECIMAL).match(text)
        if found is None or is_whole and not -2**31 <= int(found.group(1)) < 2**31:
            raise RuntimeError(f"CSVDataset: {file}, line {line}: \"{text}\" is no {'int32' if is_whole else 'float32'}, which column_defaults says it is")
        return np.int32(found.group(1)) if is_whole else np.float32(found.group(1))


class CSVDataset(_FileDataset):
    """Files of comma-separated values. column_names: of the columns, else the first line of each file names them. column_defaults: of each column a value of
    its type, an int of int32, a float of float32, a text of strings; those without one are strings."""

    def __init__(self, dataset_files, field_delim=",", column_defaults=None, column_names=None, num_samples=None, num_parallel_workers=None,
                 shuffle=Shuffle.GLOBAL, num_shards=None, shard_id=None, cache=None):
        files = _files(dataset_files)
        field_delim = "," if field_delim is None else field_delim
        if not isinstance(field_delim, str):
            raise TypeError(f"Argument field_delim with value {field_delim} is not of type [<class 'str'>], but got {type(field_delim)}.")
        if len(field_delim) != 1 or field_delim in '"\r\n':
            raise ValueError("field_delim is invalid.")
        for name, values, kinds in (("column_defaults", column_defaults, (int, float, str)), ("column_names", column_names, str)):
            if values is not None and (not isinstance(values, list) or not all(isinstance(value, kinds) and not isinstance(value, bool) for value in values)):
                raise TypeError(f"{name} must be a list of {'str' if kinds is str else 'int, float and str'}, but got {values}.")
        if column_names is not None and len(set(column_names)) < len(column_names):
            raise ValueError(f"column_names must name each column another way, but they are {column_names}.")
        table = _Table(field_delim, column_defaults, column_names)
        super().__init__(table.names(files), table.rows, files, num_samples, num_parallel_workers, shuffle, num_shards, shard_id, cache)

    def _of(self, numbers):
        rows = self._rows
        if any(isinstance(value, str) for value in rows[0]):
            return super()._of(numbers)
        columns = dict(zip(self._names, map(np.array, zip(*rows))))
        native = numbers.map_columns(["place"], self._names, lambda place: tuple(column[place] for column in columns.values()), "rows")
        return native.as_part_of(self._shards) if self._shards > 1 else native


class _OfUsage(_FileDataset):
    """Files of a folder by usage; None is all."""

    _FILES, _COLUMNS = {}, ()

    def __init__(self, dataset_dir, usage=None, num_samples=None, num_parallel_workers=None, shuffle=Shuffle.GLOBAL, num_shards=None, shard_id=None, cache=None):
        usage = "all" if usage is None else usage
        if usage not in (*self._FILES, "all"):
            raise ValueError(f"Input usage is not within the valid set of {[*self._FILES, 'all']}.")
        if not os.path.isdir(dataset_dir):
            raise ValueError(f"The folder {dataset_dir} does not exist or is not a directory or permission denied!")
        files = [os.path.join(dataset_dir, file) for file in sorted(self._FILES.values() if usage == "all" else [self._FILES[usage]])]
        super().__init__(list(self._COLUMNS), self._read, files, num_samples, num_parallel_workers, shuffle, num_shards, shard_id, cache)

    def _read(self, file):
        return [(line, ) for line in _lines(file)]


class WikiTextDataset(_OfUsage):
    """WikiText-2's and WikiText-103's lines, in the column text. usage: train, test, valid, all (None)."""

    _FILES, _COLUMNS = {usage: f"wiki.{usage}.tokens" for usage in ("train", "test", "valid")}, ("text", )


class PennTreebankDataset(_OfUsage):
    """Penn Treebank's lines, in the column text. usage: train, test, valid, all (None)."""

    _FILES, _COLUMNS = {usage: f"ptb.{usage}.txt" for usage in ("train", "test", "valid")}, ("text", )


class AGNewsDataset(_OfUsage):
    """AG News: columns index, title and description, of strings. usage: train, test, all (None)."""

    _FILES, _COLUMNS = {usage: f"{usage}.csv" for usage in ("train", "test")}, ("index", "title", "description")

    def _read(self, file):
        return _Table(",", None, list(self._COLUMNS)).rows(file)


class DBpediaDataset(AGNewsDataset):
    """DBpedia: columns class, title and content, of strings. usage: train, test, all (None)."""

    _COLUMNS = ("class", "title", "content")


class Multi30kDataset(_FileDataset):
    """Multi30k: columns text and translation, the lines of two languages. usage: train, test, valid, all (None)."""

    _FILES = {"train": ("training", "train"), "valid": ("validation", "val"), "test": ("mmt16_task1_test", "test")}

    def __init__(self, dataset_dir, usage=None, language_pair=None, num_samples=None, num_parallel_workers=None, shuffle=None, num_shards=None, shard_id=None,
                 cache=None):
        usage = "all" if usage is None else usage
        if usage not in (*self._FILES, "all"):
            raise ValueError(f"Input usage is not within the valid set of {[*self._FILES, 'all']}.")
        pair = ["en", "de"] if language_pair is None else language_pair
        if not isinstance(pair, (list, tuple)) or sorted(pair) != ["de", "en"]:
            raise ValueError(f"language_pair can only be ['en', 'de'] or ['de', 'en'], but got {language_pair}.")
        stems = [os.path.join(dataset_dir, *self._FILES[part]) for part in (self._FILES if usage == "all" else [usage])]
        super().__init__(["text", "translation"], lambda stem: self._pairs(stem, pair), sorted(stems), num_samples, num_parallel_workers,
                         Shuffle.GLOBAL if shuffle is None else shuffle, num_shards, shard_id, cache)

    @staticmethod
    def _pairs(stem, pair):
        every = [_lines(f"{stem}.{language}") for language in pair]
        if len(every[0]) != len(every[1]):
            raise RuntimeError(f"Multi30kDataset: {stem}.{pair[0]} has {len(every[0])} lines and {stem}.{pair[1]} {len(every[1])}; they must have as many")
        return list(zip(*every))
