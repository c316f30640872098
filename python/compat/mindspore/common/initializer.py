"""How parameters start. Random values are a function of the seed and the parameter's name."""
import math
from numbers import Integral

import numpy as np
import tessera
from tessera.nn import initializers as _native

from mindspore import _check
from mindspore.common.seed import draws_before, get_seed


# How often TruncatedNormal draws a value anew.
_MOST_DRAWS = 1000


def _number(who, name, value, check=_check.number):
    """The value as a float, which is one of Python's or NumPy's."""
    return check(who, name, value.item() if isinstance(value, np.number) else value)


def _generator(kind, shape):
    """A generator of NumPy's: each one that is made for a kind and a shape draws other values."""
    return np.random.default_rng([get_seed() or 0, draws_before((kind, tuple(shape))), *shape])


def _calculate_fan_in_and_fan_out(shape):
    """How many inputs an output has, and how many outputs an input has. ValueError for fewer than two dims."""
    if len(shape) < 2:
        raise ValueError(f"Fan in and fan out can not be computed for tensor with fewer than 2 dimensions, but got dimensions {len(shape)}.")
    return math.prod(shape[1:]), shape[0] * math.prod(shape[2:])


def _calculate_correct_fan(shape, mode):
    """That of the two which `mode` names, fan_in or fan_out."""
    modes = ("fan_in", "fan_out")
    if mode.lower() not in modes:
        raise ValueError(f"The 'mode' must be one of {list(modes)}, but got {mode}.")
    return _calculate_fan_in_and_fan_out(shape)[modes.index(mode.lower())]


def _assignment(arr, num):
    """Writes the numbers into the array, and returns it: what derived initializers call."""
    arr[...] = num
    return arr


class Initializer:
    """What makes a parameter's first value. To be derived: _initialize(array) writes it."""

    def __init__(self, native=None, **kwargs):
        self.native, self._kwargs = native, kwargs

    @classmethod
    def is_derived(cls):
        """Whether a script says what the values are."""
        return hasattr(cls, "_initialize")

    def makes_values(self):
        """Whether values() says what they are, and not `native`."""
        return self.is_derived()

    def __call__(self, arr):
        return self._initialize(arr)

    def values(self, shape):
        """The array, made by _initialize()."""
        made = np.zeros(shape, np.float32)
        self._initialize(made)
        return made


class Zero(Initializer):
    """Zeros."""

    def __init__(self):
        super().__init__(_native.zeros())


class One(Initializer):
    """Ones."""

    def __init__(self):
        super().__init__(_native.ones())


class Constant(Initializer):
    """One value for all elements."""

    def __init__(self, value):
        super().__init__(_native.constant(_number("Constant", "value", value, _check.any_number)))


class Normal(Initializer):
    """Gaussian of standard deviation sigma around `mean`."""

    def __init__(self, sigma=0.01, mean=0.0):
        super().__init__(_native.normal(_number("Normal", "sigma", sigma, _check.non_negative), _number("Normal", "mean", mean)))


class TruncatedNormal(Initializer):
    """Gaussian around `mean`, drawn anew where a value lies outside of a to b. The bounds are values, no multiples of sigma."""

    def __init__(self, sigma=0.01, mean=0.0, a=-2.0, b=2.0):
        sigma, mean = _number("TruncatedNormal", "sigma", sigma), _number("TruncatedNormal", "mean", mean)
        a, b = (_number("TruncatedNormal", name, value, _check.any_number) for name, value in (("a", a), ("b", b)))
        if not sigma > 0 or not a < b:
            raise ValueError(f"For 'TruncatedNormal', 'sigma' must be above 0 and 'a' below 'b', but got sigma={sigma}, a={a}, b={b}.")
        self._settings = sigma, mean, a, b
        # A value that lies eight deviations out has a chance of 1e-15: nothing is cut.
        super().__init__(_native.normal(sigma, mean) if min(mean - a, b - mean) >= 8 * sigma else None)

    def makes_values(self):
        return self.native is None

    def values(self, shape):
        sigma, mean, a, b = self._settings
        random = _generator("TruncatedNormal", shape)
        made = np.empty(math.prod(shape))
        missing = np.ones(made.shape, bool)
        for _ in range(_MOST_DRAWS):
            made[missing] = random.normal(mean, sigma, np.count_nonzero(missing))
            missing = (made < a) | (made > b)
            if not missing.any():
                return made.reshape(shape).astype(np.float32)
        raise ValueError(f"For 'TruncatedNormal', hardly a value lies between a={a} and b={b} with mean={mean}, sigma={sigma}.")


