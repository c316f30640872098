"""Small functions that scripts call beside their network."""
import re
import sys

import numpy as np
import tessera

from mindspore import context
from mindspore._extends import cell_attr_register
from mindspore.common.seed import get_seed, set_seed
from mindspore.common.tensor import Tensor


def tensor(input_data=None, dtype=None, shape=None, init=None, const_arg=False, device=None):
    """Tensor(...)."""
    return Tensor(input_data, dtype, shape, init, const_arg=const_arg, device=device)


def from_numpy(array):
    """A tensor that shares the array's memory."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"For 'from_numpy', the 'array' must be a NumPy array, but got {type(array).__name__}.")
    return tessera.Tensor.from_numpy(array)


def mutable(input_data, dynamic_len=False):
    """The same: every input of a network may change."""
    if dynamic_len:
        raise NotImplementedError("For 'mutable', dynamic_len is not available: a network is compiled for each length")
    return input_data


def jit_class(cls):
    """The class: construct() may use any."""
    return cls


ms_class = jit_class


def lazy_inline(fn=None, attrs=None, policy=None):
    """Decorates a cell's __init__: cell_init_args is then the class with what __init__ was given, or with the attributes `attrs`. Cells are compiled
    with their network in any case; policy is None or "front"."""
    if policy not in (None, "front"):
        raise ValueError(f"For 'lazy_inline', the 'policy' must be None or 'front', but got {policy}.")
    return cell_attr_register(fn, attrs)


def no_inline(fn=None):
    """Decorates a function; without effect."""
    return fn if fn is not None else lambda function: function


class JitConfig:
    """Settings of compilation; without effect."""

    def __init__(self, jit_level="", exc_mode="auto", jit_syntax_level="", debug_level="RELEASE", infer_boost="off", **kwargs):
        self.jit_config_dict = dict(jit_level=jit_level, exc_mode=exc_mode, jit_syntax_level=jit_syntax_level, debug_level=debug_level,
                                    infer_boost=infer_boost, **kwargs)


def manual_seed(seed):
    """set_seed()."""
    set_seed(seed)


def initial_seed():
    """get_seed()."""
    return get_seed()


def set_deterministic(deterministic):
    """set_context(deterministic="ON" or "OFF"): whether a Model that trains for the first time from here on gives the same bits in every run, as
    tessera.Model(deterministic=True) does. On CPUs, where steps that are cells or functions are always computed, everything does so anyway. TypeError
    unless a bool."""
    if not isinstance(deterministic, bool):
        raise TypeError(f"For 'set_deterministic', the 'deterministic' must be bool, but got {type(deterministic).__name__}.")
    context.set_context(deterministic="ON" if deterministic else "OFF")


def set_recursion_limit(recursion_limit=1000):
    """Python's own limit, where it is lower."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), recursion_limit))


def set_device(device_target, device_id=None):
    """set_context(device_target=..., device_id=...)."""
    context.set_context(device_target=device_target, **({} if device_id is None else {"device_id": device_id}))


_SIZE = re.compile(r"(?!0*(\.0*)?GB)[0-9]+(\.[0-9]*)?GB")
_memory = {}


def set_memory(init_size="2GB", increase_size="2GB", max_size="1024GB", optimize_level="O0", huge_page_reserve_size="0GB"):
    """set_context(max_device_memory=max_size). init_size, increase_size, optimize_level and huge_page_reserve_size have no effect: a step's memory
    is planned before it runs, and taken at once. RuntimeError where it was called before."""
    if _memory:
        raise RuntimeError("The 'set_memory' can not be set repeatedly.")
    for name, size in (("init_size", init_size), ("increase_size", increase_size), ("max_size", max_size)):
        if not isinstance(size, str) or not _SIZE.fullmatch(size):
            raise ValueError(f"For 'set_memory', the '{name}' must be a positive number and \"GB\", such as \"3.5GB\", but got {size!r}.")
    if optimize_level not in ("O0", "O1"):
        raise ValueError(f"For 'set_memory', the 'optimize_level' must be one of ['O0', 'O1'], but got {optimize_level}.")
    if not isinstance(huge_page_reserve_size, str) or not re.fullmatch(r"[0-9]+(\.[0-9]*)?GB", huge_page_reserve_size):
        raise ValueError(f"For 'set_memory', the 'huge_page_reserve_size' must be a number and \"GB\", but got {huge_page_reserve_size!r}.")
    context.set_context(max_device_memory=max_size)
    _memory["max_size"] = max_size


def get_current_device():
    """(device_target, device_id)."""
    return context.get_context("device_target"), context.get_context("device_id")


def synchronize():
    """Nothing runs in the background."""


def run_check():
    """Computes a product on the CPU and says that it is right."""
    product = (tessera.Tensor(np.ones((2, 3), np.float32)) @ tessera.Tensor(np.ones((3, 2), np.float32))).asnumpy()
    if not (product == 3).all():
        raise RuntimeError("run_check: a product of matrices is wrong")
    print("The result of multiplication calculation is correct, Tessera computes on the CPU.")
