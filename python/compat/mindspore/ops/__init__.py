"""Operators: as objects with a strategy of their own (MatMul), and as functions (matmul)."""
from mindspore.ops import composite, functional, operations
from mindspore.ops.composite import GradOperation, HyperMap, Map, MultitypeFuncGraph, add_flags, core, get_grad, grad, value_and_grad
from mindspore.ops.functional import *
from mindspore.ops.functional import abs, partial, pow
from mindspore.ops.operations import *
from mindspore.ops import arithmetic, array, neural
from mindspore.ops.arithmetic import *
from mindspore.ops.array import *
from mindspore.ops.drawing import *
from mindspore.ops.neural import *
from mindspore.ops.resize import *
from mindspore.ops.sequences import *
from mindspore.ops.transformations import *
from mindspore.ops.volumes import *
from mindspore.ops.operations.from_functions import *
from mindspore.ops.operations import comm_ops
from mindspore.ops.primitive import Primitive, prim_attr_register
from mindspore._shard import reshard
from mindspore._missing import missing

P = functional.P = operations
__getattr__ = missing(__name__, "mindspore.common.tensor")
del missing
