"""The package mindspore: names, defaults and errors."""
import importlib

import numpy as np
import pytest
import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, context, nn, ops
from mindspore.common.initializer import initializer


pytestmark = pytest.mark.usefixtures("fresh_context")


# The four import dialects.
@pytest.mark.parametrize("module, names", [
    ("mindspore", "Tensor Parameter Model context set_context GRAPH_MODE set_auto_parallel_context ParallelMode LossMonitor dtype"),
    ("mindspore.context", "ParallelMode GRAPH_MODE set_context"),
    ("mindspore.communication", "init get_rank get_group_size create_group"),
    ("mindspore.communication.management", "init get_rank get_group_size release"),
    ("mindspore.common.dtype", "float32 int32"),
    ("mindspore.common.initializer", "initializer Normal XavierUniform"),
    ("mindspore.dataset.transforms.c_transforms", "TypeCast"),
    ("mindspore.dataset.transforms", "TypeCast"),
    ("mindspore.dataset.vision.c_transforms", "RandomCrop RandomHorizontalFlip Resize Rescale Normalize HWC2CHW"),
    ("mindspore.dataset.transforms.vision.c_transforms", "RandomCrop HWC2CHW"),
    ("mindspore.dataset.vision", "RandomCrop HWC2CHW"),
    ("mindspore.nn", "Cell Conv2d BatchNorm2d Dense MaxPool2d Momentum SoftmaxCrossEntropyWithLogits WithLossCell"),
    ("mindspore.nn.optim.momentum", "Momentum"),
    ("mindspore.ops", "MatMul ReduceSum AllReduce AllGather shape scalar_to_array HyperMap MultitypeFuncGraph"),
    ("mindspore.ops.operations", "MatMul TensorAdd RealDiv OneHot Squeeze"),
    ("mindspore.ops.operations.comm_ops", "AllReduce ReduceOp"),
    ("mindspore.ops.functional", "shape scalar_to_array depend partial"),
    ("mindspore.ops.composite", "HyperMap MultitypeFuncGraph"),
    ("mindspore.train", "Model LossMonitor ParallelMode"),
    ("mindspore.train.model", "Model ParallelMode"),
    ("mindspore.train.callback", "LossMonitor TimeMonitor ModelCheckpoint CheckpointConfig Callback RunContext"),
    ("mindspore.train.serialization", "save_checkpoint load_checkpoint load_param_into_net"),
])
def test_names_are_where_scripts_look_for_them(module, names):
    loaded = importlib.import_module(module)
    for name in names.split():
        assert getattr(loaded, name) is not None


def test_what_is_not_there_says_so():
    with pytest.raises(AttributeError, match="mindspore.ops.MatMull is not part of Tessera's mindspore package; it has MatMul"):
        ops.MatMull
    assert not hasattr(ms, "set_pss_context")


DEFAULTS = dict(device_num=1, global_rank=0, gradients_mean=False, gradient_fp32_sync=True, loss_repeated_mean=True,
                parallel_mode="stand_alone", search_mode="dynamic_programming", auto_parallel_search_mode="dynamic_programming",
                parameter_broadcast=False, strategy_ckpt_load_file="", strategy_ckpt_save_file="", full_batch=False,
                dataset_strategy="data_parallel", enable_parallel_optimizer=False, pipeline_stages=1, grad_accumulation_step=1,
                all_reduce_fusion_config=[], enable_alltoall=False, communi_parallel_mode="all_group_parallel")


@pytest.mark.parametrize("key", DEFAULTS)
def test_the_parallel_context_has_the_references_defaults(key):
    assert context.get_auto_parallel_context(key) == DEFAULTS[key]


def test_settings_hold_until_they_are_reset():
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", mirror_mean=True, device_num=8)
    assert context.get_auto_parallel_context("gradients_mean") is True
    assert context.get_auto_parallel_context("device_num") == 8
    context.set_auto_parallel_context(strategy_ckpt_config={"save_file": "a.ckpt"})
    assert context.get_auto_parallel_context("strategy_ckpt_save_file") == "a.ckpt"
    assert context.get_auto_parallel_context("strategy_ckpt_config") == {"load_file": "", "save_file": "a.ckpt", "only_trainable_params": True}
    context.reset_auto_parallel_context()
    assert context.get_auto_parallel_context("strategy_ckpt_save_file") == ""
    assert context.get_auto_parallel_context("parallel_mode") == "stand_alone"
    assert context.get_auto_parallel_context("device_num") == 1


