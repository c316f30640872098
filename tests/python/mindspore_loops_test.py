"""What training loops of one's own rely on: statistics, random numbers, modes of parts, parameters by name."""
import gc
import re
import weakref

import numpy as np
import pytest
import mindspore as ms
import mindspore.dataset as ds
import tessera
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import HeNormal, initializer

pytestmark = pytest.mark.usefixtures("fresh_context")
IMAGES = np.random.RandomState(1).randn(4, 2, 3, 3).astype(np.float32) * 3 + 1
ONES = np.ones((2, 50), np.float32)


def smallest(tensor):
    return float(tensor.asnumpy().min())


class TestFunctionsThatCallCells:
    @pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
    @pytest.mark.parametrize("wrap", [lambda f: f, ms.jit])
    def test_statistics_of_a_cell_that_a_function_calls_move_and_are_read(self, mode, wrap):
        ms.set_context(mode=mode)
        net = nn.SequentialCell(nn.BatchNorm2d(2))
        net.set_train(True)
        step = wrap(ms.value_and_grad(lambda x: (net(x)**2).mean(), None, net.trainable_params()))
        for _ in range(3):
            step(Tensor(IMAGES))
        mean, variance = IMAGES.mean((0, 2, 3)), IMAGES.var((0, 2, 3), ddof=1)
        moving = net[0].moving_mean.asnumpy(), net[0].moving_variance.asnumpy()
        np.testing.assert_allclose(moving[0], mean * (1 - 0.9**3), rtol=1e-4)
        np.testing.assert_allclose(moving[1], variance + (1 - variance) * 0.9**3, rtol=1e-3)
        net.set_train(False)
        expected = (((IMAGES - moving[0][None, :, None, None])**2) / (moving[1] + 1e-5)[None, :, None, None]).mean()
        np.testing.assert_allclose(float(step(Tensor(IMAGES))[0].asnumpy()), expected, rtol=1e-4)

    def test_each_call_drops_other_elements(self):
        net = nn.SequentialCell(nn.Dropout(p=0.5))
        net.set_train()
        gradient, compiled = ms.value_and_grad(lambda x: net(x).sum(), 0), ms.jit(lambda x: net(x))
        for draw in (lambda: gradient(Tensor(ONES))[1], lambda: compiled(Tensor(ONES))):
            ms.set_seed(3)
            masks = [draw().asnumpy() for _ in range(3)]
            assert (masks[0] != masks[1]).any() and (masks[1] != masks[2]).any()

    def test_a_compiled_function_follows_the_mode_of_what_it_calls(self):
        net = nn.SequentialCell(nn.Dropout(p=0.5))
        compiled = ms.jit(lambda x: net(x))
        seen = []
        for mode in (True, False, True):
            net.set_train(mode)
            seen.append(smallest(compiled(Tensor(ONES))))
        assert seen == [0, 1, 0]


def num_compiled_by(calls):
    before = tessera.nn.num_compiled()
    calls()
    return tessera.nn.num_compiled() - before


