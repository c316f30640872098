"""The package mindspore: arguments that the reference's later releases have, each with its meaning or refused by name."""
import math
import re

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import (Constant, Dirac, HeNormal, HeUniform, Normal, Orthogonal, TruncatedNormal, Uniform, VarianceScaling, XavierNormal,
                                          XavierUniform, initializer)
from regression import batches, regression

pytestmark = pytest.mark.usefixtures("fresh_context")

X = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))


def test_a_step_may_give_its_gradients_by_the_names_of_parameters():
    net, with_loss, optimizer = regression()
    x, y = (Tensor(rows) for rows in batches()[0])
    wanted = ms.grad(lambda x, y: with_loss(x, y), None, optimizer.parameters)(x, y)
    step = nn.TrainOneStepCell(with_loss, optimizer, return_grad=True)
    loss, gradients = step(x, y)
    assert loss.shape == () and list(gradients) == [p.name for p in net.trainable_params()]
    for gradient, right in zip(gradients.values(), wanted):
        np.testing.assert_allclose(gradient.asnumpy(), right.asnumpy(), rtol=1e-5)
    with pytest.raises(ValueError, match="'sens' can not be 0"):
        nn.TrainOneStepCell(with_loss, optimizer, 0)


@pytest.mark.parametrize("settings", [dict(), dict(capture_mode="trace"), dict(jit_level="O1", backend="ms_backend", dynamic=1, fullgraph=True),
                                      dict(input_signature=None, jit_config=ms.JitConfig("O1")), dict(infer_boost="on")])
def test_a_compiled_function_takes_the_settings_of_every_release(settings):
    @ms.jit(**settings)
    def scaled(x, factor=2.0, *, shift=0.0):
        if ops.reduce_sum(x) > 100:
            x = -x
        return x * factor + shift

    np.testing.assert_array_equal(scaled(X).asnumpy(), X.asnumpy() * 2)
    np.testing.assert_array_equal(scaled(X, shift=Tensor(1.0)).asnumpy(), X.asnumpy() * 2 + 1)
    np.testing.assert_array_equal(ms.jit(lambda x: x + 1, **settings)(X).asnumpy(), X.asnumpy() + 1)


def test_a_method_that_is_compiled_decides_by_values():
    class Decides(nn.Cell):
        @ms.jit(jit_level="O1")
        def turned(self, x):
            if x.sum() > 0:
                return x
            return -x

    cell = Decides()
    np.testing.assert_array_equal(cell.turned(-X).asnumpy(), X.asnumpy())
    np.testing.assert_array_equal(cell.turned(x=X).asnumpy(), X.asnumpy())


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_a_compiled_cell_is_the_cell(mode):
    ms.set_context(mode=mode)
    seen = []

    class Seen(nn.Cell):
        def construct(self, x):
            seen.append(type(x).__name__)
            return x * 2

    cell = Seen()
    assert ms.jit(cell) is cell
    for _ in range(2):
        np.testing.assert_array_equal(cell(X).asnumpy(), X.asnumpy() * 2)
    assert seen == ["Value"]


def test_places_in_order():
    ordered, values = Tensor([3.0, 1.0, 2.0]), Tensor([[2.0, 0.0], [3.0, 4.0]])
    places = Tensor([1, 2, 0])
    assert ops.searchsorted(ordered, values, sorter=places).asnumpy().tolist() == [[1, 0], [2, 3]]
    assert ops.searchsorted(ordered, values, sorter=places, side="right", out_int32=True).asnumpy().tolist() == [[2, 0], [3, 3]]
    assert ops.take(X, index=Tensor([5, 0])).asnumpy().tolist() == ops.take(X, indices=Tensor([5, 0])).asnumpy().tolist() == [5, 0]
    assert ops.take(X, Tensor([1]), 0).asnumpy().tolist() == [[3, 4, 5]]


