"""Model.train_network, which callbacks see, too: the training as a cell."""
import shutil
import subprocess
import sys

import numpy as np
import pytest
import mindspore as ms
from mindspore import Tensor, nn, train
from regression import ByHand, assert_equal, batches, regression, rows

pytestmark = pytest.mark.usefixtures("fresh_context")
STATES = ["weight", "bias", "global_step", "learning_rate", "momentum", "moments.weight", "moments.bias"]


def trainer(**options):
    net, _, optimizer = regression()
    return net, ms.Model(net, nn.MSELoss(), optimizer, **options)


def by_hand(first=0, last=6, after=None):
    return (after or ByHand()).train(batches()[first:last], 1)


class SavesStep(train.Callback):
    """Saves the training after one of its steps."""

    def __init__(self, path, step):
        self.path, self.step = path, step

    def step_end(self, run_context):
        params = run_context.original_args()
        if params.cur_step_num == self.step:
            ms.save_checkpoint(params.train_network, self.path)


class LoadsStep(train.Callback):
    def __init__(self, path):
        self.path, self.left = path, None

    def begin(self, run_context):
        self.left = ms.load_param_into_net(run_context.original_args().train_network, ms.load_checkpoint(self.path))


@pytest.fixture
def saved(tmp_path):
    """The training after 4 of its 6 steps."""
    path = str(tmp_path / "step.ckpt")
    trainer()[1].train(1, rows(), SavesStep(path, 4), dataset_sink_mode=False)
    return path


def test_a_callback_saves_the_optimizers_states_too(saved):
    found = ms.load_checkpoint(saved)
    assert list(found) == STATES
    at_4 = by_hand(last=4)
    assert found["global_step"].asnumpy().tolist() == [4]
    np.testing.assert_allclose(found["weight"].asnumpy(), at_4.w, rtol=2e-5)
    np.testing.assert_allclose(found["moments.weight"].asnumpy(), at_4.moments[0], rtol=1e-4)


def last_two():
    all_rows = batches()[4:]
    return ms.dataset.NumpySlicesDataset({"x": np.concatenate([x for x, _ in all_rows]), "y": np.concatenate([y for _, y in all_rows])},
                                         shuffle=False).batch(8)


@pytest.mark.parametrize("loads", ["before", "built", "in_callback"])
def test_a_training_goes_on_from_such_a_file(saved, loads):
    net, model = trainer()
    loader = LoadsStep(saved)
    if loads == "built":
        model.build(last_two())
    if loads != "in_callback":
        loader.left = ms.load_param_into_net(model.train_network, ms.load_checkpoint(saved))
    assert loader.left in (None, ([], []))
    model.train(1, last_two(), loader if loads == "in_callback" else None, dataset_sink_mode=False)
    assert loader.left == ([], [])
    assert_equal(net, by_hand())


def test_what_is_trained_is_a_training_step():
    net, model = trainer()
    step = model.train_network
    assert isinstance(step, nn.TrainOneStepCell) and step is model.train_network
    assert isinstance(step.network, nn.WithLossCell) and step.network.backbone_network is net
    assert step.optimizer is model._optimizer and [w.name for w in step.weights] == ["weight", "bias"]
    assert [p.name for p in step.get_parameters()] == list(step.parameters_dict()) == STATES
    assert [p.name for p in step.trainable_params()] == ["weight", "bias"]
    assert [p.name for _, p in step.parameters_and_names()] == STATES
    step.set_train(False)
    assert not net.training
    step.set_train()
    assert net.training


def test_a_network_that_gives_its_loss_is_the_steps():
    _, with_loss, optimizer = regression()
    step = ms.Model(with_loss, optimizer=optimizer).train_network
    assert step.network is with_loss


def test_without_an_optimizer_it_is_the_network_with_its_loss():
    net = regression()[0]
    x, y = batches(1)[0]
    loss = ms.Model(net, nn.MSELoss()).train_network(Tensor(x), Tensor(y))
    assert loss.asnumpy() == pytest.approx(np.mean((x.sum(1, keepdims=True) - y) ** 2), rel=1e-5)
    assert ms.Model(net).train_network is net


def test_a_call_is_one_step():
    net, model = trainer()
    trained, losses = ByHand(), []
    for x, y in batches():
        loss = model.train_network(Tensor(x), Tensor(y))
        assert loss.shape == () and loss.dtype == ms.float32
        losses.append(float(loss.asnumpy()))
        assert losses[-1] == pytest.approx(np.mean((x @ trained.w.T + trained.b - y) ** 2), rel=1e-4)
        trained.train([(x, y)], 1)
        assert_equal(net, trained)
    assert model.train_network.optimizer.global_step.asnumpy().tolist() == [6]


def test_calls_and_trainings_take_turns():
    net, model = trainer()
    step = model.train_network
    for x, y in batches()[:4]:
        step(Tensor(x), Tensor(y))
    model.train(1, last_two(), dataset_sink_mode=False)
    assert_equal(net, by_hand())
    model.train(1, last_two(), dataset_sink_mode=False)
    x, y = batches()[0]
    step(Tensor(x), Tensor(y))
    assert_equal(net, by_hand(0, 1, by_hand(4, 6, by_hand())))


def test_a_callback_steps_within_a_training():
    class StepsOn(train.Callback):
        def step_end(self, run_context):
            params = run_context.original_args()
            if params.cur_step_num == 3:
                for x, y in batches()[3:]:
                    params.train_network(Tensor(x), Tensor(y))
                run_context.request_stop()

    net, model = trainer()
    model.train(1, rows(), StepsOn(), dataset_sink_mode=False)
    assert_equal(net, by_hand())


