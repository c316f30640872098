"""The operators that `tessera.ops` computes, with their arguments under the names that scripts give them."""
import functools as _functools

from tessera import ops as _ops

from mindspore.ops._whole_numbers import passing as _passing


def _named(function, **names):
    """The same function, one of whose arguments has the name on the left instead of that on the right."""

    @_functools.wraps(function)
    def call(*args, **options):
        return function(*args, **{names.get(name, name): value for name, value in options.items()})

    return call


def _of_one(function, name="input"):
    return _named(function, **{name: "x"})


def _of_two(function, first="input", second="other"):
    return _named(function, **{first: "x", second: "y"})


abs, cos, exp, floor, log, neg, reciprocal, rsqrt, sigmoid, sign, sin, square, tanh = [
    _of_one(f) for f in (_ops.abs, _ops.cos, _ops.exp, _ops.floor, _ops.log, _ops.neg, _ops.reciprocal, _ops.rsqrt, _ops.sigmoid,
                         _ops.sign, _ops.sin, _ops.square, _ops.tanh)]
isfinite, logical_not, cast, reshape = [_of_one(f) for f in (_ops.is_finite, _ops.logical_not, _passing(_ops.cast), _ops.reshape)]
sqrt, inv = [_of_one(f, "x") for f in (_ops.sqrt, _ops.reciprocal)]
add, equal, greater, greater_equal, less, less_equal, logical_and, logical_or, logical_xor, maximum, minimum, mul, not_equal, sub = [
    _of_two(f) for f in (_ops.add, _ops.equal, _ops.greater, _ops.greater_equal, _ops.less, _ops.less_equal, _ops.logical_and,
                         _ops.logical_or, _ops.logical_xor, _ops.maximum, _ops.minimum, _ops.mul, _ops.not_equal, _ops.sub)]
pow = _of_two(_ops.pow, second="exponent")
true_divide = _of_two(_ops.div, "dividend", "divisor")
tensor_div = _of_two(_ops.div, "x", "y")
matmul = _named(_ops.matmul, input="lhs", other="rhs")
select = _named(_ops.select, input="x", other="y")
bias_add = _of_one(_ops.bias_add, "input_x")
log_softmax = _of_one(_ops.log_softmax, "logits")
stop_gradient = _of_one(_ops.stop_gradient, "value")
concat, stack = [_named(f, tensors="values") for f in (_ops.concat, _ops.stack)]
expand_dims = _named(_ops.expand_dims, input_x="x", axis="axes")
squeeze = _named(_ops.squeeze, input="x", axis="axes")
tile = _named(_ops.tile, input="x", dims="multiples")
transpose = _named(_ops.transpose, input="x", dims="perm")


def subtract(input, other, *, alpha=1):
    """input - alpha * other."""
    return _ops.sub(input, other) if alpha == 1 else _ops.sub(input, _ops.mul(other, alpha))


def relu(input, inplace=False):
    """max(input, 0)."""
    if inplace:
        raise NotImplementedError("ops.relu: inplace=True is not available: values of a graph do not change; use the result")
    return _ops.relu(input)


def softmax(input, axis=-1, *, dtype=None):
    """exp(input) over its sum along the dim; dtype: input is cast to it first."""
    return _ops.softmax(input if dtype is None else _ops.cast(input, dtype), axis)


def gather(input_params, input_indices, axis=0, batch_dims=0):
    """The rows of `input_params` along the dim that the indices say."""
    if batch_dims:
        raise NotImplementedError("ops.gather: batch_dims is not available: use gather_elements")
    return _ops.gather(input_params, input_indices, axis)


absolute, negative, multiply = abs, neg, mul
eq, ne, lt, le, gt, ge = equal, not_equal, less, less_equal, greater, greater_equal
tensor_add, tensor_sub, tensor_mul, tensor_pow = add, sub, mul, pow
tensor_lt, tensor_le, tensor_gt, tensor_ge = less, less_equal, greater, greater_equal
