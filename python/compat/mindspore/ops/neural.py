"""Activations, losses and layers as functions, made of tessera's operators."""
import math as _math

import numpy as _np
import tessera as _tessera
from tessera import ops as _ops

from mindspore import context as _context
from mindspore.ops import arithmetic as _arithmetic
from mindspore.ops import array as _array


# --- activations
def silu(input):
    """x * sigmoid(x)."""
    return input * _ops.sigmoid(input)


def celu(x, alpha=1.0):
    """max(0, x) + min(0, alpha * (e^(x / alpha) - 1))."""
    return _ops.maximum(x, 0.0) + alpha * _ops.expm1(_ops.minimum(x, 0.0) / alpha)


def selu(input_x):
    """Klambauer et al., NIPS 2017: scale * x where x > 0, else scale * alpha * (e^x - 1)."""
    return 1.0507009873554805 * (_ops.maximum(input_x, 0.0) + 1.6732632423543772 * _ops.expm1(_ops.minimum(input_x, 0.0)))


def leaky_relu(input, alpha=0.2):
    """x where x > 0, else alpha * x."""
    return _ops.maximum(input, 0.0) + alpha * _ops.minimum(input, 0.0)


def prelu(input, weight):
    """x where x > 0, else weight * x; the weight is one number, or one for each channel (dim 1)."""
    if weight.size > 1 and input.ndim > 1:
        weight = _ops.reshape(weight, (-1, *(1, ) * (input.ndim - 2)))
    return _ops.maximum(input, 0.0) + weight * _ops.minimum(input, 0.0)


def hardtanh(input, min_val=-1.0, max_val=1.0):
    """x, at least min_val and at most max_val."""
    return _ops.minimum(_ops.maximum(input, min_val), max_val)


def hardshrink(input, lambd=0.5):
    """x where |x| > lambd, else 0."""
    return _ops.select(_ops.greater(_ops.abs(input), lambd), input, _ops.zeros_like(input))


def softshrink(input, lambd=0.5):
    """x less lambd on its way to 0, and 0 where |x| is below it."""
    return _ops.select(_ops.greater(input, lambd), input - lambd, _ops.select(_ops.less(input, -lambd), input + lambd, _ops.zeros_like(input)))


soft_shrink = softshrink


def hardsigmoid(input):
    """min(max(x + 3, 0), 6) / 6."""
    return _ops.minimum(_ops.maximum(input + 3.0, 0.0), 6.0) / 6.0


def hardswish(input):
    """x * hardsigmoid(x)."""
    return input * hardsigmoid(input)


def tanhshrink(input):
    """x - tanh(x)."""
    return input - _ops.tanh(input)


def threshold(input, thr, value):
    """x where x > thr, else the value."""
    return _ops.select(_ops.greater(input, thr), input, _ops.ones_like(input) * value)


def logsigmoid(x):
    """log(sigmoid(x))."""
    return _ops.minimum(x, 0.0) - _ops.log1p(_ops.exp(-_ops.abs(x)))


def softmin(x, axis=-1, *, dtype=None):
    """softmax(-x)."""
    return _ops.softmax(-x if dtype is None else -_ops.cast(x, dtype), axis)


def glu(x, axis=-1):
    """The first half along an axis times the sigmoid of the second."""
    first, second = _ops.split(x, 2, axis)
    return first * _ops.sigmoid(second)


def fast_gelu(x):
    """x / (1 + e^(-1.702 |x|)) * e^(0.851 (x - |x|))."""
    size = _ops.abs(x)
    return x / (1.0 + _ops.exp(-1.702 * size)) * _ops.exp(0.851 * (x - size))


# --- losses
def _reduced(x, reduction):
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"The 'reduction' must be one of 'mean', 'sum', 'none', but got {reduction}.")
    return x if reduction == "none" else _ops.reduce_mean(x) if reduction == "mean" else _ops.reduce_sum(x)


