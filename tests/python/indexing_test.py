"""x[key] and x[key] = value, judged by NumPy."""
import numpy as np
import pytest
import tessera
from tessera import nn, ops

SHAPE = (3, 4, 5)
X = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)


def net(construct):
    """A cell with this construct()."""
    return type("Net", (nn.Cell, ), {"construct": construct})()


def traced_get(key):
    return net(lambda self, x: x[key] * 1)(X).numpy()


def traced_set(key, value):
    def construct(self, x):
        y = x * 1
        y[key] = value
        return y

    return net(construct)(X).numpy()


def an_entry(rng, size):
    """What may stand for a dim of that size."""
    kinds = [lambda: int(rng.integers(-size, size)), lambda: slice(*[None if rng.random() < 0.4 else int(rng.integers(-size, size + 1)) for _ in range(2)],
                                                                  int(rng.choice([1, 1, 2, -1]))),
             lambda: rng.integers(-size, size, 2), lambda: rng.integers(-size, size, (3, 2)), lambda: rng.random(size) < 0.6,
             lambda: rng.integers(-size, size, 3).tolist()]
    return kinds[rng.integers(0, len(kinds))]()


def a_key(rng):
    """Drawn until NumPy takes it for a part that is not empty."""
    while True:
        key = [an_entry(rng, size) for size in SHAPE[:rng.integers(1, 4)]]
        if len(key) < 3 and rng.random() < 0.3:
            key.insert(rng.integers(0, len(key) + 1), [None, Ellipsis][rng.integers(0, 2)])
        try:
            if X[tuple(key)].size:
                return tuple(key)
        except IndexError:
            continue


@pytest.mark.parametrize("seed", range(80))
def test_drawn_keys_mean_what_they_mean_in_numpy(seed):
    rng = np.random.default_rng(seed)
    key = a_key(rng)
    part = X[key]
    for made in (tessera.Tensor(X)[key].numpy(), traced_get(key)):
        assert made.shape == part.shape and (made == part).all(), key
    value = rng.normal(size=part.shape[rng.integers(0, 2):]).astype(np.float32)
    wanted = X.copy()
    wanted[key] = value
    tensor = tessera.Tensor(X)
    tensor[key] = value
    for made in (tensor.numpy(), traced_set(key, tessera.Tensor(value))):
        np.testing.assert_array_equal(made, wanted, str(key))


@pytest.mark.parametrize("seed", range(60))
def test_places_may_be_computed_in_construct(seed):
    rng = np.random.default_rng(1000 + seed)
    key = a_key(rng)
    computed = [i for i, entry in enumerate(key) if isinstance(entry, np.ndarray) and entry.dtype != bool]
    if not computed:
        key, computed = (key[0] if isinstance(key[0], slice) else slice(None), rng.integers(-4, 4, (2, 2))), [1]

    def with_values(values):
        return tuple(values[computed.index(i)] if i in computed else entry for i, entry in enumerate(key))

    def setting(self, x, value, *places):
        y = x * 1
        y[with_values(places)] = value
        return y

    places = [tessera.Tensor(key[i]) for i in computed]
    part = net(lambda self, x, *places: x[with_values(places)])(X, *places).numpy()
    assert part.shape == X[key].shape and (part == X[key]).all(), key
    value = rng.normal(size=part.shape).astype(np.float32)
    wanted = X.copy()
    wanted[key] = value
    np.testing.assert_array_equal(net(setting)(X, value, *places).numpy(), wanted, str(key))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "int64", "uint8", "bool"])
def test_every_dtype_has_items(dtype):
    x = tessera.Tensor(np.arange(6).reshape(2, 3) % 2, dtype)
    places = tessera.Tensor([2, 0, 2], "int32")

    def construct(self, x, places):
        y = ops.cast(x, dtype)
        y[:, places] = ops.cast(tessera.Tensor([1, 0, 0]), dtype)
        y[0, [1]] = 1
        return y

    made = ops.cast(net(construct)(x, places), "int32").numpy()
    assert made.tolist() == [[0, 1, 0], [0, 0, 0]]
    x[1, :2] = 1
    x[[0]] = tessera.Tensor([0, 1, 1], dtype)
    assert x.dtype == tessera.Tensor(0, dtype).dtype and ops.cast(x, "int32").numpy().tolist() == [[0, 1, 1], [1, 1, 1]]


