"""Operators as objects, made of the functions of ops.arithmetic, ops.array, ops.drawing and ops.neural."""
import inspect as _inspect

import tessera as _tessera
from tessera import ops as _ops
from tessera._keywords import unexpected as _unexpected

from mindspore import _check
from mindspore.ops import arithmetic as _arithmetic
from mindspore.ops import array as _array
from mindspore.ops import drawing as _drawing
from mindspore.ops import functional as _functional
from mindspore.ops import neural as _neural
from mindspore.ops import resize as _resize
from mindspore.ops.primitive import Primitive as _Primitive

# Without settings: the call is the function's.
_PLAIN = {
    "ACos": _arithmetic.acos, "Acosh": _arithmetic.acosh, "Asin": _arithmetic.asin, "Asinh": _arithmetic.asinh, "Atan": _arithmetic.atan,
    "Atanh": _arithmetic.atanh, "Atan2": _arithmetic.atan2, "Erf": _arithmetic.erf, "Erfc": _arithmetic.erfc, "Sinc": _arithmetic.sinc,
    "Round": _arithmetic.round, "Rint": _arithmetic.round, "Trunc": _arithmetic.trunc, "Mod": _arithmetic.fmod, "FloorMod": _arithmetic.floor_mod,
    "TruncateDiv": _arithmetic.truncate_div, "TruncateMod": _arithmetic.truncate_mod, "Xlogy": _arithmetic.xlogy, "Hypot": _arithmetic.hypot,
    "Lerp": _arithmetic.lerp, "Heaviside": _arithmetic.heaviside, "Ger": _arithmetic.outer, "AccumulateNV2": _arithmetic.accumulate_n,
    "MulNoNan": lambda x, y: _ops.select(_ops.equal(y, 0), _ops.zeros_like(x * y), x * y),
    "SquareSumAll": lambda x, y: (_ops.reduce_sum(_ops.square(x)), _ops.reduce_sum(_ops.square(y))),
    "Eye": _array.eye, "LinSpace": _array.linspace, "Fills": _array.fills, "FillV2": lambda shape, value: _ops.fill(shape, value.item(), value.dtype),
    "MaskedFill": _array.masked_fill, "GatherD": _array.gather_d, "GatherNd": _array.gather_nd, "ScatterNd": _array.scatter_nd,
    "TensorScatterAdd": _array.tensor_scatter_add, "TensorScatterSub": _array.tensor_scatter_sub, "TensorScatterUpdate": _array.tensor_scatter_update,
    "UnsortedSegmentSum": _array.unsorted_segment_sum, "Slice": _array.slice, "Diag": _array.diagflat, "DiagPart": _array.diagonal,
    "Trace": _array.trace, "Unique": _array.unique, "NonZero": _array.nonzero, "MaskedSelect": _array.masked_select,
    "StopGradient": _ops.stop_gradient, "TensorShape": lambda x: _tessera.Tensor(list(x.shape), _tessera.int64), "ExpandAs": _array.expand_as,
    "SeLU": _neural.selu, "PReLU": _neural.prelu, "FastGeLU": _neural.fast_gelu, "FastGelu": _neural.fast_gelu,
    "SigmoidCrossEntropyWithLogits": lambda x, y: _neural.binary_cross_entropy_with_logits(x, y, reduction="none"),
    "Expand": _array.expand, "FloatStatus": lambda x: _float_status(x),
}
_CENTERS = {"align_corners": False, "half_pixel_centers": False}
# With settings: (function, what __init__ takes with its defaults); the call's arguments come first.
_WITH_SETTINGS = {
    "Range": (lambda start, end, step, maxlen: _array.range(start, end, step, maxlen), {"maxlen": 1000000}),
    "L2Normalize": (_neural._l2_normalize, {"axis": 0, "epsilon": 1e-4}),
    "CumProd": (lambda x, axis, exclusive, reverse: _cumprod(x, axis, exclusive, reverse), {"exclusive": False, "reverse": False}),
    "ReduceStd": (lambda x, axis, unbiased, keep_dims: (_arithmetic.std(x, axis or None, unbiased, keep_dims), _ops.reduce_mean(x, axis, keep_dims)),
                  {"axis": (), "unbiased": True, "keep_dims": False}),
    "Argmin": (lambda x, axis, output_type: _ops.cast(_arithmetic.argmin(x, axis), output_type), {"axis": -1, "output_type": _tessera.int32}),
    "CeLU": (_neural.celu, {"alpha": 1.0}), "HShrink": (_neural.hardshrink, {"lambd": 0.5}), "SoftShrink": (_neural.softshrink, {"lambd": 0.5}),
    "GLU": (_neural.glu, {"axis": -1}), "NanToNum": (_arithmetic.nan_to_num, {"nan": None, "posinf": None, "neginf": None}),
    "IsClose": (_arithmetic.isclose, {"rtol": 1e-05, "atol": 1e-08, "equal_nan": False}),
    "ApproximateEqual": (_arithmetic.approximate_equal, {"tolerance": 1e-5}), "Logit": (lambda x, eps: _arithmetic.logit(x, None if eps < 0 else eps), {"eps": -1.0}),
    "Cross": (lambda x, y, dim: _arithmetic.cross(x, y, None if dim == -65530 else dim), {"dim": -65530}),
    "CountNonZero": (lambda x, dims: _ops.cast(_arithmetic.count_nonzero(x, dims), _tessera.int64), {"dims": None}),
    "LpNorm": (lambda x, axis, p, keep_dims, epsilon: _lp_norm(x, axis, p, keep_dims, epsilon), {"axis": None, "p": 2, "keep_dims": False, "epsilon": 1e-12}),
    "StandardNormal": (lambda shape, seed, seed2: _drawing.standard_normal(shape, _drawing._one_seed(seed, seed2)), {"seed": 0, "seed2": 0}),
    "UniformReal": (lambda shape, seed, seed2: _drawing.uniform(shape, 0.0, 1.0, _drawing._one_seed(seed, seed2)), {"seed": 0, "seed2": 0}),
    "UniformInt": (lambda shape, minval, maxval, seed, seed2: _drawing.uniform(shape, minval, maxval, _drawing._one_seed(seed, seed2), _tessera.int32), {"seed": 0, "seed2": 0}),
    "Meshgrid": (lambda inputs, indexing: _array.meshgrid(*inputs, indexing=indexing), {"indexing": "xy"}),
    "Tril": (_array.tril, {"diagonal": 0}), "Triu": (_array.triu, {"diagonal": 0}), "ReverseV2": (_array.reverse, {"axis": None}),
    "Roll": (_array.roll, {"shifts": None, "dims": None}), "Sort": (_array.sort, {"axis": -1, "descending": False}),
    "ChannelShuffle": (_neural.channel_shuffle, {"group": None}), "SmoothL1Loss": (_neural.smooth_l1_loss, {"beta": 1.0, "reduction": "none"}),
    "KLDivLoss": (_neural.kl_div, {"reduction": "mean"}), "SoftMarginLoss": (_neural.soft_margin_loss, {"reduction": "mean"}),
    "BinaryCrossEntropy": (lambda x, y, *rest: _neural.binary_cross_entropy(x, y, rest[0] if len(rest) > 1 else None, rest[-1]), {"reduction": "mean"}),
    "BCEWithLogitsLoss": (lambda x, y, weight, pos_weight, reduction: _neural.binary_cross_entropy_with_logits(x, y, weight, pos_weight, reduction),
                          {"reduction": "mean"}),
    "AdaptiveAvgPool2D": (_neural.adaptive_avg_pool2d, {"output_size": None}),
    "IndexAdd": (lambda x, indices, y, axis, use_lock, check_index_bound: _index_add(x, indices, y, axis),
                 {"axis": None, "use_lock": True, "check_index_bound": True}),
    "TensorScatterElements": (_array.tensor_scatter_elements, {"axis": 0, "reduction": "none"}),
    "ConfusionMatrix": (lambda labels, predictions, *rest: _confusion_matrix(labels, predictions, rest[0] if len(rest) > 2 else None, *rest[-2:]),
                        {"num_classes": None, "dtype": "int32"}),
    "LayerNorm": (lambda x, gamma, beta, begin_norm_axis, begin_params_axis, epsilon: _layer_norm(
        x, gamma, beta, begin_norm_axis, begin_params_axis, epsilon),
                  {"begin_norm_axis": 1, "begin_params_axis": 1, "epsilon": 1e-7}),
    "RmsNorm": (_neural.rms_norm, {"epsilon": 1e-6}), "Einsum": (lambda operands, equation: _arithmetic.einsum(equation, *operands), {"equation": None}),
        "DepthToSpace": (lambda x, block_size: _depth_to_space(x, block_size), {"block_size": None}),
    "SpaceToDepth": (lambda x, block_size: _space_to_depth(x, block_size), {"block_size": None}),
    "ResizeBilinearV2": (lambda x, size, *how: _resize.resize_by("ResizeBilinearV2", "linear", x, size, *how), _CENTERS),
    "ResizeNearestNeighborV2": (lambda x, size, *how: _resize.resize_by("ResizeNearestNeighborV2", "nearest", x, size, *how), _CENTERS),
    "ResizeBicubic": (lambda x, size, *how: _resize.resize_by("ResizeBicubic", "cubic", x, size, *how), _CENTERS),
    "ResizeBilinear": (lambda x, size, *how: _resize.resize_by("ResizeBilinear", "linear", x, size, *how), {"size": None} | _CENTERS),
    # The one without V2 looks at no centers.
    "ResizeNearestNeighbor": (lambda x, size, align_corners, half_pixel_centers: _nearest_neighbor(x, size, align_corners, half_pixel_centers),
                              {"size": None} | _CENTERS),
    "ResizeLinear1D": (lambda x, size, mode: _resize.interpolate(x, tuple(size), mode="linear", align_corners=mode == "align_corners"),
                       {"coordinate_transformation_mode": "align_corners"}),
    "MirrorPad": (lambda x, paddings, mode: _mirror_pad(x, paddings, mode), {"mode": "REFLECT"}),
    "EmbeddingLookup": (lambda table, indices, offset: _sparse_gather(table, indices if isinstance(offset, int) and offset == 0 else indices - offset), {}),
    "SparseGatherV2": (lambda table, indices, axis: _sparse_gather(table, indices, axis), {}),
    "NLLLoss": (lambda x, y, weight, reduction, ignore_index: _nll_loss(x, y, weight, reduction, ignore_index), {"reduction": "mean", "ignore_index": -100}),
    "BatchNorm": (lambda x, scale, bias, mean, variance, is_training, epsilon, momentum, data_format: _batch_norm(
        x, scale, bias, mean, variance, is_training, epsilon, data_format), {"is_training": False, "epsilon": 1e-5, "momentum": 0.1, "data_format": "NCHW"}),
    "SoftmaxCrossEntropyWithLogits": (lambda logits, labels: _softmax_cross_entropy(logits, labels), {}),
    "SparseSoftmaxCrossEntropyWithLogits": (lambda logits, labels, is_grad: _sparse_softmax_cross_entropy(logits, labels, is_grad), {"is_grad": False}),
}


