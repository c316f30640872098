"""Normalization beyond that of layer.py."""
import tessera

from mindspore import _check
from mindspore.common.initializer import initializer
from mindspore.common.parameter import Parameter
from mindspore.nn.cell import Cell
from mindspore.nn.layer import BatchNorm2d
from mindspore.ops import neural


class BatchNorm1d(BatchNorm2d):
    """x [n,c], each channel brought to mean 0 and variance 1; parameters as BatchNorm2d has them."""

    def construct(self, x):
        if x.ndim != 2:
            raise ValueError(f"For 'BatchNorm1d', the input must be [n,c], but got the shape {x.shape}.")
        return tessera.ops.reshape(super().construct(tessera.ops.expand_dims(x, (2, 3))), x.shape)


class BatchNorm3d(Cell):
    """x [n,c,d,h,w], each channel brought to mean 0 and variance 1. Its part `bn2d` has the parameters, as BatchNorm2d has them."""

    def __init__(self, *args, **kwargs):
        super().__init__()
        self.bn2d = BatchNorm2d(*args, **kwargs)

    def construct(self, x):
        n, c, d, h, w = x.shape
        return tessera.ops.reshape(self.bn2d(tessera.ops.reshape(x, (n, c, d * h, w))), x.shape)


class GroupNorm(Cell):
    """Each sample over its dims, the channels in groups. Parameters gamma, beta, both [num_channels]. Wu and He, ECCV 2018."""

    def __init__(self, num_groups, num_channels, eps=1e-05, affine=True, gamma_init="ones", beta_init="zeros", dtype=tessera.float32):
        super().__init__()
        self.num_groups = _check.integer("GroupNorm", "num_groups", num_groups, 1)
        self.num_channels = _check.integer("GroupNorm", "num_channels", num_channels, 1)
        if num_channels % num_groups:
            raise ValueError(f"For 'GroupNorm', the 'num_channels' {num_channels} must be divisible by the 'num_groups' {num_groups}.")
        self.eps = _check.number("GroupNorm", "eps", eps)
        self.gamma = Parameter(initializer(gamma_init, [num_channels], dtype), name="gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, [num_channels], dtype), name="beta", requires_grad=affine)

    def construct(self, x):
        return neural.group_norm(x, self.num_groups, self.gamma, self.beta, self.eps)