def test_gradients_pass_through_what_is_kept_and_what_is_set():
    class Loss(nn.Cell):
        def construct(self, x, v, weights):
            y = x * x
            y[1, [0, 2]] = v * 3
            y[y > 100] = 0
            return ops.reduce_sum(y[:, [0, 0, 1, 2]] * weights)

    class Gradient(nn.Cell):
        def __init__(self):
            super().__init__()
            self.loss = Loss()

        def construct(self, x, v, weights):
            return nn.value_and_grad(self.loss, [x, v, weights], argument_numbers=[0, 1])[1]

    x, v, weights = np.float32([[1, 2, 20], [4, 5, 6]]), np.float32([7, 8]), np.arange(8, dtype=np.float32).reshape(2, 4)
    of_x, of_v = Gradient()(x, v, weights)
    assert of_x.numpy().tolist() == [[2 * (0 + 1), 2 * 2 * 2, 0], [0, 2 * 5 * 6, 0]] and of_v.numpy().tolist() == [3 * (4 + 5), 3 * 7]


def test_a_variable_gets_a_new_value_and_other_names_keep_the_old_one():
    class Net(nn.Cell):
        def doubled(self, x):
            x[0] *= 2
            return x

        def construct(self, x):
            y = x
            y[0][1] = 5.0
            items = [y, 0]
            items[0][1, 1] = 7.0
            items[1] = self.doubled(y)
            return x, y, items[0], items[1]

    given = tessera.Tensor([[1.0, 2.0], [3.0, 4.0]])
    made = [item.numpy().tolist() for item in Net()(given)]
    assert made == [[[1, 2], [3, 4]], [[1, 5], [3, 4]], [[1, 5], [3, 7]], [[2, 10], [3, 4]]]
    assert given.numpy().tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("x, expected", [(2, [2, 9, 0]), (-2, [-2, 0, 9])])
def test_items_are_set_in_the_branch_that_holds(x, expected):
    def construct(self, x):
        y = ops.stack([x, x * 0, x * 0])
        if x > 0:
            y[1] = 9
        else:
            y[2] = 9
        return y

    assert net(construct)(tessera.Tensor(float(x))).numpy().tolist() == expected


def test_a_list_cannot_be_set_where_a_value_decides():
    def construct(self, x):
        items = [x, x]
        if x > 0:
            items[0] = -x
        return items[0]

    with pytest.raises(TypeError, match=r"indexing_test.py:\d+: items\[0\] is set in an `if` on a value"):
        net(construct)(tessera.Tensor(1.0))


def test_the_items_of_a_parameter_are_set_in_every_step():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.counts = tessera.Parameter(np.zeros(3, np.float32))

        def construct(self, place):
            self.counts[place] += 1
            return place

    cell = Net()
    for place in (2, 0, 2):
        cell(tessera.Tensor(place))
    cell.counts[1] = -1
    assert cell.counts.numpy().tolist() == [1, -1, 2]


def test_a_part_of_a_tensor_changes_with_it():
    x = tessera.Tensor(np.zeros((2, 3), np.float32))
    row, copied = x[1], x[[1]]
    x[0][1] = 5
    row[2] = 6
    x[1, 0] = 7
    assert x.numpy().tolist() == [[0, 5, 0], [7, 0, 6]] and row.numpy().tolist() == [7, 0, 6] and copied.numpy().tolist() == [[0, 0, 0]]


def without_first(y):
    y[0] = 0
    return y


def negative_first(x):
    return -x if x > 0 else x