def test_the_time_for_data_is_said(capfd):
    def lines(**settings):
        net, with_loss, optimizer = regression()
        rows = ds.NumpySlicesDataset(tuple(np.concatenate(columns) for columns in zip(*batches())), ["x", "y"], shuffle=False).batch(8)
        ms.Model(with_loss, optimizer=optimizer).train(2, rows, ms.TimeMonitor(data_time=True), **settings)
        return [line for line in capfd.readouterr().out.splitlines() if "epoch time" in line]

    stepwise = lines(dataset_sink_mode=False)
    assert len(stepwise) == 2 and all(re.search(r"per step time: +\d+\.\d{3} ms \(data time: +\d+\.\d{3} ms\)$", line) for line in stepwise)
    assert not any("data time" in line for line in lines(dataset_sink_mode=True))


def test_the_time_of_an_epoch_is_said_as_in_the_reference(capfd):
    net, with_loss, optimizer = regression()
    rows = ds.NumpySlicesDataset(tuple(np.concatenate(columns) for columns in zip(*batches())), ["x", "y"], shuffle=False).batch(8)
    ms.Model(with_loss, optimizer=optimizer).train(1, rows, ms.TimeMonitor(data_size=1000))
    words = re.fullmatch(r"Train epoch time: +(\d+\.\d{3}) ms, per step time: +(\d+\.\d{3}) ms\n", capfd.readouterr().out)
    assert float(words[1]) == pytest.approx(len(batches()) * float(words[2]), abs=0.01)  # the data set's size, not data_size


def test_a_parameter_is_written_as_in_the_reference():
    weight = ms.Parameter(Tensor(np.zeros((2, 3)), ms.float16), name="w", requires_grad=False)
    assert repr(weight) == str(weight) == "Parameter (name=w, shape=(2, 3), dtype=Float16, requires_grad=False)"
    assert str([nn.Dense(2, 1).bias]) == "[Parameter (name=bias, shape=(1,), dtype=Float32, requires_grad=True)]"


@pytest.mark.parametrize("made, error, words", [
    (lambda: Dirac(0), ValueError, "For 'Dirac', the 'groups' must be greater than 0, but got 0"),
    (lambda: Dirac(-1), ValueError, "'groups' must be greater than 0"),
    (lambda: Dirac(1.5), TypeError, "For 'Dirac', the 'groups' must be int, but got float"),
    (lambda: Dirac(None), TypeError, "'groups' must be int, but got NoneType"),
    (lambda: Constant(""), TypeError, "For 'Constant', the 'value' must be float, but got str"),
    (lambda: Normal(-1), ValueError, "For 'Normal', the 'sigma' must be at least 0.0"),
    (lambda: Normal(mean=float("nan")), ValueError, "For 'Normal', the 'mean' must be a finite number"),
    (lambda: Orthogonal("x"), TypeError, "For 'Orthogonal', the 'gain' must be float"),
    (lambda: Orthogonal(float("nan")), ValueError, "For 'Orthogonal', the 'gain' must be a finite number"),
    (lambda: TruncatedNormal(None), TypeError, "For 'TruncatedNormal', the 'sigma' must be float"),
    (lambda: TruncatedNormal(mean=float("nan")), ValueError, "For 'TruncatedNormal', the 'mean' must be a finite number"),
    (lambda: TruncatedNormal(a=""), TypeError, "For 'TruncatedNormal', the 'a' must be float"),
    (lambda: Uniform(float("inf")), ValueError, "For 'Uniform', the 'scale' must be a finite number"),
    (lambda: Uniform(-1), ValueError, "For 'Uniform', the 'scale' must be at least 0.0"),
    (lambda: XavierNormal(-1), ValueError, "For 'XavierNormal', the 'gain' must be at least 0.0"),
    (lambda: XavierUniform(None), TypeError, "For 'XavierUniform', the 'gain' must be float"),
    (lambda: VarianceScaling(float("nan")), ValueError, "For 'VarianceScaling', the 'scale' must be a finite number"),
    (lambda: HeUniform(""), ValueError, "For 'HeUniform', the 'negative_slope' must be a finite number, but got  of type str"),
    (lambda: HeNormal(nonlinearity=0), ValueError, "For 'HeNormal', the 'nonlinearity' must be a str, but got 0 of type int"),
    *[(lambda shape=shape: initializer("ones", shape), ValueError, "For 'initializer', the argument 'shape' is invalid")
      for shape in (-1, 1.5, "", "ab", (2, -1), (2, 1.5), (2, None))],
])
def test_an_initializer_says_which_argument_is_wrong(made, error, words):
    with pytest.raises(error, match=words):
        made()


