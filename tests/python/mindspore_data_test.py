"""The package mindspore: what data sets are made of others, and transforms of colors and places."""
import struct

import mindspore as ms
import mindspore.dataset as ds
import mindspore.dataset.transforms as transforms
import mindspore.dataset.vision as vision
import numpy as np
import pytest
from mindspore import nn

IMAGE = np.random.default_rng(0).integers(0, 256, (6, 7, 3)).astype(np.uint8)


def numbers(count=10, shuffle=False, **settings):
    return ds.NumpySlicesDataset({"x": np.arange(count, dtype=np.float32), "y": np.arange(count) + 100}, shuffle=shuffle, **settings)


def rows(dataset):
    return [[column.tolist() for column in row] for row in dataset.create_tuple_iterator(num_epochs=1, output_numpy=True)]


@pytest.mark.parametrize("make", [numbers, lambda **how: ds.GeneratorDataset([(float(i), i) for i in range(10)], ["x", "y"], **how)])
@pytest.mark.parametrize("sizes, counts", [([0.75, 0.25], [8, 2]), ([3, 2, 5], [3, 2, 5])])
def test_split_gives_parts_that_share_no_row_in_any_epoch(make, sizes, counts):
    parts = make(shuffle=True).map(lambda x: x * 2, "x").split(sizes)
    epochs = [[sorted(row[0] for row in rows(part)) for part in parts] for _ in range(3)]
    assert [len(part) for part in parts] == counts and epochs[0] == epochs[1] == epochs[2]
    assert sorted(sum(epochs[0], [])) == [2.0 * i for i in range(10)]
    orders = [[row[0] for row in rows(parts[0].repeat(4))] for _ in range(2)]
    assert len(orders[0]) == 4 * counts[0] and orders[0] != sorted(orders[0])


def test_split_without_randomize_keeps_the_order():
    first, last = numbers().split([4, 6], randomize=False)
    assert [row[0] for row in rows(first)] == [0, 1, 2, 3] and [row[0] for row in rows(last)] == [4, 5, 6, 7, 8, 9]
    assert [len(part) for part in last.split([0.5, 0.5])] == [3, 3]
    for wrong, error, message in [(lambda: numbers().split([4, 5]), RuntimeError, "not equal to dataset size 10"), (lambda: numbers().split([]), ValueError, "empty"),
                                  (lambda: numbers().split([0.5, 0.1]), ValueError, "sum to 1"), (lambda: numbers().batch(2).split([2, 3]), NotImplementedError, "before|first"),
                                  (lambda: numbers().shuffle(3).split([5, 5]), NotImplementedError, "call split first")]:
        with pytest.raises(error, match=message):
            wrong()


def test_columns_are_renamed_in_their_places():
    data = numbers(3)
    assert data.rename("y", "label").get_col_names() == ["x", "label"] and rows(data.rename("y", "label")) == rows(data)
    swapped = data.rename(["x", "y"], ["y", "x"])
    assert swapped.get_col_names() == ["y", "x"] and rows(swapped) == rows(data)
    with pytest.raises(RuntimeError, match='no column "z"'):
        data.rename("z", "w")


def test_rows_of_several_data_sets_come_one_after_the_other_or_side_by_side():
    both = numbers(3) + numbers(2)
    assert len(both) == 5 and [row[0] for row in rows(both)] == [0, 1, 2, 0, 1]
    assert [batch[0].tolist() for batch in both.batch(2).create_tuple_iterator(num_epochs=1, output_numpy=True)] == [[0, 1], [2, 0], [1]]
    pairs = ds.zip((numbers(3), numbers(5).rename(["x", "y"], ["u", "v"])))
    assert pairs.get_col_names() == ["x", "y", "u", "v"] and rows(pairs) == [[i, 100 + i, i, 100 + i] for i in range(3)]
    assert rows(numbers(3).zip(numbers(5).rename(["x", "y"], ["u", "v"]))) == rows(pairs)
    with pytest.raises(RuntimeError, match="a column of one name"):
        ds.zip((numbers(3), numbers(3)))
    with pytest.raises(NotImplementedError, match="first, then batch"):
        numbers(3).batch(2).concat(numbers(3))


