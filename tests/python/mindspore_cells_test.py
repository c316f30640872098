"""Training steps written as cells, and Model: loss scales, precision, callbacks; phases, flags, PyNative mode."""
import copy
import gc
import re

import numpy as np
import pytest
import mindspore as ms
import tessera
from mindspore import Parameter, ParameterTuple, Tensor, context, dataset, nn, ops
from mindspore.nn.wrap.loss_scale import _grad_scale
from regression import MOMENTUM, RATE, ByHand, assert_equal, batches, regression, rows


pytestmark = pytest.mark.usefixtures("fresh_context")


class TestLossScale:
    def step(self, scale):
        net, with_loss, optimizer = regression()
        return net, nn.TrainOneStepWithLossScaleCell(with_loss, optimizer, scale)

    def test_a_scaled_step_updates_as_an_unscaled_one(self):
        net, step = self.step(Tensor(256.0))
        for x, y in batches():
            loss, overflow, scale = step(Tensor(x), Tensor(y))
            assert loss.shape == () and not overflow.asnumpy() and scale.asnumpy() == 256
        assert_equal(net, ByHand().train(batches(), 1))

    def test_a_dynamic_scale_falls_on_overflow_and_grows_after_clean_steps(self):
        net, step = self.step(nn.DynamicLossScaleUpdateCell(loss_scale_value=1024, scale_factor=2, scale_window=2))
        x, y = batches()[0]
        seen = []
        for spoiled in (True, False, False, False, True, True):
            step(Tensor(x * (np.inf if spoiled else 1)), Tensor(y))
            seen.append(float(step.scale_sense.asnumpy()))
        # Steps 1, 5 and 6 overflow; steps 3 ends a window of two clean ones after step 1.
        assert seen == [512, 512, 1024, 1024, 512, 256]
        assert_equal(net, ByHand().train(3 * [(x, y)], 1))

    def test_a_scale_does_not_fall_below_one(self):
        _, step = self.step(nn.DynamicLossScaleUpdateCell(1, 2, 1000))
        step(Tensor(batches()[0][0] * np.inf), Tensor(batches()[0][1]))
        assert step.scale_sense.asnumpy() == 1

    def test_a_scale_may_be_set(self):
        _, step = self.step(Tensor([2.0]))
        step.set_sense_scale(Tensor([8.0]))
        assert step(*(Tensor(array) for array in batches()[0]))[2].asnumpy() == [8]

    def test_gradients_are_divided_in_their_own_dtype(self):
        scaled = _grad_scale(Tensor(4.0), Tensor(np.array([2, 8], np.float16)))
        assert scaled.dtype == ms.float16 and scaled.asnumpy().tolist() == [0.5, 2]

    @pytest.mark.parametrize("make, error", [
        (lambda c: nn.TrainOneStepWithLossScaleCell(*c, 1024), TypeError),
        (lambda c: nn.TrainOneStepWithLossScaleCell(*c, Tensor([1.0, 2.0])), ValueError),
        (lambda c: nn.TrainOneStepWithLossScaleCell(*c, Tensor(1.0)).set_sense_scale(2.0), TypeError),
        (lambda c: nn.DynamicLossScaleUpdateCell(0, 2, 1), ValueError), (lambda c: nn.DynamicLossScaleUpdateCell("1", 2, 1), TypeError),
        (lambda c: ms.FixedLossScaleManager(0.5), ValueError), (lambda c: ms.DynamicLossScaleManager(0.5), ValueError),
        (lambda c: ms.DynamicLossScaleManager(scale_window=0), ValueError), (lambda c: ms.DynamicLossScaleManager(scale_factor=1.5), TypeError),
        (lambda c: ms.Model(c[0], loss_scale_manager=3), TypeError), (lambda c: ms.Model(c[0], keep_batchnorm_fp32=1), TypeError),
        (lambda c: ms.Model(c[0], amp_level="O7"), ValueError), (lambda c: ms.Model(c[0], wrong=1), ValueError),
        (lambda c: nn.DistributedGradReducer([], degree=0), ValueError),
    ])
    def test_what_is_wrong_is_refused(self, make, error):
        _, with_loss, optimizer = regression()
        with pytest.raises(error):
            make((with_loss, optimizer))

    def test_managers_count_as_their_cells_do(self):
        manager = ms.DynamicLossScaleManager(1024, 2, 2)
        seen = []
        for overflow in (True, False, False, False, True, True):
            manager.update_loss_scale(overflow)
            seen.append(manager.get_loss_scale())
        assert seen == [512, 512, 1024, 1024, 512, 256]
        assert isinstance(manager.get_update_cell(), nn.DynamicLossScaleUpdateCell) and manager.get_drop_overflow_update()
        assert ms.FixedLossScaleManager(8, False).get_update_cell() is None


