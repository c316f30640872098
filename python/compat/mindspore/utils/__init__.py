"""Tensors that other libraries give or take."""
from mindspore._missing import missing
from mindspore.utils.dlpack import from_dlpack, to_dlpack  # noqa: F401

__getattr__ = missing(__name__)
del missing