def test_rows_are_filtered_and_data_sets_applied_to():
    large = numbers().filter(lambda x: x > 6, "x")
    assert len(large) == 3 and rows(large) == [[7, 107], [8, 108], [9, 109]] == rows(numbers().apply(lambda data: data.filter(lambda x, y: x > 6)))


def test_a_function_per_batch_sees_its_rows():
    seen = []

    def mixed(x, info):
        seen.append((len(x), info.get_batch_num()))
        return np.stack(x) + np.stack(x)[::-1]

    data = numbers(5).batch(2, per_batch_map=mixed, input_columns=["x"])
    assert data.get_batch_size() == 2 and len(data) == 3
    assert rows(data) == [[[1, 1], [100, 101]], [[5, 5], [102, 103]], [[8], [104]]] and set(seen) == {(2, 0), (2, 1), (1, 2)}
    with pytest.raises(NotImplementedError, match="another number is not available"):
        numbers(4).batch(2, per_batch_map=lambda x, y, info: (np.stack(x)[:1], np.stack(y)[:1]))


@pytest.mark.parametrize("make", [
    lambda rows_of: rows_of.concat(rows_of.rename(["x", "y"], ["x", "y"])), lambda rows_of: rows_of.zip(numbers(10).rename(["x", "y"], ["a", "b"])),
    lambda rows_of: rows_of.filter(lambda x, y: True), lambda rows_of: rows_of.split([4, 6], randomize=False)[1],
    lambda rows_of: rows_of.batch(2, per_batch_map=lambda x, y, info: ([value + 1000 * info.get_epoch_num() for value in x], y)),
    lambda rows_of: rows_of.batch(2).batch(2, True),
], ids=["concat", "zip", "filter", "split", "per_batch_map", "batch of batches"])
def test_an_epoch_has_its_rows_however_often_one_was_read_before(make):
    dataset = make(numbers(10, shuffle=True))

    def read(epoch):
        return [[column.numpy().tolist() for column in row] for row in dataset.native.batches(1, 0, epoch)]

    later, first = read(2), read(0)
    assert (later == first) == ("split" in make.__code__.co_names)  # whose parts have an order of their own
    assert read(2) == later and read(0) == first
    again = make(numbers(10, shuffle=True))
    assert [[column.numpy().tolist() for column in row] for row in again.native.batches(1, 0, 2)] == later


def test_a_function_per_batch_is_told_epochs_from_0():
    seen = []

    def note(x, y, info):
        seen.append(info.get_epoch_num())
        return x, y

    dataset = numbers(4).batch(2, per_batch_map=note)
    seen.clear()
    iterator = dataset.create_tuple_iterator(num_epochs=3)
    for _ in range(3):
        list(iterator)
    assert sorted(set(seen)) == [0, 1, 2]


def test_a_number_of_samples_is_that_of_a_shard_of_shuffled_rows():
    first = [row[0] for row in rows(numbers(100, shuffle=True, num_samples=5))]
    assert len(first) == 5 and max(first) >= 5
    assert [row[0] for row in rows(numbers(10, num_samples=3, num_shards=2, shard_id=1))] == [1, 3, 5]


def test_what_data_sets_lack_refuses_to_be_called():
    data = numbers(4)
    with pytest.raises(NotImplementedError, match="NumpySlicesDataset.flat_map is not available: make one data set of the rows"):
        data.flat_map(lambda x: x)
    with pytest.raises(NotImplementedError, match="pad_info is not available"):
        data.batch(2, pad_info={"x": ([2], 0)})
    with pytest.raises(TypeError, match=r"batch\(\) got an unexpected keyword argument 'drop_remainders'; did you mean 'drop_remainder'\?"):
        data.batch(2, drop_remainders=True)
    assert not hasattr(data, "unknown")


