"""Data sets."""
from mindspore.dataset import config, transforms, vision
from mindspore.dataset.datasets import Cifar10Dataset, Dataset, GeneratorDataset, NumpySlicesDataset
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