def test_initializers_take_numbers_of_numpy_and_no_slope():
    assert initializer(Constant(np.float32(2)), np.array([1, 2])).asnumpy().tolist() == [[2, 2]]
    assert initializer(HeUniform(None), (4, 4)).asnumpy().std() > 0


def test_stages_may_stand_beside_the_network():
    net = nn.SequentialCell(nn.Dense(2, 2), nn.SequentialCell(nn.Dense(2, 2)))
    nn.PipelineCell(net, 2, stage_config={"0": 0, "1": 1, "1.0": 2}, segment_config={"1": 1})
    assert [net[0].pipeline_stage, net[1].pipeline_stage, net[1][0].pipeline_stage, net[1].pipeline_segment] == [0, 1, 2, 1]
    with pytest.raises(KeyError, match=r"'stage_config' : \['2'\] is not found"):
        nn.PipelineCell(net, 2, {"2": 0})


class Numbers:
    def __len__(self):
        return 9

    def __getitem__(self, i):
        return np.float32(i), np.int32(10 * i)


def test_a_sampler_of_batches_gives_rows_that_are_batches():
    def rows(**settings):
        data = ds.GeneratorDataset(Numbers(), ["x", "y"], batch_sampler=[[0, 3], [8, 1]], **settings)
        return len(data), [[column.tolist() for column in row] for row in data.create_tuple_iterator(num_epochs=1, output_numpy=True)]

    assert rows() == (2, [[[0, 3], [0, 30]], [[8, 1], [80, 10]]])
    assert rows(collate_fn=lambda x, y: (np.stack(x)[::-1], sum(y))) == (2, [[[3, 0], 30], [[1, 8], 90]])
    data = ds.GeneratorDataset(Numbers(), ["x", "y"], batch_sampler=(batch for batch in [[0, 3], [8, 1]] * 2))
    assert len(data) == 4