@pytest.mark.parametrize("transform, wanted", [
    (vision.AdjustBrightness(0.5), np.rint(IMAGE * 0.5)), (vision.AdjustBrightness(3.0), np.minimum(IMAGE * 3.0, 255)), (vision.AdjustHue(0.0), IMAGE),
    (vision.AdjustSaturation(1.0), IMAGE), (vision.AdjustContrast(1.0), IMAGE), (vision.Rotate(90), np.rot90(IMAGE, 1)[:, :1]),
    (vision.Rotate(180), IMAGE[::-1, ::-1]), (vision.RandomVerticalFlip(1.0), IMAGE[::-1]), (vision.RandomVerticalFlip(0.0), IMAGE),
    (vision.RandomRotation((180, 180)), IMAGE[::-1, ::-1]), (vision.RandomColorAdjust(), IMAGE),
    (vision.RandomColorAdjust(brightness=(0.5, 0.5)), np.rint(IMAGE * 0.5))], ids=str)
def test_transforms_of_colors_and_places(transform, wanted):
    made = transform(IMAGE)
    assert made.dtype == np.uint8 and made.shape == IMAGE.shape
    if wanted.shape == IMAGE.shape:
        np.testing.assert_array_equal(made, wanted)


def test_gray_has_no_hue_and_no_saturation():
    gray = vision.AdjustSaturation(0.0)(IMAGE)
    assert (gray.min(2) == gray.max(2)).all() and (vision.AdjustHue(0.3)(gray) == gray).all()
    assert len(np.unique(vision.AdjustContrast(0.0)(IMAGE))) == 1
    red = np.uint8([[[255, 0, 0]]])
    assert vision.AdjustHue(1 / 3)(red).tolist() == [[[0, 255, 0]]] and vision.AdjustHue(-1 / 3)(red).tolist() == [[[0, 0, 255]]]


def test_what_is_drawn_depends_on_seed_epoch_and_sample_only():
    def drawn(workers, seed):
        ms.set_seed(seed)
        ds.config.set_seed(seed)
        images = np.stack([IMAGE] * 6)
        data = ds.NumpySlicesDataset({"image": images}, shuffle=False).map([vision.RandomColorAdjust(0.4, 0.4, 0.4, 0.1), vision.RandomRotation(20)], "image",
                                                                          num_parallel_workers=workers)
        epochs = data.create_tuple_iterator(num_epochs=2, output_numpy=True)
        return np.stack([np.stack([row[0] for row in epochs]) for _ in range(2)])

    one = drawn(1, 3)
    assert (one == drawn(3, 3)).all() and (one[0] != one[1]).any() and (one[0, 0] != one[0, 1]).any() and (one != drawn(1, 4)).any()


@pytest.mark.parametrize("call, error, message", [
    (lambda: vision.RandomColorAdjust(brightness=-1), ValueError, "brightness cannot be negative"),
    (lambda: vision.RandomColorAdjust(hue=(0, 0.7)), ValueError, "hue is not within the required interval"),
    (lambda: vision.RandomRotation(-3), ValueError, "cannot be negative"), (lambda: vision.RandomRotation(30, expand=True), NotImplementedError, "expand=True"),
    (lambda: vision.Rotate(30, resample=vision.Inter.BICUBIC), NotImplementedError, "only Inter.NEAREST and Inter.BILINEAR"),
    (lambda: vision.AdjustHue(0.7), ValueError, "required interval"), (lambda: vision.AdjustContrast(2.0)(IMAGE[:, :, 0]), RuntimeError, r"\[height, width, 3\]")])
def test_wrong_settings_of_transforms_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