class TestModel:
    @pytest.mark.parametrize("manager, optimizer_scale", [
        (None, 1.0), (ms.FixedLossScaleManager(1024), 1.0), (ms.FixedLossScaleManager(1024, drop_overflow_update=False), 1024.0),
        (ms.DynamicLossScaleManager(1024), 1.0)], ids=["none", "fixed", "fixed, the optimizer divides", "dynamic"])
    def test_a_loss_scale_changes_no_training(self, manager, optimizer_scale):
        net = nn.Dense(4, 1, weight_init="ones", bias_init="zeros")
        optimizer = nn.Momentum(net.trainable_params(), RATE, MOMENTUM, loss_scale=optimizer_scale)
        ms.Model(net, nn.MSELoss(), optimizer, **({} if manager is None else {"loss_scale_manager": manager})).train(1, rows())
        assert_equal(net, ByHand().train(batches(), 1))

    @pytest.mark.parametrize("level", ["O2", "O3"])
    def test_amp_levels_compute_in_float16(self, level):
        net = nn.Dense(4, 1, weight_init="ones", bias_init="zeros")
        manager = {"loss_scale_manager": ms.DynamicLossScaleManager(1024)} if level == "O2" else {}
        ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), RATE, MOMENTUM), amp_level=level, **manager).train(1, rows())
        by_hand = ByHand().train(batches(), 1)
        difference = np.abs(net.weight.asnumpy() - by_hand.w).max()
        assert 1e-6 < difference < 0.02

    def test_a_step_written_as_a_cell_is_trained_by_a_model(self, capfd):
        net, with_loss, optimizer = regression()

        class Look(ms.Callback):
            seen = []

            def step_end(self, run_context):
                params = run_context.original_args()
                self.seen.append((params.cur_epoch_num, params.cur_step_num, params.batch_num, params.epoch_num,
                                  len(params.train_dataset_element), params.train_network is step))

        step = nn.TrainOneStepCell(with_loss, optimizer)
        ms.Model(step).train(2, rows(3), [ms.LossMonitor(), Look()], dataset_sink_mode=False)
        assert_equal(net, ByHand().train(2 * batches(3), 1))
        assert Look.seen == [((i - 1) // 3 + 1, i, 3, 2, 2, True) for i in range(1, 7)]
        lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("epoch")]
        assert [line.rpartition(" ")[0] for line in lines] == [f"epoch: {e} step: {s}, loss is" for e in (1, 2) for s in (1, 2, 3)]

    def test_such_a_step_with_a_loss_scale_is_built_for_a_level(self):
        net = nn.Dense(4, 1, weight_init="ones", bias_init="zeros")
        step = ms.build_train_network(net, nn.Momentum(net.trainable_params(), RATE, MOMENTUM), nn.MSELoss(), level="O2",
                                      loss_scale_manager=ms.DynamicLossScaleManager(1024))
        loss, overflow, scale = step(*(Tensor(array) for array in batches()[0]))
        assert scale.asnumpy() == 1024 and not overflow.asnumpy()
        by_hand = ByHand().train(batches()[:1], 1)
        difference = np.abs(net.weight.asnumpy() - by_hand.w).max()
        assert 0 < difference < 0.02

    def test_such_a_step_computes_in_the_type_that_is_asked_for(self):
        def is_exact(level, **kwargs):
            net = nn.Dense(1, 1, weight_init="ones", has_bias=False)
            ms.build_train_network(net, nn.Momentum(net.trainable_params(), RATE, MOMENTUM), nn.MSELoss(), level=level, **kwargs)
            return net(Tensor(np.float32([[1 + 2**-20]]))).asnumpy().item() != 1  # which float16 does not have

        assert is_exact("O0") and is_exact("O3", cast_model_type=ms.float32)
        assert not is_exact("O3") and not is_exact("O0", cast_model_type=ms.float16)
        with pytest.raises(TypeError, match="'cast_model_type' must be mindspore.float16 or mindspore.float32"):
            is_exact("O0", cast_model_type=ms.int32)

    @pytest.mark.parametrize("sinks, sink_size, initial_epoch, stop_at", [
        (False, -1, 0, None), (True, -1, 0, None), (True, 2, 0, None), (False, -1, 1, None), (True, 2, 2, None), (False, -1, 0, "begin"),
        (False, -1, 0, "epoch_begin"), (False, -1, 0, "step_begin"), (True, 2, 0, "step_end"), (False, -1, 0, "epoch_end")])
    def test_callbacks_see_the_same_of_a_step_as_of_a_network_with_an_optimizer(self, sinks, sink_size, initial_epoch, stop_at):
        def seen(make):
            notes = []

            class Note(ms.Callback):
                def __getattribute__(self, name):
                    if not name.startswith("on_train_"):
                        return super().__getattribute__(name)
                    return lambda run_context: self.note(name.removeprefix("on_train_"), run_context)

                def note(self, moment, run_context):
                    params = run_context.original_args()
                    loss = [float(np.mean(params.net_outputs.asnumpy()))] if moment == "step_end" else []
                    notes.append([moment, params.epoch_num, params.cur_epoch_num, params.batch_num, params.cur_step_num, *loss])
                    if moment == stop_at:
                        run_context.request_stop()

            ms.Model(*make()).train(4, rows(3), [Note()], dataset_sink_mode=sinks, sink_size=sink_size, initial_epoch=initial_epoch)
            return notes

        def step():
            _, with_loss, optimizer = regression()
            return [nn.TrainOneStepCell(with_loss, optimizer)]

        def network():
            net, _, optimizer = regression()
            return net, nn.MSELoss(), optimizer

        of_step, of_network = seen(step), seen(network)
        assert [note[:5] for note in of_step] == [note[:5] for note in of_network]
        np.testing.assert_allclose([note[5] for note in of_step if len(note) > 5], [note[5] for note in of_network if len(note) > 5], rtol=1e-4)
        assert of_step[0][0] == "begin" and of_step[-1][0] == "end"

    def test_the_order_of_rows_goes_on_from_training_to_training(self):
        def losses(make):
            seen = []

            class Note(ms.Callback):
                def step_end(self, run_context):
                    seen.append(float(run_context.original_args().net_outputs.asnumpy()))

            ms.set_seed(3)
            x, y = (np.concatenate(column) for column in zip(*batches()))
            shuffled = dataset.NumpySlicesDataset({"x": x, "y": y}, shuffle=True).batch(8)
            model = ms.Model(*make())
            for _ in range(2):
                model.train(2, shuffled, [Note()], dataset_sink_mode=False)
            return seen

        def step():
            _, with_loss, optimizer = regression()
            return [nn.TrainOneStepCell(with_loss, optimizer)]

        def network():
            net, _, optimizer = regression()
            return net, nn.MSELoss(), optimizer

        np.testing.assert_allclose(losses(step), losses(network), rtol=1e-3)

    def test_a_loss_that_is_not_finite_ends_the_training_of_a_step_that_cannot_skip_it(self):
        _, with_loss, optimizer = regression()
        x, y = (np.concatenate(column) for column in zip(*batches(3)))
        x[8] = np.nan
        spoiled = dataset.NumpySlicesDataset({"x": x, "y": y}, shuffle=False).batch(8)
        with pytest.raises(tessera.NonFiniteLoss, match="epoch: 1 step: 2. Invalid loss, terminating training. TrainOneStepCell gave nan"):
            ms.Model(nn.TrainOneStepCell(with_loss, optimizer)).train(1, spoiled, dataset_sink_mode=False)
        net, with_loss, optimizer = regression()
        ms.Model(nn.TrainOneStepWithLossScaleCell(with_loss, optimizer, Tensor(1.0))).train(1, spoiled, dataset_sink_mode=False)
        assert np.isfinite(net.weight.asnumpy()).all()

    def test_a_step_has_its_own_loss_scale_and_precision(self, capfd):
        _, with_loss, optimizer = regression()
        step = nn.TrainOneStepCell(with_loss, optimizer)
        with pytest.raises(ValueError, match="'optimizer' can not be None when set 'loss_scale_manager'.*nn.TrainOneStepWithLossScaleCell"):
            ms.Model(step, loss_scale_manager=ms.FixedLossScaleManager()).train(1, rows(), dataset_sink_mode=False)
        ms.Model(step, amp_level="O3").train(1, rows(), dataset_sink_mode=False)
        assert "amp_level='O3' has no effect on a network that is a training step itself" in capfd.readouterr().err

    def test_graph_op_run_runs_operator_by_operator_and_does_not_sink(self, monkeypatch, capfd):
        losses = {}
        for value in ("0", "1"):
            monkeypatch.setenv("GRAPH_OP_RUN", value)
            net = nn.Dense(4, 1, weight_init="ones", bias_init="zeros")
            model = ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), RATE, MOMENTUM))
            model.train(1, rows(3), ms.LossMonitor(), dataset_sink_mode=True)
            losses[value] = re.findall(r"step: (\d+), loss is (\S+)", capfd.readouterr().out)
        assert [step for step, _ in losses["0"]] == ["3"] and [step for step, _ in losses["1"]] == ["1", "2", "3"]
        assert float(losses["1"][-1][1]) == pytest.approx(float(losses["0"][0][1]), rel=1e-5)

    def test_device_memory_is_a_limit(self):
        net = nn.Dense(256, 256)
        model = ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), RATE, MOMENTUM))
        x = np.zeros((8, 256), np.float32)
        context.set_context(max_device_memory="0.0001GB")
        try:
            with pytest.raises(ValueError, match="memory limit"):
                model.train(1, ms.dataset.NumpySlicesDataset({"x": x, "y": x}).batch(8))
        finally:
            context.set_context(max_device_memory="1024GB")

    def test_callbacks_see_an_evaluation(self):
        net = nn.Dense(4, 1, weight_init="ones", bias_init="zeros")

        class Look(ms.Callback):
            def end(self, run_context):
                self.params = run_context.original_args()

        look = Look()
        metrics = ms.Model(net, nn.MSELoss(), metrics={"loss"}).eval(rows(), look)
        assert look.params.mode == "eval" and look.params.metrics == metrics and look.params.batch_num == 6


