"""Functions made of functions: Jacobians, products with them, and the same function for every row of its inputs."""
import numpy as _np
import tessera as _tessera
from tessera import ops as _ops

from mindspore.ops.composite import GradOperation as _GradOperation
from mindspore.ops.composite import _run
from mindspore.ops._traced import owner_of as _owner_of


def _positions(who, grad_position):
    positions = (grad_position, ) if isinstance(grad_position, int) else grad_position
    if not isinstance(positions, tuple) or not positions or any(isinstance(p, bool) or not isinstance(p, int) for p in positions):
        raise TypeError(f"For '{who}', the 'grad_position' must be int or a tuple of int, but got {grad_position!r}.")
    if len(set(positions)) < len(positions) or min(positions) < 0:
        raise ValueError(f"For '{who}', the elements of 'grad_position' must be different and not negative, but got {grad_position}.")
    return positions


def _first_of(fn, has_aux):
    return (lambda *inputs: fn(*inputs)[0]) if has_aux else fn


def _jacobian(who, fn, grad_position, has_aux):
    positions = _positions(who, grad_position)
    value_of = _run(fn, _owner_of(fn, None))

    def of_result(number, inputs, value):
        """d value / d inputs, each [*shape of the value, *shape of the input], by one backward pass for each element."""
        def chosen(*given):
            result = _first_of(fn, has_aux)(*given)
            return result if number is None else result[number]

        gradients = _GradOperation(get_all=True, sens_param=True)(chosen)
        size = int(_np.prod(value.shape, dtype=_np.int64))
        rows = []
        for i in range(size):
            start = _np.zeros(size, _np.float32)
            start[i] = 1
            made = gradients(*inputs, _ops.cast(_tessera.Tensor(start.reshape(value.shape)), value.dtype))
            rows.append([made[p] for p in positions])
        of_inputs = tuple(_ops.reshape(_ops.stack(parts, 0), (*value.shape, *inputs[p].shape)) for p, parts in zip(positions, zip(*rows)))
        return of_inputs[0] if isinstance(grad_position, int) else of_inputs

    def run(*inputs):
        if max(positions) >= len(inputs):
            raise ValueError(f"For '{who}', the 'grad_position' {grad_position} is out of the {len(inputs)} inputs.")
        result = value_of(*inputs)
        values, others = (result[0], result[1:]) if has_aux else (result, ())
        if isinstance(values, (tuple, list)):
            made = tuple(of_result(number, inputs, value) for number, value in enumerate(values))
        else:
            made = of_result(None, inputs, values)
        return (made, others[0] if len(others) == 1 else tuple(others)) if has_aux else made

    return run


def jacrev(fn, grad_position=0, has_aux=False):
    """The function inputs -> Jacobian of fn's result with respect to the input at grad_position, of a tuple of those at several:
    [*shape of the result, *shape of the input]. has_aux: fn's first result is differentiated, and (the Jacobian, the others) is returned. A
    backward pass for each element of the result."""
    return _jacobian("jacrev", fn, grad_position, has_aux)


def jacfwd(fn, grad_position=0, has_aux=False):
    """What jacrev() gives, by the same way."""
    return _jacobian("jacfwd", fn, grad_position, has_aux)


def vjp(fn, *inputs, weights=None, has_aux=False):
    """(fn(*inputs), the function v -> v times the Jacobian with respect to each input, a tuple); with weights (those, those of the weights);
    with has_aux fn's first result is differentiated, and the others come third."""
    result = _run(fn, _owner_of(fn, None))(*inputs)
    values, others = (result[0], tuple(result[1:])) if has_aux else (result, ())
    several = isinstance(values, (tuple, list))

    def product(*v):
        def combined(*given):
            made = _first_of(fn, has_aux)(*given)
            return sum(_ops.reduce_sum(one * by) for one, by in zip(made, v)) if several else _ops.reduce_sum(made * v[0])

        if weights is None:
            return _GradOperation(get_all=True)(combined)(*inputs)
        return _GradOperation(get_all=True, get_by_list=True)(combined, weights)(*inputs)

    return (values, product, others[0] if len(others) == 1 else others) if has_aux else (values, product)


