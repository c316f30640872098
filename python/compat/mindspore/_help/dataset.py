"""What help() of the classes of `mindspore.dataset`, and of the functions of its `config`, says beside their own words, in the forms of _help/vision.py."""

ROWS = """
= Of n rows it chooses n - start_index, num_samples at most. Raises TypeError for what is no int, ValueError for a negative one, and where nothing is left
  when rows are read.
SequentialSampler: numbers = ms.dataset.NumpySlicesDataset(np.arange(4), "x", sampler=f(2)) && assert [int(n) for n, in numbers] == [2, 3] || f(-1) -> ValueError

= Of n rows it chooses n, num_samples at most. Raises TypeError for a replacement that is no bool, ValueError for a negative num_samples,
  NotImplementedError for another shuffle than Shuffle.GLOBAL.
RandomSampler: numbers = ms.dataset.NumpySlicesDataset(np.arange(4), "x", sampler=f()) && assert sorted(int(n) for n, in numbers) == [0, 1, 2, 3] || f(3) -> TypeError

= Of n rows it chooses ceil(n / num_shards), num_samples at most. Raises TypeError for what is no int, ValueError for an offset below -1, and, where a
  data set is made with it, for a shard_id that there is not.
DistributedSampler: numbers = ms.dataset.NumpySlicesDataset(np.arange(4), "x", sampler=f(2, 1, shuffle=False)) && assert [int(n) for n, in numbers] == [1, 3] || f("a", 0) -> TypeError

= Numbers count rows from 0. Raises ValueError where a data set is made with it that has no such row.
SubsetSampler IterSampler: numbers = ms.dataset.NumpySlicesDataset(np.arange(4), "x", sampler=f([3, 1])) && assert [int(n) for n, in numbers] == [3, 1] || ms.dataset.NumpySlicesDataset(np.arange(4), "x", sampler=f([4])) -> ValueError
SubsetRandomSampler: numbers = ms.dataset.NumpySlicesDataset(np.arange(4), "x", sampler=f([3, 1])) && assert sorted(int(n) for n, in numbers) == [1, 3] || ms.dataset.NumpySlicesDataset(np.arange(4), "x", sampler=f([4])) -> ValueError

= Weights are a list of numbers, one a row. Raises TypeError for what is no number, RuntimeError, where a data set is made with it, for weights that are
  negative or all 0, and for more than there are rows.
WeightedRandomSampler: numbers = ms.dataset.NumpySlicesDataset(np.arange(4), "x", sampler=f([0.0, 1.0], 2)) && assert [int(n) for n, in numbers] == [1, 1] || f("a") -> TypeError

= The column holds a number a row. Raises TypeError for arguments of other types, RuntimeError for a num_val that is not positive, and for a column that
  the data set does not have, NotImplementedError for a num_class.
PKSampler: numbers = ms.dataset.NumpySlicesDataset({"label": np.array([0, 1, 1])}, sampler=f(2)) && assert [int(n) for n, in numbers] == [0, 0, 1, 1] || f(0) -> RuntimeError

= Its numbers are ints. Raises nothing.
BatchInfo: batch = f(1, 2) && assert batch.get_epoch_num() == 1 and batch.get_batch_num() == 2
"""

_IDX = """    from pathlib import Path

    Path("train-images-idx3-ubyte").write_bytes(np.array([2051, 2, 28, 28], ">i4").tobytes() + bytes(2 * 28 * 28))
    Path("train-labels-idx1-ubyte").write_bytes(np.array([2049, 2], ">i4").tobytes() + bytes(2))
    for image, label in ms.dataset.{name}(".", "train"):
        assert image.shape == (28, 28, 1) and label.dtype == ms.uint32
    ms.dataset.{name}(".", "valid")  # raises ValueError"""

_LINES = """    from pathlib import Path

    Path("{file}").write_text("one line\\nand another\\n")
    rows = ms.dataset.{name}(".", "test", shuffle=False)
    assert [str(text) for text, in rows.create_tuple_iterator(output_numpy=True)] == ["one line", "and another"]
    ms.dataset.{name}(".", "best")  # raises ValueError"""

_TABLE = """    from pathlib import Path

    Path("test.csv").write_text('"3","A title","And words."\\n')
    rows = ms.dataset.{name}(".", "test")
    assert [str(item) for item in next(iter(rows.create_tuple_iterator(output_numpy=True)))] == ["3", "A title", "And words."]
    ms.dataset.{name}(".", "best")  # raises ValueError"""