class TestCallsThatDoNotCompileAgain:
    X = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))

    @pytest.mark.parametrize("written_at_each_call", [False, True])
    @pytest.mark.parametrize("make", [
        lambda net: ms.value_and_grad(lambda x: net(x).sum(), None, net.trainable_params()),
        lambda net: ms.value_and_grad(lambda x: net(x).sum()),
        lambda net: ops.grad(net),
        lambda net: ops.GradOperation(get_by_list=True)(lambda x: net(x), net.trainable_params()),
        lambda net: ops.GradOperation(get_all=True)(net),
    ])
    def test_a_loop_of_gradients_compiles_once(self, make, written_at_each_call):
        net = nn.Dense(3, 2)
        gradients_of = make(net)
        assert num_compiled_by(lambda: [(make(net) if written_at_each_call else gradients_of)(self.X) for _ in range(20)]) <= 1

    def test_a_training_loop_compiles_its_parts_once(self):
        net = nn.SequentialCell(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 2))
        optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
        losses = []

        def steps(count):
            for _ in range(count):
                loss, gradients = ms.value_and_grad(lambda x: (net(x)**2).mean(), None, optimizer.parameters)(self.X)
                optimizer(gradients)
                losses.append(float(loss.asnumpy()))
                nn.Softmax()(net(self.X))

        steps(1)
        assert num_compiled_by(lambda: steps(100)) == 0
        assert losses[-1] < losses[0]

    def test_what_a_function_looks_at_may_change(self):
        net, scale = nn.Dense(3, 1), [1.0]
        gradients_of = ms.value_and_grad(lambda x: (net(x) * scale[0]).sum(), 0)
        slopes = net.weight.asnumpy()[0] + np.zeros((2, 1), np.float32)
        for factor in (1.0, 3.0, 1.0):
            scale[0] = factor
            np.testing.assert_allclose(gradients_of(self.X)[1].asnumpy(), factor * slopes, rtol=1e-6)
        assert num_compiled_by(lambda: gradients_of(self.X)) == 0

    def test_a_network_of_the_same_form_has_its_own_values(self):
        def value_of(net):
            return float(ms.value_and_grad(lambda x: net(x).sum())(self.X)[0].asnumpy())

        one, other = nn.Dense(3, 1, "ones", "zeros"), nn.Dense(3, 1, "zeros", "zeros")
        assert (value_of(one), value_of(other), value_of(one)) == (15, 0, 15)

    def test_modes_and_shapes_are_told_apart(self):
        net = nn.SequentialCell(nn.Dropout(p=0.5))
        gradient = ms.value_and_grad(lambda x: net(x).sum())
        seen = []
        for mode in (True, False, True):
            net.set_train(mode)
            seen.append(smallest(gradient(Tensor(ONES))[1]))
        assert seen == [0, 1, 0] and gradient(Tensor(ONES[:1]))[1].shape == (1, 50)

    def test_what_was_compiled_goes_with_the_network(self):
        net = nn.Dense(3, 2)
        weights = net.trainable_params()
        gone = weakref.ref(weights[0])
        ms.value_and_grad(lambda x: net(x).sum(), None, weights)(self.X)
        del net, weights
        gc.collect()
        assert gone() is None

    def test_a_cell_that_is_made_meanwhile_changes_no_other(self):
        net = nn.Dense(3, 2)
        net(self.X)
        assert num_compiled_by(lambda: (nn.Dense(2, 2), nn.SequentialCell(nn.ReLU()), net(self.X))) == 0

    def test_an_attribute_that_changes_is_seen(self):
        class Net(nn.Cell):
            def __init__(self):
                super().__init__()
                self.part = nn.ReLU()

            def construct(self, x):
                return x * getattr(self.part, "factor", 1.0) + getattr(self, "shift", 0.0)

        net = Net()
        sums = [float(net(self.X).sum().asnumpy())]
        net.part.factor = 2.0
        sums.append(float(net(self.X).sum().asnumpy()))
        net.shift = 1.0
        sums.append(float(net(self.X).sum().asnumpy()))
        assert sums == [15, 30, 36]


def test_a_parameter_that_is_renamed_while_it_is_traced_is_an_error_and_not_zeros():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = Parameter(Tensor(np.ones(3, np.float32)))

        def construct(self, x):
            y = x * self.w
            self.w.name = "other"
            return y

    with pytest.raises(ValueError, match='graph forward reads the parameter "w", but .* a parameter must keep its name'):
        Net()(Tensor(np.ones(3, np.float32)))


class TestModesOfParts:
    def test_a_part_may_change_its_mode_after_the_first_call(self):
        net = nn.SequentialCell(nn.Dropout(p=0.5), nn.Dropout(p=0.5))
        net.set_train()
        assert smallest(net(Tensor(ONES))) == 0
        net[0].set_train(False)
        assert float(net(Tensor(ONES)).asnumpy().max()) == 2
        net[1].set_train(False)
        assert smallest(net(Tensor(ONES))) == 1
        net.set_train()
        assert float(net(Tensor(ONES)).asnumpy().max()) == 4
        assert net[0].get_flags() == {}

    def test_one_part_is_not_taken_for_another(self):
        net = nn.SequentialCell(nn.Dropout(p=0.5), nn.Dropout(p=0.75))
        largest = []
        for frozen in (0, 1):
            net.set_train()
            net[frozen].set_train(False)
            largest.append(float(net(Tensor(ONES)).asnumpy().max()))
        assert largest == [4, 2]


