"""What tensors have as methods, under the names and with the arguments of the API: set on tessera's classes when the package is
imported."""
import functools
import inspect
import math

import numpy as np
import tessera
from tessera._keywords import explained

from mindspore.ops import arithmetic, array, drawing, functional, native, neural
from mindspore.ops._whole_numbers import passing

_CLASSES = (tessera.Tensor, tessera.Value, tessera.Parameter)

# The function's first argument is the tensor.
_SAME = {
    arithmetic: "acos acosh addbmm addcdiv addcmul addmm addmv addr all amax amin aminmax any arccos arccosh arcsin arcsinh arctan arctan2 "
                "arctanh argmin asin asinh atan atan2 atanh baddbmm bmm clamp clip copysign cosine_similarity count_nonzero cross cumprod deg2rad diff "
                "dist div divide dot erf erfc floor_divide fmod frac ger heaviside hypot inner isclose isneginf isposinf isreal is_complex "
                "is_floating_point kron lerp log10 log2 logaddexp logaddexp2 logit logsumexp mm mv nan_to_num nansum norm "
                "outer positive rad2deg remainder round sgn signbit sinc trunc vecdot xlogy",
    array: "adjoint argsort argwhere bincount chunk diag diagflat diagonal dsplit expand_as fills flip fliplr flipud gather_elements gather_nd "
           "hsplit index_select masked_fill masked_select median moveaxis movedim msort narrow nonzero ravel repeat_interleave rot90 scatter "
           "searchsorted sort split swapaxes swapdims t take tensor_split top_k topk trace tril triu type_as unbind unique unsqueeze "
           "view_as vsplit",
    functional: "broadcast_to ceil cosh expm1 isinf isnan log1p sinh tan",
    drawing: "bernoulli multinomial",
    neural: "hardshrink soft_shrink",
    native: "absolute add cos eq equal floor ge greater greater_equal gt isfinite le less less_equal logical_and logical_not "
            "logical_or logical_xor lt matmul maximum minimum mul multiply ne neg negative not_equal pow reciprocal relu rsqrt sigmoid "
            "sign sin softmax sub subtract tile true_divide",
}


def _reduction(function):
    def reduce(self, axis=None, keep_dims=False, *, keepdims=None, dtype=None, initial=None, where=None, dim=None, keepdim=None):
        if initial is not None or where is not None:
            raise NotImplementedError("initial and where are not available: add the number, or multiply by a mask")
        axis = dim if dim is not None else axis
        kept = next((flag for flag in (keepdims, keepdim) if flag is not None), keep_dims)
        return function(self if dtype is None else self.astype(dtype), axis, kept)

    reduce.__doc__ = function.__doc__
    reduce.__qualname__ = f"Tensor.{function.__name__.removeprefix('a')}"
    return reduce


def _extreme(values, with_places):
    """Of max and min: `dim` is the form that gives (values, places), `axis` the one that gives values."""
    def extreme(self, axis=None, keepdims=False, *, keep_dims=None, initial=None, where=None, return_indices=False, dim=None, keepdim=False):
        if dim is not None:
            return with_places(self, dim, keepdim)
        kept = keepdims if keep_dims is None else keep_dims
        if return_indices:
            return with_places(self, axis, kept, initial=initial, where=where)
        return values(self, axis, kept, initial=initial, where=where)

    extreme.__doc__ = values.__doc__
    extreme.__qualname__ = f"Tensor.{values.__name__.removeprefix('a')}"
    return extreme


def _argmax(self, axis=None, keepdims=False, *, dim=None, keepdim=None):
    """The place of the largest, int64; of all elements without an axis."""
    return arithmetic.argmax(self, dim if dim is not None else axis, keepdims if keepdim is None else keepdim)


def _cumsum(self, axis=None, dtype=None):
    """Sums of the elements so far."""
    return arithmetic.cumsum(self, axis, dtype) if axis is not None else arithmetic.cumsum(array.ravel(self), 0, dtype)


def _flatten(self, order="C", *, start_dim=0, end_dim=-1):
    """All elements, or those of some dims, as one dim."""
    if order == "F":
        return array.ravel(tessera.ops.transpose(self))
    return array.flatten(self, order, start_dim=start_dim, end_dim=end_dim)


def _permute(self, *axis):
    """The dims in another order."""
    return array.permute(self, axis[0] if len(axis) == 1 and isinstance(axis[0], (tuple, list)) else axis)


def _repeat(self, repeats, axis=None):
    """Every slice, or element, so many times."""
    return array.repeat_interleave(self, repeats, axis)


def _where(self, condition, y):
    """self where the condition holds, else y."""
    return array.where(condition, self, y)


def _std(self, axis=None, ddof=0, keepdims=False):
    """The standard deviation along axes."""
    return arithmetic.std(self, axis, ddof, keepdims)


def _var(self, axis=None, ddof=0, keepdims=False):
    """The variance along axes."""
    return arithmetic.var(self, axis, ddof, keepdims)


def _roll(self, shifts, dims=None):
    """The elements moved on along dims."""
    return array.roll(self, shifts, dims)


def _gather(self, input_indices, axis, batch_dims=0):
    """The slices along an axis at these places."""
    return native.gather(self, input_indices, axis, batch_dims)


def _ptp(self, axis=None, keepdims=False):
    """The largest less the smallest."""
    return arithmetic.amax(self, axis, keepdims) - arithmetic.amin(self, axis, keepdims)


