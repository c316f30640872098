"""What ONNX has for each operator: functions that write a node of a graph as nodes of ONNX.

Each takes a Builder and a Node and returns the names of the results; None for one that ONNX has not got, which is an error where it is
read. What an operator computes stands in tessera/ops/*.cc, what a node of ONNX computes in the ONNX operator schemas.
"""
import math

import numpy as np

from tessera import _tessera

OPSET = 18
# By name: the type in the schemas, the one in files (TensorProto.DataType), and NumPy's, which has no bfloat16.
DTYPES = {"float32": ("float", 1, np.float32), "uint8": ("uint8", 2, np.uint8), "int8": ("int8", 3, np.int8), "uint16": ("uint16", 4, np.uint16),
          "int16": ("int16", 5, np.int16), "int32": ("int32", 6, np.int32), "int64": ("int64", 7, np.int64), "bool_": ("bool", 9, np.bool_),
          "float16": ("float16", 10, np.float16), "float64": ("double", 11, np.float64), "uint32": ("uint32", 12, np.uint32),
          "uint64": ("uint64", 13, np.uint64), "bfloat16": ("bfloat16", 16, np.float32)}
HALVES = ("float16", "bfloat16")
# Initializers up to this size are written out; what is larger and uniform is expanded by the program that runs the model.
_WRITTEN_OUT = 1024


class Unsupported(Exception):
    """ONNX has nothing that computes what the node does; the text says what it lacks."""


class Node:
    """One node of the graph: its operator, settings, and operands by their names in the model, with dtype and shape of each."""

    def __init__(self, op, attributes, source, inputs, input_types, output_types, is_read=(True,)):
        self.op, self.attributes = op, attributes
        self.source = "" if source == "." else source  # "": the outermost cell's own
        self.inputs, self.input_types, self.output_types = inputs, input_types, output_types
        self.is_read = is_read  # by result: whether anything reads it

    def __str__(self):
        return f'{self.op} "{self.source}"' if self.source else self.op

    @property
    def dtype(self):
        """Of the first result."""
        return self.output_types[0][0]

    @property
    def shape(self):
        """Of the first operand."""
        return self.input_types[0][1]