class TestParameters:
    def test_all_have_a_path(self):
        net = nn.SequentialCell([nn.SequentialCell(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)) for _ in range(100)])
        assert len(list(net.parameters_and_names())) == len(list(net.get_parameters())) == 500
        assert list(net.parameters_and_names(expand=False)) == []

    def test_an_initializer_becomes_the_value_of_the_parameter_that_an_attribute_is(self):
        net = nn.Dense(2, 2)
        net.weight = initializer("ones", (2, 2))
        assert isinstance(net.weight, Parameter) and len(net.trainable_params()) == 2
        assert net.weight.asnumpy().tolist() == [[1, 1], [1, 1]]
        with pytest.raises(ValueError):
            net.weight = initializer("ones", (3, 2))

    @pytest.mark.parametrize("cell", [nn.BatchNorm2d(3), nn.LSTM(3, 4), nn.LSTMCell(3, 4), nn.Dense(2, 3)])
    def test_all_take_what_an_initializer_gives(self, cell):
        for parameter in cell.get_parameters():
            parameter.set_data(initializer("ones", parameter.shape, parameter.dtype))
            assert (parameter.data.asnumpy() == 1).all()

    def test_values_that_are_set_at_random_differ_by_the_parameter(self):
        net = nn.SequentialCell(nn.Dense(8, 8), nn.Dense(8, 8))
        for cell in net:
            cell.weight.set_data(initializer(HeNormal(), cell.weight.shape))
        assert (net[0].weight.asnumpy() != net[1].weight.asnumpy()).all()