def jvp(fn, inputs, v, has_aux=False):
    """(fn(*inputs), the Jacobian times v): by the Jacobian, so for small results. inputs and v: a tensor each, or as many of both."""
    are_several = isinstance(inputs, (tuple, list))
    given, along = (tuple(inputs), tuple(v)) if are_several else ((inputs, ), (v, ))
    if len(given) != len(along) or any(tuple(x.shape) != tuple(d.shape) for x, d in zip(given, along)):
        raise ValueError(f"For 'jvp', the 'v' must have the shapes of the inputs, {[tuple(x.shape) for x in given]}, but got {[tuple(d.shape) for d in along]}.")
    result = _run(fn, _owner_of(fn, None))(*given)
    values, others = (result[0], tuple(result[1:])) if has_aux else (result, ())
    jacobian = _jacobian("jvp", _first_of(fn, has_aux), tuple(range(len(given))), False)(*given)

    def times(value, of_inputs):
        size = value.size
        parts = [_ops.matmul(_ops.reshape(j, (size, -1)), _ops.reshape(d, (-1, 1))) for j, d in zip(of_inputs, along)]
        return _ops.reshape(sum(parts[1:], parts[0]), value.shape)

    made = tuple(times(*pair) for pair in zip(values, jacobian)) if isinstance(values, (tuple, list)) else times(values, jacobian)
    return (values, made, others[0] if len(others) == 1 else others) if has_aux else (values, made)


def _rows(x, axis, size):
    """The parts of x along the axis, one by one; None: x for each."""
    if isinstance(x, (tuple, list)):
        axes = axis if isinstance(axis, (tuple, list)) else [axis] * len(x)
        return [type(x)(parts) for parts in zip(*[_rows(one, its, size) for one, its in zip(x, axes)])]
    if axis is None:
        return [x] * size
    axis %= x.ndim
    return [_ops.squeeze(_ops.slice(x, [0] * axis + [i] + [0] * (x.ndim - axis - 1),
                                    [i + 1 if d == axis else n for d, n in enumerate(x.shape)]), axis) for i in range(size)]


def _sizes(x, axis):
    if isinstance(x, (tuple, list)):
        axes = axis if isinstance(axis, (tuple, list)) else [axis] * len(x)
        return set().union(*[_sizes(one, its) for one, its in zip(x, axes)])
    if axis is None or not hasattr(x, "shape"):
        return set()
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"For 'vmap', the axis {axis} of 'in_axes' is out of the input's {x.ndim} dims.")
    return {x.shape[axis]}


def _stacked(results, axis):
    if isinstance(results[0], (tuple, list)):
        axes = axis if isinstance(axis, (tuple, list)) else [axis] * len(results[0])
        return tuple(_stacked(parts, its) for parts, its in zip(zip(*results), axes))
    return results[0] if axis is None else _ops.stack([x if hasattr(x, "shape") else _tessera.Tensor(x) for x in results], axis)


def vmap(fn, in_axes=0, out_axes=0):
    """The function that calls fn with each part of its inputs along in_axes, one after the other, and stacks the results along out_axes; an axis
    None: the same input for each. A number for all, or one for each."""
    if isinstance(fn, (tuple, list)):
        return vmap(lambda *inputs: tuple(one(*inputs) for one in fn), in_axes, out_axes)
    once = _run(fn, _owner_of(fn, None))

    def run(*inputs):
        axes = in_axes if isinstance(in_axes, (tuple, list)) else [in_axes] * len(inputs)
        if len(axes) != len(inputs):
            raise ValueError(f"For 'vmap', the 'in_axes' must have one axis for each input, but got {len(axes)} of {len(inputs)}.")
        sizes = set().union(*[_sizes(x, axis) for x, axis in zip(inputs, axes)])
        if len(sizes) != 1:
            raise ValueError(f"For 'vmap', the inputs must have one size along 'in_axes', but got {sorted(sizes) or 'no axis'}.")
        size = sizes.pop()
        results = [once(*row) for row in zip(*[_rows(x, axis, size) for x, axis in zip(inputs, axes)])]
        return _stacked(results, out_axes)

    return run