class TestPhases:
    class Scale(nn.Cell):
        traces = 0

        def construct(self, x):
            type(self).traces += 1
            return x * 2 if getattr(self, "doubled", False) else x

    def test_a_phase_keeps_what_it_was_compiled_as(self):
        cell, x = self.Scale(), Tensor([3.0])
        cell.add_flags_recursive(doubled=True)
        cell.phase = "train0"
        assert cell(x).asnumpy() == 6
        cell.add_flags_recursive(doubled=False)
        cell.phase = "train1"
        assert cell(x).asnumpy() == 3
        cell.phase = "train0"
        assert cell(x).asnumpy() == 6
        cell.phase = ""
        assert cell(x).asnumpy() == 3

    def test_for_each_set_of_flags_a_cell_is_compiled_once(self):
        outer, x = nn.SequentialCell(self.Scale()), Tensor([3.0])
        self.Scale.traces = 0
        for doubled in (True, False, True, False):
            outer.add_flags_recursive(doubled=doubled)
            assert outer(x).asnumpy() == (6 if doubled else 3)
        assert self.Scale.traces == 2
        outer[0].add_flags(doubled=True)
        assert outer(x).asnumpy() == 6 and self.Scale.traces == 3


def test_a_changed_context_is_traced_anew():
    class Look(nn.Cell):
        def construct(self, x):
            return x * context.get_auto_parallel_context("grad_accumulation_step")

    cell = Look()
    assert cell(Tensor([3.0])).asnumpy() == 3
    context.set_auto_parallel_context(grad_accumulation_step=2)
    assert cell(Tensor([3.0])).asnumpy() == 6