def test_settings_of_which_one_is_wrong_leave_all_as_they_were():
    with pytest.raises(ValueError, match="wrong"):
        context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, search_mode="wrong")
    assert context.get_auto_parallel_context("parallel_mode") == "stand_alone"
    assert context.get_auto_parallel_context("gradients_mean") is False and not context.was_set("gradients_mean")
    with pytest.raises(ValueError, match="max_device_memory"):
        context.set_context(mode=context.PYNATIVE_MODE, max_device_memory="much")
    assert context.get_context("mode") == context.GRAPH_MODE


def test_settings_that_are_dicts_and_lists_are_handed_out_as_copies():
    given = {"parallel_optimizer_threshold": 3}
    context.set_auto_parallel_context(parallel_optimizer_config=given)
    given["parallel_optimizer_threshold"] = 4
    assert context.get_auto_parallel_context("parallel_optimizer_config") == {"parallel_optimizer_threshold": 3}
    context.reset_auto_parallel_context()
    for key in ("parallel_optimizer_config", "pipeline_config", "strategy_ckpt_config"):
        before = dict(context.get_auto_parallel_context(key))
        context.get_auto_parallel_context(key)["more"] = 1
        assert context.get_auto_parallel_context(key) == before
    context.get_auto_parallel_context("all_reduce_fusion_config").append(1)
    assert context.get_auto_parallel_context("all_reduce_fusion_config") == []


def test_tensors():
    x = Tensor(np.array([[1, 2]], np.float32))
    assert isinstance(x, Tensor) and x.shape == (1, 2) and x.dtype == ms.float32
    assert Tensor(1.0, ms.float16).dtype == ms.float16 and Tensor([1, 2]).dtype == ms.int64
    assert isinstance(x + 1, Tensor) and (x + 1).asnumpy().tolist() == [[2, 3]]
    assert Tensor(shape=(2, 2), dtype=ms.float32, init="ones").init_data().asnumpy().tolist() == [[1, 1], [1, 1]]


def test_parameters():
    assert Parameter(1).dtype == ms.int32 and Parameter(1.0).dtype == ms.float32
    p = Parameter(initializer("ones", [2]), name="w", layerwise_parallel=True)
    assert isinstance(p, Parameter) and isinstance(p, Tensor) and p.name == "w" and p.layerwise_parallel and p.comm_fusion == 1
    clones = ParameterTuple([p]).clone("moments", "zeros")
    assert clones[0].name == "moments.w" and clones[0].asnumpy().tolist() == [0, 0]


def test_cells_name_their_parameters_as_checkpoints_do():
    class Net(nn.Cell):
        def __init__(self):
            super(Net, self).__init__()
            self.block = nn.SequentialCell([nn.Conv2d(3, 4, 3, has_bias=True), nn.BatchNorm2d(4)])
            self.fc = nn.Dense(4, 2)

        def construct(self, x):
            return self.fc(ops.ReduceMean()(self.block(x), (2, 3)))

    net = nn.WithLossCell(Net(), nn.MSELoss())
    assert [p.name for p in net.get_parameters()] == [
        "block.0.weight", "block.0.bias", "block.1.moving_mean", "block.1.moving_variance", "block.1.gamma", "block.1.beta",
        "fc.weight", "fc.bias"]
    assert len(net.trainable_params()) == 6
    assert net(Tensor(np.ones((2, 3, 8, 8), np.float32)), Tensor(np.zeros((2, 2), np.float32))).shape == ()


def test_maps_and_functions_of_many_kinds():
    scale = ops.MultitypeFuncGraph("scale")

    @scale.register("Number", "Tensor")
    def _scale(factor, x):
        return x * factor

    assert [t.asnumpy().tolist() for t in ops.HyperMap()(ops.partial(scale, 2.0), (Tensor([1.0]), Tensor([2.0])))] == [[2], [4]]
    with pytest.raises(TypeError, match="no form for"):
        scale("a", "b")


def dataset(rows=32):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    return {"x": x, "y": x.sum(1, keepdims=True)}