@pytest.mark.parametrize("call, error, message", [
    (lambda: nn.BatchNorm2d(2, dtype=ms.float16), NotImplementedError, "For 'BatchNorm2d', dtype=Float16 is not available: its parameters"),
    (lambda: nn.BatchNorm1d(2, dtype=ms.float16), NotImplementedError, "For 'BatchNorm1d'"),
    (lambda: nn.Adam(nn.Dense(1, 1).trainable_params(), use_amsgrad=True, use_lazy=True), ValueError, "no parameter named 'use_amsgrad'"),
    (lambda: nn.Adam(nn.Dense(1, 1).trainable_params(), use_lazy=True, use_offload=True), ValueError, "can not both be True"),
    (lambda: nn.Adam(nn.Dense(1, 1).trainable_params(), use_lazily=True), TypeError, "use_lazily"),
    (lambda: nn.Flatten(3)(X), ValueError, "out of range"), (lambda: nn.Flatten("1"), TypeError, "'start_dim' must be int"),
    (lambda: ms.CheckpointConfig(remove_redundancy=True), NotImplementedError, "write each slice once"),
    (lambda: ms.CheckpointConfig(format="safetensors"), NotImplementedError, "in a callback writes such files"),
    (lambda: ms.CheckpointConfig(crc_check=1), TypeError, "'crc_check' must be bool"),
    (lambda: ms.load_checkpoint("a.ckpt", remove_redundancy=True), NotImplementedError, "remove_redundancy=True"),
    (lambda: ms.load_param_into_net(nn.ReLU(), {}, remove_redundancy=True), NotImplementedError, "remove_redundancy=True"),
    (lambda: ms.load_distributed_checkpoint(nn.ReLU(), [], format="safetensors"), NotImplementedError, "format='safetensors'"),
    (lambda: ms.Model(nn.ReLU()).predict(X, backend="lite"), NotImplementedError, "backend='lite'"),
    (lambda: ms.Model(nn.ReLU()).build(sink_mode=2), TypeError, "'sink_mode' must be bool"),
    (lambda: ds.RandomSampler(shuffle="files"), NotImplementedError, "Shuffle.GLOBAL"),
    (lambda: ds.GeneratorDataset(Numbers(), ["x", "y"], batch_sampler=[[0]], shuffle=True), ValueError, "together with shuffle"),
    (lambda: ds.GeneratorDataset(Numbers(), ["x", "y"], batch_sampler=3), TypeError, "must be iterable"),
    (lambda: ds.GeneratorDataset(Numbers(), ["x", "y"], collate_fn=list), ValueError, "batch_sampler, which is not given"),
    (lambda: ms.communication.create_group("g", [0], options={}), NotImplementedError, "options are not available"),
    (lambda: Tensor(1.0, device="GPU"), NotImplementedError, "For 'Tensor', device='GPU'"),
    (lambda: ms.Parameter(1.0, device="Ascend:0"), NotImplementedError, "For 'Parameter', device='ASCEND'"),
    (lambda: ms.Parameter(1.0, storage_format="NZ"), NotImplementedError, "storage_format='NZ'"),
    (lambda: ms.jit(capture_mode="pijit")(abs), ValueError, "'capture_mode' must be one of"),
    (lambda: ms.jit(jit_levle="O1")(abs), TypeError, "did you mean 'jit_level'"), (lambda: ms.jit(dynamic=2)(abs), ValueError, "'dynamic' must be 0 or 1"),
    (lambda: ops.searchsorted(X, X, side="left", right=True), ValueError, "can't be set to opposites"),
    (lambda: ops.searchsorted(X, X, side="up"), ValueError, "'side' should be one of"),
    (lambda: ops.searchsorted(X, Tensor([1.0])), ValueError, "must be the same but for the last"),
    (lambda: ms.numpy.amax(X, initial=3.0), NotImplementedError, "For 'amax', initial=3.0"), (lambda: ms.numpy.add(X, X, out=X), TypeError, "out"),
    (lambda: ops.Gather(batch_dims=1), NotImplementedError, "For 'Gather', batch_dims=1"), (lambda: ops.BiasAdd("NHWC"), NotImplementedError, "data_format='NHWC'"),
    (lambda: ops.Unstack(num=3)(X), ValueError, "must be the size of the axis"), (lambda: nn.ZeroPad2d(1, 2.0), TypeError, "ConstantPad2d"),
    (lambda: nn.AvgPool1d(2, padding=(1, 1)), ValueError, "'padding' must be int or a tuple of one"),
    (lambda: ops.take(X), TypeError, "must be given once"), (lambda: ops.get_grad((0, X), 1), ValueError, "there is no gradient of 1"),
    (lambda: ops.get_grad((0, X), "w"), TypeError, "'identifier' must be int or Parameter"),
    (lambda: ms.value_and_grad(abs, return_ids=1), TypeError, "'return_ids' must be bool"),
])
def test_what_is_not_available_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("call", [
    lambda: nn.BatchNorm2d(2, dtype=ms.float32), lambda: nn.BatchNorm3d(num_features=2, dtype=ms.float32), lambda: Tensor(1.0, const_arg=True, device="CPU"),
    lambda: nn.Adam(nn.Dense(1, 1).trainable_params(), use_lazy=True), lambda: ms.CheckpointConfig(crc_check=True, format="ckpt"),
    lambda: ms.Parameter(1.0, storage_format="", device="CPU"), lambda: nn.CellList([nn.ReLU()]).set_grad(flag=False),
    lambda: ds.RandomSampler(shuffle=None), lambda: ds.NumpySlicesDataset({"x": [1.0]}).output_shapes(estimate=True), lambda: ms.tensor(1.0, device="cpu"),
])
def test_what_has_no_effect_is_taken(call):
    call()


