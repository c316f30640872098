"""mindspore.nn.transformer, where later releases have it."""
import sys

from mindspore.nn.transformer import *  # noqa: F403
from mindspore.nn.transformer import layers, loss, op_parallel_config, transformer
from mindspore._missing import missing

for _module in (layers, loss, op_parallel_config, transformer):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module

__getattr__ = missing(__name__)
del missing
