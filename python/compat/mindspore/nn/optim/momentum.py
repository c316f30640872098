"""The Momentum optimizer."""
from mindspore.nn.optim import Momentum