class Texts:
    """Rows of different lengths."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return np.arange(i + 1, dtype=np.int32), np.int32(i)


def texts_one_by_one():
    yield from (Texts()[i] for i in range(4))


@pytest.mark.parametrize("source", [Texts(), texts_one_by_one])
def test_rows_of_different_sizes_become_of_one_before_they_are_batched(source):
    def made(data):
        return [[column.tolist() for column in row] for row in data.create_tuple_iterator(num_epochs=1, output_numpy=True)]

    wanted = [[[[0, 9, 9], [0, 1, 9]], [0, 1]], [[[0, 1, 2], [0, 1, 2]], [2, 3]]]
    rows = ds.GeneratorDataset(source, ["ids", "label"], shuffle=False)
    assert made(rows.map(transforms.PadEnd([3], 9), "ids").batch(2)) == wanted
    assert made(rows.padded_batch(2, pad_info={"ids": ([3], 9)})) == wanted
    lengths = rows.map(lambda ids: (ids[:1], np.int32(len(ids))), "ids", ["first", "length"])
    assert lengths.get_col_names() == ["first", "length", "label"]
    assert made(lengths.batch(4)) == [[[[0]] * 4, [1, 2, 3, 4], [0, 1, 2, 3]]]
    assert made(rows.map(lambda ids: ids[:1], "ids").map(lambda label: label * 2, "label").batch(4)) == [[[[0]] * 4, [0, 2, 4, 6]]]
    assert made(rows.padded_batch(2, pad_info={"ids": ([None], 9)}))[0] == [[[0, 9], [0, 1]], [0, 1]]


def test_a_shard_of_rows_that_are_batches_has_whole_ones():
    batches = [(np.full((6, 1), i, np.float32), np.full((6, 1), i + 1, np.float32)) for i in range(6)]
    data = ds.GeneratorDataset(batches, ["x", "y"], shuffle=False, num_shards=3, shard_id=1)
    assert [row[0].tolist() for row in data.create_tuple_iterator(num_epochs=1, output_numpy=True)] == [batches[i][0].tolist() for i in (1, 4)]
    seen = []

    class Seen(nn.Cell):
        def construct(self, x):
            seen.append(x.shape)
            return x

    assert ms.Model(Seen(), nn.MSELoss(), metrics={"mae"}).eval(data, dataset_sink_mode=False) == {"mae": 1.0}
    assert set(seen) == {(6, 1)}


class Backwards(ds.Sampler):
    def __iter__(self):
        return iter(range(self.dataset_size - 1, -1, -1))


@pytest.mark.parametrize("sampler, wanted", [
    (ds.SequentialSampler(), list(range(8))), (ds.SequentialSampler(2, 3), [2, 3, 4]), (ds.SubsetSampler([5, 1, 3]), [5, 1, 3]),
    (ds.SubsetSampler([5, 1, 3], 2), [5, 1]), (Backwards(), [7, 6, 5, 4, 3, 2, 1, 0]), ([3, 3, 0], [3, 3, 0]), (ds.IterSampler([6, 2]), [6, 2]),
    (ds.DistributedSampler(2, 1, shuffle=False), [1, 3, 5, 7])])
def test_samplers_choose_samples(sampler, wanted):
    for data in (ds.NumpySlicesDataset({"x": np.arange(8)}, sampler=sampler), ds.GeneratorDataset(list(range(8)), ["x"], sampler=sampler)):
        assert [int(row[0]) for row in data.create_tuple_iterator(num_epochs=1, output_numpy=True)] == wanted
        assert len(data) == len(wanted)


def test_random_samplers_have_a_new_order_in_each_epoch():
    for sampler, drawn in ((ds.RandomSampler(), set(range(8))), (ds.RandomSampler(num_samples=5), None), (ds.SubsetRandomSampler([1, 2, 5, 6, 7]), {1, 2, 5, 6, 7})):
        data = ds.NumpySlicesDataset({"x": np.arange(8)}, sampler=sampler)
        epochs = [tuple(int(row[0]) for row in iterator) for iterator in [data.create_tuple_iterator(output_numpy=True)] * 4]
        assert len(set(epochs)) > 1 and all(len(set(epoch)) == len(epoch) == len(data) for epoch in epochs)
        assert drawn is None or all(set(epoch) == drawn for epoch in epochs)


@pytest.mark.parametrize("settings, error, message", [
    (dict(sampler=ds.RandomSampler(), shuffle=True), ValueError, "sampler and shuffle"), (dict(sampler=3), TypeError, "Unsupported sampler"),
    (dict(sampler=ds.RandomSampler(), num_samples=3), ValueError, "sampler and num_samples"), (dict(sampler=[1], shuffle=False), ValueError, "sampler and shuffle"),
    (dict(sampler=ds.DistributedSampler(2, 0, offset=3)), RuntimeError, "offset must be at most num_shards, 2"),
    (dict(sampler=ds.SequentialSampler(2), num_shards=2, shard_id=0), ValueError, "sampler and sharding"), (dict(sampler=[9]), ValueError, "no sample 9 among 8")])
def test_samplers_are_refused_beside_what_they_are_for(settings, error, message):
    with pytest.raises(error, match=message):
        ds.NumpySlicesDataset({"x": np.arange(8)}, **settings)


def test_files_refuse_what_a_sampler_says_already(mnist):
    for name, settings in (("shuffle", dict(shuffle=True)), ("sharding", dict(num_shards=2, shard_id=0)), ("num_samples", dict(num_samples=2))):
        with pytest.raises(RuntimeError, match=f"sampler and {name} cannot be specified"):
            ds.MnistDataset(mnist, sampler=ds.SequentialSampler(), **settings)


def chain(*given):
    """Samplers, each the parent of the next one."""
    for parent, child in zip(given, given[1:]):
        parent.add_child(child)
    return given[0]


class Twelve:
    def __len__(self):
        return 12

    def __getitem__(self, i):
        return (np.array(i), )


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder of twelve files, one of each class."""
    folder = tmp_path_factory.mktemp("images")
    for i in range(12):
        (folder / f"{i:02}").mkdir()
        (folder / f"{i:02}" / "a.jpg").write_bytes(b"x")
    return str(folder)


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    """The files of twelve digits whose labels are their numbers."""
    folder = tmp_path_factory.mktemp("mnist")
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, 12, 28, 28) + bytes(12 * 28 * 28))
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, 12) + bytes(range(12)))
    return str(folder)


