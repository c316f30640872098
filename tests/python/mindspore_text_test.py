"""The package mindspore: texts and rows whose sizes differ, from files to training; samplers that draw."""
import warnings

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn
from mindspore.dataset import text, transforms


def ragged(lengths=(1, 4, 2, 6, 3, 5), **settings):
    return ds.GeneratorDataset([(np.arange(1, n + 1, dtype=np.float32), np.array(n, np.int32)) for n in lengths], ["x", "n"], **settings)


def rows(dataset):
    return [[column.tolist() for column in row] for row in dataset.create_tuple_iterator(num_epochs=1, output_numpy=True)]


@pytest.fixture
def lines(tmp_path):
    for name, content in {"a.txt": "good one\nbad\n\nbad two three\ngood\n", "b.txt": "bad bad\ngood good one"}.items():
        (tmp_path / name).write_text(content)
    return str(tmp_path / "*.txt")


def numbered(lines, **settings):
    """Of each line its words' numbers, and whether it is good."""
    data = ds.TextFileDataset(lines, **settings).map(text.WhitespaceTokenizer(), "text")
    words = text.Vocab.from_dataset(ds.TextFileDataset(lines, shuffle=False).map(text.WhitespaceTokenizer(), "text"), "text", special_tokens=["<pad>"])
    data = data.map(lambda t: (t, np.array(float(t[0] == "good"), np.float32)), ["text"], ["text", "label"])
    return data.map([text.Lookup(words), text.Truncate(3)], ["text"])


def network():
    return nn.SequentialCell(nn.Embedding(8, 4, embedding_table="normal"), nn.Flatten(), nn.Dense(12, 1), nn.Flatten())


def test_a_network_trains_on_lines_of_files(lines):
    ms.set_seed(1)
    data = numbered(lines).map(transforms.PadEnd([3], 0), "text").map(lambda y: y.reshape(1), "label")
    losses = []

    class Seen(ms.Callback):
        def on_train_step_end(self, run_context):
            losses.append(float(run_context.original_args().net_outputs.asnumpy()))

    for batched in (data.batch(3, drop_remainder=True), numbered(lines).map(lambda y: y.reshape(1), "label").padded_batch(3, True, pad_info={"text": ([3], 0), "label": ([1], 0)})):
        losses.clear()
        net = network()
        model = ms.Model(net, nn.MSELoss(), nn.Adam(net.trainable_params(), 0.05), metrics={"mse"})
        model.train(40, batched, callbacks=[Seen()], dataset_sink_mode=False)
        assert len(losses) == 80 and losses[-1] < 0.2 * losses[0]
        assert model.eval(batched, dataset_sink_mode=False)["mse"] < 0.2


def test_batches_of_several_sizes_train_in_a_loop(lines):
    ms.set_seed(2)
    net = nn.SequentialCell(nn.Dense(1, 1))
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.01))
    data = ragged().bucket_batch_by_length(["x"], [3, 5], [2, 2, 2])
    shapes = [tuple(x.shape) for x, n in data.create_tuple_iterator(num_epochs=1)]
    assert sorted(shapes) == [(2, 2), (2, 4), (2, 6)]
    for x, n in data.create_tuple_iterator(num_epochs=1):
        assert np.isfinite(step(x.reshape(-1, 1), x.reshape(-1, 1)).asnumpy())


@pytest.mark.parametrize("make, error, message", [
    (lambda: ragged().bucket_batch_by_length(["x"], [3, 5], [2, 2, 2]), NotImplementedError, "bucket_batch_by_length whose pad_info has not a size for each"),
    (lambda: ragged().padded_batch(2, pad_info={}), NotImplementedError, "sizes that differ from batch to batch is not available"),
    (lambda: ds.NumpySlicesDataset(["a", "b"], ["x"]).batch(1), RuntimeError, "text.Lookup does it"),
    (lambda: ragged((1, 2)).batch(1), RuntimeError, "rows must have one size to be trained on")])
def test_what_a_model_cannot_train_on_says_what_to_do(make, error, message):
    net = nn.Dense(1, 1)
    with pytest.raises(error, match=message):
        ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1)).train(1, make(), dataset_sink_mode=False)


