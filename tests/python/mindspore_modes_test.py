"""What parallel modes do to training: gradients, statistics, initial values, overflows, on ranks that are processes."""
import json
import math
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

HEADER = r"""
import sys

import numpy as np
import mindspore as ms
from mindspore import Parameter, Tensor, context, nn, ops
from mindspore.communication import get_group_size, get_rank, init

init()
rank, ranks = get_rank(), get_group_size()
rng = np.random.RandomState(1)
x = rng.rand(8, 4).astype(np.float32)


def show(*arrays):
    sys.stdout.write(f"rank {rank} has {' '.join(str(float(v)) for array in arrays for v in np.ravel(array))}\n")
"""


def on_ranks(tmp_path, script, ranks=2, **environment):
    """What each rank shows, and what was said on standard error."""
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is absent")
    (tmp_path / "script.py").write_text(HEADER + script)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))}
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), sys.executable, "script.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=env | environment)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = dict(re.findall(r"rank (\d+) has (.*)", done.stdout))
    assert len(shown) == ranks, done.stdout
    return [np.array([float(v) for v in shown[str(rank)].split()]) for rank in range(ranks)], done.stderr


SPLIT = """
context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True, gradients_mean=True)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.split, self.whole = Parameter(Tensor(np.ones((4, 2), np.float32))), Parameter(Tensor(np.ones((2, 1), np.float32)))
        self.first, self.second = ops.MatMul().shard(((1, 1), (1, ranks))), ops.MatMul().shard(((ranks, 1), (1, 1)))

    def construct(self, x):
        return self.second(self.first(x, self.split), self.whole)


net = Net()
data = ms.dataset.NumpySlicesDataset({"x": x, "y": np.zeros((8, 1), np.float32)}, shuffle=False).batch(8)
model = ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.01), metrics={"loss"})
BEFORE
model.train(1, data, dataset_sink_mode=False)
del model  # what a parameter is as a whole outlives it
show(net.split.whole_value().asnumpy(), net.whole.whole_value().asnumpy())
"""


@pytest.mark.parametrize("literal, before", [(False, ""), (True, ""), (True, "model.predict(Tensor(x))"), (True, "model.eval(data)")])
def test_gradients_mean_divides_by_a_parameters_group_only_where_asked(tmp_path, literal, before):
    shown, said = on_ranks(tmp_path, SPLIT.replace("BEFORE", before), TESSERA_LITERAL_GRADIENTS_MEAN=str(int(literal)))
    x = np.random.RandomState(1).rand(8, 4)
    hidden = x @ np.ones((4, 2))
    error = 2 * hidden @ np.ones((2, 1)) / 8
    split, whole = x.T @ (error @ np.ones((1, 2))), hidden.T @ error
    # Both ranks hold the second parameter, each a column of the first.
    expected = np.concatenate([1 - 0.01 * split.ravel(), 1 - 0.01 * whole.ravel() / (2 if literal else 1)])
    for own in shown:
        np.testing.assert_allclose(own, expected, rtol=1e-5)
    assert said.count("gradients_mean=True in semi_auto_parallel") == 1


MEAN = """
context.set_auto_parallel_context(parallel_mode=MODE, gradients_mean=MEAN)
net = nn.Dense(4, 1, weight_init="ones", has_bias=False)
y = np.zeros((8, 1), np.float32)
data = ms.dataset.NumpySlicesDataset({"x": x, "y": y}, shuffle=False, num_shards=ranks, shard_id=rank).batch(8 // ranks)
if BY_CELL:
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.01))
    ms.Model(step).train(1, data, dataset_sink_mode=False)
else:
    ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.01)).train(1, data, dataset_sink_mode=False)
show(net.weight.asnumpy())
"""


@pytest.mark.parametrize("by_cell", [False, True])
@pytest.mark.parametrize("mode, mean, literal, factor", [("data_parallel", False, 0, 2), ("data_parallel", True, 0, 1),
                                                         ("auto_parallel", True, 0, 1), ("auto_parallel", True, 1, 0.5)])
