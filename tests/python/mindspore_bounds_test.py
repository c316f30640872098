"""What functions of `mindspore` do at the borders of their arguments: indices out of range, numbers without an opposite, settings that would be
ignored, and transforms that draw."""
import math

import numpy as np
import pytest
import mindspore as ms
import mindspore.dataset as ds
from mindspore import Tensor, ops
from mindspore.dataset import transforms, vision
from mindspore.ops import operations as P

IMAGES = np.random.RandomState(0).randint(0, 255, (64, 6, 6, 3)).astype(np.uint8)


def flipped(rows):
    return [not np.array_equal(row, image) for row, image in zip(rows, IMAGES)]


class TestRandomTransforms:
    def test_in_a_compose_each_sample_is_drawn_for(self):
        data = ds.NumpySlicesDataset({"image": IMAGES}, shuffle=False)
        data = data.map(transforms.Compose([vision.RandomHorizontalFlip(0.5), lambda x: x]), "image")
        drawn = flipped([row["image"] for row in data.create_dict_iterator(output_numpy=True, num_epochs=1)])
        assert 10 < sum(drawn) < 54

    @pytest.mark.parametrize("flip", [vision.RandomHorizontalFlip(0.5), vision.RandomVerticalFlip(0.5), transforms.Compose([vision.RandomHorizontalFlip(0.5)])])
    def test_called_by_a_script_they_draw_each_time_and_repeat_after_the_seed(self, flip):
        ms.set_seed(1)
        first = flipped([np.asarray(flip(image)) for image in IMAGES])
        assert 10 < sum(first) < 54
        ms.set_seed(1)
        assert flipped([np.asarray(flip(image)) for image in IMAGES]) == first

    def test_of_colors_draw_each_time_too(self):
        change = vision.RandomColorAdjust(brightness=(0.1, 2.0))
        assert len({np.asarray(change(IMAGES[0])).tobytes() for _ in range(8)}) > 4


X = Tensor([[1.0, 2.0], [3.0, 4.0]], ms.float32)


@pytest.mark.parametrize("call", [
    lambda: ops.gather_elements(X, 1, Tensor([[2, 0], [0, 0]], ms.int32)),
    lambda: ops.gather_elements(X, 1, Tensor([[-3, 0], [0, 0]], ms.int32)),
    lambda: ops.gather_nd(X, Tensor([[0, 2]], ms.int32)),
    lambda: ops.gather_nd(X, Tensor([[-1, 1]], ms.int32)),
    lambda: ops.nll_loss(X, Tensor([0, 7], ms.int32)),
    lambda: ops.tensor_scatter_add(X, Tensor([[0, 2]], ms.int32), Tensor([5.0], ms.float32)),
    lambda: ops.tensor_scatter_update(X, Tensor([[0, 2]], ms.int32), Tensor([5.0], ms.float32)),
    lambda: ops.scatter_nd(Tensor([[0, 2]], ms.int32), Tensor([5.0], ms.float32), (2, 2)),
    lambda: ops.tensor_scatter_elements(X, Tensor([[2, 0]], ms.int32), Tensor([[5.0, 6.0]], ms.float32), 1),
])
def test_an_index_out_of_range_is_refused(call):
    with pytest.raises(Exception, match="must be from 0 to|out of range"):
        call().asnumpy()


