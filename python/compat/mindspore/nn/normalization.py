"""Normalization beyond that of layer.py."""
import contextlib

import tessera
from tessera import ops as _ops

from mindspore import _check, context
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
        self.eps, self.affine = _check.non_negative("GroupNorm", "eps", eps), affine
        self.gamma = Parameter(initializer(gamma_init, [num_channels], dtype), name="gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, [num_channels], dtype), name="beta", requires_grad=affine)

    def construct(self, x):
        return neural.group_norm(x, self.num_groups, self.gamma, self.beta, self.eps)


class _InstanceNorm(Cell):
    """Each channel of each sample brought to mean 0 and variance 1. Parameters gamma, beta, and mean and variance, which keep their first
    values; all [num_features]. Ulyanov et al., 2016."""

    _ndim = 0

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, gamma_init="ones", beta_init="zeros", dtype=tessera.float32):
        super().__init__()
        who = type(self).__name__
        self.num_features = _check.integer(who, "num_features", num_features, 1)
        self.eps, self.momentum, self.affine = _check.positive(who, "eps", eps), momentum, _check.boolean(who, "affine", affine)
        if not 0 <= momentum <= 1:
            raise ValueError(f"For '{who}', the 'momentum' must be a number in range [0, 1], but got {momentum}.")
        self.moving_mean = Parameter(initializer("zeros", [num_features], dtype), name="mean", requires_grad=False)
        self.moving_variance = Parameter(initializer("ones", [num_features], dtype), name="variance", requires_grad=False)
        self.gamma = Parameter(initializer(gamma_init, [num_features], dtype), name="gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, [num_features], dtype), name="beta", requires_grad=affine)

    def construct(self, x):
        if x.ndim != self._ndim or x.shape[1] != self.num_features:
            raise ValueError(f"For '{type(self).__name__}', the input must have {self._ndim} dims and {self.num_features} channels, but got the shape "
                             f"{tuple(x.shape)}.")
        return neural.group_norm(x, self.num_features, self.gamma, self.beta, self.eps)


class InstanceNorm1d(_InstanceNorm):
    """x [n,c,l], each channel of each sample brought to mean 0 and variance 1. See InstanceNorm2d."""

    _ndim = 3


class InstanceNorm2d(_InstanceNorm):
    __doc__ = "x [n,c,h,w]. " + _InstanceNorm.__doc__

    _ndim = 4


class InstanceNorm3d(_InstanceNorm):
    """x [n,c,d,h,w], each channel of each sample brought to mean 0 and variance 1. See InstanceNorm2d."""

    _ndim = 5


class SyncBatchNorm(Cell):
    """x [n,c,...], each channel brought to mean 0 and variance 1 by the statistics of the rows of all ranks, in every parallel mode;
    moving = momentum * moving + (1 - momentum) * batch. Parameters gamma, beta, moving_mean, moving_variance, all [num_features]."""

    # Within sees_all_rows() the graph is that of all ranks.
    _all_rows = 0

    def __init__(self, num_features, eps=1e-5, momentum=0.9, affine=True, gamma_init="ones", beta_init="zeros", moving_mean_init="zeros",
                 moving_var_init="ones", use_batch_statistics=None, process_groups=None, dtype=tessera.float32):
        super().__init__()
        who = "SyncBatchNorm"
        self.num_features, self.eps = _check.integer(who, "num_features", num_features, 1), _check.positive(who, "eps", eps)
        if not 0 <= _check.number(who, "momentum", momentum) <= 1:
            raise ValueError(f"For '{who}', the 'momentum' must be a number in range [0, 1], but got {momentum}.")
        if use_batch_statistics is not None:
            _check.boolean(who, "use_batch_statistics", use_batch_statistics)
        self.momentum, self.use_batch_statistics, self.process_groups = float(momentum), use_batch_statistics, process_groups
        self.moving_mean = Parameter(initializer(moving_mean_init, [num_features], dtype), name="mean", requires_grad=False)
        self.moving_variance = Parameter(initializer(moving_var_init, [num_features], dtype), name="variance", requires_grad=False)
        self.gamma = Parameter(initializer(gamma_init, [num_features], dtype), name="gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, [num_features], dtype), name="beta", requires_grad=affine)

    def _num_ranks(self):
        """Ranks whose sums are to be added up."""
        if self.process_groups is not None:
            every = set(range(tessera.cluster.size() if tessera.cluster.is_initialized() else 1))
            if [set(group) for group in self.process_groups] != [every]:
                raise NotImplementedError(f"For 'SyncBatchNorm', process_groups={self.process_groups} is not available: all ranks normalise together")
        if SyncBatchNorm._all_rows or not tessera.cluster.is_initialized():
            return 1
        of_own_rows = (context.ParallelMode.DATA_PARALLEL, context.ParallelMode.HYBRID_PARALLEL)
        return tessera.cluster.size() if context.get_auto_parallel_context("parallel_mode") in of_own_rows else 1

    def construct(self, x):
        if x.ndim < 2 or x.shape[1] != self.num_features:
            raise ValueError(f"For 'SyncBatchNorm', the input must be [n,{self.num_features},...], but got the shape {tuple(x.shape)}.")
        dtype, along = x.dtype, (1, -1) + (1, ) * (x.ndim - 2)
        wide = _ops.cast(x, tessera.float32) if dtype in (tessera.float16, tessera.bfloat16) else x
        is_batch = self.training if self.use_batch_statistics is None else self.use_batch_statistics
        mean, variance = self._batch_statistics(wide) if is_batch else (self.moving_mean, self.moving_variance)
        scale = _ops.rsqrt(variance + self.eps) * self.gamma
        made = (wide - _ops.reshape(mean, along)) * _ops.reshape(scale, along) + _ops.reshape(self.beta, along)
        return _ops.cast(made, dtype)

    def _batch_statistics(self, x):
        dims, ranks = (0, *range(2, x.ndim)), self._num_ranks()
        count = x.size // self.num_features * ranks

        def mean_of(values):
            total = _ops.reduce_sum(values, dims)
            return (_ops.all_reduce(total) if ranks > 1 else total) / float(count)

        mean = mean_of(x)
        variance = mean_of(_ops.square(x - _ops.reshape(mean, (1, -1) + (1, ) * (x.ndim - 2))))
        if self.training:
            unbiased = variance * (count / (count - 1) if count > 1 else 1.0)
            self.moving_mean = self._moved(self.moving_mean, mean)
            self.moving_variance = self._moved(self.moving_variance, unbiased)
        return mean, variance

    def _moved(self, moving, batch):
        return moving * self.momentum + _ops.stop_gradient(batch) * (1.0 - self.momentum)


@contextlib.contextmanager
def sees_all_rows(holds=True):
    """What is traced within is the graph of all ranks, as a Model's is in data parallel: a batch is the rows of all of them."""
    SyncBatchNorm._all_rows += holds
    try:
        yield
    finally:
        SyncBatchNorm._all_rows -= holds