NOT_NUMBERS = [
    (lambda x: nn.EmbeddingLookup(3, 2, max_norm=x), "max_norm"),
    (lambda x: nn.LayerNorm((2, ), epsilon=x), "epsilon"),
    (lambda x: nn.GroupNorm(1, 2, eps=x), "eps"),
    (lambda x: nn.TransformerEncoderLayer(4, 2, layer_norm_eps=x), "epsilon"),
    (lambda x: nn.HuberLoss(delta=x), "delta"),
    (lambda x: nn.MarginRankingLoss(margin=x), "margin"),
    (lambda x: nn.TripletMarginLoss(eps=x), "eps"),
    (lambda x: nn.GaussianNLLLoss(eps=x), "eps"),
    (lambda x: nn.DiceLoss(smooth=x), "smooth"),
    (lambda x: nn.ConfusionMatrix(2, threshold=x), "threshold"),
    (lambda x: nn.WarmUpLR(x, 3), "learning_rate"),
    (lambda x: nn.ExponentialDecayLR(x, 0.9, 3), "learning_rate"),
    (lambda x: nn.FTRL(nn.Dense(2, 2).trainable_params(), l1=x), "l1"),
    (lambda x: nn.Adam(nn.Dense(2, 2).trainable_params(), eps=x), "eps"),
    (lambda x: nn.Adadelta(nn.Dense(2, 2).trainable_params(), epsilon=x), "epsilon"),
]


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("make, name", NOT_NUMBERS)
def test_a_number_that_is_none_or_without_end_is_refused_by_name(make, name, value):
    with pytest.raises(ValueError, match=f"the '{name}' must be .*but got {value}"):
        make(value)


def test_numbers_below_what_they_can_be_are_refused():
    for make, name in ((lambda: nn.LayerNorm((2, ), epsilon=-1.0), "epsilon"), (lambda: nn.GroupNorm(1, 2, eps=-1.0), "eps"),
                       (lambda: nn.HuberLoss(delta=0.0), "delta"), (lambda: nn.DiceLoss(smooth=-1.0), "smooth")):
        with pytest.raises(ValueError, match=f"the '{name}' must be .*, but got "):
            make()
    nn.Threshold(0.1, -math.inf)  # any number may stand in the place of what is small


def test_a_step_of_ftrl_at_a_rate_of_zero_changes_nothing():
    network = nn.Dense(3, 2)
    before = network.weight.asnumpy().copy()
    step = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), nn.FTRL(network.trainable_params(), learning_rate=0.0))
    for _ in range(2):
        step(ms.Tensor(np.ones((4, 3), np.float32)), ms.Tensor(np.zeros((4, 2), np.float32)))
    assert (network.weight.asnumpy() == before).all()


def test_data_of_another_kind_is_refused_with_what_makes_it_one():
    x, y = np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)
    net, _, optimizer = regression()
    for rows, words in (((x, y), "got tuple of arrays"), ([Tensor(x), Tensor(y)], "got list of arrays"), (x, "got ndarray")):
        with pytest.raises(TypeError, match=f"The data set must be a Dataset, whose rows are batches, but {words}: NumpySlicesDataset"):
            ms.Model(net, nn.MSELoss(), optimizer).train(1, rows)
    with pytest.raises(ValueError, match="the data has 2 columns, but 'column_names' has 1: \\['x'\\]"):
        ds.NumpySlicesDataset((x, y), ["x"])
    with pytest.raises(TypeError, match="the 'source' must give rows one after the other, by yield, but it returned int"):
        ds.GeneratorDataset(lambda: 3, ["x"])
    with pytest.raises(TypeError, match="the 'source' must be a generator function, an iterable or have .*, but got int"):
        ds.GeneratorDataset(3, ["x"])


def test_what_is_no_function_and_no_parameter_is_refused_before_it_is_traced():
    net, _, _ = regression()
    with pytest.raises(TypeError, match="the 'fn' must be a function or a Cell, but got int"):
        ms.value_and_grad(3)
    with pytest.raises(TypeError, match=r"the 'weights' must be a Parameter or several, but got Dense: network.trainable_params\(\) gives them"):
        ms.value_and_grad(net, None, net)
    with pytest.raises(TypeError, match=r"but got Dense. network.trainable_params\(\) gives them"):
        nn.SGD(net, 0.1)


