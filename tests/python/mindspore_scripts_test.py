"""What published scripts do that tutorials do not: gradients of one's own, optimizers as cells, callbacks that are context managers."""
import os
import signal
import subprocess
import sys

import mindspore as ms
import mindspore.common.initializer as init
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from regression import RATE, ByHand, assert_equal, batches, regression, rows

pytestmark = pytest.mark.usefixtures("fresh_context")
X, Y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
MODES = pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])


def of_inputs(net, *inputs):
    return [g.asnumpy().tolist() for g in ops.GradOperation(get_all=True)(net)(*inputs)]


# --- a cell's own bprop


class Scaled(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor([2.0, 3.0]), name="w")

    def construct(self, x, y):
        return x * y * self.w

    def bprop(self, x, y, out, dout):
        return dout * 10 + out, y * 100


class Around(nn.Cell):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.v = Parameter(Tensor([1.0, 1.0]), name="v")

    def construct(self, x, y):
        return (self.inner(x * self.v, y) * 2).sum()


@MODES
def test_a_cells_own_bprop_is_its_gradient(mode):
    ms.set_context(mode=mode)
    net = Around(Scaled())
    assert of_inputs(net, X, Y) == [[26.0, 44.0], [300.0, 400.0]]
    weights = ParameterTuple(net.trainable_params())
    assert [p.name for p in weights] == ["v", "inner.w"]
    found = ops.GradOperation(get_by_list=True)(net, weights)(X, Y)
    assert [g.asnumpy().tolist() for g in found] == [[26.0, 88.0], [0.0, 0.0]]  # what passes by bprop has no gradient


class Square(nn.Cell):
    def construct(self, x):
        return x * x

    def bprop(self, x, out, dout):
        return (dout * 7,)


class PlusSquare(nn.Cell):
    def __init__(self):
        super().__init__()
        self.square = Square()

    def construct(self, x):
        return self.square(x) + x


class OwnPlusSquare(PlusSquare):
    def bprop(self, x, out, dout):
        return (dout * 11,)


class TwoResults(nn.Cell):
    def construct(self, x, y):
        return x * y, x + y

    def bprop(self, x, y, out, dout):
        return dout[0] * out[1], dout[1] * out[0]


class OfTwo(nn.Cell):
    def __init__(self, takes_both):
        super().__init__()
        self.both, self.takes_both = TwoResults(), takes_both

    def construct(self, x, y):
        a, b = self.both(x, y)
        return a * 3 + b * 5 if self.takes_both else a * 3


@MODES
def test_own_gradients_nest_and_see_all_results(mode):
    ms.set_context(mode=mode)
    assert of_inputs(PlusSquare(), X) == [[8.0, 8.0]]
    assert of_inputs(OwnPlusSquare(), X) == [[11.0, 11.0]]
    assert of_inputs(OfTwo(True), X, Y) == [[12.0, 18.0], [15.0, 40.0]]
    assert of_inputs(OfTwo(False), X, Y) == [[12.0, 18.0], [0.0, 0.0]]


def test_an_own_gradient_reads_parameters_and_takes_them_as_inputs():
    class Linear(nn.Cell):
        def construct(self, x, w):
            return x * w

        def bprop(self, x, w, out, dout):
            return dout * self.scale, dout * 5

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.linear, self.w = Linear(), Parameter(Tensor([2.0, 3.0]))
            self.linear.scale = Parameter(Tensor([4.0, 4.0]))

        def construct(self, x):
            return self.linear(x, self.w).sum()

    net = Net()
    of_x, of_w = ops.value_and_grad(net, 0, [net.w])(X)[1]
    assert of_x.asnumpy().tolist() == [4.0, 4.0] and of_w[0].asnumpy().tolist() == [5.0, 5.0]