def test_gradients_are_the_mean_or_the_sum_over_ranks(tmp_path, mode, mean, literal, factor, by_cell):
    script = MEAN.replace("MEAN", str(mean)).replace("MODE", repr(mode)).replace("BY_CELL", str(by_cell))
    shown, _ = on_ranks(tmp_path, script, TESSERA_LITERAL_GRADIENTS_MEAN=str(literal))
    x = np.random.RandomState(1).rand(8, 4)
    gradient = 2 * (x @ np.ones((4, 1))).T @ x / 8 * factor
    for own in shown:
        np.testing.assert_allclose(own, (1 - 0.01 * gradient)[0], rtol=1e-5)


AS_MADE = """
context.set_auto_parallel_context(parallel_mode=MODE, full_batch=WHOLE, gradients_mean=True)
net = nn.Dense(4, 1, weight_init="ones", has_bias=False)
model = ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.01))
context.reset_auto_parallel_context()
rows = x if WHOLE else x[4 * rank:4 * rank + 4]
data = ms.dataset.NumpySlicesDataset({"x": rows, "y": np.zeros((len(rows), 1), np.float32)}, shuffle=False).batch(len(rows))
model.train(1, data, dataset_sink_mode=False)
show(net.weight.asnumpy())
"""


@pytest.mark.parametrize("mode, whole", [("data_parallel", False), ("semi_auto_parallel", False), ("semi_auto_parallel", True)])
def test_a_model_reads_its_data_for_the_mode_in_which_it_was_made(tmp_path, mode, whole):
    shown, _ = on_ranks(tmp_path, AS_MADE.replace("MODE", repr(mode)).replace("WHOLE", str(whole)))
    x = np.random.RandomState(1).rand(8, 4)
    for own in shown:
        np.testing.assert_allclose(own, (1 - 0.01 * 2 * (x @ np.ones((4, 1))).T @ x / 8)[0], rtol=1e-5)


STATISTICS = """
context.set_auto_parallel_context(parallel_mode=MODE)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm, self.flatten = nn.BatchNorm2d(1), nn.Flatten()

    def construct(self, x):
        return self.flatten(self.norm(x))


net = Net()
images = x.reshape(8, 1, 2, 2)
data = ms.dataset.NumpySlicesDataset({"x": images, "y": np.zeros((8, 4), np.float32)}, shuffle=False, num_shards=ranks, shard_id=rank).batch(4)
ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.0)).train(1, data, dataset_sink_mode=False)
show(net.norm.moving_mean.asnumpy())
"""


@pytest.mark.parametrize("mode", ["data_parallel", "auto_parallel"])
def test_batch_statistics_are_the_ranks_own_in_data_parallel_and_all_rows_else(tmp_path, mode):
    shown, _ = on_ranks(tmp_path, STATISTICS.replace("MODE", repr(mode)))
    x = np.random.RandomState(1).rand(8, 4)
    for rank, own in enumerate(shown):
        rows = x[rank::2] if mode == "data_parallel" else x
        np.testing.assert_allclose(np.unique(own), 0.1 * rows.mean(), rtol=1e-5)
        assert own.shape == (1,)


FORGOTTEN = """
context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, full_batch=FULL)
net = nn.Dense(4, 1)
data = ms.dataset.NumpySlicesDataset({"x": x, "y": x[:, :1].copy()}, shuffle=False).batch(4)
model = ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.01))
for _ in range(2):
    model.train(1, data, dataset_sink_mode=False)
show(net.weight.asnumpy())
"""


@pytest.mark.parametrize("full", [False, True])
def test_ranks_that_train_on_the_same_rows_say_once_what_to_write(tmp_path, full):
    _, said = on_ranks(tmp_path, FORGOTTEN.replace("FULL", str(full)))
    assert said.count("each of the 2 ranks trains on the same rows") == (not full), said
    assert full or "num_shards=2 and shard_id" in said and "full_batch" in said


