"""An `if` on a value inside construct()."""
import numpy as np
import pytest
import tessera
from tessera import data, nn, ops


def run(construct, *inputs, **attributes):
    cell = type("Branching", (nn.Cell,), {"construct": construct})()
    for name, value in attributes.items():
        setattr(cell, name, value)
    return cell(*[tessera.Tensor(np.float32(x)) for x in inputs]), cell


@pytest.mark.parametrize("x, expected", [(2, 4), (-3, 3)])
def test_a_variable_takes_the_value_of_the_branch_that_holds(x, expected):
    def construct(self, x):
        if x > 0:
            y = x * 2
        else:
            y = -x
        return y

    assert run(construct, x)[0].item() == expected


@pytest.mark.parametrize("x, expected", [(2, 3), (-3, -3)])
def test_without_an_else_a_variable_keeps_its_value(x, expected):
    def construct(self, x):
        y = x
        if x > 0:
            y = y + 1
        return y

    assert run(construct, x)[0].item() == expected


@pytest.mark.parametrize("x, expected", [(2, 20), (0.5, -1), (-3, -3)])
def test_branches_may_return_and_nest(x, expected):
    def construct(self, x):
        if x > 0:
            if x > 1:
                return x * 10
            x = -x
            return x * 2
        return x

    assert run(construct, x)[0].item() == expected


@pytest.mark.parametrize("x, expected", [(3, 1), (-3, -1), (0, 0)])
def test_elif_and_conditional_expressions(x, expected):
    def construct(self, x):
        if x > 0:
            sign = 1.0
        elif x < 0:
            sign = -1.0
        else:
            sign = 0.0
        return sign * (1.0 if ops.abs(x) > 0 else 5.0)

    assert run(construct, x)[0].item() == expected


def test_an_if_in_a_loop_is_an_if_of_each_turn():
    def construct(self, x):
        count = x * 0
        for limit in (1, 2, 3):
            if x > limit:
                count = count + 1
        return count

    assert [run(construct, x)[0].item() for x in (0, 1.5, 2.5, 9)] == [0, 1, 2, 3]


def test_what_python_decides_is_decided_while_tracing():
    seen = []

    def construct(self, x, doubled):
        if doubled:
            seen.append("doubled")
            return x * 2
        seen.append("plain")
        return x

    cell = type("Plain", (nn.Cell,), {"construct": construct})()
    assert cell(tessera.Tensor(1.0), True).item() == 2 and cell(tessera.Tensor(1.0), False).item() == 1
    assert seen == ["doubled", "plain"]


@pytest.mark.parametrize("x, expected", [(1, [1, 1]), (-1, [5, 1])])
def test_a_parameter_is_updated_where_the_branch_holds(x, expected):
    def construct(self, x):
        self.calls = self.calls + 1
        if x > 0:
            self.count = self.count + 1
        else:
            self.count = 5.0
        return x

    _, cell = run(construct, x, count=tessera.Parameter(0.0), calls=tessera.Parameter(0.0))
    assert [cell.count.value().item(), cell.calls.value().item()] == expected


@pytest.mark.parametrize("flag, expected", [(1, 2), (0, 1)])
def test_a_parameter_may_be_the_condition(flag, expected):
    def construct(self, x):
        return {"y": x * 2, "z": (x, 1)} if self.flag else {"y": x, "z": (x, 1)}

    class Unpack(nn.Cell):
        def __init__(self):
            super().__init__()
            self.inner = type("Branching", (nn.Cell,), {"construct": construct})()
            self.inner.flag = tessera.Parameter(float(flag))

        def construct(self, x):
            return self.inner(x)["y"]

    assert Unpack()(tessera.Tensor(1.0)).item() == expected


