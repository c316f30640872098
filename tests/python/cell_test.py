"""Cells written in Python."""
import gc

import numpy as np
import pytest
import tessera
from tessera import nn, ops


class Mlp(nn.Cell):
    def __init__(self):
        super().__init__()
        self.up = nn.Dense(64, 256, activation="relu")
        self.down = nn.Dense(256, 10)

    def construct(self, x):
        return self.down(self.up(x))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.inner = Mlp()
        self.scale = tessera.Parameter(np.full(10, 2, np.float32))
        self.calls = tessera.Parameter(0.0, requires_grad=False)

    def construct(self, x, twice=False):
        self.calls = self.calls + 1
        y = self.inner(x) * self.scale
        return (y, x) if twice else y


def test_names_are_attribute_paths():
    assert [p.name for p in Net().parameters()] == ["scale", "calls", "inner.up.weight", "inner.up.bias", "inner.down.weight",
                                                    "inner.down.bias"]
    assert [p.name for p in Net().trainable_parameters()][:2] == ["scale", "inner.up.weight"]
    net = Net()
    assert net.inner.down.weight.name == "inner.down.weight" and net.inner.down.path() == "inner.down"
    assert dict(net.children()).keys() == {"inner"}


def test_the_root_is_told_by_its_class_and_a_part_by_its_path_too():
    net = Net()
    for cell, words in ((net, "Net"), (net.inner.up, 'Dense "inner.up"')):
        with pytest.raises(AttributeError, match=f"^{words} has no attribute 'nothing'"):
            cell.nothing
    with pytest.raises(ValueError, match=r'^cell "\.": a stage must not be negative, got -1$'):
        net.set_stage(-1)


def test_a_name_of_its_own_replaces_the_last_part():
    class Named(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = tessera.Parameter([1.0], name="weight")

    class Outer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.part = Named()

    assert [p.name for p in Outer().parameters()] == ["part.weight"]


def test_a_cell_runs_at_once_on_tensors():
    net = Mlp()
    x = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)
    up, down = net.up, net.down
    hidden = np.maximum(x @ up.weight.numpy().T + up.bias.numpy(), 0)
    np.testing.assert_allclose(net(x).numpy(), hidden @ down.weight.numpy().T + down.bias.numpy(), rtol=1e-4, atol=1e-6)


def test_results_may_be_nested_and_arguments_anything():
    y, x = Net()(np.ones((2, 64), np.float32), twice=True)
    assert y.shape == (2, 10) and x.shape == (2, 64)


class Options:
    def __init__(self, factor):
        self.factor = factor


