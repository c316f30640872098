"""The cases: what both packages have. Rows only; kinds.py says what becomes of them."""
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import initializer

from kinds import (CASES, HALVES, SINGLE, GivenGradients, bools, cell, exactly, floats, grid, ints, metric, operator,  # noqa: F401
                   optimizer, positive, rate, schedule, seeded, set_parameters, training, value)

# --- elementwise: as objects and as functions
for name in "Neg Abs Sign Square Floor Exp Sin Cos ReLU Sigmoid Tanh GeLU ZerosLike OnesLike Identity IsFinite".split():
    operator(f"ops.{name}", getattr(ops, name), floats(3, 4))
operator("ops.FloatStatus", ops.FloatStatus, floats(3, 4), dtypes=SINGLE, gradient=False)
for name in "Ceil IsNan IsInf Expm1 Sinh Cosh ReLU6 Elu Softplus Softsign HSigmoid HSwish Mish L2Loss".split():
    operator(f"ops.{name}", getattr(ops, name), floats(3, 4))
    operator(f"ops.{name} far", getattr(ops, name), floats(3, 4, low=-9, high=9))
operator("ops.Tan", ops.Tan, floats(3, 4, low=-1, high=1))
operator("ops.tan", lambda: ops.tan, floats(3, 4, low=-1, high=1))
for name in "ceil isnan isinf isfinite expm1 sinh cosh relu6 elu softplus softsign mish".split():
    operator(f"ops.{name}", lambda name=name: getattr(ops, name), floats(3, 4))
for name in "Sqrt Rsqrt Reciprocal Log Log1p Inv".split():
    operator(f"ops.{name}", getattr(ops, name), positive(3, 4))
for name in "neg abs sign square floor exp sin cos relu sigmoid tanh gelu zeros_like ones_like".split():
    operator(f"ops.{name}", lambda name=name: getattr(ops, name), floats(3, 4))
for name in "sqrt log rsqrt reciprocal log1p".split():
    operator(f"ops.{name}", lambda name=name: getattr(ops, name), positive(3, 4))
for name in "Add Sub Mul Maximum Minimum".split():
    operator(f"ops.{name}", getattr(ops, name), floats(3, 4), floats(3, 4))
    operator(f"ops.{name} broadcast", getattr(ops, name), floats(2, 3, 4), floats(3, 1))
    operator(f"ops.{name} ties", getattr(ops, name), grid(4, 6), grid(4, 6))
    operator(f"ops.{name} int32", getattr(ops, name), ints(3, 4), ints(4), dtypes=SINGLE)
operator("ops.SquaredDifference", ops.SquaredDifference, floats(2, 3, 4), floats(3, 1))
operator("ops.FloorDiv", ops.FloorDiv, floats(3, 4), positive(3, 4))
operator("ops.FloorDiv int32", ops.FloorDiv, ints(3, 4, low=-9, high=9), ints(3, 4, low=1), dtypes=SINGLE)
operator("ops.floor_div", lambda: ops.floor_div, floats(3, 4), positive(3, 4))
operator("ops.DivNoNan", ops.DivNoNan, floats(3, 6), grid(3, 6))
operator("ops.LogicalXor", ops.LogicalXor, bools(3, 4), bools(3, 4), dtypes=SINGLE)
operator("ops.logical_xor", lambda: ops.logical_xor, bools(3, 4), bools(3, 4), dtypes=SINGLE)
operator("ops.AddN", lambda: lambda x, y, z: ops.AddN()((x, y, z)), floats(3, 4), floats(3, 4), floats(3, 4))
operator("ops.addn", lambda: lambda x, y: ops.addn([x, y]), floats(3, 4), floats(3, 4))
operator("ops.tensor_pow", lambda: ops.tensor_pow, positive(3, 4), floats(3, 4))
for name in "lt le gt ge".split():
    operator(f"ops.tensor_{name}", lambda name=name: getattr(ops, f"tensor_{name}"), grid(4, 6), grid(4, 6))
operator("ops.clip_by_value", lambda: lambda x: ops.clip_by_value(x, -1.0, 0.5), floats(3, 4))
operator("ops.clip_by_value tensors", lambda: ops.clip_by_value, floats(3, 4), floats(3, 4, low=-1, high=0), floats(4, low=0.1, high=1))
operator("ops.clip_by_global_norm", lambda: lambda x, y: ops.clip_by_global_norm((x, y), 1.0), floats(3, 4), floats(2), dtypes=SINGLE)
operator("ops.clip_by_global_norm small", lambda: lambda x, y: ops.clip_by_global_norm((x, y), 100.0), floats(3, 4), floats(2), dtypes=SINGLE)
for name in "Div RealDiv".split():
    operator(f"ops.{name}", getattr(ops, name), floats(3, 4), positive(3, 4))
    operator(f"ops.{name} broadcast", getattr(ops, name), floats(2, 3, 4), positive(3, 1))
    operator(f"ops.{name} int32", getattr(ops, name), ints(3, 4), ints(4, low=1), dtypes=SINGLE)
operator("ops.Pow", ops.Pow, positive(3, 4), floats(3, 4))
operator("ops.Pow number", lambda: lambda x: ops.Pow()(x, 2.0), floats(3, 4))
for name in "Equal NotEqual Less LessEqual Greater GreaterEqual".split():
    operator(f"ops.{name}", getattr(ops, name), grid(4, 6), grid(4, 6))
    operator(f"ops.{name} number", lambda name=name: lambda x: getattr(ops, name)()(x, 0.5), grid(4, 6))
for name in "add sub mul maximum minimum equal less greater".split():
    operator(f"ops.{name}", lambda name=name: getattr(ops, name), grid(4, 6), grid(4, 6))
for name in "not_equal less_equal greater_equal".split():
    operator(f"ops.{name}", lambda name=name: getattr(ops, name), grid(4, 6), grid(4, 6))
operator("ops.div", lambda: ops.div, floats(3, 4), positive(3, 4))
operator("ops.pow", lambda: ops.pow, positive(3, 4), floats(3, 4))
for name in "LogicalAnd LogicalOr".split():
    operator(f"ops.{name}", getattr(ops, name), bools(3, 4), bools(4), dtypes=SINGLE)
operator("ops.LogicalNot", ops.LogicalNot, bools(3, 4), dtypes=SINGLE)
operator("ops.logical_and", lambda: ops.logical_and, bools(3, 4), bools(3, 4), dtypes=SINGLE)
operator("ops.logical_or", lambda: ops.logical_or, bools(3, 4), bools(3, 4), dtypes=SINGLE)
operator("ops.logical_not", lambda: ops.logical_not, bools(3, 4), dtypes=SINGLE)
operator("ops.Select", ops.Select, bools(3, 4), floats(3, 4), floats(3, 4))
operator("ops.select", lambda: ops.select, bools(3, 4), floats(3, 4), floats(3, 4))
for label, to in {"float32": ms.float32, "float16": ms.float16, "int32": ms.int32, "bool": ms.bool_}.items():
    operator(f"ops.Cast {label}", lambda to=to: lambda x: ops.Cast()(x, to), floats(3, 4))
    operator(f"ops.cast {label}", lambda to=to: lambda x: ops.cast(x, to), floats(3, 4))

for name in "add sub mul div".split():
    operator(f"ops.tensor_{name}", lambda name=name: getattr(ops, f"tensor_{name}"), floats(3, 4), positive(3, 4))
operator("ops.TensorAdd", ops.TensorAdd, floats(3, 4), floats(4))
operator("ops.Gelu", ops.Gelu, floats(3, 4))
operator("ops.gelu tanh", lambda: lambda x: ops.gelu(x, approximate="tanh"), floats(3, 4))

