"""Gradient accumulation by cells: the optimizer gets the sum of several batches' gradients, on any number of ranks."""
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mindspore import ParameterTuple, Tensor, context, nn, ops
import mindspore as ms
from regression import ByHand, assert_equal, batches, regression

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "python" / "gradient_accumulation.py"


pytestmark = pytest.mark.usefixtures("fresh_context")


def example():
    spec = importlib.util.spec_from_file_location("gradient_accumulation", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def accumulate(step, all_batches, steps):
    outputs = []
    for number, batch in enumerate(all_batches):
        step.add_flags_recursive(accumulation=(number + 1) % steps != 0)
        outputs.append(step(*(Tensor(array) for array in batch)))
    return outputs


@pytest.mark.parametrize("steps", [2, 3])
def test_accumulated_gradients_are_those_by_hand(steps):
    """The optimizer gets the sum of the held gradients and of the last batch's."""
    context.set_auto_parallel_context(grad_accumulation_step=steps)
    net, with_loss, optimizer = regression()
    step = example().AccumulatingStep(with_loss, optimizer)
    accumulate(step, batches(), steps)
    assert_equal(net, ByHand().train(batches(), steps))
    assert all((total.asnumpy() == 0).all() for total in step.accu_grads)
    assert [total.name for total in step.accu_grads] == ["accu_grads.weight", "accu_grads.bias"]


def test_without_accumulation_steps_only_the_last_batch_counts():
    """As the cells say by themselves: what accu_grads holds is added only where the context asks for accumulation."""
    net, with_loss, optimizer = regression()
    step = example().AccumulatingStep(with_loss, optimizer)
    accumulate(step, batches(2), 2)
    assert_equal(net, ByHand().train(batches(2)[1:], 1))


@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_a_loss_scale_changes_no_accumulated_gradient(scale):
    context.set_auto_parallel_context(grad_accumulation_step=3)
    net, with_loss, optimizer = regression()
    step = example().AccumulatingStepWithLossScale(with_loss, optimizer, Tensor([scale], ms.float32))
    outputs = accumulate(step, batches(), 3)
    assert_equal(net, ByHand().train(batches(), 3))
    assert all(not overflow.asnumpy() and found.asnumpy() == scale for _, overflow, found in outputs)


def test_an_overflow_in_any_batch_drops_the_update():
    context.set_auto_parallel_context(grad_accumulation_step=3)
    net, with_loss, optimizer = regression()
    step = example().AccumulatingStepWithLossScale(with_loss, optimizer, nn.DynamicLossScaleUpdateCell(1024, 2, 1000))
    spoiled = batches()
    spoiled[1] = (spoiled[1][0] * np.inf, spoiled[1][1])
    outputs = accumulate(step, spoiled, 3)
    assert [bool(overflow.asnumpy()) for _, overflow, _ in outputs] == [False, True, True, False, False, False]
    assert_equal(net, ByHand().train(spoiled[3:], 3))  # what was accumulated is dropped with it
    assert step.scale_sense.asnumpy() == 512


def test_cells_that_add_update_and_clear_one_after_the_other():
    """The three cells of accumulation on one device: gradients added to a tuple of parameters, the optimizer given it, zeros."""
    add = ops.MultitypeFuncGraph("add")
    clear = ops.MultitypeFuncGraph("clear")

    @add.register("Tensor", "Tensor")
    def _add(total, gradient):
        return ops.assign_add(total, gradient)

    @clear.register("Tensor", "Tensor")
    def _clear(total, zero):
        return ops.assign(total, zero)

    class Forward(nn.Cell):
        def __init__(self, network, totals):
            super().__init__(auto_prefix=False)
            self.network, self.totals = network, totals
            self.weights = ParameterTuple(network.trainable_params())
            self.grad = ops.GradOperation(get_by_list=True)
            self.map = ops.HyperMap()

        def construct(self, *inputs):
            loss = self.network(*inputs)
            gradients = self.grad(self.network, self.weights)(*inputs)
            return ops.depend(loss, self.map(ops.partial(add), self.totals, gradients))

    class Update(nn.Cell):
        def __init__(self, optimizer, totals):
            super().__init__(auto_prefix=False)
            self.optimizer, self.totals = optimizer, totals

        def construct(self):
            return self.optimizer(self.totals)

    class Clear(nn.Cell):
        def __init__(self, totals, zeros):
            super().__init__(auto_prefix=False)
            self.totals, self.zeros, self.map = totals, zeros, ops.HyperMap()

        def construct(self):
            return self.map(ops.partial(clear), self.totals, self.zeros)

    net, with_loss, optimizer = regression()
    totals = optimizer.parameters.clone(prefix="grad_sum", init="zeros")
    zeros = optimizer.parameters.clone(prefix="zeros", init="zeros")
    forward, update, empty = Forward(with_loss, totals), Update(optimizer, totals), Clear(totals, zeros)
    for i, (x, y) in enumerate(batches()):
        forward(Tensor(x), Tensor(y))
        if i % 3 == 2:
            update()
            empty()
    assert_equal(net, ByHand().train(batches(), 3))


def run_example(ranks, *options):
    if ranks > 1 and shutil.which("mpirun") is None:
        pytest.skip("mpirun is absent")
    launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] if ranks > 1 else []
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))}
    done = subprocess.run([*launcher, sys.executable, str(EXAMPLE), *options], capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    weights = re.findall(r"weight \[\[(.*?)\]\] bias \[(.*?)\]", done.stdout)
    assert len(weights) == ranks, done.stdout
    return done.stdout, [[float(x) for x in f"{w}, {b}".split(", ")] for w, b in weights]


def expected_of_example():
    by_hand = ByHand()
    for _ in range(2):
        by_hand.train(batches(12), 3)
    return [*by_hand.w[0], *by_hand.b]


@pytest.mark.parametrize("ranks, mode", [(1, "stand_alone"), (1, "auto_parallel"), (2, "data_parallel"), (4, "data_parallel"),
                                         (2, "auto_parallel"), (4, "auto_parallel"), (2, "semi_auto_parallel")])
@pytest.mark.parametrize("scale", [[], ["--loss_scale", "1024"]], ids=["plain", "scaled"])
def test_the_example_accumulates_as_by_hand_on_any_number_of_ranks(ranks, mode, scale):
    out, weights = run_example(ranks, "--parallel_mode", mode, *scale)
    for own in weights:
        np.testing.assert_allclose(own, expected_of_example(), rtol=1e-4, atol=1e-5)
    # Of three batches the last that is only added, and the update.
    steps = [(int(e), int(s)) for e, s in re.findall(r"epoch: (\d+) step: (\d+), loss is ", out)]
    assert sorted(set(steps)) == [(e, s) for e in (1, 2) for s in (2, 3, 5, 6, 8, 9, 11, 12)]


class Accumulator:
    """Adds up gradients, and updates by their sum at every `steps`-th call: an object of a plain class, whose counter is a parameter."""

    def __init__(self, optimizer, steps):
        self.optimizer, self.steps = optimizer, steps
        self.held = optimizer.parameters.clone(prefix="held", init="zeros")
        self.zeros = optimizer.parameters.clone(prefix="zeros", init="zeros")
        self.counter = ms.Parameter(Tensor(1, ms.int32), "counter")
        self.map = ops.HyperMap()

    def __call__(self, gradients):
        self.map(ops.partial(ops.assign_add), self.held, gradients)
        if self.counter % self.steps == 0:
            self.optimizer(self.held)
            self.map(ops.partial(ops.assign), self.held, self.zeros)
        ops.assign_add(self.counter, Tensor(1, ms.int32))
        return True


class CountingCell(nn.Cell):
    """The same as a cell, whose counter is a number of Python's."""

    def __init__(self, optimizer, steps):
        super().__init__(auto_prefix=False)
        self.optimizer, self.steps = optimizer, steps
        self.held = optimizer.parameters.clone(prefix="held", init="zeros")
        self.calls = 0

    def construct(self, gradients):
        self.calls = self.calls + 1
        for held, gradient in zip(self.held, gradients):
            ops.assign_add(held, gradient)
        if self.calls % self.steps == 0:
            self.optimizer(self.held)
            for held in self.held:
                ops.assign(held, ops.zeros_like(held))
        return True


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize("make", [Accumulator, CountingCell])
@pytest.mark.parametrize("steps", [2, 3])
def test_an_accumulator_that_counts_its_calls_updates_at_every_so_manyth(mode, make, steps):
    ms.set_context(mode=mode)
    net, with_loss, optimizer = regression()
    accumulator = make(optimizer, steps)
    gradients_of = ms.value_and_grad(lambda x, y: with_loss(x, y), None, optimizer.parameters)

    @ms.jit
    def step(x, y):
        loss, gradients = gradients_of(x, y)
        return ops.depend(loss, accumulator(gradients))

    for i, (x, y) in enumerate(batches(), 1):
        step(Tensor(x), Tensor(y))
        assert_equal(net, ByHand().train(batches()[:i // steps * steps], steps))