S, D, U = ds.SequentialSampler, ds.DistributedSampler, ds.SubsetSampler


@pytest.mark.parametrize("source", ["slices", "words", "list", "function", "mapped", "mnist", "images"])
@pytest.mark.parametrize("make, wanted", [
    (lambda: chain(D(2, 1, False), S(2, 6)), [3, 5, 7]), (lambda: chain(D(2, 1, False), S(None, 6)), [1, 3, 5]), (lambda: chain(D(3, 2, False), S(1, 5)), [3, 1]),
    (lambda: chain(D(2, 1, False), U([9, 3, 5, 7])), [3, 7]), (lambda: chain(D(2, 0, False, 2), S(4, 6)), [4, 6]), (lambda: chain(S(1, 2), D(2, 1, False)), [3, 5]),
    (lambda: chain(S(1, 2), U([9, 3, 5, 7])), [3, 5]), (lambda: chain(U([2, 0]), S(3, 6)), [5, 3]), (lambda: chain(D(2, 0, False), S(1, 4), S(2, 8)), [3, 5]),
    (lambda: chain(D(2, 0, False), D(2, 1, False)), [1, 5, 9]), (lambda: chain(Backwards(), S(2, 3)), [4, 3, 2]), (lambda: chain(S(1, 2), Backwards()), [10, 9]),
    (lambda: chain(ds.IterSampler([1, 0]), D(2, 1, False), U([8, 6, 4, 2])), [2, 6]), (lambda: chain(ds.WeightedRandomSampler([0, 0, 1], 3), S(4, 4)), [6, 6, 6]),
    (lambda: D(2, 1, False, offset=1), [0, 2, 4, 6, 8, 10]), (lambda: D(5, 0, False, offset=2), [3, 8]), (lambda: D(5, 4, False, offset=0), [4, 9])])