def test_in_range_they_are_as_before():
    assert ops.gather_elements(X, 1, Tensor([[1, 0], [-1, 0]], ms.int32)).asnumpy().tolist() == [[2, 1], [4, 3]]
    assert ops.gather_nd(X, Tensor([[1, 0], [0, 1]], ms.int32)).asnumpy().tolist() == [3, 2]
    np.testing.assert_allclose(ops.nll_loss(X, Tensor([1, 0], ms.int32)).asnumpy(), -2.5)
    np.testing.assert_allclose(ops.nll_loss(X, Tensor([1, -100], ms.int32)).asnumpy(), -2)
    images = Tensor(np.random.RandomState(0).randn(2, 3, 4, 5), ms.float32)
    labels = Tensor(np.random.RandomState(1).randint(0, 3, (2, 4, 5)), ms.int32)
    wanted = -np.take_along_axis(images.asnumpy(), labels.asnumpy()[:, None], 1).mean()
    np.testing.assert_allclose(ops.nll_loss(images, labels).asnumpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize("dtype, values", [(ms.uint8, [3, 0, 1, 255]), (ms.int32, [5, -2**31, 7, 2**31 - 1]), (ms.int64, [1, -3, 0, 9]), (ms.float32, [2.0, -1.0, 0.0, 5.0])])
def test_the_smallest_is_found_of_every_type(dtype, values):
    x, wanted = Tensor(values, dtype), np.argsort(values)
    assert int(ops.argmin(x).asnumpy()) == wanted[0]
    assert ops.sort(x)[1].asnumpy().tolist() == wanted.tolist()
    assert ops.sort(x)[0].asnumpy().tolist() == sorted(values)
    assert int(ops.min(x, 0)[1].asnumpy()) == wanted[0] and int(P.ArgMinWithValue()(x)[0].asnumpy()) == wanted[0]
    assert ops.topk(x, 2, largest=False)[0].asnumpy().tolist() == sorted(values)[:2]
    assert int(ops.median(x)[0].asnumpy()) == sorted(values)[1]


@pytest.mark.parametrize("call, message", [
    (lambda: P.MaxPool(2, 2, data_format="NHWC"), "data_format"),
    (lambda: P.AvgPool(2, 2, data_format="NHWC"), "data_format"),
    (lambda: P.Conv2D(8, 3, data_format="NHWC"), "data_format"),
    (lambda: P.Conv2D(8, 3)(Tensor(np.ones((1, 2, 5, 5)), ms.float32), Tensor(np.ones((4, 2, 3, 3)), ms.float32)), "out_channel"),
    (lambda: ops.repeat_interleave(Tensor([1, 2, 3]), [1, 2], 0), "as many as dim 0 has"),
    (lambda: ops.roll(X, 1, (0, 1)), "must be as many"),
])
def test_what_would_be_ignored_is_refused(call, message):
    with pytest.raises((ValueError, NotImplementedError), match=message):
        call()


M = Tensor(np.ones((2, 3)), ms.float32)
PLACES = Tensor(np.zeros((2, 3)), ms.int32)


@pytest.mark.parametrize("axis", [2, -3])
@pytest.mark.parametrize("call", [
    lambda axis: ops.gather_elements(M, axis, PLACES), lambda axis: ops.tensor_scatter_elements(M, PLACES, M, axis, "add"),
    lambda axis: ops.index_add(M, Tensor([0], ms.int32), M, axis), lambda axis: ops.index_select(M, axis, Tensor([0], ms.int32)),
    lambda axis: ops.take(M, Tensor([0], ms.int32), axis), lambda axis: ops.topk(M, 1, axis), lambda axis: ops.sort(M, axis),
    lambda axis: ops.median(M, axis), lambda axis: ops.cumprod(M, axis), lambda axis: ops.diff(M, axis=axis), lambda axis: ops.cross(M, M, axis),
    lambda axis: ops.narrow(M, axis, 0, 1), lambda axis: ops.repeat_elements(M, 2, axis), lambda axis: ops.repeat_interleave(M, [1, 2], axis),
    lambda axis: ops.moveaxis(M, 0, axis), lambda axis: ops.moveaxis(M, axis, 0), lambda axis: ops.swapaxes(M, axis, 0), lambda axis: ops.flip(M, axis),
    lambda axis: ops.roll(M, 1, axis), lambda axis: ops.split(M, 1, axis), lambda axis: ops.chunk(M, 2, axis), lambda axis: ops.tensor_split(M, 2, axis),
    lambda axis: ops.unbind(M, axis), lambda axis: ops.flatten(M, start_dim=axis), lambda axis: ops.diagonal(M, dim2=axis),
    lambda axis: ms.numpy.split(M, 1, axis), lambda axis: P.Unstack(axis)(M), lambda axis: P.CumProd()(M, axis),
])
def test_an_axis_that_a_tensor_does_not_have_is_refused(call, axis):
    with pytest.raises(ValueError, match=rf"^For '\w+', the '\w+' must be in range \[-2, 2\), the dims of the tensor, but got {axis}\.$"):
        call(axis)


def test_an_axis_must_be_an_int_of_any_kind():
    assert ops.narrow(M, np.int64(1), 0, 1).shape == (2, 1)
    with pytest.raises(TypeError, match="For 'narrow', the 'axis' must be int, but got float"):
        ops.narrow(M, 1.0, 0, 1)


@pytest.mark.parametrize("call, message", [
    (lambda: ops.tril(Tensor([1.0])), "'tril', the input must have at least 2 dims, but got \\[1\\]"),
    (lambda: ops.triu(Tensor([1.0])), "'triu', the input must have at least 2 dims, but got \\[1\\]"),
    (lambda: ops.adjoint(Tensor([1.0])), "'adjoint', the input must have at least 2 dims, but got \\[1\\]"),
    (lambda: ops.cross(X, X), "'cross', one dim must have size 3, but got \\[2, 2\\]"),
    (lambda: ops.layer_norm(M, (2, ), M, M), "'layer_norm', the 'normalized_shape' must be the last dims of the input, \\[2, 3\\], but got \\[2\\]"),
])
def test_a_shape_that_a_function_does_not_take_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_divisor_counts_at_borders_too():
    made = ops.avg_pool2d(Tensor(np.ones((1, 1, 2, 2)), ms.float32), 2, 1, padding=1, count_include_pad=False, divisor_override=4)
    assert made.asnumpy()[0, 0].tolist() == [[0.25, 0.5, 0.25], [0.5, 1, 0.5], [0.25, 0.5, 0.25]]


@pytest.mark.parametrize("dtype, largest", [(ms.float16, 65504.0), (ms.float32, 3.4028234663852886e38), (ms.float64, 1.7976931348623157e308)])
def test_infinity_becomes_the_types_largest_number(dtype, largest):
    assert ops.nan_to_num(Tensor([np.inf, -np.inf, np.nan], dtype)).asnumpy().tolist() == [largest, -largest, 0]


@pytest.mark.parametrize("dtype", [ms.int32, ms.int64])
def test_large_whole_numbers_are_divided_exactly(dtype):
    x, y = Tensor([100000007, -100000007, 16777217], dtype), Tensor([10, 10, 1], dtype)
    assert (x % y).asnumpy().tolist() == [7, 3, 0] and (x % 10).asnumpy().tolist() == [7, 3, 7]
    assert (x // y).asnumpy().tolist() == [10000000, -10000001, 16777217]
    assert ops.truncate_div(x, y).asnumpy().tolist() == [10000000, -10000000, 16777217]
    assert ops.trunc(x).asnumpy().tolist() == x.asnumpy().tolist()
    assert (x % y).dtype == dtype and ops.truncate_div(x, y).dtype == dtype


def double(values):
    return ms.Tensor(np.asarray(values, np.float64))


@pytest.mark.parametrize("name, wanted, values", [
    ("atan", math.atan, [*np.linspace(-5, 5, 401), -1e300, 1e-300, 0.0, 2.414213562373095, 0.66]),
    ("asin", math.asin, np.linspace(-1, 1, 401)), ("acos", math.acos, np.linspace(-1, 1, 401)),
    ("erf", math.erf, np.linspace(-7, 7, 401)), ("erfc", math.erfc, [*np.linspace(-7, 7, 401), *np.linspace(7, 26, 191)]),
])
def test_of_doubles_functions_are_right_to_their_precision(name, wanted, values):
    found = getattr(ops, name)(double(values)).asnumpy()
    np.testing.assert_allclose(found, [wanted(value) for value in values], rtol=1e-13, atol=1e-15)


def test_the_angle_of_doubles_is_right_to_their_precision():
    y, x = np.meshgrid(np.linspace(-3, 3, 25), np.linspace(-3, 3, 25))
    np.testing.assert_allclose(ops.atan2(double(y), double(x)).asnumpy(), np.arctan2(y, x), rtol=1e-14, atol=1e-15)


def test_a_range_keeps_to_its_most_numbers():
    assert ops.range(1, 7, 2, maxlen=3).asnumpy().tolist() == [1, 3, 5]
    for call, error, message in [(lambda: ops.range(1, 7, 2, maxlen=2), ValueError, "has 3 numbers, 'maxlen' allows 2"),
                                 (lambda: ops.Range(2)(1, 7, 2), ValueError, "'maxlen' allows 2"),
                                 (lambda: ops.range(0, 10**13, 1), ValueError, "has 10000000000000 numbers, 'maxlen' allows 1000000"),
                                 (lambda: ops.range(1, 7, 2, 0), ValueError, "positive"),
                                 (lambda: ops.range(1, 7, 2, 2.0), TypeError, "must be int")]:
        with pytest.raises(error, match=message):
            call()
