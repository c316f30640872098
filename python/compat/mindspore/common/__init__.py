from mindspore.common import dtype
from mindspore.common.dtype import *
from mindspore.common.tensor import Tensor
from mindspore.common.parameter import Parameter, ParameterTuple
from mindspore.common import initializer
from mindspore.common.seed import get_seed, set_seed
from mindspore.common.api import jit, ms_function
from mindspore.common.scripts import JitConfig
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
