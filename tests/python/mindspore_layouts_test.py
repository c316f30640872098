"""Layouts: grids of ranks with named axes as strategies of operators; cells and functions whose inputs, results and parameters are split."""
import importlib
import json
import os
import shutil
import subprocess
import sys

import mindspore as ms
import numpy as np
import pytest
from mindspore import Layout, Tensor, context, nn, ops
from mindspore.parallel.shard import Layout as SameLayout

F32 = np.float32


@pytest.fixture(autouse=True)
def fresh_context():
    yield
    context.reset_auto_parallel_context()


def test_a_layout_says_how_a_tensor_lies():
    assert Layout is ms.parallel.Layout is SameLayout
    layout = Layout((2, 4, 8), ("dp", "sp", "mp"))
    assert layout("dp", "mp").to_dict() == {"device_matrix": (2, 4, 8), "tensor_map": (2, 0), "interleaved_parallel": False,
                                            "alias_name": ("dp", "sp", "mp"), "rank_list": list(range(64))}
    assert layout(("mp", "dp"), "None", ("sp", "None")).to_dict()["tensor_map"] == ((0, 2), -1, (1, -1))
    assert layout("dp", "mp") == layout("dp", "mp") != layout("mp", "dp") and len({layout("dp"), layout("dp")}) == 1
    assert repr(layout(("mp", "dp"), "None")) == "Layout((2, 4, 8), ('dp', 'sp', 'mp'))(('mp', 'dp'), 'None')"
    assert layout("dp").to_dict()["tensor_map"] == (2,)  # a call leaves the layout as it is
    with pytest.raises(ValueError, match="call it with a name for each dim"):
        layout.to_dict()
    assert Layout((2, 2), ("x", "y"), [4, 5, 6, 7])("x").to_dict()["tensor_map"] == (1,)  # of a stage


@pytest.mark.parametrize("make, error, words", [
    (lambda: Layout([2, 2], ("a", "b")), TypeError, "'device_matrix' must be a tuple"),
    (lambda: Layout((2, 2), ["a", "b"]), TypeError, "'alias_name' must be a tuple"),
    (lambda: Layout((2, 2), ("a",)), ValueError, "equal length"),
    (lambda: Layout((2, 2.0), ("a", "b")), TypeError, "must be ints"),
    (lambda: Layout((2, 0), ("a", "b")), ValueError, "at least 1"),
    (lambda: Layout((2, 2), ("a", 1)), TypeError, "must be strs"),
    (lambda: Layout((2, 2), ("a", "")), ValueError, "cannot be called ''"),
    (lambda: Layout((2, 2), ("a", "None")), ValueError, "cannot be called 'None'"),
    (lambda: Layout((2, 2), ("a", "a")), ValueError, "must differ"),
    (lambda: Layout((2, 2), ("a", "interleaved_parallel")), NotImplementedError, "'interleaved_parallel' is not available"),
    (lambda: Layout((2, 2), ("a", "b"), (0, 1, 2, 3)), TypeError, "'rank_list' must be a list"),
    (lambda: Layout((2, 2), ("a", "b"), [0, 1, 2, "3"]), TypeError, "must be ints"),
    (lambda: Layout((2, 2), ("a", "b"), [0, 1]), ValueError, "must have 4 ranks"),
    (lambda: Layout((2, 2), ("a", "b"), [0, 2, 1, 3]), NotImplementedError, "ranks lie in their order"),
    (lambda: Layout((2, 2), ("a", "b"))("a", "a"), ValueError, "'a' cannot split twice"),
    (lambda: Layout((2, 2), ("a", "b"))(("a", "b"), "b"), ValueError, "'b' cannot split twice"),
    (lambda: Layout((2, 2), ("a", "b"))("c"), ValueError, r"no axis 'c'; the axes are \('a', 'b'\)"),
])
def test_a_wrong_layout_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


GRID = Layout((2, 2), ("a", "b"))
OTHER = Layout((2, 2), ("a", "c"))