DIFFERENT = """
context.set_auto_parallel_context(parallel_mode=MODE, parameter_broadcast=BROADCAST)
net = nn.Dense(4, 1, weight_init=Tensor(np.full((1, 4), 1.0 + rank, np.float32)), has_bias=False)
data = ms.dataset.NumpySlicesDataset({"x": x, "y": x}, shuffle=False, num_shards=ranks, shard_id=rank).batch(4)


class Loss(nn.Cell):
    def construct(self, logits, label):
        return ops.ReduceMean()(logits) + 0 * ops.ReduceMean()(label)


optimizer = nn.SGD(net.trainable_params(), 0.0)
model = ms.Model(nn.TrainOneStepCell(nn.WithLossCell(net, Loss()), optimizer)) if BY_CELL else ms.Model(net, Loss(), optimizer)
model.train(1, data, dataset_sink_mode=False)
show(net.weight.asnumpy())
"""


@pytest.mark.parametrize("by_cell", [False, True])
@pytest.mark.parametrize("mode, broadcast, expected, count", [
    ("data_parallel", False, [1, 2], 1), ("data_parallel", True, [1, 1], 0), ("auto_parallel", False, [1, 1], 1),
    ("semi_auto_parallel", False, [1, 1], 1)])
def test_initial_values_that_differ_are_said_once(tmp_path, mode, broadcast, expected, count, by_cell):
    script = DIFFERENT.replace("MODE", repr(mode)).replace("BROADCAST", str(broadcast)).replace("BY_CELL", str(by_cell))
    shown, said = on_ranks(tmp_path, script)
    assert [set(own.tolist()) for own in shown] == [{value} for value in expected]
    text = "parameter_broadcast" if mode == "data_parallel" else "all take rank 0's"
    assert said.count(text) == count, said


UNEQUAL = """
context.set_auto_parallel_context(parallel_mode=MODE)
net = nn.Dense(4, 1, weight_init="ones", has_bias=False)
data = ms.dataset.NumpySlicesDataset({"x": x, "y": np.ones((8, 1), np.float32)}, shuffle=False).batch(2).take(2 + rank)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.01))
try:
    ms.Model(step).train(1, data, dataset_sink_mode=False)
except ValueError as error:
    print(error, file=sys.stderr, flush=True)
show(net.weight.asnumpy())
"""


@pytest.mark.parametrize("mode", ["data_parallel", "semi_auto_parallel"])
def test_a_step_on_ranks_with_other_numbers_of_batches_is_refused_on_all_of_them(tmp_path, mode):
    shown, said = on_ranks(tmp_path, UNEQUAL.replace("MODE", repr(mode)))
    assert said.count("train: rank 1 has 3 batches an epoch, rank 0 has 2; the ranks work on each batch together") == 2, said
    assert all((own == 1).all() for own in shown)


OVERFLOW = """
context.set_auto_parallel_context(parallel_mode=MODE, gradients_mean=MODE == "data_parallel")
net = nn.Dense(4, 1, weight_init="ones", has_bias=False)
step = nn.TrainOneStepWithLossScaleCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.01),
                                        nn.DynamicLossScaleUpdateCell(1024, 2, 1000))
rows = x[4 * rank:4 * rank + 4]
label = Tensor(np.zeros((4, 1), np.float32))
_, spoiled, _ = step(Tensor(rows * (np.inf if rank == 1 else 1)), label)
after = net.weight.asnumpy().copy()
_, clean, scale = step(Tensor(rows), label)
show(spoiled.asnumpy(), after, clean.asnumpy(), scale.asnumpy(), net.weight.asnumpy())
"""


@pytest.mark.parametrize("mode", ["data_parallel", "auto_parallel", "semi_auto_parallel"])
def test_an_overflow_on_one_rank_skips_the_step_on_all(tmp_path, mode):
    shown, _ = on_ranks(tmp_path, OVERFLOW.replace("MODE", repr(mode)))
    x = np.random.RandomState(1).rand(8, 4)
    updated = (1 - 0.01 * 2 * (x @ np.ones((4, 1))).T @ x / 8)[0]
    for own in shown:
        np.testing.assert_allclose(own, [1, 1, 1, 1, 1, 0, 512, *updated], rtol=1e-5)


