"""Operators as objects: P.MatMul(), P.ReduceSum(keep_dims=True), ..."""
import tessera
from tessera import ops as _ops

from mindspore import _check
from mindspore._missing import missing
from mindspore.ops import functional as _of
from mindspore.ops.array import _masked_slice, _slice_masks
from mindspore.ops.arithmetic import _reversed_order
from mindspore.ops.drawing import bernoulli as _bernoulli, _one_seed
from mindspore.ops.operations import comm_ops
from mindspore.ops.operations.comm_ops import (AllGather, AllReduce, AlltoAll, Broadcast, NeighborExchange, Receive, ReduceOp,
                                               ReduceScatter, Send)
from mindspore.ops._whole_numbers import passing as _passing
from mindspore.ops.primitive import Primitive


_BROADCAST = ("Add TensorAdd Sub Mul Div RealDiv Pow Maximum Minimum Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr "
              "LogicalXor FloorDiv SquaredDifference DivNoNan").split()


class _Broadcasting(Primitive):
    """Works element by element on two operands, which broadcast."""

    def check_strategy_fits(self, strategy, shapes):
        super().check_strategy_fits(strategy, shapes)
        ndim = max(len(shape) for shape in shapes)
        parts = [1] * ndim
        for counts, shape in zip(strategy, shapes):
            for dim, (count, size) in enumerate(zip(counts, shape), ndim - len(shape)):
                if size > 1 and parts[dim] not in (1, count):
                    raise RuntimeError(f"For '{self.name}', the strategy {strategy} does not split the same dim alike; the shapes are {shapes}.")
                parts[dim] = max(parts[dim], count)
        self.check_parts(strategy, parts)


def _of_function(name, function):
    """A primitive without settings, from the function that computes it."""
    made = type(name, (_Broadcasting if name in _BROADCAST else Primitive,), {"run": lambda self, *args: function(*args),
                                     "__doc__": getattr(function, "__doc__", None), "__module__": __name__})
    return made


for _name, _function in {
        "Add": _ops.add, "TensorAdd": _ops.add, "Sub": _ops.sub, "Mul": _ops.mul, "Div": _ops.div, "RealDiv": _ops.div,
        "Pow": _ops.pow, "Maximum": _ops.maximum, "Minimum": _ops.minimum, "Equal": _ops.equal, "NotEqual": _ops.not_equal,
        "Less": _ops.less, "LessEqual": _ops.less_equal, "Greater": _ops.greater, "GreaterEqual": _ops.greater_equal,
        "LogicalAnd": _ops.logical_and, "LogicalOr": _ops.logical_or, "LogicalNot": _ops.logical_not, "LogicalXor": _ops.logical_xor,
        "Select": _ops.select, "FloorDiv": _of.floor_div, "SquaredDifference": _of.squared_difference, "DivNoNan": _of.div_no_nan,
        "Ceil": _of.ceil, "Tan": _of.tan, "IsNan": _of.isnan, "IsInf": _of.isinf, "Inv": _ops.reciprocal, "Log1p": _of.log1p,
        "Expm1": _of.expm1, "Sinh": _of.sinh, "Cosh": _of.cosh, "ReLU6": _of.relu6, "Softplus": _of.softplus,
        "Softsign": _of.softsign, "HSigmoid": _of.hsigmoid, "HSwish": _of.hswish, "Mish": _of.mish, "AddN": _of.addn,
        "L2Loss": _of.l2_loss, "Size": lambda x: x.size, "Ones": _of.ones, "Zeros": _of.zeros,
        "Neg": _ops.neg, "Abs": _ops.abs, "Sign": _ops.sign, "Square": _ops.square, "Floor": _ops.floor, "Sqrt": _ops.sqrt,
        "Rsqrt": _ops.rsqrt, "Reciprocal": _ops.reciprocal, "Exp": _ops.exp, "Log": _ops.log, "Sin": _ops.sin, "Cos": _ops.cos,
        "ReLU": _ops.relu, "Sigmoid": _ops.sigmoid, "Tanh": _ops.tanh, "GeLU": _ops.gelu, "ZerosLike": _ops.zeros_like,
        "OnesLike": _ops.ones_like, "Reshape": _ops.reshape, "Transpose": _ops.transpose, "Cast": _passing(_ops.cast),
        "ExpandDims": _ops.expand_dims, "Tile": _ops.tile, "Flatten": _ops.flatten,
        "Fill": lambda dtype, shape, value: _ops.fill(shape, value, dtype),
        "Shape": lambda x: x.shape, "DType": lambda x: x.dtype, "Rank": lambda x: x.ndim, "Identity": lambda x: x,
        "Depend": lambda value, _: value, "IsFinite": _ops.is_finite,
        "Assign": _of.assign, "AssignAdd": _of.assign_add, "AssignSub": _of.assign_sub,
        "ScalarToArray": _of.scalar_to_array, "ScalarToTensor": _of.scalar_to_tensor, "TupleToArray": _of.tuple_to_array,
}.items():
    globals()[_name] = _of_function(_name, _function)