def _float_status(x):
    """[1]: 1 where an element of x is infinite or no number, else 0."""
    if x.dtype not in (_tessera.float16, _tessera.bfloat16, _tessera.float32, _tessera.float64):
        raise TypeError(f"For 'FloatStatus', the type of 'x' must be float16, bfloat16, float32 or float64, but got {x.dtype}.")
    return _ops.reshape(1.0 - _ops.reduce_min(_ops.cast(_ops.is_finite(x), _tessera.float32)), (1, ))


def _sparse_gather(table, indices, axis=0):
    """Rows, of which nn.LazyAdam hears which ones they are."""
    if isinstance(table, _tessera.Parameter):
        table.is_looked_up_sparsely = True
    return _ops.gather(table, indices, axis)


def _cumprod(x, axis, exclusive, reverse):
    axis = _check.axis("CumProd", "axis", axis, x.ndim)
    if reverse:
        return _array.flip(_cumprod(_array.flip(x, axis), axis, exclusive, False), axis)
    if not exclusive:
        return _arithmetic.cumprod(x, axis)
    first = _ops.ones_like(_array.narrow(x, axis, 0, 1))
    rest = _arithmetic.cumprod(_array.narrow(x, axis, 0, x.shape[axis] - 1), axis)
    return _ops.concat([first, rest], axis)