def test_texts_are_arrays_in_the_loops_of_scripts(lines):
    row = next(ds.TextFileDataset(lines, shuffle=False).create_dict_iterator(num_epochs=1))
    assert isinstance(row["text"], np.ndarray) and str(row["text"]) == "good one" and row["text"].dtype.kind == "U"
    batch = next(numbered(lines, shuffle=False).project("text").padded_batch(2, pad_info={}).create_tuple_iterator(num_epochs=1))
    assert isinstance(batch[0], ms.Tensor) and batch[0].shape == (2, 2)


def test_shards_of_lines_have_as_many_rows_and_every_row_is_in_one(lines):
    parts = [[str(row[0]) for row in ds.TextFileDataset(lines, shuffle=False, num_shards=4, shard_id=i).create_tuple_iterator(num_epochs=1)] for i in range(4)]
    assert [len(part) for part in parts] == [2] * 4
    assert len(set(sum(parts, []))) == 6 and parts[3] == parts[0]
    assert ds.TextFileDataset(lines, num_shards=4, shard_id=1).batch(1).native.num_shards() == 4


@pytest.mark.parametrize("make", [
    lambda lines: ds.TextFileDataset(lines), lambda lines: ds.TextFileDataset(lines, shuffle=ds.Shuffle.FILES),
    lambda lines: ds.TextFileDataset(lines, shuffle=False).shuffle(6), lambda lines: ds.NumpySlicesDataset(list("abcdef"), ["text"]),
    lambda lines: ds.NumpySlicesDataset(list("abcdef"), ["text"], sampler=ds.WeightedRandomSampler([1, 2, 3, 4, 5, 6], 4)),
    lambda lines: ds.NumpySlicesDataset(list("abcdef"), ["text"], sampler=ds.RandomSampler(True)),
    lambda lines: ds.GeneratorDataset(list("abcdef"), ["text"]).filter(lambda t: str(t) != "c").shuffle(3)])
def test_orders_are_those_of_the_seed_and_new_in_each_epoch(make, lines):
    def epochs(seed):
        ds.config.set_seed(seed)
        iterator = make(lines).create_tuple_iterator(num_epochs=6, output_numpy=True)
        return [[str(row[0]) for row in iterator] for _ in range(6)]

    first = epochs(5)
    assert first == epochs(5) and first != epochs(6)
    assert len({tuple(epoch) for epoch in first}) > 1


def test_texts_and_numbers_are_read_in_one_order():
    """Rows of Python's in the order in which tessera reads the same source."""
    ds.config.set_seed(9)
    words = ds.GeneratorDataset([(str(i), i) for i in range(20)], ["t", "n"], num_shards=2, shard_id=1, num_samples=7)
    plain = ds.GeneratorDataset([(float(i), i) for i in range(20)], ["t", "n"], num_shards=2, shard_id=1, num_samples=7)
    for step in (lambda d: d, lambda d: d.shuffle(4).skip(1).take(5).repeat(2), lambda d: d.batch(3), lambda d: d.batch(3, True).repeat(2)):
        assert [row[1] for row in rows(step(words))] == [row[1] for row in rows(step(plain))]
        assert len(step(words)) == len(step(plain))


def test_weights_choose_how_often_rows_come():
    ds.config.set_seed(3)
    data = ds.NumpySlicesDataset({"x": np.arange(3)}, sampler=ds.WeightedRandomSampler([1, 0, 3], 3))
    seen = np.array([row[0] for row in rows(data.repeat(400))])
    assert (seen != 1).all() and 0.7 < (seen == 2).mean() < 0.8
    once = ds.NumpySlicesDataset({"x": np.arange(3)}, sampler=ds.WeightedRandomSampler([1, 0, 3], 1, replacement=False))
    assert 0.68 < np.mean([row[0] == 2 for row in rows(once.repeat(1000))]) < 0.82
    with pytest.raises(RuntimeError, match=r"NaN, got: weights\[1\] = nan"):
        ds.NumpySlicesDataset({"x": np.arange(3)}, sampler=ds.WeightedRandomSampler([1, float("nan")]))