Gelu = GeLU  # noqa: F821


class BiasAdd(Primitive):
    """x [n,c,...] plus a bias for each channel."""

    def __init__(self, data_format="NCHW"):
        super().__init__()
        self.data_format = _check.only(self.name, "data_format", data_format, ("NCHW", "NCDHW"), "transpose what has its channels last")

    def run(self, x, bias):
        return _ops.bias_add(x, bias)


class Elu(Primitive):
    """x where x > 0, else alpha * (e^x - 1)."""

    def __init__(self, alpha=1.0):
        super().__init__()
        self.alpha = _check.number(self.name, "alpha", alpha)

    def run(self, x):
        return _of.elu(x, self.alpha)


class Gather(Primitive):
    """The rows of a table along an axis that the indices say."""

    def __init__(self, batch_dims=0):
        super().__init__()
        self.batch_dims = _check.only(self.name, "batch_dims", batch_dims, (0, ), "gather from each table of the batch and stack the results")

    def run(self, table, indices, axis=0):
        return _ops.gather(table, indices, axis)


GatherV2 = Gather


class MatMul(Primitive):
    """x [m,k] times y [k,n]; an operand is transposed first where its flag says so."""

    def __init__(self, transpose_a=False, transpose_b=False):
        super().__init__()
        self.transpose_a = _check.boolean(self.name, "transpose_a", transpose_a)
        self.transpose_b = _check.boolean(self.name, "transpose_b", transpose_b)

    def run(self, x, y):
        for what, operand in (("x", x), ("y", y)):
            if operand.ndim != 2:
                raise ValueError(f"For 'MatMul', the input '{what}' must be a 2D tensor, but got {operand.ndim}D shape {operand.shape}.")
        return _ops.matmul(x, y, self.transpose_a, self.transpose_b)

    def check_strategy_fits(self, strategy, shapes):
        super().check_strategy_fits(strategy, shapes)
        rows, inner = (strategy[0][-1], strategy[0][-2]) if self.transpose_a else strategy[0][-2:]
        columns, other = strategy[1][-2:] if self.transpose_b else (strategy[1][-1], strategy[1][-2])
        if inner != other:
            raise RuntimeError(f"For '{self.name}', the strategy {strategy} must split the dim that is summed over alike; the shapes are {shapes}.")
        self.check_parts(strategy, (*strategy[0][:-2], rows, inner, columns))