class TestPynative:
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc = nn.Dense(4, 1, weight_init="ones", bias_init="zeros")
            self.seen = []

        def construct(self, x):
            y = self.fc(x)
            if isinstance(y, ms.common.tensor.tessera.Tensor):
                self.seen.append(float(y.asnumpy().sum()))
            return y

    def test_construct_runs_operator_by_operator(self):
        context.set_context(mode=context.PYNATIVE_MODE)
        net = self.Net()
        assert net(Tensor(np.ones((2, 4), np.float32))).asnumpy().tolist() == [[4], [4]]
        assert net.seen == [8.0]

    def test_gradients_and_training_steps_are_traced(self):
        context.set_context(mode=context.PYNATIVE_MODE)
        net = self.Net()
        x = Tensor(np.ones((2, 4), np.float32))
        gradient = ops.GradOperation(get_by_list=True)(net, ParameterTuple(net.trainable_params()))(x)
        assert gradient[0].asnumpy().tolist() == [[2, 2, 2, 2]] and net.seen == []
        regression_net, with_loss, optimizer = regression()
        step = nn.TrainOneStepCell(with_loss, optimizer)
        for batch in batches():
            step(*(Tensor(array) for array in batch))
        assert_equal(regression_net, ByHand().train(batches(), 1))

    @pytest.mark.parametrize("mode", ["semi_auto_parallel", "auto_parallel", "hybrid_parallel"])
    def test_what_needs_the_whole_graph_is_refused(self, mode):
        context.set_context(mode=context.PYNATIVE_MODE)
        context.set_auto_parallel_context(parallel_mode=mode)
        with pytest.raises(RuntimeError, match="PYNATIVE_MODE supports stand_alone and data_parallel"):
            ms.Model(nn.Dense(4, 1))


class TestRecompute:
    def test_a_recomputed_network_trains_the_same(self):
        plain, recomputed = (nn.SequentialCell(nn.Dense(4, 8, weight_init="ones", bias_init="zeros"), nn.Tanh(), nn.Dense(8, 1, weight_init="ones", bias_init="zeros")) for _ in range(2))
        assert recomputed[0].recompute() is None
        for net in (plain, recomputed):
            ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.01, 0.9)).train(2, rows())
        np.testing.assert_array_equal(plain[0].weight.asnumpy(), recomputed[0].weight.asnumpy())

    def test_wrong_settings_are_refused(self):
        with pytest.raises(ValueError, match="is not recognized"):
            nn.Dense(1, 1).recompute(wrong=True)
        net = nn.SequentialCell(nn.Dense(1, 1))
        net.recompute()
        with pytest.raises(RuntimeError, match="cannot be recomputed"):
            net[0].recompute()
        context.set_context(mode=context.PYNATIVE_MODE)
        with pytest.raises(TypeError):
            nn.Dense(1, 1).recompute()


def test_a_cell_computes_in_the_dtype_that_it_is_told():
    net = nn.Dense(4, 1)
    x = np.random.RandomState(0).rand(8, 4).astype(np.float32)
    net.weight.set_data(Tensor(np.full((1, 4), 1 / 3, np.float32)))
    exact = net(Tensor(x)).asnumpy()
    assert net.to_float(ms.float16) is net
    low = net(Tensor(x)).asnumpy()
    assert low.dtype == np.float32 and 0 < np.abs(low - exact).max() < 1e-2
    with pytest.raises(ValueError):
        net.to_float(ms.int32)


