"""What the tests of training steps share: a regression, and its training by hand."""
import numpy as np
from mindspore import nn
import mindspore as ms

RATE, MOMENTUM = 0.05, 0.9


def batches(count=6, rows=8):
    rng = np.random.RandomState(1)
    x = rng.rand(count * rows, 4).astype(np.float32)
    y = x @ np.array([[1], [-2], [3], [0.5]], np.float32)
    return [(x[i:i + rows], y[i:i + rows]) for i in range(0, count * rows, rows)]


class ByHand:
    """Momentum on the mean squared error of x w + b, in NumPy: the gradients of several batches added up."""

    def __init__(self):
        self.w, self.b = np.ones((1, 4)), np.zeros(1)
        self.moments = [np.zeros((1, 4)), np.zeros(1)]

    def gradients(self, x, y):
        error = 2 * (x @ self.w.T + self.b - y) / len(x)
        return [error.T @ x, error.sum(0)]

    def update(self, gradients):
        self.moments = [MOMENTUM * moment + gradient for moment, gradient in zip(self.moments, gradients)]
        self.w, self.b = self.w - RATE * self.moments[0], self.b - RATE * self.moments[1]

    def train(self, all_batches, steps):
        for i in range(0, len(all_batches), steps):
            parts = [self.gradients(x.astype(np.float64), y) for x, y in all_batches[i:i + steps]]
            self.update([sum(part) for part in zip(*parts)])
        return self


def regression():
    net = nn.Dense(4, 1, weight_init="ones", bias_init="zeros")
    return net, nn.WithLossCell(net, nn.MSELoss()), nn.Momentum(net.trainable_params(), RATE, MOMENTUM)


def assert_equal(net, by_hand):
    np.testing.assert_allclose(net.weight.asnumpy(), by_hand.w, rtol=2e-5)
    np.testing.assert_allclose(net.bias.asnumpy(), by_hand.b, rtol=2e-5, atol=1e-6)


def rows(count=6):
    all_batches = batches(count)
    arrays = {"x": np.concatenate([x for x, _ in all_batches]), "y": np.concatenate([y for _, y in all_batches])}
    return ms.dataset.NumpySlicesDataset(arrays, shuffle=False).batch(8)