# --- products
operator("ops.MatMul", ops.MatMul, floats(3, 4), floats(4, 5))
operator("ops.MatMul transpose_a", lambda: ops.MatMul(transpose_a=True), floats(4, 3), floats(4, 5))
operator("ops.MatMul transpose_b", lambda: ops.MatMul(transpose_b=True), floats(3, 4), floats(5, 4))
operator("ops.MatMul both", lambda: ops.MatMul(True, True), floats(4, 3), floats(5, 4))
operator("ops.MatMul large", ops.MatMul, floats(64, 96), floats(96, 80))
operator("ops.BatchMatMul", ops.BatchMatMul, floats(2, 3, 4), floats(2, 4, 5))
operator("ops.BatchMatMul transpose_b", lambda: ops.BatchMatMul(transpose_b=True), floats(2, 2, 3, 4), floats(2, 2, 5, 4))
operator("ops.matmul", lambda: ops.matmul, floats(3, 4), floats(4, 5))
operator("ops.matmul batch", lambda: ops.matmul, floats(2, 3, 4), floats(4, 5))
operator("ops.BiasAdd", ops.BiasAdd, floats(3, 4), floats(4))
operator("ops.BiasAdd images", ops.BiasAdd, floats(2, 3, 4, 4), floats(3))

# --- reductions
for name in "Sum Mean Max Min Prod".split():
    primitive = getattr(ops, f"Reduce{name}")
    for label, axis in (("all", ()), ("1", 1), ("-1", -1), ("0,2", (0, 2))):
        operator(f"ops.Reduce{name} {label}", lambda p=primitive, axis=axis: lambda x: p()(x, axis), floats(2, 3, 4))
    operator(f"ops.Reduce{name} every", lambda p=primitive: lambda x: p()(x, (0, 1, 2)), floats(2, 3, 4))
    operator(f"ops.Reduce{name} keep_dims", lambda p=primitive: lambda x: p(keep_dims=True)(x, 1), floats(2, 3, 4))
    operator(f"ops.Reduce{name} ties", lambda p=primitive: lambda x: p()(x, 1), grid(3, 12), dtypes=SINGLE)
for name in "All Any".split():
    primitive = getattr(ops, f"Reduce{name}")
    operator(f"ops.Reduce{name}", lambda p=primitive: lambda x: p()(x, 1), bools(5, 3), dtypes=SINGLE)
    operator(f"ops.Reduce{name} keep_dims", lambda p=primitive: lambda x: p(keep_dims=True)(x, 0), bools(5, 3), dtypes=SINGLE)

for label, settings in {"": (), "axis": (0,), "int64": (-1, ms.int64)}.items():
    operator(f"ops.Argmax {label}".strip(), lambda s=settings: ops.Argmax(*s), floats(3, 5), gradient=False)
for name in "ArgMaxWithValue ArgMinWithValue".split():
    operator(f"ops.{name}", lambda name=name: getattr(ops, name)(1), floats(3, 5), gradient=False)
    operator(f"ops.{name} keep_dims", lambda name=name: getattr(ops, name)(0, True), floats(3, 5), gradient=False)
    operator(f"ops.{name} ties", lambda name=name: getattr(ops, name)(1), grid(4, 12), gradient=False, dtypes=SINGLE)
operator("ops.TopK", lambda: lambda x: ops.TopK(sorted=True)(x, 3), floats(2, 7))
operator("ops.CumSum", lambda: lambda x: ops.CumSum()(x, 1), floats(3, 5))
operator("ops.CumSum exclusive", lambda: lambda x: ops.CumSum(exclusive=True)(x, 0), floats(3, 5))
operator("ops.CumSum reverse", lambda: lambda x: ops.CumSum(reverse=True)(x, 1), floats(3, 5))

# --- shapes
operator("ops.Reshape", lambda: lambda x: ops.Reshape()(x, (4, 3)), floats(3, 4))
operator("ops.Reshape -1", lambda: lambda x: ops.Reshape()(x, (2, -1)), floats(3, 4))
operator("ops.reshape", lambda: lambda x: ops.reshape(x, (4, -1)), floats(3, 4))
operator("ops.Transpose", lambda: lambda x: ops.Transpose()(x, (2, 0, 1)), floats(2, 3, 4))
operator("ops.transpose", lambda: lambda x: ops.transpose(x, (1, 0)), floats(3, 4))
operator("ops.ExpandDims", lambda: lambda x: ops.ExpandDims()(x, 1), floats(3, 4))
operator("ops.expand_dims", lambda: lambda x: ops.expand_dims(x, -1), floats(3, 4))
operator("ops.BroadcastTo", lambda: ops.BroadcastTo((2, 3, 4)), floats(3, 1))
operator("ops.BroadcastTo -1", lambda: ops.BroadcastTo((2, -1, 4)), floats(3, 1))
operator("ops.broadcast_to", lambda: lambda x: ops.broadcast_to(x, (3, 4)), floats(1, 4))
operator("ops.Pad", lambda: ops.Pad(((1, 2), (0, 3))), floats(2, 3))
operator("ops.Unstack", lambda: ops.Unstack(1), floats(2, 3))
operator("ops.flatten", lambda: ops.flatten, floats(2, 3, 4))
operator("ops.Size", lambda: lambda x: np.array(ops.Size()(x)), floats(2, 3), gradient=False)
operator("ops.Squeeze", lambda: ops.Squeeze((0, 2)), floats(1, 3, 1, 4))
operator("ops.Squeeze all", ops.Squeeze, floats(1, 3, 1))
operator("ops.squeeze", lambda: lambda x: ops.squeeze(x, 1), floats(3, 1, 4))
operator("ops.Flatten", ops.Flatten, floats(2, 3, 4))
operator("ops.Tile", lambda: lambda x: ops.Tile()(x, (2, 3)), floats(2, 3))
operator("ops.tile", lambda: lambda x: ops.tile(x, (2, 1, 2)), floats(2, 3))
operator("ops.Concat", lambda: lambda x, y: ops.Concat(1)((x, y)), floats(2, 3), floats(2, 2))
operator("ops.concat", lambda: lambda x, y: ops.concat((x, y), 0), floats(1, 3), floats(2, 3))
operator("ops.Stack", lambda: lambda x, y: ops.Stack(1)((x, y)), floats(2, 3), floats(2, 3))
operator("ops.stack", lambda: lambda x, y: ops.stack((x, y), 0), floats(2, 3), floats(2, 3))
operator("ops.Split", lambda: ops.Split(1, 3), floats(2, 6))
operator("ops.StridedSlice", lambda: lambda x: ops.StridedSlice()(x, (0, 1, 0), (2, 3, 4), (1, 1, 2)), floats(2, 3, 4))
# Other masks: MindSpore's CPU kernel does not write all of the result, and its gradients are of another slice.
for label, masks, place in (("shrink_axis_mask", (0, 0, 0, 0, 1), ((1, 0, 1), (2, 2, 3))), ("ellipsis_mask", (0, 0, 1), ((0, 1), (0, 3)))):
    operator(f"ops.StridedSlice {label}", lambda masks=masks, place=place: lambda x: ops.StridedSlice(*masks)(x, *place, (1,) * len(place[0])),
             floats(2, 3, 4))
operator("ops.Shape", lambda: lambda x: np.array(ops.Shape()(x)), floats(2, 3), gradient=False)
operator("ops.Rank", lambda: lambda x: np.array(ops.Rank()(x)), floats(2, 3), gradient=False)
operator("ops.shape", lambda: lambda x: np.array(ops.shape(x)), floats(2, 3), gradient=False)
operator("ops.rank", lambda: lambda x: np.array(ops.rank(x)), floats(2, 3), gradient=False)
operator("ops.size", lambda: lambda x: np.array(ops.size(x)), floats(2, 3), gradient=False)
operator("ops.DType", lambda: lambda x: ops.zeros_like(x) + Tensor(1, ops.DType()(x)), floats(2, 3), gradient=False)
operator("ops.dtype", lambda: lambda x: ops.zeros_like(x) + Tensor(1, ops.dtype(x)), floats(2, 3), gradient=False)

