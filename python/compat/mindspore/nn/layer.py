"""The layers."""
import itertools
from math import prod, sqrt

import tessera
from tessera import ops as _ops

from mindspore import _check, context
from mindspore import ops as P
from mindspore.common.initializer import HeUniform, PendingTensor, Uniform, initializer, to_native
from mindspore.common.parameter import Parameter
from mindspore.communication import get_group_size
from mindspore.nn.basic import ClipByNorm
from mindspore.nn.cell import Cell


def _positive(who, name, value):
    return _check.integer(who, name, value, 1)


def _nchw(who, data_format):
    if data_format != "NCHW":
        raise ValueError(f"For '{who}', the 'data_format' must be NCHW, but got {data_format}.")


def _initial(who, what, init, shape, dtype=tessera.float32):
    """A parameter's first value, of that shape."""
    made = initializer(init) if isinstance(init, (tessera.Tensor, PendingTensor)) else initializer(init, shape, dtype)
    if tuple(made.shape) != tuple(shape):
        raise ValueError(f"For '{who}', {what} init shape error: it must be {tuple(shape)}, but got {tuple(made.shape)}.")
    return made


def _even(weight_init, bias_init, fan_in):
    """Where a layer is given no initializers its weights and biases are even within +-1 / sqrt(fan_in), as in the reference since 2.0."""
    return HeUniform(sqrt(5)) if weight_init is None else weight_init, Uniform(1 / sqrt(fan_in)) if bias_init is None else bias_init


class Dense(Cell):
    """x [..., in_channels] -> x W^T + b. Parameters weight [out_channels, in_channels], bias [out_channels]."""

    def __init__(self, in_channels, out_channels, weight_init=None, bias_init=None, has_bias=True, activation=None,
                 dtype=tessera.float32):
        super().__init__()
        self.in_channels = _positive("Dense", "in_channels", in_channels)
        self.out_channels = _positive("Dense", "out_channels", out_channels)
        self.has_bias = _check.boolean("Dense", "has_bias", has_bias)
        if activation is not None and not isinstance(activation, (str, tessera.nn.Cell, P.Primitive)):
            raise TypeError(f"For 'Dense', the 'activation' must be str or Cell or Primitive, but got {type(activation).__name__}.")
        weight_init, bias_init = _even(weight_init, bias_init, in_channels)
        self.weight = Parameter(_initial("Dense", "weight", weight_init, [out_channels, in_channels], dtype), name="weight")
        if has_bias:
            self.bias = Parameter(_initial("Dense", "bias", bias_init, [out_channels], dtype), name="bias")
            self.bias_add = P.Add()
        else:
            self.bias = None
        # Of shape_op and reshape classes that derive from this one make use.
        self.matmul, self.shape_op, self.reshape = P.MatMul(transpose_b=True), P.Shape(), P.Reshape()
        self.activation = get_activation(activation) if isinstance(activation, str) else activation
        self.activation_flag = self.activation is not None

    def construct(self, x):
        shape = x.shape
        if len(shape) != 2:
            x = _ops.reshape(x, (-1, shape[-1]))
        x = self.matmul(x, self.weight)
        if self.has_bias:
            x = self.bias_add(x, self.bias)
        if self.activation_flag:
            x = self.activation(x)
        return _ops.reshape(x, (*shape[:-1], self.out_channels)) if len(shape) != 2 else x