def test_a_step_outlives_the_name_of_its_model():
    net, model = trainer()
    step = model.train_network
    del model
    for x, y in batches():
        step(Tensor(x), Tensor(y))
    assert_equal(net, by_hand())


def test_a_step_is_no_part_of_a_network():
    class Holds(nn.Cell):
        def __init__(self, step):
            super().__init__()
            self.step = step

        def construct(self, x, y):
            return self.step(x, y)

    x, y = batches(1)[0]
    with pytest.raises(RuntimeError, match="use nn.TrainOneStepCell"):
        Holds(trainer()[1].train_network)(Tensor(x), Tensor(y))


def test_a_call_of_a_frozen_network_says_so():
    net, model = trainer()
    for parameter in net.get_parameters():
        parameter.requires_grad = False
    x, y = batches(1)[0]
    with pytest.raises(ValueError, match="updates none of the parameters"):
        model.train_network(Tensor(x), Tensor(y))


def test_a_backup_has_the_optimizers_states(tmp_path):
    """What a training that begins with it goes on from."""
    _, model = trainer()
    model.train(1, rows(4), train.BackupAndRestore(str(tmp_path), delete_checkpoint=False), dataset_sink_mode=False)
    net, model = trainer()
    model.train(1, last_two(), train.BackupAndRestore(str(tmp_path)), dataset_sink_mode=False)
    assert_equal(net, by_hand(4, 6, ByHand().train(batches(4), 1)))


def test_early_stopping_restores_the_optimizers_states():
    class Says(train.Callback):
        def epoch_end(self, run_context):
            params = run_context.original_args()
            params.eval_results = {"acc": 1.0 / params.cur_epoch_num}

    net, model = trainer()
    model.train(3, rows(), [Says(), train.EarlyStopping("acc", patience=2, mode="max", restore_best_weights=True)], dataset_sink_mode=False)
    assert_equal(net, by_hand())
    np.testing.assert_allclose(model.train_network.parameters_dict()["moments.weight"].asnumpy(), by_hand().moments[0], rtol=1e-4)
    assert model.train_network.optimizer.global_step.asnumpy().tolist() == [6]


@pytest.mark.parametrize("is_made", [False, True])
def test_a_loss_scale_goes_on_from_such_a_file(tmp_path, is_made):
    path, x, y = str(tmp_path / "step.ckpt"), *map(Tensor, batches(1)[0])

    def scaled():
        return trainer(loss_scale_manager=ms.DynamicLossScaleManager(1024.0, 2, 2))[1]

    model = scaled()
    for _ in range(3):
        model.train_network(x, y)
    ms.save_checkpoint(model.train_network, path)
    found = ms.load_checkpoint(path)
    assert list(found) == [*STATES, "loss_scale", "loss_scale_clean_steps"]
    assert float(found["loss_scale"].asnumpy()) == 2048
    other = scaled()
    if is_made:
        other.train_network(x, y)
    assert ms.load_param_into_net(other.train_network, found) == ([], [])
    other.train_network(x, y)
    ms.save_checkpoint(other.train_network, path)
    assert float(ms.load_checkpoint(path)["loss_scale"].asnumpy()) == 4096


def test_run_context_takes_a_dict():
    run = ms.RunContext({"cur_epoch_num": 4})
    assert run.original_args()["cur_epoch_num"] == 4 and not run.get_stop_requested()
    run.request_stop()
    assert run.get_stop_requested()


RANKS = """
import sys

import numpy as np
import mindspore as ms
from mindspore import Tensor, nn
from mindspore.communication import get_rank, init

init()
mode, full_batch = sys.argv[1], sys.argv[2] == "whole"
ms.set_auto_parallel_context(parallel_mode=mode, gradients_mean=True, full_batch=full_batch, enable_parallel_optimizer=mode != "hybrid_parallel",
                             parallel_optimizer_config={"parallel_optimizer_threshold": 0} if mode != "hybrid_parallel" else {})
rank, x = get_rank(), np.random.RandomState(1).rand(6, 8, 4).astype(np.float32)
y = x[:, :, :2] * 3
net = nn.Dense(4, 2, weight_init="ones", bias_init="zeros")
model = ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.05, 0.9))
own = slice(0, 8) if full_batch or mode == "hybrid_parallel" else slice(4 * rank, 4 * rank + 4)
losses = [float(model.train_network(Tensor(a[own]), Tensor(b[own])).asnumpy()) for a, b in zip(x, y)]
ms.save_checkpoint(model.train_network, f"{rank}.ckpt")
alone, state = nn.Dense(4, 2, weight_init="ones", bias_init="zeros"), ms.load_checkpoint(f"{rank}.ckpt")
ms.reset_auto_parallel_context()
step = nn.TrainOneStepCell(nn.WithLossCell(alone, nn.MSELoss()), nn.Momentum(alone.trainable_params(), 0.05, 0.9))
np.testing.assert_allclose(losses, [float(step(Tensor(a), Tensor(b)).asnumpy()) for a, b in zip(x, y)], rtol=1e-4)
for parameter in step.get_parameters():
    np.testing.assert_allclose(state[parameter.name].asnumpy(), parameter.asnumpy(), rtol=1e-4, atol=1e-6)
print("trained", flush=True)
"""


@pytest.mark.parametrize("mode, batch", [("data_parallel", "own"), ("data_parallel", "whole"), ("semi_auto_parallel", "own"),
                                         ("semi_auto_parallel", "whole"), ("hybrid_parallel", "own")])
def test_ranks_step_together(tmp_path, mode, batch):
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is absent")
    (tmp_path / "ranks.py").write_text(RANKS)
    done = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2", sys.executable, "-B", "ranks.py", mode, batch],
                          capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.stdout.count("trained") == 2, done.stdout + done.stderr