class Uniform(Initializer):
    """Even between -scale and scale."""

    def __init__(self, scale=0.07):
        super().__init__(_native.uniform(_number("Uniform", "scale", scale, _check.non_negative)))


class XavierUniform(Initializer):
    """Even, +-gain * sqrt(6 / (fan_in + fan_out)). Glorot and Bengio, AISTATS 2010."""

    def __init__(self, gain=1):
        super().__init__(_native.xavier_uniform(_number("XavierUniform", "gain", gain, _check.non_negative)))


class XavierNormal(Initializer):
    """Gaussian of standard deviation gain * sqrt(2 / (fan_in + fan_out))."""

    def __init__(self, gain=1):
        super().__init__(_native.xavier_normal(_number("XavierNormal", "gain", gain, _check.non_negative)))


class _He(Initializer):
    """What these have in common: gain / sqrt(fan), the gain being that of the nonlinearity: sqrt(2 / (1 + negative_slope^2)) of leaky_relu, whose
    slope is 0.01 where it is None, sqrt(2) of relu, 5 / 3 of tanh, 1 of linear, sigmoid and convolutions."""

    def __init__(self, negative_slope=0, mode="fan_in", nonlinearity="leaky_relu"):
        who = type(self).__name__
        if mode not in ("fan_in", "fan_out"):
            raise ValueError(f"For '{who}', the 'mode' must be fan_in or fan_out, but got {mode}.")
        if not isinstance(nonlinearity, str):
            raise ValueError(f"For '{who}', the 'nonlinearity' must be a str, but got {nonlinearity} of type {type(nonlinearity).__name__}.")
        if negative_slope is None:
            negative_slope = 0.01
        if isinstance(negative_slope, np.number):
            negative_slope = negative_slope.item()
        if isinstance(negative_slope, bool) or not isinstance(negative_slope, (int, float)) or not math.isfinite(negative_slope):
            raise ValueError(f"For '{who}', the 'negative_slope' must be a finite number, but got {negative_slope} of type {type(negative_slope).__name__}.")
        gains = {"leaky_relu": math.sqrt(2.0 / (1 + negative_slope**2)), "relu": math.sqrt(2.0), "tanh": 5.0 / 3, "linear": 1.0, "sigmoid": 1.0}
        if nonlinearity not in gains and not nonlinearity.startswith("conv"):
            raise ValueError(f"For '{who}', the 'nonlinearity' must be one of {list(gains)}, but got {nonlinearity}.")
        self._gain, self._mode = gains.get(nonlinearity, 1.0), mode

    def _deviation(self, shape):
        return self._gain / math.sqrt(_calculate_correct_fan(shape, self._mode))


class HeUniform(_He):
    """Even, of standard deviation gain / sqrt(fan): +-sqrt(6 / fan_in) unless settings say otherwise. He et al., ICCV 2015."""

    def __init__(self, negative_slope=0, mode="fan_in", nonlinearity="leaky_relu"):
        super().__init__(negative_slope, mode, nonlinearity)
        self._is_usual = negative_slope == 0 and mode == "fan_in" and nonlinearity in ("leaky_relu", "relu")
        if self._is_usual:
            self.native = _native.he_uniform()

    def native_for(self, shape):
        """tessera's initializer for a parameter of that shape."""
        return self.native if self._is_usual else _native.uniform(math.sqrt(3.0) * self._deviation(shape))


class HeNormal(_He):
    """Gaussian of standard deviation gain / sqrt(fan). He et al., ICCV 2015."""

    def native_for(self, shape):
        """tessera's initializer for a parameter of that shape."""
        return _native.normal(self._deviation(shape))