def test_training_prints_the_references_lines(capfd):
    net = nn.Dense(4, 1)
    model = ms.Model(net, nn.MSELoss(), nn.Momentum(filter(lambda p: p.requires_grad, net.get_parameters()), 0.05, 0.9))
    data = ms.dataset.NumpySlicesDataset(dataset(), shuffle=False).batch(8)
    model.train(2, data, callbacks=[ms.LossMonitor()], dataset_sink_mode=False)
    lines = capfd.readouterr().out.splitlines()
    assert [line.rpartition(" ")[0] for line in lines] == [f"epoch: {e} step: {s}, loss is" for e in (1, 2) for s in (1, 2, 3, 4)]
    model.train(2, data, callbacks=ms.LossMonitor(), dataset_sink_mode=True)
    assert [line.rpartition(" ")[0] for line in capfd.readouterr().out.splitlines()] == [f"epoch: {e} step: 4, loss is" for e in (1, 2)]


def test_callbacks_of_ones_own():
    class Mine(ms.Callback):
        seen = []

        def step_end(self, run_context):
            params = run_context.original_args()
            self.seen.append((params.cur_epoch_num, params.cur_step_num, params.batch_num, params.epoch_num, isinstance(params.net_outputs, Tensor)))
            if params.cur_step_num == 3:
                run_context.request_stop()

    net = nn.Dense(4, 1)
    model = ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.05))
    model.train(2, ms.dataset.NumpySlicesDataset(dataset(), shuffle=False).batch(16), Mine(), dataset_sink_mode=False)
    assert Mine.seen == [(1, 1, 2, 2, True), (1, 2, 2, 2, True), (2, 3, 2, 2, True)]


def test_a_data_set_that_only_has_the_protocol_trains():
    class Own:
        def get_dataset_size(self):
            return 2

        def get_repeat_count(self):
            return 1

        def create_tuple_iterator(self, num_epochs=-1, do_copy=True):
            arrays = dataset()
            return (( Tensor(arrays["x"][i:i + 16]), Tensor(arrays["y"][i:i + 16])) for i in (0, 16))

    net = nn.Dense(4, 1)
    before = net.weight.asnumpy().copy()
    ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.05)).train(1, Own(), dataset_sink_mode=False)
    assert (net.weight.asnumpy() != before).any()


def test_checkpoints_of_networks(tmp_path):
    net, other = nn.Dense(4, 2), nn.Dense(4, 2)
    net.weight.set_data(Tensor(np.arange(8, dtype=np.float32).reshape(2, 4)))
    path = str(tmp_path / "net.ckpt")
    ms.save_checkpoint(net, path)
    loaded = ms.load_checkpoint(path)
    assert set(loaded) == {"weight", "bias"} and isinstance(loaded["weight"], Parameter)
    assert ms.load_param_into_net(other, loaded) == ([], [])
    np.testing.assert_array_equal(other.weight.asnumpy(), net.weight.asnumpy())
    with pytest.raises(RuntimeError, match="should have the same shape"):
        ms.load_param_into_net(nn.Dense(4, 3), loaded)


def test_a_step_written_as_a_cell_equals_the_models():
    def net():
        return nn.Dense(4, 1)

    arrays = dataset(16)
    by_cell, by_model = net(), net()
    step = nn.TrainOneStepCell(nn.WithLossCell(by_cell, nn.MSELoss()), nn.Momentum(by_cell.trainable_params(), 0.05, 0.9))
    step.set_train()
    losses = [step(Tensor(arrays["x"]), Tensor(arrays["y"])).asnumpy().item() for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]
    model = ms.Model(by_model, nn.MSELoss(), nn.Momentum(by_model.trainable_params(), 0.05, 0.9))
    model.train(3, ms.dataset.NumpySlicesDataset(arrays, shuffle=False).batch(16))
    np.testing.assert_allclose(by_cell.weight.asnumpy(), by_model.weight.asnumpy(), rtol=1e-6)