def test_a_network_that_a_step_calls_twice_draws_and_counts_once():
    """construct() of a step calls the network for the loss and again for the gradients: it is one forward pass."""
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc, self.drop = nn.Dense(4, 1, weight_init="ones", bias_init="zeros"), nn.Dropout(0.5)
            self.calls = Parameter(Tensor(0.0), requires_grad=False)

        def construct(self, x):
            self.calls = self.calls + 1
            return self.fc(self.drop(x))

    class Step(nn.Cell):
        def __init__(self, net):
            super().__init__()
            self.net, self.grad = net, ops.GradOperation(get_by_list=True, sens_param=True)

        def construct(self, x):
            y = self.net(x)
            return y, self.grad(self.net, [self.net.fc.weight])(x, ops.ones_like(y))

    step = Step(Net())
    step.set_train()
    y, (gradient,) = step(Tensor(np.ones((1, 4), np.float32)))
    assert step.net.calls.asnumpy() == 1
    assert gradient.asnumpy().sum() == y.asnumpy().item()  # both of the elements that were kept


def test_functions_and_methods_may_be_compiled_as_a_whole():
    gc.collect()  # cells of other tests, whose end between two calls would have the function traced again
    traces = []

    @ms.ms_function
    def twice(x):
        traces.append(x)
        if x > 0:
            x = x * 2
        return x

    assert [twice(Tensor(v)).asnumpy().item() for v in (1.0, -1.0, 3.0)] == [2, -1, 6]
    assert len(traces) == 1

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = Parameter(Tensor(3.0))

        @ms.ms_function
        def helper(self, x):
            traces.append(x)
            return x * self.w

        def construct(self, x):
            return self.helper(x) + 1

    net = Net()
    assert net.helper(Tensor(2.0)).asnumpy() == 6 and net(Tensor(2.0)).asnumpy() == 7
    net.w.set_data(Tensor(4.0))
    assert net.helper(Tensor(2.0)).asnumpy() == 8 and len(traces) == 3


def test_a_loop_of_ones_own_reads_batches_by_a_helper():
    helper = ms.DatasetHelper(rows(3), dataset_sink_mode=False, epoch_num=2)
    epochs = [list(helper) for _ in range(2)]
    assert [len(epoch) for epoch in epochs] == [3, 3] and len(epochs[0][0]) == 2
    np.testing.assert_array_equal(epochs[0][1][0].asnumpy(), batches(3)[1][0])
    net = nn.Dense(1, 1)
    assert ms.connect_network_with_dataset(net, helper) is net
    with pytest.raises(RuntimeError, match="dataset_sink_mode=False"):
        ms.DatasetHelper(rows(), dataset_sink_mode=True)


def test_cells_that_evaluate_and_differentiate():
    net = nn.Dense(4, 1, weight_init="ones", bias_init="zeros")
    x, y = (Tensor(array) for array in batches()[0])
    loss, output, label = nn.WithEvalCell(net, nn.MSELoss())(x, y)
    np.testing.assert_allclose(loss.asnumpy(), ((output.asnumpy() - label.asnumpy()) ** 2).mean(), rtol=1e-5)
    gradients = nn.WithGradCell(net, nn.MSELoss())(x, y)
    for made, expected in zip(gradients, ByHand().gradients(*batches()[0])):
        np.testing.assert_allclose(made.asnumpy(), expected, rtol=1e-5)
    nn.ParameterUpdate(net.bias)(Tensor([5.0]))
    assert net.bias.asnumpy() == [5]


class Adversaries(nn.Cell):
    """Two networks that are trained against each other in one step, each by an optimizer of its own."""

    def __init__(self, make_optimizers):
        super().__init__()
        self.generator, self.judge = nn.Dense(2, 3, "ones", "zeros"), nn.Dense(3, 1, "ones", "zeros")
        self.optimizer_g, self.optimizer_d = make_optimizers(self.generator.trainable_params(), self.judge.trainable_params())
        self.grad = ops.GradOperation(get_by_list=True)
        self.of_generator = lambda z: -self.judge(self.generator(z)).mean()
        self.of_judge = lambda z: (self.judge(self.generator(z))**2).mean()
        self.weights_g, self.weights_d = (ParameterTuple(net.trainable_params()) for net in (self.generator, self.judge))

    def construct(self, z):
        gradients = self.grad(self.of_generator, self.weights_g)(z), self.grad(self.of_judge, self.weights_d)(z)
        return self.optimizer_g(gradients[0]), self.optimizer_d(gradients[1])


