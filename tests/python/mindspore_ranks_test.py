"""Scripts on several ranks, as processes: by mpirun, and rank by rank with a rank table."""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "python"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
TESSERA_RUN = [str(Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera"), "run"]
GATHERED = "[[0.]\n [1.]\n [2.]\n [3.]]\n"


def run(command, cwd, timeout=300, **environment):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout, cwd=cwd,
                          env=env | {k: str(v) for k, v in environment.items()})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="session", autouse=True)
def mpirun():
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is absent")


def new_table(size):
    """With a trailing comma and a comment, which are no JSON."""
    devices = [{"device_id": str(i), "device_ip": f"192.1.27.{i}", "rank_id": str(i)} for i in range(size)]
    table = {"version": "1.0", "server_count": "1", "server_list": [{"server_id": "10.0.0.1", "device": devices}], "status": "completed"}
    return json.dumps(table).replace('"completed"}', '"completed",} // a comment')


def old_table(size):
    instances = [{"devices": [{"device_id": str(i), "device_ip": f"192.1.27.{i}"}], "rank_id": str(i), "server_id": "10.0.0.1"} for i in range(size)]
    return json.dumps({"board_id": "0x0000", "group_list": [{"device_num": str(size), "instance_list": instances}]}).replace("]}]}", ",]}]}")


@pytest.mark.parametrize("table, variables", [(new_table, "RANK_ID=$i DEVICE_ID=$i"), (old_table, "DEVICE_ID=$i")])
def test_ranks_of_a_rank_table_meet(tmp_path, table, variables):
    (tmp_path / "table.json").write_text(table(4))
    loop = f"""
for i in 0 1 2 3; do
  mkdir device$i; cd device$i
  {variables} {sys.executable} {EXAMPLES / "all_gather.py"} > out 2> err & cd ..
done
wait
"""
    run(["bash", "-c", loop], tmp_path, RANK_TABLE_FILE="table.json", RANK_SIZE=4)
    for i in range(4):
        assert (tmp_path / f"device{i}" / "out").read_text() == GATHERED, (tmp_path / f"device{i}" / "err").read_text()
    assert "trailing commas and // comments" in (tmp_path / "device0" / "err").read_text()


def test_a_rank_without_its_variables_is_told_which(tmp_path):
    code = "import mindspore.communication as c\ntry: c.init()\nexcept RuntimeError as e: print(e)"
    table = tmp_path / "table.json"
    table.write_text(new_table(2))
    assert "RANK_ID has not been exported" in run([sys.executable, "-c", code], tmp_path, RANK_TABLE_FILE=table)[0]
    assert "please export MINDSPORE_HCCL_CONFIG_PATH or RANK_TABLE_FILE" in run([sys.executable, "-c", code], tmp_path, RANK_ID=0, RANK_SIZE=2)[0]


SPLIT = """
import numpy as np
from mindspore import Model, Parameter, Tensor, context, dataset, nn, ops
from mindspore.communication import get_group_size, get_rank, init
from mindspore.train.callback import LossMonitor

init()
context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=FULL_BATCH)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(np.random.RandomState(0).rand(8, 6).astype(np.float32)))
        self.fc = ops.MatMul().shard(((1, 1), (1, get_group_size())))
        self.reduce = ops.ReduceSum()

    def construct(self, x):
        return self.reduce(self.fc(x, self.weight), -1)


rng = np.random.RandomState(1)
x = rng.rand(16, 8).astype(np.float32)
batch, shard = 8, {}
if not FULL_BATCH:  # the ranks' rows together are those of the whole batch
    batch, shard = 8 // get_group_size(), dict(num_shards=get_group_size(), shard_id=get_rank())
data = dataset.NumpySlicesDataset({"x": x, "y": x.sum(1)}, shuffle=False, **shard).batch(batch)
net = Net()
model = Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.001, 0.9))
model.train(2, data, [LossMonitor()], dataset_sink_mode=False)
"""


@pytest.mark.parametrize("full_batch", [True, False])
def test_a_split_network_has_the_losses_of_one_device(tmp_path, full_batch):
    (tmp_path / "split.py").write_text(SPLIT.replace("FULL_BATCH", str(full_batch)))
    pattern = r"epoch: (\d+) step: (\d+), loss is (\S+)"
    alone = re.findall(pattern, run([sys.executable, "split.py"], tmp_path)[0])
    assert len(alone) == 4
    for ranks in (2, 3) if full_batch else (2, 4):
        found = re.findall(pattern, run([*MPIRUN, "-n", ranks, sys.executable, "split.py"], tmp_path)[0])
        for epoch, step, loss in alone:
            same = [float(value) for e, s, value in found if (e, s) == (epoch, step)]
            assert same == pytest.approx(ranks * [float(loss)], rel=1e-5)