class BatchMatMul(MatMul):
    """The same for the last two of at least three dims."""

    def run(self, x, y):
        return _ops.batch_matmul(x, y, self.transpose_a, self.transpose_b)

    def laid_beside(self, args, strategy):
        """An operand that is repeated over the batch is split there as the other one."""
        shapes = [tuple(operand.shape) for operand in args]
        ndim = max(map(len, shapes))
        sizes, counts = [], []
        for dim in range(ndim, 2, -1):  # from the end; an operand may lack the outer ones
            own = [(shape[-dim], parts[-dim]) for shape, parts in zip(shapes, strategy) if dim <= len(shape)]
            size, count = max(own, key=lambda one: one[0])
            sizes.append(size)
            counts.append(count)
        args, strategy = list(args), list(strategy)
        for i, shape in enumerate(shapes):
            whole = (*sizes, *shape[-2:])
            if shape != whole:
                args[i], strategy[i] = _ops.broadcast_to(args[i], whole), (*counts, *strategy[i][-2:])
        return args, tuple(strategy)


def _reduction(name, function):
    class Plain(Primitive):
        def __init__(self, keep_dims=False):
            super().__init__(name)
            self.keep_dims = _check.boolean(name, "keep_dims", keep_dims)

        def run(self, x, axis=()):
            return function(x, axis, self.keep_dims)

    class Skipping(Plain):
        def __init__(self, keep_dims=False, skip_mode=False):
            super().__init__(keep_dims)
            self.skip_mode = _check.boolean(name, "skip_mode", skip_mode)

        def run(self, x, axis=()):
            """An axis of () sums over all axes; with skip_mode it leaves x as it is. The sum of bools is a bool, as in the reference: whether one is True."""
            if self.skip_mode and isinstance(axis, (tuple, list)) and not axis:
                return x
            return _ops.reduce_any(x, axis, self.keep_dims) if x.dtype == tessera.bool_ else super().run(x, axis)

    Reduction = Skipping if name == "ReduceSum" else Plain
    Reduction.__name__ = Reduction.__qualname__ = name
    Reduction.__doc__ = function.__doc__
    return Reduction


for _name in ("Sum", "Mean", "Max", "Min", "Prod", "All", "Any"):
    globals()["Reduce" + _name] = _reduction("Reduce" + _name, getattr(_ops, "reduce_" + _name.lower()))


class Argmax(Primitive):
    """The place of the largest element along an axis, the first of several."""

    def __init__(self, axis=-1, output_type=tessera.int32):
        super().__init__()
        if output_type not in (tessera.int32, tessera.int64):
            raise TypeError(f"For 'Argmax', the 'output_type' must be int32 or int64, but got {output_type}.")
        self.axis, self.output_type = _check.integer(self.name, "axis", axis), output_type

    def run(self, x):
        return _ops.cast(_ops.argmax(x, self.axis), self.output_type)


class ArgMaxWithValue(Primitive):
    """(place, value) of the largest element along an axis."""

    def __init__(self, axis=0, keep_dims=False):
        super().__init__()
        self.axis, self.keep_dims = _check.integer(self.name, "axis", axis), _check.boolean(self.name, "keep_dims", keep_dims)

    def run(self, x):
        place, value = _ops.cast(self.place_of(x), tessera.int64), self.value_of(x)
        return _ops.expand_dims(place, self.axis) if self.keep_dims else place, value

    def place_of(self, x):
        """Without the axis."""
        return _ops.argmax(x, self.axis)

    def value_of(self, x):
        """With the axis, of size 1, if keep_dims."""
        return _ops.reduce_max(x, self.axis, self.keep_dims)


class ArgMinWithValue(ArgMaxWithValue):
    """(place, value) of the smallest element along an axis."""

    def place_of(self, x):
        return _ops.argmax(_reversed_order(x), self.axis)

    def value_of(self, x):
        return _ops.reduce_min(x, self.axis, self.keep_dims)


class TopK(Primitive):
    """(values, places) of the k largest elements of the last dim, falling."""

    def __init__(self, sorted=True):
        super().__init__()
        self.sorted = _check.boolean(self.name, "sorted", sorted)

    def run(self, x, k):
        return tuple(_ops.top_k(x, k))


class CumSum(Primitive):
    """Sums of the elements so far along an axis."""

    def __init__(self, exclusive=False, reverse=False):
        super().__init__()
        self.exclusive, self.reverse = _check.boolean(self.name, "exclusive", exclusive), _check.boolean(self.name, "reverse", reverse)

    def run(self, x, axis):
        return _ops.cumsum(x, axis, self.exclusive, self.reverse)


