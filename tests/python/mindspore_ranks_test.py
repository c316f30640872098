"""Scripts on several ranks, as processes: by mpirun, by `tessera run`, and rank by rank with a rank table."""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ["TESSERA_BUILD"]) / "bin"
EXAMPLES = ROOT / "examples" / "python"
TUTORIALS = ROOT.parent / "shared" / "tutorials"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
GATHERED = "[[0.]\n [1.]\n [2.]\n [3.]]\n"


def printed(out):
    """The rows that four ranks printed; their line ends mix."""
    return sorted(re.findall(r"\[?\[\d\.\]\]?", out))


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


def blocks(number):
    """The Python code blocks of a tutorial."""
    files = sorted(TUTORIALS.glob(f"{number}*.txt"))
    if not files:
        pytest.skip(f"the tutorial {number} is absent")
    return re.findall(r"```python\n(.*?)```", files[0].read_text(), re.S)


def test_the_example_gathers_on_every_rank(tmp_path):
    out, _ = run([*MPIRUN, "-n", 4, sys.executable, EXAMPLES / "all_gather.py"], tmp_path)
    assert printed(out) == printed(4 * GATHERED)
    out, _ = run([BIN / "tessera", "run", "-n", 4, sys.executable, EXAMPLES / "all_gather.py"], tmp_path)
    assert printed(out) == printed(4 * GATHERED)


def test_the_tutorials_all_gather_runs_as_it_is(tmp_path):
    script = tmp_path / "nccl_allgather.py"
    script.write_text(next(block for block in blocks("001") if "nccl_allgather.py" in block))
    out, err = run([*MPIRUN, "-n", 4, sys.executable, script], tmp_path)
    assert printed(out) == printed(4 * GATHERED)
    assert err.count('device_target "GPU" is not available') == 1


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
    done = subprocess.run([*MPIRUN, "-n", "2", sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "on purpose" in done.stderr


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """128 training records: the tutorial's data set reads training and test files."""
    path = tmp_path_factory.mktemp("cifar")
    run([BIN / "resnet50_cifar10", "--make_data", path, "--train_records", 112, "--test_records", 16], path)
    return path


def losses(out, ranks, epochs, steps):
    found = re.findall(r"^epoch: (\d+) step: (\d+), loss is (\d\.\d+)$", out, re.M)
    assert sorted((int(e), int(s)) for e, s, _ in found) == sorted(ranks * [(e, steps) for e in range(1, epochs + 1)]), out
    return [float(loss) for _, _, loss in found]


def resnet_script(mode, epochs):
    """The first tutorial's blocks one after the other; images stay 32 pixels wide."""
    code = blocks("000")
    data = next(block for block in code if "def create_dataset" in block)
    loss = next(block for block in code if "class SoftmaxCrossEntropyExpand" in block)
    train = next(block for block in code if "def test_train_cifar" in block)
    train = train.replace("AUTO_PARALLEL", mode).replace("epoch_size=10", f"epoch_size={epochs}")
    train = train.replace("# set device_id", "\nfrom mindspore.communication import init\ninit()\ndata_path = os.getenv('DATA_PATH')")
    return "\n".join(["import os", data.replace("224", "32"), loss, train])


@pytest.mark.parametrize("mode, ranks", [("AUTO_PARALLEL", 1), ("AUTO_PARALLEL", 2), ("DATA_PARALLEL", 2)])
def test_the_first_tutorials_resnet50_trains(tmp_path, images, mode, ranks):
    epochs = 10
    (tmp_path / "resnet50_distributed_training.py").write_text(resnet_script(mode, epochs))
    shutil.copy(EXAMPLES / "resnet50" / "resnet.py", tmp_path)
    launcher = [*MPIRUN, "-n", ranks] if ranks > 1 else []
    out, err = run([*launcher, sys.executable, "-m", "pytest", "-s", "-v", "resnet50_distributed_training.py"], tmp_path, timeout=600,
                   DATA_PATH=images, DEVICE_ID=0)
    found = losses(re.sub(r"^.*::test_train_cifar ", "", out, flags=re.M), ranks, epochs, 4 // ranks)
    assert min(found[-2 * ranks:]) < found[0]
    if mode == "AUTO_PARALLEL":
        assert "no search for strategies yet" in err or "no search for strategies yet" in out