def _warn_of_broadcast(who, x, y):
    """Warns once where two tensors that a loss compares have different shapes: (4, 1) and (4,) give (4, 4), which few scripts mean."""
    if getattr(x, "shape", None) != getattr(y, "shape", None) and hasattr(y, "shape"):
        _context.warn_once(f"{who}: a prediction {tuple(x.shape)} and a target {tuple(y.shape)} have different shapes and are broadcast: give them one shape, by "
                          "squeeze() or reshape(), where each prediction has one target")


def mse_loss(input, target, reduction="mean"):
    """(x - y)^2."""
    _warn_of_broadcast("mse_loss", input, target)
    return _reduced(_ops.square(input - target), reduction)


def l1_loss(input, target, reduction="mean"):
    """|x - y|."""
    _warn_of_broadcast("l1_loss", input, target)
    return _reduced(_ops.abs(input - target), reduction)


def _check_alike(who, prediction, target):
    """TypeError unless both are tensors of floats, ValueError unless they have one shape."""
    for name, value in (("prediction", prediction), ("target", target)):
        if not hasattr(value, "dtype"):  # a tensor, or a value of a traced graph
            raise TypeError(f"For '{who}', the '{name}' must be a Tensor, but got {type(value).__name__}.")
        if value.dtype not in (_tessera.float16, _tessera.float32, _tessera.float64, _tessera.bfloat16):
            raise TypeError(f"For '{who}', the '{name}' must be a tensor of floats, but got {value.dtype}; convert it by astype(mindspore.float32).")
    if prediction.shape != target.shape:
        shapes = ["[" + "".join(f"{size}," for size in value.shape) + "]" for value in (prediction, target)]
        raise ValueError(f"For primitive[{who}], the prediction_shape: {shapes[0]} must be equal to {shapes[1]}")


def smooth_l1_loss(input, target, beta=1.0, reduction="none"):
    """(x - y)^2 / (2 beta) where |x - y| < beta, else |x - y| - beta / 2, of two tensors of floats of one shape."""
    _check_alike("SmoothL1Loss", input, target)
    apart = _ops.abs(input - target)
    near = _ops.minimum(apart, beta)
    return _reduced(near * near / (2.0 * beta) + (apart - near), reduction)


def huber_loss(input, target, reduction="mean", delta=1.0):
    """(x - y)^2 / 2 where |x - y| <= delta, else delta * (|x - y| - delta / 2)."""
    apart = _ops.abs(input - target)
    near = _ops.minimum(apart, delta)
    return _reduced(near * near * 0.5 + (apart - near) * delta, reduction)


def kl_div(logits, labels, reduction="mean"):
    """labels * (log(labels) - logits), 0 where a label is 0; reduction "batchmean": the sum over the rows' number."""
    losses = _arithmetic.xlogy(labels, labels) - labels * logits
    if reduction == "batchmean":
        return _ops.reduce_sum(losses) / float(logits.shape[0])
    return _reduced(losses, reduction)


def binary_cross_entropy(logits, labels, weight=None, reduction="mean"):
    """-(labels * log(logits) + (1 - labels) * log(1 - logits)) * weight, for logits in (0, 1)."""
    log = lambda x: _ops.maximum(_ops.log(x), -100.0)  # noqa: E731
    losses = -(labels * log(logits) + (1.0 - labels) * log(1.0 - logits))
    return _reduced(losses if weight is None else losses * weight, reduction)


def binary_cross_entropy_with_logits(input, target, weight=None, pos_weight=None, reduction="mean"):
    """The same of sigmoid(x), exact for large x; pos_weight is times the losses of positive labels."""
    positive = logsigmoid(input) * target
    negative = logsigmoid(-input) * (1.0 - target)
    losses = -((positive if pos_weight is None else positive * pos_weight) + negative)
    return _reduced(losses if weight is None else losses * weight, reduction)


def _weights(weight):
    if weight is None:
        return []
    if isinstance(weight, _tessera.Parameter):
        weight = weight.whole_value()
    if not isinstance(weight, _tessera.Tensor):
        raise NotImplementedError("For 'cross_entropy', a weight that construct() computes is not available: give a Tensor")
    return weight.asnumpy().tolist()


