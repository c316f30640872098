"""What networks are made of."""
from mindspore.nn.cell import Cell
from mindspore.nn.container import CellDict, CellList, SequentialCell
from mindspore.nn.convolution import Conv1d, Conv1dTranspose, Conv2dTranspose
from mindspore.nn.dynamic_lr import (cosine_decay_lr, exponential_decay_lr, inverse_decay_lr, natural_exp_decay_lr, piecewise_constant_lr,
                                     polynomial_decay_lr, warmup_lr)
from mindspore.nn.layer import (ELU, GELU, AvgPool2d, BatchNorm2d, Conv2d, Dense, Dropout, Embedding, EmbeddingLookup, Flatten, HSigmoid, HSwish,
                                Identity, LayerNorm, LeakyReLU, LogSigmoid, LogSoftmax, MaxPool2d, Mish, ReLU, ReLU6, Sigmoid, SiLU, Softmax,
                                Softsign, Tanh, get_activation)
from mindspore.nn.learning_rate_schedule import (CosineDecayLR, ExponentialDecayLR, InverseDecayLR, LearningRateSchedule, NaturalExpDecayLR,
                                                 PolynomialDecayLR, WarmUpLR)
from mindspore.nn.loss import (BCELoss, BCEWithLogitsLoss, L1Loss, LossBase, MAELoss, MSELoss, RMSELoss, SmoothL1Loss,
                               SoftmaxCrossEntropyWithLogits)
from mindspore.nn.metrics import MAE, MSE, Metric, TopKCategoricalAccuracy, rearrange_inputs
from mindspore.nn.optim import SGD, Adam, AdamWeightDecay, Lamb, LazyAdam, Momentum, Optimizer
from mindspore.nn.wrap import (DistributedGradReducer, DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell, GradAccumulationCell,
                               MicroBatchInterleaved, ParameterUpdate, PipelineCell, PipelineGradReducer, TrainOneStepCell, TrainOneStepWithLossScaleCell,
                               VirtualDatasetCellTriple, WithEvalCell, WithGradCell, WithLossCell)
from mindspore.nn.metrics import Accuracy, Loss, Top1CategoricalAccuracy, Top5CategoricalAccuracy
from mindspore.nn.activations import CELU, GLU, FastGelu, Hardtanh, HShrink, PReLU, SeLU, Softmax2d, Softmin, SoftShrink, Tanhshrink, Threshold
from mindspore.nn.basic import (ChannelShuffle, ClipByNorm, ConstantPad1d, ConstantPad2d, ConstantPad3d, L1Regularizer, MatMul, Moments, Norm,
                                OneHot, Pad, PixelShuffle, PixelUnshuffle, Range, ReduceLogSumExp, ReflectionPad1d, ReflectionPad2d, ReflectionPad3d,
                                ReplicationPad1d, ReplicationPad2d, ReplicationPad3d, Roll, Tril, Triu, Unflatten, ZeroPad2d)
from mindspore.nn.class_metrics import (F1, ROC, ConfusionMatrix, CosineSimilarity, Dice, Fbeta, Perplexity, Precision, Recall, auc, get_metric_fn,
                                        get_metrics, names)
from mindspore.nn.loss.functions import (CosineEmbeddingLoss, CrossEntropyLoss, CTCLoss, DiceLoss, GaussianNLLLoss, HingeEmbeddingLoss, HuberLoss, KLDivLoss,
                                         MarginRankingLoss, NLLLoss, PoissonNLLLoss, SoftMarginLoss, TripletMarginLoss)
from mindspore.nn.more_metrics import (BleuScore, ConfusionMatrixMetric, HausdorffDistance, MeanSurfaceDistance, OcclusionSensitivity,
                                       RootMeanSquareDistance)
from mindspore.nn.normalization import BatchNorm1d, BatchNorm3d, GroupNorm, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, SyncBatchNorm
from mindspore.nn.optim.adaptive import ASGD, FTRL, Adadelta, Adagrad, AdaMax, RMSProp, Rprop
from mindspore.nn.pooling import AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AvgPool1d, MaxPool1d
from mindspore.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from mindspore.nn.resizing import ResizeBilinear, Unfold, Upsample
from mindspore.nn.attention import (MultiheadAttention, Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder,
                                    TransformerEncoderLayer)
from mindspore.nn.volumes import AvgPool3d, Conv3d, Conv3dTranspose, Dropout1d, Dropout2d, Dropout3d, MaxPool3d
from mindspore.nn.utils import no_init_parameters
from mindspore.nn import loss, metrics, optim, transformer, wrap
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
