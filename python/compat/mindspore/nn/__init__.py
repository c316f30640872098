"""What networks are made of."""
from mindspore.nn.cell import Cell, CellList, SequentialCell
from mindspore.nn.dynamic_lr import (cosine_decay_lr, exponential_decay_lr, inverse_decay_lr, natural_exp_decay_lr, piecewise_constant_lr,
                                     polynomial_decay_lr, warmup_lr)
from mindspore.nn.layer import (ELU, GELU, AvgPool2d, BatchNorm2d, Conv2d, Dense, Dropout, Embedding, Flatten, HSigmoid, HSwish, Identity,
                                LayerNorm, LeakyReLU, LogSigmoid, LogSoftmax, MaxPool2d, Mish, ReLU, ReLU6, Sigmoid, SiLU, Softmax,
                                Softsign, Tanh, get_activation)
from mindspore.nn.learning_rate_schedule import (CosineDecayLR, ExponentialDecayLR, InverseDecayLR, LearningRateSchedule, NaturalExpDecayLR,
                                                 PolynomialDecayLR, WarmUpLR)
from mindspore.nn.loss import (BCELoss, BCEWithLogitsLoss, L1Loss, LossBase, MAELoss, MSELoss, RMSELoss, SmoothL1Loss,
                               SoftmaxCrossEntropyWithLogits)
from mindspore.nn.metrics import MAE, MSE, Metric, TopKCategoricalAccuracy, rearrange_inputs
from mindspore.nn.optim import SGD, Adam, AdamWeightDecay, Lamb, LazyAdam, Momentum, Optimizer
from mindspore.nn.wrap import (DistributedGradReducer, DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell, MicroBatchInterleaved,
                               ParameterUpdate, PipelineCell, TrainOneStepCell, TrainOneStepWithLossScaleCell, WithEvalCell,
                               WithGradCell, WithLossCell)
from mindspore.nn.metrics import Accuracy, Loss, Top1CategoricalAccuracy, Top5CategoricalAccuracy
from mindspore.nn import loss, optim, transformer, wrap
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