def test_an_own_gradient_trains_in_a_model_and_in_half_types():
    class Doubled(nn.Cell):
        def construct(self, x):
            return x * 1.0

        def bprop(self, x, out, dout):
            return (dout * 2,)

    def trained(doubled, rate, **settings):
        net = nn.Dense(4, 1, weight_init="ones", bias_init="zeros")
        cell = nn.SequentialCell(net, Doubled()) if doubled else nn.SequentialCell(net)
        model = ms.Model(cell, nn.MSELoss(), nn.SGD(cell.trainable_params(), rate), **settings)
        model.train(2, rows(), dataset_sink_mode=False)
        return net.weight.asnumpy()

    np.testing.assert_allclose(trained(True, RATE), trained(False, 2 * RATE), rtol=1e-6)
    np.testing.assert_allclose(trained(True, RATE, amp_level="O3"), trained(False, 2 * RATE, amp_level="O3"), rtol=1e-2)


@pytest.mark.parametrize("result, words", [
    (lambda x, dout: (dout, dout), "a gradient for each of the 1 inputs, it returned 2"),
    (lambda x, dout: "no", "must return a gradient for each of the 1 inputs|str"),
    (lambda x, dout: (ops.ones((3,)),), r"gradient of shape \[3\] for input 0 of shape \[2\]"),
])
def test_an_own_gradient_that_does_not_fit_is_refused(result, words):
    class Wrong(nn.Cell):
        def construct(self, x):
            return x * 2

        def bprop(self, x, out, dout):
            return result(x, dout)

    with pytest.raises((ValueError, TypeError), match=words):
        of_inputs(Wrong(), X)


# --- names


class Named(nn.Cell):
    def __init__(self, name="w"):
        super().__init__()
        self.weight = Parameter(Tensor([2.0]), name=name)
        self.plain = Parameter(Tensor([2.0]))


class Listed(nn.Cell):
    def __init__(self):
        super().__init__()
        self.pair = ParameterTuple([Parameter(Tensor([1.0]), name="a"), Parameter(Tensor([1.0]), name="b")])
        self.c = Named("fc.weight")