class TestTwoOptimizersInOneStep:
    Z = Tensor(np.arange(8, dtype=np.float32).reshape(4, 2) / 8)
    OPTIMIZERS = [
        lambda g, d: (nn.Momentum(g, 0.1, 0.9), nn.Momentum(d, 0.01, 0.5)),
        lambda g, d: (nn.Adam(g, 0.1), nn.SGD(d, [0.1, 0.01, 0.001])),
        lambda g, d: (nn.Adam(g, 0.1), nn.Adam(d, 0.01)),
    ]

    def values_by_one_after_the_other(self, make_optimizers):
        """The parameters after three steps in which each optimizer updates in a graph of its own."""
        step = Adversaries(make_optimizers)
        apart = [ops.GradOperation(get_by_list=True)(f, w) for f, w in ((step.of_generator, step.weights_g), (step.of_judge, step.weights_d))]
        for _ in range(3):
            gradients = [f(self.Z) for f in apart]
            step.optimizer_g(gradients[0])
            step.optimizer_d(gradients[1])
        return [p.asnumpy() for p in (*step.weights_g, *step.weights_d)]

    @pytest.mark.parametrize("make_optimizers", OPTIMIZERS)
    @pytest.mark.parametrize("form", ["cell", "function"])
    def test_each_has_its_own_states(self, make_optimizers, form):
        step = Adversaries(make_optimizers)
        run = step if form == "cell" else ms.jit(lambda z: step.construct(z))
        for _ in range(3):
            run(self.Z)
        for found, expected in zip((*step.weights_g, *step.weights_d), self.values_by_one_after_the_other(make_optimizers)):
            np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-5)

    def test_the_second_ones_states_have_its_path(self):
        step = Adversaries(self.OPTIMIZERS[0])
        names = [p.name for p in step.get_parameters()]
        assert len(set(names)) == len(names)
        assert {"global_step", "learning_rate", "momentum", "moments.generator.weight"} <= set(names)
        assert {"optimizer_d.global_step", "optimizer_d.learning_rate", "optimizer_d.moments.judge.weight"} <= set(names)
        assert step.optimizer_d.moments[0].name == "optimizer_d.moments.judge.weight"
        assert [p.asnumpy() for p in step.get_parameters() if p.name == "optimizer_d.learning_rate"] == [np.float32(0.01)]

    def test_steps_that_each_have_one_are_told_apart(self):
        class Step(nn.Cell):
            def __init__(self, net):
                super().__init__()
                self.net = net
                self.optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)

        class Both(nn.Cell):
            def __init__(self):
                super().__init__()
                self.one, self.other = Step(nn.Dense(2, 2)), Step(nn.Dense(2, 2))

        both = Both()
        for name in ("one", "other"):
            assert [p.name for p in getattr(both, name).optimizer.state_parameters()][0] == f"{name}.optimizer.global_step"

    @pytest.mark.parametrize("depth", (1, 2, 3))
    def test_one_within_cells_keeps_its_moments(self, depth):
        """However deep it is, the graph reads and writes the states that the cell holds."""
        class Step(nn.Cell):
            def __init__(self):
                super().__init__()
                self.weight = ms.Parameter(Tensor(np.zeros(2, np.float32)), name="weight")
                self.optimizer = nn.Momentum([self.weight], 1.0, 0.5)

            def construct(self, x):
                return self.optimizer((x,))

        class Outer(nn.Cell):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner

            def construct(self, x):
                return self.inner(x)

        step = outer = Step()
        for _ in range(depth - 1):
            outer = Outer(outer)
        for _ in range(3):
            outer(Tensor(np.ones(2, np.float32)))
        np.testing.assert_allclose(step.weight.asnumpy(), -(1 + 1.5 + 1.75) * np.ones(2))
        assert int(step.optimizer.state_parameters()[0].asnumpy()[0]) == 3

    def test_two_of_one_path_meet_in_a_function(self):
        class Step(nn.Cell):
            def __init__(self, net):
                super().__init__()
                self.net = net
                self.optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)

        class Outer(nn.Cell):
            def __init__(self):
                super().__init__()
                self.step = Step(nn.Dense(2, 2))

        one, other = Outer(), Outer()
        other.step.net.update_parameters_name("other")

        def update(x):
            return [outer.step.optimizer((ops.zeros_like(outer.step.net.weight) + x, ops.zeros_like(outer.step.net.bias))) for outer in (one, other)]

        before = other.step.net.weight.asnumpy()
        ms.jit(update)(Tensor(1.0))
        np.testing.assert_allclose(other.step.net.weight.asnumpy(), before - 0.1, rtol=1e-5)
        names = [outer.step.optimizer.state_parameters()[0].name for outer in (one, other)]
        assert names == ["step.optimizer.global_step", "optimizer_2.step.optimizer.global_step"]

    def test_one_that_is_replaced_keeps_the_plain_names(self):
        net = nn.Dense(2, 2)
        step = nn.Cell()
        step.optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
        step.optimizer = nn.Momentum(net.trainable_params(), 0.2, 0.9)
        assert [p.name for p in step.optimizer.state_parameters()][0] == "global_step"

    def test_a_checkpoint_has_both(self, tmp_path):
        path = str(tmp_path / "both.ckpt")
        make = self.OPTIMIZERS[2]
        step = Adversaries(make)
        step(self.Z)
        ms.save_checkpoint(step, path)
        step(self.Z)
        resumed = Adversaries(make)
        assert ms.load_param_into_net(resumed, ms.load_checkpoint(path))[0] == []
        resumed(self.Z)
        for one, other in zip(step.get_parameters(), resumed.get_parameters()):
            np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())


