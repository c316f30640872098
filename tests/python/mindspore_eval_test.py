"""The package mindspore: Model.eval with metrics of one's own, and what callbacks see of it, on one rank and on several."""
import os
import re
import shutil
import subprocess
import sys

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from mindspore.dataset import NumpySlicesDataset

pytestmark = pytest.mark.usefixtures("fresh_context")

X = np.arange(20, dtype=np.float32).reshape(10, 2)
Y = X.sum(1, keepdims=True) + 1


class Rows(nn.Metric):
    """(what was cleared, the rows seen, the largest error)."""
    times_cleared = 0

    def clear(self):
        self.times_cleared += 1
        self.rows, self.error = [], 0.0

    def update(self, *inputs):
        outputs, labels = (item.asnumpy() for item in inputs)
        self.rows.append(labels.shape[0])
        self.error = max(self.error, float(np.abs(outputs - labels).max()))

    def eval(self):
        return self.times_cleared, self.rows, self.error


def model(metrics, loss=None):
    return ms.Model(nn.Dense(2, 1, weight_init="ones", bias_init="zeros"), loss or nn.MSELoss(), metrics=metrics)


def data(batch=4):
    return NumpySlicesDataset({"x": X, "y": Y}, shuffle=False).batch(batch)


def test_a_metric_of_ones_own_sees_every_batch():
    rows = Rows()
    made = model({"rows": rows, "loss": nn.Loss(), "mse": nn.MSE()})
    assert made.eval(data()) == {"rows": (2, [4, 4, 2], 1.0), "loss": 1.0, "mse": 1.0}
    assert made.eval(data(5))["rows"] == (3, [5, 5], 1.0)


def test_metrics_have_names():
    assert model({"mae", "mse", "loss"}).eval(data()) == {"mae": 1.0, "mse": 1.0, "loss": 1.0}


def test_labels_may_be_several():
    made = ms.Model(nn.ReLU(), nn.MSELoss(), metrics={"all": nn.Accuracy("multilabel")})
    rows = NumpySlicesDataset({"x": np.eye(4, dtype=np.float32), "y": np.diag([1, 1, 0, 1]).astype(np.float32)}).batch(2)
    assert made.eval(rows) == {"all": 0.75}


def test_the_accuracy_of_one_column_is_that_of_the_reference():
    rows = NumpySlicesDataset({"x": np.ones((4, 1), np.float32), "y": np.array([[0], [1], [0], [1]], np.float32)}, shuffle=False).batch(2)
    assert ms.Model(nn.ReLU(), nn.MSELoss(), metrics={"acc": nn.Accuracy()}).eval(rows) == {"acc": 1.0}
    direct = nn.Accuracy()
    direct.update(ms.Tensor(np.ones((4, 1), np.float32)), ms.Tensor([0, 1, 0, 1]))
    assert direct.eval() == 0.5
    with pytest.raises(ValueError, match="predictions have a column per class"):
        direct.update(ms.Tensor(np.ones(4, np.float32)), ms.Tensor([0, 1, 0, 1]))


def test_what_is_derived_from_a_metric_counts():
    class Half(nn.Loss):
        def eval(self):
            return super().eval() / 2

    assert model({"half": Half(), "loss": nn.Loss()}).eval(data()) == {"half": 0.5, "loss": 1.0}


def test_a_metric_picks_its_inputs():
    class Only(Rows):
        @nn.rearrange_inputs
        def update(self, *inputs):
            self.rows.append([item.shape for item in inputs])

    assert model({"only": Only().set_indexes([1])}).eval(data(5))["only"][1] == [[(5, 1)], [(5, 1)]]
    swapped = nn.Accuracy().set_indexes([1, 0])
    swapped.update(Tensor([0, 1]), Tensor([[1.0, 0.0], [1.0, 0.0]]))
    assert swapped.eval() == 0.5