# --- indices
operator("ops.OneHot", lambda: lambda i, on, off: ops.OneHot()(i, 4, on, off), ints(2, 3, high=4), exactly(1.0), exactly(0.0), gradient=False)
operator("ops.OneHot axis", lambda: lambda i, on, off: ops.OneHot(axis=0)(i, 4, on, off), ints(3, high=4), exactly(2.0), exactly(-1.0), gradient=False)
operator("ops.OneHot outside", lambda: lambda on, off: ops.OneHot()(Tensor([0, 4, -1], ms.int32), 4, on, off), exactly(1.0), exactly(0.0),
         gradient=False)
operator("ops.one_hot", lambda: lambda i, on, off: ops.one_hot(i, 4, on, off), ints(5, high=4), exactly(1.0), exactly(0.0), gradient=False)
operator("ops.one_hot of tensors [1]", lambda: lambda i, on, off: ops.one_hot(i, 4, on, off), ints(5, high=4), exactly([1.0]), exactly([0.0]), gradient=False)
operator("ops.Gather", lambda: lambda t, i: ops.Gather()(t, i, 0), floats(5, 3), ints(2, 2))
operator("ops.Gather axis", lambda: lambda t, i: ops.Gather()(t, i, 1), floats(3, 5), ints(4))
operator("ops.GatherV2", lambda: lambda t, i: ops.GatherV2()(t, i, 0), floats(5, 3), ints(4))
operator("ops.gather", lambda: lambda t, i: ops.gather(t, i, 0), floats(5, 3), ints(7))
operator("ops.Fill", lambda: lambda: ops.Fill()(ms.float32, (2, 3), 1.5), dtypes=SINGLE)

operator("ops.fill", lambda: lambda: ops.fill(ms.float32, (2, 3), 1.5), dtypes=SINGLE)
for name in "Ones Zeros".split():
    operator(f"ops.{name}", lambda name=name: lambda: getattr(ops, name)()((2, 3), ms.float32), dtypes=SINGLE)
    operator(f"ops.{name.lower()}", lambda name=name.lower(): lambda: getattr(ops, name)((2, 3), ms.int32), dtypes=SINGLE)

# --- layers as operators
for label, settings in (("valid", dict(pad_mode="valid")), ("same", dict(pad_mode="same")), ("same stride", dict(pad_mode="same", stride=2)),
                        ("pad", dict(pad_mode="pad", pad=1)), ("pad four", dict(pad_mode="pad", pad=(0, 1, 2, 1), stride=2)),
                        ("dilation", dict(pad_mode="same", dilation=2))):
    operator(f"ops.Conv2D {label}", lambda settings=settings: ops.Conv2D(4, 3, **settings), floats(2, 3, 8, 8), floats(4, 3, 3, 3),
             dtypes=SINGLE)
operator("ops.Conv2D group", lambda: ops.Conv2D(4, 3, pad_mode="same", group=2), floats(2, 4, 6, 6), floats(4, 2, 3, 3), dtypes=SINGLE)
for name in "MaxPool AvgPool".split():
    for label, settings in (("valid", (2, 2, "valid")), ("same", (3, 2, "same")), ("overlapping", (3, 1, "valid"))):
        operator(f"ops.{name} {label}", lambda name=name, s=settings: getattr(ops, name)(*s), floats(2, 3, 7, 7), dtypes=SINGLE)
    operator(f"ops.{name} ties", lambda name=name: getattr(ops, name)(2, 2, "valid"), grid(1, 1, 8, 8), dtypes=SINGLE)
for name in "Softmax LogSoftmax".split():
    operator(f"ops.{name}", getattr(ops, name), floats(3, 4, low=-5, high=5))
    operator(f"ops.{name} axis", lambda name=name: getattr(ops, name)(0), floats(3, 4))
operator("ops.softmax", lambda: ops.softmax, floats(3, 4))
operator("ops.log_softmax", lambda: ops.log_softmax, floats(3, 4))
operator("ops.bias_add", lambda: ops.bias_add, floats(3, 4), floats(4))
operator("ops.softmax axis", lambda: lambda x: ops.softmax(x, axis=0), floats(3, 4))

# --- numbers, order, updates
value("ops.scalar_to_tensor", lambda: ops.scalar_to_tensor(2.5))
value("ops.scalar_to_array", lambda: ops.scalar_to_array(2.5))
value("ops.scalar_to_tensor int32", lambda: ops.scalar_to_tensor(2, ms.int32))
value("ops.tuple_to_array", lambda: ops.tuple_to_array((1, 2, 3)))
value("ops.tuple_to_array floats", lambda: ops.tuple_to_array((1.5, 2.0)))
operator("ops.Depend", lambda: lambda x, y: ops.Depend()(x * 2.0, y), floats(3), floats(3), gradient=False)
operator("ops.depend", lambda: lambda x, y: ops.depend(x * 2.0, y), floats(3), floats(3), gradient=False)


def updated(update):
    """A parameter after update(parameter, tensor)."""
    parameter = ms.Parameter(Tensor([1.0, 2.0], ms.float32), name="p")
    update(parameter, Tensor([0.5, -3.0], ms.float32))
    return Tensor(parameter.asnumpy())


value("ops.Assign", lambda: updated(ops.Assign()))
value("ops.AssignAdd", lambda: updated(ops.AssignAdd()))
value("ops.AssignSub", lambda: updated(ops.AssignSub()))
value("ops.ScalarToTensor", lambda: ops.ScalarToTensor()(2.5, ms.float32))
value("ops.ScalarToArray", lambda: ops.ScalarToArray()(2.5))
value("ops.TupleToArray", lambda: ops.TupleToArray()((1, 2, 3)))
value("ops.assign", lambda: updated(ops.assign))
value("ops.assign_add", lambda: updated(ops.assign_add))
value("ops.assign_sub", lambda: updated(ops.assign_sub))

# --- functions of functions
scaled = ops.MultitypeFuncGraph("scaled")


@scaled.register("Number", "Tensor")
def _scaled_number(factor, x):
    return x * factor


@scaled.register("Tensor", "Tensor")
def _scaled_tensor(factor, x):
    return x * factor + 1.0


def two():
    return Tensor([1.0, 2.0], ms.float32), Tensor([3.0, 4.0], ms.float32)


value("ops.MultitypeFuncGraph Number", lambda: scaled(2.0, two()[0]))
value("ops.MultitypeFuncGraph Tensor", lambda: scaled(*two()))
value("ops.Map", lambda: ops.Map()(ops.partial(scaled, 2.0), two()))
value("ops.HyperMap", lambda: ops.HyperMap()(ops.partial(scaled, 2.0), two()))
value("ops.HyperMap nested", lambda: ops.HyperMap(scaled)((two(), two()), (two(), two()))[1])
value("ops.partial", lambda: ops.partial(ops.add, two()[0])(two()[1]))
value("ops.GradOperation", lambda: ops.GradOperation()(lambda x, y: x * x * y)(*two()))
value("ops.GradOperation get_all", lambda: ops.GradOperation(get_all=True)(lambda x, y: x * x * y)(*two()))
value("ops.GradOperation int32", lambda: ops.GradOperation(get_all=True, sens_param=True)(lambda x, y: x * y)(*[
    Tensor(pair, ms.int32) for pair in ([1, 3], [2, 5], [10, 20])]))
value("ops.GradOperation sens_param", lambda: ops.GradOperation(sens_param=True)(lambda x, y: x * x * y)(*two(), two()[1]))

value("ops.grad", lambda: ops.grad(lambda x, y: ops.ReduceSum()(x * x * y))(*two()))
value("ops.grad int32", lambda: ops.grad(lambda x, y: x * x * y, (0, 1))(Tensor([1, 3], ms.int32), Tensor([2, 5], ms.int32)))
value("ops.grad float32 * int32", lambda: ops.grad(lambda x, y: x * y, (0, 1))(Tensor([1.5, 7.0], ms.float32), Tensor([2, 5], ms.int32)))
value("ops.grad positions", lambda: ops.grad(lambda x, y: ops.ReduceSum()(x * x * y), (0, 1))(*two()))


