"""Data sets of the package mindspore: maps of several columns, patches, iterators, and data sets of one's own."""
import importlib

import numpy as np
import pytest
import mindspore as ms
import mindspore.dataset as ds
from mindspore import Tensor, nn

import job

PLACES = ("mindspore.dataset.vision.c_transforms", "mindspore.dataset.transforms.vision.c_transforms", "mindspore.dataset.vision")


def numbers(n=6, **options):
    return ds.NumpySlicesDataset({"a": np.arange(n, dtype=np.float32), "b": 10 * np.arange(n, dtype=np.float32)}, shuffle=False, **options)


def rows(dataset):
    return [[column.tolist() for column in row] for row in dataset.create_tuple_iterator(num_epochs=1, output_numpy=True)]


@pytest.mark.parametrize("place", PLACES)
def test_transforms_of_images_are_where_releases_had_them(place):
    module = importlib.import_module(place)
    for name in "RandomCrop RandomHorizontalFlip Resize Rescale Normalize HWC2CHW SlicePatches".split():
        assert getattr(module, name) is getattr(ds.vision, name)
    assert importlib.import_module("mindspore.dataset.transforms.c_transforms").TypeCast is ds.transforms.TypeCast


def test_a_function_of_two_columns():
    mapped = numbers(3).map(lambda a, b: (a + b, b - a), ["a", "b"])
    assert mapped.get_col_names() == ["a", "b"] and rows(mapped) == [[0, 0], [11, 9], [22, 18]]


def test_columns_of_other_names_and_order():
    mapped = numbers(2).map(operations=lambda a: (a, a + 1, a + 2), input_columns="a", output_columns=["x", "y", "z"],
                            column_order=["z", "b", "x"])
    assert mapped.get_col_names() == ["z", "b", "x"] and rows(mapped) == [[2, 0, 0], [3, 10, 1]]
    assert rows(numbers(2).map(lambda a, b: a + b, ["a", "b"], ["sum"])) == [[0], [11]]
    assert rows(numbers(2).project(["b"])) == [[0], [10]]


def test_operations_one_after_the_other():
    mapped = numbers(2).map([lambda a, b: (a + b, b), lambda s, b: s * 2, ds.transforms.TypeCast(ms.int32)], ["a", "b"], ["s"])
    assert rows(mapped) == [[0], [22]] and mapped.output_types() == [np.int32]


def test_the_patches_of_an_image():
    image = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    patches = ds.vision.SlicePatches(2, 3)(image)
    assert [patch.shape for patch in patches] == 6 * [(2, 2, 3)]
    np.testing.assert_array_equal(patches[4], image[2:4, 2:4])
    padded = ds.vision.SlicePatches(1, 4, fill_value=7)(image)
    assert [patch.shape for patch in padded] == 4 * [(4, 2, 3)] and (padded[3] == 7).all()
    cut = ds.vision.SlicePatches(3, 1, ds.vision.c_transforms.SliceMode.DROP)(image)
    assert [patch.shape for patch in cut] == 3 * [(1, 6, 3)]


@pytest.mark.parametrize("rank", range(4))
def test_each_rank_takes_its_patch_of_the_same_images(images, rank):
    """As a script does it that splits images over ranks: patches, of which one is kept, channels first at last."""
    ds.config.set_seed(1000)
    columns = [f"img{i}" for i in range(4)]
    data = ds.Cifar10Dataset(str(images), usage="test", shuffle=True)
    data = data.map(operations=ds.transforms.TypeCast(ms.int32), input_columns="label")
    whole = data.map(operations=[ds.vision.RandomHorizontalFlip(), ds.vision.Rescale(1 / 255, 0)], input_columns="image", num_parallel_workers=1)
    data = whole.map(operations=ds.vision.SlicePatches(1, 4), input_columns="image", output_columns=columns,
                     column_order=[columns[rank], "label"])
    data = data.map(operations=ds.vision.HWC2CHW(), input_columns=columns[rank]).batch(16)
    (patch, label), = data.create_tuple_iterator(num_epochs=1, output_numpy=True)
    (images_of_all, labels), = whole.batch(16).create_tuple_iterator(num_epochs=1, output_numpy=True)
    assert patch.shape == (16, 3, 32, 8)
    np.testing.assert_array_equal(label, labels)
    np.testing.assert_array_equal(patch, images_of_all.transpose(0, 3, 1, 2)[..., 8 * rank:8 * rank + 8])


def test_each_loop_over_an_iterator_is_an_epoch():
    iterator = ds.NumpySlicesDataset(np.arange(32), ["x"]).create_tuple_iterator(num_epochs=2, output_numpy=True)
    first, second = ([row[0].item() for row in iterator] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(32)) and first != second
    assert list(iterator) == []
    dicts = numbers(2).create_dict_iterator(num_epochs=1, output_numpy=True)
    assert [{name: value.item() for name, value in row.items()} for row in dicts] == [{"a": 0, "b": 0}, {"a": 1, "b": 10}]
    chosen = numbers().batch(2).create_tuple_iterator(["b"], num_epochs=1)
    assert [[column.asnumpy().tolist() for column in row] for row in chosen] == [[[0, 10]], [[20, 30]], [[40, 50]]]