def test_gradients_flow_through_the_branch_that_holds():
    class Absolute(nn.Cell):
        def construct(self, x, w):
            loss = x * w
            if loss < 0:
                loss = -3 * loss
            return loss

    class Gradient(nn.Cell):
        def __init__(self):
            super().__init__()
            self.inner = Absolute()

        def construct(self, x, w):
            return nn.value_and_grad(self.inner, [x, w], argument_numbers=[1])[1][0]

    gradient = Gradient()
    assert gradient(tessera.Tensor(2.0), tessera.Tensor(1.0)).item() == 2
    assert gradient(tessera.Tensor(2.0), tessera.Tensor(-1.0)).item() == -6


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("x", [-1.0, 0.0, 2.0])
def test_not_and_or_of_values_are_operators(flag, x):
    calls = []

    def never():
        calls.append(1)
        return True

    def construct(self, x):
        y = x
        if not x > 0:
            y = y + 10
        if flag and x > 0 and not (y.shape == (7, )):
            y = y * 2
        if not flag or x < 0:
            y = y + 100
        return y * (1.0 if x > 0 or x < 0 else -1.0)

    def by_hand(x):
        y = x + 10 if x <= 0 else x
        y = y * 2 if flag and x > 0 else y
        y = y + 100 if not flag or x < 0 else y
        return y * (1.0 if x else -1.0)

    assert float(run(construct, x)[0].numpy()) == by_hand(x)

    def lazy(self, x):
        return x if (x.ndim > 5 and never()) or not (x.ndim < 5 or never()) else -x

    assert float(run(lazy, 3.0)[0].numpy()) == -3.0 and not calls


def test_an_optimizer_in_a_branch_updates_only_where_it_holds():
    class Step(nn.Cell):
        def __init__(self):
            super().__init__()
            self.net = nn.Dense(4, 1)
            self.optimizer = nn.Momentum(learning_rate=0.1)

        def construct(self, x, wanted):
            loss, gradients = nn.value_and_grad(lambda x: ops.reduce_mean(self.net(x)), [x], self.net.trainable_parameters())
            if wanted > 0:
                self.optimizer.update(self.net.trainable_parameters(), gradients)
            return loss

    step, x = Step(), np.ones((2, 4), np.float32)
    before = step.net.weight.numpy().copy()
    step(x, tessera.Tensor(0.0))
    np.testing.assert_array_equal(step.net.weight.numpy(), before)
    step(x, tessera.Tensor(1.0))
    np.testing.assert_allclose(step.net.weight.numpy(), before - 0.1, rtol=1e-6)


def test_a_branching_network_trains():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc = nn.Dense(4, 1)

        def construct(self, x):
            y = self.fc(x)
            if ops.reduce_mean(y) > 100:
                y = y * 0
            return y

    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    arrays = data.tensors({"x": x, "y": x.sum(1, keepdims=True)}).batch(16)
    branching, plain = Net(), nn.Sequential(nn.Dense(4, 1))
    plain[0].weight.set_data(branching.fc.weight.numpy())
    for net in (branching, plain):
        tessera.Model(net, nn.MSELoss(), nn.Momentum(learning_rate=0.1)).train(3, arrays)
    np.testing.assert_allclose(branching.fc.weight.numpy(), plain[0].weight.numpy(), rtol=1e-5)


def test_names_from_around_construct_and_private_ones_stay():
    factor = 3

    class Private(nn.Cell):
        def __init__(self):
            super().__init__()
            self.__offset = 1

        def construct(self, x, *, scale=2):
            if x > 0:
                x = x * factor
            return x * scale + self.__offset

    assert Private()(tessera.Tensor(2.0)).item() == 13


CALLS = 0


@pytest.mark.parametrize("counts", [False, True])
def test_a_branch_sets_variables_from_around_construct_when_it_is_taken(counts):
    calls = 0

    def construct(self, x):
        if counts:
            global CALLS
            nonlocal calls
            CALLS, calls = CALLS + 1, calls + 1
        else:
            x = -x
        return x + CALLS - CALLS

    before = CALLS
    assert run(construct, 2)[0].item() == (2 if counts else -2)
    assert (CALLS - before, calls) == (counts, counts)