@pytest.mark.parametrize("f, expected", [
    (lambda s: ops.norm(s, dim=0), 3.0), (lambda s: s.sum(0), 3.0), (lambda s: s.mean(-1), 3.0), (lambda s: s.argmax(-1), 0),
    (lambda s: ops.ReduceSum()(s, 0), 3.0), (lambda s: ops.pow(0.5, 2), 0.25), (lambda s: ops.add(0.5, 2), 2.5),
    (lambda s: ops.maximum(1, 2), 2), (lambda s: ops.Pow()(2.0, 3), 8.0),
])
def test_numbers_and_values_without_dims_are_operands(f, expected):
    assert float(f(ms.Tensor(3.0)).asnumpy()) == expected


def test_likes_have_the_dtype_that_is_asked_for():
    v = ms.Tensor([1.0, 2.0])
    assert ops.ones_like(v, dtype=ms.bool_).dtype == ms.bool_
    assert ops.zeros_like(v, dtype=ms.int32).dtype == ms.int32
    assert ops.zeros_like(v).dtype == ms.float32


def dense():
    return nn.Dense(2, 2, has_bias=False)


class Inside(nn.Cell):
    """A cell, and a sequence of it."""

    def __init__(self):
        super().__init__()
        self.a = dense()
        self.seq = nn.SequentialCell(self.a, nn.ReLU())


class Holds(nn.Cell):
    """What make(cell) sets."""

    def __init__(self, make):
        super().__init__()
        make(self)


def set_first(cell):
    cell.seq = nn.SequentialCell(dense(), nn.ReLU())
    cell.a = cell.seq[0]


def set_in_two(cell):
    shared = dense()
    cell.one, cell.two = nn.SequentialCell(shared, nn.ReLU()), nn.SequentialCell(nn.ReLU(), shared)


def set_twice_in_a_list(cell):
    shared = dense()
    cell.cells_ = nn.CellList([shared, shared, dense()])


def set_above(cell):
    cell.inner = Inside()
    cell.top = nn.SequentialCell(cell.inner.seq, dense())


def set_nested(cell):
    cell.a = dense()
    cell.seq = nn.SequentialCell(cell.a, nn.SequentialCell(cell.a))


def set_inside(cell):
    cell.a = dense()
    cell.inner = Inside()


@pytest.mark.parametrize("make, names", [
    (Inside, ["seq.0"]), (lambda: Holds(set_first), ["a"]), (lambda: Holds(set_in_two), ["two.1"]),
    (lambda: Holds(set_twice_in_a_list), ["cells_.0", "cells_.2"]), (lambda: Holds(set_above), ["top.0.0", "top.1"]),
    (lambda: Holds(set_nested), ["seq.0"]), (lambda: Holds(set_inside), ["a", "inner.a"]),
])
def test_a_cell_at_several_places_is_named_by_the_last_one(make, names):
    # As MindSpore 2.10 names them.
    assert [p.name for p in make().get_parameters()] == [f"{name}.weight" for name in names]


def test_a_sequence_by_itself_names_a_cell_by_its_last_place():
    shared = dense()
    assert [p.name for p in nn.SequentialCell(shared, nn.ReLU(), shared).get_parameters()] == ["2.weight"]


class Filled(nn.Cell):
    """Lists that are attributes before they are filled, as many as there are names."""

    def __init__(self, *names):
        super().__init__()
        for name in names:
            setattr(self, name, nn.CellList())
            for _ in range(2):
                getattr(self, name).append(dense())
        self.all = [part for name in names for part in getattr(self, name)]

    def construct(self, x):
        for part in self.all:
            x = part(x)
        return x


def test_a_list_that_is_filled_once_it_is_an_attribute_names_its_cells_by_their_numbers_alone(tmp_path):
    # As MindSpore 2.10 does, whose checkpoints have these names; the whole network's name stands in front of all.
    net = Filled("layers")
    assert [p.name for p in net.get_parameters()] == ["0.weight", "1.weight"]
    assert [path for path, _ in net.parameters_and_names()] == ["layers.0.weight", "layers.1.weight"]
    published = str(tmp_path / "published.ckpt")
    ms.save_checkpoint([{"name": f"{i}.weight", "data": Tensor(np.full((2, 2), i + 1.0, np.float32))} for i in range(2)], published)
    assert ms.load_param_into_net(net, ms.load_checkpoint(published), strict_load=True) == ([], [])
    assert [p.asnumpy()[0, 0] for p in net.get_parameters()] == [1, 2]
    np.testing.assert_allclose(net(Tensor(np.ones((1, 2), np.float32))).asnumpy(), [[8, 8]])
    assert [p.name for p in nn.SequentialCell(net).get_parameters()] == ["0.layers.0.weight", "0.layers.1.weight"]