def _lp_norm(x, axis, p, keep_dims, epsilon):
    return _ops.maximum(_arithmetic.vector_norm(x, p, axis, keep_dims), epsilon)


def _index_add(x, indices, y, axis):
    """Of a parameter: what it is from here on."""
    made = _array.index_add(x, indices, y, axis)
    return _functional.assign(x, made) if isinstance(x, _tessera.Parameter) else made


def _confusion_matrix(labels, predictions, weights, num_classes, dtype):
    places = _ops.cast(labels, _tessera.int32) * num_classes + _ops.cast(predictions, _tessera.int32)
    dtype = getattr(_tessera, dtype) if isinstance(dtype, str) else dtype
    counts = _ops.ones_like(_ops.cast(places, _tessera.float32)) if weights is None else _ops.cast(weights, _tessera.float32)
    zeros = _ops.fill((num_classes * num_classes, ), 0, _tessera.float32)
    return _ops.cast(_ops.reshape(_ops.scatter_add(zeros, places, counts, 0), (num_classes, num_classes)), dtype)


def _layer_norm(x, gamma, beta, begin_norm_axis, begin_params_axis, epsilon):
    first, sizes = begin_norm_axis % x.ndim, tuple(x.shape[begin_params_axis % x.ndim:])
    for name, parameter in (("gamma", gamma), ("beta", beta)):
        if tuple(parameter.shape) != sizes:
            raise ValueError(f"For 'LayerNorm', the shape of '{name}' must be that of x from 'begin_params_axis' {begin_params_axis} on, {sizes}, but got "
                             f"{tuple(parameter.shape)}.")
    dims = tuple(range(first, x.ndim))
    mean = _ops.reduce_mean(x, dims, True)
    variance = _ops.reduce_mean(_ops.square(x - mean), dims, True)
    shape = x.shape[first:]
    made = _ops.layer_norm(x, _ops.fill(shape, 1, x.dtype), _ops.fill(shape, 0, x.dtype), first, epsilon) * gamma + beta
    return made, mean, variance


