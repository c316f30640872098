"""Tensors that other libraries of the process give or take, by DLPack."""
import tessera

from mindspore._missing import missing
from mindspore.common.initializer import PendingTensor


def from_dlpack(dlpack):
    """The tensor that a capsule describes, in its memory: see tessera.from_dlpack, which says what is copied. What has __dlpack__(), as arrays and
    tensors of other libraries, is taken, too."""
    return tessera.from_dlpack(dlpack)


def to_dlpack(tensor):
    """A capsule "dltensor" that shares the tensor's memory, for one consumer."""
    if isinstance(tensor, PendingTensor):
        tensor = tensor.init_data()
    if not isinstance(tensor, (tessera.Tensor, tessera.Parameter)):
        raise TypeError(f"For 'to_dlpack', the 'tensor' must be a Tensor, but got {type(tensor).__name__}.")
    return tessera.to_dlpack(tensor)


__getattr__ = missing(__name__)
del missing
