"""Training."""
from mindspore.context import ParallelMode
from mindspore.train import callback, model, serialization
from mindspore.train.callback import Callback, CheckpointConfig, LossMonitor, ModelCheckpoint, RunContext, TimeMonitor
from mindspore.train.model import Model
from mindspore.train.serialization import load_checkpoint, load_param_into_net, save_checkpoint
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