@pytest.mark.parametrize("given, error, words", [
    ((GRID, GRID("a", "b")), ValueError, "call it with a name for each dim"),
    ((GRID("a", "b"), (2, 1)), TypeError, "a tuple of tuples of ints, or a tuple of Layouts"),
    ((GRID("a", "b"), OTHER("a", "c")), ValueError, "one device_matrix and alias_name"),
])
def test_strategies_that_mix_are_refused(given, error, words):
    with pytest.raises(error, match=words):
        ops.MatMul().shard(given)
    with pytest.raises(error, match=words):
        nn.ReLU().shard(given)


def test_the_results_strategy_is_of_the_inputs_kind_and_grid():
    with pytest.raises(ValueError, match="both be of tuples or both of Layouts"):
        ops.ReLU().shard((GRID("a", "b"),), ((2, 2),))
    with pytest.raises(ValueError, match="one device_matrix and alias_name"):
        ops.ReLU().shard((GRID("a", "b"),), (OTHER("a", "c"),))
    with pytest.raises(ValueError, match="in_strategy None is not valid"):
        ops.ReLU().shard(None, (GRID("a", "b"),))


def traced(function, *shapes, devices=4):
    """The result of function(tensors of these shapes) inside construct(), in semi-automatic parallel on so many devices."""
    class Net(nn.Cell):
        def construct(self, *inputs):
            return function(*inputs)

    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=devices)
    return Net()(*[Tensor(np.ones(shape, F32)) for shape in shapes])


@pytest.mark.parametrize("function, shapes, words", [
    (ops.ReLU().shard((GRID("a", "b", "None"),)), [(4, 4)], "the strategy .* has 3 values, but the shape .* has 2 dims"),
    (ops.ReLU().shard((GRID("a"), GRID("b"))), [(4,)], "has 2 tuples, but there are 1 tensor inputs"),
    (ops.ReLU().shard((GRID(("a", "b"), "None"),)), [(2, 4)], "more parts than it has elements"),
    (ops.ReLU().shard((GRID("a", "b"),)), [(4, 4)], "is of 4 devices, but there are 8"),
    (ops.MatMul().shard((GRID("None", "a"), GRID("None", "b"))), [(4, 4), (4, 4)], "must split the dim that is summed over alike"),
    (ops.ReLU().shard((GRID("a", "None"),), (GRID("None", "a"),)), [(4, 4)], "contradicts the in_strategy"),
    (ops.ReLU().shard((GRID("a", "None"),), (GRID("b", "a"),)), [(4, 4)], "contradicts the in_strategy"),
    (ops.ReLU().shard(((2, 1),), ((1, 2),)), [(4, 4)], "contradicts the in_strategy"),
    (ops.ReLU().shard(((2, 1),), ((2, 1), (2, 1))), [(4, 4)], "has 2 tuples, but there are 1 results"),
    (ops.ReLU().shard(((2, 1),), ((2,),)), [(4, 4)], "out_strategy .* has 1 values, but the shape .* has 2 dims"),
    (nn.ReLU().shard(((2, 1), (2, 1))), [(4, 4)], "is of 2 inputs, but there are 1 tensors"),
    (nn.ReLU().shard(((2, 1),), ((2, 1), (2, 1))), [(4, 4)], "is of 2 results, but there are 1 tensors"),
    (nn.ReLU().shard(((8, 1),)), [(4, 4)], "more parts than it has elements"),
    (nn.ReLU().shard(((3, 1),)), [(4, 4)], "4 devices cannot share equally"),
    (nn.ReLU().shard((GRID("a"),)), [(4, 4)], "has 1 values, but the shape .* has 2 dims"),
    (nn.ReLU().shard((None,)), [(3, 4)], "splits the batch into 4 parts, but the shape .* has 3 rows"),
    (lambda x: ms.reshard(x, GRID("a")), [(4, 4)], "has 1 values, but the shape .* has 2 dims"),
])
def test_a_strategy_that_does_not_fit_its_call_is_refused(function, shapes, words):
    with pytest.raises(RuntimeError, match=words):
        traced(function, *shapes, devices=8 if "there are 8" in words else 4)


@pytest.mark.parametrize("function", [
    ops.ReLU().shard((GRID("a", "None"),), (GRID(("a", "b"), "None"),)), ops.ReLU().shard(((2, 1),), ((2, 2),)),
    nn.ReLU().shard((GRID("b", "a"),), (GRID("None", ("a", "b")),)), nn.ReLU().shard((None,)), lambda x: ops.reshard(x, GRID("b", "a")),
    ms.shard(ops.relu, ((4, 1),))])
