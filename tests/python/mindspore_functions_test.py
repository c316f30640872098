"""Scripts on several ranks whose training step is a function, and what else they do that tutorials do not."""
import re
import shutil
import sys

import pytest
from mindspore_ranks_test import MPIRUN, run

HEAD = """
import sys

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.communication import create_group, get_group_size, get_rank, init

init()
rank, size = get_rank(), get_group_size()
rng = np.random.RandomState(1)
X = rng.rand(4, 12, 4).astype(np.float32)
Y = X.sum(2, keepdims=True)


def part(rows, number=rank):
    return rows[number * len(rows) // size:(number + 1) * len(rows) // size]


def say(*words):
    sys.stdout.write(" ".join(["said", *map(str, words)]) + "\\n")
    sys.stdout.flush()


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w1 = Parameter(Tensor(np.random.RandomState(2).rand(4, 6).astype(np.float32)))
        self.w2 = Parameter(Tensor(np.random.RandomState(3 + DIFFERENT * rank).rand(6, 1).astype(np.float32)))
        self.first, self.second = ops.MatMul().shard(((1, 1), (1, size))), ops.MatMul()

    def construct(self, x):
        return self.second(ops.relu(self.first(x, self.w1)), self.w2)
"""

STEPS = HEAD + """
ms.set_auto_parallel_context(parallel_mode=MODE, full_batch=FULL)
net, loss_fn = Net(), nn.MSELoss()
optimizer = nn.Momentum(net.trainable_params(), 0.02, 0.9)
gradients_of = ops.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)


def step(x, y):
    loss, gradients = gradients_of(x, y)
    optimizer(gradients)
    return loss


if JIT:
    step = ms.jit(step)
for x, y in zip(X, Y):
    loss = step(Tensor(x if FULL else part(x)), Tensor(y if FULL else part(y)))
    say(loss.asnumpy())
say(net.w1.asnumpy().sum(), net.w2.asnumpy().sum(), optimizer.moments[0].asnumpy().sum())
own = ms.jit(lambda x: x * 2.0)(Tensor(part(X[0])))  # no training step: each rank's own
say(own.shape[0] == 12 // size)
"""


@pytest.fixture(scope="session", autouse=True)
def mpirun():
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is absent")


def said(tmp_path, text, ranks, **values):
    for name, value in values.items():
        text = re.sub(rf"\b{name}\b", repr(value), text)
    (tmp_path / "script.py").write_text(text)
    out, err = run([*MPIRUN, "-n", ranks, sys.executable, "script.py"], tmp_path)
    return [line.split()[1:] for line in out.splitlines() if line.startswith("said ")], err


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("mode, full, ranks", [("semi_auto_parallel", False, 2), ("semi_auto_parallel", True, 3), ("auto_parallel", False, 2)])
def test_a_function_as_training_step_is_spread_over_the_ranks(tmp_path, jit, mode, full, ranks):
    alone, _ = said(tmp_path, STEPS, 1, MODE="stand_alone", FULL=True, JIT=jit, DIFFERENT=0)
    spread, _ = said(tmp_path, STEPS, ranks, MODE=mode, FULL=full, JIT=jit, DIFFERENT=0)
    assert len(alone) == 6 and len(spread) == 6 * ranks and spread.count(["True"]) == ranks
    for words in alone[:-1]:
        close = [other for other in spread if len(other) == len(words) and other != ["True"]
                 and all(float(a) == pytest.approx(float(b), rel=1e-4) for a, b in zip(words, other))]
        assert len(close) == ranks, (alone, spread)


def test_ranks_that_start_from_different_values_take_those_of_rank_0(tmp_path):
    alone, _ = said(tmp_path, STEPS, 1, MODE="stand_alone", FULL=True, JIT=True, DIFFERENT=0)
    spread, err = said(tmp_path, STEPS, 2, MODE="semi_auto_parallel", FULL=False, JIT=True, DIFFERENT=1)
    assert "initial values of 1 parameter differ between ranks: all take rank 0's" in err
    sums = [words for words in spread if len(words) == 3]
    assert len(sums) == 2 and all(float(a) == pytest.approx(float(b), rel=1e-4) for words in sums for a, b in zip(alone[4], words))


UNEQUAL = HEAD.replace("DIFFERENT", "0") + """
ms.set_auto_parallel_context(parallel_mode=MODE)
net, loss_fn = Net(), nn.MSELoss()
optimizer = nn.Momentum(net.trainable_params(), 0.02, 0.9)
if CELL:
    step = nn.TrainOneStepCell(nn.WithLossCell(net, loss_fn), optimizer)
else:
    gradients_of = ops.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)

    def step(x, y):
        loss, gradients = gradients_of(x, y)
        optimizer(gradients)
        return loss


def on(rows):
    return step(Tensor(X[0][:rows]), Tensor(Y[0][:rows]))


on(4)
for _ in range(2):
    try:
        on(4 - rank)
        say("computed")
    except ValueError as error:
        say("rank 0 gives f32[4,4], f32[4,1]; rank 1 gives f32[3,4], f32[3,1]; " in str(error))
    say(np.isfinite(on(4).asnumpy()).all())
    on(3)  # all have compiled both from here on
"""


@pytest.mark.parametrize("cell", [True, False])
@pytest.mark.parametrize("mode", ["semi_auto_parallel", "auto_parallel"])
def test_ranks_that_give_other_rows_to_a_step_than_the_others_all_hear_of_it(tmp_path, mode, cell):
    found, _ = said(tmp_path, UNEQUAL, 2, MODE=mode, CELL=cell)
    assert found == [["True"]] * 8, found