def test_the_gradient_of_several_results_is_that_of_their_sum():
    def results(x, factor):
        return x * factor, (x * 3.0, ops.argmax(x, 1))

    factor = Tensor(2.0)
    np.testing.assert_array_equal(ops.grad(results)(X, factor).asnumpy(), np.full((2, 3), 5))
    np.testing.assert_array_equal(ms.grad(results, has_aux=True)(X, factor)[0].asnumpy(), np.full((2, 3), 2))
    (first, (second, places)), gradients = ms.value_and_grad(results, (0, 1))(X, factor)
    np.testing.assert_array_equal(first.asnumpy(), X.asnumpy() * 2)
    np.testing.assert_array_equal(second.asnumpy(), X.asnumpy() * 3)
    assert places.asnumpy().tolist() == [2, 2] and float(gradients[1].asnumpy()) == X.asnumpy().sum()
    started = ops.GradOperation(sens_param=True)(lambda x: (x * 2.0, x * 3.0))
    np.testing.assert_array_equal(started(X, (X, X)).asnumpy(), X.asnumpy() * 5)
    with pytest.raises(ValueError, match="a gradient to start with for each of the 2 results, but got 1"):
        started(X, (X, ))


def test_a_network_with_several_results_is_differentiated_by_one_forward_pass():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc, self.calls = nn.Dense(3, 1, weight_init="ones", bias_init="zeros"), ms.Parameter(Tensor(0.0), requires_grad=False)

        def construct(self, x):
            self.calls = self.calls + 1
            return self.fc(x), x * 2.0

    net = Net()
    np.testing.assert_array_equal(ms.grad(net)(X).asnumpy(), np.full((2, 3), 3))
    assert net.calls.asnumpy() == 1


@pytest.mark.parametrize("make, why", [
    (lambda: ops.Conv2DTranspose(4, 3, "pad", 1, (1, 1, 1, 2)), r"the 'pad_list' must be None or what 'pad' says, \(1, 1, 1, 1\)"),
    (lambda: ops.Conv2DTranspose(4, 3)(Tensor(np.ones((1, 2, 4, 4), np.float32)), Tensor(np.ones((2, 1, 3, 3), np.float32)), (1, 1, 6, 6)),
     r"the weight must have 'out_channel' and 'kernel_size' \(4, 3, 3\)"),
    (lambda: nn.SoftmaxCrossEntropyWithLogits(is_grad=True), "is_grad=True is not available: ops.grad"),
    (lambda: nn.transformer.FeedForward(4, 4, 0.1, expert_group_size=2), "there are no experts"),
    (lambda: ds.MnistDataset("nowhere", cache=1), "MnistDataset: cache is not available"),
    (lambda: ms.amp.build_train_network(nn.Dense(2, 2), None, boost_level="O1"), "For 'build_train_network', boost_level=O1 is not available"),
    (lambda: nn.get_activation("nothing", "Dense"), "For 'Dense', the 'name' must be in"),
    (lambda: ms.Parameter(Tensor(1.0), name="w").init_data(layout=([2], [0])), "'layout'|layout=.* is not available: Model.build"),
    (lambda: ms.lazy_inline(policy="back"), "the 'policy' must be None or 'front'"),
    (lambda: nn.Dense(2, 2).set_jit_config("O1"), "the 'jit_config' must be JitConfig, but got str"),
    (lambda: ops.Send(0, 0, group_back="other"), "group_back='other' is not available"),
    (lambda: ops.LayerNorm()(X, Tensor(np.ones(2, np.float32)), Tensor(np.ones(3, np.float32))), r"the shape of 'gamma' must be .* \(3,\), but got \(2,\)"),
])
def test_what_an_argument_asks_for_is_refused_where_it_is_not_done(make, why):
    with pytest.raises((ValueError, NotImplementedError, RuntimeError, KeyError, TypeError), match=why):
        make()


def test_what_is_more_exact_than_asked_for_is_said(capsys):
    nn.transformer.TransformerEncoderLayer(1, 4, 4, 2, 4, softmax_compute_type=ms.float16)
    nn.transformer.FeedForward(4, 4, 0.1, param_init_type=ms.float16)
    said = capsys.readouterr().err
    assert "softmax_compute_type=float16 has no effect: attention computes its softmax in float32" in said
    assert "param_init_type=float16 has no effect: parameters are float32" in said


