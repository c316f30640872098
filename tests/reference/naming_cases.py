"""What parameters are called, in every order in which a network may be put together: checkpoints are loaded by these names."""
from collections import OrderedDict

import mindspore as ms
import numpy as np
from mindspore import nn

from kinds import value


def dense():
    return nn.Dense(2, 2, has_bias=False)


def norm():
    return nn.BatchNorm2d(2)


class Holds(nn.Cell):
    """What build(cell) makes its parts."""

    def __init__(self, build, auto_prefix=True):
        super().__init__(auto_prefix=auto_prefix)
        build(self)


class Block(nn.Cell):
    """Two layers, the second one in a sequence."""

    def __init__(self):
        super().__init__()
        self.first = dense()
        self.rest = nn.SequentialCell(norm(), nn.ReLU(), dense())


BUILDS = {}


def build(function):
    BUILDS[function.__name__.replace("_", " ")] = function
    return function


@build
def a_list_that_is_filled_later(cell):
    cell.layers = nn.CellList()
    for _ in range(3):
        cell.layers.append(Block())
    cell.head = dense()


@build
def a_list_that_is_filled_before_and_later(cell):
    cell.layers = nn.CellList([Block()])
    cell.layers.append(Block())
    cell.layers.extend([Block(), dense()])


@build
def a_list_that_is_filled_before_it_is_an_attribute(cell):
    layers = nn.CellList()
    layers.append(dense())
    layers.extend([dense()])
    cell.layers = layers


@build
def a_list_whose_first_cells_have_no_parameters(cell):
    cell.layers = nn.CellList([nn.ReLU()])
    cell.layers.append(dense())
    cell.layers.append(dense())


@build
def a_sequence_that_is_filled_later(cell):
    cell.layers = nn.SequentialCell()
    cell.layers.append(dense())
    cell.layers.append(nn.ReLU())
    cell.layers.append(dense())


@build
def a_sequence_that_is_filled_before_and_later(cell):
    cell.layers = nn.SequentialCell(dense(), dense())
    cell.layers.append(dense())


@build
def a_sequence_by_names_that_grows(cell):
    cell.layers = nn.SequentialCell(OrderedDict([("conv", dense()), ("norm", norm())]))
    cell.layers.append(dense())


@build
def cells_by_name_that_are_added_later(cell):
    cell.parts = nn.CellDict()
    cell.parts["one"] = dense()
    cell.parts.update([("two", dense())])


@build
def cells_by_name_that_are_added_to_others(cell):
    cell.parts = nn.CellDict({"one": dense()})
    cell.parts["two"] = dense()
    cell.parts["one"] = dense()


@build
def insertions(cell):
    cell.layers = nn.CellList([dense(), nn.ReLU(), Block()])
    cell.layers.insert(0, dense())
    cell.layers.insert(2, dense())
    cell.layers.insert(len(cell.layers), dense())
    cell.layers.insert(-1, dense())


@build
def insertions_into_what_is_filled_later(cell):
    cell.layers = nn.CellList()
    cell.layers.append(dense())
    cell.layers.insert(0, dense())


@build
def replacements(cell):
    cell.layers = nn.CellList([dense(), dense()])
    cell.layers[1] = Block()
    cell.seq = nn.SequentialCell(dense(), dense())
    cell.seq[0] = Block()


@build
def additions_in_place(cell):
    cell.layers = nn.CellList([dense()])
    cell.layers += [dense(), dense()]


@build
def deletions(cell):
    cell.layers = nn.CellList([dense(), Block(), dense()])
    del cell.layers[0]
    cell.seq = nn.SequentialCell(dense(), nn.ReLU(), dense(), dense())
    del cell.seq[0]


@build
def deletions_of_several(cell):
    cell.layers = nn.CellList([dense() for _ in range(4)])
    del cell.layers[1:3]


@build
def parts_of_lists(cell):
    cell.layers = nn.CellList([dense() for _ in range(4)])
    cell.upper = cell.layers[2:]
    cell.seq = nn.SequentialCell(dense(), dense(), dense())
    cell.lower = cell.seq[1:]


@build
def lists_of_lists_from_within(cell):
    cell.stages = nn.CellList()
    for _ in range(2):
        stage = nn.CellList()
        stage.append(dense())
        stage.append(dense())
        cell.stages.append(stage)


@build
def lists_of_lists_from_above(cell):
    cell.stages = nn.CellList([nn.CellList([Block()])])
    cell.stages.append(nn.CellList())
    cell.stages[1].append(dense())


@build
def lists_without_prefixes(cell):
    cell.layers = nn.CellList([dense()], auto_prefix=False)
    cell.other = dense()


@build
def a_cell_that_is_in_two_lists(cell):
    shared = dense()
    cell.one = nn.CellList()
    cell.one.append(shared)
    cell.two = nn.CellList([dense()])
    cell.two.append(shared)


@build
def a_part_that_gets_a_parameter_later(cell):
    cell.part = nn.Cell()
    cell.part.weight = ms.Parameter(ms.Tensor([1.0]), name="called")
    cell.part.inner = dense()


@build
def a_parameter_that_is_replaced(cell):
    cell.part = dense()
    cell.part.weight = ms.Parameter(ms.Tensor(np.ones((2, 2), np.float32)), name="other")


@build
def a_part_that_is_replaced(cell):
    cell.part = nn.SequentialCell(dense(), dense())
    cell.part = dense()


@build
def a_cell_that_is_inserted(cell):
    cell.insert_child_to_cell("part", nn.SequentialCell(dense()))
    cell.insert_param_to_cell("scale", ms.Parameter(ms.Tensor([1.0]), name="called"))


@build
def a_cell_that_names_nothing(cell):
    cell.part = Holds(a_list_that_is_filled_before_it_is_an_attribute, auto_prefix=False)


@build
def a_loss_with_its_network(cell):
    cell.step = nn.WithLossCell(nn.SequentialCell(dense()), nn.MSELoss())


for name, function in BUILDS.items():
    value(f"nn.Cell names of {name}", lambda f=function: np.array([p.name for p in Holds(f).get_parameters()]))
    value(f"nn.Cell names of {name} within another one",
          lambda f=function: np.array([p.name for p in nn.SequentialCell(nn.ReLU(), Holds(f)).get_parameters()]))
    value(f"nn.Cell names of {name} in one that names nothing",
          lambda f=function: np.array([p.name for p in nn.WithLossCell(Holds(f), nn.MSELoss()).get_parameters()]))
    value(f"nn.Cell paths of {name}", lambda f=function: np.array([path for path, _ in nn.WithLossCell(Holds(f), nn.MSELoss()).parameters_and_names()]))
    value(f"nn.Cell cells of {name}", lambda f=function: np.array(list(Holds(f).parameters_dict())))


def fill_two_lists(cell):
    """Their parameters have the same names."""
    cell.one, cell.two = nn.CellList(), nn.CellList()
    for cells in (cell.one, cell.two):
        cells.append(dense())
        cells.append(norm())


def told_apart():
    net = Holds(fill_two_lists)
    before = [p.name for p in net.get_parameters()]
    net.check_names_and_refresh_name()
    return np.array(before + [p.name for p in net.get_parameters()])


value("nn.Cell names where two would be one", told_apart)
