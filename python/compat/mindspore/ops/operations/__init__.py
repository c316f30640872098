"""Operators as objects: P.MatMul(), P.ReduceSum(keep_dims=True), ..."""
import tessera
from tessera import ops as _ops

from mindspore._missing import missing
from mindspore.ops.operations import comm_ops
from mindspore.ops.operations.comm_ops import (AllGather, AllReduce, AlltoAll, Broadcast, ReduceOp, ReduceScatter)
from mindspore.ops.primitive import Primitive


def _bool(who, name, value):
    if not isinstance(value, bool):
        raise TypeError(f"For '{who}', the type of '{name}' should be bool, but got {type(value).__name__}.")
    return value


def _of_function(name, function):
    """A primitive without settings, from the function that computes it."""
    made = type(name, (Primitive,), {"run": lambda self, *args: function(*args),
                                     "__doc__": getattr(function, "__doc__", None), "__module__": __name__})
    return made


for _name, _function in {
        "Add": _ops.add, "TensorAdd": _ops.add, "Sub": _ops.sub, "Mul": _ops.mul, "Div": _ops.div, "RealDiv": _ops.div,
        "Pow": _ops.pow, "Maximum": _ops.maximum, "Minimum": _ops.minimum, "Equal": _ops.equal, "NotEqual": _ops.not_equal,
        "Less": _ops.less, "LessEqual": _ops.less_equal, "Greater": _ops.greater, "GreaterEqual": _ops.greater_equal,
        "LogicalAnd": _ops.logical_and, "LogicalOr": _ops.logical_or, "LogicalNot": _ops.logical_not, "Select": _ops.select,
        "Neg": _ops.neg, "Abs": _ops.abs, "Sign": _ops.sign, "Square": _ops.square, "Floor": _ops.floor, "Sqrt": _ops.sqrt,
        "Rsqrt": _ops.rsqrt, "Reciprocal": _ops.reciprocal, "Exp": _ops.exp, "Log": _ops.log, "Sin": _ops.sin, "Cos": _ops.cos,
        "ReLU": _ops.relu, "Sigmoid": _ops.sigmoid, "Tanh": _ops.tanh, "GeLU": _ops.gelu, "ZerosLike": _ops.zeros_like,
        "OnesLike": _ops.ones_like, "Reshape": _ops.reshape, "Transpose": _ops.transpose, "Cast": _ops.cast,
        "ExpandDims": _ops.expand_dims, "Tile": _ops.tile, "BiasAdd": _ops.bias_add, "Flatten": _ops.flatten,
        "Gather": lambda table, indices, axis=0: _ops.gather(table, indices, axis),
        "Fill": lambda dtype, shape, value: _ops.fill(shape, value, dtype),
        "Shape": lambda x: x.shape, "DType": lambda x: x.dtype, "Rank": lambda x: x.ndim, "Identity": lambda x: x,
        "Depend": lambda value, _: value, "IsFinite": _ops.is_finite,
        "Assign": lambda parameter, value: parameter.assign(value) or value,
}.items():
    globals()[_name] = _of_function(_name, _function)
GatherV2 = Gather  # noqa: F821
Gelu = GeLU  # noqa: F821


class MatMul(Primitive):
    """x [m,k] times y [k,n]; an operand is transposed first where its flag says so."""

    def __init__(self, transpose_a=False, transpose_b=False):
        super().__init__()
        self.transpose_a = _bool(self.name, "transpose_a", transpose_a)
        self.transpose_b = _bool(self.name, "transpose_b", transpose_b)

    def run(self, x, y):
        for what, operand in (("x", x), ("y", y)):
            if operand.ndim != 2:
                raise ValueError(f"For 'MatMul', the input '{what}' must be a 2D tensor, but got {operand.ndim}D shape {operand.shape}.")
        return _ops.matmul(x, y, self.transpose_a, self.transpose_b)


class BatchMatMul(MatMul):
    """The same for the last two of at least three dims."""

    def run(self, x, y):
        return _ops.batch_matmul(x, y, self.transpose_a, self.transpose_b)


def _reduction(name, function):
    class Reduction(Primitive):
        def __init__(self, keep_dims=False):
            super().__init__(name)
            self.keep_dims = _bool(name, "keep_dims", keep_dims)

        def run(self, x, axis=()):
            return function(x, axis, self.keep_dims)

    Reduction.__name__ = Reduction.__qualname__ = name
    Reduction.__doc__ = function.__doc__
    return Reduction


for _name in ("Sum", "Mean", "Max", "Min", "Prod", "All", "Any"):
    globals()["Reduce" + _name] = _reduction("Reduce" + _name, getattr(_ops, "reduce_" + _name.lower()))


class OneHot(Primitive):
    """indices [...] -> [..., depth]: on_value at the index, off_value elsewhere."""

    def __init__(self, axis=-1):
        super().__init__()
        self.axis = axis

    def run(self, indices, depth, on_value, off_value):
        return _ops.one_hot(indices, depth, on_value, off_value, self.axis)


class Squeeze(Primitive):
    """Without the dims `axis`, of size 1; (): without all of size 1."""

    def __init__(self, axis=()):
        super().__init__()
        self.axis = axis

    def run(self, x):
        return _ops.squeeze(x, self.axis)


class Softmax(Primitive):
    """exp(x) / sum of exp(x) along an axis."""

    def __init__(self, axis=-1):
        super().__init__()
        self.axis = axis

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
        self.axis = axis

    def run(self, values):
        return _ops.concat(values, self.axis)


class Stack(Concat):
    """Tensors along a new axis."""

    def run(self, values):
        return _ops.stack(values, self.axis)


class Split(Primitive):
    """output_num equal pieces along an axis."""

    def __init__(self, axis=0, output_num=1):
        super().__init__()
        self.axis, self.output_num = axis, output_num

    def run(self, x):
        return _ops.split(x, self.output_num, self.axis)


class StridedSlice(Primitive):
    """x[begin:end:strides] in every dim."""

    def __init__(self, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0):
        super().__init__()
        if begin_mask or end_mask or ellipsis_mask or new_axis_mask or shrink_axis_mask:
            raise NotImplementedError("For 'StridedSlice', masks are not available: index the tensor, x[1:, ..., None]")

    def run(self, x, begin, end, strides):
        return _ops.slice(x, begin, end, strides)


class Conv2D(Primitive):
    """x[n,ci,h,w] with weight[co,ci/group,kh,kw]."""

    def __init__(self, out_channel, kernel_size, mode=1, pad_mode="valid", pad=0, stride=1, dilation=1, group=1,
                 data_format="NCHW"):
        super().__init__()
        self.settings = (stride, pad_mode, pad, dilation, group)

    def run(self, x, weight):
        return _ops.conv2d(x, weight, *self.settings)


class MaxPool(Primitive):
    """The largest element of each window of x[n,c,h,w]."""

    def __init__(self, kernel_size=1, strides=1, pad_mode="valid", data_format="NCHW"):
        super().__init__()
        self.settings = (kernel_size, strides, pad_mode.lower())

    def run(self, x):
        return _ops.max_pool2d(x, *self.settings)


class AvgPool(MaxPool):
    """The mean of each window of x[n,c,h,w]."""

    def run(self, x):
        return _ops.avg_pool2d(x, *self.settings)


__getattr__ = missing(__name__)
del missing
