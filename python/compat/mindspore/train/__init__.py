"""Training."""
from mindspore.context import ParallelMode
from mindspore.train import amp, callback, dataset_helper, loss_scale_manager, model, serialization
from mindspore.train.amp import build_train_network
from mindspore.train.callback import Callback, CheckpointConfig, LossMonitor, ModelCheckpoint, RunContext, TimeMonitor
from mindspore.train.dataset_helper import DatasetHelper, connect_network_with_dataset
from mindspore.train.loss_scale_manager import DynamicLossScaleManager, FixedLossScaleManager, LossScaleManager
from mindspore.train.metric_callbacks import (BackupAndRestore, EarlyStopping, History, LambdaCallback, LearningRateScheduler,
                                              ReduceLROnPlateau)
from mindspore.train.model import Model
from mindspore.train.summary import SummaryCollector, SummaryRecord
from mindspore.train.serialization import export, load_checkpoint, load_param_into_net, save_checkpoint
from mindspore.train.serialization import (build_searched_strategy, load_distributed_checkpoint, merge_sliced_parameter,
                                           restore_group_info_list)
from mindspore.nn.class_metrics import (F1, ROC, ConfusionMatrix, CosineSimilarity, Dice, Fbeta, Perplexity, Precision, Recall, auc, get_metric_fn,
                                        get_metrics, names)
from mindspore.nn.metrics import (MAE, MSE, Accuracy, Loss, Metric, Top1CategoricalAccuracy, Top5CategoricalAccuracy, TopKCategoricalAccuracy,
                                  rearrange_inputs)
from mindspore.nn.more_metrics import (BleuScore, ConfusionMatrixMetric, HausdorffDistance, MeanSurfaceDistance, OcclusionSensitivity,
                                       RootMeanSquareDistance)
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