def sets_a_global(self, x):
    if x > 0:  # here
        global CALLS
        CALLS = 7
    return x


def line_of(construct, text):
    import inspect
    lines, first = inspect.getsourcelines(construct)
    return f"branches_test.py:{first + next(i for i, line in enumerate(lines) if text in line)}"


def loops(self, x):
    while x > 0:  # here
        x = x - 1
    return x


def counts(self, x):
    return x * float(x)  # here


def asks_a_parameter(self, x):
    while self.flag:  # here
        x = x + 1
    return x


def leaves(self, x):
    for _ in range(3):
        if x > 0:  # here
            break
        x = x + 1
    return x


def wide(self, x):
    if ops.stack((x, x)) > 0:  # here
        x = -x
    return x


def keeps(self, x):
    if x > 0:  # here
        self.kept = x
    return x


def differs(self, x):
    if x > 0:  # here
        return x
    return "no tensor"


def returns_nothing(self, x):
    if x > 0:  # here
        return x


@pytest.mark.parametrize("construct, message", [
    (loops, "a value has no truth"), (asks_a_parameter, "a value has no truth"), (counts, "a value has no number"), (leaves, "a value has no truth"),
    (wide, "needs one truth, the condition has the shape"), (keeps, "self.kept is set in an `if` on a value"),
    (sets_a_global, "CALLS is set in an `if` on a value"), (differs, "give a Value and a str"), (returns_nothing, "give a Value and nothing"),
])
def test_what_no_branch_can_be_is_refused_with_its_line(construct, message):
    with pytest.raises(TypeError, match=message) as error:
        run(construct, 1, flag=tessera.Parameter(1.0))
    assert line_of(construct, "# here") in str(error.value)


@pytest.mark.parametrize("use", [ops.exp, lambda y: y + 1, lambda y: 2 * y, lambda y: y.shape, lambda y: y[0], float])
def test_a_variable_that_one_branch_sets_cannot_be_used_afterwards(use):
    def construct(self, x):
        if x > 0:
            y = x
        return use(y)

    with pytest.raises(UnboundLocalError, match="one branch of this `if` sets the variable"):
        run(construct, 1)


@pytest.mark.parametrize("limit", [0, 3, 40])
def test_what_is_made_of_constants_alone_is_known_while_it_is_traced(limit):
    end = tessera.Tensor(limit)

    def construct(self, x):
        i, seen = tessera.Tensor(0) + 0, []
        while i < end and not i > 100:
            if i % 2 == 0:
                seen.append(int(i))
            i = i + 1
            x = x + float(i) if i != 3 else "no tensor" if i == 4 else x
        for k in range(i):
            x = x + k
        assert seen == list(range(0, limit, 2)) and int(i) == limit == [*range(50)][i]
        return x

    assert run(construct, 1)[0].item() == 1 + sum(i + 1 + i for i in range(limit)) - (3 if limit >= 3 else 0)


def test_what_an_input_or_a_parameter_is_made_of_is_not_known():
    def construct(self, x):
        one = tessera.Tensor(1.0)
        known = [nn.is_known(value) for value in (one + 1, x * 0, self.w + 1, ops.select(x > 0, one, one), ops.zeros_like(x) + 1)]
        assert known[:3] == [True, False, False] and not known[3]
        return x

    run(construct, 1, w=tessera.Parameter(1.0))