class _Made(Initializer):
    """Made of NumPy's numbers once the shape is known."""

    def makes_values(self):
        return True

    def values(self, shape):
        """The array."""
        raise NotImplementedError


class Identity(_Made):
    """The unit matrix."""

    def values(self, shape):
        if len(shape) != 2:
            raise ValueError(f"For 'Identity', the dimension of the initialized tensor should be 2, but got {len(shape)}.")
        return np.eye(*shape, dtype=np.float32)


class Dirac(_Made):
    """Filters that pass their channel through, of each of `groups`."""

    def __init__(self, groups=1):
        self._groups = _check.integer("Dirac", "groups", groups, 1)

    def values(self, shape):
        if len(shape) not in (3, 4, 5) or shape[0] % self._groups:
            raise ValueError(f"For 'Dirac', the tensor must have 3 to 5 dims, the first divisible by groups {self._groups}, but got {shape}.")
        made = np.zeros(shape, np.float32)
        out = shape[0] // self._groups
        for group in range(self._groups):
            for i in range(min(out, shape[1])):
                made[(group * out + i, i, *[size // 2 for size in shape[2:]])] = 1
        return made


class Orthogonal(_Made):
    """gain times a matrix with orthogonal rows or columns: Saxe et al., ICLR 2014."""

    def __init__(self, gain=1.0):
        self._gain = _number("Orthogonal", "gain", gain)

    def values(self, shape):
        if len(shape) < 2:
            raise ValueError(f"For 'Orthogonal', the tensor must have at least 2 dims, but got {shape}.")
        rows, columns = shape[0], math.prod(shape[1:])
        drawn = _generator("Orthogonal", (rows, columns)).standard_normal((max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(drawn)
        q = q * np.sign(np.diag(r))
        return (self._gain * (q if rows >= columns else q.T)).reshape(shape).astype(np.float32)


class VarianceScaling(Initializer):
    """Of standard deviation sqrt(scale / fan), fan being that of the mode: fan_in, fan_out, fan_avg; distribution: normal (cut at two
    deviations in the reference: truncated_normal), truncated_normal, untruncated_normal or uniform."""

    def __init__(self, scale=1.0, mode="fan_in", distribution="truncated_normal"):
        scale = _number("VarianceScaling", "scale", scale)
        if mode not in ("fan_in", "fan_out", "fan_avg") or distribution not in ("uniform", "truncated_normal", "untruncated_normal") or scale <= 0:
            raise ValueError(f"For 'VarianceScaling', scale={scale}, mode={mode}, distribution={distribution} is not valid.")
        self._settings = scale, mode, distribution

    def native_for(self, shape):
        """tessera's initializer for a parameter of that shape."""
        scale, mode, distribution = self._settings
        fan_in, fan_out = _calculate_fan_in_and_fan_out(shape)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[mode]
        deviation = math.sqrt(scale / max(1.0, fan))
        if distribution == "uniform":
            return _native.uniform(math.sqrt(3.0) * deviation)
        # What is cut off would have made it wider.
        return _native.truncated_normal(deviation / 0.87962566103423978) if distribution == "truncated_normal" else _native.normal(deviation)


_NAMES = {"zeros": Zero, "zero": Zero, "ones": One, "one": One, "normal": Normal, "uniform": Uniform,
          "truncatednormal": TruncatedNormal, "truncated_normal": TruncatedNormal, "xavieruniform": XavierUniform,
          "xavier_uniform": XavierUniform, "heuniform": HeUniform, "he_uniform": HeUniform, "xaviernormal": XavierNormal,
          "xavier_normal": XavierNormal, "henormal": HeNormal, "he_normal": HeNormal, "identity": Identity, "dirac": Dirac,
          "orthogonal": Orthogonal, "variance_scaling": VarianceScaling, "variancescaling": VarianceScaling}


def _register(*aliases):
    """Decorates an initializer, which initializer() then finds by its class's name and by these, in lower case. A name that is taken stays what it is."""
    def add(cls):
        for name in (cls.__name__.lower(), *aliases):
            _NAMES.setdefault(name, cls)
        return cls

    return add


def to_native(init):
    """tessera's initializer of one of these, a name or a number."""
    if isinstance(init, Initializer):
        return init.native
    if isinstance(init, (int, float)) and not isinstance(init, bool):
        return _native.constant(float(init))
    if isinstance(init, str):
        made = _NAMES.get(init.lower())
        if made is not None:
            return made().native
        try:
            return _native.initializer(init)
        except ValueError as error:
            raise ValueError(f"For 'initializer', the argument 'init' is unknown: {error}") from None
    raise TypeError("For 'initializer', the type of the 'init' argument should be 'Tensor', 'number', 'string' or "
                    f"'initializer', but got {type(init).__name__}.")


class PendingTensor:
    """A tensor that is not made yet: its values depend on the name of the parameter that it becomes."""

    def __init__(self, init, shape, dtype):
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = dtype if dtype is not None else tessera.float32
        if isinstance(init, str) and init.lower() in _NAMES:
            init = _NAMES[init.lower()]()
        self.init = init.native_for(self.shape) if hasattr(init, "native_for") else to_native(init)
        self._drawn = {}

    def init_data(self, name=""):
        """The tensor, as for a parameter of that name; of a name that has had one since the seed was set, other values."""
        if name not in self._drawn:
            count = draws_before(("init_data", name, self.shape))
            drawn_as = f"{name}#{count}" if count else name
            self._drawn[name] = tessera.Parameter(self.init, self.shape, self.dtype, name=drawn_as).whole_value()
        return self._drawn[name]

    def __getattr__(self, name):
        # What else a tensor has is that of the one without a name.
        if name.startswith("_") or not hasattr(tessera.Tensor, name):
            raise AttributeError(f"'Tensor' object has no attribute '{name}'")
        return getattr(self.init_data(), name)

    def __array__(self, dtype=None, copy=None):
        values = np.asarray(self.init_data().numpy(), dtype)
        return values.copy() if copy else values

    def __repr__(self):
        return repr(self.init_data())

    def __str__(self):
        return str(self.init_data())


def _of_made(name):
    """The method of that name of the tensor without a name."""
    def method(self, *arguments):
        return getattr(self.init_data(), name)(*arguments)

    method.__name__ = name
    return method


for _name in ("add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul neg abs eq ne lt le gt ge and or invert getitem "
              "len bool float int").split():
    setattr(PendingTensor, f"__{_name}__", _of_made(f"__{_name}__"))


def _sizes(shape):
    """The tuple of sizes. ValueError for what is no number and no sequence of them, from 0 on."""
    if isinstance(shape, (int, float, str)):
        sizes = (shape, )
    else:
        sizes = tuple(shape) if hasattr(shape, "__iter__") and getattr(shape, "ndim", 1) > 0 else (None, )
    if any(isinstance(size, bool) or not isinstance(size, Integral) or size < 0 for size in sizes):
        raise ValueError(f"For 'initializer', the argument 'shape' is invalid, the value of 'shape' must be positive integers, but got {shape}")
    return tuple(map(int, sizes))


def initializer(init, shape=None, dtype=tessera.float32):
    """A tensor of that shape for a Parameter: zeros, ones, normal, uniform, ... (case does not matter), a number, or one
    of the classes above. A tensor is returned as it is. ValueError for a shape that is no number and no sequence of them, from 0 on."""
    if isinstance(init, (tessera.Tensor, PendingTensor)):
        own = (shape,) if isinstance(shape, int) else shape
        if own is not None and tuple(own) != tuple(init.shape):
            raise ValueError("For 'initializer', the shape of the 'init' argument should be same as the argument 'shape', but got the 'init' "
                             f"shape {list(init.shape)} and the 'shape' {list(own)}.")
        return init
    shape = () if shape is None else _sizes(shape)
    made = _NAMES[init.lower()]() if isinstance(init, str) and init.lower() in _NAMES else init
    if isinstance(made, Initializer) and made.makes_values():
        return tessera.Tensor(made.values(shape), dtype)
    return PendingTensor(init, shape, dtype)


from mindspore._missing import missing  # noqa: E402

__getattr__ = missing(__name__)
del missing