def test_a_child_chooses_first_and_its_parent_among_those(source, make, wanted, mnist, images):
    numbers = [np.array(i) for i in range(12)]
    datasets = {
        "slices": lambda sampler: ds.NumpySlicesDataset(np.arange(12), ["x"], sampler=sampler),
        "words": lambda sampler: ds.NumpySlicesDataset([str(i) for i in range(12)], ["x"], sampler=sampler),
        "list": lambda sampler: ds.GeneratorDataset(Twelve(), ["x"], sampler=sampler),
        "function": lambda sampler: ds.GeneratorDataset(lambda: iter(numbers), ["x"], sampler=sampler) if sampler.source_settings[1] is None else None,
        "mapped": lambda sampler: ds.GeneratorDataset(Twelve(), ["x"], sampler=sampler).map(lambda x: x + 0, ["x"]).batch(12),
        "mnist": lambda sampler: ds.MnistDataset(mnist, sampler=sampler).project(["label"]),
        "images": lambda sampler: ds.ImageFolderDataset(images, sampler=sampler).project(["label"])}
    data = datasets[source](make())
    for _ in range(2):
        assert [int(x) for row in rows(data) for x in np.ravel(row[0])] == wanted


@pytest.mark.parametrize("make, among, size", [
    (lambda: chain(D(2, 1), S(2, 6)), range(2, 8), 3), (lambda: chain(ds.RandomSampler(), S(4, 4)), range(4, 8), 4),
    (lambda: chain(ds.SubsetRandomSampler([1, 2, 3]), S(4, 5)), (5, 6, 7), 3), (lambda: chain(D(2, 0, False), ds.RandomSampler()), range(12), 6),
    (lambda: chain(S(1, 5), ds.RandomSampler()), range(12), 5), (lambda: chain(ds.RandomSampler(True, 5), U([11, 10])), (10, 11), 2), (lambda: D(2, 1, offset=1), range(12), 6)])
def test_a_chain_that_draws_has_a_new_order_in_each_epoch(make, among, size):
    for data in (ds.NumpySlicesDataset(np.arange(12), ["x"], sampler=make()), ds.NumpySlicesDataset([str(i) for i in range(12)], ["x"], sampler=make())):
        assert len(data) == size
        epochs = [[int(row[0]) for row in rows(data)] for _ in range(8)]
        assert all(len(epoch) == size and set(epoch) <= set(among) for epoch in epochs) and len(set(map(tuple, epochs))) > 1


def test_the_ranks_of_a_chain_that_shards_share_no_row():
    parts = [ds.NumpySlicesDataset(np.arange(12), ["x"], sampler=chain(D(3, i), S(2, 9))) for i in range(3)]
    assert [part.native.num_shards() for part in parts] == [3] * 3
    for _ in range(3):
        assert sorted(int(row[0]) for part in parts for row in rows(part)) == list(range(2, 11))


def test_one_sampler_may_serve_two_data_sets():
    sampler = ds.RandomSampler(True)
    small, large = (ds.NumpySlicesDataset(np.arange(count), ["x"], sampler=sampler) for count in (3, 50))
    assert len(rows(small)) == 3 and max(row[0] for row in rows(large)) > 3
    assert max(row[0] for row in rows(small)) < 3


@pytest.mark.parametrize("make", [lambda **how: ds.NumpySlicesDataset(np.arange(8), ["x"], **how), lambda **how: ds.GeneratorDataset(list(range(8)), ["x"], **how)])
def test_a_data_set_takes_a_sampler_later(make):
    def after(method, new_sampler, **how):
        data = make(**how)
        getattr(data, method)(new_sampler)
        return [int(row[0]) for row in rows(data)]

    assert after("use_sampler", S(2, 3)) == after("use_sampler", S(2, 3), num_shards=2, shard_id=1) == [2, 3, 4]
    assert after("use_sampler", S(1, 2), sampler=chain(S(0, 2), U([5, 4, 3]))) == [4, 3]
    assert after("use_sampler", S(1), num_samples=3, shuffle=False) == list(range(1, 8))
    assert after("use_sampler", D(2, 1, False)) == [1, 3, 5, 7]
    assert after("add_sampler", S(1, 2), sampler=[5, 4, 3]) == [4, 3] and after("add_sampler", S(1, 2), shuffle=False) == [1, 2]
    assert after("add_sampler", S(1, 2), num_shards=2, shard_id=1, shuffle=False) == [3, 5] and after("add_sampler", U([1]), shuffle=False, num_samples=3) == [1]
    for sampler, message in ((None, "can not be None"), ([1], "not an instance of a sampler")):
        with pytest.raises(TypeError, match=message):
            after("use_sampler", sampler)
    with pytest.raises(NotImplementedError, match="its sampler=, or call them first"):
        make().batch(2).use_sampler(S())