def test_half_numbers_out_of_range_are_refused_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in ("1e6", "65519", "-65510"):
            with pytest.raises(RuntimeError, match=f"\"{number}\" is out of the range of float16"):
                text.ToNumber(ms.float16)(np.array([number]))
        assert text.ToNumber(ms.float16)(np.array(["65504"])) == 65504


def bucketed(lengths, sizes=(2, 2), shape=(4, ), **settings):
    """Batches of rows of so many ones, whose label is their sum."""
    source = [(np.ones(length, np.float32), np.array([length], np.float32)) for length in lengths]
    return ds.GeneratorDataset(source, ["x", "y"], shuffle=False).bucket_batch_by_length(["x"], [3], list(sizes), pad_info={"x": (list(shape), 0)}, **settings)


@pytest.mark.parametrize("lengths, settings, count", [
    ((1, 4, 2, 3), {}, 2), ((1, 4, 2, 3, 1), {}, 3), ((1, 4, 2, 3, 1, 4), dict(drop_remainder=True), 2), ((4, 1, 2), {}, 2)])
def test_a_model_takes_buckets_whose_batches_have_one_size(lengths, settings, count):
    data = bucketed(lengths, **settings)
    batches = rows(data)
    assert len(batches) == data.get_dataset_size() == count
    seen = []

    class Seen(ms.Callback):
        def on_train_step_end(self, run_context):
            seen.append(run_context.original_args().cur_step_num)

    net = nn.SequentialCell(nn.Dense(4, 1, weight_init="ones", bias_init="zeros"))
    model = ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.01), metrics={"mae": nn.MAE()})
    assert model.eval(data, dataset_sink_mode=False)["mae"] == 0
    model.train(2, data, [Seen()], dataset_sink_mode=False)
    assert len(seen) == 2 * count
    model.fit(1, data.repeat(2), data, dataset_sink_mode=False, valid_dataset_sink_mode=False)


@pytest.mark.parametrize("lengths, settings, error, message", [
    ((1, 4, 2, 3, 1, 4), {}, RuntimeError, "drop_remainder=True"), ((1, 4, 2, 3), dict(sizes=(2, 1)), NotImplementedError, r"bucket_batch_sizes that differ, \[2, 1\]"),
    ((1, 4, 2, 3), dict(shape=(None, )), NotImplementedError, "pad_info has not a size")])
def test_buckets_say_what_a_model_misses(lengths, settings, error, message):
    model = ms.Model(nn.Dense(4, 1), nn.MSELoss(), metrics={"mae"})
    with pytest.raises(error, match=message):
        model.eval(bucketed(lengths, **settings), dataset_sink_mode=False)


def test_a_split_of_texts_shares_no_row():
    data = ds.NumpySlicesDataset(list("abcdefghij"), ["t"], shuffle=True)
    parts = [{row[0] for row in rows(part)} for part in data.split([0.7, 0.3])]
    assert [len(part) for part in parts] == [7, 3] and len(parts[0] | parts[1]) == 10


@pytest.mark.parametrize("call, error, message", [
    (lambda: text.UnicodeScriptTokenizer(), NotImplementedError, "text.PythonTokenizer takes one"),
    (lambda: text.RegexReplace("[[a]]", "")("a"), RuntimeError, "a class within a class"),
    (lambda: text.RegexReplace(r"\p{Greek}", "")("a"), RuntimeError, "general category Greek"),
    (lambda: ds.TextFileDataset(__file__, shuffle=ds.Shuffle.INFILE), NotImplementedError, "Shuffle.GLOBAL shuffles all rows"),
    (lambda: ds.PKSampler(1).add_child(ds.SequentialSampler()), NotImplementedError, "Make it the child of another sampler"),
    (lambda: rows(ragged((1, 2)).batch(2)), RuntimeError, "padded_batch or bucket_batch_by_length pads them"),
    (lambda: ds.Multi30kDataset(".", language_pair=["en", "fr"]), ValueError, "language_pair can only be")])
def test_what_texts_lack_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