@pytest.mark.parametrize("settings, expected", [
    (dict(), [2, 4]), (dict(get_all=True), ([2, 4], [3, 5])), (dict(get_by_list=True), ([6, 20],)),
    (dict(get_all=True, get_by_list=True), (([2, 4], [3, 5]), ([6, 20],))), (dict(sens_param=True), [20, 40]),
], ids=repr)
def test_gradients(settings, expected):
    class Product(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = Parameter(Tensor([1.0, 1.0]))

        def construct(self, x, y):
            return x * y * self.w

    def lists(value):
        return tuple(lists(item) for item in value) if isinstance(value, tuple) else value.asnumpy().tolist()

    net = Product()
    inputs = [Tensor([3.0, 5.0]), Tensor([2.0, 4.0])] + ([Tensor([10.0, 10.0])] if "sens_param" in settings else [])
    assert lists(ops.GradOperation(**settings)(net, ParameterTuple([net.w]))(*inputs)) == expected


def trained_with(rate):
    """How far the largest weight moves in one step of momentum whose rate a script sets so; and the optimizer."""
    ms.set_seed(1)
    net = nn.Dense(4, 3)
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    before = net.weight.asnumpy().copy()
    if rate is not None:
        optimizer.learning_rate = rate
    x = np.random.RandomState(1).randn(8, 4).astype(np.float32)
    data = ms.dataset.NumpySlicesDataset({"x": x, "y": x[:, :3].copy()}, shuffle=False).batch(8)
    ms.Model(net, nn.MSELoss(), optimizer).train(1, data)
    return abs(net.weight.asnumpy() - before).max(), optimizer


@pytest.mark.parametrize("zero", [0, 0.0, np.float32(0), Tensor(np.float32(0))], ids=lambda value: type(value).__name__)
def test_a_number_assigned_to_a_parameter_of_an_optimizer_is_its_value(zero):
    assert trained_with(None)[0] > 0
    moved, optimizer = trained_with(zero)
    assert moved == 0
    assert "learning_rate" in [p.name for p in optimizer.get_parameters()]


def test_a_parameter_of_an_optimizer_is_not_replaced_or_deleted():
    optimizer = nn.Momentum(nn.Dense(4, 3).trainable_params(), 0.1, 0.9)
    for value in (Parameter(Tensor(np.float32(0)), name="other"), "0.1", [0.1], None):
        with pytest.raises(TypeError, match=f'"learning_rate" is a parameter, which a {type(value).__name__} cannot replace: a number or a tensor'):
            optimizer.learning_rate = value
    with pytest.raises(TypeError, match='"learning_rate" is a parameter, which cannot be deleted'):
        del optimizer.learning_rate
    optimizer.learning_rate = optimizer.learning_rate
    assert float(optimizer.learning_rate.asnumpy()) == np.float32(0.1)


def test_a_callback_sets_the_learning_rate_of_the_steps_after_it():
    class Stops(ms.Callback):
        def step_end(self, run_context):
            run_context.original_args().optimizer.learning_rate = 0.0
            weights.append(net.weight.asnumpy().copy())

    weights, net = [], nn.Dense(4, 3)
    x = np.ones((8, 4), np.float32)
    data = ms.dataset.NumpySlicesDataset({"x": x, "y": x[:, :3].copy()}, shuffle=False).batch(4)
    ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9)).train(2, data, [Stops()], dataset_sink_mode=False)
    assert len(weights) == 4
    np.testing.assert_array_equal(weights[3], weights[0])