def once(rows):
    """A generator that fills one array again and again."""
    array = np.zeros(2, np.float32)
    for i in range(rows):
        array[:] = i
        yield array, np.array([i], np.float32)


def test_rows_of_a_generator_are_read_once_and_kept():
    data = ds.GeneratorDataset(once(4), ["x", "y"])
    wanted = [[[i, i], [i]] for i in range(4)]
    assert data.get_dataset_size() == 4 and rows(data) == rows(data) == wanted
    assert rows(ds.GeneratorDataset(once(4), ["x", "y"]).map(lambda x: x * 2, ["x"])) == [[[2 * i, 2 * i], [i]] for i in range(4)]
    batches = ds.GeneratorDataset(once(4), ["x", "y"]).batch(3).repeat(2)
    assert [row[1] for row in rows(batches)] == [[[0], [1], [2]], [[3]]] * 2
    assert [row[1] for row in rows(ds.GeneratorDataset(once(4), ["x", "y"], num_samples=2))] == [[0], [1]]
    assert [row[1] for row in rows(ds.GeneratorDataset(once(4), ["x", "y"], sampler=S(1, 2)))] == [[1], [2]]
    later = ds.GeneratorDataset(once(4), ["x", "y"])
    later.use_sampler(S(3))
    assert rows(later) == wanted[3:]
    assert [row[0] for row in rows(ds.GeneratorDataset(map(np.array, [3, 1]), ["x"]))] == [3, 1]
    words = ds.GeneratorDataset((np.array(word) for word in ["a", "bc"]), ["x"])
    assert rows(words) == rows(words) == [["a"], ["bc"]]
    ragged = ds.GeneratorDataset((np.arange(i + 1) for i in range(3)), ["x"])
    assert rows(ragged) == [[[0]], [[0, 1]], [[0, 1, 2]]]
    assert [np.shape(row[0]) for row in rows(ragged.padded_batch(2, pad_info={}))] == [(2, 2), (1, 3)]
    with pytest.raises(RuntimeError, match="need a source with __getitem__ and __len__"):
        ds.GeneratorDataset(once(4), ["x", "y"], num_shards=2, shard_id=0)


def test_an_iterator_that_begins_anew_is_read_anew():
    class Counter:
        begun = 0

        def __iter__(self):
            Counter.begun += 1
            self.left = 3
            return self

        def __next__(self):
            if self.left == 0:
                raise StopIteration
            self.left -= 1
            return (np.array(Counter.begun), )

    data = ds.GeneratorDataset(Counter(), ["x"])
    assert rows(data) != rows(data)


def test_a_generator_that_fails_fails_in_every_pass():
    def broken():
        yield (np.array(1), )
        raise ValueError("a broken row")

    data = ds.GeneratorDataset(broken(), ["x"], num_samples=1)
    data._rows_source.kept.clear()
    for _ in range(2):
        with pytest.raises(Exception, match="a broken row"):
            rows(data)


def test_a_model_trains_on_a_generator():
    def trained(source):
        net = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")
        ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.01)).train(3, ds.GeneratorDataset(source, ["x", "y"]).batch(2), dataset_sink_mode=False)
        return net.weight.asnumpy().tolist()

    assert trained(once(4)) == trained(lambda: once(4))


