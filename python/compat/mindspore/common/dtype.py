"""Element types: tessera's, under the names that scripts use."""
import numpy as np

from tessera import (DType, bfloat16, bool_, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32,
                     uint64)

byte, short, intc, intp = int8, int16, int32, int64
ubyte, ushort, uintc, uintp = uint8, uint16, uint32, uint64
half, single, double = float16, float32, float64
int_, uint, float_ = int64, uint64, float64
number = (int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, float32, float64)

__all__ = ["bfloat16", "bool_", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16",
           "uint32", "uint64", "byte", "short", "intc", "intp", "ubyte", "ushort", "uintc", "uintp", "half", "single",
           "double", "int_", "uint", "float_", "number"]


_WORDS = {"bool_": "Bool", "bfloat16": "BFloat16"} | {f"uint{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64)}


# Scripts print dtypes, and compare the text.
DType.__str__ = lambda self: _WORDS.get(self.name, self.name.capitalize())
DType.__format__ = lambda self, spec: format(str(self), spec)
DType.__repr__ = lambda self: "mindspore." + self.name


def dtype_to_nptype(type_):
    """NumPy's type of a dtype."""
    return np.dtype({bool_: "bool"}.get(type_, type_.name)).type


def pytype_to_dtype(obj):
    """The dtype of a Python or NumPy type."""
    if isinstance(obj, DType):
        return obj
    if obj in (bool, int, float):
        return {bool: bool_, int: int64, float: float64}[obj]
    name = np.dtype(obj).name
    if name == "bool":
        return bool_
    if name not in DType.__members__:
        raise NotImplementedError(f"Unsupported convert python type {obj} to MindSpore type.")
    return DType[name]


from mindspore._missing import missing  # noqa: E402

__getattr__ = missing(__name__)
del missing