@pytest.mark.parametrize("call, error, says", [
    (lambda: numbers().map(lambda a: a, "x"), RuntimeError, 'there is no column "x"'),
    (lambda: numbers().map(3, "a"), TypeError, "must be callable"),
    (lambda: numbers().map(lambda a: (a, a), "a", ["x", "b"]), ValueError, 'two columns "b"'),
    (lambda: numbers().map(lambda a: (a, a), "a", ["x"]), ValueError, "makes 2 columns, but 1 are named"),
    (lambda: numbers().map(lambda a: (a, a), "a"), RuntimeError, "gives 2 columns; output_columns must name them"),
    (lambda: numbers().map(lambda a: a, "a", column_order=["x"]), ValueError, 'no column "x"'),
    (lambda: numbers().map([lambda a, b: (a, b), ds.vision.HWC2CHW()], ["a", "b"], ["x", "y"]), RuntimeError, "takes one column, but there are 2"),
    (lambda: numbers().map([lambda a, b: a, ds.vision.RandomHorizontalFlip()], ["a", "b"], ["x"]), NotImplementedError, "must come first"),
    (lambda: ds.vision.SlicePatches(0), ValueError, "num_height"), (lambda: ds.vision.SlicePatches(1, 1.5), TypeError, "num_width"),
    (lambda: ds.vision.SlicePatches(1, 1, 5), TypeError, "slice_mode"), (lambda: ds.vision.SlicePatches(fill_value=256), ValueError, "fill_value"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_what_does_not_fit_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()


ROWS_OF_THE_RANK = """
import numpy as np
import mindspore as ms
from mindspore import nn
from mindspore.communication import get_rank, init

init()
ms.set_auto_parallel_context(parallel_mode="MODE", gradients_mean=True, full_batch=FULL_BATCH)
rows = 1.0 * np.arange(8) if FULL_BATCH else np.full(8, 3.0 * get_rank())
data = ms.dataset.GeneratorDataset(lambda: ((row[None],) * 2 for row in rows.astype(np.float32)), ["x", "y"]).batch(8)
net = nn.Dense(1, 1, weight_init="zeros", bias_init="zeros")
ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 1e-3)).train(1, data, [ms.LossMonitor()])
"""


@pytest.mark.parametrize("mode, full_batch, loss", [
    ("data_parallel", False, 4.5), ("auto_parallel", False, 4.5), ("semi_auto_parallel", False, 4.5),
    ("auto_parallel", True, 17.5), ("semi_auto_parallel", True, 17.5)])
def test_a_ranks_data_set_is_its_own_part_of_the_batch(tmp_path, mode, full_batch, loss):
    """Also where nothing was sharded: the loss is the mean over both ranks' rows, 0 and 3; or over the rows that both read."""
    (tmp_path / "rows.py").write_text(ROWS_OF_THE_RANK.replace("MODE", mode).replace("FULL_BATCH", str(full_batch)))
    out, _ = job.run(job.python(2, "rows.py"), tmp_path)
    assert [float(found) for _, _, found in job.losses(out)] == pytest.approx([loss, loss])


def test_all_ranks_read_a_full_batch(tmp_path):
    """Different rows on each rank are warned of and refused at the first batch; how the rows are split changes nothing."""
    code = ROWS_OF_THE_RANK.replace("MODE", "semi_auto_parallel").replace("FULL_BATCH", "True")
    sharded = 'ms.dataset.NumpySlicesDataset({"x": rows[:, None].astype(np.float32), "y": rows[:, None].astype(np.float32)}, num_shards=2, shard_id=get_rank()).batch(4)\n'
    lines = [f"data = {sharded}" if line.startswith("data =") else line for line in code.splitlines()]
    (tmp_path / "sharded.py").write_text("\n".join(lines))
    said = job.refused(job.python(2, "sharded.py"), tmp_path)
    assert "with num_shards=2 they do not" in said
    assert "train: epoch 1, batch 1: the rows of rank 1 are not rank 0's" in said and "give every rank the same rows" in said
    sliced = code.replace("semi_auto_parallel", "auto_parallel").replace("full_batch=True", "dataset_strategy=((2, 1), (2, 1))")
    (tmp_path / "sliced.py").write_text(sliced.replace("np.full(8, 3.0 * get_rank())", "1.0 * np.arange(8)"))
    assert [float(found) for _, _, found in job.losses(job.run(job.python(2, "sliced.py"), tmp_path)[0])] == pytest.approx([17.5, 17.5])


class FakeData:
    """A data set of one's own, which is its own iterator."""

    def __init__(self, size, batch_size):
        self.size, self.batch_size, self.batch = size, batch_size, 0

    def get_dataset_size(self):
        return self.size // self.batch_size

    def get_repeat_count(self):
        return 1

    def get_batch_size(self):
        return self.batch_size

    def create_tuple_iterator(self, num_epochs=-1, do_copy=True):
        return self

    def reset(self):
        self.batch = 0

    def __iter__(self):
        self.batch = 0
        return self

    def __next__(self):
        if self.batch == self.get_dataset_size():
            raise StopIteration
        rng = np.random.RandomState(self.batch)
        self.batch += 1
        x = rng.rand(self.batch_size, 4).astype(np.float32)
        return Tensor(x), Tensor(x.sum(1, keepdims=True))


def test_a_data_set_of_ones_own_trains():
    class Losses(ms.Callback):
        seen = []

        def step_end(self, run_context):
            params = run_context.original_args()
            self.seen.append((params.cur_epoch_num, params.cur_step_num, params.net_outputs.asnumpy().item()))

    net = nn.Dense(4, 1)
    ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.05, 0.9)).train(3, FakeData(32, 8), Losses(), dataset_sink_mode=False)
    assert [seen[:2] for seen in Losses.seen] == [(step // 4 + 1, step + 1) for step in range(12)]
    assert Losses.seen[-1][2] < Losses.seen[0][2] / 4
