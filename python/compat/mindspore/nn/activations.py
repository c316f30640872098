"""Activations beyond those of layer.py."""
import tessera

from mindspore import _check
from mindspore.common.initializer import initializer
from mindspore.common.parameter import Parameter
from mindspore.nn.cell import Cell
from mindspore.ops import neural


def _of(name, function, **settings):
    """A cell that calls the function with settings, which its constructor takes."""

    class Activation(Cell):
        def __init__(self, *args, **kwargs):
            super().__init__()
            names = list(settings)
            if len(args) > len(names):
                raise TypeError(f"For '{name}', there are {len(names)} arguments, but got {len(args)}.")
            given = dict(zip(names, args)) | kwargs
            unknown = [key for key in given if key not in settings]
            if unknown:
                raise TypeError(f"For '{name}', the arguments are {names}, but got {unknown}.")
            missing = [key for key, value in settings.items() if value is None and key not in given]
            if missing:
                raise TypeError(f"For '{name}', the argument '{missing[0]}' is needed.")
            self.settings = {key: given.get(key, value) for key, value in settings.items()}

        def construct(self, x):
            return function(x, **self.settings)

    Activation.__name__ = Activation.__qualname__ = name
    Activation.__doc__ = function.__doc__
    return Activation


CELU = _of("CELU", neural.celu, alpha=1.0)
SeLU = _of("SeLU", neural.selu)
GLU = _of("GLU", neural.glu, axis=-1)
Hardtanh = _of("Hardtanh", neural.hardtanh, min_val=-1.0, max_val=1.0)
HShrink = _of("HShrink", neural.hardshrink, lambd=0.5)
SoftShrink = _of("SoftShrink", neural.softshrink, lambd=0.5)
Softmin = _of("Softmin", neural.softmin, axis=-1)
Tanhshrink = _of("Tanhshrink", neural.tanhshrink)
FastGelu = _of("FastGelu", neural.fast_gelu)


class Threshold(Cell):
    """x where x > threshold, else the value."""

    def __init__(self, threshold, value):
        super().__init__()
        self.threshold, self.value = _check.any_number("Threshold", "threshold", threshold), _check.any_number("Threshold", "value", value)

    def construct(self, x):
        return neural.threshold(x, self.threshold, self.value)


class Softmax2d(Cell):
    """The softmax over the channels of images [n,c,h,w] or [c,h,w]."""

    def construct(self, x):
        return tessera.ops.softmax(x, x.ndim - 3)


class PReLU(Cell):
    """x where x > 0, else w * x. Parameter w [channel], which starts with the argument w and is called a alone. He et al., ICCV 2015."""

    def __init__(self, channel=1, w=0.25):
        super().__init__()
        _check.integer("PReLU", "channel", channel, 1)
        self.w = Parameter(initializer(w, [channel]) if isinstance(w, (int, float)) else w, name="a")

    def construct(self, x):
        return neural.prelu(x, self.w)
