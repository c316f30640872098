"""NumPy's numbers, arrays and functions beside parameters and what construct() computes."""
import numpy as np
import pytest
import tessera
from tessera import nn, ops

X = np.arange(6, dtype=np.float32).reshape(2, 3)
ONES = np.ones((3, ), np.float32)


class Scaled(nn.Cell):
    """x times f(w), with w = [1, 1, 1]."""

    def __init__(self, f):
        super().__init__()
        self.w = tessera.Parameter(ONES)
        self.f = f

    def construct(self, x):
        return x * self.f(self.w)


class Gradient(nn.Cell):
    """Of the sum of Scaled(f)(x), by w."""

    def __init__(self, f):
        super().__init__()
        self.scaled = Scaled(f)

    def construct(self, x):
        return nn.value_and_grad(lambda y: ops.reduce_sum(self.scaled(y)), [x], [self.scaled.w])[1][0]


@pytest.mark.parametrize("f, scale", [
    (lambda w: np.float32(2) * w, 2),
    (lambda w: np.sqrt(4.0) * w, 2),
    (lambda w: 2 * ONES * w, 2),
    (lambda w: np.multiply(w, 2 * ONES), 2),
    (lambda w: np.float32(1) - w, -1),
    (lambda w: ONES / w, -1),
])
def test_a_parameter_right_of_a_numpy_number_is_trained(f, scale):
    np.testing.assert_allclose(Gradient(f)(tessera.Tensor(X)).numpy(), scale * X.sum(0), rtol=1e-6)


@pytest.mark.parametrize("f", [np.exp, lambda w: np.maximum(w, 0.5), np.asarray, lambda w: tessera.Tensor(w.numpy()),
                               lambda w: np.add(ONES, w, out=np.zeros(3, np.float32))])
def test_a_parameter_has_no_elements_for_numpy_in_a_trace(f):
    with pytest.raises(TypeError, match="construct\\(\\) is traced"):
        Scaled(f)(tessera.Tensor(X))


def test_the_operator_to_use_is_named():
    with pytest.raises(TypeError, match="np.exp needs elements.*Use ops.exp$"):
        Scaled(np.exp)(tessera.Tensor(X))


def test_outside_of_a_trace_numpy_takes_the_elements():
    w = tessera.Parameter(ONES)
    np.testing.assert_array_equal(np.exp(w), np.exp(ONES))
    product = 2 * ONES * w
    assert isinstance(product, np.ndarray)
    np.testing.assert_array_equal(product, 2 * ONES)


class Values(nn.Cell):

    def __init__(self, f):
        super().__init__()
        self.f = f

    def construct(self, x):
        return self.f(x + 0)


LEFT = [np.float32(2), np.float64(2), np.int64(2), 2 * ONES]


@pytest.mark.parametrize("left", LEFT, ids=str)
@pytest.mark.parametrize("f", [lambda a, x: a * x, lambda a, x: a + x, lambda a, x: a - x, lambda a, x: a / x, lambda a, x: a**x,
                               lambda a, x: a < x, lambda a, x: a >= x, lambda a, x: a == x, lambda a, x: a != x])
def test_what_construct_computes_may_stand_right_of_numpy_s(f, left):
    x = X + 1
    value = Values(lambda v: f(left, v))(tessera.Tensor(x))
    np.testing.assert_allclose(np.asarray(value).astype(np.float64), f(left, x).astype(np.float64), rtol=1e-6)


def test_a_matrix_of_numpy_s_times_a_value():
    np.testing.assert_allclose(Values(lambda v: np.ones((4, 2), np.float32) @ v)(tessera.Tensor(X)).numpy(), np.ones((4, 2)) @ X)



@pytest.mark.parametrize("name", "log1p expm1 sinh asinh atanh cosh".split())
def test_functions_are_precise_near_zero_and_far_from_it(name):
    x = np.array([1e-30, -1e-10, 3e-8, 1e-4, 0.3, -0.7], np.float32)
    far = {"atanh": 0.99999, "log1p": 1e38, "asinh": -1e38}.get(name, 88.9 if name in ("sinh", "cosh") else 88.0)
    x = np.append(x, np.float32(far))
    wanted = getattr(np, {"asinh": "arcsinh", "atanh": "arctanh"}.get(name, name))(x.astype(np.float64))
    np.testing.assert_allclose(getattr(ops, name)(x).numpy(), wanted, rtol=1e-6 if name != "atanh" else 3e-6)
