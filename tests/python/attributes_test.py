"""What is set on cells, optimizers and models after they were made: it takes effect, or is refused by name."""
import numpy as np
import pytest
import tessera
from small_net import IDS, Net, trained
from tessera import nn, ops


@pytest.mark.parametrize("value", [np.full((4, 2), 7, np.float32), [[1.0, 2.0]] * 4, "zeros", nn.ReLU(), None], ids=lambda value: type(value).__name__)
def test_what_is_no_tensor_does_not_take_the_place_of_a_built_in_cells_parameter(value):
    net = Net()
    with pytest.raises(TypeError, match=r'Embedding: a \w+ cannot take the place of "embedding_table".*embedding_table.set_data\(value\)'):
        net.embed.embedding_table = value
    assert isinstance(net.embed.embedding_table, tessera.Parameter)


def test_a_tensor_becomes_the_value_of_a_built_in_cells_parameter():
    net = Net()
    net.embed.embedding_table = tessera.Tensor(np.full((4, 2), 7, np.float32))
    assert net.embed(IDS).numpy()[0, 0] == 7
    model = trained(net)
    assert abs(model.value("embed.embedding_table").numpy() - 7).max() < 1


@pytest.mark.parametrize("value", [np.zeros(3, np.float32), [0.0, 0.0, 0.0], "zeros"], ids=lambda value: type(value).__name__)
def test_what_is_no_tensor_does_not_take_the_place_of_ones_own_parameter(value):
    net = Net()
    with pytest.raises(TypeError, match=r'Net: "scale" is a parameter, which a \w+ cannot replace: scale.set_data\(value\).*tessera.Parameter'):
        net.scale = value
    assert "scale" in dict(net.named_parameters())


def test_a_parameter_takes_the_place_of_ones_own():
    net = Net()
    net.scale = tessera.Parameter(np.full(3, 2, np.float32))
    assert net.scale.numpy()[0] == 2 and "scale" in dict(net.named_parameters())
    net.scale = None
    assert "scale" not in dict(net.named_parameters())


def test_an_array_in_construct_is_an_update():
    class Counts(nn.Cell):
        def __init__(self):
            super().__init__()
            self.last = tessera.Parameter(np.zeros(2, np.float32), requires_grad=False)

        def construct(self, x):
            self.last = np.array([1, 2], np.float32)
            return x

    cell = Counts()
    cell(np.ones(1, np.float32))
    np.testing.assert_array_equal(cell.last.numpy(), [1, 2])


def test_tying_two_built_in_cells_says_how_it_is_done():
    a, b = nn.Dense(5, 5), nn.Dense(5, 5)
    with pytest.raises(TypeError, match=r"Parameter cannot take the place of \"weight\".*self.b = self.a.*transpose_b=True"):
        a.weight = b.weight
    a.weight = a.weight  # which it is

    class Tied(nn.Cell):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(4, 2)

        def construct(self, ids):
            return ops.matmul(self.embed(ids), self.embed.embedding_table, transpose_b=True)

    assert trained(Tied()).names()[0] == "embed.embedding_table"


@pytest.mark.parametrize("make, name, words", [
    (lambda: nn.LayerNorm((6, )), "epsilon", r"LayerNorm\(eps=...\)"), (lambda: nn.Dense(6, 3), "activation", r"Dense\(activation=...\)"),
    (lambda: nn.Conv2d(1, 2, 3), "padding", "padding was read"), (lambda: nn.SGD(0.1), "learning_rate", 'model.set_value\\("learning_rate", value\\)'),
    (lambda: nn.Adam(0.1), "lr", "learning_rate was read"), (lambda: nn.Adam(0.1), "weight_decay", "weight_decay was read"),
    (lambda: tessera.Model(nn.Dense(1, 1)), "metrics", r"Model\(metrics=...\)"), (lambda: tessera.LossMonitor(), "per_print_times", "was read")])
def test_an_option_that_was_read_is_refused_as_an_attribute(make, name, words):
    made = make()
    with pytest.raises(AttributeError, match=words):
        setattr(made, name, 0.5)
    assert not hasattr(made, name)
    made.of_my_own = 3
    assert made.of_my_own == 3


def test_a_derived_class_calls_its_attributes_as_it_likes():
    class Mine(nn.Dense):
        def __init__(self):
            super().__init__(2, 3)
            self.in_channels, self.activation = 2, "mine"

    assert Mine().activation == "mine"


def test_another_layer_takes_the_place_of_one_whose_option_is_to_change():
    class Drops(nn.Cell):
        def __init__(self):
            super().__init__()
            self.net, self.drop = Net(), nn.Dropout(keep_prob=1e-6)

        def construct(self, ids):
            return self.drop(self.net(ids))

    net = Drops()
    model = trained(net)  # all is dropped: nothing is learnt
    before = model.value("net.head.weight").numpy().copy()
    with pytest.raises(AttributeError, match=r"keep_prob was read when the object was made: give it where the object is made, Dropout\(keep_prob=...\)"):
        net.drop.keep_prob = 1.0
    net.drop = nn.Dropout(keep_prob=1.0)
    model.train(2, tessera.data.tensors({"ids": IDS, "label": IDS % 3}).batch(4))
    assert (model.value("net.head.weight").numpy() != before).any()
