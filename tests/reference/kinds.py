"""How a case is computed, by either of the packages called `mindspore`: Tessera's and MindSpore's own.

A case is named after what it is about: `ops.MatMul transpose_b`. Its inputs are a function of that name; with a dtype (the floating one
of its inputs) it gives named arrays.
"""
import zlib
from dataclasses import dataclass
from typing import Callable

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

CASES = {}  # name -> Case
DTYPES = {"float32": ms.float32, "float16": ms.float16, "bfloat16": ms.bfloat16}
SINGLE, HALVES = ("float32",), ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Case:
    name: str
    dtypes: tuple
    compute: Callable  # (dtype's name) -> {key: tensor, number or array}


def add(name, dtypes, compute):
    """A case; names are used once."""
    if name in CASES:
        raise ValueError(f"two cases are called {name}")
    CASES[name] = Case(name, dtypes, compute)


def seeded(*words):
    """A random generator that is a function of the words."""
    return np.random.default_rng(zlib.crc32(" ".join(map(str, words)).encode()))


# --- inputs: each is made by a call with (generator, the dtype's name)


def floats(*shape, low=-2.0, high=2.0):
    """Of the case's dtype."""
    return lambda rng, dtype: Tensor(rng.uniform(low, high, shape).astype(np.float32), DTYPES[dtype])


def positive(*shape):
    """Of the case's dtype, away from 0."""
    return floats(*shape, low=0.5, high=2.5)


def grid(*shape):
    """Of the case's dtype: few different values, halves that every dtype has."""
    return lambda rng, dtype: Tensor(rng.integers(-3, 4, shape).astype(np.float32) / 2, DTYPES[dtype])


def ints(*shape, low=0, high=5, dtype=ms.int32):
    """Numbers in [low, high)."""
    return lambda rng, _: Tensor(rng.integers(low, high, shape).astype(np.int32), dtype)


def bools(*shape):
    """Truth values."""
    return lambda rng, _: Tensor(rng.integers(0, 2, shape).astype(bool))


def exactly(values, dtype=None):
    """These numbers; floating ones in the case's dtype."""
    return lambda _, name: Tensor(np.array(values, np.float32), DTYPES[name]) if dtype is None else Tensor(np.array(values), dtype)


def is_floating(tensor):
    return tensor.dtype in DTYPES.values() or tensor.dtype == ms.float64


def first_of(result):
    return result[0] if isinstance(result, (tuple, list)) else result


def cotangent(name, tensor):
    """What the gradient of the case starts with."""
    return Tensor(seeded(name, "cotangent").uniform(-1, 1, tensor.shape).astype(np.float32), tensor.dtype)


def values_of(result):
    """value, or value.0, value.1, ... of several."""
    if not isinstance(result, (tuple, list)):
        return {"value": result}
    return {f"value.{i}": item for i, item in enumerate(result)}


def operator(name, make, *inputs, dtypes=HALVES, gradient=True):
    """The value of make()(*inputs), and the gradients of its (first) result with respect to the floating inputs."""
    def compute(dtype):
        rng = seeded(name)
        given = [make_input(rng, dtype) for make_input in inputs]
        function = make()
        result = function(*given)
        found = values_of(result)
        places = [i for i, x in enumerate(given) if is_floating(x)]
        first = first_of(result)
        if gradient and places and isinstance(first, Tensor) and is_floating(first):
            def of_floating(*floating):
                every = list(given)
                for place, value in zip(places, floating):
                    every[place] = value
                return first_of(function(*every))

            made = ops.GradOperation(get_all=True, sens_param=True)(of_floating)(*[given[i] for i in places], cotangent(name, first))
            found |= {f"gradient.{i}": value for i, value in zip(places, made)}
        return found

    add(name, dtypes, compute)


def set_parameters(name, parameters, scale=1.0):
    """Gives every parameter values of its own, those of variances positive, times the scale."""
    for parameter in parameters:
        low = 0.5 if "variance" in parameter.name else -1.0
        array = (scale * seeded(name, parameter.name).uniform(low, 1.5, parameter.shape)).astype(np.float32)
        parameter.set_data(Tensor(array, parameter.dtype))


