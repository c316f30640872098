"""Mixed precision."""
from mindspore.train.amp import build_train_network
from mindspore.train.loss_scale_manager import DynamicLossScaleManager, FixedLossScaleManager, LossScaleManager
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