def test_a_strategy_that_fits_leaves_the_result_as_it_is(function):
    assert traced(function, (4, 4)).asnumpy().tolist() == np.ones((4, 4)).tolist()


@pytest.mark.parametrize("call, error, words", [
    (lambda: ms.shard(3, ((1,),)), TypeError, "must be a Cell or a function"),
    (lambda: ms.shard(ops.relu, [(2, 1)]), TypeError, "in_strategy must be a tuple"),
    (lambda: ms.shard(ops.relu, (2, 1)), TypeError, "tuple of tuples of ints"),
    (lambda: ms.shard(ops.relu, ((2, 1),), 3), TypeError, "out_strategy must be a tuple"),
    (lambda: ms.shard(ops.relu, ((2, 1),), parameter_plan={"w": (2, 1)}), TypeError, "of the parameters of a Cell"),
    (lambda: nn.Dense(4, 4).shard(((2, 1),), parameter_plan=[("weight", (2, 1))]), TypeError, "must be a dict or None"),
    (lambda: nn.Dense(4, 4).shard(((2, 1),), parameter_plan={"weight": [2, 1]}), TypeError, "tuples of ints or Layouts as values"),
    (lambda: nn.Dense(4, 4).shard(((2, 1),), parameter_plan={1: (2, 1)}), TypeError, "strs as keys"),
    (lambda: nn.Dense(4, 4).shard(((2, 1),), parameter_plan={"weight": (2,)}), RuntimeError, "has 1 values, but the shape .* has 2 dims"),
    (lambda: nn.Dense(4, 4).shard((GRID("a", "b"),), parameter_plan={"weight": OTHER("a", "c")}), ValueError, "one device_matrix"),
    (lambda: nn.Dense(4, 4).shard(((2, 1),), device=1), TypeError, "'device' must be a str"),
    (lambda: nn.Dense(4, 4).shard(((2, 1),), level="0"), TypeError, "'level' must be an int"),
    (lambda: ms.reshard(3, GRID("a")), TypeError, "'tensor' must be a Tensor"),
    (lambda: ms.reshard(Tensor([1.0]), (2,)), TypeError, "'layout' must be a Layout"),
    (lambda: ms.reshard(Tensor([1.0]), GRID), ValueError, "call it with a name for each dim"),
])
def test_a_wrong_call_of_shard_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_parameter_that_is_not_there_is_named(capfd):
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.block = nn.Dense(4, 4)

    Net().block.shard(((2, 1),), parameter_plan={"self.block.wieght": (2, 1)})
    assert "names 'self.block.wieght', which is no parameter of the cell: it has no effect; did you mean block.weight?" in capfd.readouterr().err


def test_shard_lets_operators_follow_their_neighbours():
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
    nn.ReLU().shard(((1, 1),))
    assert context.get_auto_parallel_context("sharding_propagation")
    context.reset_auto_parallel_context()
    nn.ReLU().shard(((1, 1),))
    assert not context.get_auto_parallel_context("sharding_propagation")


def test_elsewhere_a_sharded_cell_is_as_any_other(capfd):
    context.set_auto_parallel_context(parallel_mode="data_parallel")
    net = nn.ReLU()
    sharded = net.shard(((8, 1, 1),))  # of a tensor that it never gets
    assert sharded(Tensor([-1.0, 1.0])).asnumpy().tolist() == net(Tensor([-1.0, 1.0])).asnumpy().tolist() == [0.0, 1.0]
    assert "strategies (shard, set_strategy) have no effect in data_parallel" in capfd.readouterr().err
    context.set_context(mode=context.PYNATIVE_MODE)
    try:
        assert sharded(Tensor([-1.0, 1.0])).asnumpy().tolist() == [0.0, 1.0]
    finally:
        context.set_context(mode=context.GRAPH_MODE)