class BroadcastTo(Primitive):
    """x repeated along dims of size 1 until it has that shape; -1 keeps a size."""

    def __init__(self, shape):
        super().__init__()
        if not isinstance(shape, tuple) or not shape:
            raise TypeError(f"For 'BroadcastTo', the 'shape' must be a tuple that is not empty, but got {shape!r}.")
        self.shape = shape

    def run(self, x):
        return _ops.broadcast_to(x, self.shape)


class Pad(Primitive):
    """Zeros around x: (before, after) of each dim."""

    def __init__(self, paddings):
        super().__init__()
        if not isinstance(paddings, tuple):
            raise TypeError(f"For 'Pad', the 'paddings' must be tuple, but got {type(paddings).__name__}.")
        if any(len(pair) != 2 for pair in paddings):
            raise ValueError(f"For 'Pad', the 'paddings' must be pairs (before, after), but got {paddings}.")
        if any(size < 0 for pair in paddings for size in pair):
            raise ValueError(f"For 'Pad', the 'paddings' must be at least 0, but got {paddings}.")
        self.paddings = paddings

    def run(self, x):
        return _ops.pad(x, [before for before, _ in self.paddings], [after for _, after in self.paddings])


class OneHot(Primitive):
    """indices [...] -> [..., depth]: on_value at the index, off_value elsewhere."""

    def __init__(self, axis=-1):
        super().__init__()
        self.axis = _check.integer(self.name, "axis", axis)

    def run(self, indices, depth, on_value, off_value):
        return _ops.one_hot(indices, depth, on_value, off_value, self.axis)

    def of_operands(self, strategy, shapes):
        if not strategy or len(strategy[0]) != len(shapes[0]) + 1:
            return strategy
        # Of the result: the indices' dims, and the depth where the axis is.
        counts = list(strategy[0])
        if counts.pop(self.axis) != 1:
            raise RuntimeError(f"For '{self.name}', the strategy {strategy} splits the depth, which is not available: split the dims of the indices.")
        return (tuple(counts), *strategy[1:])


class Squeeze(Primitive):
    """Without the dims `axis`, of size 1; (): without all of size 1."""

    def __init__(self, axis=()):
        super().__init__()
        if not isinstance(axis, (int, tuple, list)) or isinstance(axis, bool):
            raise TypeError(f"For 'Squeeze', the 'axis' must be int or tuple, but got {type(axis).__name__}.")
        self.axis = axis

    def run(self, x):
        return _ops.squeeze(x, self.axis)


class Softmax(Primitive):
    """exp(x) / sum of exp(x) along an axis."""

    def __init__(self, axis=-1):
        super().__init__()
        self.axis = _check.integer(self.name, "axis", axis)

    def run(self, x):
        return _ops.softmax(x, self.axis)


class LogSoftmax(Softmax):
    """The logarithm of Softmax."""

    def run(self, x):
        return _ops.log_softmax(x, self.axis)


class Concat(Primitive):
    """Tensors one after the other along an axis."""

    def __init__(self, axis=0):
        super().__init__()
        self.axis = _check.integer(self.name, "axis", axis)

    def run(self, values):
        return _ops.concat(values, self.axis)


class Stack(Concat):
    """Tensors along a new axis."""

    def run(self, values):
        return _ops.stack(values, self.axis)


class Unstack(Primitive):
    """The slices along an axis, which is no longer there."""

    def __init__(self, axis=0, num=None):
        super().__init__()
        self.axis, self.num = _check.integer(self.name, "axis", axis), num

    def run(self, x):
        _check.axis(self.name, "axis", self.axis, x.ndim)
        if self.num not in (None, x.shape[self.axis]):
            raise ValueError(f"For '{self.name}', the 'num' {self.num} must be the size of the axis, but the shape is {tuple(x.shape)}.")
        pieces = _ops.split(x, x.shape[self.axis], self.axis)
        return tuple(_ops.squeeze(piece, self.axis) for piece in pieces)