class Told(ms.Callback):
    def __init__(self):
        self.told = []

    def begin(self, run_context):
        self.told.append("begin")

    def on_eval_epoch_begin(self, run_context):
        self.told.append("eval epoch")

    def on_train_epoch_begin(self, run_context):
        self.told.append("train epoch")

    def step_begin(self, run_context):
        self.told.append(("from", run_context.original_args().cur_step_num))

    def step_end(self, run_context):
        params = run_context.original_args()
        outputs = params.net_outputs
        self.told.append(("to", params.cur_step_num, len(outputs) if isinstance(outputs, tuple) else "loss"))

    def end(self, run_context):
        self.told.append(("end", run_context.original_args().get("metrics")))


def test_callbacks_stand_around_the_steps_of_an_evaluation():
    told = Told()
    model({"loss"}).eval(data(5), told)
    assert told.told == ["begin", "eval epoch", ("from", 1), ("to", 1, 3), ("from", 2), ("to", 2, 3), ("end", {"loss": 1.0})]


def test_callbacks_tell_training_from_evaluation():
    told, net = Told(), nn.Dense(2, 1)
    ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 1e-4)).train(1, data(5), told, dataset_sink_mode=False)
    assert told.told[:2] == ["begin", "train epoch"] and told.told[3] == ("to", 1, "loss")


def test_a_callback_ends_an_evaluation():
    class Stop(ms.Callback):
        def step_end(self, run_context):
            run_context.request_stop()

    assert model({"rows": Rows()}).eval(data(), Stop())["rows"][1] == [4]


def test_an_error_of_a_metric_reaches_the_caller():
    class Wrong(Rows):
        def update(self, *inputs):
            raise KeyError("on purpose")

    with pytest.raises(KeyError, match="on purpose"):
        model({"wrong": Wrong()}).eval(data())


SCRIPT = """
import sys

import numpy as np
import mindspore as ms
from mindspore import nn
from mindspore.communication import get_group_size, get_rank, init

init()
ms.set_auto_parallel_context(parallel_mode="MODE", gradients_mean=True)


class Sum(nn.Metric):
    def clear(self):
        self.sums, self.rows = [], []

    def update(self, outputs, labels):
        self.rows.append(labels.shape[0])
        self.sums.append(float(outputs.asnumpy().sum()))

    def eval(self):
        return self.rows, self.sums


x = np.arange(20, dtype=np.float32).reshape(10, 2)
rows, batch = (slice(get_rank(), None, get_group_size()), 2) if SHARDED else (slice(None), 4)
data = ms.dataset.NumpySlicesDataset({"x": x[rows], "y": x[rows]}, shuffle=False).batch(batch)
metrics = ms.Model(nn.Dense(2, 1, weight_init="ones", bias_init="zeros"), None, metrics={"sum": Sum()}).eval(data)
sys.stdout.write(f"sums {metrics['sum']}\\n")
"""


@pytest.mark.parametrize("mode, ranks, sharded", [
    ("data_parallel", 2, False), ("data_parallel", 3, False), ("semi_auto_parallel", 2, False), ("auto_parallel", 2, False),
    ("hybrid_parallel", 2, True)])
def test_a_metric_sees_the_rows_of_all_ranks(tmp_path, mode, ranks, sharded):
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is absent")
    (tmp_path / "script.py").write_text(SCRIPT.replace("MODE", mode).replace("SHARDED", str(sharded)))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))}
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), sys.executable, "script.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall("sums (.*)", done.stdout) == ranks * ["([4, 4, 2], [28.0, 92.0, 70.0])"]


class Scored(nn.Cell):
    """(the loss, the output, the label) of a batch, or what metrics take."""

    def __init__(self, network, is_plain=False):
        super().__init__()
        self.network, self.is_plain = network, is_plain

    def construct(self, x, y):
        output = self.network(x)
        return (output, y) if self.is_plain else (((output - y)**2).mean(), output, y)