def _depth_to_space(x, r):
    n, c, h, w = x.shape
    x = _ops.transpose(_ops.reshape(x, (n, r, r, c // (r * r), h, w)), (0, 3, 4, 1, 5, 2))
    return _ops.reshape(x, (n, c // (r * r), h * r, w * r))


def _space_to_depth(x, r):
    n, c, h, w = x.shape
    x = _ops.transpose(_ops.reshape(x, (n, c, h // r, r, w // r, r)), (0, 3, 5, 1, 2, 4))
    return _ops.reshape(x, (n, c * r * r, h // r, w // r))


def _nearest_neighbor(x, size, align_corners, half_pixel_centers):
    _resize.check_corners("ResizeNearestNeighbor", align_corners, half_pixel_centers)
    return _resize.resize_by("ResizeNearestNeighbor", "nearest", x, size, align_corners)


def _mirror_pad(x, paddings, mode):
    if mode != "REFLECT":
        raise NotImplementedError("For 'MirrorPad', mode SYMMETRIC is not available: use ops.pad with mode replicate, or concat a flipped piece")
    pairs = paddings.asnumpy().tolist() if isinstance(paddings, _tessera.Tensor) else list(paddings)
    return _neural.pad(x, [side for pair in reversed(pairs) for side in pair], "reflect")


def _nll_loss(x, y, weight, reduction, ignore_index):
    """(the loss, the sum of the weights that count)."""
    total = _ops.reduce_sum(_ops.gather(weight, y, 0) * _ops.cast(_ops.not_equal(y, ignore_index), weight.dtype))
    return _neural.nll_loss(x, y, weight, ignore_index, reduction), total


def _batch_norm(x, scale, bias, mean, variance, is_training, epsilon, data_format):
    """(y, mean, variance, mean, variance)."""
    if is_training or data_format != "NCHW":
        raise NotImplementedError("For 'BatchNorm', is_training=True and data_format NHWC are not available: use nn.BatchNorm2d, which keeps the moving statistics")
    return _neural.batch_norm(x, mean, variance, scale, bias, False, 0.1, epsilon), mean, variance, mean, variance


def _softmax_cross_entropy(logits, labels):
    """(the loss of each row, the gradient of each row's loss)."""
    losses = -_ops.reduce_sum(_ops.stop_gradient(labels) * _ops.log_softmax(logits), -1)
    return losses, _ops.stop_gradient(_ops.softmax(logits) - labels)


def _sparse_softmax_cross_entropy(logits, labels, is_grad):
    """The mean loss, or its gradient."""
    if is_grad:
        hot = _ops.cast(_ops.one_hot(labels, logits.shape[1]), logits.dtype)
        return (_ops.softmax(logits) - hot) / float(logits.shape[0])
    return _ops.reduce_mean(_ops.softmax_cross_entropy(logits, labels))


def _plain(name, function):
    return type(name, (_Primitive, ), {"run": lambda self, *args, **kwargs: function(*args, **kwargs), "__doc__": function.__doc__, "__module__": __name__})


def _with_settings(name, function, settings):
    def init(self, *args, **kwargs):
        _Primitive.__init__(self, name)
        for key in kwargs:
            if key not in settings:
                raise TypeError(_unexpected(f"{name}()", key, list(settings)))
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        self.settings = list(bound.arguments.values())
        for key, value in bound.arguments.items():
            setattr(self, key, value)

    def run(self, *args):
        return function(*args, *self.settings)

    kinds = _inspect.Parameter
    signature = _inspect.Signature([kinds(key, kinds.POSITIONAL_OR_KEYWORD, default=kinds.empty if value is None and key in _REQUIRED else value)
                                    for key, value in settings.items()])
    return type(name, (_Primitive, ), {"__init__": init, "run": run, "__doc__": function.__doc__, "__module__": __name__})


# Settings that have no default.
_REQUIRED = {"shifts", "axis", "group", "output_size", "num_classes", "equation", "block_size", "size"}
__all__ = [*_PLAIN, *_WITH_SETTINGS]
for _name, _function in _PLAIN.items():
    globals()[_name] = _plain(_name, _function)
for _name, (_function, _settings) in _WITH_SETTINGS.items():
    globals()[_name] = _with_settings(_name, _function, _settings)
