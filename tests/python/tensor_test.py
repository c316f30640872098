"""Tensors, and operators on them outside construct()."""
import array

import numpy as np
import pytest
import tessera
from tessera import ops

ALL = ["float32", "float64", "float16", "int32", "int64", "uint8", "bool", "int8", "int16", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", ALL)
def test_an_array_comes_back_equal(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    back = tessera.Tensor(array).numpy()
    assert back.dtype == array.dtype and back.shape == (2, 3)
    np.testing.assert_array_equal(back, array)


def test_a_tensor_is_a_copy_and_from_numpy_shares():
    array = np.zeros(3, np.float32)
    copy, shared = tessera.Tensor(array), tessera.Tensor.from_numpy(array)
    array[1] = 5
    assert list(copy.numpy()) == [0, 0, 0]
    assert list(shared.numpy()) == [0, 5, 0]


@pytest.mark.parametrize("make", [tessera.Tensor, tessera.Tensor.from_numpy])
def test_bools_that_are_other_bytes_than_0_and_1_become_1(make):
    array = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    tensor = make(array)
    assert tensor.dtype == tessera.bool_ and tensor.numpy().view(np.uint8).tolist() == [0, 1, 1, 1]
    assert array.view(np.uint8).tolist() == [0, 1, 2, 255]  # the array is its owner's


def test_numpy_shares_and_keeps_the_memory():
    tensor = tessera.Tensor([1.0, 2.0])
    first, second = tensor.numpy(), tensor.numpy()
    first[0] = 7
    del tensor, first
    assert list(second) == [7, 2]


def test_a_strided_array_is_read_right():
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T[::2]
    np.testing.assert_array_equal(tessera.Tensor(array).numpy(), array)


def test_pythons_numbers_are_float32_and_int64():
    assert tessera.Tensor(1.5).dtype == tessera.float32
    assert tessera.Tensor([1.5, 2]).dtype == tessera.float32
    assert tessera.Tensor(3).dtype == tessera.int64
    assert tessera.Tensor(3).shape == ()
    assert tessera.Tensor(np.float64(1)).dtype == tessera.float64


def test_bfloat16_goes_through_float32():
    tensor = tessera.Tensor([1.0, 1 + 2**-7], tessera.bfloat16)
    assert tensor.dtype == tessera.bfloat16
    np.testing.assert_array_equal(tensor.numpy(), np.array([1, 1 + 2**-7], np.float32))


def test_it_prints_as_numpy_does():
    assert str(tessera.Tensor(np.array([[0], [1]], np.float32))) == "[[0.]\n [1.]]"


def test_operators_run_at_once():
    x = np.array([[1, -2], [3, 4]], np.float32)
    t = tessera.Tensor(x)
    for ours, theirs in [(t + 1, x + 1), (2 - t, 2 - x), (t * t, x * x), (1 / t, 1 / x), (t @ x, x @ x), (-t, -x), (t**2, x**2),
                         (t > 0, x > 0), (t == t, x == x), (ops.relu(t), np.maximum(x, 0)), (ops.reduce_sum(t, 0), x.sum(0)),
                         (ops.reduce_max(t), x.max()), (ops.transpose(t), x.T), (ops.concat([t, x], 1), np.hstack([x, x])),
                         (ops.cast(t, "int32"), x.astype(np.int32)), (t.reshape(4), x.reshape(4))]:
        assert isinstance(ours, tessera.Tensor)
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-6)


def test_several_results_come_as_a_tuple():
    values, indices = ops.top_k(tessera.Tensor([1.0, 3.0, 2.0]), 2)
    assert list(values.numpy()) == [3, 2] and list(indices.numpy()) == [1, 2]
    assert [part.shape for part in ops.split(np.zeros((4, 2), np.float32), 2)] == [(2, 2), (2, 2)]


@pytest.mark.parametrize("key", [0, -1, (1, 2), slice(1, None), (slice(None), 1), (..., 0), (None, 1), (slice(None, None, 2), None),
                                 (slice(-2, -1), ..., slice(0, 2))], ids=repr)
def test_indices_mean_what_they_mean_in_numpy(key):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(tessera.Tensor(x)[key].numpy(), x[key])


def test_an_index_outside_is_refused():
    with pytest.raises(IndexError, match=r"5 is outside dim 0 of f32\[2\]"):
        tessera.Tensor([1.0, 2.0])[5]


def test_errors_have_the_text_of_the_library():
    with pytest.raises(ValueError, match=r"^matmul: contracted dims differ \(3 and 2\): lhs f32\[2,3\], rhs f32\[2,3\]$") as error:
        ops.matmul(np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32))
    assert isinstance(error.value, tessera.InvalidArgument)


def test_what_is_no_tensor_is_a_type_error():
    for wrong in ("text", object(), None):
        with pytest.raises(TypeError):
            tessera.Tensor([1.0]) + wrong


