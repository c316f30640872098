"""Loss scales and precision of training steps that are functions, and two networks whose parameters have one name in one of them."""
import copy

import numpy as np
import pytest
import mindspore as ms
from mindspore import Tensor, amp, nn, ops

pytestmark = pytest.mark.usefixtures("fresh_context")

X = Tensor(np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32))


def step_of(network, scaler, optimizer):
    gradients = ms.value_and_grad(lambda x: scaler.scale(ops.ReduceMean()(network(x) ** 2)), None, optimizer.parameters)

    @ms.jit
    def step(x):
        loss, made = gradients(x)
        finite = amp.all_finite(made)
        if finite:
            loss = ops.depend(loss, optimizer(scaler.unscale(made)))
        scaler.adjust(finite)
        return scaler.unscale(loss), finite

    return step


def test_a_dynamic_scale_grows_and_falls():
    network = nn.Dense(4, 2)
    scaler = amp.DynamicLossScaler(1024, 2, 2)
    step = step_of(network, scaler, nn.SGD(network.trainable_params(), 0.1))
    scales = []
    for x in (X, X, X, X * float("inf"), X):
        before = network.weight.asnumpy().copy()
        _, finite = step(x)
        scales.append(float(scaler.scale_value.asnumpy()))
        assert bool(finite.asnumpy()) == (network.weight.asnumpy() != before).any()
    assert scales == [1024, 2048, 2048, 1024, 1024] and int(scaler.counter.asnumpy()) == 1
    assert float(scaler.unscale(scaler.scale({"a": (Tensor([3.0]), )}))["a"][0].asnumpy()[0]) == 3.0


def test_a_scale_changes_no_update():
    after = []
    for scaler in (amp.StaticLossScaler(1.0), amp.StaticLossScaler(512.0)):
        network = nn.Dense(4, 2, weight_init="ones", bias_init="zeros")
        step = step_of(network, scaler, nn.SGD(network.trainable_params(), 0.1))
        losses = [float(step(X)[0].asnumpy()) for _ in range(3)]
        after.append((losses, network.weight.asnumpy()))
    assert after[0][0] == pytest.approx(after[1][0], rel=1e-6)
    np.testing.assert_allclose(after[0][1], after[1][1], rtol=1e-6)


def test_levels_of_precision():
    def made(level):
        network = nn.SequentialCell(nn.Dense(4, 4, weight_init=Tensor(np.full((4, 4), 1 / 3, np.float32))), nn.LayerNorm([4]))
        network[0].bias.set_data(Tensor(np.float32([0.1, 0.2, 0.3, 0.4])))
        return amp.auto_mixed_precision(network, level)(X).asnumpy()

    results = {level: made(level) for level in ("O0", "O1", "auto", "O2", "O3")}
    assert all((results[level] != results["O0"]).any() for level in ("O1", "O2", "O3")) and (results["O1"] == results["auto"]).all()
    assert (results["O2"] != results["O3"]).any()
    np.testing.assert_allclose(results["O3"], results["O0"], atol=0.02)


@pytest.mark.parametrize("call, error", [
    (lambda: amp.DynamicLossScaler(0.5, 2, 2), ValueError), (lambda: amp.DynamicLossScaler(2, 2, 0), ValueError), (lambda: amp.StaticLossScaler("2"), TypeError),
    (lambda: amp.auto_mixed_precision(nn.ReLU(), "O4"), ValueError), (lambda: amp.auto_mixed_precision(3), TypeError)])
def test_refusals(call, error):
    with pytest.raises(error):
        call()


def test_two_networks_whose_parameters_have_one_name_meet_in_a_function():
    policy = nn.SequentialCell(nn.Dense(4, 8, weight_init="ones", bias_init="zeros"), nn.ReLU(), nn.Dense(8, 2, weight_init="ones", bias_init="zeros"))
    target = copy.deepcopy(policy)
    for parameter in target.get_parameters():
        parameter.set_data(parameter * 0.5)
    optimizer = nn.Adam(policy.trainable_params(), 0.1)

    def loss_of(x):
        return ops.ReduceMean()((policy(x) - ops.stop_gradient(target(x))) ** 2)

    gradients = ms.value_and_grad(loss_of, None, optimizer.parameters)
    wanted = ((policy(X) - target(X)).asnumpy()**2).mean()
    held = [p.asnumpy().copy() for p in target.get_parameters()]

    @ms.jit
    def step(x):
        loss, made = gradients(x)
        optimizer(made)
        return loss

    losses = [float(step(X).asnumpy()) for _ in range(3)]
    assert losses[0] == pytest.approx(wanted, rel=1e-5) and losses[2] < losses[0]
    assert all((p.asnumpy() == before).all() for p, before in zip(target.get_parameters(), held))
    assert [p.name for p in target.get_parameters()] == [p.name for p in policy.get_parameters()] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [p.name for p in optimizer.get_parameters()][-1] == "moment2.2.bias"


def test_two_optimizers_whose_names_have_prefixes():
    networks = [nn.SequentialCell(nn.Dense(4, 4, weight_init="ones", bias_init="zeros")), nn.SequentialCell(nn.Dense(4, 1, weight_init="ones", bias_init="zeros"))]
    optimizers = [nn.Adam(network.trainable_params(), 0.01) for network in networks]
    for name, optimizer in zip("gd", optimizers):
        optimizer.update_parameters_name(f"optim_{name}.")
    assert [p.name for p in optimizers[0].get_parameters()] == [f"optim_g.{name}" for name in (
        "global_step", "learning_rate", "0.weight", "0.bias", "beta1_power", "beta2_power", "moment1.0.weight", "moment1.0.bias", "moment2.0.weight",
        "moment2.0.bias")]
    gradients = [ms.value_and_grad(lambda x: ops.ReduceMean()(networks[1](networks[0](x)) ** 2), None, optimizer.parameters) for optimizer in optimizers]

    @ms.jit
    def step(x):
        first, made = gradients[0](x)
        optimizers[0](made)
        second, made = gradients[1](x)
        optimizers[1](made)
        return first, second

    losses = [[float(loss.asnumpy()) for loss in step(X)] for _ in range(4)]
    assert losses[3][1] < losses[0][0]
    assert [int(optimizer.global_step.asnumpy()[0]) for optimizer in optimizers] == [4, 4]
    assert next(optimizers[1].get_parameters()).name == "optim_d.global_step"


def test_value_inside_a_network_is_the_parameter_with_its_gradient():
    class Tied(nn.Cell):
        def __init__(self):
            super().__init__()
            self.table = ms.Parameter(Tensor(np.ones((3, 4), np.float32)), name="table")

        def construct(self, x):
            return ops.MatMul(transpose_b=True)(x, self.table.value())

    network = Tied()
    made = ops.GradOperation(get_by_list=True)(network, ms.ParameterTuple(network.trainable_params()))(X)
    np.testing.assert_allclose(made[0].asnumpy(), np.broadcast_to(X.asnumpy().sum(0), (3, 4)), rtol=1e-5)
    assert network.table.value().asnumpy().shape == (3, 4)


def test_a_parameter_may_be_renamed():
    network = nn.Dense(2, 2)
    network.weight.name = "head.weight"
    assert [p.name for p in network.get_parameters()] == ["head.weight", "bias"]
    with pytest.raises(ValueError, match="must not be empty"):
        network.weight.name = ""