def cell(name, make, *inputs, train=True, dtypes=SINGLE, scale=1.0):
    """A cell's names of parameters, value, gradients of floating inputs and of parameters, and what it leaves in the others."""
    def compute(dtype):
        rng = seeded(name)
        given = [make_input(rng, dtype) for make_input in inputs]
        network = make()
        network.set_train(train)
        every = list(network.get_parameters())
        set_parameters(name, every, scale)
        weights = list(network.trainable_params())
        found = values_of(network(*given))
        after = {f"after.{p.name}": p.asnumpy().copy() for p in every if not p.requires_grad}
        set_parameters(name, every, scale)
        result = first_of(network(*given))
        set_parameters(name, every, scale)
        floating = [i for i, x in enumerate(given) if is_floating(x)]
        sens = cotangent(name, result)
        if floating:
            made = ops.GradOperation(get_all=True, sens_param=True)(network)(*given, sens)
            made = [made[i] for i in floating] if len(made) == len(given) else made
            found |= {f"gradient.{i}": value for i, value in zip(floating, made)}
        if weights:
            made = ops.GradOperation(get_by_list=True, sens_param=True)(network, ms.ParameterTuple(weights))(*given, sens)
            found |= {f"gradient.{p.name}": value for p, value in zip(weights, made)}
        return found | after | {"names": np.array(sorted(p.name for p in every))}

    add(name, dtypes, compute)


class GivenGradients(nn.Cell):
    """A network whose gradients are its inputs."""

    def __init__(self):
        super().__init__()
        self.weight = ms.Parameter(Tensor(seeded("weight").uniform(-1, 1, (3, 4)).astype(np.float32)), name="weight")
        self.beta = ms.Parameter(Tensor(seeded("beta").uniform(-1, 1, (5,)).astype(np.float32)), name="beta")

    def construct(self, of_weight, of_beta):
        return ops.ReduceSum()(self.weight * of_weight) + ops.ReduceSum()(self.beta * of_beta)


def optimizer(name, make, steps=4):
    """The parameters after each of several steps with given gradients. make(network) -> the optimizer."""
    def compute(_):
        network = GivenGradients()
        step = nn.TrainOneStepCell(network, make(network))
        step.set_train()
        found = {}
        for number in range(steps):
            rng = seeded(name, number)
            gradients = [Tensor(rng.uniform(-1, 1, shape).astype(np.float32)) for shape in ((3, 4), (5,))]
            found[f"loss.{number}"] = step(*gradients)
            for parameter in (network.weight, network.beta):
                found[f"{parameter.name}.{number}"] = parameter.asnumpy().copy()
        return found

    add(name, SINGLE, compute)


def training(name, make, make_loss, make_optimizer, *inputs, steps=6):
    """The losses of several steps, and all parameters after them."""
    def compute(dtype):
        network = make()
        every = list(network.get_parameters())
        set_parameters(name, every)
        step = nn.TrainOneStepCell(nn.WithLossCell(network, make_loss()), make_optimizer(network))
        step.set_train()
        found = {}
        for number in range(steps):
            rng = seeded(name, number % 2)
            found[f"loss.{number}"] = step(*[make_input(rng, dtype) for make_input in inputs])
        return found | {f"after.{p.name}": p.asnumpy().copy() for p in every}

    add(name, SINGLE, compute)


def schedule(name, make):
    """A list of learning rates, one per step."""
    add(name, SINGLE, lambda _: {"rates": np.array(make(), np.float64)})


def rate(name, make):
    """A cell step -> learning rate, at the first steps."""
    def compute(_):
        made = make()
        return {f"step.{i}": made(Tensor(i, ms.int32)) for i in range(8)}

    add(name, SINGLE, compute)


def metric(name, make, *batches):
    """A metric over batches of (arrays)."""
    def compute(_):
        made = make()
        made.clear()
        rng = seeded(name)
        for batch in batches:
            made.update(*[make_input(rng, "float32") for make_input in batch])
        return {"value": np.array(made.eval(), np.float64)}

    add(name, SINGLE, compute)


def value(name, compute):
    """Anything else: compute() gives a tensor or several."""
    add(name, SINGLE, lambda _: values_of(compute()))