def test_an_evaluation_network_of_ones_own_gives_what_metrics_take():
    network, rows = nn.Dense(2, 1, weight_init="ones", bias_init="zeros"), Rows()
    made = ms.Model(network, nn.MSELoss(), eval_network=Scored(network), eval_indexes=[0, 1, 2], metrics={"rows": rows, "loss": nn.Loss(), "mse": nn.MSE()})
    assert made.eval(data()) == {"rows": (2, [4, 4, 2], 1.0), "loss": 1.0, "mse": 1.0} and made.eval_network.network is network
    plain = ms.Model(network, eval_network=Scored(network, is_plain=True), metrics={"mae", "mse"})
    assert plain.eval(data()) == {"mae": 1.0, "mse": 1.0}


def test_fit_evaluates_by_the_evaluation_network():
    network = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")
    network.set_train()
    seen = []

    class Note(ms.Callback):
        def on_train_epoch_end(self, run_context):
            seen.append(dict(run_context.original_args().get("eval_results") or {}))

    made = ms.Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 1e-4), eval_network=Scored(network), eval_indexes=[0, 1, 2], metrics={"mse"})
    made.fit(2, data(), data(), callbacks=[Note()])
    assert len(seen) == 2 and seen[0].keys() == {"mse", "eval_loss"} and seen[1]["mse"] < seen[0]["mse"] and network.training
    assert made.eval(data())["mse"] == pytest.approx(seen[1]["mse"])


def test_fit_evaluates_where_the_network_is_a_training_step_itself():
    network = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")
    step = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), nn.SGD(network.trainable_params(), 1e-4))
    seen, begun = [], []

    class Note(ms.Callback):
        def on_eval_begin(self, run_context):
            begun.append(network.training)

        def on_train_epoch_end(self, run_context):
            seen.append(dict(run_context.original_args().get("eval_results") or {}))

    made = ms.Model(step, eval_network=Scored(network), eval_indexes=[0, 1, 2], metrics={"mse"})
    made.fit(3, data(), data(), valid_frequency=[1, 3], callbacks=[Note()])
    assert begun == [False, False] and network.training
    assert seen[0].keys() == {"mse", "eval_loss"} and seen[1] == {} and seen[2]["mse"] < seen[0]["mse"]
    assert made.eval(data())["mse"] == pytest.approx(seen[2]["mse"])


@pytest.mark.parametrize("call, error, message", [
    (lambda: ms.Model(nn.ReLU(), eval_network=abs), TypeError, "'eval_network' must be Cell"),
    (lambda: ms.Model(nn.ReLU(), eval_network=nn.ReLU(), eval_indexes=[0, 1]), ValueError, "length of it must be three"),
    (lambda: ms.Model(nn.ReLU(), eval_indexes=[0, 1, 2]), ValueError, "'eval_network'"),
    (lambda: ms.Model(nn.ReLU(), eval_network=Scored(nn.ReLU(), True), eval_indexes=[0, 1, 2], metrics={"mse"}).eval(data()), ValueError, "must be >= 3")])
def test_what_is_no_evaluation_network_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("sinks", [False, True])
def test_training_begins_at_an_initial_epoch(tmp_path, sinks):
    network, seen = nn.Dense(2, 1, weight_init="ones", bias_init="zeros"), []

    class Note(ms.Callback):
        def on_train_begin(self, run_context):
            seen.append(run_context.original_args().epoch_num)

        def on_train_step_end(self, run_context):
            params = run_context.original_args()
            seen.append((params.cur_epoch_num, params.cur_step_num))

    made = ms.Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 1e-4))
    saves = ms.ModelCheckpoint("c", str(tmp_path), ms.CheckpointConfig(save_checkpoint_steps=3))
    made.train(5, data(), [Note(), saves], dataset_sink_mode=sinks, initial_epoch=3)
    steps = [(4, 3), (5, 6)] if sinks else [(4, 1), (4, 2), (4, 3), (5, 4), (5, 5), (5, 6)]
    assert seen == [2, *steps] and sorted(path.name for path in tmp_path.glob("*.ckpt")) == ["c-4_3.ckpt", "c-5_3.ckpt"]
    for wrong in (5, 6):
        with pytest.raises(ValueError, match="'epoch' must bigger than parameter 'initial_epoch'"):
            made.train(5, data(), initial_epoch=wrong)