class Split(Primitive):
    """output_num equal pieces along an axis."""

    def __init__(self, axis=0, output_num=1):
        super().__init__()
        self.axis, self.output_num = _check.integer(self.name, "axis", axis), _check.integer(self.name, "output_num", output_num, 1)

    def run(self, x):
        return _ops.split(x, self.output_num, self.axis)


class StridedSlice(Primitive):
    """x[begin:end:strides] in every dim. Bit i of a mask is about entry i: begin_mask, end_mask: the slice is open there;
    ellipsis_mask: it is `...`; new_axis_mask: a new dim of size 1; shrink_axis_mask: the index begin[i], without its dim."""

    def __init__(self, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0):
        super().__init__()
        self.masks = _slice_masks(begin_mask=begin_mask, end_mask=end_mask, ellipsis_mask=ellipsis_mask, new_axis_mask=new_axis_mask,
                                  shrink_axis_mask=shrink_axis_mask)

    def run(self, x, begin, end, strides):
        return _masked_slice(x, begin, end, strides, self.masks)


class Conv2D(Primitive):
    """x[n,ci,h,w] with weight[co,ci/group,kh,kw]."""

    def __init__(self, out_channel, kernel_size, mode=1, pad_mode="valid", pad=0, stride=1, dilation=1, group=1,
                 data_format="NCHW"):
        super().__init__()
        if mode != 1 or data_format != "NCHW":
            raise NotImplementedError(f"For '{self.name}', the 'mode' must be 1 and the 'data_format' NCHW, but got {mode} and {data_format}: transpose "
                                      "the image")
        self.settings = (stride, pad_mode, pad, dilation, group)
        self.weight_sizes = (out_channel, *((kernel_size, ) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)))

    def run(self, x, weight):
        if (weight.shape[0], *weight.shape[2:]) != self.weight_sizes:
            raise ValueError(f"For '{self.name}', the weight must have 'out_channel' and 'kernel_size' {self.weight_sizes}, but its shape is "
                             f"{tuple(weight.shape)}.")
        return _ops.conv2d(x, weight, *self.settings)


class Conv2DTranspose(Primitive):
    """(x [n,ci,h,w], weight [ci,co/group,kh,kw], input_size (n,co,oh,ow)) -> the transpose of the Conv2D that makes x's size of input_size.
    pad_list: None, or what `pad` says, (top, bottom, left, right), -1 for what it does not."""

    def __init__(self, out_channel, kernel_size, pad_mode="valid", pad=0, pad_list=None, mode=1, stride=1, dilation=1, group=1, data_format="NCHW"):
        super().__init__()
        _check.integer(self.name, "out_channel", out_channel, 1)
        for name, value in (("kernel_size", kernel_size), ("stride", stride), ("dilation", dilation)):
            _check.sizes(self.name, name, value)
        pad_mode = _check.one_of(self.name, "pad_mode", pad_mode.lower() if isinstance(pad_mode, str) else pad_mode, ("valid", "same", "pad"))
        _check.sizes(self.name, "pad", pad, count=4, low=0)
        if pad_mode != "pad" and pad not in (0, (0, 0, 0, 0)):
            raise ValueError(f"For '{self.name}', the 'pad' must be zero or (0, 0, 0, 0) when 'pad_mode' is not \"pad\", but got 'pad' is {pad} and "
                             f"'pad_mode' is {pad_mode}.")
        if mode != 1 or data_format != "NCHW":
            raise ValueError(f"For '{self.name}', the 'mode' must be 1 and the 'data_format' NCHW, but got {mode} and {data_format}.")
        sides = pad if isinstance(pad, tuple) else (pad, ) * 4
        if pad_list and (len(pad_list) != 4 or any(said not in (-1, side) for said, side in zip(pad_list, sides))):
            raise ValueError(f"For '{self.name}', the 'pad_list' must be None or what 'pad' says, {sides}, but got {pad_list}: pad_mode=\"pad\" and pad "
                             "say how much is padded.")
        self.pad_list = pad_list
        _check.integer(self.name, "group", group, 1)
        self.settings = (stride, pad_mode, pad, dilation, group)
        self.weight_sizes = (out_channel, *((kernel_size, ) * 2 if isinstance(kernel_size, int) else kernel_size))

    def run(self, x, weight, input_size):
        if (weight.shape[0], *weight.shape[2:]) != self.weight_sizes:
            raise ValueError(f"For '{self.name}', the weight must have 'out_channel' and 'kernel_size' {self.weight_sizes}, but its shape is "
                             f"{tuple(weight.shape)}.")
        made = _ops.conv2d_transpose(x, weight, *self.settings, tuple(input_size)[2:])
        if tuple(made.shape) != tuple(input_size):
            raise ValueError(f"For '{self.name}', the 'input_size' must be {tuple(made.shape)}, but got {tuple(input_size)}.")
        return made


