"""Random numbers that a network draws itself: anew in each step, and equal however the ranks share the step."""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import mindspore as ms
import tessera
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import TruncatedNormal, initializer
from mindspore.ops import operations as P

RUN = [str(Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera"), "run"]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))}
X = np.ones((4, 1000), np.float32)

pytestmark = pytest.mark.usefixtures("fresh_context")


class Draws(nn.Cell):
    """What a function draws for x."""

    def __init__(self, draw):
        super().__init__()
        self.draw = draw

    def construct(self, x):
        return self.draw(x)


DRAWS = {
    "rand": (lambda x: ops.rand(*x.shape), 0.5, 12**-0.5),
    "rand_like": (ops.rand_like, 0.5, 12**-0.5),
    "randn": (lambda x: ops.randn(x.shape), 0, 1),
    "randn_like": (ops.randn_like, 0, 1),
    "uniform": (lambda x: ops.uniform(x.shape, Tensor(2.0, ms.float32), Tensor(4.0, ms.float32)), 3, 2 * 12**-0.5),
    "normal": (lambda x: ops.normal(x.shape, 1.0, 3.0), 1, 3),
    "standard_normal": (lambda x: ops.standard_normal(x.shape), 0, 1),
    "randint": (lambda x: ops.randint(-2, 3, x.shape), 0, 2**0.5),
    "uniform of whole numbers": (lambda x: ops.uniform(x.shape, Tensor(0, ms.int32), Tensor(2, ms.int32), dtype=ms.int32), 0.5, 0.5),
    "bernoulli": (lambda x: ops.bernoulli(x, 0.25), 0.25, (0.25 * 0.75)**0.5),
    "dropout": (lambda x: ops.dropout(x, 0.75), 1, 3**0.5),
    "StandardNormal": (lambda x: P.StandardNormal()(x.shape), 0, 1),
    "UniformReal": (lambda x: P.UniformReal(seed=2)(x.shape), 0.5, 12**-0.5),
    "UniformInt": (lambda x: P.UniformInt()(x.shape, Tensor(0, ms.int32), Tensor(2, ms.int32)), 0.5, 0.5),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_network_draws_anew_at_each_call_what_it_draws_outside(name):
    draw, mean, deviation = DRAWS[name]
    cell = Draws(draw)
    cell.set_train()
    first, second = cell(Tensor(X)).asnumpy(), cell(Tensor(X)).asnumpy()
    outside = draw(Tensor(X))
    assert outside.shape == X.shape and str(outside.dtype) == str(cell(Tensor(X)).dtype)
    assert not np.array_equal(first, second)
    for drawn in (first, second, outside.asnumpy()):
        assert abs(drawn.mean() - mean) < 5 * deviation / X.size**0.5, name
        assert abs(drawn.std() - deviation) < 0.1 * deviation, name


def test_two_draws_of_one_network_differ_and_a_seed_repeats_them():
    def drawn(seed):
        ms.set_seed(seed)
        cell = Draws(lambda x: ops.stack((ops.randn_like(x), ops.randn_like(x))))
        return cell(Tensor(X)).asnumpy()

    first = drawn(3)
    assert not np.array_equal(first[0], first[1])
    np.testing.assert_array_equal(first, drawn(3))
    assert not np.array_equal(first, drawn(4))


@pytest.mark.parametrize("draw", [
    lambda: ops.randn(3, 4),
    lambda: ops.rand(3, 4),
    lambda: ops.uniform((3, 4), Tensor(0.0), Tensor(1.0)),
    lambda: initializer("normal", [3, 4]).init_data(),
    lambda: initializer("orthogonal", [3, 4]),
    lambda: initializer(TruncatedNormal(1.0), [3, 4]),
    lambda: ms.Parameter(Tensor(np.zeros((3, 4), np.float32)), name="w").set_data(initializer("xavier_uniform", [3, 4])).value(),
])
def test_what_a_script_draws_itself_differs_each_time_and_repeats_after_the_seed(draw):
    ms.set_seed(5)
    first, second = draw().asnumpy().copy(), draw().asnumpy().copy()
    assert not np.array_equal(first, second)
    ms.set_seed(5)
    np.testing.assert_array_equal(draw().asnumpy(), first)
    np.testing.assert_array_equal(draw().asnumpy(), second)


def test_a_tensor_that_is_not_drawn_yet_is_drawn_once():
    made = initializer("normal", [3, 4])
    np.testing.assert_array_equal(made.asnumpy(), made.asnumpy())


def test_gradients_go_through_what_was_drawn_as_in_the_gradient_penalty_of_wgan():
    net = nn.Dense(3, 1, weight_init="ones", bias_init="zeros")
    real, fake = Tensor(np.ones((4, 3), np.float32)), Tensor(np.zeros((4, 3), np.float32))

    def penalty(real, fake):
        alpha = ops.rand(real.shape[0], 1)
        mixed = alpha * real + (1 - alpha) * fake
        slope = ops.grad(lambda x: net(x).sum())(mixed)
        return ((ops.norm(slope, dim=1) - 1)**2).mean()

    value, gradients = ms.value_and_grad(penalty, None, net.trainable_params())(real, fake)
    norm = 3**0.5
    np.testing.assert_allclose(float(value.asnumpy()), (norm - 1)**2, rtol=1e-5)
    np.testing.assert_allclose(gradients[0].asnumpy(), np.full((1, 3), 2 * (norm - 1) / norm), rtol=1e-5)


def test_dropout_of_channels_keeps_or_drops_them_whole():
    ones = Tensor(np.ones((16, 8, 3, 3), np.float32))
    drawn = ops.dropout2d(ones, 0.5).asnumpy().reshape(128, 9)
    assert set(drawn[:, 0]) == {0, 2} and (drawn == drawn[:, :1]).all()
    assert ops.dropout2d(ones, 0.5, training=False) is ones
    with pytest.raises(ValueError, match="dropout2d.*must have 4 dims"):
        ops.dropout2d(Tensor(X))


def test_gumbel_softmax_draws_each_class_as_often_as_its_logit_says():
    logits = Tensor(np.log(np.tile(np.array([0.1, 0.2, 0.7], np.float32), (20000, 1))))
    np.testing.assert_allclose(ops.gumbel_softmax(logits, hard=True).asnumpy().mean(0), [0.1, 0.2, 0.7], atol=0.02)
    np.testing.assert_allclose(ops.gumbel_softmax(logits, tau=0.5).asnumpy().sum(1), 1, rtol=1e-5)


def test_the_bounds_of_truncated_normal_are_values():
    ms.set_seed(1)
    assert np.abs(initializer(TruncatedNormal(1.0), [100, 100]).asnumpy()).max() <= 2
    wide = initializer(TruncatedNormal(0.01), [100, 100]).init_data("weight").asnumpy()
    assert 0.035 < np.abs(wide).max() < 0.06  # cut at two deviations it would be 0.02
    shifted = nn.Dense(50, 40, weight_init=TruncatedNormal(sigma=1.0, mean=3.0, a=2.5, b=3.0)).weight.asnumpy()
    assert 2.5 <= shifted.min() and shifted.max() <= 3
    with pytest.raises(ValueError, match="hardly a value lies between"):
        initializer(TruncatedNormal(sigma=1.0, a=40.0, b=41.0), [4])


TRAINING = """
import numpy as np, tessera
from tessera import nn
class Noisy(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(6, 4)
    def construct(self, x):
        y = self.dense(x)
        return y + nn.random_normal(y.shape, sigma=0.5) * nn.random_uniform((4,), 1, 2)
tessera.set_seed(7)
x = np.random.RandomState(0).randn(24, 6).astype(np.float32)
data = tessera.data.tensors({"x": x, "y": x[:, :4].copy()})
mode = MODE
if mode == "data_parallel":  # shards are dealt row by row: each batch's first half to rank 0
    dealt = x.reshape(3, 2, 4, 6).transpose(0, 2, 1, 3).reshape(24, 6)
    data = tessera.data.tensors({"x": dealt, "y": dealt[:, :4].copy()}, num_shards=2, shard_id=tessera.cluster.rank())
net = Noisy()
if mode == "semi_auto_parallel":
    net.dense.shard("matmul", ((1, 1), (2, 1)))
model = tessera.Model(net, nn.MSELoss(), nn.Momentum(learning_rate=0.1, momentum=0.9), parallel_mode=mode)
losses = []
class Keep(tessera.Callback):
    def step_end(self, run):
        losses.append(run.loss)
model.train(3, data.batch(8 // (tessera.cluster.size() if mode == "data_parallel" else 1)), [Keep()])
if tessera.cluster.rank() == 0:
    print(*losses)
"""


def losses_of(mode, ranks):
    done = subprocess.run([*RUN, "-n", str(ranks), sys.executable, "-c", TRAINING.replace("MODE", repr(mode))], capture_output=True, text=True, env=CLEAN)
    assert done.returncode == 0, done.stderr
    return np.array([float(number) for number in done.stdout.split() if not number.startswith("[")])


def test_what_a_network_draws_does_not_depend_on_how_ranks_share_the_step():
    alone = losses_of("stand_alone", 1)
    assert len(alone) == 9 and len(set(alone)) == 9
    for mode in ("data_parallel", "semi_auto_parallel", "auto_parallel"):
        np.testing.assert_allclose(losses_of(mode, 2), alone, rtol=1e-5, err_msg=mode)


def test_outside_of_networks_each_call_draws_anew():
    tessera.set_seed(1)
    first, second = tessera.nn.random_normal((1000, )).numpy(), tessera.nn.random_normal((1000, )).numpy()
    assert not np.array_equal(first, second) and abs(first.mean()) < 0.2 and abs(first.std() - 1) < 0.1
    low = tessera.nn.random_uniform([2, 500], 3, 4, "float64").numpy()
    assert low.dtype == np.float64 and low.min() >= 3 and low.max() < 4


def test_whole_numbers_of_an_empty_range_are_refused_inside_and_outside():
    for draw in (lambda: ops.randint(3, 3, (2, )), lambda: Draws(lambda x: ops.randint(3, 2, x.shape))(Tensor(X))):
        with pytest.raises(ValueError, match="low >= high"):
            draw()


def test_settings_that_describe_no_distribution_are_refused():
    with pytest.raises(tessera.InvalidArgument, match="low 2.* is above high 1"):
        tessera.nn.random_uniform((2, ), 2, 1)
    with pytest.raises(tessera.InvalidArgument, match="sigma must be at least 0"):
        tessera.nn.random_normal((2, ), 0, -1)
    with pytest.raises(ValueError, match="must be from 0 to 1"):
        ops.bernoulli(Tensor(X), 2)


@pytest.mark.parametrize("low, high, dtype", [(0, 1, "float16"), (0, 1, "bfloat16"), (1e6, 1e6 + 1, "float32"), (-2, -1, "float16"), (0, 3, "bfloat16")])
def test_the_upper_bound_itself_is_not_drawn(low, high, dtype):
    drawn = tessera.nn.random_uniform((200000, ), low, high, dtype).astype("float64").numpy()
    assert low <= drawn.min() and drawn.max() < high
    assert drawn.max() > low + 0.9 * (high - low)


@pytest.mark.parametrize("base, name, meant", [
    (tessera.Callback, "on_epoch_end", "epoch_end"),
    (tessera.Callback, "epoch_ends", "epoch_end"),
    (ms.Callback, "on_epoch_end", "epoch_end"),
    (ms.Callback, "on_train_steps_end", "on_train_step_end"),
])
def test_a_method_that_training_does_not_call_is_said(base, name, meant):
    with pytest.warns(UserWarning, match=f"Mine.{name} is called by nobody; did you mean {meant}"):
        type("Mine", (base, ), {name: lambda self, run: None})


@pytest.mark.filterwarnings("error")
def test_methods_that_training_calls_and_helpers_of_ones_own_are_not_warned_of():
    type("Mine", (tessera.Callback, ), {"epoch_end": lambda self, run: None, "print_row": lambda self: None, "_on_end": lambda self: None})
    type("Mine", (ms.Callback, ), {"on_train_epoch_end": lambda self, run: None, "on_eval_end": lambda self, run: None, "save": lambda self: None})