@pytest.mark.parametrize("way", ["call", "train", "predict"])
def test_parameters_of_one_name_are_named_by_their_paths_before_the_network_is_used(way):
    net = Filled("one", "two")
    assert [p.name for p in net.get_parameters()] == ["0.weight", "1.weight"] * 2
    for i, parameter in enumerate(net.get_parameters()):
        parameter.set_data(Tensor(np.full((2, 2), i + 1.0, np.float32)))
    x = np.ones((1, 2), np.float32)
    if way == "call":
        np.testing.assert_allclose(net(Tensor(x)).asnumpy(), np.full((1, 2), 24 * 2.0**4))
    elif way == "predict":
        np.testing.assert_allclose(ms.Model(net).predict(Tensor(x)).asnumpy(), np.full((1, 2), 24 * 2.0**4))
    else:
        rows = dataset.NumpySlicesDataset({"x": x, "y": x}, shuffle=False).batch(1)
        ms.Model(net, nn.MAELoss(), nn.SGD(net.trainable_params(), 0.01)).train(1, rows, dataset_sink_mode=False)
        # Each element's gradient is half of what the other three layers make of a one.
        moved = [i + 1 - p.asnumpy()[0, 0] for i, p in enumerate(net.get_parameters())]
        np.testing.assert_allclose(moved, [0.01 * 2.0**3 * 24 / 2 / (i + 1) for i in range(4)], rtol=1e-4)
    assert [p.name for p in net.get_parameters()] == ["one.0.weight", "one.1.weight", "two.0.weight", "two.1.weight"]


def test_what_is_sliced_while_a_network_is_traced_keeps_its_names():
    class Sliced(nn.Cell):
        def __init__(self):
            super().__init__()
            self.layers = nn.CellList([dense() for _ in range(3)])
            self.seq = nn.SequentialCell(dense(), dense())

        def construct(self, x):
            for layer in self.layers[1:]:
                x = layer(x)
            return self.seq[:1](x)

    net = Sliced()
    names = [p.name for p in net.get_parameters()]
    for parameter in net.get_parameters():
        parameter.set_data(Tensor(np.eye(2, dtype=np.float32) * 2))
    for rows in (1, 3):
        np.testing.assert_allclose(net(Tensor(np.ones((rows, 2), np.float32))).asnumpy(), np.full((rows, 2), 8))
    assert [p.name for p in net.get_parameters()] == names == [
        "layers.0.weight", "layers.1.weight", "layers.2.weight", "seq.0.weight", "seq.1.weight"]


def test_a_copy_of_a_part_keeps_the_names():
    net = nn.SequentialCell(nn.SequentialCell(dense()))
    assert [p.name for p in copy.deepcopy(net[0]).get_parameters()] == ["0.0.weight"] == [p.name for p in net.get_parameters()]


@pytest.mark.parametrize("name, value", [("p", 0.0), ("keep_prob", 1.0)])
def test_the_share_that_dropout_drops_may_be_set_later(name, value):
    drop = nn.Dropout(p=0.5)
    drop.set_train()
    x = Tensor(np.ones(64, np.float32))
    assert 0 in drop(x).asnumpy()
    setattr(drop, name, value)
    assert (drop.p, drop.keep_prob) == (0.0, 1.0) and (drop(x).asnumpy() == 1).all()
    with pytest.raises(ValueError, match="must be"):
        setattr(drop, name, 1.5)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize("is_set_later", [False, True])
def test_a_dropout_in_a_list_drops_where_the_network_trains(mode, is_set_later):
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.drops = [nn.Dropout(p=0.5), nn.Dropout1d(0.5)]
            if is_set_later:
                self.drops[0].p = 0.75

        def construct(self, x):
            return self.drops[0](x) + 10 * self.drops[1](x)

    context.set_context(mode=mode)
    net, x = Net(), Tensor(np.ones((2, 400, 3), np.float32))
    assert (net(x).asnumpy() == 11).all()
    kept = 4 if is_set_later else 2
    assert set(np.unique(net.set_train()(x).asnumpy())) == {0, kept, 20, 20 + kept}
    assert (net.set_train(False)(x).asnumpy() == 11).all()
    net.drops[0].set_train()
    assert set(np.unique(net(x).asnumpy())) == {10, 10 + kept}


def test_a_cell_takes_anything_as_auto_prefix():
    class Generator(nn.Cell):
        def __init__(self):
            super().__init__(Generator)
            self.dense = nn.Dense(2, 1)

    assert [p.name for p in Generator().get_parameters()] == ["dense.weight", "dense.bias"]


def test_an_array_does_not_take_the_place_of_a_parameter():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(2, 1)

    net = Net()
    with pytest.raises(TypeError, match='"weight" is a parameter, which a ndarray cannot replace'):
        net.dense.weight = np.zeros((1, 2), np.float32)
    assert [p.name for p in net.trainable_params()] == ["dense.weight", "dense.bias"]
    net.dense.weight = Tensor(np.zeros((1, 2), np.float32))
    assert (net.dense.weight.asnumpy() == 0).all()


def test_the_largest_along_dim_comes_with_its_place():
    x = Tensor(np.array([[1, 5, 2], [7, 0, 3]], np.float32))
    values, places = x.max(dim=1)
    assert values.asnumpy().tolist() == [5, 7] and places.asnumpy().tolist() == [1, 0]
    values, places = x.min(axis=1, return_indices=True)
    assert values.asnumpy().tolist() == [1, 0] and places.asnumpy().tolist() == [0, 1]
    assert x.max(dim=0, keepdim=True)[0].shape == (1, 3) and x.max(axis=1).asnumpy().tolist() == [5, 7] and x.max().asnumpy() == 7