def of_weights(grad_position):
    """The value and the gradients of a cell's input and weights."""
    network = nn.Dense(2, 2)
    set_parameters("of_weights", network.get_parameters())
    weights = ms.ParameterTuple(network.trainable_params())
    value_of, gradients = ops.value_and_grad(lambda x: ops.ReduceSum()(network(x)), grad_position, weights)(Tensor([[1.0, 2.0]], ms.float32))
    of_input, of_weights = gradients if grad_position == 0 else (value_of, gradients)
    return (value_of, of_input, *of_weights)


value("ops.value_and_grad", lambda: of_weights(0))
value("ops.value_and_grad weights", lambda: of_weights(None))

# --- tensors
for label, function in {"+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y, "/": lambda x, y: x / y,
                        "+ number": lambda x, y: x + 2 + y * 0.5, "number -": lambda x, y: 1.5 - x * y, "number /": lambda x, y: 1.5 / y + x,
                        "neg": lambda x, y: -x * y, "<": lambda x, y: x < y, ">=": lambda x, y: x >= y, "==": lambda x, y: x == y,
                        "reshape": lambda x, y: x.reshape((2, 2, 3)) + y.reshape(2, 2, 3), "**": lambda x, y: y**2 + x,
                        "index": lambda x, y: x[1] + y[2], "slice": lambda x, y: x[1:, ::2] * y[:2, 1:3], "...": lambda x, y: x[..., 1] * y[..., None, 0]
                        }.items():
    operator(f"Tensor {label}", lambda function=function: function, floats(3, 4), positive(3, 4))
KEYS = {"list": [2, 0], "twice": [0, 2, 0], "tensor": Tensor([2, 0], ms.int32), "tensor of two dims": Tensor([[0], [2]], ms.int64), "mask": Tensor([True, False, True]),
        "mask of all": Tensor(np.arange(24).reshape(3, 2, 4) % 3 == 0), "list of truths": [False, True, True], "lists": ([0, 2], [1, 1]),
        "lists apart": ([0, 2], slice(None), [1, 3]), "number and list": (1, slice(None), [1, 3]), "lists behind": (slice(1, None), [0, 1, 1], [3, 2, 0]),
        "None and list": (None, [0, 1], None), "... and list": (..., [0, 3]), "... and tensor": (..., Tensor([1, 0], ms.int32), 2), "True": True,
        "None": None, "slice": slice(0, 2), "slices": (slice(None), 1, slice(None, None, 2)), "mask and number": (Tensor([True, False, True]), slice(None), 2)}


def with_item(key, value):
    def set_item(x, y):
        made = x * 2.0
        made[key] = value(y)
        return made * x

    return set_item


for label, key in KEYS.items():
    operator(f"Tensor [{label}]", lambda key=key: lambda x: x[key] * 1.0, floats(3, 2, 4), dtypes=SINGLE)
    operator(f"Tensor [{label}] = tensor", lambda key=key: with_item(key, lambda y: y), floats(3, 2, 4), floats(1), dtypes=SINGLE)
    operator(f"Tensor [{label}] = number", lambda key=key: with_item(key, lambda y: 0.5), floats(3, 2, 4), floats(1), gradient=False)
