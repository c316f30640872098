"""Tensor: tessera's tensors, and what stands for them while construct() is traced."""
import numpy as np
import tessera

from mindspore import _check
from mindspore.common.initializer import PendingTensor

tessera.ops.promote_numbers(True)  # what Tensor(1, int32) + 0.5 is


def in_memory(who, device):
    """NotImplementedError for a place that is not the host's memory."""
    if device is not None:
        _check.only(who, "device", str(device).upper().partition(":")[0], ("CPU", ), "what a script makes is in the host's memory; set_device says where "
                    "networks are trained")


class _TensorType(type):
    """All tensors are tessera's: this class only makes and recognises them."""

    def __call__(cls, input_data=None, dtype=None, shape=None, init=None, const_arg=False, device=None):
        in_memory("Tensor", device)
        if init is not None:
            return PendingTensor(init, shape, dtype)
        if input_data is None:
            raise ValueError("For 'Tensor', the argument 'input_data' or 'init' must be given.")
        if isinstance(input_data, PendingTensor):
            input_data = input_data.init_data()
        if isinstance(input_data, (tuple, list)):
            input_data = np.array([x.asnumpy() if isinstance(x, tessera.Tensor) else x for x in input_data])
            if input_data.dtype == np.float64:
                input_data = input_data.astype(np.float32)
        if isinstance(input_data, str) or not isinstance(
                input_data, (tessera.Tensor, tessera.Parameter, np.ndarray, np.generic, bool, int, float)):
            raise TypeError("For 'Tensor', the type of 'input_data' should be one of Tensor, float, int, bool, tuple, list "
                            f"and numpy.ndarray, but got {type(input_data).__name__}.")
        return tessera.Tensor(input_data, dtype)

    def __instancecheck__(cls, instance):
        return isinstance(instance, (tessera.Tensor, tessera.Value, tessera.Parameter, PendingTensor))


class Tensor(metaclass=_TensorType):
    """Tensor(input_data, dtype=None, shape=None, init=None, const_arg=False, device=None): elements of one dtype in a shape; see tessera.Tensor.
    const_arg has no effect: a network's inputs may change, and what else it is made of is constant. device: None or "CPU"."""

    @staticmethod
    def from_numpy(array):
        """Shares the array's memory."""
        return tessera.Tensor.from_numpy(array)


from mindspore._missing import missing  # noqa: E402

__getattr__ = missing(__name__)
del missing
