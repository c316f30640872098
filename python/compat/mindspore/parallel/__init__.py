"""How networks are spread over ranks."""
from mindspore.parallel import _transformer
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
