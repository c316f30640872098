"""What networks are made of."""
from mindspore.nn.cell import Cell, CellList, SequentialCell
from mindspore.nn.layer import (GELU, AvgPool2d, BatchNorm2d, Conv2d, Dense, Dropout, Embedding, Flatten, LayerNorm, MaxPool2d,
                                ReLU, Sigmoid, Softmax, Tanh, get_activation)
from mindspore.nn.loss import L1Loss, LossBase, MSELoss, SoftmaxCrossEntropyWithLogits
from mindspore.nn.optim import SGD, Adam, AdamWeightDecay, Momentum, Optimizer
from mindspore.nn.wrap import (DistributedGradReducer, DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell, ParameterUpdate,
                               TrainOneStepCell, TrainOneStepWithLossScaleCell, WithEvalCell,
                               WithGradCell, WithLossCell)
from mindspore.nn.metrics import Accuracy, Loss, Top1CategoricalAccuracy, Top5CategoricalAccuracy
from mindspore.nn import loss, optim, transformer, wrap
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