SHUFFLED = {
    "a source": lambda **how: numbers(10, shuffle=True, **how),
    "a function's rows": lambda **how: ds.GeneratorDataset([(float(i), i + 100) for i in range(10)], ["x", "y"], shuffle=True, **how),
    "a buffer": lambda **how: numbers(10, **how).shuffle(10),
    "batches": lambda **how: numbers(10, shuffle=True, **how).batch(3),
    "a repetition": lambda **how: numbers(10, shuffle=True, **how).repeat(2),
    "two together": lambda **how: numbers(10, shuffle=True, **how).concat(numbers(10, shuffle=True, **how)),
}


@pytest.mark.parametrize("make", SHUFFLED.values(), ids=SHUFFLED)
def test_each_iteration_of_a_data_set_is_its_next_epoch(make):
    def orders(seed):
        ds.config.set_seed(seed)
        dataset = make()
        iterators = [dataset.create_dict_iterator(num_epochs=1, output_numpy=True), dataset.create_tuple_iterator(output_numpy=True),
                     iter(dataset), dataset.create_dict_iterator(output_numpy=True)]
        made = [[np.asarray(list(row.values())[0] if isinstance(row, dict) else row[0]).tolist() for row in iterator] for iterator in iterators]
        wanted = [[column[0].numpy().tolist() for column in dataset.native.batches(1, 0, epoch)] for epoch in range(4)]
        assert made == wanted
        return made

    one = orders(3)
    assert all(one[i] != one[j] for i in range(4) for j in range(i)) and one == orders(3) != orders(4)


def test_repetitions_within_an_epoch_have_orders_of_their_own():
    order = [row[0] for row in rows(numbers(10, shuffle=True).repeat(3))]
    parts = [order[i:i + 10] for i in (0, 10, 20)]
    assert [sorted(part) for part in parts] == [list(range(10))] * 3 and parts[0] != parts[1] != parts[2] != parts[0]


def test_shards_share_no_row_in_any_iteration():
    ds.config.set_seed(1)
    shards = [numbers(10, shuffle=True, num_shards=2, shard_id=i) for i in range(2)]
    for _ in range(3):
        assert sorted(row[0] for shard in shards for row in rows(shard)) == list(range(10))


def weights_after(dataset, read_before):
    for _ in range(read_before):
        rows(dataset)
    network = nn.Dense(1, 1, weight_init="ones", bias_init="zeros")
    ms.Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 0.001)).train(2, dataset, dataset_sink_mode=False)
    return [p.asnumpy().tolist() for p in network.get_parameters()]


def pairs():
    ds.config.set_seed(5)
    values = np.arange(12, dtype=np.float32).reshape(12, 1)
    return ds.NumpySlicesDataset({"x": values, "y": values * values}, shuffle=True).batch(2)


class Wrapped:
    """A data set of a script's own that reads another one."""

    def __init__(self, dataset):
        self.dataset = dataset

    def get_dataset_size(self):
        return self.dataset.get_dataset_size()

    def create_tuple_iterator(self, num_epochs=-1):
        return self.dataset.create_tuple_iterator(num_epochs=num_epochs)


def test_a_training_does_not_depend_on_what_was_read_before():
    assert weights_after(pairs(), 0) == weights_after(pairs(), 3)
    wrapped = pairs()
    for _ in range(3):
        rows(wrapped)
    network = nn.Dense(1, 1, weight_init="ones", bias_init="zeros")
    ms.Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 0.001)).train(2, Wrapped(wrapped), dataset_sink_mode=False)
    assert [p.asnumpy().tolist() for p in network.get_parameters()] == weights_after(pairs(), 0)


def test_a_helper_reads_one_epoch_after_the_other():
    def order(batches):
        return [float(row[0].asnumpy()[0, 0]) for row in batches]

    helper = ms.DatasetHelper(pairs(), dataset_sink_mode=False, epoch_num=3)
    read = [order(helper) for _ in range(3)]
    dataset = pairs()
    assert read == [order(dataset.create_tuple_iterator(num_epochs=1)) for _ in range(3)] and read[0] != read[1]
