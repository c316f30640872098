"""Operators of one's own in Python: cells that are composed of operators, with a gradient that they say themselves:

    python custom_operator.py                                 checks a gradient, then trains with the other one
    tessera run -n 2 python custom_operator.py                the same losses on two processes
    tessera run -n 2 python custom_operator.py --parallel_mode auto_parallel      a search splits what the operators are composed of
    python custom_operator.py --levels 7                      weights of 15 values instead of 3

A method bprop(inputs, result, its gradient) returns the gradient of each input. It is written for two reasons. Swish, x * sigmoid(x), has
a gradient that is made of its result: less is computed. Rounding has one that is 0 nearly everywhere, so that nothing in front of it learns;
its bprop lets the gradient pass, as if nothing had been rounded (Bengio et al., 2013). So a network learns whose weights have few values.
What is computed is traced, split and compiled as all else. A kernel of one's own is written in C++: docs/extending.md.
"""
import argparse
import sys

import numpy as np
import tessera
from tessera import nn, ops


class Swish(nn.Cell):
    """x of any shape -> x * sigmoid(x), the same shape (Ramachandran et al., 2017)."""

    def construct(self, x: tessera.Tensor) -> tessera.Tensor:
        return x * ops.sigmoid(x)

    def bprop(self, x: tessera.Tensor, out: tessera.Tensor, dout: tessera.Tensor) -> tuple[tessera.Tensor]:
        return (dout * (out + ops.sigmoid(x) * (1.0 - out)),)


class PlainSwish(nn.Cell):
    """The same, with the gradient that comes of the operators."""

    def construct(self, x: tessera.Tensor) -> tessera.Tensor:
        return x * ops.sigmoid(x)


class Rounded(nn.Cell):
    """w of any shape -> the nearest of 2 * levels + 1 values between -max|w| and max|w|, in equal steps."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.levels = levels

    def construct(self, w: tessera.Tensor) -> tessera.Tensor:
        step = (ops.reduce_max(ops.abs(w)) + 1e-12) / float(self.levels)
        return ops.floor(w / step + 0.5) * step


class PassingRounded(Rounded):
    """The same, whose gradient passes as it comes."""

    def bprop(self, w: tessera.Tensor, out: tessera.Tensor, dout: tessera.Tensor) -> tuple[tessera.Tensor]:
        return (dout,)


class GradientOf(nn.Cell):
    """x -> the gradient, of x's shape, of the sum of what a cell makes of x."""

    def __init__(self, cell: nn.Cell) -> None:
        super().__init__()
        self.cell = cell

    def construct(self, x: tessera.Tensor) -> tessera.Tensor:
        _, gradients = nn.value_and_grad(lambda x: ops.reduce_sum(self.cell(x)), [x], argument_numbers=[0])
        gradient: tessera.Tensor = gradients[0]
        return gradient


class Network(nn.Cell):
    """x [n,8] -> logits [n,3], by weights of few values."""

    def __init__(self, rounded: Rounded) -> None:
        super().__init__()
        self.up, self.down = nn.Dense(8, 64, weight_init="he_uniform"), nn.Dense(64, 3, weight_init="xavier_uniform")
        self.rounded, self.swish = rounded, Swish()

    def construct(self, x: tessera.Tensor) -> tessera.Tensor:
        # A layer's parameter is a value as any other: what is multiplied is what was made of it.
        x = self.swish(ops.matmul(x, self.rounded(self.up.weight), transpose_b=True) + self.up.bias)
        x = ops.matmul(x, self.rounded(self.down.weight), transpose_b=True) + self.down.bias
        return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", type=int, default=1, help="a weight has 2 * LEVELS + 1 values")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--learning_rate", type=float, default=0.01)
    parser.add_argument("--parallel_mode", choices=["data_parallel", "auto_parallel"], default="data_parallel", help="how processes share a step")
    options = parser.parse_args()
    if min(options.levels, options.epochs) < 1:
        parser.error("--levels and --epochs must be at least 1")

    points = np.linspace(-6, 6, 101, dtype=np.float32)
    own, plain = (GradientOf(cell)(points).numpy() for cell in (Swish(), PlainSwish()))
    apart = float(np.abs(own - plain).max())

    x = np.random.default_rng(1).standard_normal((1280, 8), dtype=np.float32)
    label = np.stack([x[:, 0] * x[:, 1], x[:, 2], x[:, 3]], 1).argmax(1).astype(np.int32)
    train = tessera.data.tensors({"x": x[:1024], "label": label[:1024]}, shuffle=True, seed=1).batch(64)
    test = tessera.data.tensors({"x": x[1024:], "label": label[1024:]}).batch(64)
    scores = []
    for rounded in (Rounded(options.levels), PassingRounded(options.levels)):
        network = Network(rounded)
        model = tessera.Model(network, nn.CrossEntropy(), nn.Adam(options.learning_rate), metrics=["accuracy"],
                              parallel_mode=options.parallel_mode, seed=1)
        model.train(options.epochs, train, [tessera.EpochSummary()])
        scores.append(model.eval(test)["accuracy"])
        values = len(np.unique(rounded(network.up.weight.numpy()).numpy()))
    if tessera.cluster.rank() == 0:
        print(f"the gradient of Swish: its own and that of its operators are at most {apart:.1e} apart")
        print(f"weights of {values} values: accuracy {scores[1]:.4f}; without a gradient of rounding {scores[0]:.4f}", flush=True)
    if apart > 1e-5:
        sys.exit(f"the gradient of Swish is wrong: {apart:.1e} from that of its operators")


if __name__ == "__main__":
    main()