GONE = HEAD.replace("DIFFERENT", "0") + """
ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True)
net = Net()
model = ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.02, 0.9))
model.train(1, ds.NumpySlicesDataset((X[0], Y[0]), ["x", "y"], shuffle=False).batch(12), dataset_sink_mode=False)


def saved(whole):
    ms.save_checkpoint(net, f"file{rank}.ckpt", integrated_save=whole)
    return {name: (tuple(value.shape), value.asnumpy().tobytes()) for name, value in ms.load_checkpoint(f"file{rank}.ckpt").items()}


before = saved(True), saved(False)
del model
say((saved(True), saved(False)) == before, before[0]["w1"][0] == (4, 6), before[1]["w1"][0] == (4, 3))
"""


def test_what_is_saved_of_a_split_network_is_the_same_when_its_model_is_gone(tmp_path):
    assert said(tmp_path, GONE, 2)[0] == 2 * [["True", "True", "True"]]


GROUPS = HEAD.replace("DIFFERENT", "0") + """
create_group("pair", [0, 2])
if rank in (0, 2):
    say("pair", float(ops.AllReduce(group="pair")(Tensor([rank + 1.0])).asnumpy()[0]))

    class Summed(nn.Cell):
        def __init__(self):
            super().__init__()
            self.sum = ops.AllReduce(group="pair")

        def construct(self, x):
            return self.sum(x * 2.0) + 1.0

    say("cell", float(Summed()(Tensor([rank + 1.0])).asnumpy()[0]))
say("world", float(ops.AllReduce()(Tensor([rank + 1.0])).asnumpy()[0]))
"""


def test_the_members_of_a_group_communicate_without_the_others(tmp_path):
    found, _ = said(tmp_path, GROUPS, 3)
    assert sorted(map(tuple, found)) == sorted(2 * [("pair", "4.0"), ("cell", "9.0")] + 3 * [("world", "6.0")])


PREDICTIONS = HEAD.replace("DIFFERENT", "0") + """
ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=FULL)
net = Net()
model = ms.Model(net)
x = X[0] if FULL else part(X[0])
layouts = model.infer_predict_layout(Tensor(x))
result = model.predict(Tensor(x)).asnumpy()
weights = [np.random.RandomState(s).rand(*shape).astype(np.float32) for s, shape in ((2, (4, 6)), (3, (6, 1)))]
say(np.allclose(result, np.maximum(x @ weights[0], 0) @ weights[1], rtol=1e-5), net.w1.shape[1] == 6 // size, sorted(layouts))
"""


@pytest.mark.parametrize("full", [True, False])
def test_a_rank_predicts_from_its_rows(tmp_path, full):
    found, _ = said(tmp_path, PREDICTIONS, 2, FULL=full)
    assert len(found) == 2 and all(words[:2] == ["True", "True"] for words in found), found


FORWARD = HEAD.replace("DIFFERENT", "0") + """
ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True)
net = Net()
weights = [np.random.RandomState(s).rand(*shape).astype(np.float32) for s, shape in ((2, (4, 6)), (3, (6, 1)))]
expected = np.maximum(X[0] @ weights[0], 0) @ weights[1]
say("called", np.allclose(net(Tensor(X[0])).asnumpy(), expected, rtol=1e-5))
say("jit", np.allclose(ms.jit(lambda x: net(x) + 1.0)(Tensor(X[0])).asnumpy(), expected + 1, rtol=1e-5))
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_network_with_strategies_is_called_outside_of_training(tmp_path, ranks):
    found, _ = said(tmp_path, FORWARD, ranks)
    assert sorted(map(tuple, found)) == sorted(ranks * [("called", "True"), ("jit", "True")])


TRAININGS = HEAD.replace("DIFFERENT", "0") + """
from mindspore.parallel import set_algo_parameters


class Strategies(nn.Cell):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.differs, self.hot = ops.NotEqual().shard(((size, 1), ())), ops.OneHot().shard(((size, 1), (), ()))
        self.dropout = nn.Dropout(keep_prob=1.0 - 1e-7)
        self.dropout.dropout.shard(((size, 1),))

    def construct(self, x, y):
        kept = ops.cast(self.differs(x, 0.0), ms.float32)
        hot = self.hot(ops.cast(ops.squeeze(y, 1) * 0.0, ms.int32), 4, Tensor(1.0), Tensor(0.0))
        return ((self.net(self.dropout(x * kept + hot)) - y)**2).mean()


class Losses(ms.Callback):
    def on_train_step_end(self, run_context):
        say(run_context.original_args().net_outputs.asnumpy())


ms.set_auto_parallel_context(parallel_mode=MODE)
set_algo_parameters(fully_use_devices=True)
net = Strategies()
# Rows are batches: this rank's own, or those of all ranks, of which it takes its shard.
rows = [(part(x, number), part(y, number)) for x, y in zip(X, Y) for number in (range(size) if SHARDED else [rank])]
data = ds.GeneratorDataset(rows, ["x", "y"], shuffle=False, **(dict(num_shards=size, shard_id=rank) if SHARDED else {}))
ms.Model(net, optimizer=nn.Momentum(net.trainable_params(), 0.02, 0.9)).train(1, data, Losses(), dataset_sink_mode=False)
"""


@pytest.mark.parametrize("mode, sharded", [("semi_auto_parallel", False), ("semi_auto_parallel", True), ("auto_parallel", False)])
def test_strategies_of_numbers_and_rows_that_are_batches_train_as_one_device(tmp_path, mode, sharded):
    alone, _ = said(tmp_path, TRAININGS, 1, MODE="stand_alone", SHARDED=False)
    spread, _ = said(tmp_path, TRAININGS, 2, MODE=mode, SHARDED=sharded)
    assert len(alone) == 4 and len(spread) == 8
    for (loss,) in alone:
        assert len([other for (other,) in spread if float(other) == pytest.approx(float(loss), rel=1e-4)]) == 2, (alone, spread)