TRAININGS = """
import importlib
import json
import numpy as np
import mindspore as ms
from mindspore import Layout, Parameter, Tensor, context, nn, ops
from mindspore.communication import get_group_size, get_rank, init

init()
size, rank = get_group_size(), get_rank()
grid = Layout({1: (1, 1, 1), 2: (2, 1, 1), 4: (2, 2, 1), 8: (2, 2, 2)}[size], ("a", "b", "c"))
rng = np.random.RandomState(1)
X, Y = rng.rand(16, 16).astype(np.float32), rng.rand(16, 8).astype(np.float32)
W, V, U = [np.random.RandomState(seed).rand(*shape).astype(np.float32) / 8 for seed, shape in enumerate([(16, 24), (16, 24), (8, 16)])]


class Net(nn.Cell):
    def __init__(self, strategy=None, out=None):
        super().__init__()
        self.w = Parameter(Tensor(W), name="w")
        self.matmul = ops.MatMul()
        if strategy is not None:
            self.matmul.shard(strategy, out)
        self.block = nn.SequentialCell(nn.Dense(24, 16, weight_init=Tensor(V), bias_init="ones"), nn.ReLU(),
                                       nn.Dense(16, 8, weight_init=Tensor(U), bias_init="ones"))
        self.between = lambda h: h

    def construct(self, x):
        return self.block(self.between(self.matmul(x, self.w)))


def of_block(out=None, plan=None, inputs=None):
    net = Net()
    net.block.shard((inputs or grid("a", "b"),), out, plan)
    return net


def between(function):
    net = Net()
    net.between = function
    return net


def twice(h):
    return ops.relu(h) * 2 - h


NETS = {
    "rows and columns": lambda: Net((grid("a", "None"), grid("None", "b"))),
    "the axes the other way round": lambda: Net((grid("b", "None"), grid("None", "a"))),
    "a sum over two axes": lambda: Net((grid("None", ("b", "a")), grid(("b", "a"), "c"))),
    "a sum that is scattered": lambda: Net((grid("None", ("b", "a")), grid(("b", "a"), "c")), (grid(("b", "a"), "c"),)),
    "rows by two axes": lambda: Net((grid(("c", "a"), "b"), grid("b", "None"))),
    "counts with a result": lambda: Net(((size, 1), (1, 1)), ((size, 1),)),
    "a cell": of_block,
    "a cell, its results and parameters": lambda: of_block((grid("b", "None"),), {"self.block.0.weight": grid("b", "a"), "block.2.weight": grid("None", "c")}),
    "a cell by counts": lambda: of_block(((1, size),), {"block.0.weight": (1, size)}, (size, 1)),
    "two cells": lambda: two_cells(),
    "a function": lambda: between(ms.shard(twice, (grid("b", "a"),), (grid("a", "c"),))),
    "a tensor": lambda: between(lambda h: ops.reshard(h, grid(("c", "b"), "a"))),
}


def two_cells():
    net = of_block()
    net.block[0].shard((grid("b", "a"),))
    net.block[2].shard((grid("None", ("a", "b")),))
    return net


answers = {}
for name, make in NETS.items():
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True)
    net = make()
    data = ms.dataset.NumpySlicesDataset({"x": X, "y": Y}, shuffle=False).batch(8)
    losses = []

    class Note(ms.train.callback.Callback):
        def step_end(self, run_context):
            losses.append(float(run_context.original_args().net_outputs.asnumpy()))

    model = ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.01, 0.9))
    model.build(data, epoch=2)
    slices = {p.name: [float(e) for e in p.asnumpy().ravel()] for p in net.trainable_params()}
    shapes = {key: (value[2], value[0], value[1]) for key, value in net.parameter_layout_dict.items()}
    model.train(2, data, [Note()], dataset_sink_mode=False)
    answers[name] = dict(losses=losses, slices=slices, shapes=shapes)
with open(f"answers{rank}.json", "w") as file:
    json.dump(answers, file)
"""

GRIDS = {2: (2, 1, 1), 4: (2, 2, 1), 8: (2, 2, 2)}
# By training and parameter: the axes of the grid that split its dims.
EXPECTED = {
    "rows and columns": {"w": ((), (1,))},
    "the axes the other way round": {"w": ((), (0,))},
    "a sum over two axes": {"w": ((1, 0), (2,))},
    "a sum that is scattered": {"w": ((1, 0), (2,))},
    "rows by two axes": {"w": ((1,), ())},
    "a cell, its results and parameters": {"block.0.weight": ((1,), (0,)), "block.2.weight": ((), (2,))},
}
VALUES = {name: (np.random.RandomState(seed).rand(*shape).astype(F32) / 8).astype(F32)
          for name, seed, shape in (("w", 0, (16, 24)), ("block.0.weight", 1, (16, 24)), ("block.2.weight", 2, (8, 16)))}