UNFIT = """
import sys

import numpy as np
from mindspore import Model, Parameter, Tensor, context, dataset, nn, ops
from mindspore.communication import get_rank, init

init()


class Twice(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(np.ones((8, 8), np.float32)))
        self.first, self.second = ops.MatMul().shard(((2, 1), (1, 1))), ops.MatMul().shard(((1, 2), (2, 1)))

    def construct(self, x):
        return self.second(self.first(x, self.weight), self.weight)


class Between(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(np.ones((8, 8), np.float32)))
        self.mul, self.relu = ops.Mul().shard(((2, 1), (2, 1))), ops.ReLU().shard(((1, 2),))

    def construct(self, x):
        return self.relu(ops.sigmoid(self.mul(x, self.weight)))


def refused(net, **settings):
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", **settings)
    data = dataset.NumpySlicesDataset({"x": np.ones((8, 8), np.float32), "y": np.ones((8, 8), np.float32)}).batch(8)
    try:
        Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1)).train(1, data)
    except RuntimeError as error:
        sys.stdout.write(f"refused {error}\\n")


refused(Twice(), full_batch=True)
refused(Between(), full_batch=True, search_mode="sharding_propagation")
refused(nn.Dense(8, 8), dataset_strategy=((3, 1), (1, 1)))
refused(nn.Dense(8, 8), dataset_strategy=((0, 1), (1, 1)))
refused(nn.Dense(8, 8), dataset_strategy=((1 << 32, 1), (1, 1)))
refused(nn.Dense(8, 8), dataset_strategy=((2, 1),))
refused(nn.Dense(8, 8), dataset_strategy=((2,), (2,)))
"""


def test_strategies_that_do_not_fit_are_runtime_errors(tmp_path):
    (tmp_path / "unfit.py").write_text(UNFIT)
    out = run([*MPIRUN, "-n", 2, sys.executable, "unfit.py"], tmp_path)[0]
    for words in ('parameter "weight" is split in several ways', "cannot follow both", "it splits dim 0 of tensor 0 in 3;", "it splits dim 0 of tensor 0 in 0;",
                  "it splits dim 0 of tensor 0 in 4294967296;", "has 1 tuples, there are 2 inputs",
                  "has 1 counts for input"):
        assert len(re.findall(f"refused .*{words}", out)) == 2, out