def test_arguments_that_choose_how_a_layer_computes():
    ids = Tensor([[1, 4]], ms.int32)
    embedding = nn.Embedding(5, 3, use_one_hot=True)
    np.testing.assert_array_equal(embedding(ids).asnumpy(), embedding.embedding_table.asnumpy()[[[1, 4]]])
    assert embedding(Tensor([7], ms.int32)).asnumpy().sum() == 0  # no row has that number
    x = Tensor(np.random.RandomState(1).rand(2, 3, 4).astype(np.float32))
    made = nn.LayerNorm((3, 4), begin_norm_axis=2, begin_params_axis=1)(x).asnumpy()
    np.testing.assert_allclose(made, nn.LayerNorm((4, ), begin_norm_axis=2, begin_params_axis=2)(x).asnumpy(), atol=1e-6)
    layer = nn.transformer.TransformerEncoderLayer(2, 8, 16, 2, 4, layernorm_compute_type=ms.float16)
    assert layer(Tensor(np.ones((2, 4, 8), np.float32)), Tensor(np.ones((2, 4, 4), np.float32)))[0].shape == (2, 4, 8)
    assert ms.numpy.array(X) is not X and ms.numpy.array(X, copy=False) is X
    assert ms.Parameter(Tensor(1.0), name="w").init_data(set_sliced=True).sliced


def test_a_lazy_adam_leaves_rows_alone_that_a_step_has_not_looked_up():
    net = nn.EmbeddingLookup(4, 2, "ones")
    optimizer = nn.Adam(net.trainable_params(), 0.1, use_lazy=True)
    data = ds.NumpySlicesDataset({"ids": np.array([[1, 2], [1, 1]], np.int32), "y": np.zeros((2, 2, 2), np.float32)}, shuffle=False).batch(1)
    ms.Model(net, nn.MSELoss(), optimizer).train(1, data)
    lazy = nn.EmbeddingLookup(4, 2, "ones")
    ms.Model(lazy, nn.MSELoss(), nn.LazyAdam(lazy.trainable_params(), 0.1)).train(1, data)
    np.testing.assert_array_equal(net.embedding_table.asnumpy(), lazy.embedding_table.asnumpy())
    assert (net.embedding_table.asnumpy()[[0, 3]] == 1).all()


def test_a_loss_monitor_counts_epochs_that_came_before(capsys):
    net, _, optimizer = regression()
    rows = batches()
    data = ds.NumpySlicesDataset({"x": np.concatenate([x for x, _ in rows]), "y": np.concatenate([y for _, y in rows])}, shuffle=False).batch(len(rows[0][0]))
    ms.Model(net, nn.MSELoss(), optimizer).train(1, data, ms.LossMonitor(1, 3))
    assert capsys.readouterr().out.startswith("epoch: 4 step: 1, loss is ")


def test_a_decorated_constructor_notes_what_it_was_given():
    class Block(nn.Cell):
        @ms.lazy_inline(policy="front")
        def __init__(self, size, rate=2):
            super().__init__()

    assert Block(3, rate=1).cell_init_args == "Blockdict_values([3, 1])"


def test_import_all_gives_what_the_reference_gives():
    for module, names in {"mindspore.nn.metrics": "F1 auc Recall BleuScore", "mindspore.nn.layer": "LSTM SequentialCell LRN", "mindspore.common.dtype": "float32 list_",
                          "mindspore.context": "set_context STRICT", "mindspore.log": "get_level get_log_config", "mindspore.boost": "GradientAccumulation LessBN",
                          "mindspore.runtime": "set_memory Stream", "mindspore.ops.operations": "LayerNorm EmbeddingLookup", "mindspore.nn.optim": "RMSProp",
                          "mindspore.ops.functional": "count_nonzero grad", "mindspore.train.callback": "EarlyStopping"}.items():
        namespace = {}
        exec(f"from {module} import *", namespace)
        assert not [name for name in names.split() if name not in namespace], module
    assert "Model" not in namespace
    with pytest.raises(NotImplementedError, match="is not part of Tessera's mindspore package"):
        nn.layer.LRN()


def test_set_memory_limits_the_memory_once(monkeypatch):
    from mindspore.common import scripts
    monkeypatch.setattr(scripts, "_memory", {})
    try:
        ms.runtime.set_memory(max_size="3GB")
        assert ms.get_context("max_device_memory") == "3GB"
        with pytest.raises(RuntimeError, match="can not be set repeatedly"):
            ms.runtime.set_memory()
    finally:
        ms.set_context(max_device_memory="1024GB")
    monkeypatch.setattr(scripts, "_memory", {})
    with pytest.raises(ValueError, match="'increase_size' must be a positive number"):
        ms.runtime.set_memory(increase_size="0GB")
    assert ms.get_log_config()["GLOG_v"] == ms.get_level()