class Nested(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a, self.top = Named(), Parameter(Tensor([1.0]), name="explicit")
        self.both = nn.SequentialCell(Named(), Named("q"))


class Tied(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3, 2)
        self.head = Named()
        self.head.tied = self.table.embedding_table


class Head(nn.Cell):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight


class TiedLater(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3, 2)
        self.head = Head(self.table.embedding_table)


def test_a_prefix_names_parameters_by_their_path_from_the_cell_on():
    def names(cell):
        return [p.name for p in cell.get_parameters()]

    net = nn.SequentialCell(nn.Dense(2, 2), nn.SequentialCell(nn.Dense(2, 2, has_bias=False)))
    net.update_parameters_name("teacher.")
    assert names(net) == ["teacher.0.weight", "teacher.0.bias", "teacher.1.0.weight"] == list(net.parameters_dict())
    net[1].update_parameters_name("z.")
    assert names(net) == ["teacher.0.weight", "teacher.0.bias", "z.0.weight"]
    net.update_parameters_name("q.", recurse=False)  # it has none of its own
    assert names(net) == ["teacher.0.weight", "teacher.0.bias", "z.0.weight"]
    assert names(nn.WithLossCell(net, nn.MSELoss())) == ["teacher.0.weight", "teacher.0.bias", "z.0.weight"]
    assert names(nn.CellList([net])) == ["0.0.weight", "0.0.bias", "0.1.0.weight"]


def test_names_of_nested_parameters_are_attribute_paths():
    def names(cell):
        return [p.name for p in cell.get_parameters()]

    def keys(cell):
        return [name for name, _ in cell.parameters_and_names()]

    net = Nested()
    inner = ["a.weight", "a.plain", "both.0.weight", "both.0.plain", "both.1.weight", "both.1.plain"]
    assert names(net) == ["explicit", *inner] and keys(net) == ["top", *inner] and list(net.parameters_dict()) == names(net)
    assert names(nn.WithLossCell(net, nn.MSELoss())) == ["explicit", *inner]
    assert names(nn.CellList([net])) == ["0.top", *("0." + name for name in inner)]
    assert names(Listed()) == keys(Listed()) == ["a", "b", "c.weight", "c.plain"]
    assert names(nn.CellList([Listed()])) == ["0.a", "0.b", "0.c.weight", "0.c.plain"]
    assert names(Tied()) == ["table.embedding_table", "head.weight", "head.plain"]
    assert names(TiedLater()) == ["head.weight"] and keys(TiedLater()) == ["table.embedding_table"]


# --- optimizers are cells


class Normed(nn.Cell):
    def __init__(self):
        super().__init__()
        self.c, self.bn, self.f, self.d = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Dense(32, 2)

    def construct(self, x):
        return self.d(self.f(self.bn(self.c(x))))


WEIGHTS = ["c.weight", "bn.gamma", "bn.beta", "d.weight", "d.bias"]
STATISTICS = ["bn.moving_mean", "bn.moving_variance"]


def slots(*prefixes):
    return [f"{prefix}.{name}" for prefix in prefixes for name in WEIGHTS]


@pytest.mark.parametrize("make, first, rest", [
    (lambda p: nn.Momentum(p, 0.1, 0.9), ["global_step", "learning_rate"], ["momentum", *slots("moments")]),
    (lambda p: nn.Adam(p, 0.1), ["global_step", "learning_rate"], ["beta1_power", "beta2_power", *slots("moment1", "moment2")]),
    (lambda p: nn.Lamb(p, 0.1), ["global_step", "learning_rate"], slots("lamb_m", "lamb_v")),
    (lambda p: nn.Momentum(p, [0.1, 0.2], 0.9), ["global_step"], ["momentum", *slots("moments"), "learning_rate"]),
    (lambda p: nn.Momentum(p, nn.CosineDecayLR(0.01, 0.1, 5), 0.9), ["global_step"], ["momentum", *slots("moments")]),
    (lambda p: nn.Momentum([{"params": p[:1], "lr": 0.2}, {"params": p[1:]}], 0.1, 0.9),
     ["global_step", "learning_rate", "learning_rate_group_0"], ["momentum", *slots("moments")]),
])
def test_a_training_steps_checkpoint_has_the_states_in_the_references_order(tmp_path, make, first, rest):
    net = Normed()
    optimizer = make(net.trainable_params())
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    assert isinstance(optimizer, nn.Cell) and isinstance(optimizer, nn.Optimizer)
    assert [p.name for p in optimizer.get_parameters()] == list(optimizer.parameters_dict()) == first + WEIGHTS + rest
    assert [p.name for p in step.get_parameters()] == WEIGHTS + STATISTICS + first + rest
    path = str(tmp_path / "step.ckpt")
    ms.save_checkpoint(step, path)
    assert list(ms.load_checkpoint(path)) == WEIGHTS + STATISTICS + first + rest


def test_a_training_step_resumes_from_its_checkpoint(tmp_path):
    path, parts = str(tmp_path / "step.ckpt"), batches()

    def step():
        net, with_loss, optimizer = regression()
        return net, nn.TrainOneStepCell(with_loss, optimizer)

    net, first = step()
    for x, y in parts[:3]:
        first(Tensor(x), Tensor(y))
    ms.save_checkpoint(first, path)
    assert ms.load_checkpoint(path)["global_step"].asnumpy().tolist() == [3]
    resumed, second = step()
    assert ms.load_param_into_net(second, ms.load_checkpoint(path)) == ([], [])
    for x, y in parts[3:]:
        second(Tensor(x), Tensor(y))
    assert_equal(resumed, ByHand().train(parts, 1))


def test_a_models_optimizer_shows_its_states_and_takes_others(tmp_path):
    net, _, optimizer = regression()
    ms.Model(net, nn.MSELoss(), optimizer).train(1, rows(), dataset_sink_mode=False)
    assert optimizer.global_step.asnumpy().tolist() == [6]
    by_hand = ByHand().train(batches(), 1)
    np.testing.assert_allclose(optimizer.moments[0].asnumpy(), by_hand.moments[0], rtol=1e-4)
    # A model that is made later goes on from there.
    optimizer.learning_rate.set_data(Tensor(0.0))
    model = ms.Model(net, nn.MSELoss(), optimizer)
    model.train(1, rows(), dataset_sink_mode=False)
    assert optimizer.global_step.asnumpy().tolist() == [12]
    assert_equal(net, by_hand)


@MODES
def test_an_optimizer_is_called_in_a_plain_loop(mode):
    ms.set_context(mode=mode)
    net, with_loss, optimizer = regression()
    gradients_of = ops.value_and_grad(with_loss, None, optimizer.parameters)
    for x, y in batches():
        _, gradients = gradients_of(Tensor(x), Tensor(y))
        optimizer(gradients)
    assert_equal(net, ByHand().train(batches(), 1))
    assert optimizer.global_step.asnumpy().tolist() == [6]


class ByScript(nn.Optimizer):
    """Momentum as a script derives it."""

    def __init__(self, params, learning_rate, momentum=0.9, **settings):
        super().__init__(learning_rate, params, **settings)
        self.momentum = momentum
        self.moments = self.parameters.clone(prefix="moments", init="zeros")

    def construct(self, gradients):
        rate = self.get_lr()
        gradients = self.scale_grad(self.gradients_centralization(self.decay_weight(gradients)))
        for parameter, moment, gradient in zip(self.parameters, self.moments, gradients):
            value = moment * self.momentum + gradient
            ops.assign(moment, value)
            ops.assign(parameter, parameter - rate * value)
        self.assignadd(self.global_step, self.global_step_increase_tensor)
        return True


def with_step(make):
    net, with_loss, _ = regression()
    step = nn.TrainOneStepCell(with_loss, make(net.trainable_params()))
    for x, y in batches():
        step(Tensor(x), Tensor(y))
    return net


def with_model(make):
    net, _, _ = regression()
    ms.Model(net, nn.MSELoss(), make(net.trainable_params())).train(1, rows(), dataset_sink_mode=False)
    return net


@pytest.mark.parametrize("train", [with_step, with_model])
@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1, "loss_scale": 2.0}, {"rate": [0.05, 0.02, 0.01]}, {"rate": nn.CosineDecayLR(0.01, 0.05, 6)}])
def test_a_derived_optimizer_trains_as_one_of_ours(train, settings):
    settings = dict(settings)
    rate = settings.pop("rate", RATE)
    own, ours = train(lambda p: ByScript(p, rate, **settings)), train(lambda p: nn.Momentum(p, rate, 0.9, **settings))
    np.testing.assert_allclose(own.weight.asnumpy(), ours.weight.asnumpy(), rtol=1e-5)
    np.testing.assert_allclose(own.bias.asnumpy(), ours.bias.asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make, decays", [(nn.Momentum, False), (nn.FTRL, True)])
def test_a_name_that_contains_beta_spares_its_parameter_weight_decay_as_in_the_reference(make, decays):
    def step(decay):
        parameter = Parameter(Tensor([1.0, 2.0], ms.float32), name="beta_head.weight")
        make([parameter], learning_rate=0.1, weight_decay=decay, **({"momentum": 0.9} if make is nn.Momentum else {}))((Tensor([0.5, 0.5], ms.float32), ))
        return parameter.asnumpy().tolist()

    assert (step(0.5) != step(0.0)) == decays


def test_setting_what_an_optimizer_has_read_is_refused():
    class Named(nn.Adam):
        pass

    class Own(nn.Adam):
        def __init__(self, params):
            super().__init__(params)
            self.weight_decay = 0.5

    for make in (nn.Adam, Named):
        adam = make(nn.Dense(2, 1).trainable_params())
        for name in ("weight_decay", "use_nesterov", "beta1", "eps"):
            with pytest.raises(AttributeError, match=f"an attribute '{name}' would change nothing.*{make.__name__}.params, {name}=...."):
                setattr(adam, name, 0.5)
        adam.note = 1
        adam.learning_rate.set_data(Tensor(0.5, ms.float32))
    assert Own(nn.Dense(2, 1).trainable_params()).weight_decay == 0.5


@pytest.mark.parametrize("train", [with_step, with_model])
def test_an_optimizer_derived_from_ours_does_what_it_adds(train):
    class Halved(nn.Momentum):
        def construct(self, gradients):
            return super().construct(tuple(g * 0.5 for g in gradients))

    halved, ours = train(lambda p: Halved(p, RATE, 0.9)), train(lambda p: nn.Momentum(p, RATE / 2, 0.9))
    np.testing.assert_allclose(halved.weight.asnumpy(), ours.weight.asnumpy(), rtol=1e-5)


def test_a_derived_optimizers_groups_have_rates_of_their_own():
    net = nn.Dense(2, 1)
    optimizer = ByScript([{"params": [net.weight], "lr": 0.2}, {"params": [net.bias]}], 0.1)
    assert [round(float(r.asnumpy()), 6) for r in optimizer.get_lr()] == [0.2, 0.1]
    assert optimizer.get_lr_parameter(net.weight).name == "learning_rate_group_0"
    assert [p.name for p in optimizer.get_lr_parameter([net.bias])] == ["learning_rate"]
    with pytest.raises(ValueError, match="is not in optimizer"):
        optimizer.get_lr_parameter(Parameter(Tensor([1.0]), name="other"))


def test_a_derived_optimizer_finds_the_words_of_the_references_own():
    from mindspore.nn.optim.optimizer import opt_init_args_register

    class Own(nn.Optimizer):
        @opt_init_args_register
        def __init__(self, params, learning_rate, momentum=0.9, weight_decay=0.0):
            super().__init__(learning_rate, params, weight_decay, loss_scale=2.0)

        @nn.Optimizer.target.setter
        def target(self, value):
            self._set_base_target(value)

    net = nn.Dense(2, 1)
    own = Own(net.trainable_params(), 0.1, weight_decay=0.25)
    assert own.cls_name == "Own" and own.init_args == {"momentum": 0.9, "weight_decay": 0.25} and own.init_learning_rate == 0.1
    assert own._parameters is own.parameters and own.optim_filter == own.decay_flags == (True, True) and not own.use_parallel
    assert own.weight_decay.asnumpy() == 0.5 and own.get_weight_decay() is own.weight_decay and own.reciprocal_scale.asnumpy() == 0.5
    assert not own._is_dynamic_lr_or_weight_decay() and Own(net.trainable_params(), [0.1, 0.2])._is_dynamic_lr_or_weight_decay()
    grouped = Own([{"params": [net.weight], "lr": [0.3, 0.2]}, {"params": [net.bias], "weight_decay": 0.5}], 0.1)
    assert [float(decay.asnumpy()) for decay in grouped.weight_decay] == [0, 1] and grouped.decay_flags == (False, True)
    assert [round(float(rate(grouped.global_step).asnumpy()), 6) for rate in grouped.learning_rate] == [0.3, 0.1]
    own.target = "CPU"
    with pytest.raises(ValueError, match="'target' cannot be set to 'GPU' in the 'CPU' environment"):
        own.target = "GPU"


def test_a_form_for_tensors_may_decide_by_a_value():
    grow = ops.MultitypeFuncGraph("grow")

    @grow.register("Tensor", "Tensor")
    def _(x, y):
        if ops.reduce_sum(x) == 0:
            x = y
        return x + y

    class Grown(nn.Cell):
        def construct(self, x, y):
            return ops.HyperMap()(grow, (x, y), (y, y))[0]

    zeros, ones = Tensor([0.0, 0.0], ms.float32), Tensor([1.0, 1.0], ms.float32)
    assert Grown()(zeros, ones).asnumpy().tolist() == [2, 2] and Grown()(2 * ones, ones).asnumpy().tolist() == [3, 3]


# --- callbacks


class Noted(ms.Callback):
    def __init__(self, notes, error=None):
        self.notes, self.error = notes, error

    def __enter__(self):
        self.notes.append("enter")
        return self

    def __exit__(self, kind, *_):
        self.notes.append(f"exit {kind.__name__ if kind else None}")

    def on_train_begin(self, run_context):
        self.notes.append("begin")

    def on_train_step_end(self, run_context):
        if self.error:
            raise self.error


def test_callbacks_are_entered_and_left():
    net, with_loss, optimizer = regression()
    model = ms.Model(net, nn.MSELoss(), optimizer, metrics={"loss": nn.Loss()})
    notes = []
    model.train(1, rows(), [Noted(notes)], dataset_sink_mode=False)
    assert notes == ["enter", "begin", "exit None"]
    notes.clear()
    model.eval(rows(), [Noted(notes)], dataset_sink_mode=False)
    assert notes == ["enter", "exit None"]
    notes.clear()
    with pytest.raises(KeyError):
        model.train(1, rows(), Noted(notes, KeyError("on purpose")), dataset_sink_mode=False)
    assert notes == ["enter", "begin", "exit KeyError"]
    notes.clear()
    ms.Model(nn.TrainOneStepCell(with_loss, optimizer)).train(1, rows(), Noted(notes), dataset_sink_mode=False)
    assert notes == ["enter", "begin", "exit None"]


# --- layers, operators, tensors


def test_batch_norm_takes_tensors():
    norm = nn.BatchNorm2d(2, gamma_init=Tensor([1.0, 2.0]), beta_init=Tensor([3.0, 4.0]), moving_mean_init=init.initializer("ones", [2]),
                          moving_var_init=Tensor(np.array([5.0, 6.0], np.float32)))
    assert {p.name.rpartition(".")[2]: p.asnumpy().tolist() for p in norm.get_parameters()} == {
        "gamma": [1.0, 2.0], "beta": [3.0, 4.0], "moving_mean": [1.0, 1.0], "moving_variance": [5.0, 6.0]}
    with pytest.raises(ValueError, match=r"'init' shape \[3\] and the 'shape' \[2\]"):
        nn.BatchNorm2d(2, beta_init=Tensor([3.0, 4.0, 5.0]))


class MeanLoss(nn.Cell):
    def __init__(self):
        super().__init__()
        self.d = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")

    def construct(self, x, y):
        return ((self.d(x) - y)**2).mean()


def test_one_stage_takes_its_micro_batches_in_turn():
    x, y = Tensor(np.arange(16).reshape(8, 2).astype(np.float32)), Tensor(np.ones((8, 1), np.float32))
    net = MeanLoss()
    net.d.pipeline_stage = 3
    net.d.weight.add_pipeline_stage(2)
    assert net.d.pipeline_stage == 3
    whole = float(net(x, y).asnumpy())
    assert float(nn.PipelineCell(net, 4)(x, y).asnumpy()) == pytest.approx(4 * whole)
    assert float(nn.MicroBatchInterleaved(net, 2)(x, y).asnumpy()) == pytest.approx(2 * whole)
    assert [p.name for p in nn.PipelineCell(net, 4).get_parameters()] == ["d.weight", "d.bias"]
    with pytest.raises(ValueError, match=r"'loss_fn' must be None beside nn.PipelineCell.*nn.WithLossCell\(network, loss_fn\)"):
        ms.Model(nn.PipelineCell(net.d, 4), nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9))
    with pytest.raises(ValueError, match=r"input\(8\) must be divided by micro size\(3\)"):
        nn.PipelineCell(net, 3)(x, y)