def answers_of(tmp_path, ranks):
    (tmp_path / "trainings.py").write_text(TRAININGS)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))}
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*command, sys.executable, "trainings.py"], capture_output=True, text=True, timeout=600, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return {rank: json.loads((tmp_path / f"answers{rank}.json").read_text()) for rank in range(ranks)}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return answers_of(tmp_path_factory.mktemp("alone"), 1)[0]


def own_piece(whole, dims, grid, rank):
    """Of a rank: its place in the grid, whose last axis varies fastest, says which part it has, axis by axis, outer first."""
    place = np.unravel_index(rank, grid)
    for dim, axes in enumerate(dims):
        for axis in axes:
            whole = np.split(whole, grid[axis], dim)[place[axis]]
    return whole


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_trainings_have_the_losses_of_one_device_and_the_layouts_slices(tmp_path, alone, ranks):
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is absent")
    for rank, answers in answers_of(tmp_path, ranks).items():
        assert answers.keys() == alone.keys() and EXPECTED.keys() < alone.keys()
        for name, answer in answers.items():
            assert len(answer["losses"]) == 4
            assert answer["losses"] == pytest.approx(alone[name]["losses"], rel=1e-5), (name, rank)
            for parameter, dims in EXPECTED.get(name, {}).items():
                piece = own_piece(VALUES[parameter], dims, GRIDS[ranks], rank)
                assert answer["shapes"][parameter][0] == list(piece.shape), (name, rank, parameter, answer["shapes"][parameter])
                assert answer["slices"][parameter] == pytest.approx(piece.ravel().tolist()), (name, rank, parameter)


def run_on(tmp_path, ranks, script, *arguments):
    """What the script's ranks print."""
    (tmp_path / "script.py").write_text(script)
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is absent")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))}
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*command, sys.executable, "script.py", *arguments], capture_output=True, text=True, timeout=600, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


BATCHES = """
import importlib
import json
import numpy as np
import mindspore as ms
from mindspore import Layout, Parameter, Tensor, context, nn, ops
from mindspore.communication import get_group_size, get_rank, init

init()
grid = Layout((2, 2), ("a", "b")) if get_group_size() == 4 else Layout((1, 1), ("a", "b"))
X = np.random.RandomState(0).rand(4, 2, 3, 8).astype(np.float32)
W = np.random.RandomState(1).rand(8, 8).astype(np.float32)
KINDS = {  # the product's operands are x and w; or w and x; or x and w of one row of the batch; w's columns are split, or none are
    "counts": ((2, 1, 1, 1), (1, 1)), "columns": ((2, 1, 1, 1), (1, 2)), "layout": (grid("b", "a", "None", "None"), grid("None", "None")),
    "layout of columns": (grid("b", "None", "None", "None"), grid("None", "a")), "left": ((1, 1), (2, 2, 1, 1)), "one row": ((2, 1, 1, 1), (1, 1, 1)),
}


class Net(nn.Cell):
    def __init__(self, kind, strategy):
        super().__init__()
        self.w, self.kind = Parameter(Tensor(W[None] if kind == "one row" else W), name="w"), kind
        self.product = ops.BatchMatMul(transpose_b=kind == "left").shard(strategy)

    def construct(self, x):
        return self.product(self.w, x) if self.kind == "left" else self.product(x, self.w)


losses = {}
for kind, strategy in KINDS.items():
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True)
    net = Net(kind, strategy)
    y = np.zeros((4, 2, 8, 3) if kind == "left" else X.shape, np.float32)
    own = losses[kind] = []

    class Note(ms.train.callback.Callback):
        def step_end(self, run_context):
            own.append(float(run_context.original_args().net_outputs.asnumpy()))

    data = ms.dataset.NumpySlicesDataset({"x": X, "y": y}, shuffle=False).batch(4)
    ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1)).train(3, data, [Note()], dataset_sink_mode=False)
with open(f"losses{get_rank()}.json", "w") as file:
    json.dump(losses, file)
"""