@pytest.mark.parametrize("x, expected", [(2, [2, 4, 7]), (-2, [2, -4, 9])])
def test_a_list_that_both_branches_make_as_long_has_items_of_the_one_that_holds(x, expected):
    def items_of(x, doubled):
        items, other = [x * x / 2], {"a": x}
        if x > 0:
            items.append(x * 2)
            items.extend([x + 5])
            other.update(b=1.0)
        else:
            if doubled:
                items.append(x + x)
            items.append(x * 0 + 9)
            other.update(b=2.0)
        other.update(c=other["b"])
        return items[0], items[1], items[2] * other["c"] / other["b"]

    class Listed(nn.Cell):
        def construct(self, x):
            return ops.stack(items_of(x, True))

    assert Listed()(tessera.Tensor(float(x))).numpy().tolist() == expected


def lengthens(self, x):
    items = [x]
    if x > 0:  # here
        items.append(x)
    return items[0]


def keeps_in_an_attribute(self, x):
    if x > 0:  # here
        self.items.append(x)
    return x


def keeps_by_a_flag(self, x):
    if x > 0:  # here
        if self.items is not None:
            self.items.append(x)
    return x


OUTSIDE = []


def keeps_outside(self, x):
    if x > 0:  # here
        OUTSIDE.append(x)
    return x


@pytest.mark.parametrize("construct, message", [(lengthens, "the branches of this `if` give a list and a list"), (keeps_in_an_attribute, "self.items is changed"),
                                                (keeps_by_a_flag, "self.items is changed"), (keeps_outside, "OUTSIDE is changed")])
def test_a_list_that_no_select_can_be_is_refused_with_its_line(construct, message):
    with pytest.raises(TypeError, match=message) as error:
        run(construct, 1, items=[])
    assert line_of(construct, "# here") in str(error.value) and not OUTSIDE


class Accumulator:
    """An object that is called: it holds parameters and decides by one of them."""

    def __init__(self, every):
        self.every = every
        self.sum, self.counter = tessera.Parameter(0.0), tessera.Parameter(tessera.Tensor(1))
        self.given = tessera.Parameter(0.0)

    def __call__(self, x):
        self.sum.assign(self.sum + x)
        if self.counter % self.every == 0:
            self.given.assign(self.sum + 0)
            self.sum.assign(self.sum * 0)
        self.counter.assign(self.counter + 1)
        return True


def test_an_object_that_is_called_decides_by_values_as_a_function_does():
    class Step(nn.Cell):
        def __init__(self):
            super().__init__()
            self.__dict__["add_up"] = Accumulator(3)

        def construct(self, x):
            self.add_up(x)
            return x

    step, seen = Step(), []
    for i in range(1, 8):
        step(tessera.Tensor(float(i)))
        seen.append((step.add_up.given.numpy().item(), step.add_up.sum.numpy().item()))
    assert seen == [(0, 1), (0, 3), (6, 0), (6, 4), (6, 9), (15, 0), (15, 7)]


class Counts(nn.Cell):
    """Numbers of Python's that construct() changes."""

    def __init__(self):
        super().__init__()
        self.calls, self.begun = 0, False
        self.fc = nn.Dense(1, 1)

    def construct(self, x):
        self.calls += 1
        if not self.begun:
            x = x * 0
            self.begun = True
        return self.fc(x) * 0 + (x if self.calls % 2 == 0 else -x)


def test_a_number_of_pythons_that_construct_changes_counts_calls():
    cell, x = Counts(), tessera.Tensor([[3.0]])
    assert [cell(x).numpy().item() for _ in range(5)] == [0, 3, -3, 3, -3] and cell.calls == 5
    before = nn.num_compiled()
    assert [cell(x).numpy().item() for _ in range(2)] == [3, -3] and nn.num_compiled() == before


def test_a_model_refuses_a_network_that_counts_with_a_number_of_pythons():
    ones = np.ones((4, 1), np.float32)
    model = tessera.Model(Counts(), nn.MSELoss(), nn.Momentum(learning_rate=0.1))
    with pytest.raises(TypeError, match=r"branches_test.py:\d+: self.calls is changed while the network is traced, .* let a parameter count"):
        model.train(1, data.tensors({"x": ones, "y": ones}).batch(2))