def test_one_rank_trains_the_parameters_of_all_stages():
    net = nn.WithLossCell(nn.SequentialCell(nn.Dense(2, 2), nn.Dense(2, 1)), nn.MSELoss())
    net.backbone_network[0].pipeline_stage, net.backbone_network[1].pipeline_stage = 0, 1
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True, pipeline_stages=2)
    try:
        assert len(net.infer_param_pipeline_stage()) == len(net.trainable_params()) == 4
        net.trainable_params()[0].add_pipeline_stage(1)  # it is on the stages whose cells read it
    finally:
        ms.reset_auto_parallel_context()


def generated(sizes, has_length):
    made = [(np.full((n, 4), i, np.float32), np.full((n, 1), i, np.float32)) for i, n in enumerate(sizes)]
    return made if has_length else lambda: iter(made)


@pytest.mark.parametrize("has_length", [True, False])
def test_rows_of_a_data_set_without_batch_are_batches(has_length):
    net, _, optimizer = regression()
    data = ds.GeneratorDataset(generated([8, 8, 8], has_length), ["x", "y"], shuffle=False)
    steps = []

    class Steps(ms.Callback):
        def on_train_step_end(self, run_context):
            steps.append(run_context.original_args().cur_step_num)

    ms.Model(net, nn.MSELoss(), optimizer).train(2, data, Steps(), dataset_sink_mode=False)
    assert steps == [1, 2, 3, 4, 5, 6]
    by_hand = ByHand().train(generated([8, 8, 8] * 2, True)[:3] * 2, 1)
    assert_equal(net, by_hand)