class Conv2DBackpropInput(Conv2DTranspose):
    """As Conv2DTranspose: the gradient of Conv2D's x, from that of its result."""


class Dropout(Primitive):
    """(x, mask): in a cell under training each element with probability keep_prob, divided by it, else 0. Drawn by nn.Dropout."""

    def __init__(self, keep_prob=0.5, Seed0=0, Seed1=0):
        super().__init__()
        if not 0 < _check.number(self.name, "keep_prob", keep_prob) <= 1:
            raise ValueError(f"For 'Dropout', the 'keep_prob' must be in range (0, 1], but got {keep_prob}.")
        self.keep_prob, self.Seed0, self.Seed1 = keep_prob, Seed0, Seed1
        self.seed = _one_seed(Seed0, Seed1)

    def run(self, x):
        kept = _bernoulli(x, self.keep_prob, self.seed)
        return x * kept / self.keep_prob, kept


class ApplyMomentum(Primitive):
    """(variable, accumulation, learning_rate, gradient, momentum): accumulation becomes accumulation * momentum + gradient, the variable loses learning_rate *
    accumulation, with use_nesterov learning_rate * (gradient + momentum * accumulation); returns it. use_locking has no effect: nobody else writes it."""

    def __init__(self, use_nesterov=False, use_locking=False, gradient_scale=1.0):
        super().__init__()
        _check.boolean(self.name, "use_locking", use_locking)
        self.use_nesterov = _check.boolean(self.name, "use_nesterov", use_nesterov)
        self.gradient_scale = _check.only(self.name, "gradient_scale", gradient_scale, (1.0, 1), "multiply the gradient")

    def run(self, variable, accumulation, learning_rate, gradient, momentum):
        for name, parameter in (("variable", variable), ("accumulation", accumulation)):
            if not isinstance(parameter, tessera.Parameter):
                raise TypeError(f"For '{self.name}', the '{name}' must be a Parameter, which it changes, but got {type(parameter).__name__}.")
        total = _of.assign(accumulation, accumulation * momentum + gradient)
        return _of.assign(variable, variable - learning_rate * (gradient + total * momentum if self.use_nesterov else total))


class MaxPool(Primitive):
    """The largest element of each window of x[n,c,h,w]."""

    def __init__(self, kernel_size=1, strides=1, pad_mode="valid", data_format="NCHW"):
        super().__init__()
        if data_format != "NCHW":
            raise NotImplementedError(f"For '{self.name}', the 'data_format' must be NCHW, but got {data_format}: transpose the image")
        self.settings = (kernel_size, strides, pad_mode.lower())

    def run(self, x):
        return _ops.max_pool2d(x, *self.settings)


class AvgPool(MaxPool):
    """The mean of each window of x[n,c,h,w]."""

    def run(self, x):
        return _ops.avg_pool2d(x, *self.settings)


Pack, Unpack = Stack, Unstack

__getattr__ = missing(__name__)
del missing