OWN_STEP = """
from mindspore import _parallel_options
_parallel_options.search_options = lambda: {"save": f"plan_{ranks}_{FULL_BATCH}.json", "fully_use_devices": True}
context.set_auto_parallel_context(parallel_mode=MODE, full_batch=FULL_BATCH)


# With a step of the script's own: the gradients are clipped.
class Step(nn.TrainOneStepCell):
    def construct(self, x, y):
        loss = self.network(x, y)
        gradients = self.grad(self.network, self.weights)(x, y, ops.fill(loss.dtype, loss.shape, 1.0))
        self.optimizer(self.grad_reducer(tuple(ops.clip_by_value(gradient, Tensor(-0.05, ms.float32), Tensor(0.05, ms.float32))
                                               for gradient in gradients)))
        return loss


def made(shape, seed):
    return Tensor(np.random.RandomState(seed).rand(*shape).astype(np.float32) - 0.5)


net = nn.SequentialCell(nn.Dense(4, 512, weight_init=made((512, 4), 2), activation="tanh"), nn.Dense(512, 2, weight_init=made((2, 512), 3)))
step = Step(nn.WithLossCell(net, nn.MSELoss()), nn.Momentum(net.trainable_params(), 0.005, 0.9))
step.set_train()
own = slice(None) if FULL_BATCH else slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
losses = [step(Tensor(x[own]), Tensor(x[own, :2])).asnumpy() for _ in range(4)]
show(*losses, *[parameter.asnumpy().ravel()[:8] for parameter in net.get_parameters()])
"""


@pytest.mark.parametrize("full_batch", [False, True])
def test_a_step_of_ones_own_is_searched_for_and_equal_to_one_device(tmp_path, full_batch):
    script = OWN_STEP.replace("FULL_BATCH", str(full_batch))
    alone = on_ranks(tmp_path, script.replace("MODE", "'stand_alone'"), 1)[0][0]
    assert alone[0] > alone[3]
    for ranks in (2, 4):
        shown, _ = on_ranks(tmp_path, script.replace("MODE", "'auto_parallel'"), ranks)
        plan = json.loads((tmp_path / f"plan_{ranks}_{full_batch}.json").read_text())
        assert math.prod(size for _, size in plan["mesh"]) == ranks and plan["operators"]
        for rank in shown:
            np.testing.assert_allclose(rank, alone, rtol=1e-4, atol=1e-6)


LAMB = """
context.set_auto_parallel_context(parallel_mode="MODE", gradients_mean=True, enable_parallel_optimizer=SHARDS, full_batch=MODE_IS_GLOBAL,
                                  parallel_optimizer_config={"parallel_optimizer_threshold": 0})
net = nn.SequentialCell(nn.Dense(4, 8, activation="relu"), nn.Dense(8, 1))
rows = slice(None) if MODE_IS_GLOBAL else slice(rank, None, ranks)
data = ms.dataset.NumpySlicesDataset({"x": x[rows], "y": x[rows].sum(1, keepdims=True)}, shuffle=False).batch(len(x[rows]))
ms.Model(net, nn.MSELoss(), nn.Lamb(net.trainable_params(), nn.ExponentialDecayLR(0.1, 0.5, 2), weight_decay=0.01)).train(4, data, dataset_sink_mode=False)
show(*[parameter.whole_value().asnumpy() for parameter in net.get_parameters()])
"""


@pytest.mark.parametrize("mode", ["data_parallel", "semi_auto_parallel"])
def test_norms_of_split_parameters_are_those_of_one_device(tmp_path, mode):
    def trained(ranks, shards):
        script = LAMB.replace("MODE_IS_GLOBAL", str(mode != "data_parallel")).replace("MODE", mode).replace("SHARDS", str(shards))
        return on_ranks(tmp_path, script, ranks)[0]

    alone = trained(1, False)[0]
    for shards in (False, True):
        for rank in trained(2, shards):
            np.testing.assert_allclose(rank, alone, rtol=1e-4, atol=1e-6)