def test_set_deterministic_holds_for_what_is_trained_from_then_on(monkeypatch, capfd):
    from mindspore.train import model as module
    given = []

    class Noted(module._TracedAsMade):
        def __init__(self, *args, **options):
            given.append(options.get("deterministic", False))
            super().__init__(*args, **options)

    def made():
        net = nn.Dense(4, 1)
        return ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.01))

    def train(model):
        model.train(1, ms.dataset.NumpySlicesDataset({"x": np.ones((4, 4), np.float32), "y": np.ones((4, 1), np.float32)}).batch(2))

    monkeypatch.setattr(module, "_TracedAsMade", Noted)
    before, trained = made(), made()
    try:
        train(trained)
        ms.set_deterministic(True)
        assert ms.get_context("deterministic") == "ON"
        for model in (before, made(), trained):  # of a GPU the last one would be told
            train(model)
        assert given == [False, True, True] and "holds for a Model" not in capfd.readouterr().err
        options = module.session_options
        monkeypatch.setattr(module, "session_options", lambda: options() | {"device": "cpu"})
        train(trained)
        assert "holds for a Model that has computed nothing before" in capfd.readouterr().err
        ms.set_deterministic(False)
        train(made())
        assert given[-1] is False and ms.get_context("deterministic") == "OFF"
    finally:
        ms.set_context(deterministic="OFF")
    for wrong, error in ((1, TypeError), ("ON", TypeError), (None, TypeError)):
        with pytest.raises(error, match="'deterministic' must be bool"):
            ms.set_deterministic(wrong)
    with pytest.raises(ValueError, match='\'deterministic\' must be "ON" or "OFF", but got on'):
        ms.set_context(deterministic="on")


def test_accumulated_gradients_are_those_of_the_whole_batch():
    from mindspore.boost import GradientAccumulation
    x, y = np.random.RandomState(1).rand(4, 3).astype(np.float32), np.random.RandomState(2).rand(4, 2).astype(np.float32)

    def trained(rows, accumulate):
        net, loss = nn.Dense(3, 2, "ones"), nn.MSELoss()
        optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
        gradients_of = ms.value_and_grad(lambda a, b: loss(net(a), b), None, optimizer.parameters)
        update = GradientAccumulation(4 // rows, optimizer) if accumulate else lambda loss, gradients: ops.depend(loss, optimizer(gradients))
        step = ms.jit(lambda a, b: update(*gradients_of(a, b)))
        for _ in range(2):
            for i in range(0, 4, rows):
                step(Tensor(x[i:i + rows]), Tensor(y[i:i + rows]))
        return net.weight.asnumpy()

    np.testing.assert_allclose(trained(2, True), trained(4, False), rtol=1e-6)


def test_custom_mixed_precision_computes_what_is_listed_in_half():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc, self.product, self.weight = nn.Dense(3, 2), ops.MatMul(), ms.Parameter(Tensor(np.full((2, 2), 1 / 3, np.float32)), name="w")

        def construct(self, x):
            return self.product(self.fc(x), self.weight)

    net = Net()
    exact = net(X).asnumpy()
    lowered = ms.amp.custom_mixed_precision(net, white_list=[ops.MatMul])(X)
    assert lowered.dtype == ms.float32 and 0 < abs(lowered.asnumpy() - exact).max() < 1e-2
    assert net.fc(X).asnumpy().dtype == np.float32 and nn.Dense in ms.amp.get_white_list() and nn.LayerNorm in ms.amp.get_black_list()
    ms.amp.custom_mixed_precision(Net(), black_list=ms.amp.get_black_list(), dtype=ms.bfloat16)(X)
    with pytest.raises(ValueError, match="one of white_list and black_list must be provided, but got neither"):
        ms.amp.custom_mixed_precision(net)
    with pytest.raises(TypeError, match="The elements of white_list should be classes of Cell or Primitive"):
        ms.amp.custom_mixed_precision(net, white_list=[3])