operator("Tensor [1:] = rows", lambda: with_item(slice(1, None), lambda y: y), floats(3, 2, 4), floats(2, 2, 4))
operator("Tensor [list] = rows", lambda: with_item([2, 0], lambda y: y), floats(3, 2, 4), floats(2, 2, 4), dtypes=SINGLE)
operator("Tensor [..., 0] = columns", lambda: with_item((..., 0), lambda y: y), floats(3, 2, 4), floats(3, 2))
for label, function in {"mean": lambda x: x.mean(), "mean axis": lambda x: x.mean(1), "sum": lambda x: x.sum(), "max": lambda x: x.max(),
                        "min": lambda x: x.min(), "abs": lambda x: abs(x), "exp": lambda x: x.exp(), "transpose": lambda x: x.transpose((1, 0)),
                        "view": lambda x: x.view(4, 3), "expand_dims": lambda x: x.expand_dims(1), "squeeze": lambda x: x.expand_dims(0).squeeze(0),
                        "// number": lambda x: x // 0.75, "% number": lambda x: x % 0.75}.items():
    operator(f"Tensor.{label}", lambda function=function: function, floats(3, 4))
operator("Tensor int32 // int", lambda: lambda x: x // 2, ints(3, 4, low=-5), dtypes=SINGLE)
operator("Tensor int32 % int", lambda: lambda x: x % 3, ints(3, 4, low=-5), dtypes=SINGLE)
operator("Tensor bool & |", lambda: lambda x, y: (x & y) | ~x, bools(3, 4), bools(3, 4), dtypes=SINGLE)
operator("Tensor int32 / int32", lambda: lambda x, y: x / y, ints(3, 4), ints(3, 4, low=1), dtypes=SINGLE)
for label, function in {"+ float": lambda x: x + 0.5, "* float": lambda x: x * 2.0, "float -": lambda x: 0.5 - x, "/ int": lambda x: x / 2,
                        "** float": lambda x: x**0.5, "< float": lambda x: x < 1.5, "== float": lambda x: x == 2.0, "+ int": lambda x: x + 1,
                        "+ np.float32": lambda x: x + np.float32(0.5), "Maximum float": lambda x: ops.Maximum()(x, 1.5),
                        "select float": lambda x: ops.select(x < 2, x, 0.5), "clip float": lambda x: ops.clip_by_value(x, 0.5, 2.5)}.items():
    operator(f"Tensor int32 {label}", lambda function=function: function, ints(3, 4), dtypes=SINGLE)
    if label not in ("** float", "select float"):
        operator(f"Tensor {label}", lambda function=function: function, grid(3, 4))
for label, function in {"+ int": lambda x: x + 1, "+ float": lambda x: x + 0.5, "int -": lambda x: 1 - x, "* float": lambda x: x * 2.0,
                        "== True": lambda x: x == True}.items():  # noqa: E712
    operator(f"Tensor bool {label}", lambda function=function: function, bools(3, 4), dtypes=SINGLE)
operator("ops.stop_gradient", lambda: lambda x: x * ops.stop_gradient(x), floats(3, 4))
operator("ops.stop_gradient int32", lambda: ops.stop_gradient, ints(3, 4), dtypes=SINGLE)
operator("Tensor int32 + float32", lambda: lambda x, y: x + y, ints(3, 4), floats(3, 4))
value("Tensor of a list", lambda: Tensor([1.5, 2.0]))
value("Tensor of ints", lambda: Tensor([1, 2]))
value("Tensor of an int", lambda: Tensor(3))
value("Tensor of a float", lambda: Tensor(3.5))
value("Tensor of a bool", lambda: Tensor(True))
value("Tensor of float64", lambda: Tensor(np.array([1.5, 2.5])))
value("Parameter of an int", lambda: ms.Parameter(3, name="p"))
value("Parameter of a float", lambda: ms.Parameter(3.5, name="p"))
for name in "zeros ones Zeros ONES".split():
    value(f"initializer {name}", lambda name=name: initializer(name, [2, 3], ms.float32).init_data())
value("initializer number", lambda: initializer(1.5, [2, 3], ms.float32).init_data())

# --- cells
cell("nn.Dense", lambda: nn.Dense(4, 3), floats(5, 4))
cell("nn.Dense no bias", lambda: nn.Dense(4, 3, has_bias=False), floats(5, 4))
cell("nn.Dense activation", lambda: nn.Dense(4, 3, activation="relu"), floats(2, 5, 4))
for label, settings in {"same": {}, "valid": dict(pad_mode="valid"), "pad": dict(pad_mode="pad", padding=1, stride=2),
                        "bias": dict(has_bias=True), "group": dict(group=2), "dilation": dict(dilation=2), "stride": dict(stride=2)}.items():
    cell(f"nn.Conv2d {label}", lambda s=settings: nn.Conv2d(4, 6, 3, **s), floats(2, 4, 8, 8))
cell("nn.Conv2d rectangle", lambda: nn.Conv2d(4, 6, (1, 3), stride=(2, 1)), floats(2, 4, 8, 8))
cell("nn.BatchNorm2d training", lambda: nn.SequentialCell([nn.BatchNorm2d(4)]), floats(3, 4, 5, 5))
cell("nn.BatchNorm2d evaluation", lambda: nn.SequentialCell([nn.BatchNorm2d(4)]), floats(3, 4, 5, 5), train=False)
cell("nn.BatchNorm2d settings", lambda: nn.SequentialCell([nn.BatchNorm2d(4, eps=1e-3, momentum=0.99)]), floats(3, 4, 5, 5))
cell("nn.BatchNorm2d batch statistics", lambda: nn.SequentialCell([nn.BatchNorm2d(4, use_batch_statistics=True)]), floats(3, 4, 5, 5), train=False)
cell("nn.BatchNorm2d moving statistics", lambda: nn.SequentialCell([nn.BatchNorm2d(4, use_batch_statistics=False)]), floats(3, 4, 5, 5))
cell("nn.BatchNorm2d not affine", lambda: nn.SequentialCell([nn.BatchNorm2d(4, affine=False)]), floats(3, 4, 5, 5))
cell("nn.LayerNorm", lambda: nn.LayerNorm((6,)), floats(3, 6))
cell("nn.LayerNorm two dims", lambda: nn.LayerNorm((4, 6), begin_norm_axis=1, begin_params_axis=1), floats(3, 4, 6))
cell("nn.LayerNorm epsilon", lambda: nn.LayerNorm((6,), epsilon=1e-2), floats(3, 6))
cell("nn.Embedding", lambda: nn.Embedding(7, 3), ints(2, 4, high=7))
for name in "MaxPool2d AvgPool2d".split():
    for label, settings in {"2": dict(kernel_size=2, stride=2), "same": dict(kernel_size=3, stride=2, pad_mode="same"), "default": {},
                            "rectangle": dict(kernel_size=(1, 3), stride=(2, 1))}.items():
        cell(f"nn.{name} {label}", lambda name=name, s=settings: getattr(nn, name)(**s), floats(2, 3, 7, 7))
for name in "ReLU ReLU6 LeakyReLU ELU Sigmoid LogSigmoid Tanh GELU SiLU HSigmoid HSwish Softsign Mish Softmax LogSoftmax Flatten Identity".split():
    cell(f"nn.{name}", getattr(nn, name), floats(3, 4), dtypes=HALVES)
cell("nn.LeakyReLU alpha", lambda: nn.LeakyReLU(0.05), floats(3, 4))
cell("nn.LogSoftmax axis", lambda: nn.LogSoftmax(0), floats(3, 4))
cell("nn.Softmax axis", lambda: nn.Softmax(0), floats(3, 4))
cell("nn.Dropout evaluation", lambda: nn.Dropout(keep_prob=0.5), floats(3, 4), train=False)
for name in "relu relu6 leakyrelu elu sigmoid logsigmoid tanh gelu hsigmoid hswish softsign softmax logsoftmax".split():
    cell(f"nn.get_activation {name}", lambda name=name: nn.get_activation(name), floats(3, 4))
cell("nn.SequentialCell", lambda: nn.SequentialCell([nn.Dense(4, 5), nn.ReLU(), nn.Dense(5, 2)]), floats(3, 4))
cell("nn.SequentialCell several", lambda: nn.SequentialCell(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), floats(2, 3, 5, 5))


# Arithmetic in float16, parameters in float32.
for name, make in {"Dense": lambda: nn.Dense(4, 3), "Conv2d": lambda: nn.Conv2d(4, 6, 3, has_bias=True),
                   "SequentialCell": lambda: nn.SequentialCell(nn.Dense(4, 5), nn.Tanh(), nn.Dense(5, 2))}.items():
    cell(f"nn.{name} to_float", lambda make=make: make().to_float(ms.float16), floats(2, 4, 8, 8) if name == "Conv2d" else floats(5, 4),
         dtypes=("float16",))


class Listed(nn.Cell):
    """A CellList in a cell."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.CellList([nn.Dense(4, 4), nn.Dense(4, 4)])
        self.scale = ms.Parameter(Tensor([1.0, 2.0, 3.0, 4.0], ms.float32), name="scale")

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        return x * self.scale


cell("nn.CellList", Listed, floats(3, 4))
cell("nn.Cell", Listed, floats(2, 4))
cell("nn.VirtualDatasetCellTriple", lambda: nn.VirtualDatasetCellTriple(nn.TripletMarginLoss()), floats(5, 4), floats(5, 4), floats(5, 4))
cell("nn.WithLossCell", lambda: nn.WithLossCell(nn.Dense(4, 3), nn.MSELoss()), floats(5, 4), floats(5, 3))

# --- losses
for reduction in ("mean", "sum", "none"):
    for name in "MSELoss L1Loss".split():
        cell(f"nn.{name} {reduction}", lambda name=name, r=reduction: getattr(nn, name)(r), floats(4, 3), floats(4, 3))
    cell(f"nn.MAELoss {reduction}", lambda r=reduction: nn.MAELoss(r), floats(4, 3), floats(4, 3))
    cell(f"nn.SmoothL1Loss {reduction}", lambda r=reduction: nn.SmoothL1Loss(0.7, r), floats(4, 3), floats(4, 3))
    cell(f"nn.BCELoss {reduction}", lambda r=reduction: nn.BCELoss(reduction=r), floats(4, 3, low=0.1, high=0.9), floats(4, 3, low=0, high=1))
    cell(f"nn.BCEWithLogitsLoss {reduction}", lambda r=reduction: nn.BCEWithLogitsLoss(r), floats(4, 3, low=-9, high=9), floats(4, 3, low=0, high=1))
    cell(f"nn.SoftmaxCrossEntropyWithLogits sparse {reduction}",
         lambda r=reduction: nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction=r), floats(6, 5), ints(6, high=5))
    cell(f"nn.SoftmaxCrossEntropyWithLogits {reduction}",
         lambda r=reduction: nn.SoftmaxCrossEntropyWithLogits(reduction=r), floats(2, 3), exactly([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]]))

cell("nn.SmoothL1Loss", nn.SmoothL1Loss, floats(4, 3), floats(4, 3))
cell("nn.RMSELoss", nn.RMSELoss, floats(4, 3), floats(4, 3))
cell("nn.BCELoss weight", lambda: nn.BCELoss(Tensor(seeded("weight").uniform(0.5, 2, (4, 3)).astype(np.float32))), floats(4, 3, low=0.1, high=0.9), floats(4, 3, low=0, high=1))
cell("nn.BCEWithLogitsLoss weights", lambda: nn.BCEWithLogitsLoss(weight=Tensor([0.5, 1.0, 2.0], ms.float32), pos_weight=Tensor([2.0, 3.0, 1.0], ms.float32)),
     floats(4, 3), floats(4, 3, low=0, high=1))

class Steps(nn.Cell):
    """A recurrent cell over the first dim of x."""

    def __init__(self, step, has_memory):
        super().__init__()
        self.step, self.has_memory = step, has_memory

    def construct(self, x, hidden, memory):
        state = (hidden, memory) if self.has_memory else hidden
        for i in range(5):
            state = self.step(x[i], state)
        return state[0] + 0.5 * state[1] if self.has_memory else state + 0 * memory


class Sequences(nn.Cell):
    """A recurrent layer with a state and lengths; all that it gives in one tensor."""

    def __init__(self, layer, has_memory):
        super().__init__()
        self.layer, self.has_memory = layer, has_memory

    def construct(self, x, lengths=None, hidden=None, memory=None):
        given = None if hidden is None else (hidden, memory) if self.has_memory else hidden
        output, state = self.layer(x, given, lengths)
        hidden, memory = state if self.has_memory else (state, 0 * state)
        return ops.concat([ops.reshape(part, (-1,)) for part in (output, hidden, memory)])


# --- filters over sequences, and the transposes of filters
for label, settings in {"": {}, "bias": dict(has_bias=True), "stride": dict(stride=2, has_bias=True), "valid": dict(pad_mode="valid"),
                        "pad": dict(pad_mode="pad", padding=2, dilation=2), "groups": dict(group=2, stride=3)}.items():
    cell(f"nn.Conv1d {label}".strip(), lambda s=settings: nn.Conv1d(4, 6, 3, **s), floats(2, 4, 11))
    cell(f"nn.Conv1dTranspose {label}".strip(), lambda s=settings: nn.Conv1dTranspose(4, 6, 3, **s), floats(2, 4, 5))
    # MindSpore's own CPU kernel has no groups here.
    cell(f"nn.Conv2dTranspose {label}".strip(), lambda s=settings: nn.Conv2dTranspose(4, 6, (3, 2), **s), floats(2, 4, 5, 6))
cell("nn.Conv1dTranspose even kernel", lambda: nn.Conv1dTranspose(3, 2, 4, stride=2), floats(2, 3, 5))
cell("nn.Conv2dTranspose output_padding", lambda: nn.Conv2dTranspose(4, 6, 3, 2, "pad", (1, 0, 1, 1), 1, has_bias=True), floats(2, 4, 5, 6))
cell("nn.Conv2dTranspose kernel below stride", lambda: nn.Conv2dTranspose(4, 6, 1, 2, "valid"), floats(2, 4, 5, 6))
for label in ("Conv2DTranspose", "Conv2DBackpropInput"):
    operator(f"ops.{label}", lambda n=label: lambda x, w: getattr(ops, n)(4, 3, "pad", 1, stride=2)(x, w, (2, 6, 10, 12)), floats(2, 4, 5, 6), floats(4, 6, 3, 3),
             dtypes=SINGLE)

# --- recurrent layers; MindSpore's tanh is off by up to 1e-4 where |x| > 3, so that weights are small
SMALL = 0.2
LENGTHS = exactly([3, 5, 0, 1], ms.int32)
for word, states in {"RNN": 1, "GRU": 1, "LSTM": 2}.items():
    def recurrent(label, settings, *inputs, name=word, training=False):
        cell(f"nn.{name} {label}".strip(), lambda: Sequences(getattr(nn, name)(3, 6, **settings), name == "LSTM"), *inputs, train=training, scale=SMALL)

    recurrent("", {}, floats(5, 4, 3))
    recurrent("without bias", dict(has_bias=False), floats(5, 4, 3))
    recurrent("two layers", dict(num_layers=2, batch_first=True), floats(4, 5, 3))
    recurrent("both directions", dict(num_layers=2, bidirectional=True), floats(5, 4, 3))
    recurrent("both directions in training", dict(num_layers=2, bidirectional=True, batch_first=True), floats(4, 5, 3), training=True)
    recurrent("dropout", dict(num_layers=2, dropout=0.5), floats(5, 4, 3))
    cell(f"nn.{word}Cell", lambda n=word: Steps(getattr(nn, n + "Cell")(3, 6), n == "LSTM"), floats(5, 4, 3), floats(4, 6), floats(4, 6), scale=SMALL)
    cell(f"nn.{word}Cell without bias", lambda n=word: Steps(getattr(nn, n + "Cell")(3, 6, has_bias=False), n == "LSTM"), floats(5, 4, 3), floats(4, 6), floats(4, 6), scale=SMALL)
    for label, settings in {"lengths": {}, "lengths in both directions": dict(bidirectional=True, num_layers=2)}.items():
        count = 4 if settings else 1
        cell(f"nn.{word} {label}", lambda n=word, s=settings: Sequences(getattr(nn, n)(3, 6, **s), n == "LSTM"), floats(5, 4, 3), LENGTHS, floats(count, 4, 6),
             floats(count, 4, 6), scale=SMALL)
cell("nn.RNN relu", lambda: Sequences(nn.RNN(3, 6, nonlinearity="relu"), False), floats(5, 4, 3), scale=SMALL)
cell("nn.RNNCell relu", lambda: Steps(nn.RNNCell(3, 6, nonlinearity="relu"), False), floats(5, 4, 3), floats(4, 6), floats(4, 6), scale=SMALL)


def spread_of(make):
    """Of the first values of each parameter the largest, and the mean one's part of it, which is a half where they are even."""
    found = []
    for p in make().get_parameters():
        magnitudes = np.abs(p.asnumpy())
        found.append(Tensor([round(float(magnitudes.max()), 2), round(float(magnitudes.mean() / magnitudes.max()), 1)], ms.float32))
    return found


value("nn.Conv1d first values", lambda: spread_of(lambda: nn.Conv1d(4, 3000, 3, has_bias=True)))
value("nn.Conv1dTranspose first values", lambda: spread_of(lambda: nn.Conv1dTranspose(3000, 3000, 3, group=300, has_bias=True)))
value("nn.LSTM first values", lambda: spread_of(lambda: nn.LSTM(50, 400)))
value("nn.GRUCell first values", lambda: spread_of(lambda: nn.GRUCell(50, 400)))

# --- optimizers
for label, settings in {"": {}, "weight_decay": dict(weight_decay=0.1), "loss_scale": dict(loss_scale=8.0),
                        "decay and scale": dict(weight_decay=0.1, loss_scale=8.0), "nesterov": dict(use_nesterov=True)}.items():
    optimizer(f"nn.Momentum {label}".strip(), lambda net, s=settings: nn.Momentum(net.trainable_params(), 0.1, 0.9, **s))
optimizer("nn.Momentum rates", lambda net: nn.Momentum(net.trainable_params(), [0.1, 0.2, 0.05], 0.9), steps=5)
optimizer("nn.Momentum rates in a tensor", lambda net: nn.Momentum(net.trainable_params(), Tensor([0.1, 0.2, 0.05, 0.3], ms.float32), 0.9))


def grouped(net, order=False):
    """Two groups with settings of their own."""
    groups = [{"params": [net.weight], "lr": 0.3, "weight_decay": 0.05}, {"params": [net.beta]}]
    return groups + [{"order_params": [net.beta, net.weight]}] if order else groups


optimizer("nn.Momentum groups", lambda net: nn.Momentum(grouped(net), 0.1, 0.9, weight_decay=0.2))
optimizer("nn.Momentum groups in order", lambda net: nn.Momentum(grouped(net, order=True), 0.1, 0.9))
optimizer("nn.Momentum group rates", lambda net: nn.Momentum([{"params": [net.weight], "lr": [0.1, 0.2, 0.3, 0.4]}, {"params": [net.beta]}], 0.1, 0.9))
for label, settings in {"": {}, "momentum": dict(momentum=0.9), "dampening": dict(momentum=0.9, dampening=0.3), "weight_decay": dict(weight_decay=0.1),
                        "nesterov": dict(momentum=0.9, nesterov=True), "loss_scale": dict(loss_scale=4.0)}.items():
    optimizer(f"nn.SGD {label}".strip(), lambda net, s=settings: nn.SGD(net.trainable_params(), 0.1, **s))
for label, settings in {"": {}, "betas": dict(beta1=0.8, beta2=0.99, eps=1e-4), "weight_decay": dict(weight_decay=0.1), "nesterov": dict(use_nesterov=True),
                        "loss_scale": dict(loss_scale=8.0)}.items():
    optimizer(f"nn.Adam {label}".strip(), lambda net, s=settings: nn.Adam(net.trainable_params(), 0.01, **s))
for label, settings in {"": {}, "weight_decay": dict(weight_decay=0.1), "betas": dict(beta1=0.8, beta2=0.99, eps=1e-4)}.items():
    optimizer(f"nn.AdamWeightDecay {label}".strip(), lambda net, s=settings: nn.AdamWeightDecay(net.trainable_params(), 0.01, **s))
optimizer("nn.AdamWeightDecay rates", lambda net: nn.AdamWeightDecay(net.trainable_params(), [0.01, 0.02, 0.03, 0.04], weight_decay=0.1))
optimizer("nn.TrainOneStepCell", lambda net: nn.SGD(net.trainable_params(), 0.1))

# --- cells around networks
def evaluated(**settings):
    """What a WithEvalCell gives."""
    network = nn.Dense(4, 3)
    set_parameters("WithEvalCell", network.get_parameters())
    rng = seeded("WithEvalCell")
    return nn.WithEvalCell(network, nn.MSELoss(), **settings)(*[Tensor(rng.uniform(-1, 1, shape).astype(np.float32)) for shape in ((5, 4), (5, 3))])


value("nn.WithEvalCell", evaluated)
value("nn.WithEvalCell float32", lambda: evaluated(add_cast_fp32=True))


def gradients_of_cell(sens):
    """What a WithGradCell gives."""
    network = nn.Dense(4, 3)
    set_parameters("WithGradCell", network.get_parameters())
    rng = seeded("WithGradCell")
    inputs = [Tensor(rng.uniform(-1, 1, shape).astype(np.float32)) for shape in ((5, 4), (5, 3))]
    return nn.WithGradCell(network, nn.MSELoss(), sens)(*inputs)


value("nn.WithGradCell", lambda: gradients_of_cell(None))


def parameter_after_update():
    """A ParameterUpdate's parameter."""
    network = nn.Dense(2, 2)
    update = nn.ParameterUpdate(network.bias)
    update.phase = "update_param"
    result = update(Tensor([1.0, -2.0], ms.float32))
    return result, Tensor(network.bias.asnumpy())


value("nn.ParameterUpdate", parameter_after_update)


class StepWithLossScale(nn.TrainOneStepWithLossScaleCell):
    """MindSpore's CPU has no operator that looks for an overflow; this one has."""

    def start_overflow_check(self, pre_cond, compute_input):
        return Tensor(False), compute_input

    def get_overflow_status(self, status, compute_output):
        overflow = Tensor(False)
        for gradient in compute_output:
            overflow = ops.LogicalOr()(overflow, ops.LogicalNot()(ops.ReduceAll()(ops.IsFinite()(gradient))))
        return overflow


def scaled_step(make_scale, gradients):
    """Steps with a loss scale; the gradients' factors, some of them too large for float32."""
    network = GivenGradients()
    step = StepWithLossScale(network, nn.Momentum(network.trainable_params(), 0.1, 0.9), make_scale())
    step.set_train()
    found = []
    for number, factor in enumerate(gradients):
        rng = seeded("scaled_step", number)
        inputs = [Tensor((factor * rng.uniform(-1, 1, shape)).astype(np.float32)) for shape in ((3, 4), (5,))]
        found += [step(*inputs)[1], Tensor(network.weight.asnumpy()), Tensor(step.scale_sense.asnumpy())]
    return found


class Rescaled(nn.Cell):
    """A scale, and a cell that makes the next one."""

    def __init__(self, update):
        super().__init__()
        self.update = update
        self.scale = ms.Parameter(Tensor(update.get_loss_scale(), ms.float32), name="scale", requires_grad=False)

    def construct(self, overflow):
        return self.update(self.scale, overflow)


def scales(update, overflows):
    """The scale after each of several steps."""
    network, found = Rescaled(update), []
    for overflow in overflows:
        network(Tensor(bool(overflow)))
        found.append(Tensor(network.scale.asnumpy()))
    return found


value("nn.FixedLossScaleUpdateCell alone", lambda: scales(nn.FixedLossScaleUpdateCell(64.0), (0, 1, 0, 0)))
value("nn.DynamicLossScaleUpdateCell alone", lambda: scales(nn.DynamicLossScaleUpdateCell(4.0, 2, 3), (0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1)))
value("nn.TrainOneStepWithLossScaleCell", lambda: scaled_step(lambda: Tensor(8.0, ms.float32), (1, 1, 1e38, 1)))
value("nn.FixedLossScaleUpdateCell", lambda: scaled_step(lambda: nn.FixedLossScaleUpdateCell(64.0), (1, 1e38, 1)))
value("nn.DynamicLossScaleUpdateCell", lambda: scaled_step(lambda: nn.DynamicLossScaleUpdateCell(16.0, 2, 3), (1, 1e38, 1, 1, 1, 1, 1e38, 1)))

# A schedule as a learning rate.
optimizer("nn.Momentum ExponentialDecayLR", lambda net: nn.Momentum(net.trainable_params(), nn.ExponentialDecayLR(0.1, 0.5, 2), 0.9), steps=6)
optimizer("nn.SGD InverseDecayLR", lambda net: nn.SGD(net.trainable_params(), nn.InverseDecayLR(0.1, 0.5, 2)), steps=6)
optimizer("nn.Lamb", lambda net: nn.Lamb(net.trainable_params(), 0.1), steps=2)
optimizer("nn.LazyAdam", lambda net: nn.LazyAdam(net.trainable_params(), 0.03), steps=2)
optimizer("nn.Momentum CosineDecayLR", lambda net: nn.Momentum(net.trainable_params(), nn.CosineDecayLR(0.01, 0.2, 3), 0.9), steps=6)
optimizer("nn.Adam WarmUpLR", lambda net: nn.Adam(net.trainable_params(), nn.WarmUpLR(0.1, 3)), steps=6)
optimizer("nn.SGD PolynomialDecayLR", lambda net: nn.SGD(net.trainable_params(), nn.PolynomialDecayLR(0.2, 0.05, 3, 0.5)), steps=6)
optimizer("nn.SGD group CosineDecayLR", lambda net: nn.SGD([{"params": [net.weight], "lr": nn.CosineDecayLR(0.01, 0.2, 3)}, {"params": [net.beta]}], 0.1),
          steps=5)

# --- all together


class Images(nn.Cell):
    """A small network of images."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, has_bias=True)
        self.bn = nn.BatchNorm2d(8, momentum=0.9)
        self.relu, self.pool, self.flatten = nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten()
        self.fc = nn.SequentialCell(nn.Dense(8 * 16, 16, activation="tanh"), nn.Dense(16, 5))

    def construct(self, x):
        return self.fc(self.flatten(self.pool(self.relu(self.bn(self.conv(x))))))


# Before the batch norm a bias has no gradient but rounding errors, which Adam with a small eps would divide by themselves.
for label, make in {"Momentum": lambda net: nn.Momentum(net.trainable_params(), 0.01, 0.9, weight_decay=1e-3), "Adam": lambda net: nn.Adam(net.trainable_params(), 1e-3, eps=1e-3),
                    "SGD": lambda net: nn.SGD(net.trainable_params(), nn.cosine_decay_lr(0.001, 0.02, 6, 1, 6)),
                    "AdamWeightDecay": lambda net: nn.AdamWeightDecay(net.trainable_params(), 1e-3, weight_decay=0.01)}.items():
    training(f"training {label}", Images, lambda: nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), make,
             floats(8, 3, 8, 8), ints(8, high=5))
training("training of rows", lambda: nn.SequentialCell(nn.Dense(6, 8), nn.ReLU(), nn.Dense(8, 2)), nn.MSELoss,
         lambda net: nn.Momentum(net.trainable_params(), 0.02, 0.9), floats(16, 6), floats(16, 2), steps=10)

# --- schedules
schedule("nn.exponential_decay_lr", lambda: nn.exponential_decay_lr(0.1, 0.9, 12, 3, 2))
schedule("nn.exponential_decay_lr stairs", lambda: nn.exponential_decay_lr(0.1, 0.9, 12, 3, 2, True))
schedule("nn.natural_exp_decay_lr", lambda: nn.natural_exp_decay_lr(0.1, 0.9, 12, 3, 2))
schedule("nn.natural_exp_decay_lr stairs", lambda: nn.natural_exp_decay_lr(0.1, 0.9, 12, 3, 2, True))
schedule("nn.inverse_decay_lr", lambda: nn.inverse_decay_lr(0.1, 0.5, 12, 3, 2))
schedule("nn.inverse_decay_lr stairs", lambda: nn.inverse_decay_lr(0.1, 0.5, 12, 3, 2, True))
schedule("nn.cosine_decay_lr", lambda: nn.cosine_decay_lr(0.01, 0.1, 12, 3, 3))
schedule("nn.polynomial_decay_lr", lambda: nn.polynomial_decay_lr(0.1, 0.01, 12, 3, 2, 0.5))
schedule("nn.polynomial_decay_lr cycles", lambda: nn.polynomial_decay_lr(0.1, 0.01, 18, 3, 2, 0.5, update_decay_epoch=True))
schedule("nn.piecewise_constant_lr", lambda: nn.piecewise_constant_lr([2, 5, 10], [0.1, 0.05, 0.01]))
schedule("nn.warmup_lr", lambda: nn.warmup_lr(0.1, 12, 3, 2))
rate("nn.ExponentialDecayLR", lambda: nn.ExponentialDecayLR(0.1, 0.9, 4))
rate("nn.ExponentialDecayLR stairs", lambda: nn.ExponentialDecayLR(0.1, 0.9, 4, True))
rate("nn.NaturalExpDecayLR", lambda: nn.NaturalExpDecayLR(0.1, 0.9, 4))
rate("nn.NaturalExpDecayLR stairs", lambda: nn.NaturalExpDecayLR(0.1, 0.9, 4, True))
rate("nn.InverseDecayLR", lambda: nn.InverseDecayLR(0.1, 0.9, 4))
rate("nn.InverseDecayLR stairs", lambda: nn.InverseDecayLR(0.1, 0.9, 4, True))
rate("nn.CosineDecayLR", lambda: nn.CosineDecayLR(0.01, 0.1, 5))
rate("nn.PolynomialDecayLR", lambda: nn.PolynomialDecayLR(0.1, 0.01, 5, 0.5))
rate("nn.PolynomialDecayLR cycles", lambda: nn.PolynomialDecayLR(0.1, 0.01, 3, 0.5, True))
rate("nn.WarmUpLR", lambda: nn.WarmUpLR(0.1, 5))

# --- metrics
metric("nn.Accuracy", nn.Accuracy, (floats(6, 4), ints(6, high=4)), (floats(3, 4), ints(3, high=4)))
metric("nn.Accuracy one-hot", nn.Accuracy, (floats(2, 3), exactly([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])))
metric("nn.Accuracy multilabel", lambda: nn.Accuracy("multilabel"), (exactly([[0, 1, 1], [1, 0, 1]]), exactly([[0, 1, 1], [1, 1, 1]])))


class SwappedMean(nn.Metric):
    """The mean of the second input."""

    def clear(self):
        self.found = []

    @nn.rearrange_inputs
    def update(self, *inputs):
        self.found.append(inputs[0].asnumpy().mean())

    def eval(self):
        return float(np.mean(self.found))


metric("nn.rearrange_inputs", lambda: SwappedMean().set_indexes([1, 0]), (floats(4, 3), floats(4, 3)))
metric("nn.Loss", nn.Loss, (exactly(1.5),), (exactly(2.0),))
metric("nn.MAE", nn.MAE, (floats(4, 3), floats(4, 3)), (floats(2, 3), floats(2, 3)))
metric("nn.MSE", nn.MSE, (floats(4, 3), floats(4, 3)), (floats(2, 3), floats(2, 3)))
metric("nn.TopKCategoricalAccuracy", lambda: nn.TopKCategoricalAccuracy(3), (floats(8, 6), ints(8, high=6)))
metric("nn.Top1CategoricalAccuracy", nn.Top1CategoricalAccuracy, (floats(8, 6), ints(8, high=6)))
metric("nn.Top5CategoricalAccuracy", nn.Top5CategoricalAccuracy, (floats(8, 7), ints(8, high=7)))

# --- what scripts write themselves


class OwnGradient(nn.Cell):
    """x^2, with another gradient."""

    def construct(self, x):
        return x * x

    def bprop(self, x, out, dout):
        return (dout * 7 + out,)


class Nested(nn.Cell):
    """A cell with a gradient of its own within another one, and parameters of all kinds."""

    def __init__(self):
        super().__init__()
        self.own = OwnGradient()
        self.weight = ms.Parameter(Tensor(np.ones(4, np.float32)), name="called")
        self.pair = ms.ParameterTuple([ms.Parameter(Tensor(np.ones(1, np.float32)), name=name) for name in "ab"])
        self.parts = nn.SequentialCell(nn.Dense(4, 4), nn.CellList([nn.BatchNorm2d(2)])[0])

    def construct(self, x):
        return self.own(x * self.weight) + x


class Twice(nn.Cell):
    """Two of them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Nested(), Nested()


class DerivedMomentum(nn.Optimizer):
    """Momentum, of what scripts find in Optimizer."""

    def __init__(self, params, learning_rate, **settings):
        super().__init__(learning_rate, params, **settings)
        self.moments = self.parameters.clone(prefix="moments", init="zeros")
        self.assign = ops.Assign()

    def construct(self, gradients):
        rate, gradients = self.get_lr(), self.scale_grad(self.decay_weight(gradients))
        done = True
        for parameter, moment, gradient in zip(self.parameters, self.moments, gradients):
            next_moment = moment * 0.9 + gradient
            done = ops.depend(done, self.assign(moment, next_moment))
            done = ops.depend(done, self.assign(parameter, parameter - rate * next_moment))
        return done


def records(make):
    """The names of a training step's parameters, as a checkpoint has them."""
    net = nn.SequentialCell(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dense(2, 2))
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), make(net.trainable_params()))
    return np.array([p.name for p in step.get_parameters()])