def test_a_failing_rank_ends_the_job(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("""
from mindspore import Tensor, ops
from mindspore.communication import get_rank, init
init()
if get_rank() == 1:
    raise KeyError("on purpose")
ops.AllReduce()(Tensor([1.0]))
""")
    done = subprocess.run([*MPIRUN, "-n", "2", sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0 and "on purpose" in done.stderr


def test_the_launcher_says_what_scripts_read_of_their_place(tmp_path):
    script = tmp_path / "place.py"
    script.write_text("""
import os
place = [os.environ[name] for name in ("RANK_ID", "DEVICE_ID", "RANK_SIZE")]
from mindspore.communication import get_rank, init
init()
assert place == [str(get_rank()), str(get_rank()), "3"], place
""")
    done = subprocess.run([*TESSERA_RUN, "-n", "3", sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_warning_is_said_by_rank_0_alone(tmp_path):
    script = tmp_path / "warns.py"
    script.write_text("""
import mindspore as ms
from mindspore.communication import init
ms.set_context(device_target="Ascend")  # a warning before init()
init()
ms.context.warn_once("and one after it")
""")
    done = subprocess.run([*TESSERA_RUN, "-n", "3", sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for words in ('device_target "Ascend" is not available', "and one after it"):
        assert [line.split()[0] for line in done.stderr.splitlines() if words in line] == ["[0]"], done.stderr


STATES_OF_RANK_0 = """
import sys
import numpy as np
from mindspore import Model, Parameter, Tensor, context, dataset, nn, ops
from mindspore.communication import get_rank, init

init()
rank = get_rank()


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(np.ones((3, 4), np.float32)), name="weight")
        self.matmul = ops.MatMul(transpose_b=True).shard(((1, 1), (1, 1)))

    def construct(self, x):
        return self.matmul(x, self.weight)


context.set_auto_parallel_context(SETTINGS)
net = Net()
optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
if rank == 0:  # it alone goes on from a checkpoint
    for state in optimizer.get_parameters():
        if state.name == "moments.weight":
            state.set_data(Tensor(np.full(state.shape, 5, np.float32)))
        if state.name == "learning_rate":
            state.set_data(Tensor(np.float32(0.25)))
x = np.arange(32, dtype=np.float32).reshape(8, 4) / 32
data = dataset.NumpySlicesDataset({"x": x, "y": x[:, :3].copy()}, shuffle=False).batch(4)
Model(net, nn.MSELoss(), optimizer).train(1, data)
sys.stdout.write(f"{net.weight.asnumpy().tobytes().hex()} {float(optimizer.learning_rate.asnumpy())}\\n")
"""


@pytest.mark.parametrize("settings", ['parallel_mode="data_parallel", parameter_broadcast=True', 'parallel_mode="semi_auto_parallel", full_batch=True',
                                      'parallel_mode="auto_parallel", full_batch=True'])
def test_ranks_agree_on_states_that_one_of_them_has_loaded(tmp_path, settings):
    (tmp_path / "states.py").write_text(STATES_OF_RANK_0.replace("SETTINGS", settings))
    lines = run([*MPIRUN, "-n", 2, sys.executable, "states.py"], tmp_path)[0].split("\n")[:2]
    assert lines[0] == lines[1] and lines[0].endswith(" 0.25")
    assert np.frombuffer(bytes.fromhex(lines[0].split()[0]), np.float32).max() < 0, "rank 0's moments are not taken"


SAVED_BY_SOME = """
import numpy as np
from mindspore import Model, context, dataset, nn
from mindspore.communication import get_rank, init
from mindspore.train import CheckpointConfig, ModelCheckpoint

init()
context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
net = nn.Dense(4, 1)
data = dataset.NumpySlicesDataset({"x": np.ones((4, 4), np.float32), "y": np.ones((4, 1), np.float32)}).batch(2)
model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
callbacks = [ModelCheckpoint("dp", ".", CheckpointConfig(1))] if get_rank() == 1 else []
try:
    model.train(1, data, callbacks, dataset_sink_mode=False)
except RuntimeError as error:
    print(error)
"""


def test_a_checkpoint_of_another_rank_than_the_first_is_refused_at_once_on_all(tmp_path):
    (tmp_path / "some.py").write_text(SAVED_BY_SOME)
    said = run([*MPIRUN, "-n", 2, sys.executable, "some.py"], tmp_path)[0]
    assert said.count("they have [0, 1]: give it to all of them, or to rank 0") == 2


SYNCHRONIZED = """
import sys

import numpy as np
import mindspore as ms
from mindspore import Model, Tensor, context, dataset, nn, ops
from mindspore.communication import get_group_size, get_rank, init

init()
context.set_auto_parallel_context(parallel_mode=sys.argv[1], gradients_mean=True)
ms.set_seed(1)
net = nn.SequentialCell(nn.SyncBatchNorm(3), nn.Flatten(), nn.Dense(12, 1, weight_init="ones", bias_init="zeros"))
rng = np.random.RandomState(1)
x = rng.rand(16, 3, 2, 2).astype(np.float32) * np.arange(1, 17, dtype=np.float32)[:, None, None, None]
size, rank = get_group_size(), get_rank()
optimizer = nn.Momentum(net.trainable_params(), 0.001, 0.9)
if sys.argv[2] == "model":
    rows = dict(num_shards=size, shard_id=rank) if size > 1 else {}
    data = dataset.NumpySlicesDataset({"x": x, "y": x.sum((1, 2, 3))[:, None]}, shuffle=False, **rows).batch(8 // size)
    Model(net, nn.MSELoss(), optimizer).train(2, data, dataset_sink_mode=False)
else:
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    step.set_train()
    for _ in range(2):
        for half in range(2):
            mine = x[half::2][rank::size]
            step(Tensor(mine), Tensor(mine.sum((1, 2, 3))[:, None]))
lines = [f"{parameter.name} " + " ".join(f"{value:.5g}" for value in parameter.whole_value().asnumpy().ravel()) for parameter in net.get_parameters()]
if rank == 0:  # lines of several ranks may run into each other
    print("\\n".join(lines))
"""


@pytest.mark.parametrize("mode, how", [("data_parallel", "model"), ("semi_auto_parallel", "model"), ("data_parallel", "step")])
def test_a_synchronized_batch_norm_has_the_statistics_of_all_ranks(tmp_path, mode, how):
    (tmp_path / "train.py").write_text(SYNCHRONIZED)

    def values(output):
        return {line.split()[0]: [float(value) for value in line.split()[1:]] for line in output.splitlines() if "." in line}

    alone = values(run([sys.executable, "train.py", "stand_alone", how], tmp_path)[0])
    assert len(alone) == 6
    found = values(run([*MPIRUN, "-n", 2, sys.executable, "train.py", mode, how], tmp_path)[0])
    for name, value in alone.items():
        assert found[name] == pytest.approx(value, rel=2e-4), name


TOGETHER = """
import sys

import numpy as np
import mindspore as ms
import mindspore.dataset as ds
import tessera
from mindspore import Tensor, nn
from mindspore.communication import get_rank, init
from mindspore.train import BackupAndRestore, LambdaCallback

init()
rank = get_rank()
"""

SAVERS = TOGETHER + """
for turn in range(8):
    values = [{"name": "w", "data": Tensor(np.full((256, 256), float(10 * turn + rank), np.float32))}]
    for form in ("ckpt", "safetensors"):
        tessera.cluster.barrier()
        ms.save_checkpoint(values, "all." + form, format=form)
        tessera.cluster.barrier()
        kept = np.unique(ms.load_checkpoint("all." + form, format=form)["w"].asnumpy())
        assert len(kept) == 1 and 10 * turn <= kept[0] < 10 * turn + 4, kept
"""


def test_ranks_that_save_to_one_path_each_succeed(tmp_path):
    (tmp_path / "savers.py").write_text(SAVERS)
    run([*MPIRUN, "-n", 4, sys.executable, "savers.py"], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.ckpt", "all.ckpt.manifest", "all.safetensors", "savers.py"]


CONVERTERS = TOGETHER + """
for turn in range(4):
    value = Tensor(np.arange(256 * 256, dtype=np.float32).reshape(256, 256) + turn)
    if rank == 0:
        ms.save_checkpoint([{"name": "w", "data": value}], f"src{turn}/rank_0/net-1_1.ckpt")
    tessera.cluster.barrier()
    folder = f"dst{turn // 2}"  # that of every second turn has files already
    ms.transform_checkpoints(f"src{turn}", folder, "net", None, "strategy.json")
    for part in range(4):  # whoever comes back finds them all
        kept = ms.load_checkpoint(f"{folder}/rank_{part}/net{part}.ckpt")["w"].asnumpy()
        assert (kept == value.asnumpy()[64 * part:64 * part + 64]).all(), (turn, part)
    tessera.cluster.barrier()
"""


def test_ranks_that_convert_into_one_folder_each_succeed(tmp_path):
    layout = {"dev_matrix": [4], "tensor_map": [0, -1], "tensor_shape": [256, 256], "field": 0, "opt_weight_shard_step": 0, "opt_weight_shard_size": 0}
    item = {"stage": 0, "parallel_strategy": [[1, 1], [1, 1]]}
    (tmp_path / "strategy.json").write_text(json.dumps({"current_stage": 1, "parallel_strategy_item": {"MatMul_w": item}, "parallel_layout_item": {"w": layout}}))
    for turn in range(4):
        (tmp_path / f"src{turn}" / "rank_0").mkdir(parents=True)
    (tmp_path / "converters.py").write_text(CONVERTERS)
    run([*MPIRUN, "-n", 4, sys.executable, "converters.py"], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["converters.py", "dst0", "dst1", "src0", "src1", "src2", "src3", "strategy.json"]
    for folder in ("dst0", "dst1"):
        files = {str(path.relative_to(tmp_path / folder)) for path in (tmp_path / folder).rglob("*") if path.is_file()}
        assert files == {".conversion"} | {f"rank_{part}/net{part}.ckpt{suffix}" for part in range(4) for suffix in ("", ".manifest")}


BACKUP = TOGETHER + """
ms.set_auto_parallel_context(parallel_mode=sys.argv[1], gradients_mean=True)
ms.set_seed(1)


def train(callback, epochs):
    net = nn.Dense(64, 3, weight_init="zeros", bias_init="zeros")
    x = np.random.RandomState(1).randn(16, 64).astype(np.float32)
    data = ds.NumpySlicesDataset({"x": x, "y": x[:, :3].argmax(1).astype(np.int32)}, shuffle=False).batch(4)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = ms.Model(net, loss, nn.Momentum(net.trainable_params(), 0.1, 0.9))
    weights = []
    model.train(epochs, data, [callback, LambdaCallback(on_train_begin=lambda run: weights.append(net.weight.asnumpy().copy()))], dataset_sink_mode=False)
    return weights[0], net.weight.asnumpy()


try:
    for turn in range(4):
        begin, end = train(BackupAndRestore("backup", delete_checkpoint=False), 1)
        assert not begin.any()
        begin, _ = train(BackupAndRestore("backup"), 1)
        assert (begin == end).all()
    print("trained")
except ValueError as error:
    print(error)
"""


def test_one_rank_backs_up_and_all_begin_with_it(tmp_path):
    (tmp_path / "backup.py").write_text(BACKUP)
    assert run([*MPIRUN, "-n", 4, sys.executable, "backup.py", "data_parallel"], tmp_path)[0].count("trained") == 4
    assert not any((tmp_path / "backup").iterdir())
    output = run([*MPIRUN, "-n", 2, sys.executable, "backup.py", "hybrid_parallel"], tmp_path)[0]
    assert output.count("in hybrid_parallel each rank backs up its own values, but some share the directory backup") == 2


ROWS_OF_EACH = """
import sys

import numpy as np
import mindspore as ms
from mindspore import Tensor, context, nn, ops
from mindspore.communication import get_rank, init

init()
context.set_context(mode=context.GRAPH_MODE)
context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
net = nn.Dense(3, 2, weight_init="ones", bias_init="zeros")
with_loss = nn.WithLossCell(net, nn.MSELoss())
optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
if sys.argv[1] == "cell":
    step = nn.TrainOneStepCell(with_loss, optimizer)
else:
    reducer = nn.DistributedGradReducer(optimizer.parameters, mean=True)
    forward = ms.value_and_grad(with_loss, None, optimizer.parameters)

    @ms.jit
    def step(x, y):
        loss, gradients = forward(x, y)
        return ops.depend(loss, optimizer(reducer(gradients)))
for rows in ((4, 4), (4, 3), (3, 4), (2, 1)):
    if rows == (3, 4) and get_rank() == 0:
        net.note = "of this rank's cells, which it compiles anew"
    x = np.arange(3 * rows[get_rank()], dtype=np.float32).reshape(-1, 3) / 9 + get_rank()
    step(Tensor(x), Tensor(x[:, :2]))
print(" ".join(repr(float(value)) for value in net.weight.asnumpy().ravel()), flush=True)
"""


@pytest.mark.parametrize("how", ["cell", "function"])
def test_a_loop_by_hand_may_have_other_rows_on_each_rank(tmp_path, how):
    (tmp_path / "rows.py").write_text(ROWS_OF_EACH)
    weight, velocity = np.ones((2, 3)), np.zeros((2, 3))
    bias, bias_velocity = np.zeros(2), np.zeros(2)
    for rows in ((4, 4), (4, 3), (3, 4), (2, 1)):
        of_weight, of_bias = np.zeros((2, 3)), np.zeros(2)
        for rank, count in enumerate(rows):
            x = np.arange(3 * count, dtype=np.float32).reshape(-1, 3) / 9 + rank
            error = 2 * (x @ weight.T + bias - x[:, :2]) / (2 * count)
            of_weight += error.T @ x / 2
            of_bias += error.sum(0) / 2
        velocity, bias_velocity = 0.9 * velocity + of_weight, 0.9 * bias_velocity + of_bias
        weight, bias = weight - 0.1 * velocity, bias - 0.1 * bias_velocity
    lines = run([*TESSERA_RUN, "-n", 2, sys.executable, "rows.py", how], tmp_path, TESSERA_TIMEOUT_MS=120000)[0].splitlines()
    first, second = (line.partition("] ")[2] for line in sorted(lines))
    assert first == second
    np.testing.assert_allclose([float(value) for value in first.split()], weight.ravel(), rtol=1e-4)
