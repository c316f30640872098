"""Settings of all data sets."""
import tessera

from mindspore._missing import missing

_settings = {"seed": None, "num_parallel_workers": 1, "prefetch_size": 16}


def set_seed(seed):
    """The seed of order and augmentation of the data sets made from here on."""
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"The argument 'seed' must be int, but got {type(seed).__name__}.")
    if not 0 <= seed < 2**32:
        raise ValueError(f"The argument 'seed' must be in [0, 2^32 - 1], but got {seed}.")
    _settings["seed"] = seed


def get_seed():
    """What set_seed() set, else that of mindspore.set_seed()."""
    return _settings["seed"] if _settings["seed"] is not None else tessera.get_seed()


def set_num_parallel_workers(num):
    """Threads that make batches ahead."""
    if isinstance(num, bool) or not isinstance(num, int):
        raise TypeError(f"The argument 'num' must be int, but got {type(num).__name__}.")
    if num < 1:
        raise ValueError(f"The argument 'num' must be at least 1, but got {num}.")
    _settings["num_parallel_workers"] = num


def get_num_parallel_workers():
    """Threads that make batches ahead."""
    return _settings["num_parallel_workers"]


def set_prefetch_size(size):
    """Accepted: tessera decides how far it reads ahead."""
    _settings["prefetch_size"] = size


def get_prefetch_size():
    """What set_prefetch_size() set."""
    return _settings["prefetch_size"]


__getattr__ = missing(__name__)
del missing
