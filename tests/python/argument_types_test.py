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
    (lambda: nn.Sequential([nn.Dense(3, 2), nn.ReLU()]), "Sequential holds cells, got \\[.*one by one"),
    (lambda: nn.Sequential(nn.ReLU), "Sequential holds cells, got the class ReLU"),
    (lambda: nn.Adam(nn.Dense(3, 2).parameters(), 0.01), "learning_rate is a number.*got parameters.*groups="),
    (lambda: tessera.data.tensors(ROWS).map("x", [lambda a: a]), "another type"),
])
def test_it_is_refused(call, words):
    with pytest.raises(TypeError, match=words):
        call()


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