class TestNames:
    def test_cells_say_what_they_were_made_with(self):
        conv = nn.Conv2d(2, 4, 3, 2, "pad", 1)
        assert (conv.bias, conv.kernel_size, conv.stride, conv.dilation) == (None, (3, 3), (2, 2), (1, 1))
        assert (conv.padding, conv.pad_mode, conv.group) == (1, "pad", 1)
        assert nn.Dense(2, 2, has_bias=False).bias is None
        norm = nn.BatchNorm2d(3, 1e-3, 0.8)
        assert (norm.num_features, norm.eps, norm.momentum) == (3, 1e-3, 0.8)
        assert nn.Embedding(5, 6).vocab_size == 5 and nn.Dropout(p=0.3).p == 0.3

    def test_what_a_cell_works_with_is_no_cell_of_the_network(self):
        net = nn.SequentialCell(nn.BatchNorm2d(4), nn.LSTM(3, 4), nn.LSTMCell(3, 4), nn.Dropout(p=0.5))
        assert [name for name, _ in net.cells_and_names()] == ["", "0", "1", "2", "3"]

    def test_what_packages_import(self):
        from mindspore import log
        from mindspore.common import JitConfig
        from mindspore.ops import constexpr
        from mindspore.ops import functional as F
        from mindspore.version import __version__
        log.info("a message")
        assert constexpr(len)((1, 2)) == constexpr()(len)((1, 2)) == 2
        assert F.identity(3) == 3 and ms.__version__ == __version__
        nn.Dense(1, 1).set_jit_config(JitConfig("O1"))

    def test_decorators_of_layers_and_operators(self):
        from mindspore._extends import cell_attr_register
        from mindspore.ops.primitive import Primitive, _primexpr, constexpr, prim_attr_register

        class Scaled(nn.Cell):
            @cell_attr_register
            def __init__(self, size, factor=2):
                super().__init__()
                self.size, self.factor = size, factor

        class Named(Scaled):
            @cell_attr_register(attrs=["factor", "absent"])
            def __init__(self, factor):
                super().__init__(3, factor=factor)

        class Own(Primitive):
            @prim_attr_register
            def __init__(self, axis=0, *, keep=True):
                self.init_prim_io_names(inputs=["x"], outputs=["y"])
                self.axis = axis

        assert Scaled(3).cell_init_args == "Scaleddict_values([3])" and Scaled(3, factor=1).cell_init_args == "Scaleddict_values([3, 1])"
        assert Named(5).cell_init_args == "Named[5]" and nn.ReLU().cell_init_args == ""
        own = Own(1)
        assert own.name == "Own" and own.init_attrs == {"axis": 1, "keep": True} and own.attrs["axis"] == own.axis == 1
        assert own.attrs["input_names"] == ["x"] and Own.__init__.decorated_func.__name__ == "__init__"
        assert _primexpr(len)((1, 2)) == _primexpr()(len)((1, 2)) == constexpr(get_instance=False)(len)()((1, 2)) == 2

        @constexpr
        def halved(shape):
            return tuple(size // 2 if size > 1 else size for size in shape)

        class Halves(nn.Cell):
            def construct(self, x):
                return ops.zeros(halved(x.shape), x.dtype) + ops.reduce_sum(x)

        assert Halves()(Tensor(np.ones((4, 1), np.float32))).asnumpy().tolist() == [[4], [4]]


# --- what cannot train


class Score(nn.Cell):
    """A network that gives a loss and changes nothing."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(4, 1)

    def construct(self, x, y):
        return ops.reduce_mean((self.dense(x) - y) ** 2)


class OwnStep(Score):
    """A step by hand, which changes a parameter by the second step only."""

    def __init__(self):
        super().__init__()
        self.count = ms.Parameter(Tensor(0.0, ms.float32), name="count", requires_grad=False)
        self.used = ms.Parameter(Tensor(0.0, ms.float32), name="used", requires_grad=False)

    def construct(self, x, y):
        self.used = self.count
        self.count = self.count + 1.0
        return super().construct(x, y)


def few(rows=8):
    return ds.NumpySlicesDataset({"x": np.ones((rows, 4), np.float32), "y": np.ones((rows, 1), np.float32)}, shuffle=False).batch(4)


def test_a_network_that_trains_nothing_is_told(capfd):
    for rows, said in ((8, "in 2 steps"), (4, "in 1 step:")):
        ms.Model(Score()).train(1, few(rows), dataset_sink_mode=False)
        assert re.search(f"Score has changed none of its parameters {said}.*nn.TrainOneStepCell", capfd.readouterr().err)
    with pytest.raises(tessera.InvalidArgument, match="training needs an optimizer"):
        ms.Model(nn.Dense(4, 1), nn.MSELoss()).train(1, few(), dataset_sink_mode=False)


def test_a_step_that_holds_nothing_of_what_it_trains_is_not_judged(capfd):
    network = Score()
    step = nn.TrainOneStepCell(network, nn.Momentum(network.trainable_params(), 0.1, 0.9))

    class Outside(nn.Cell):
        def __init__(self):
            super().__init__()
            self.steps = [step]

        def __call__(self, x, y):
            return self.steps[0](x, y)

    before = network.dense.weight.asnumpy().copy()
    ms.Model(Outside()).train(1, few(), dataset_sink_mode=False)
    assert (network.dense.weight.asnumpy() != before).all() and "has changed none" not in capfd.readouterr().err


def test_a_rate_that_begins_at_0_trains_later():
    network = Score()
    optimizers = [nn.SGD(network.trainable_params(), [0.0, 0.0, 0.0, 0.1])]

    class Late(nn.Cell):
        def __init__(self):
            super().__init__()
            self.network, self.optimizers = network, optimizers
            self.gradients = ops.GradOperation(get_by_list=True)

        def __call__(self, x, y):
            self.optimizers[0](self.gradients(self.network, self.network.trainable_params())(x, y))
            return self.network(x, y)

    before = network.dense.weight.asnumpy().copy()
    ms.Model(Late()).train(2, few(), dataset_sink_mode=False)
    assert (network.dense.weight.asnumpy() != before).all()


def test_a_step_of_ones_own_trains_without_an_optimizer():
    step = OwnStep()
    ms.Model(step).train(2, few(), dataset_sink_mode=True)
    assert step.count.asnumpy() == 4 and step.used.asnumpy() == 3
    network = Score()
    before = network.dense.weight.asnumpy().copy()
    ms.Model(nn.TrainOneStepCell(network, nn.Momentum(network.trainable_params(), 0.1, 0.9))).train(1, few(), dataset_sink_mode=False)
    assert (network.dense.weight.asnumpy() != before).all()


def test_an_optimizer_of_other_parameters_is_refused():
    network, other = nn.Dense(4, 1), nn.Dense(4, 1)
    with pytest.raises(ValueError, match="updates none of the parameters of the network and its loss"):
        ms.Model(network, nn.MSELoss(), nn.Momentum(other.trainable_params(), 0.1, 0.9)).train(1, few(), dataset_sink_mode=False)
    frozen = nn.Momentum(network.trainable_params(), 0.1, 0.9)
    for parameter in network.get_parameters():
        parameter.requires_grad = False
    model = ms.Model(network, nn.MSELoss(), frozen, metrics={"loss": nn.Loss()})
    assert model.eval(few())["loss"] > 0 and model.predict(Tensor(np.ones((2, 4), np.float32))).shape == (2, 1)
    with pytest.raises(ValueError, match="that have requires_grad"):
        model.train(1, few(), dataset_sink_mode=False)
    network.weight.requires_grad = True
    before = network.weight.asnumpy().copy()
    model.train(1, few(), dataset_sink_mode=False)
    assert (network.weight.asnumpy() != before).all()