_OF_IDX = """Raises ValueError for a usage that there is not, for files that are not there, and for those of another form, NotImplementedError for a cache."""
_OF_LINES = """Each is a string, []. Raises ValueError for a usage that there is not and for what is no folder, RuntimeError for a file that is not there."""

TEXTS = f"""
# MnistDataset
{_OF_IDX}

{_IDX.format(name="MnistDataset")}

# FashionMnistDataset
Columns image uint8 [28,28,1] and label uint32. {_OF_IDX}

{_IDX.format(name="FashionMnistDataset")}

# KMnistDataset
Columns image uint8 [28,28,1] and label uint32. {_OF_IDX}

{_IDX.format(name="KMnistDataset")}

# Cifar10Dataset
{_OF_IDX}

    from pathlib import Path

    Path("test_batch.bin").write_bytes(2 * (bytes([7]) + bytes(32 * 32 * 3)))
    for image, label in ms.dataset.Cifar10Dataset(".", "test"):
        assert image.shape == (32, 32, 3) and int(label) == 7
    ms.dataset.Cifar10Dataset(".", "valid")  # raises ValueError

# ImageFolderDataset
Raises ValueError for what is no folder, and where there are no files, TypeError for arguments of other types, NotImplementedError for decrypt and cache.

    from pathlib import Path

    header = np.array([58, 0, 54, 40, 1, 1], "<u4").tobytes() + np.array([1, 24], "<u2").tobytes() + bytes(24)
    for folder in ("cats", "dogs"):
        Path("images", folder).mkdir(parents=True)
        Path("images", folder, "1.bmp").write_bytes(b"BM" + header + bytes(4))
    rows = ms.dataset.ImageFolderDataset("images", decode=True, shuffle=False)
    assert rows.get_class_indexing() == {{"cats": 0, "dogs": 1}}
    for image, label in rows.map(ms.dataset.vision.Resize((4, 3)), "image"):
        assert image.shape == (4, 3, 3) and label.dtype == ms.int32
    ms.dataset.ImageFolderDataset("absent")  # raises ValueError

# TextFileDataset
Each is a string, []. Raises ValueError for a pattern that no file matches, TypeError for arguments of other types, RuntimeError for what is no text.

    from pathlib import Path

    Path("lines.txt").write_text("one line\\nand another\\n")
    rows = ms.dataset.TextFileDataset("*.txt", shuffle=False)
    assert [str(text) for text, in rows.create_tuple_iterator(output_numpy=True)] == ["one line", "and another"]
    ms.dataset.TextFileDataset("absent.txt")  # raises ValueError

# WikiTextDataset
{_OF_LINES}

{_LINES.format(name="WikiTextDataset", file="wiki.test.tokens")}

# PennTreebankDataset
{_OF_LINES}

{_LINES.format(name="PennTreebankDataset", file="ptb.test.txt")}

# AGNewsDataset
{_OF_LINES}

{_TABLE.format(name="AGNewsDataset")}

# DBpediaDataset
{_OF_LINES}

{_TABLE.format(name="DBpediaDataset")}

# Multi30kDataset
Each is a string, []. Raises ValueError for a usage or a language_pair that there is not, RuntimeError for a file that is not there, and for two that have other
numbers of lines.

    from pathlib import Path

    Path("training").mkdir()
    Path("training/train.en").write_text("good day\\n")
    Path("training/train.de").write_text("guten Tag\\n")
    for text, translation in ms.dataset.Multi30kDataset(".", "train").create_tuple_iterator(output_numpy=True):
        assert str(text) == "good day" and str(translation) == "guten Tag"
    ms.dataset.Multi30kDataset(".", "train", ["en", "fr"])  # raises ValueError

# CSVDataset
Each is [], int32, float32 or a string. Raises ValueError for a pattern that no file matches, TypeError for arguments of other types, RuntimeError for lines
that have other numbers of values, or values of other types.

    from pathlib import Path

    Path("rows.csv").write_text("number,name\\n1,one\\n2,two\\n")
    rows = ms.dataset.CSVDataset("rows.csv", column_defaults=[0, ""], shuffle=False)
    assert [(int(number), str(name)) for number, name in rows.create_tuple_iterator(output_numpy=True)] == [(1, "one"), (2, "two")]
    ms.dataset.CSVDataset("absent.csv")  # raises ValueError

# NumpySlicesDataset
Arrays [n, ...] of any dtype, strings among them, and lists: a tuple, or a dict by column, else one column; column_names: else column_0 and so on. A row has
[...]. Raises ValueError for names of another number of columns, and columns of other lengths, RuntimeError where one of num_shards and shard_id is missing.

    rows = ms.dataset.NumpySlicesDataset((np.ones((4, 3), np.float32), [0, 1, 2, 3]), ["x", "label"], shuffle=False)
    for x, label in rows.batch(2):
        assert x.shape == (2, 3) and label.shape == (2, )
    ms.dataset.NumpySlicesDataset(np.arange(4), ["x", "label"])  # raises ValueError

# GeneratorDataset
A row is a tuple of arrays or numbers, one a column, of any shapes and dtypes, or a dict of them; of one column also what it has. Raises TypeError for a source
that is none, ValueError without column_names, and for rows of other numbers of columns, RuntimeError where a source without __getitem__ and __len__ is to be
shuffled or sharded, NotImplementedError for a schema.

    def rows():
        for i in range(4):
            yield np.full(3, i, np.float32), i

    for x, label in ms.dataset.GeneratorDataset(rows, ["x", "label"]).batch(2):
        assert x.shape == (2, 3) and label.shape == (2, )
    ms.dataset.GeneratorDataset(3, "x")  # raises TypeError

# Dataset
Rows have an array of any shape and dtype a column, batches [batch_size, ...]; iterators give tensors, or NumPy's arrays. Raises RuntimeError for columns that
there are not, TypeError and ValueError for other arguments, NotImplementedError for what comes too late in a chain.

    rows = ms.dataset.NumpySlicesDataset({{"x": np.ones((4, 3), np.float32)}})
    assert isinstance(rows, ms.dataset.Dataset)
    for x, in rows.map(lambda x: x * 2, "x").batch(2).create_tuple_iterator(output_numpy=True):
        assert x.shape == (2, 3) and (x == 2).all()
    rows.batch(0)  # raises ValueError

# Sampler
Derived from. Raises TypeError for a num_samples that is no int, ValueError for a negative one, and, where a data set is made with it, for numbers that are no
row's, NotImplementedError where __iter__ is not defined.

    class Backwards(ms.dataset.Sampler):
        def __iter__(self):
            return iter(range(self.dataset_size - 1, -1, -1))

    numbers = ms.dataset.NumpySlicesDataset(np.arange(3), "x", sampler=Backwards())
    assert [int(n) for n, in numbers] == [2, 1, 0]
    iter(ms.dataset.Sampler())  # raises NotImplementedError

# Shuffle
GLOBAL (or ADAPTIVE): all rows; FILES: only the order of the files; FALSE: nothing; others are refused. Raises ValueError for the text of none.

    from pathlib import Path

    Path("lines.txt").write_text("one line\\nand another\\n")
    rows = ms.dataset.TextFileDataset("lines.txt", shuffle=ms.dataset.Shuffle.FILES)
    assert [str(text) for text, in rows.create_tuple_iterator(output_numpy=True)] == ["one line", "and another"]
    ms.dataset.Shuffle("some")  # raises ValueError
"""

