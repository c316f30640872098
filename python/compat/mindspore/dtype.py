from mindspore.common.dtype import *
from mindspore.common.dtype import dtype_to_nptype, pytype_to_dtype
