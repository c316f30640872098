"""How networks are spread over ranks."""
from mindspore.parallel import _transformer
from mindspore.parallel._cost_model_context import get_algo_parameters, reset_algo_parameters, set_algo_parameters
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