operator("nn.Cell bprop", OwnGradient, floats(3, 4), dtypes=SINGLE)
cell("nn.Cell nested bprop", Nested, floats(3, 4))
value("nn.Cell names", lambda: np.array([p.name for p in Nested().get_parameters()]))
value("nn.Cell names of nested ones", lambda: np.array([p.name for p in Twice().get_parameters()]))
value("nn.Cell keys", lambda: np.array([name for name, _ in Nested().parameters_and_names()]))
value("nn.TrainOneStepCell records Momentum", lambda: records(lambda p: nn.Momentum(p, 0.1, 0.9)))
value("nn.TrainOneStepCell records Adam", lambda: records(lambda p: nn.Adam(p, 0.1)))
value("nn.TrainOneStepCell records rates", lambda: records(lambda p: nn.Momentum(p, [0.1, 0.2], 0.9)))
optimizer("nn.Optimizer derived", lambda net: DerivedMomentum(net.trainable_params(), 0.1))
optimizer("nn.Optimizer derived decay", lambda net: DerivedMomentum(net.trainable_params(), 0.1, weight_decay=0.1, loss_scale=4.0))
cell("nn.PipelineCell", lambda: nn.PipelineCell(nn.WithLossCell(nn.Dense(4, 3), nn.MSELoss()), 3), floats(6, 4), floats(6, 3))
cell("nn.MicroBatchInterleaved", lambda: nn.MicroBatchInterleaved(nn.WithLossCell(nn.Dense(4, 3), nn.MSELoss()), 2), floats(6, 4), floats(6, 3))
value("ops.StridedSlice backwards", lambda: Tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4))[:, ::-1])