def test_functions_that_construct_calls_are_traced_as_it_is():
    class Net(nn.Cell):
        steps = {"without": without_first}

        def construct(self, x):
            return self.steps["without"](x), [negative_first(item) for item in (x[1], -x[1])][0], negative_first(x[1]), x

    made = [item.numpy().tolist() for item in Net()(tessera.Tensor([1.0, 2.0]))]
    assert made == [[0, 2], -2, -2, [1, 2]]


without_source = eval("lambda y: y.__setitem__(0, 0)")
VALUE = lambda function: lambda: net(lambda self, x: function(x))(X)  # noqa: E731


@pytest.mark.parametrize("call, error, message", [
    (lambda: tessera.Tensor(X)[[3]], IndexError, r"3 is outside dim 0 of a tensor of shape \(3, 4, 5\)"),
    (lambda: tessera.Tensor(X)[np.array([True])], IndexError, r"a mask of shape \(1,\) stands for dims of shape \(3,\)"),
    (lambda: tessera.Tensor(X)[[0.5]], IndexError, "must be integer or bool, got an array of float64"),
    (lambda: tessera.Tensor(X)["a"], IndexError, "got str"),
    (lambda: tessera.Tensor(X)[0, 0, 0, [0]], IndexError, "4 indices"),
    (lambda: tessera.Tensor(X)[[0, 1], [0, 1, 2]], IndexError, r"\(2,\), \(3,\) do not broadcast"),
    (lambda: tessera.Tensor(X)[False], IndexError, "False"),
    (lambda: tessera.Tensor(X)[[[0, 1], [1, 0]]], IndexError, "write a tuple where each stands for a dim"),
    (lambda: tessera.Tensor(X).__setitem__(0, np.zeros(3)), ValueError, r"items of shape \(4, 5\) cannot be set to a value of shape \(3,\)"),
    (lambda: tessera.Tensor(X).__setitem__(0, "a"), TypeError, "a tensor or a number, got str"),
    (VALUE(lambda x: x[x > 0]), TypeError, "the shape of the result would depend on it; use ops.select"),
    (VALUE(lambda x: x[:ops.cast(x[0, 0, 0], "int32")]), TypeError, "the bounds of a slice cannot be computed"),
    (VALUE(lambda x: x[x]), IndexError, "got a value of"),
    (VALUE(without_source), TypeError, r"<string>:1: the items of what construct\(\) computes.*have a source in Python"),
    (VALUE(lambda x: tessera.Tensor([1.0, 2.0]).__setitem__(0, x[0, 0, 0])), TypeError, "cannot take what construct"),
])
def test_what_is_no_index_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("key", [slice(np.int64(0), np.int64(1)), slice(None, None, np.int32(2)), (slice(None), slice(np.uint8(1), None))], ids=str)
def test_bounds_of_slices_may_be_numpy_s_integers(key):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(tessera.Tensor(x)[key].numpy(), x[key])


def test_a_bound_that_is_no_whole_number_is_refused():
    with pytest.raises(TypeError, match="a slice's bound is a whole number, got 0.5"):
        tessera.Tensor(np.zeros(4, np.float32))[0.5:2]


@pytest.mark.parametrize("make", [tessera.Tensor, tessera.Parameter], ids=["Tensor", "Parameter"])
def test_rows_are_iterated_over_and_one_element_has_none(make):
    assert [row.numpy().tolist() for row in make(tessera.Tensor([[1.0, 2.0], [3.0, 4.0]]))] == [[1, 2], [3, 4]]
    assert list(make(tessera.Tensor(np.zeros((0, 2), np.float32)))) == []
    for use in (list, tuple, iter, sum, lambda x: [*x], len):
        with pytest.raises(TypeError, match="0-d tensor|without dims|no len"):
            use(make(tessera.Tensor(2.0)))


def test_rows_of_a_value_are_iterated_over_and_one_element_has_none():
    class Rows(nn.Cell):
        def construct(self, x):
            first, second = x
            with pytest.raises(TypeError, match="iteration over a 0-d tensor"):
                list(ops.sum(x))
            return first - second

    assert Rows()(tessera.Tensor([[5.0], [3.0]])).numpy().tolist() == [2]