def test_rows_that_are_no_batches_are_refused():
    net, _, optimizer = regression()
    model = ms.Model(net, nn.MSELoss(), optimizer)
    with pytest.raises(ValueError, match="gives its rows as batches"):
        model.train(1, ds.NumpySlicesDataset({"x": np.ones((8, 4), np.float32), "y": np.ones(8, np.float32)}), dataset_sink_mode=False)


def test_slices_walk_backwards():
    values = np.arange(24).reshape(2, 3, 4).astype(np.float32)
    x = Tensor(values)
    for key in (np.s_[::-1], np.s_[:, ::-1], np.s_[0, ::-2], np.s_[:, 2:0:-1, 3::-2], np.s_[..., ::-1], np.s_[:, -1:-4:-1], np.s_[:, 5:-9:-2]):
        np.testing.assert_array_equal(x[key].asnumpy(), values[key])
    gradient = ops.grad(lambda t: (t[:, ::-2] * t[:, :2]).sum())(x).asnumpy()
    np.testing.assert_array_equal(gradient[:, 0], values[:, 2] + values[:, 1])
    assert ops.StridedSlice()(x, (1, 2, 3), (0, 0, 0), (-1, -1, -1)).shape == (1, 2, 3)


def test_dtypes_are_called_as_in_the_reference():
    assert [str(t) for t in (ms.float32, ms.int32, ms.bool_, ms.float16, ms.bfloat16, ms.float64, ms.uint8)] == [
        "Float32", "Int32", "Bool", "Float16", "BFloat16", "Float64", "UInt8"]
    assert f"{ms.float32}" == "Float32" and repr(ms.int64) == "mindspore.int64"