class Scaled(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = tessera.Parameter(np.ones(2, np.float32))

    def construct(self, x, options):
        return x * self.weight * options.factor


def test_an_argument_that_changes_or_follows_another_at_its_address_is_seen_anew():
    net, x, options = Scaled(), np.ones(2, np.float32), Options(2.0)
    assert net(x, options).numpy().tolist() == [2, 2]
    options.factor = 3.0
    assert net(x, options).numpy().tolist() == [3, 3]
    for factor in range(4, 24):  # each is made where the one before was
        assert net(x, Options(float(factor))).numpy().tolist() == [factor, factor]


def test_arguments_that_trace_to_the_same_are_compiled_once():
    net, x = Scaled(), np.ones(2, np.float32)
    net(x, Options(2.0))
    before = nn.num_compiled()
    for _ in range(3):
        assert net(x, Options(2.0)).numpy().tolist() == [2, 2]
    assert nn.num_compiled() == before


def test_calls_with_the_latest_shapes_are_compiled_once_and_with_older_ones_again():
    net, x = Mlp(), np.ones((400, 64), np.float32)

    def num_compiled_by(rows):
        before = nn.num_compiled()
        net(x[:rows])
        return nn.num_compiled() - before

    assert [num_compiled_by(rows) for rows in range(1, 301) for _ in range(2)] == [1, 0] * 300
    assert [num_compiled_by(rows) for rows in (300, 200, 100)] == [0, 0, 0]
    assert num_compiled_by(1) == 1


def test_assigning_to_a_parameter_in_construct_is_an_update_of_every_call():
    net = Net()
    for _ in range(3):
        net(np.ones((1, 64), np.float32))
    assert net.calls.value().item() == 3


def test_setting_a_parameter_changes_what_the_cell_computes():
    net = Net()
    x = np.ones((1, 64), np.float32)
    before = net(x).numpy()
    net.scale.set_data(np.full(10, 4, np.float32))
    np.testing.assert_allclose(net(x).numpy(), 2 * before)
    with pytest.raises(ValueError, match=r'parameter "scale" is f32\[10\], it cannot be set to f32\[3\]'):
        net.scale.set_data(np.zeros(3, np.float32))


def test_a_changed_attribute_is_traced_anew():
    class Scale(nn.Cell):
        factor = 2.0

        def construct(self, x):
            return x * self.factor

    cell = Scale()
    assert cell(tessera.Tensor([1.0])).item() == 2
    cell.factor = 3.0
    assert cell(tessera.Tensor([1.0])).item() == 3


def test_a_replaced_child_is_gone():
    net = Mlp()
    net.down = nn.Dense(256, 3, has_bias=False)
    assert [p.name for p in net.parameters()] == ["up.weight", "up.bias", "down.weight"]
    assert net(np.ones((1, 64), np.float32)).shape == (1, 3)
    del net.down
    assert [p.name for p in net.parameters()] == ["up.weight", "up.bias"]


def test_a_shared_cell_counts_once_and_keeps_its_first_name():
    class Twice(nn.Cell):
        def __init__(self):
            super().__init__()
            self.first = nn.Dense(4, 4)
            self.second = self.first

        def construct(self, x):
            return self.second(self.first(x))

    net = Twice()
    assert [p.name for p in net.parameters()] == ["first.weight", "first.bias"]
    assert net(np.ones((1, 4), np.float32)).shape == (1, 4)


def test_a_cell_without_prefix_adds_nothing_to_the_path():
    class Wrapper(nn.Cell):
        def __init__(self, net):
            super().__init__(auto_prefix=False)
            self.net = net

        def construct(self, x):
            return self.net(x)

    assert [p.name for p in Wrapper(Mlp()).parameters()][0] == "up.weight"


def test_children_outlive_their_parent_under_their_names():
    net = Mlp()
    up = net.up
    del net
    gc.collect()
    assert up.weight.name == "up.weight" and up(np.ones((1, 64), np.float32)).shape == (1, 256)


def test_lists_name_their_cells_by_position():
    net = nn.Sequential(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
    assert [p.name for p in net.parameters()] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert net(np.ones((5, 4), np.float32)).shape == (5, 2)
    assert len(net) == 3 and net[-1] is net[2] and len(list(net)) == 3
    with pytest.raises(IndexError, match="has 3 children, there is no number 3"):
        net[3]


def test_a_value_kept_from_a_trace_is_refused():
    class Keep(nn.Cell):
        def construct(self, x):
            self.kept = x
            return x * 2

    cell = Keep()
    cell(tessera.Tensor([1.0]))
    for use in (lambda kept: kept + 1, lambda kept: kept.shape, len):
        with pytest.raises(ValueError, match="a trace that has ended"):
            use(cell.kept)
    assert repr(cell.kept) == "Value(of a trace that has ended)"


def test_an_error_names_the_cell():
    class Wrong(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc = nn.Dense(3, 2)

        def construct(self, x):
            return self.fc(x)

    with pytest.raises(ValueError, match='"fc"'):
        Wrong()(np.zeros((1, 4), np.float32))


def test_an_exception_in_construct_is_the_callers():
    class Raises(nn.Cell):
        def construct(self, x):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Raises()(tessera.Tensor([1.0]))
    assert (tessera.Tensor([1.0]) + 1).item() == 2  # no trace is left behind


def test_a_parameter_that_belongs_to_no_cell_is_read_and_written():
    total = tessera.Parameter(np.zeros(2, np.float32), name="total")

    class Add(nn.Cell):
        def construct(self, x):
            total.assign(total + x)
            return total * 1

    cell = Add()
    assert [cell(np.ones(2, np.float32)).numpy().tolist() for _ in range(2)] == [[1, 1], [2, 2]]
    assert total.numpy().tolist() == [2, 2]


def test_two_parameters_of_one_name_are_told_apart():
    class Twins(nn.Cell):
        def __init__(self):
            super().__init__()
            self.pair = [tessera.Parameter(1.0, name="twin"), tessera.Parameter(2.0, name="twin")]

        def construct(self, x):
            return x * self.pair[0] + self.pair[1]

    twins = Twins()
    assert float(twins(tessera.Tensor(5.0))) == 7.0
    twins.pair[0].set_data(3.0)
    assert float(twins(tessera.Tensor(5.0))) == 17.0 and [p.name for p in twins.pair] == ["twin", "twin"]


def test_a_tensor_assigned_in_construct_is_assigned_in_every_call():
    class Reset(nn.Cell):
        def __init__(self):
            super().__init__()
            self.count, self.zero = tessera.Parameter(5.0), tessera.Tensor(0.0)

        def construct(self, x):
            before = self.count * 1
            self.count = self.zero
            return before

    cell = Reset()
    assert cell(tessera.Tensor(1.0)).item() == 5 and cell.count.value().item() == 0
    cell.count.set_data(np.float32(7))
    assert cell(tessera.Tensor(1.0)).item() == 7 and cell.count.value().item() == 0


def test_an_assignment_keeps_the_type_of_the_parameter():
    class Wrong(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = tessera.Parameter(np.zeros(2, np.float32))

        def construct(self, x):
            self.w = x
            return x

    with pytest.raises(ValueError, match=r'cannot assign f32\[3\] to "w", which is f32\[2\]'):
        Wrong()(np.zeros(3, np.float32))


def test_what_transformers_are_written_with():
    """Names, shapes and one value each; the arithmetic is C++'s and tested there."""
    x = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
    mask = nn.AttentionMask(4)(np.ones((2, 4), np.float32))
    np.testing.assert_array_equal(mask.numpy(), np.tril(np.ones((2, 4, 4))))
    rest = dict(attention_dropout_rate=0.0, hidden_dropout_rate=0.0)
    encoder = nn.TransformerEncoder(2, 8, 16, **rest)
    assert encoder(x, mask).shape == (2, 4, 8)
    assert encoder.parameters()[0].name == "blocks.0.layernorm1.gamma"
    decoder = nn.TransformerDecoderLayer(8, 16, **rest)
    assert decoder(x, x).shape == (2, 4, 8)
    assert any(p.name == "cross_attention.dense1.weight" for p in decoder.parameters())
    assert nn.Transformer(8, 16, 1, 1, **rest)(x, x).shape == (2, 4, 8)
    layers = []
    nn.Transformer(8, 16, 1, 2, **rest, stage_of=lambda layer: layers.append(layer) or 0)
    assert layers == [0, 1, 2]
    config = nn.TransformerOpParallelConfig
    nn.Transformer(8, 16, 1, 2, **rest, parallel_of=lambda layer: layers.append(layer) or (config(1, 2) if layer else None))
    assert layers == [0, 1, 2] * 2
    with pytest.raises(ValueError, match="model_parallel"):
        nn.TransformerEncoder(2, 8, 15, **rest, parallel_of=lambda layer: config(1, 1 + layer))
    causal = nn.MultiHeadAttention(8, 2, 0.0, 0.0, causal=True)
    np.testing.assert_allclose(causal(x, x, x).numpy(), causal(x, x, x, mask).numpy(), rtol=1e-5, atol=1e-7)
    assert nn.FeedForward(8, 16, 0.0)(x).shape == (2, 4, 8)
    ids = np.array([[1, 3]], np.int32)
    embedding = nn.VocabEmbedding(5, 3)
    np.testing.assert_array_equal(embedding(ids).numpy()[0], embedding.embedding_table.numpy()[[1, 3]])
    assert nn.TokenEmbedding(5, 4, 3)(ids).shape == (1, 2, 3)
    rows = x[0]
    np.testing.assert_allclose(nn.RmsNorm(8)(rows).numpy(), rows / np.sqrt((rows ** 2).mean(-1, keepdims=True) + 1e-6), rtol=1e-5)
    glu = nn.SwiGlu(8, 6)
    gate = rows @ glu.gate.weight.numpy().T
    inner = gate / (1 + np.exp(-gate)) * (rows @ glu.up.weight.numpy().T)
    np.testing.assert_allclose(glu(rows).numpy(), inner @ glu.down.weight.numpy().T, rtol=1e-4, atol=1e-8)
    turned = nn.rotary_positions(x.reshape(2, 4, 2, 4)).numpy()
    np.testing.assert_array_equal(turned[:, 0], x.reshape(2, 4, 2, 4)[:, 0])  # token 0 is not turned
    np.testing.assert_allclose((turned ** 2).sum(-1), (x.reshape(2, 4, 2, 4) ** 2).sum(-1), rtol=1e-5)
    heads = x.reshape(2, 4, 2, 4)
    scores = np.einsum("bthd,bshd->bhts", heads, heads) / 2
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(ops.attention(heads, heads, heads).numpy(), np.einsum("bhts,bshd->bthd", weights, heads), rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="num_heads"):
        nn.MultiHeadAttention(8, 3)


def test_strategies_of_a_transformer_take_both_numbers_of_parts():
    with pytest.raises(ValueError, match="model_parallel"):
        nn.FeedForward(8, 15, parallel=nn.TransformerOpParallelConfig(model_parallel=2))


def test_to_float_says_what_a_cell_computes_in():
    dense = nn.Dense(64, 3)
    x = np.random.default_rng(0).normal(size=(5, 64)).astype(np.float32)
    exact = dense(x).numpy()
    assert dense.to_float("bfloat16") is dense
    low = dense(x).numpy()
    assert low.dtype == np.float32 and 0 < np.abs(low - exact).max() < 0.01
    with pytest.raises(ValueError, match="cannot compute in i32"):
        dense.to_float("int32")


def test_dropout_draws_anew_in_every_call_and_rests_in_evaluation():
    drop = nn.Dropout(0.5)
    x = np.ones(1000, np.float32)
    np.testing.assert_array_equal(drop(x).numpy(), x)
    drop.set_train()
    first, second = drop(x).numpy(), drop(x).numpy()
    assert set(np.unique(first)) == {0, 2} and (first != second).any()


class InList(nn.Cell):
    def __init__(self, drop):
        super().__init__()
        self.drops = [drop]

    def construct(self, x):
        return self.drops[0](x)


class InConstruct(nn.Cell):
    def construct(self, x):
        return nn.Dropout(0.5)(x)


DROP = nn.Dropout(0.5)


class Global(nn.Cell):
    def construct(self, x):
        return DROP(x)


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def construct(self, x):
        return self.drop(x) if self.training else x


@pytest.mark.parametrize("make", [lambda: InList(nn.Dropout(0.5)), lambda: InList(Block()), lambda: InList(nn.Sequential(nn.Dropout(0.5))), InConstruct, Global])
def test_a_cell_that_is_part_of_none_trains_as_the_one_that_calls_it(make):
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.head, self.drops = nn.Dense(200, 200, weight_init="zeros", has_bias=False), make()

        def construct(self, x):
            return self.drops(x) + self.head(x)

    x = np.ones((2, 200), np.float32)
    net = Net()
    np.testing.assert_array_equal(net(x).numpy(), x)
    assert set(np.unique(net.set_train()(x).numpy())) == {0, 2}
    np.testing.assert_array_equal(net.set_train(False)(x).numpy(), x)
    model = tessera.Model(net, nn.MSELoss(), nn.SGD(0.0), metrics=["loss"])
    rows = tessera.data.tensors({"x": x, "label": x}).batch(2)
    assert model.train_step(x, x) == pytest.approx(1, abs=1e-6)  # each element is 0 or 2
    assert model.eval(rows)["loss"] == 0
    np.testing.assert_array_equal(model.predict(x).numpy(), x)


def test_a_cell_that_is_part_of_none_keeps_the_mode_that_it_was_told():
    x = np.ones((2, 200), np.float32)
    drop = nn.Dropout(0.5)
    net = InList(drop).set_train()
    assert set(np.unique(net(x).numpy())) == {0, 2}
    np.testing.assert_array_equal((drop.set_train(False), net)[1](x).numpy(), x)
    assert set(np.unique((drop.set_train(), net.set_train(False))[1](x).numpy())) == {0, 2}
    np.testing.assert_array_equal((drop.set_train(False), net.set_train())[1](x).numpy(), x)


def test_a_model_sees_the_mode_of_a_cell_that_is_part_of_none_change():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.head, self.drops = nn.Dense(200, 200, weight_init="zeros", has_bias=False), [nn.Dropout(0.5)]

        def construct(self, x):
            return self.drops[0](x) + self.head(x)

    x, net = np.ones((2, 200), np.float32), Net()
    model = tessera.Model(net, nn.MSELoss(), nn.SGD(0.0))
    assert model.train_step(x, x) == pytest.approx(1, abs=1e-6)
    net.drops[0].set_train(False)
    assert model.train_step(x, x) == 0
    net.drops[0].set_train()
    assert model.train_step(x, x) == pytest.approx(1, abs=1e-6)


def test_a_part_that_is_told_another_mode_is_compiled_anew():
    class Two(nn.Cell):
        def __init__(self):
            super().__init__()
            self.first, self.second = Block(), Block()

        def construct(self, x):
            return self.first(x) + 10 * self.second(x)

    net, x = Two().set_train(), np.ones(400, np.float32)
    assert set(np.unique(net(x).numpy())) == {0, 2, 20, 22}
    net.first.set_train(False)
    assert set(np.unique(net(x).numpy())) == {1, 21}
    net.second.set_train(False)
    np.testing.assert_array_equal(net(x).numpy(), 11 * x)


def test_initializers_are_a_function_of_seed_and_name():
    first, again = Mlp(), Mlp()
    np.testing.assert_array_equal(first.up.weight.numpy(), again.up.weight.numpy())
    tessera.set_seed(2)
    other = Mlp().up.weight.numpy()
    tessera.set_seed(1)
    assert (other != first.up.weight.numpy()).any()