def test_an_operand_that_is_repeated_over_the_batch_is_split_there_as_the_other(tmp_path):
    answers = []
    for ranks in (1, 4):
        place = tmp_path / str(ranks)
        place.mkdir()
        run_on(place, ranks, BATCHES)
        answers += [json.loads((place / f"losses{rank}.json").read_text()) for rank in range(ranks)]
    for answer in answers[1:]:
        assert answer.keys() == answers[0].keys()
        for kind, losses in answer.items():
            assert len(losses) == 3 and losses == pytest.approx(answers[0][kind], rel=1e-5), kind


ALONE = """
import numpy as np
import mindspore as ms
from mindspore import Layout, Parameter, Tensor, context, nn, ops
from mindspore.communication import init

init()
grid = Layout((2, 2), ("a", "b"))


class Net(nn.Cell):
    def __init__(self, strategy=None):
        super().__init__()
        self.w = Parameter(Tensor(np.ones((8, 4), np.float32)), name="w")
        self.product = ops.MatMul()
        if strategy is not None:
            self.product.shard(strategy)

    def construct(self, x):
        return self.product(x, self.w)


def sharded(**kwargs):
    net = Net()
    net.shard(((4, 1),), **kwargs)
    return net


data = ms.dataset.NumpySlicesDataset({"x": np.ones((2, 8), np.float32), "y": np.ones((2, 4), np.float32)}, shuffle=False).batch(2)
for mode in ("semi_auto_parallel", "auto_parallel", "data_parallel", "stand_alone"):
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(parallel_mode=mode)
    for net in (Net(((2, 2), (2, 1))), Net((grid("a", "b"), grid("b", "None"))), sharded(), sharded(parameter_plan={"w": (4, 1)}),
                sharded(parameter_plan={"w": (8, 4)})):
        assert net(Tensor(np.ones((2, 8), np.float32))).asnumpy().tolist() == [[8.0] * 4] * 2
        ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1)).train(1, data, dataset_sink_mode=False)
context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=2)
try:
    Net(((2, 2), (2, 1)))(Tensor(np.ones((2, 8), np.float32)))
except RuntimeError as error:
    print(error)
"""


def test_on_one_rank_strategies_have_no_effect_and_one_warning_unless_the_script_counts_devices(tmp_path):
    done = run_on(tmp_path, 1, ALONE)
    assert done.stderr.count("have no effect on one rank") == 1
    assert "have no effect on one rank, 'MatMul' has one: start several by tessera run -n N" in done.stderr
    assert "needs 4 devices, but there are 2" in done.stdout


@pytest.mark.parametrize("layout, error, words", [
    (GRID, ValueError, "call it with a name for each dim"), (GRID("b", "None"), NotImplementedError, r"'b', 'None'\) is not available: its axes must be the outermost"),
    (GRID(("b", "a"), "None"), NotImplementedError, "is not available"), (OTHER("a", "c"), ValueError, "one device_matrix and alias_name")])
def test_a_dataset_strategy_of_layouts_that_counts_cannot_say_is_refused(layout, error, words):
    with pytest.raises(error, match=words):
        context.set_auto_parallel_context(dataset_strategy=(layout, GRID("a", "b")))


INPUTS = """
import numpy as np
import mindspore as ms
from mindspore import Layout, Tensor, context, nn
from mindspore.communication import init

init()
X = np.random.RandomState(0).rand(8, 4).astype(np.float32)


def loss_of(**settings):
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", **settings)
    losses = []

    class Note(ms.train.callback.Callback):
        def step_end(self, run_context):
            losses.append(float(run_context.original_args().net_outputs.asnumpy()))

    net = nn.Dense(4, 4, weight_init=Tensor(X[:4]))
    ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1)).train(
        2, ms.dataset.NumpySlicesDataset({"x": X, "y": X}, shuffle=False).batch(8), [Note()], dataset_sink_mode=False)
    return losses


def layouts(sizes):
    grid = Layout(sizes, ("dp", "mp"))
    return (grid("dp", "None"), grid("dp", "mp"))


expected = loss_of(dataset_strategy=((2, 1), (2, 1)))
np.testing.assert_allclose(loss_of(dataset_strategy=layouts((2, 1))), expected, rtol=1e-6)
try:
    loss_of(dataset_strategy=layouts((2, 2)))
except RuntimeError as error:
    print(error)
"""


