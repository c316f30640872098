"""copy.deepcopy() of tensors, parameters and cells: equal values, nothing shared."""
import copy

import numpy as np
import pytest
import tessera
from tessera import nn, ops

X = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)


class Scaled(nn.Cell):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.scale = tessera.Parameter(np.float32([2.0]), requires_grad=False)
        self.parts = [layer, self.scale]
        self.settings = {"sizes": [1, 2]}

    def construct(self, x):
        return self.layer(x) * self.scale


def test_of_a_tensor_and_a_parameter():
    tensor, parameter = tessera.Tensor(X), tessera.Parameter(X, name="w", requires_grad=False)
    copies = copy.deepcopy([tensor, parameter])
    copies[0][0] = 0.0
    copies[1].set_data(np.zeros_like(X))
    assert (tensor.numpy() == X).all() and (parameter.numpy() == X).all() and copies[0].numpy()[0].sum() == 0
    assert (copies[1].name, copies[1].requires_grad, type(copies[1])) == ("w", False, type(parameter))


CELLS = {"dense": lambda: nn.Dense(6, 3, activation="relu"), "sequential": lambda: nn.Sequential(nn.Dense(6, 4), nn.Dense(4, 3)),
         "list": lambda: nn.Sequential(nn.CellList([nn.Dense(6, 4)])[0]), "norm": lambda: nn.Sequential(nn.Dense(6, 6), nn.LayerNorm([6])),
         "of Python": lambda: Scaled(Scaled(nn.Dense(6, 2)))}


@pytest.mark.parametrize("kind", CELLS)
def test_of_a_cell(kind):
    cell = CELLS[kind]()
    wanted = cell(X).numpy().copy()
    made = copy.deepcopy(cell)
    assert type(made) is type(cell)
    assert [(p.name, p.requires_grad) for p in made.parameters()] == [(p.name, p.requires_grad) for p in cell.parameters()]
    assert (made(X).numpy() == wanted).all()
    for parameter in made.parameters():
        parameter.set_data(np.zeros(parameter.shape, np.float32))
    assert (cell(X).numpy() == wanted).all() and (made(X).numpy() != wanted).any()


def test_values_that_nobody_has_asked_for_are_copied_too():
    cell = nn.Dense(6, 3)
    made = copy.deepcopy([cell, cell])
    assert made[0] is made[1]
    assert (made[0].weight.numpy() == cell.weight.numpy()).all()


def test_a_copy_has_its_own_parts_and_keeps_what_was_shared():
    cell = Scaled(nn.Dense(6, 3))
    made = copy.deepcopy(cell)
    assert made.parts[0] is made.layer and made.parts[1] is made.scale and made.layer is not cell.layer
    made.settings["sizes"].append(3)
    assert cell.settings == {"sizes": [1, 2]}
    tied = nn.Dense(6, 6)
    both = Scaled(tied)
    both.again = tied
    assert len(copy.deepcopy(both).parameters()) == len(both.parameters()) == 3


def test_a_copy_is_set_up_as_the_cell():
    cell = Scaled(nn.Sequential(nn.Dense(6, 3), nn.Dropout(0.5)))
    cell.set_train()
    cell.layer.to_float("float16")
    made = copy.deepcopy(cell)
    assert made.training and made.layer.training
    for one in (cell, made):
        one.set_train(False)
    assert (made(X).numpy() == cell(X).numpy()).all()
    made.set_train()
    assert not cell.training


def test_copies_are_trained_apart():
    cell = nn.Dense(6, 3)
    made = copy.deepcopy(cell)
    before = cell.weight.numpy().copy()
    rows = tessera.data.tensors({"x": X, "y": np.ones((5, 3), np.float32)}).batch(5)
    tessera.Model(made, nn.MSELoss(), nn.SGD(learning_rate=0.1)).train(1, rows)
    assert (cell.weight.numpy() == before).all() and (made.weight.numpy() != before).any()
    assert ops.reduce_sum(made(X)).numpy() != ops.reduce_sum(cell(X)).numpy()
