"""How parameters start. Random values are a function of the seed and the parameter's name."""
import tessera
from tessera.nn import initializers as _native


class Initializer:
    """What makes a parameter's first value."""

    def __init__(self, native):
        self.native = native


class Zero(Initializer):
    def __init__(self):
        super().__init__(_native.zeros())


class One(Initializer):
    def __init__(self):
        super().__init__(_native.ones())


class Constant(Initializer):
    def __init__(self, value):
        super().__init__(_native.constant(value))


class Normal(Initializer):
    def __init__(self, sigma=0.01, mean=0.0):
        super().__init__(_native.normal(sigma, mean))


class TruncatedNormal(Initializer):
    def __init__(self, sigma=0.01):
        super().__init__(_native.truncated_normal(sigma))


class Uniform(Initializer):
    def __init__(self, scale=0.07):
        super().__init__(_native.uniform(scale))


class XavierUniform(Initializer):
    def __init__(self, gain=1):
        super().__init__(_native.xavier_uniform(gain))


class HeUniform(Initializer):
    """Even in +-sqrt(6 / fan_in)."""

    def __init__(self, negative_slope=0, mode="fan_in", nonlinearity="leaky_relu"):
        if negative_slope != 0 or mode != "fan_in" or nonlinearity not in ("leaky_relu", "relu"):
            raise NotImplementedError("For 'HeUniform', settings other than negative_slope=0, mode=\"fan_in\" and a rectifier are not available")
        super().__init__(_native.he_uniform())


_NAMES = {"zeros": Zero, "zero": Zero, "ones": One, "one": One, "normal": Normal, "uniform": Uniform,
          "truncatednormal": TruncatedNormal, "truncated_normal": TruncatedNormal, "xavieruniform": XavierUniform,
          "xavier_uniform": XavierUniform, "heuniform": HeUniform, "he_uniform": HeUniform}


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
        self.init = to_native(init)
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = dtype if dtype is not None else tessera.float32

    def init_data(self):
        """The tensor, as for a parameter without a name."""
        return tessera.Parameter(self.init, self.shape, self.dtype).value()


def initializer(init, shape=None, dtype=tessera.float32):
    """A tensor of that shape for a Parameter: zeros, ones, normal, uniform, ... (case does not matter), a number, or one
    of the classes above. A tensor is returned as it is."""
    if isinstance(init, (tessera.Tensor, PendingTensor)):
        own = (shape,) if isinstance(shape, int) else shape
        if own is not None and tuple(own) != tuple(init.shape):
            raise ValueError("For 'initializer', the shape of the 'init' argument should be same as the argument 'shape', but got the 'init' "
                             f"shape {list(init.shape)} and the 'shape' {list(own)}.")
        return init
    if shape is None:
        shape = ()
    return PendingTensor(init, shape, dtype)


from mindspore._missing import missing  # noqa: E402

__getattr__ = missing(__name__)
del missing
