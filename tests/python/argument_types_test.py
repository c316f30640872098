"""Arguments of other types than they may have: refused by what was given, never taken for something else."""
import numpy as np
import pytest
import tessera
from tessera import nn

ROWS = {"x": np.arange(12, dtype=np.float32).reshape(4, 3)}


@pytest.mark.parametrize("call, words", [
    (lambda: nn.Conv2d(3, 8, "11"), "got '11' of type str"),
    (lambda: nn.LayerNorm("16"), "got '16' of type str"),
    (lambda: nn.Conv2d(3, 8, 2.5), "got 2.5 of type float"),
    (lambda: nn.LayerNorm((4, 2.5)), "got 2.5 of type float"),
    (lambda: tessera.Tensor(ROWS["x"]).reshape("12"), "got '12' of type str"),
    (lambda: nn.Momentum(0.1, groups=[{"params": ["up.weight"]}]), "parameters of the network.*got 'up.weight'"),
    (lambda: tessera.Model(nn.Dense(3, 2), memory_limit=1.5), "memory_limit is a number of bytes.*got 1.5"),
    (lambda: tessera.Model(nn.Dense(3, 2), memory_limit=True), "memory_limit is a number of bytes.*got True"),
    (lambda: tessera.Model(nn.Dense(3, 2), server_memory_limit=np.True_), "server_memory_limit is a number of bytes.*got .*True"),
    (lambda: tessera.Model(nn.Dense(3, 2), parallel_optimizer_threshold=False), "parallel_optimizer_threshold must be an int, got False"),
    (lambda: nn.Sequential([nn.Dense(3, 2), nn.ReLU()]), "Sequential holds cells, got \\[.*one by one"),
    (lambda: nn.Sequential(nn.ReLU), "Sequential holds cells, got the class ReLU"),
    (lambda: nn.Adam(nn.Dense(3, 2).parameters(), 0.01), "learning_rate is a number.*got parameters.*groups="),
    (lambda: tessera.data.tensors(ROWS).map("x", [lambda a: a]), "another type"),
    (lambda: tessera.ops.concat(tessera.Tensor(ROWS["x"])), "a sequence of tensors is needed, got one Tensor"),
    (lambda: tessera.ops.stack(nn.Dense(3, 2).weight), "a sequence of tensors is needed, got one Parameter"),
    (lambda: nn.Dense(3, 2, False), "an initializer, its name or a number is needed, got False of type bool"),
])
def test_it_is_refused(call, words):
    with pytest.raises(TypeError, match=words):
        call()


