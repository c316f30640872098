"""Data sets."""
from mindspore.dataset import config, transforms, vision
from mindspore.dataset.datasets import (BatchInfo, Cifar10Dataset, Dataset, FashionMnistDataset, GeneratorDataset, ImageFolderDataset,
                                        KMnistDataset, MnistDataset, NumpySlicesDataset)
from mindspore.dataset.datasets import zip_datasets as zip
from mindspore.dataset.samplers import DistributedSampler, IterSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler, SubsetSampler
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