def test_the_initializers_are_a_module():
    assert init.initializer("ones", [2]).init_data().asnumpy().tolist() == [1.0, 1.0] and isinstance(init.Normal(), init.Initializer)


def test_attributes_may_be_set_before_the_cell_is_made():
    class Early(nn.Cell):
        def __init__(self, part=None):
            self.factor = 3
            if part is not None:
                self.part = part
            super().__init__()
            self.other = 2

        def construct(self, x):
            return x * self.factor * self.other

    assert Early()(Tensor([1.0])).asnumpy().tolist() == [6.0]
    for part in (nn.ReLU(), Parameter(Tensor([1.0]))):
        with pytest.raises(AttributeError, match=r"Early: super\(\).__init__\(\) must be called before \"part\""):
            Early(part)


def test_cells_called_with_tuples_look_at_the_values():
    class Sum(nn.Cell):
        def construct(self, pair, scale=None):
            return pair[0] + pair[1] * (1.0 if scale is None else scale["by"])

    net = Sum()
    assert net((X, Y)).asnumpy().tolist() == [4.0, 6.0] and net((Y, Y)).asnumpy().tolist() == [6.0, 8.0]
    assert net([X, Y], scale={"by": Tensor(2.0)}).asnumpy().tolist() == [7.0, 10.0]
    assert net([X, Y], scale={"by": Tensor(3.0)}).asnumpy().tolist() == [10.0, 14.0]


INTERRUPTED = """
import os, signal, sys, threading
import numpy as np
import mindspore as ms
from mindspore import nn

net = nn.Dense(4, 1)
data = ms.dataset.NumpySlicesDataset({"x": np.ones((8, 4), np.float32), "y": np.ones((8, 1), np.float32)}).batch(8).repeat(100000)


class Said(ms.Callback):
    def on_train_begin(self, run_context):
        print("begun", flush=True)


try:
    ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1)).train(1000, data, Said())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_an_interrupt_ends_a_training_without_callbacks_of_steps():
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[0] == "interrupted\n" and process.returncode == 0