def _tolist(self):
    """Python's numbers in lists."""
    return self.asnumpy().tolist()


def _new(value):
    def make(self, size, *, dtype=None):
        return functional.fill(self.dtype if dtype is None else dtype, (size, ) if isinstance(size, int) else size, value)

    make.__doc__ = f"{value} in that shape, of this dtype."
    return make


def _to(self, *args, **kwargs):
    """In another dtype."""
    dtype = kwargs.get("dtype", args[0] if args else None)
    if isinstance(dtype, str) and dtype.lower() in ("cpu", "ascend", "gpu") or dtype is None:
        return self
    return self.astype(dtype)


def _stride(self, dim=None):
    """Elements from one to the next in a dim; of all dims a list."""
    strides = [math.prod(max(1, size) for size in self.shape[i + 1:]) for i in range(self.ndim)]
    return strides if dim is None else strides[dim]


def _is_signed(self):
    """Whether the dtype has negative numbers."""
    return self.dtype not in (tessera.bool_, tessera.uint8, tessera.uint16, tessera.uint32, tessera.uint64)


def _type(self, dtype=None):
    """The dtype's name; with a dtype: in another dtype."""
    return str(self.dtype) if dtype is None else self.astype(dtype)


def _adjoint(self):
    if self.ndim != 2:
        raise ValueError(f"For tensor.H, only 2-D Tensor is supported, but got {self.ndim}-D.")
    return array.swapaxes(self, 0, 1)


_WORDS = {"dim": "axis", "keepdim": "keepdims", "correction": "ddof", "split_size": "split_size_or_sections"}


def _with_dim(function):
    """The function, which may be given an axis as dim, too, and keepdims as keepdim, in a method whose name is the same."""
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(self, *args, **kwargs):
        for word, other in _WORDS.items():
            other = "keep_dims" if other == "keepdims" and other not in parameters else other
            if word in kwargs and word not in parameters and other in parameters and other not in kwargs:
                kwargs[other] = kwargs.pop(word)
        return function(self, *args, **kwargs)

    return call


_WITH_DIM = {arithmetic: "argmin all any", array: "argsort median sort index_select split"}


def _astype(convert):
    convert = passing(convert)

    def astype(self, dtype, copy=True):
        """In another dtype. copy=False: the tensor itself where it has that dtype."""
        return self if not copy and self.dtype == dtype else convert(self, dtype)

    astype.__qualname__ = "Tensor.astype"
    return astype


_OWN = {
    "argmax": _argmax, "cumsum": _with_dim(_cumsum), "flatten": _flatten, "permute": _permute, "repeat": _repeat, "where": _where, "std": _with_dim(_std), "var": _with_dim(_var),
    "stride": _stride, "storage_offset": lambda self: 0, "is_signed": _is_signed, "type": _type, "get_bytes": lambda self: self.asnumpy().tobytes(),
    "roll": _roll, "gather": _gather, "ptp": _ptp, "tolist": _tolist, "to": _to, "new_zeros": _new(0), "new_ones": _new(1),
    "sum": _reduction(arithmetic.sum), "mean": _reduction(arithmetic.mean), "prod": _reduction(arithmetic.prod),
    "max": _extreme(arithmetic.amax, arithmetic.max), "min": _extreme(arithmetic.amin, arithmetic.min),
    "dim": lambda self: self.ndim, "ndimension": lambda self: self.ndim, "numel": lambda self: self.size, "nelement": lambda self: self.size,
    "init_data": lambda self, slice_index=None, shape=None, opt_shard_group=None: self, "contiguous": lambda self: self, "is_contiguous": lambda self: True, "reshape_as": array.view_as, "copy": array.deepcopy,
    "float": lambda self: self.astype(tessera.float32), "half": lambda self: self.astype(tessera.float16), "double": lambda self: self.astype(tessera.float64),
    "int": lambda self: self.astype(tessera.int32), "long": lambda self: self.astype(tessera.int64), "short": lambda self: self.astype(tessera.int16),
    "byte": lambda self: self.astype(tessera.uint8), "bool": lambda self: self.astype(tessera.bool_), "bfloat16": lambda self: self.astype(tessera.bfloat16),
}


# As the reference's tensors have them; tensors lie in one piece.
_PROPERTIES = {
    "itemsize": lambda self: np.dtype(self.dtype.name.rstrip("_")).itemsize if self.dtype != tessera.bfloat16 else 2,
    "nbytes": lambda self: self.itemsize * self.size,
    "strides": lambda self: tuple(self.itemsize * stride for stride in self.stride()),
    "mT": lambda self: array.swapaxes(self, -1, -2),
    "H": _adjoint,
    "data": lambda self: self,
    "device": lambda self: "CPU",
    "has_init": lambda self: False,
}


def install():
    """Gives tensors these methods."""
    methods = {name: getattr(module, name) for module, names in _SAME.items() for name in names.split()} | _OWN
    methods |= {name: _with_dim(getattr(module, name)) for module, names in _WITH_DIM.items() for name in names.split()}
    for cls in _CLASSES:
        for name, method in methods.items():
            if isinstance(method, type(np.sin)) or not hasattr(method, "__get__"):
                method = (lambda function: lambda self, *args, **kwargs: function(self, *args, **kwargs))(method)
            setattr(cls, name, explained(method))
        cls.astype = explained(_astype(cls.astype))
        for name, value in _PROPERTIES.items():
            # A parameter's own come first.
            if not hasattr(cls, name):
                setattr(cls, name, property(value))
