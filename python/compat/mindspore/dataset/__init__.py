"""Data sets."""
from mindspore.dataset import config, text, transforms, vision
from mindspore.dataset.datasets import (BatchInfo, Cifar10Dataset, Dataset, FashionMnistDataset, GeneratorDataset, ImageFolderDataset,
                                        KMnistDataset, MnistDataset, NumpySlicesDataset)
from mindspore.dataset.datasets import zip_datasets as zip
from mindspore.dataset.samplers import (DistributedSampler, IterSampler, PKSampler, RandomSampler, Sampler, SequentialSampler, Shuffle,
                                        SubsetRandomSampler, SubsetSampler, WeightedRandomSampler)
from mindspore.dataset.text_files import (AGNewsDataset, CSVDataset, DBpediaDataset, Multi30kDataset, PennTreebankDataset, TextFileDataset,
                                          WikiTextDataset)
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
