"""Mixed precision."""
from mindspore.train.amp import auto_mixed_precision, build_train_network, custom_mixed_precision, get_black_list, get_white_list
from mindspore.train.loss_scale_manager import DynamicLossScaleManager, FixedLossScaleManager, LossScaleManager
from mindspore.train.loss_scaler import DynamicLossScaler, LossScaler, StaticLossScaler, all_finite
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