def test_one_graph_is_compiled_once():
    x = np.ones((3, 3), np.float32)
    results = {float(ops.reduce_sum(ops.exp(x)).item()) for _ in range(200)}
    assert len(results) == 1


def test_help_has_the_registrys_text():
    assert "axes" in ops.reduce_sum.__doc__ and "x" in ops.conv2d.__doc__
    undocumented = [name for name, f in vars(ops).items() if callable(f) and not name.startswith("_") and not f.__doc__]
    assert undocumented == []


def test_a_checkpoint_holds_tensors_and_texts(tmp_path):
    values = {"a": tessera.Tensor([[1.0, 2.0]]), "b.c": np.arange(3), "note": "text"}
    path = tessera.checkpoint.save(str(tmp_path / "x"), values)
    assert path.endswith("x.ckpt")
    loaded = tessera.checkpoint.load(path)
    assert list(loaded) == ["a", "b.c", "note"] and loaded["note"] == "text"
    np.testing.assert_array_equal(loaded["b.c"].numpy(), np.arange(3))
    with pytest.raises(OSError):
        tessera.checkpoint.load(str(tmp_path / "absent.ckpt"))


def test_a_number_takes_the_tensors_dtype_unless_numbers_promote():
    x = tessera.Tensor([1, 2])
    with pytest.raises(tessera.InvalidArgument, match="the number 0.5 is no i64"):
        x + 0.5
    assert (x * 2.0).dtype is tessera.int64 and (tessera.Tensor([1.0], tessera.float16) + np.float32(1)).dtype is tessera.float32
    ops.promote_numbers(True)
    try:
        assert (x + 0.5).numpy().tolist() == [1.5, 2.5] and (x * 2.0).dtype is tessera.float32
    finally:
        ops.promote_numbers(False)
    assert (x * 2.0).dtype is tessera.int64


@pytest.mark.parametrize("method", [
    lambda x: x.sum(), lambda x: x.mean(1), lambda x: x.max(0), lambda x: x.min(), lambda x: x.prod(-1), lambda x: (x > 2).all(), lambda x: (x > 2).any(),
    lambda x: x.transpose(1, 0), lambda x: x.transpose(), lambda x: abs(-x), lambda x: x // 2, lambda x: 7 // x, lambda x: x % 2.5, lambda x: (-x) % 3,
    lambda x: (x > 2) & (x < 5) | ~(x > 1), lambda x: x[None].squeeze(0)])
def test_methods_are_numpys(method):
    array = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(method(tessera.Tensor(array)).numpy(), method(array), rtol=1e-6)


def test_methods_keep_dims_and_integers():
    x = tessera.Tensor([[1, 2], [3, 4]])
    assert x.sum(1, keep_dims=True).shape == (2, 1) and x.expand_dims(0).shape == (1, 2, 2) and x.view(4).shape == (4,)
    assert (x // 2).numpy().tolist() == [[0, 1], [1, 2]] and (x // 2).dtype is tessera.int64 and (-x % 3).numpy().tolist() == [[2, 1], [0, 2]]


def test_a_tensor_takes_other_elements():
    x = tessera.Tensor([1.0, 2.0])

    class Net(tessera.nn.Cell):
        def construct(self, y):
            return y * x

    net = Net()
    assert net(tessera.Tensor([1.0, 1.0])).numpy().tolist() == [1, 2]
    x.set_data([3, 4])
    assert x.dtype is tessera.float32 and net(tessera.Tensor([1.0, 1.0])).numpy().tolist() == [3, 4]
    with pytest.raises(tessera.InvalidArgument, match="cannot take a value of"):
        x.set_data([1.0])


@pytest.mark.parametrize("x", [tessera.Tensor([1.0, 2.0]), tessera.Parameter([1.0, 2.0])])
def test_what_has_no_elements_is_another_thing(x):
    for other in (None, "a", object(), {}, float, ..., tessera.float32):
        assert (x == other) is False and (x != other) is True and (other == x) is False
    assert x not in [None, "a"] and {x: 1}[x] == 1
    for other in (1.0, np.float32(1), [1.0, 3.0], (1, 3), np.array([1.0, 3.0]), array.array("f", [1, 3]), tessera.Tensor([1.0, 3.0])):
        assert (x == other).numpy().tolist() == [True, False] and (x != other).numpy().tolist() == [False, True]


def test_what_is_traced_is_not_none():
    class Net(tessera.nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = tessera.Parameter([1.0, 2.0])

        def construct(self, x, scale=None):
            y = x * self.w
            if y == None or self.w == None or None == y:  # noqa: E711
                return x
            if scale != None:  # noqa: E711
                y = y * scale
            return y + ops.cast(y == 4, tessera.float32)

    x = tessera.Tensor([3.0, 2.0])
    assert Net()(x).numpy().tolist() == [3.0, 5.0]
    assert Net()(x, tessera.Tensor([2.0, 1.0])).numpy().tolist() == [6.0, 5.0]
