"""The metrics, under the name of the module that scripts import them from."""
from mindspore._missing import missing
from mindspore.nn.class_metrics import *  # noqa: F403
from mindspore.nn.metrics import *  # noqa: F403
from mindspore.nn.more_metrics import *  # noqa: F403

__getattr__ = missing(__name__)
del missing