class Scaled(nn.Cell):
    """A loss with a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.scale = Parameter(Tensor(np.ones(3, np.float32)), name="scale")

    def construct(self, y, label):
        return ((y * self.scale - label) ** 2).mean()


class DerivedMomentum(nn.Momentum):
    def construct(self, gradients):
        return super().construct(gradients)


@pytest.mark.parametrize("optimizer", [nn.Momentum, DerivedMomentum])
@pytest.mark.parametrize("has_loss", [False, True])
def test_an_optimizer_trains_a_losss_parameters_where_it_has_them(optimizer, has_loss):
    net, loss = nn.Dense(4, 3), Scaled()
    x = np.random.RandomState(1).randn(8, 4).astype(np.float32)
    data = ms.dataset.NumpySlicesDataset({"x": x, "y": x[:, :3].copy()}, shuffle=False).batch(4)
    chosen = net.trainable_params() + (loss.trainable_params() if has_loss else [])
    ms.Model(net, loss, optimizer(chosen, 0.1, 0.9)).train(1, data)
    assert (loss.scale.asnumpy() != 1).any() == has_loss


def test_a_trained_network_goes_on_inside_another_cell(tmp_path):
    net = nn.Dense(4, 3)
    x = np.random.RandomState(1).randn(8, 4).astype(np.float32)
    data = ms.dataset.NumpySlicesDataset({"x": x, "y": x[:, :3].copy()}, shuffle=False).batch(4)
    model = ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9))
    model.train(1, data)
    trained = model.predict(Tensor(x)).asnumpy()
    probabilities = nn.SequentialCell(net, nn.Softmax())
    e = np.exp(trained - trained.max(1, keepdims=True))
    np.testing.assert_allclose(probabilities(Tensor(x)).asnumpy(), e / e.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(ms.Model(probabilities).predict(Tensor(x)).asnumpy(), probabilities(Tensor(x)).asnumpy())
    ms.save_checkpoint(probabilities, str(tmp_path / "net.ckpt"))
    del model
    saved = ms.load_checkpoint(str(tmp_path / "net.ckpt"))
    np.testing.assert_array_equal(saved["0.weight"].asnumpy(), net.weight.asnumpy())


def test_settings_within_settings_that_have_no_effect_are_said(monkeypatch):
    monkeypatch.setattr(context, "_said", said := set())
    ms.communication.init()
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True, dataset_strategy=((1, 1), (1,)),
                                      parallel_optimizer_config={"gradient_accumulation_shard": True})
    ms.Model(nn.Dense(4, 3))
    assert {line.split(" has no effect")[0] for line in said} == {
        "gradient_accumulation_shard of parallel_optimizer_config", "dataset_strategy=((1, 1), (1,))"}


def test_one_tensor_is_no_sequence_of_tensors_for_concat():
    with pytest.raises(TypeError, match="a sequence of tensors is needed, got one Tensor"):
        ops.concat(Tensor([[1.0, 2.0], [3.0, 4.0]], ms.float32))


def test_operators_take_their_arguments_by_the_references_names():
    x, y = (Tensor(np.array(rows, np.float32)) for rows in ([[1, -2], [3, 4]], [[2, 2], [2, 2]]))
    for made, wanted in [(ops.matmul(input=x, other=y), [[-2, -2], [14, 14]]), (ops.concat(tensors=(x, y), axis=1), [[1, -2, 2, 2], [3, 4, 2, 2]]),
                         (ops.expand_dims(input_x=x, axis=0), [[[1, -2], [3, 4]]]), (ops.transpose(input=x, dims=(1, 0)), [[1, 3], [-2, 4]]),
                         (ops.select(condition=x > 0, input=x, other=y), [[1, 2], [3, 4]]), (ops.pow(input=x, exponent=2), [[1, 4], [9, 16]]),
                         (ops.remainder(input=x, other=y), [[1, 0], [1, 0]]), (ops.swapdims(x, dim0=0, dim1=1), [[1, 3], [-2, 4]]),
                         (ops.row_stack(tensors=(x, y)), [[1, -2], [3, 4], [2, 2], [2, 2]]), (ops.abs(input=x), [[1, 2], [3, 4]]),
                         (ops.subtract(input=x, other=y, alpha=3), [[-5, -8], [-3, -2]]), (x.less(other=y), [[True, True], [False, False]])]:
        assert made.asnumpy().tolist() == wanted
    with pytest.raises(TypeError, match="unexpected keyword argument 'foo'"):
        ops.add(x, foo=y)


def test_quotients_are_rounded_as_is_asked():
    for dtype in (np.float32, np.int32):
        x, y = Tensor(np.array([7, -7], dtype)), Tensor(np.array([2, 2], dtype))
        assert ops.div(x, y, rounding_mode="floor").asnumpy().tolist() == x.div(y, rounding_mode="floor").asnumpy().tolist() == [3, -4]
        assert ops.div(x, y, rounding_mode="trunc").asnumpy().tolist() == [3, -3]
        assert ops.div(x, y).asnumpy().tolist() == [3.5, -3.5]
    with pytest.raises(ValueError, match="'rounding_mode' must be"):
        ops.div(x, y, rounding_mode="ceil")


def test_softplus_has_a_slope_and_a_threshold():
    x = np.linspace(-4, 4, 9).astype(np.float32)
    np.testing.assert_allclose(ops.softplus(Tensor(x)).asnumpy(), np.log1p(np.exp(x)), rtol=1e-6)
    np.testing.assert_allclose(ops.softplus(Tensor(x), 2, 3).asnumpy(), np.where(2 * x > 3, x, np.log1p(np.exp(2 * x)) / 2), rtol=1e-6)


def test_a_class_derived_from_layer_norm_has_its_operator():

    class Derived(nn.LayerNorm):

        def construct(self, x):
            return self.layer_norm(x, self.gamma, self.beta)[0]

    x = Tensor(np.random.default_rng(1).standard_normal((2, 3), np.float32))
    np.testing.assert_allclose(Derived((3, ), epsilon=1e-6)(x).asnumpy(), nn.LayerNorm((3, ), epsilon=1e-6)(x).asnumpy(), rtol=1e-6)
