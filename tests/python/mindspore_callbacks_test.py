"""Callbacks that look at losses and metrics; Model.fit."""
import numpy as np
import pytest
import mindspore as ms
import mindspore.dataset as ds
from mindspore import nn, train
from mindspore.common.initializer import Constant

pytestmark = pytest.mark.usefixtures("fresh_context")


def make(rate=0.1, metrics=None):
    """A model of y = w x that begins at 0, and rows of y = 2 x."""
    net = nn.Dense(1, 1, weight_init=Constant(0.0), has_bias=False)
    x = np.float32([[1], [2]])
    data = ds.NumpySlicesDataset({"x": x, "y": 2 * x}, shuffle=False).batch(2)
    optimizer = nn.SGD(net.trainable_params(), rate)
    return net, data, optimizer, ms.Model(net, nn.MSELoss(), optimizer, metrics=metrics)


class Scripted(train.Callback):
    """Says at each epoch's end what callbacks behind it see as results of an evaluation."""

    def __init__(self, values):
        self.values, self.epochs = values, 0

    def epoch_end(self, run_context):
        run_context.original_args().eval_results = {"acc": self.values[self.epochs]}
        self.epochs += 1


def test_training_stops_early():
    net, data, _, model = make()
    seen = Scripted([0.1, 0.5, 0.45, 0.4, 0.9, 0.9])
    kept = []
    note = train.LambdaCallback(on_train_epoch_end=lambda run: kept.append(net.weight.asnumpy().item()))
    stop = train.EarlyStopping("acc", patience=2, restore_best_weights=True)
    model.train(6, data, [seen, note, stop], dataset_sink_mode=False)
    assert seen.epochs == 4 and stop.stopped_epoch == 4
    assert net.weight.asnumpy().item() == pytest.approx(kept[1])


def test_a_baseline_must_be_reached():
    _, data, _, model = make()
    seen = Scripted([0.1, 0.2, 0.3, 0.4])
    model.train(4, data, [seen, train.EarlyStopping("acc", patience=3, baseline=0.9)], dataset_sink_mode=False)
    assert seen.epochs == 3


def test_the_learning_rate_falls_on_a_plateau():
    _, data, optimizer, model = make(rate=0.5)
    rates = []
    note = train.LambdaCallback(on_train_epoch_end=lambda run: rates.append(optimizer.learning_rate.asnumpy().item()))
    reduce = train.ReduceLROnPlateau("acc", factor=0.5, patience=1, cooldown=1, min_lr=0.2)
    model.train(6, data, [Scripted([0.5, 0.5, 0.5, 0.5, 0.5, 0.5]), reduce, note], dataset_sink_mode=False)
    assert rates == pytest.approx([0.5, 0.25, 0.2, 0.2, 0.2, 0.2])


def test_a_changed_rate_is_what_the_next_step_uses():
    net, data, _, model = make(rate=0.01)
    weights = []
    note = train.LambdaCallback(on_train_step_end=lambda run: weights.append(net.weight.asnumpy().item()))
    model.train(2, data, [train.LearningRateScheduler(lambda rate, step: 10 * rate), note], dataset_sink_mode=False)
    # Of the loss mean((w x - 2 x)^2) the gradient is 5 (w - 2).
    assert weights == pytest.approx([0.1, 0.1 + 0.1 * 5 * 1.9])


def test_fit_evaluates_and_callbacks_see_the_results():
    net, data, _, model = make(metrics={"mse": nn.MSE()})
    history = train.History()
    results = []
    note = train.LambdaCallback(on_train_epoch_end=lambda run: results.append(run.original_args().get("eval_results")))
    model.fit(3, data, data, valid_frequency=2, callbacks=[history, note])
    assert history.epoch == {"epoch": [1, 2, 3]}
    assert len(history.history["net_output"]) == 3 and len(history.history["mse"]) == 1
    assert results[0] is None and results[2] is None and set(results[1]) == {"mse", "eval_loss"}
    assert results[1]["eval_loss"] == pytest.approx(2.5 * (net_after(2) - 2)**2, rel=1e-4)
    assert net.weight.asnumpy().item() == pytest.approx(net_after(3))


def test_evaluations_of_fit_change_no_rate():
    _, data, _, model = make(metrics={"mse": nn.MSE()})
    steps = []
    model.fit(3, data, data, callbacks=[train.LearningRateScheduler(lambda rate, step: steps.append(step) or rate)])
    assert steps == list(range(1, 3 * data.get_dataset_size() + 1))


def net_after(steps):
    """The weight after so many steps."""
    w = 0.0
    for _ in range(steps):
        w -= 0.1 * 5 * (w - 2)
    return w


def test_fit_stops_early_by_the_loss_of_evaluations():
    _, data, _, model = make(metrics={"mse": nn.MSE()})
    epochs = []
    note = train.LambdaCallback(on_train_epoch_end=lambda run: epochs.append(run.original_args().cur_epoch_num),
                                on_eval_end=lambda run: epochs.append("eval"))
    model.fit(9, data, data, callbacks=[note, train.EarlyStopping(min_delta=5.0)])
    assert epochs == ["eval", 1]


def test_a_backup_is_where_the_next_training_begins(tmp_path):
    net, data, _, model = make()
    model.train(1, data, train.BackupAndRestore(str(tmp_path / "backup"), delete_checkpoint=False), dataset_sink_mode=False)
    other, data, _, model = make()
    begins = []
    note = train.LambdaCallback(on_train_step_end=lambda run: begins.append(other.weight.asnumpy().item()))
    model.train(1, data, [train.BackupAndRestore(str(tmp_path / "backup")), note], dataset_sink_mode=False)
    assert begins == pytest.approx([net_after(2)]) and not (tmp_path / "backup" / "backup.ckpt").exists()


@pytest.mark.parametrize("make_callback, error", [
    (lambda: train.EarlyStopping(monitor=1), TypeError), (lambda: train.EarlyStopping(mode="x"), ValueError), (lambda: train.EarlyStopping(patience=-1), ValueError),
    (lambda: train.EarlyStopping(verbose=1), TypeError), (lambda: train.EarlyStopping(min_delta="1"), TypeError),
    (lambda: train.ReduceLROnPlateau(factor=1.0), ValueError), (lambda: train.ReduceLROnPlateau(factor=1), TypeError),
    (lambda: train.ReduceLROnPlateau(min_lr="1"), TypeError)])
def test_wrong_arguments_are_refused(make_callback, error):
    with pytest.raises(error):
        make_callback()