class Builder:
    """Nodes and initializers of a model, and the dtype of every value by its name."""

    def __init__(self, onnx):
        self._onnx = onnx
        self.nodes, self.initializers, self.dtypes = [], [], {}
        self.size_bytes = 0
        self.prefix = ""
        self._counts, self._constants = {}, {}

    def unique(self, name):
        """The name, with a number behind it where it is taken."""
        while name in self.dtypes or name in self._counts:
            self._counts[name] = self._counts.get(name, 0) + 1
            name = f"{name}_{self._counts[name]}"
        self._counts[name] = 0
        return name

    def add_initializer(self, name, array, dtype):
        """A tensor that the file holds."""
        array = np.asarray(array, DTYPES[dtype][2], order="C")
        if dtype == "bfloat16":  # its bits are the upper half of a float32's; the nearest, ties to even
            bits = array.view(np.uint32)
            array = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        self.size_bytes += array.nbytes
        tensor = self._onnx.TensorProto(name=name, data_type=DTYPES[dtype][1], dims=array.shape)
        tensor.raw_data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        self.initializers.append(tensor)
        self.dtypes[name] = dtype
        return name

    def constant(self, values, dtype="int64"):
        """An initializer of these values; equal ones are written once."""
        array = np.asarray(values, DTYPES[dtype][2])
        key = (dtype, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.add_initializer(self.unique("constant"), array, dtype)
        return self._constants[key]

    def filled(self, value, dtype, shape):
        """A tensor of equal elements."""
        if math.prod(shape) <= _WRITTEN_OUT:
            return self.constant(np.full(shape, value, DTYPES[dtype][2]), dtype)
        return self.emit("Expand", self.constant(value, dtype), self.constant(shape))

    def emit(self, op, *inputs, dtype=None, count=None, **attributes):
        """Adds a node; returns the name of its result, of the first operand's dtype unless `dtype` says another, or `count` names.
        Raises Unsupported where the operator does not take these dtypes."""
        schema = self._onnx.defs.get_schema(op, OPSET, "")
        for i, name in enumerate(inputs):
            formal = schema.inputs[min(i, len(schema.inputs) - 1)]
            if f"tensor({DTYPES[self.dtypes[name]][0]})" not in formal.types:
                raise Unsupported(f"{op} of ONNX takes no {self.dtypes[name].rstrip('_')}")
        results = [self.unique(f"{self.prefix}/{op}" if self.prefix else op) for _ in range(count or 1)]
        for name in results:
            self.dtypes[name] = dtype or self.dtypes[inputs[0]]
        self.nodes.append(self._onnx.helper.make_node(op, list(inputs), results, name=results[0], **attributes))
        return results[0] if count is None else results

    def cast(self, name, dtype):
        """The value in that dtype."""
        return name if self.dtypes[name] == dtype else self.emit("Cast", name, dtype=dtype, to=DTYPES[dtype][1])

    def reshape(self, name, shape):
        """The value's elements in that shape."""
        return self.emit("Reshape", name, self.constant(shape), **({"allowzero": 1} if 0 in shape else {}))

    def negate(self, name):
        """Whether the value, a bool, does not hold."""
        return self.emit("Not", name)


def _wide(dtype):
    """What is added up in where operands are of this dtype."""
    return "float32" if dtype in HALVES else dtype


def _same(op, **attributes):
    """The operator of that name, on the same operands."""
    return lambda b, n: [b.emit(op, *n.inputs, **attributes)]


def _compare(op, inverted=False, takes_bool=False):
    def write(b, n):
        inputs = n.inputs
        if n.input_types[0][0] == "bool_" and not takes_bool:
            inputs = [b.cast(name, "int32") for name in inputs]
        result = b.emit(op, *inputs, dtype="bool_")
        return [b.negate(result) if inverted else result]

    return write


# Elementwise -----------------------------------------------------------------------------------------------------------------------


def _gelu(b, n):
    x = n.inputs[0]
    dtype = b.dtypes[x]

    def number(value):
        return b.constant(value, dtype)

    if n.attributes["approximate"]:
        cube = b.emit("Mul", b.emit("Mul", x, x), x)
        inner = b.emit("Add", x, b.emit("Mul", cube, number(0.044715)))
        curve = b.emit("Tanh", b.emit("Mul", inner, number(math.sqrt(2 / math.pi))))
    else:
        curve = b.emit("Erf", b.emit("Mul", x, number(math.sqrt(0.5))))
    return [b.emit("Mul", b.emit("Mul", x, number(0.5)), b.emit("Add", curve, number(1)))]


def _finite(b, name):
    name = b.cast(name, _wide(b.dtypes[name]))
    infinite, nan = b.emit("IsInf", name, dtype="bool_"), b.emit("IsNaN", name, dtype="bool_")
    return b.negate(b.emit("Or", infinite, nan))


def _all_finite(b, n):
    if 0 in n.shape:
        return [b.constant(True, "bool_")]
    return [b.cast(b.emit("ReduceMin", b.cast(_finite(b, n.inputs[0]), "int32"), keepdims=0), "bool_")]


def _select(b, n):
    condition, x, y = n.inputs
    if n.dtype == "bool_":
        return [b.emit("Or", b.emit("And", condition, x), b.emit("And", b.negate(condition), y))]
    return [b.emit("Where", condition, x, y, dtype=n.dtype)]


# Creation --------------------------------------------------------------------------------------------------------------------------


def _constant(b, n):
    return [b.constant(np.asarray(n.attributes["values"], np.float64).reshape(n.output_types[0][1]).astype(DTYPES[n.dtype][2]), n.dtype)]


def _range(b, n):
    a, count = n.attributes, n.output_types[0][1][0]
    return [b.constant((a["start"] + np.arange(count, dtype=np.float64) * a["delta"]).astype(DTYPES[n.dtype][2]), n.dtype)]


def _uniform(value):
    return lambda b, n: [b.filled(value, n.dtype, n.output_types[0][1])]


# Shape -----------------------------------------------------------------------------------------------------------------------------


def _with_axes(op):
    """Of no axes ONNX would make all of them."""
    return lambda b, n: [b.emit(op, n.inputs[0], b.constant(n.attributes["axes"])) if n.attributes["axes"] else n.inputs[0]]


def _strided_slice(b, n):
    a, axes = n.attributes, list(range(len(n.shape)))
    if not axes:
        return [n.inputs[0]]
    # ONNX counts a negative end from the last element: down to the first one is written as an end beyond it.
    ends = [-size - 1 if stride < 0 and end < 0 else end for size, stride, end in zip(n.shape, a["strides"], a["end"])]
    return [b.emit("Slice", n.inputs[0], *(b.constant(values) for values in (a["begin"], ends, axes, a["strides"])))]


def _pad(b, n):
    a = n.attributes
    if not n.shape:
        return [n.inputs[0]]
    return [b.emit("Pad", n.inputs[0], b.constant([*a["before"], *a["after"]]), b.constant(a["value"], n.dtype))]


def _split(b, n):
    a = n.attributes
    return b.emit("Split", n.inputs[0], b.constant(a["sizes"]), count=len(a["sizes"]), axis=a["axis"])


# Reduction and choice --------------------------------------------------------------------------------------------------------------


def _reduce(op):
    def write(b, n):
        x, axes = n.inputs[0], n.attributes["axes"]
        if op in ("ReduceSum", "ReduceMean"):
            x = b.cast(x, _wide(n.dtype))
        if n.dtype == "bool_":
            x = b.cast(x, "int32")
        if axes:
            x = b.emit(op, x, b.constant(axes), keepdims=int(n.attributes["keep_dims"]))
        return [b.cast(x, n.dtype)]

    return write


def _cumsum(b, n):
    a, x = n.attributes, b.cast(n.inputs[0], _wide(n.dtype))
    total = b.emit("CumSum", x, b.constant(a["axis"]), exclusive=int(a["exclusive"]), reverse=int(a["reverse"]))
    return [b.cast(total, n.dtype)]


def _argmax(b, n):
    x = n.inputs[0]
    x = b.cast(x, "int32") if b.dtypes[x] == "bool_" else x
    return [b.cast(b.emit("ArgMax", x, dtype="int64", axis=n.attributes["axis"], keepdims=0), "int32")]


def _top_k(b, n):
    values, indices = b.emit("TopK", n.inputs[0], b.constant([n.attributes["k"]]), count=2)
    b.dtypes[indices] = "int64"
    return [values, b.cast(indices, "int32")]


def _indices(b, name):
    return name if b.dtypes[name] in ("int32", "int64") else b.cast(name, "int64")


def _gather(b, n):
    return [b.emit("Gather", n.inputs[0], _indices(b, n.inputs[1]), axis=n.attributes["axis"])]


def _one_hot(b, n):
    # OneHot of ONNX counts negative indices from the end; here they are in no place.
    axis, shape = n.attributes["axis"] % len(n.output_types[0][1]), n.output_types[0][1]
    places = np.arange(n.attributes["depth"]).reshape([-1 if dim == axis else 1 for dim in range(len(shape))])
    indices = b.emit("Unsqueeze", b.cast(n.inputs[0], "int64"), b.constant([axis]))
    return _select(b, Node("select", {}, n.source, [b.emit("Equal", indices, b.constant(places), dtype="bool_"), *n.inputs[1:]],
                           [("bool_", shape)], n.output_types))


def _scatter_add(b, n):
    base, indices, updates = n.inputs
    axis, shape = n.attributes["axis"], n.shape
    count = math.prod(n.input_types[1][1])
    flat = [count if dim == axis else size for dim, size in enumerate(shape)]
    places = b.reshape(_indices(b, indices), [count if dim == axis else 1 for dim in range(len(shape))])
    return [b.emit("ScatterElements", base, b.emit("Expand", places, b.constant(flat)), b.reshape(updates, flat), axis=axis, reduction="add")]


# Products and images ---------------------------------------------------------------------------------------------------------------


def _matmul(b, n):
    if n.dtype not in ("float32", "float64"):  # ONNX Runtime has Gemm for no integers
        return _batch_matmul(b, n)
    lhs, rhs = (b.cast(name, n.dtype) for name in n.inputs)
    return [b.emit("Gemm", lhs, rhs, transA=int(n.attributes["transpose_a"]), transB=int(n.attributes["transpose_b"]))]


def _batch_matmul(b, n):
    last = len(n.shape) - 1
    swapped = [*range(last - 1), last, last - 1]
    operands = []
    for name, flag in zip(n.inputs, ("transpose_a", "transpose_b")):
        name = b.cast(name, n.dtype)
        operands.append(b.emit("Transpose", name, perm=swapped) if n.attributes[flag] else name)
    return [b.emit("MatMul", *operands)]


def _bias_add(b, n):
    x, bias = n.inputs
    if len(n.shape) > 2:
        bias = b.reshape(bias, [n.shape[1]] + [1] * (len(n.shape) - 2))
    return [b.emit("Add", x, bias)]


def _pads(padding):
    """Top, bottom, left, right in ONNX's order: what lies in front, then what lies behind."""
    top, bottom, left, right = padding
    return [top, left, bottom, right]


def _conv2d(b, n):
    a = n.attributes
    x, weight = (b.cast(name, n.dtype) for name in n.inputs)
    return [b.emit("Conv", x, weight, kernel_shape=n.input_types[1][1][2:], strides=a["strides"], pads=_pads(a["padding"]), dilations=a["dilation"],
                   group=a["groups"])]


def _transposed_conv2d(b, n):
    a, taps = n.attributes, n.input_types[1][1][2:]
    dy, weight = (b.cast(name, n.dtype) for name in n.inputs)
    reached = [stride * (size - 1) + dilation * (tap - 1) + 1 - before - behind
               for stride, size, dilation, tap, before, behind in zip(a["strides"], n.shape[2:], a["dilation"], taps, a["padding"][::2],
                                                                      a["padding"][1::2])]
    missing = [size - got for size, got in zip(a["input_size"], reached)]
    return [b.emit("ConvTranspose", dy, weight, kernel_shape=taps, strides=a["strides"], pads=_pads(a["padding"]), dilations=a["dilation"],
                   group=a["groups"], output_padding=missing)]


def _window(n):
    a = n.attributes
    return {"kernel_shape": a["kernel"], "strides": a["strides"], "pads": _pads(a["padding"])}


def _max_pool2d(b, n):
    return [b.emit("MaxPool", n.inputs[0], **_window(n)), None]


def _avg_pool2d(b, n):
    return [b.emit("AveragePool", n.inputs[0], count_include_pad=int(n.attributes["count_include_pad"]), **_window(n))]


# Normalisation, attention, losses --------------------------------------------------------------------------------------------------


def _require_one_group(n):
    if n.attributes["grouped"]:
        raise Unsupported("ONNX has no statistics of groups of rows")


def _batch_norm(b, n):
    _require_one_group(n)
    x, mean, variance, gamma, beta = n.inputs
    return [b.emit("BatchNormalization", x, gamma, beta, mean, variance, epsilon=n.attributes["eps"])]


def _batch_statistic(b, n, values):
    """The sum over all dims but the channels, divided by counts."""
    _require_one_group(n)
    axes = [dim for dim in range(len(n.shape)) if dim != 1]
    return [b.emit("Div", b.emit("ReduceSum", values, b.constant(axes), keepdims=0), b.constant(n.attributes["counts"][0], n.dtype))]


def _batch_norm_mean(b, n):
    return _batch_statistic(b, n, b.cast(n.inputs[0], n.dtype))


def _batch_norm_variance(b, n):
    mean = b.reshape(n.inputs[1], [1, n.shape[1]] + [1] * (len(n.shape) - 2))
    distance = b.emit("Sub", b.cast(n.inputs[0], n.dtype), mean)
    return _batch_statistic(b, n, b.emit("Mul", distance, distance))


def _layer_norm(b, n):
    a, (x, gamma, beta) = n.attributes, n.inputs
    axes = list(range(a["begin_axis"], len(n.shape)))
    statistics, leading = n.output_types[1]
    if not axes:
        raise Unsupported("ONNX normalises over at least one dim")
    if {b.dtypes[name] for name in n.inputs} == {"float32"} and not any(n.is_read[1:]):
        return [b.emit("LayerNormalization", x, gamma, beta, axis=a["begin_axis"], epsilon=a["eps"]), None, None]
    # LayerNormalization of ONNX has one dtype for all, and computes in float32 at most.
    wide, gamma, beta = (b.cast(name, statistics) for name in (x, gamma, beta))
    mean = b.emit("ReduceMean", wide, b.constant(axes), keepdims=1)
    distance = b.emit("Sub", wide, mean)
    variance = b.emit("ReduceMean", b.emit("Mul", distance, distance), b.constant(axes), keepdims=1)
    inv_std = b.emit("Reciprocal", b.emit("Sqrt", b.emit("Add", variance, b.constant(a["eps"], statistics))))
    y = b.cast(b.emit("Add", b.emit("Mul", b.emit("Mul", distance, inv_std), gamma), beta), n.dtype)
    return [y] + [b.reshape(name, leading) if read else None for name, read in zip((mean, inv_std), n.is_read[1:])]


def _attention(b, n):
    a = n.attributes
    if a["keep_prob"] < 1:
        raise Unsupported("it drops weights at random")
    dtype = _wide(n.dtype)
    query, key, value = (b.cast(name, dtype) for name in n.inputs[:3])
    by_head = [0, 2, 1, 3]
    scores = b.emit("MatMul", b.emit("Transpose", query, perm=by_head), b.emit("Transpose", key, perm=[0, 2, 3, 1]))
    scores = b.emit("Mul", scores, b.constant(a["scale"], dtype))
    seen = None  # which keys a query sees
    if len(n.inputs) > 3 and b.dtypes[n.inputs[3]] == "bool_":
        seen = n.inputs[3]
    elif len(n.inputs) > 3:
        scores = b.emit("Add", scores, b.cast(n.inputs[3], dtype))
        seen = b.negate(b.emit("IsInf", scores, dtype="bool_", detect_positive=0))
    if a["causal"]:
        earlier = np.arange(n.input_types[1][1][1])[None, :] <= np.arange(n.shape[1])[:, None]
        earlier = b.constant(earlier[None, None], "bool_")
        seen = earlier if seen is None else b.emit("And", seen, earlier)
    if seen is None:
        weights = b.emit("Softmax", scores, axis=-1)
    else:
        # A query that sees no key gets zeros: Softmax would make NaN of a row of minus infinities.
        lowest = b.constant(np.finfo(DTYPES[dtype][2]).min, dtype)
        weights = b.emit("Softmax", b.emit("Where", seen, scores, lowest, dtype=dtype), axis=-1)
        weights = b.emit("Where", seen, weights, b.constant(0, dtype), dtype=dtype)
    out = b.emit("MatMul", weights, b.emit("Transpose", value, perm=by_head))
    return [b.cast(b.emit("Transpose", out, perm=by_head), n.dtype), None]


def _cross_entropy(b, n):
    logits, labels = n.inputs
    chosen = b.emit("GatherElements", b.emit("LogSoftmax", logits, axis=1), b.emit("Unsqueeze", labels, b.constant([1])), axis=1)
    losses = b.emit("Neg", b.emit("Squeeze", chosen, b.constant([1])))
    return [losses, b.emit("Softmax", logits, axis=1) if n.is_read[1] else None]


def _expm1(b, n):
    half = b.emit("Mul", n.inputs[0], b.constant(0.5, n.dtype))
    return [b.emit("Mul", b.emit("Mul", b.emit("Sinh", half), b.emit("Exp", half)), b.constant(2.0, n.dtype))]


def _log1p(b, n):
    x, one, two = n.inputs[0], b.constant(1.0, n.dtype), b.constant(2.0, n.dtype)
    near = b.emit("Mul", b.emit("Atanh", b.emit("Div", x, b.emit("Add", x, two))), two)
    is_near = b.emit("Less", b.emit("Abs", x), b.constant(0.5, n.dtype), dtype="bool_")
    return [b.emit("Where", is_near, near, b.emit("Log", b.emit("Add", x, one)), dtype=n.dtype)]


OPERATORS = {
    "sinh": _same("Sinh"), "cosh": _same("Cosh"), "asinh": _same("Asinh"), "atanh": _same("Atanh"), "expm1": _expm1, "log1p": _log1p,
    "neg": _same("Neg"), "abs": _same("Abs"), "sign": _same("Sign"), "floor": _same("Floor"), "sqrt": _same("Sqrt"), "exp": _same("Exp"),
    "log": _same("Log"), "sin": _same("Sin"), "cos": _same("Cos"), "relu": _same("Relu"), "sigmoid": _same("Sigmoid"), "tanh": _same("Tanh"),
    "reciprocal": _same("Reciprocal"), "add": _same("Add"), "sub": _same("Sub"), "mul": _same("Mul"), "div": _same("Div"), "maximum": _same("Max"),
    "minimum": _same("Min"), "pow": _same("Pow"), "logical_and": _same("And"), "logical_or": _same("Or"), "logical_xor": _same("Xor"),
    "logical_not": _same("Not"), "gelu": _gelu, "select": _select, "all_finite": _all_finite,
    "square": lambda b, n: [b.emit("Mul", n.inputs[0], n.inputs[0])],
    "rsqrt": lambda b, n: [b.emit("Reciprocal", b.emit("Sqrt", n.inputs[0]))],
    "is_finite": lambda b, n: [_finite(b, n.inputs[0])],
    "stop_gradient": lambda b, n: n.inputs,
    "custom_gradient": lambda b, n: n.inputs[:n.attributes["num_outputs"]],
    "cast": lambda b, n: [b.cast(n.inputs[0], n.dtype)],
    "equal": _compare("Equal", takes_bool=True), "not_equal": _compare("Equal", inverted=True, takes_bool=True), "less": _compare("Less"),
    "less_equal": _compare("LessOrEqual"), "greater": _compare("Greater"), "greater_equal": _compare("GreaterOrEqual"),
    "fill": lambda b, n: _uniform(n.attributes["value"])(b, n), "zeros_like": _uniform(0), "ones_like": _uniform(1), "constant": _constant,
    "range": _range,
    "reshape": lambda b, n: [b.reshape(n.inputs[0], n.output_types[0][1])],
    "transpose": lambda b, n: [b.emit("Transpose", n.inputs[0], perm=n.attributes["perm"]) if n.shape else n.inputs[0]],
    "squeeze": _with_axes("Squeeze"), "expand_dims": _with_axes("Unsqueeze"),
    "concat": lambda b, n: [b.emit("Concat", *n.inputs, axis=n.attributes["axis"])],
    "tile": lambda b, n: [b.emit("Tile", n.inputs[0], b.constant(n.attributes["multiples"])) if n.shape else n.inputs[0]],
    "broadcast_to": lambda b, n: [b.emit("Expand", n.inputs[0], b.constant(n.attributes["shape"]))],
    "split": _split, "strided_slice": _strided_slice, "pad": _pad,
    "reduce_sum": _reduce("ReduceSum"), "reduce_mean": _reduce("ReduceMean"), "reduce_max": _reduce("ReduceMax"), "reduce_min": _reduce("ReduceMin"),
    "reduce_prod": _reduce("ReduceProd"), "reduce_all": _reduce("ReduceMin"), "reduce_any": _reduce("ReduceMax"), "cumsum": _cumsum,
    "argmax": _argmax, "top_k": _top_k, "gather": _gather, "one_hot": _one_hot, "scatter_add": _scatter_add,
    "matmul": _matmul, "batch_matmul": _batch_matmul, "bias_add": _bias_add, "conv2d": _conv2d, "conv2d_grad_input": _transposed_conv2d,
    "max_pool2d": _max_pool2d, "avg_pool2d": _avg_pool2d,
    "softmax": lambda b, n: [b.emit("Softmax", n.inputs[0], axis=n.attributes["axis"])],
    "log_softmax": lambda b, n: [b.emit("LogSoftmax", n.inputs[0], axis=n.attributes["axis"])],
    "batch_norm": _batch_norm, "batch_norm_mean": _batch_norm_mean, "batch_norm_variance": _batch_norm_variance, "layer_norm": _layer_norm,
    "attention": _attention, "softmax_cross_entropy": _cross_entropy,
}
# Operators that no model is written of, by what they do.
REFUSED = {
    "it draws random numbers": "dropout random_normal random_truncated_normal random_uniform",
    "it computes a gradient":
        "attention_grad avg_pool2d_grad batch_norm_grad_input batch_norm_grad_reduce conv2d_grad_weight gelu_grad layer_norm_grad log_softmax_grad "
        "max_pool2d_grad max_pool2d_take relu_grad sigmoid_grad softmax_cross_entropy_grad softmax_grad strided_slice_grad tanh_grad top_k_grad",
    "it updates what training keeps": "adam adam_weight_decay adamw momentum moving_average sgd update_group",
    "it is made by fusion, of a graph that is compiled":
        "batch_norm_relu_grad_input batch_norm_relu_grad_reduce batch_norm_statistics fused_batch_norm fused_elementwise fused_matmul "
        "masked_batch_norm_grad_reduce",
}
REASONS = {op: reason for reason, names in REFUSED.items() for op in names.split()}


def reason_against(op):
    """Why no model is written of an operator."""
    return "it communicates between ranks" if _tessera.nn._communicates(op) else REASONS.get(op, "it has no form in ONNX yet")


def write(builder, node):
    """Adds what computes the node; returns the names of its results. Raises Unsupported."""
    if node.op not in OPERATORS:
        raise Unsupported(reason_against(node.op))
    builder.prefix = node.source.replace(".", "/")
    return OPERATORS[node.op](builder, node)
