"""Where early scripts find mindspore.dataset."""
from mindspore._missing import missing
from mindspore.dataset import config

__getattr__ = missing(__name__)
del missing