def cross_entropy(input, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """The cross entropy of logits [n, c, ...] and class numbers [n, ...] or distributions; see nn.CrossEntropyLoss."""
    return _tessera.nn.CrossEntropy(_weights(weight), ignore_index, reduction, label_smoothing, is_strict=False)(input, target)


def nll_loss(inputs, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """The same of logarithms of probabilities [n, c] and class numbers [n]."""
    counts = _ops.not_equal(target, ignore_index)
    classes = _ops.select(counts, target, _ops.zeros_like(target))
    weights = _ops.cast(counts, inputs.dtype)
    rows = _ops.ones_like(inputs) if weight is None else _ops.ones_like(inputs) * _ops.reshape(weight, (1, -1) + (1, ) * (inputs.ndim - 2))
    # gather() stops the step where a class does not exist; one_hot() has no 1 for it.
    hot = _array.moveaxis(_ops.gather(_ops.cast(_array.eye(inputs.shape[1], inputs.shape[1]), inputs.dtype), classes, 0), -1, 1)
    weights = weights * _ops.reduce_sum(hot * rows, 1)
    losses = -_ops.reduce_sum(hot * inputs, 1) * weights
    if label_smoothing > 0:
        spread = -_ops.reduce_mean(inputs * rows, 1) * _ops.cast(counts, inputs.dtype)
        losses = losses * (1.0 - label_smoothing) + spread * label_smoothing
    return _ops.reduce_sum(losses) / _ops.reduce_sum(weights) if reduction == "mean" else _reduced(losses, reduction)


def soft_margin_loss(input, target, reduction="mean"):
    """log(1 + e^(-x y))."""
    return _reduced(-logsigmoid(input * target), reduction)


def hinge_embedding_loss(inputs, targets, margin=1.0, reduction="mean"):
    """x where the target is 1, max(0, margin - x) where it is -1."""
    return _reduced(_ops.select(_ops.greater(targets, 0), inputs, _ops.maximum(margin - inputs, 0.0)), reduction)


def margin_ranking_loss(input1, input2, target, margin=0.0, reduction="mean"):
    """max(0, -target * (a - b) + margin)."""
    return _reduced(_ops.maximum(-target * (input1 - input2) + margin, 0.0), reduction)


def cosine_embedding_loss(input1, input2, target, margin=0.0, reduction="mean"):
    """1 - cos(a, b) where the target is 1, max(0, cos(a, b) - margin) where it is -1."""
    cosine = _arithmetic.cosine_similarity(input1, input2, 1 if input1.ndim > 1 else 0, 1e-12)
    return _reduced(_ops.select(_ops.greater(target, 0), 1.0 - cosine, _ops.maximum(cosine - margin, 0.0)), reduction)


def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-06, swap=False, reduction="mean"):
    """max(0, |anchor - positive| - |anchor - negative| + margin); swap: the nearer of anchor and positive counts as anchor."""
    apart = lambda x, y: _arithmetic.vector_norm(x - y + eps, p, -1)  # noqa: E731
    far = apart(anchor, negative)
    if swap:
        far = _ops.minimum(far, apart(positive, negative))
    margin = margin.item() if isinstance(margin, _tessera.Tensor) else margin
    return _reduced(_ops.maximum(apart(anchor, positive) - far + float(margin), 0.0), reduction)


def gaussian_nll_loss(x, target, var, full=False, eps=1e-06, reduction="mean"):
    """(log(var) + (x - y)^2 / var) / 2, var at least eps; full: with the constant log(2 pi) / 2."""
    kept = _ops.maximum(var, eps)
    losses = 0.5 * (_ops.log(kept) + _ops.square(x - target) / kept)
    return _reduced(losses + 0.5 * _math.log(2 * _math.pi) if full else losses, reduction)


# --- layers
def dense(input, weight, bias=None):
    """x W^T + b."""
    product = _ops.matmul(input, weight, False, True)
    return product if bias is None else product + bias


def conv2d(input, weight, bias=None, stride=1, pad_mode="valid", padding=0, dilation=1, groups=1):
    """x[n,ci,h,w] with weight[co,ci/groups,kh,kw]; padding: one number or (rows, columns) with pad_mode "pad"."""
    if isinstance(padding, (tuple, list)) and len(padding) == 2:
        padding = (padding[0], padding[0], padding[1], padding[1])
    made = _ops.conv2d(input, weight, stride, pad_mode, padding, dilation, groups)
    return made if bias is None else _ops.bias_add(made, bias)


def conv1d(input, weight, bias=None, stride=1, pad_mode="valid", padding=0, dilation=1, groups=1):
    """x[n,ci,l] with weight[co,ci/groups,k]."""
    number = lambda x: x[0] if isinstance(x, (tuple, list)) else x  # noqa: E731
    sides = (0, 0, number(padding), number(padding)) if pad_mode == "pad" else 0
    made = _ops.conv2d(_ops.expand_dims(input, 2), _ops.expand_dims(weight, 2), (1, number(stride)), pad_mode, sides, (1, number(dilation)), groups)
    made = _ops.squeeze(made, 2)
    return made if bias is None else _ops.bias_add(made, bias)


def _pair(x):
    return tuple(x) if isinstance(x, (tuple, list)) else (x, x)


def _window_padding(padding):
    rows, columns = _pair(padding)
    return (rows, rows, columns, columns)


def max_pool2d(x, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
    """The largest element of each window of x[n,c,h,w]; return_indices: with its place in the image, row * width + column."""
    stride = kernel_size if stride is None else stride
    if dilation not in (1, (1, 1)) or return_indices or ceil_mode:
        made = _ops.max_pool2d_with_places(x, kernel_size, stride, padding, dilation, ceil_mode)
        return made if return_indices else made[0]
    return _ops.max_pool2d(x, kernel_size, stride, "pad", _window_padding(padding))


def avg_pool2d(input_x, kernel_size=1, stride=1, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=0):
    """The mean of each window of x[n,c,h,w]; ceil_mode is refused."""
    if ceil_mode:
        raise NotImplementedError("For 'avg_pool2d', ceil_mode is not available: pad the image")
    rows, columns = _pair(padding)
    if (count_include_pad or divisor_override) and (rows or columns):
        input_x = _ops.pad(input_x, (0, 0, rows, columns), (0, 0, rows, columns))
        rows = columns = 0
    made = _ops.avg_pool2d(input_x, kernel_size, stride, "pad", (rows, rows, columns, columns))
    if divisor_override:
        made = made * (_math.prod(_pair(kernel_size)) / float(divisor_override))
    return made


def _adaptive(x, dim, count, reduce):
    size = x.shape[dim]
    pieces = [reduce(_array.narrow(x, dim, i * size // count, -(-(i + 1) * size // count) - i * size // count), dim, True) for i in range(count)]
    return _ops.concat(pieces, dim)


def adaptive_avg_pool2d(input, output_size):
    """Averages of windows that cover the image: [n,c,oh,ow]; None keeps the image's size."""
    height, width = _pair(output_size)
    x = input if input.ndim == 4 else _ops.expand_dims(input, 0)
    made = _tessera.nn.AdaptiveAvgPool2d(height, width)(x)
    return made if input.ndim == 4 else _ops.squeeze(made, 0)


def adaptive_avg_pool1d(input, output_size):
    """Averages of windows that cover the last dim: [..., output_size]."""
    return _adaptive(input, input.ndim - 1, output_size, _ops.reduce_mean)


def adaptive_max_pool2d(input, output_size, return_indices=False):
    """The largest of windows that cover the image: [n,c,oh,ow]; return_indices is refused."""
    if return_indices:
        raise NotImplementedError("For 'adaptive_max_pool2d', return_indices is not available: use ops.argmax")
    height, width = (n or input.shape[i] for n, i in zip(_pair(output_size), (-2, -1)))
    return _adaptive(_adaptive(input, input.ndim - 2, height, _ops.reduce_max), input.ndim - 1, width, _ops.reduce_max)


def adaptive_max_pool1d(input, output_size):
    """The largest of windows that cover the last dim: [..., output_size]."""
    return _adaptive(input, input.ndim - 1, output_size, _ops.reduce_max)


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05):
    """Each sample over its last dims, which are normalized_shape."""
    first = input.ndim - len(normalized_shape)
    if tuple(input.shape[max(first, 0):]) != tuple(normalized_shape):
        raise ValueError(f"For 'layer_norm', the 'normalized_shape' must be the last dims of the input, {list(input.shape)}, but got {list(normalized_shape)}.")
    weight = _ops.fill(normalized_shape, 1, input.dtype) if weight is None else weight
    bias = _ops.fill(normalized_shape, 0, input.dtype) if bias is None else bias
    return _ops.layer_norm(input, weight, bias, first, eps)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-05):
    """Each sample over the dims after the first, the channels in groups."""
    rows = _ops.reshape(input, (input.shape[0], num_groups, -1))
    size = (rows.shape[2], )
    made = _ops.reshape(_ops.layer_norm(rows, _ops.fill(size, 1, input.dtype), _ops.fill(size, 0, input.dtype), 2, eps), input.shape)
    along = (1, -1) + (1, ) * (input.ndim - 2)
    made = made if weight is None else made * _ops.reshape(weight, along)
    return made if bias is None else made + _ops.reshape(bias, along)


def rms_norm(x, gamma, epsilon=1e-06):
    """(x / the root of the mean square over gamma's dims * gamma, the reciprocal of that root). Zhang and Sennrich, NeurIPS 2019."""
    dims = tuple(range(x.ndim - gamma.ndim, x.ndim))
    root = _ops.rsqrt(_ops.reduce_mean(_ops.square(x), dims, True) + epsilon)
    return x * root * gamma, root


def batch_norm(input_x, running_mean, running_var, weight, bias, training=False, momentum=0.1, eps=1e-05):
    """x with the running statistics' mean and variance brought to 0 and 1; training=True, which would read momentum, is refused."""
    if training:
        raise NotImplementedError("For 'batch_norm', training=True is not available: use nn.BatchNorm2d, which keeps the moving statistics")
    along = (1, -1) + (1, ) * (input_x.ndim - 2)
    scale = _ops.rsqrt(running_var + eps) if weight is None else weight * _ops.rsqrt(running_var + eps)
    made = (input_x - _ops.reshape(running_mean, along)) * _ops.reshape(scale, along)
    return made if bias is None else made + _ops.reshape(bias, along)


def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False):
    """Rows of the weight; all settings are refused, but for norm_type, which says what max_norm would."""
    if padding_idx is not None or max_norm is not None or scale_grad_by_freq:
        raise NotImplementedError("For 'embedding', padding_idx, max_norm and scale_grad_by_freq are not available: multiply rows by a mask")
    return _ops.gather(weight, input, 0)


def pad(input_x, padding, mode="constant", value=None):
    """Elements around x: (left, right) of the last dim, then of the one before, ...; mode: "constant" (value, 0 by default),
    "reflect", "replicate" or "circular"."""
    padding = list(padding.asnumpy() if isinstance(padding, _tessera.Tensor) else padding)
    if any(not isinstance(size, (int, _np.integer)) for size in padding) or len(padding) % 2:
        raise ValueError("For 'pad', the 'padding' must be whole numbers, two for a dim (left, right of the last dim, then of the one before), "
                         f"but got {padding}: nn.Pad takes pairs.")
    if len(padding) > 2 * input_x.ndim:
        raise ValueError(f"For 'pad', the 'padding' is of {len(padding) // 2} dims, but the input has {input_x.ndim}.")
    sides = [(int(padding[i]), int(padding[i + 1])) for i in range(0, len(padding), 2)]
    first = input_x.ndim - len(sides)
    pairs = [(0, 0)] * first + sides[::-1]
    if mode == "constant":
        return _padded(input_x, pairs, 0.0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise ValueError(f"For 'pad', the 'mode' must be constant, reflect, replicate or circular, but got {mode}.")
    for dim, (before, after) in enumerate(pairs):
        if before or after:
            size = input_x.shape[dim]
            places = _np.pad(_np.arange(size), (before, after), {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode])
            input_x = _ops.gather(input_x, _tessera.Tensor(places, _tessera.int32), dim)
    return input_x


def _padded(x, pairs, value):
    """A side below 0 takes elements away."""
    if [pair for pair in pairs if min(pair) < 0]:
        begin = [-before if before < 0 else 0 for before, _ in pairs]
        end = [size + (after if after < 0 else 0) for size, (_, after) in zip(x.shape, pairs)]
        x = _ops.slice(x, begin, end)
    return _ops.pad(x, [before if before > 0 else 0 for before, _ in pairs], [after if after > 0 else 0 for _, after in pairs], float(value))


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """The windows of x [n,c,h,w] as columns: [n, c * kh * kw, number of windows]; zeros around where there is padding, one number or
    (rows, columns)."""
    pairs = [_pair(n) for n in (kernel_size, dilation, padding, stride)]
    if input.ndim != 4 or any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"For 'unfold', x must be [n,c,h,w] and every setting one number or two, but got the shape {tuple(input.shape)} and "
                         f"{(kernel_size, dilation, padding, stride)}.")
    rows, columns = pairs[2]
    x = _ops.pad(input, (0, 0, rows, columns), (0, 0, rows, columns)) if rows or columns else input
    pieces = _windows("unfold", x, pairs[0], pairs[3], pairs[1])
    return _ops.reshape(_ops.stack(pieces, 2), (x.shape[0], x.shape[1] * len(pieces), -1))


def _windows(who, x, kernel, stride, dilation):
    """For each place of a window the elements there, [n,c,rows of windows,columns of windows]."""
    counts = [(x.shape[2 + d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1 for d in range(2)]
    if min(counts) < 1:
        raise ValueError(f"For '{who}', windows {tuple(kernel)} do not fit into {tuple(x.shape)}.")
    ends = [(n - 1) * s + 1 for n, s in zip(counts, stride)]
    return [_ops.slice(x, (0, 0, i, j), (x.shape[0], x.shape[1], i + ends[0], j + ends[1]), (1, 1, *stride))
            for i in range(0, kernel[0] * dilation[0], dilation[0]) for j in range(0, kernel[1] * dilation[1], dilation[1])]


def pixel_shuffle(input, upscale_factor):
    """[..., c r^2, h, w] -> [..., c, h r, w r]: Shi et al., CVPR 2016."""
    *batch, c, h, w = input.shape
    r = upscale_factor
    x = _ops.reshape(input, (-1, c // (r * r), r, r, h, w))
    return _ops.reshape(_ops.transpose(x, (0, 1, 4, 2, 5, 3)), (*batch, c // (r * r), h * r, w * r))


def pixel_unshuffle(input, downscale_factor):
    """[..., c, h r, w r] -> [..., c r^2, h, w]."""
    *batch, c, h, w = input.shape
    r = downscale_factor
    x = _ops.reshape(input, (-1, c, h // r, r, w // r, r))
    return _ops.reshape(_ops.transpose(x, (0, 1, 3, 5, 2, 4)), (*batch, c * r * r, h // r, w // r))


def channel_shuffle(x, groups):
    """The channels of all groups in turns: Zhang et al., CVPR 2018."""
    n, c, *rest = x.shape
    return _ops.reshape(_array.swapaxes(_ops.reshape(x, (n, groups, c // groups, *rest)), 1, 2), x.shape)


def _l2_normalize(x, axis=0, epsilon=1e-4):
    """x over the root of the sum of its squares along axes, that sum being at least epsilon."""
    return x * _ops.rsqrt(_ops.maximum(_ops.reduce_sum(_ops.square(x), axis, True), epsilon))