def test_a_dataset_strategy_may_be_layouts(tmp_path):
    assert run_on(tmp_path, 2, INPUTS).stdout.count("is of 4 devices, but there are 2") == 2


SPLIT_INPUTS = """
import sys

import numpy as np
import mindspore as ms
from mindspore import Tensor, context, nn
from mindspore.communication import init

init()
X = np.random.RandomState(0).rand(8, 4).astype(np.float32)
MODE = sys.argv[1]


def network(settings):
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(parallel_mode=MODE, **settings)
    return nn.Dense(4, 4, weight_init=Tensor(X[:4]))


def by_cell(net, optimizer):
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)


def by_function(net, optimizer):
    forward = ms.value_and_grad(nn.WithLossCell(net, nn.MSELoss()), None, optimizer.parameters)

    def step(x, y):
        loss, gradients = forward(x, y)
        optimizer(gradients)
        return loss

    return step


def stepped(make, **settings):
    net = network(settings)
    step = make(net, nn.SGD(net.trainable_params(), 0.1))
    return [float(step(Tensor(X), Tensor(X)).asnumpy()) for _ in range(2)]


def measured(**settings):
    net = network(settings)
    rows = ms.dataset.NumpySlicesDataset({"x": X, "y": X}, shuffle=False).batch(8)
    model = ms.Model(net, nn.MSELoss(), metrics={"mse"})
    return [model.eval(rows, dataset_sink_mode=False)["mse"], *model.predict(Tensor(X)).asnumpy().ravel()]


def predicted(**settings):
    return ms.Model(network(settings)).predict(Tensor(X)).asnumpy().ravel()


for of in (lambda **settings: stepped(by_cell, **settings), lambda **settings: stepped(by_function, **settings), measured, predicted):
    whole = of(full_batch=True)
    for strategy in (((2, 1), (1, 2)), ((1, 2), (1, 1))):
        np.testing.assert_allclose(of(dataset_strategy=strategy), whole, rtol=1e-4, atol=1e-6)
    for wrong in (((2,), (2,)), ((3, 1), (1, 1))):
        try:
            of(dataset_strategy=wrong)
        except RuntimeError as error:
            sys.stdout.write(f"refused {error}\\n")
"""


@pytest.mark.parametrize("mode", ["semi_auto_parallel", "auto_parallel"])
def test_a_dataset_strategy_holds_for_steps_evaluations_and_predictions(tmp_path, mode):
    done = run_on(tmp_path, 2, SPLIT_INPUTS, mode)
    for words in ("has 1 counts for input", "does not divide 2 ranks"):
        assert done.stdout.count(words) == 2 * 4, done.stdout


def test_the_size_of_optimizer_shards_may_be_in_the_optimizers_settings():
    context.set_auto_parallel_context(parallel_optimizer_config={"optimizer_weight_shard_size": 2})
    assert context.get_auto_parallel_context("optimizer_weight_shard_size") == 2
    context.set_auto_parallel_context(parallel_optimizer_config={"optimizer_weight_shard_size": 1})
    assert context.get_auto_parallel_context("optimizer_weight_shard_size") == -1
    with pytest.raises(ValueError, match="'optimizer_weight_shard_size' must be at least 1, but got 0"):
        context.set_auto_parallel_context(parallel_optimizer_config={"optimizer_weight_shard_size": 0})
    with pytest.raises(TypeError, match="'optimizer_weight_shard_size' must be int"):
        context.set_auto_parallel_context(parallel_optimizer_config={"optimizer_weight_shard_size": True})


@pytest.mark.parametrize("module", ["mindspore.communication.comm_func", "mindspore.mint.distributed"])
def test_a_barrier_says_what_waits_for_all_ranks(module):
    with pytest.raises(NotImplementedError, match=r"barrier is not part of .*call tessera.cluster.barrier\(\)"):
        importlib.import_module(module).barrier()