# By setting a value that it may have, of those that accept anything.
_ACCEPTED = {"auto_num_workers": False, "autotune_interval": 0, "callback_timeout": 60, "enable_shared_mem": True, "enable_watchdog": True,
             "fast_recovery": True, "monitor_sampling_interval": 1000, "multiprocessing_start_method": "fork",
             "multiprocessing_timeout_interval": 300, "numa_enable": False, "prefetch_size": 16, "sending_batches": 0}
_GET_AND_SET = "ms.dataset.config.set_{name}({value!r}) && assert ms.dataset.config.get_{name}() == {value!r}"

CONFIG = "= Any value. Raises nothing.\n" + "".join(
    f"set_{name} get_{name}: {_GET_AND_SET.format(name=name, value=value)}\n" for name, value in _ACCEPTED.items()) + f"""
= A bool. Raises TypeError where another thing is set.
set_enable_autotune get_enable_autotune: {_GET_AND_SET.format(name="enable_autotune", value=False)} || ms.dataset.config.set_enable_autotune(1) -> TypeError

= An int from 0 to 2**32 - 1. Raises TypeError where no int is set, ValueError for another one.
set_seed get_seed: {_GET_AND_SET.format(name="seed", value=7)} || ms.dataset.config.set_seed(-1) -> ValueError

= An int. Raises TypeError where no int is set, ValueError for one that is not positive.
set_num_parallel_workers get_num_parallel_workers: {_GET_AND_SET.format(name="num_parallel_workers", value=2)} || ms.dataset.config.set_num_parallel_workers(0) -> ValueError
"""