@pytest.mark.parametrize("call, error, words", [
    (lambda: tessera.Model(3), TypeError, r"^Model\(\): network must be a tessera.nn.Cell, got 3 of type int$"),
    (lambda: tessera.Model(), TypeError, r"^Model\(\) needs network, a tessera.nn.Cell$"),
    (lambda: tessera.Model(nn.Dense(3, 2), nn.Adam), TypeError, r"^Model\(\): loss must be a tessera.nn.Cell or None, got the class Adam$"),
    (lambda: tessera.Model(nn.Dense(3, 2), metrics="loss"), TypeError, r"^Model\(\): metrics must be a Sequence\[str\], got 'loss' of type str$"),
    (lambda: tessera.Model(nn.Dense(3, 2), num_threads="2"), TypeError, r"^Model\(\): num_threads must be an int, got '2' of type str$"),
    (lambda: tessera.Model(nn.Dense(3, 2)).train(2, "rows"), TypeError, r"^Model.train\(\): dataset must be a tessera.data.Dataset, got 'rows' of type str$"),
    (lambda: tessera.Model(nn.Dense(3, 2)).train(2.5, tessera.data.tensors(ROWS)), TypeError, r"^Model.train\(\): num_epochs must be an int, got 2.5 of type float$"),
    (lambda: tessera.Model(nn.Dense(3, 2)).train(tessera.data.tensors(ROWS)), TypeError,
     r"^Model.train\(\): num_epochs must be an int, got an object of type Dataset; it is what dataset takes: Model.train\(num_epochs, dataset\)$"),
    (lambda: tessera.Model(nn.Dense(3, 2)).train(1, [(np.ones(3, np.float32), 1)] * 9), TypeError,
     r'dataset must be a tessera.data.Dataset, got a list of 9 items, the first a tuple of float32\[3\], int; tessera.data.generator\(rows, \["x", "label"\]\).batch\(size\) makes one$'),
    (lambda: tessera.Model(nn.Dense(3, 2)).train(1, np.ones((64, 3), np.float32)), TypeError,
     r'got float32\[64, 3\] of type ndarray; tessera.data.tensors\(\{"x": x, "label": label\}\).batch\(size\) makes one$'),
    (lambda: tessera.Model(nn.Dense(3, 2)).train(1, tessera.data.tensors(ROWS), tessera.LossMonitor()), TypeError,
     r"callbacks must be a Sequence\[tessera.Callback\], got an object of type LossMonitor; one alone stands in a list, too: callbacks=\[...\]$"),
    (lambda: tessera.Model(nn.Dense(3, 2)).train(1, tessera.data.tensors(ROWS), tessera.LossMonitor), TypeError,
     r"got the class LossMonitor; an instance is wanted, which is made by a call: \[LossMonitor\(\)\]$"),
    (lambda: tessera.Model(nn.Dense(3, 2), nn.MSELoss, nn.SGD(0.1)), TypeError,
     r"loss must be a tessera.nn.Cell or None, got the class MSELoss; an instance is wanted, which is made by a call: MSELoss\(\)$"),
    (lambda: tessera.ops.add(ROWS["x"]), TypeError, r"^add\(\) needs y$"),
    (lambda: tessera.data.tensors(ROWS).shuffle(True), TypeError, r"^Dataset.shuffle\(\): buffer_size must be an int, got True of type bool$"),
    (lambda: tessera.data.tensors(ROWS).batch(np.bool_(True)), TypeError, r"^Dataset.batch\(\): batch_size must be an int, got (np\.)?True_? of type bool_?$"),
    (lambda: tessera.data.tensors(ROWS).take(True), TypeError, "count must be an int, got True of type bool"),
    (lambda: tessera.Model(nn.Dense(3, 2)).train(True, tessera.data.tensors(ROWS)), TypeError, "num_epochs must be an int, got True of type bool"),
    (lambda: nn.Momentum(0.1, 0.9, True), TypeError, r"^Momentum\(\): weight_decay must be a float, got True of type bool$"),
    (lambda: nn.Dropout(True), TypeError, "keep_prob must be a float, got True of type bool"),
    (lambda: nn.Dense(True, 2), TypeError, "in_channels must be an int, got True of type bool"),
    (lambda: tessera.Model(nn.Dense(3, 2), num_threads=-1), tessera.InvalidArgument, "num_threads must be at least 0.*got -1"),
    (lambda: tessera.Model(nn.Dense(3, 2), parallel_optimizer_threshold=-1), tessera.InvalidArgument, "parallel_optimizer_threshold must be at least 0 bytes, got -1"),
    (lambda: tessera.checkpoint.ParameterLayout("w", [0, 2], [[0], []]), tessera.InvalidArgument, "ParameterLayout: .*dev_matrix"),
])
def test_it_is_refused_in_one_line_that_names_the_argument(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_training_that_may_change_nothing_is_refused():
    network = nn.Dense(3, 2)
    for parameter in network.parameters():
        parameter.requires_grad = False
    model = tessera.Model(network, nn.MSELoss(), nn.Momentum(0.1))
    with pytest.raises(tessera.InvalidArgument, match="training needs a parameter that it may change: none of the 2 has requires_grad"):
        model.train(1, tessera.data.tensors(ROWS | {"y": np.ones((4, 2), np.float32)}).batch(2))


def test_sizes_may_be_tensors_and_numpy_s_integers():
    x = tessera.Tensor(ROWS["x"])
    assert x.reshape((tessera.Tensor(6), np.int32(2))).shape == (6, 2)
    assert x.reshape(tessera.Tensor([2, 6])).shape == (2, 6)


def test_arrays_of_another_byte_order_are_read():
    x = tessera.Tensor(ROWS["x"].astype(">f4"))
    assert x.dtype == tessera.float32
    np.testing.assert_array_equal(x.numpy(), ROWS["x"])


def test_a_data_set_is_mapped_by_a_function_of_an_array():
    rows = tessera.data.tensors(ROWS).map("x", lambda a: 2 * a).batch(2)
    np.testing.assert_array_equal(np.concatenate([np.asarray(x) for (x,) in rows]), 2 * ROWS["x"])