class Conv2d(Cell):
    """x [n,in_channels,h,w] -> [n,out_channels,h',w']. Parameters weight [out, in / group, kh, kw], bias if has_bias."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, pad_mode="same", padding=0, dilation=1, group=1,
                 has_bias=False, weight_init=None, bias_init=None, data_format="NCHW", dtype=tessera.float32):
        super().__init__()
        self.in_channels = _positive("Conv2d", "in_channels", in_channels)
        self.out_channels = _positive("Conv2d", "out_channels", out_channels)
        for name, sizes in (("kernel_size", kernel_size), ("stride", stride), ("dilation", dilation)):
            _check.sizes("Conv2d", name, sizes)
        _check.one_of("Conv2d", "pad_mode", pad_mode, ("valid", "same", "pad"))
        _check.sizes("Conv2d", "padding", padding, count=4, low=0)
        if pad_mode != "pad" and padding not in (0, (0, 0, 0, 0)):
            raise ValueError(f"For 'Conv2d', the 'padding' must be zero when 'pad_mode' is '{pad_mode}', but got {padding}.")
        _positive("Conv2d", "group", group)
        if in_channels % group or out_channels % group:
            raise ValueError(f"For 'Conv2d', the channels {in_channels} and {out_channels} must be divisible by 'group' {group}.")
        _nchw("Conv2d", data_format)
        pairs = [(sizes, sizes) if isinstance(sizes, int) else sizes for sizes in (kernel_size, stride, dilation)]
        self.kernel_size, self.stride, self.dilation = pairs
        self.padding, self.pad_mode, self.group, self.data_format = padding, pad_mode, group, data_format
        kernel = pairs[0]
        weight_init, bias_init = self.weight_init, self.bias_init = _even(weight_init, bias_init, in_channels // group * prod(kernel))
        self.weight = Parameter(_initial("Conv2d", "weight", weight_init, [out_channels, in_channels // group, *kernel], dtype), name="weight")
        self.has_bias = _check.boolean("Conv2d", "has_bias", has_bias)
        if has_bias:
            self.bias = Parameter(_initial("Conv2d", "bias", bias_init, [out_channels], dtype), name="bias")
            self.bias_add = P.BiasAdd()
        else:
            self.bias = None
        self.conv2d = P.Conv2D(out_channels, kernel, 1, pad_mode, padding, stride, dilation, group)

    def construct(self, x):
        x = self.conv2d(x, self.weight)
        return self.bias_add(x, self.bias) if self.has_bias else x


class BatchNorm2d(Cell):
    """x [n,c,h,w], each channel brought to mean 0 and variance 1; moving = momentum * moving + (1 - momentum) * batch.
    Parameters gamma, beta, moving_mean, moving_variance, all [num_features]."""

    _inner = "bn_train"

    def __init__(self, num_features, eps=1e-5, momentum=0.9, affine=True, gamma_init="ones", beta_init="zeros",
                 moving_mean_init="zeros", moving_var_init="ones", use_batch_statistics=None, data_format="NCHW", dtype=tessera.float32):
        super().__init__(auto_prefix=False)
        _check.only(type(self).__name__, "dtype", dtype, (tessera.float32, ), "its parameters and statistics are float32; to_float() and amp levels say "
                    "what is computed in a half type")
        self.num_features, self.eps, self.momentum = _positive("BatchNorm2d", "num_features", num_features), eps, momentum
        if not 0 <= momentum <= 1:
            raise ValueError(f"For 'BatchNorm2d', the 'momentum' must be in range [0, 1], but got {momentum}.")
        if use_batch_statistics not in (None, True, False) or isinstance(use_batch_statistics, int) and not isinstance(use_batch_statistics, bool):
            raise TypeError(f"For 'BatchNorm2d', the 'use_batch_statistics' must be bool or None, but got {type(use_batch_statistics).__name__}.")
        _nchw("BatchNorm2d", data_format)
        given = {"gamma": gamma_init, "beta": beta_init, "moving_mean": moving_mean_init, "moving_variance": moving_var_init}
        made = {name: initializer(init, [num_features]) for name, init in given.items()}
        natives = [to_native(0.0) if isinstance(init, tessera.Tensor) else init.init for init in made.values()]
        self.bn_train = tessera.nn.BatchNorm2d(num_features, eps, momentum, affine, *natives, use_batch_statistics)
        for name, init in made.items():
            if isinstance(init, tessera.Tensor):
                getattr(self.bn_train, name).set_data(init.astype(tessera.float32))

    def construct(self, x):
        return self.bn_train(x)

    def __getattr__(self, name):
        if name in ("gamma", "beta", "moving_mean", "moving_variance"):
            return getattr(self.bn_train, name)
        return super().__getattr__(name)


class LayerNorm(Cell):
    """Each sample over its dims from begin_norm_axis on. Parameters gamma, beta of normalized_shape, the sizes from begin_params_axis on."""

    def __init__(self, normalized_shape, begin_norm_axis=-1, begin_params_axis=-1, gamma_init="ones", beta_init="zeros", epsilon=1e-7,
                 dtype=tessera.float32):
        super().__init__()
        if not isinstance(normalized_shape, (tuple, list)):
            raise TypeError(f"For 'LayerNorm', the 'normalized_shape' must be tuple[int] or list[int], but got {type(normalized_shape).__name__}.")
        self.begin_norm_axis, self.epsilon = begin_norm_axis, _check.non_negative("LayerNorm", "epsilon", epsilon)
        self.begin_params_axis, self.normalized_shape = begin_params_axis, normalized_shape
        self.layer_norm = P.LayerNorm(begin_norm_axis, begin_params_axis, epsilon)  # for classes that derive from this one
        self.gamma = Parameter(initializer(gamma_init, normalized_shape, dtype), name="gamma")
        self.beta = Parameter(initializer(beta_init, normalized_shape, dtype), name="beta")

    def construct(self, x):
        if self.begin_params_axis % x.ndim == self.begin_norm_axis % x.ndim:
            return _ops.layer_norm(x, self.gamma, self.beta, self.begin_norm_axis, self.epsilon)
        return self.layer_norm(x, self.gamma, self.beta)[0]


# Tables that are made at once, before their parameters have the names that initial values are a function of.
_tables = itertools.count()


class Embedding(Cell):
    """ids -> rows of embedding_table [vocab_size, embedding_size]. use_one_hot: by a product with the ids' one-hot rows, in which an id that the
    table has not gives zeros."""

    def __init__(self, vocab_size, embedding_size, use_one_hot=False, embedding_table="normal", dtype=tessera.float32, padding_idx=None):
        super().__init__()
        self.use_one_hot = _check.boolean("Embedding", "use_one_hot", use_one_hot)
        self.vocab_size = _positive("Embedding", "vocab_size", vocab_size)
        self.embedding_size = _positive("Embedding", "embedding_size", embedding_size)
        table = initializer(embedding_table, [vocab_size, embedding_size], dtype)
        if padding_idx is not None:
            if not 0 <= _check.integer("Embedding", "padding_idx", padding_idx) < vocab_size:
                raise ValueError(f"For 'Embedding', the 'padding_idx' must be in range [0, {vocab_size}), but got {padding_idx}.")
            table = table.init_data(f"embedding_table.{next(_tables)}") if isinstance(table, PendingTensor) else tessera.Tensor(table)
            table[padding_idx] = 0.0
        self.padding_idx, self.dtype = padding_idx, dtype
        self.embedding_table = Parameter(table, name="embedding_table")
        self.gather, self.array_mul = P.Gather(), P.MatMul()

    def construct(self, ids):
        if not self.use_one_hot:
            return self.gather(self.embedding_table, ids, 0)
        hot = _ops.cast(_ops.one_hot(_ops.reshape(ids, (-1, )), self.vocab_size), self.embedding_table.dtype)
        return _ops.reshape(self.array_mul(hot, self.embedding_table), (*ids.shape, self.embedding_size))


class EmbeddingLookup(Cell):
    """ids -> rows of embedding_table [vocab_size, embedding_size]; with max_norm each row at most that long. In a job with parameter servers the
    table is theirs after set_param_ps(). sparse: nn.LazyAdam leaves rows that were not looked up. slice_mode: how semi-automatic and automatic
    parallel split the table and ids of two dims."""

    BATCH_SLICE, FIELD_SLICE, TABLE_ROW_SLICE, TABLE_COLUMN_SLICE = "batch_slice", "field_slice", "table_row_slice", "table_column_slice"

    def __init__(self, vocab_size, embedding_size, param_init="normal", target="CPU", slice_mode="batch_slice", manual_shapes=None, max_norm=None,
                 sparse=True, vocab_cache_size=0, dtype=tessera.float32):
        super().__init__()
        who = "EmbeddingLookup"
        self.sparse = _check.boolean(who, "sparse", sparse)
        self.vocab_size, self.embedding_size = _positive(who, "vocab_size", vocab_size), _positive(who, "embedding_size", embedding_size)
        self.target = _check.one_of(who, "target", target, ("CPU", "DEVICE"))
        if not sparse and target == "CPU":
            raise ValueError(f"For '{who}', 'sparse' must be True when 'target' is \"CPU\", but got 'sparse': {sparse} and 'target': {target}")
        if _check.integer(who, "vocab_cache_size", vocab_cache_size, 0) > 0:
            context.warn_once(f"{who}: vocab_cache_size={vocab_cache_size} has no effect: a row that a step looks up has changed when the step ends, "
                              "so a worker's copy of it would never be read again")
        self.vocab_cache_size = vocab_cache_size
        self.embedding_table = Parameter(initializer(param_init, [vocab_size, embedding_size], dtype), name="embedding_table")
        self.embedding_table.is_looked_up_sparsely = sparse
        self.gather = P.Gather()
        if context.get_auto_parallel_context("parallel_mode") in ("semi_auto_parallel", "auto_parallel"):
            self.gather.shard(self._strategy(who, slice_mode, manual_shapes))
        self.max_norm = None if max_norm is None else _check.positive(who, "max_norm", max_norm)

    def _strategy(self, who, slice_mode, manual_shapes):
        ranks = get_group_size()
        if slice_mode == self.FIELD_SLICE:
            if not manual_shapes:
                raise ValueError(f"For '{who}', the 'manual_shapes' should not be none when the 'slice_mode' is \"field_slice\", but got {manual_shapes}.")
            raise NotImplementedError(f"For '{who}', slice_mode field_slice is not available: use table_row_slice, or a table for each field")
        strategies = {self.BATCH_SLICE: ((1, 1), (ranks, 1)), self.TABLE_ROW_SLICE: ((ranks, 1), (1, 1)), self.TABLE_COLUMN_SLICE: ((1, ranks), (1, 1))}
        if slice_mode not in strategies:
            raise ValueError(f"For '{who}', the 'slice_mode' must be in {[self.FIELD_SLICE, *strategies]}, but got \"{slice_mode}\".")
        return strategies[slice_mode]

    def construct(self, indices):
        rows = self.gather(self.embedding_table, indices, 0)
        if self.max_norm is None:
            return rows
        return ClipByNorm(tuple(range(len(indices.shape), len(rows.shape))))(rows, self.max_norm)


def _check_window(who, kernel_size, stride, pad_mode, data_format):
    _check.sizes(who, "kernel_size", kernel_size)
    _check.sizes(who, "stride", stride)
    if not isinstance(pad_mode, str) or pad_mode.lower() not in ("valid", "same"):
        raise ValueError(f"For '{who}', the 'pad_mode' must be 'valid' or 'same', but got {pad_mode}.")
    _nchw(who, data_format)


class _Pool(Cell):
    """What the pools share. pad_mode "pad" takes `padding`, one number or (rows, columns)."""

    def __init__(self, kernel_size, stride, pad_mode, padding, data_format, refused):
        super().__init__()
        who = type(self).__name__
        for name, value in refused.items():
            if value not in (1, None, False):
                raise NotImplementedError(f"For '{who}', {name}={value} is not available: pad the image")
        self.is_padded = isinstance(pad_mode, str) and pad_mode.lower() == "pad"
        _check_window(who, kernel_size, stride, "valid" if self.is_padded else pad_mode, data_format)
        self.padding = _check.sizes(who, "padding", padding, low=0)
        rows, columns = padding if isinstance(padding, tuple) else (padding, padding)
        if not self.is_padded and (rows or columns):
            raise ValueError(f"For '{who}', the 'padding' must be zero when 'pad_mode' is '{pad_mode}', but got {padding}.")
        self.sides = (rows, rows, columns, columns)
        self.window = (kernel_size, stride)
        self.kernel_size, self.stride, self.pad_mode, self.format = kernel_size, stride, pad_mode.upper(), data_format


class MaxPool2d(_Pool):
    """The largest element of each window; what surrounds the image never wins. return_indices: with its place in the image, row * width + column."""

    def __init__(self, kernel_size=1, stride=1, pad_mode="valid", padding=0, dilation=1, return_indices=False, ceil_mode=False, data_format="NCHW"):
        super().__init__(kernel_size, stride, pad_mode, padding, data_format, {})
        self.dilation, self.return_indices, self.ceil_mode = _check.sizes("MaxPool2d", "dilation", dilation), return_indices, ceil_mode
        self.seeks_places = dilation not in (1, (1, 1)) or return_indices or ceil_mode
        if self.seeks_places and not self.is_padded:
            raise ValueError("For MaxPool2d, the parameter 'padding', 'dilation', 'return_indices', 'ceil_mode' can not be set to non-default value when "
                             f"pad_mode is not 'pad', but got pad_mode:{pad_mode}.")
        self.max_pool = P.MaxPool(kernel_size, stride, "valid" if self.is_padded else pad_mode)

    def construct(self, x):
        if self.seeks_places:
            made = _ops.max_pool2d_with_places(x, *self.window, self.padding, self.dilation, self.ceil_mode)
            return made if self.return_indices else made[0]
        return _ops.max_pool2d(x, *self.window, "pad", self.sides) if self.is_padded else self.max_pool(x)


class AvgPool2d(_Pool):
    """The mean of each window; with count_include_pad the zeros of padding count."""

    def __init__(self, kernel_size=1, stride=1, pad_mode="valid", padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None,
                 data_format="NCHW"):
        super().__init__(kernel_size, stride, pad_mode, padding, data_format, dict(ceil_mode=ceil_mode, divisor_override=divisor_override))
        self.count_include_pad = _check.boolean("AvgPool2d", "count_include_pad", count_include_pad)
        self.avg_pool = P.AvgPool(kernel_size, stride, "valid" if self.is_padded else pad_mode)

    def construct(self, x):
        if not self.is_padded:
            return self.avg_pool(x)
        if not self.count_include_pad:
            return _ops.avg_pool2d(x, *self.window, "pad", self.sides)
        rows, _, columns, _ = self.sides
        return self.avg_pool(_ops.pad(x, (0, 0, rows, columns), (0, 0, rows, columns)))


class _DropoutOperator(P.Primitive):
    """What a Dropout calls: takes a strategy, as operators do."""

    def __init__(self, cell):
        super().__init__("Dropout")
        self.cell = cell

    def __call__(self, x):
        # In evaluation it is no operator of the graph.
        return super().__call__(x) if self.cell.training else x

    def run(self, x):
        return self.cell(x)


class Dropout(Cell):
    """In training each element is kept with probability keep_prob, or 1 - p, and divided by it, else 0. dtype has no effect, as in the reference:
    the result has that of x."""

    _inner = "cell"

    def __init__(self, keep_prob=0.5, p=None, dtype=tessera.float32):
        super().__init__(auto_prefix=False)
        if not isinstance(dtype, tessera.DType):
            raise TypeError(f"For 'Dropout', the 'dtype' must be a dtype of mindspore, but got {type(dtype).__name__}.")
        p, keep_prob = self._shares(p, keep_prob)
        self.__dict__.update(p=p, keep_prob=keep_prob)
        self.cell = tessera.nn.Dropout(keep_prob)
        self.dropout = _DropoutOperator(self.cell)

    @staticmethod
    def _shares(p, keep_prob):
        if p is not None:
            if not 0 <= _check.number("Dropout", "p", p) < 1:
                raise ValueError(f"For 'Dropout', the 'p' must be a number in range [0, 1), but got {p}.")
            keep_prob = 1.0 - p
        if not 0 < _check.number("Dropout", "keep_prob", keep_prob) <= 1:
            raise ValueError(f"For 'Dropout', the 'keep_prob' must be in range (0, 1], but got {keep_prob}.")
        return 1.0 - keep_prob if p is None else p, keep_prob

    def __setattr__(self, name, value):
        """p and keep_prob hold from the next call on."""
        if name not in ("p", "keep_prob"):
            super().__setattr__(name, value)
            return
        p, keep_prob = self._shares(value if name == "p" else None, value)
        self.__dict__.update(p=p, keep_prob=keep_prob)
        cell = tessera.nn.Dropout(keep_prob)
        cell.configure_as(self.cell)
        self.dropout.cell = self.cell = cell

    def construct(self, x):
        return self.dropout(x)


def _activation(name, primitive):
    class Activation(Cell):
        def __init__(self):
            super().__init__()
            self.run = primitive()

        def construct(self, x):
            return self.run(x)

    Activation.__name__ = Activation.__qualname__ = name
    Activation.__doc__ = primitive.__doc__
    return Activation


ReLU = _activation("ReLU", P.ReLU)
Sigmoid = _activation("Sigmoid", P.Sigmoid)
Tanh = _activation("Tanh", P.Tanh)


class GELU(Cell):
    """x * P(X <= x) for a standard normal X; approximate: by its tanh form."""

    def __init__(self, approximate=True):
        super().__init__()
        self.approximate = _check.boolean("GELU", "approximate", approximate)
        self.run = P.GeLU()

    def construct(self, x):
        return self.run(x) if self.approximate else _ops.gelu(x, False)


ReLU6 = _activation("ReLU6", P.ReLU6)
HSigmoid = _activation("HSigmoid", P.HSigmoid)
HSwish = _activation("HSwish", P.HSwish)
Softsign = _activation("Softsign", P.Softsign)
Mish = _activation("Mish", P.Mish)


class LeakyReLU(Cell):
    """x where x > 0, else alpha * x."""

    def __init__(self, alpha=0.2):
        super().__init__()
        self.alpha = _check.number("LeakyReLU", "alpha", alpha)

    def construct(self, x):
        return _ops.maximum(x, 0.0) + self.alpha * _ops.minimum(x, 0.0)


class ELU(Cell):
    """x where x > 0, else alpha * (e^x - 1)."""

    def __init__(self, alpha=1.0):
        super().__init__()
        self.alpha = _check.number("ELU", "alpha", alpha)

    def construct(self, x):
        return P.elu(x, self.alpha)


class SiLU(Cell):
    """x * sigmoid(x)."""

    def construct(self, x):
        return x * _ops.sigmoid(x)


class LogSigmoid(Cell):
    """log(sigmoid(x))."""

    def construct(self, x):
        return -P.softplus(-x)


class LogSoftmax(Cell):
    """log(exp(x) / sum of exp(x)) along an axis."""

    def __init__(self, axis=-1):
        super().__init__()
        self.log_softmax = P.LogSoftmax(axis)

    def construct(self, x):
        return self.log_softmax(x)


class Identity(Cell):
    """x."""

    def construct(self, x):
        return x


class Softmax(Cell):
    """exp(x) / sum of exp(x) along an axis."""

    def __init__(self, axis=-1):
        super().__init__()
        self.softmax = P.Softmax(axis)

    def construct(self, x):
        return self.softmax(x)


class Flatten(Cell):
    """The dims from start_dim to end_dim as one: [n, ...] -> [n, product of the rest]."""

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = _check.integer("Flatten", "start_dim", start_dim), _check.integer("Flatten", "end_dim", end_dim)

    def construct(self, x):
        for dim in (self.start_dim, self.end_dim):
            if not -max(x.ndim, 1) <= dim < max(x.ndim, 1):
                raise ValueError(f"For 'Flatten', 'start_dim' or 'end_dim' out of range: {dim} of the shape {tuple(x.shape)}.")
        return P.flatten(x, start_dim=self.start_dim, end_dim=self.end_dim)


def get_activation(name, prim_name=None):
    """The activation cell of that name, None for None. KeyError for an unknown one."""
    if name is None:
        return None
    known = {"relu": ReLU, "relu6": ReLU6, "leakyrelu": LeakyReLU, "elu": ELU, "sigmoid": Sigmoid, "logsigmoid": LogSigmoid, "tanh": Tanh,
             "gelu": GELU, "hsigmoid": HSigmoid, "hswish": HSwish, "softsign": Softsign, "softmax": Softmax, "logsoftmax": LogSoftmax}
    if name not in known:
        raise KeyError(f"For '{prim_name or 'get_activation'}', the 'name' must be in {list(known)}, but got {name}.")
    return known[name]()
