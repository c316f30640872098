"""Settings of all data sets."""
import tessera

from mindspore import context
from mindspore._missing import missing

_settings = {"seed": None, "num_parallel_workers": 1, "prefetch_size": 16}
# Of the reference's processes and queues, and what they are where a script sets nothing: without effect on what a data set gives.
_UNUSED = {"auto_num_workers": False, "autotune_interval": 0, "callback_timeout": 60, "enable_shared_mem": True,
           "enable_watchdog": True, "fast_recovery": True, "monitor_sampling_interval": 1000, "multiprocessing_start_method": "fork",
           "multiprocessing_timeout_interval": 300, "numa_enable": False, "sending_batches": 0}


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


def _accepted(name, value):
    """The functions that set and get what has no effect."""
    _settings[name] = value

    def set_it(value):
        _settings[name] = value

    def get_it():
        return _settings[name]

    for function, verb, what in ((set_it, "set", f"Accepted: tessera's data sets have no {name}."), (get_it, "get", f"What set_{name}() set.")):
        function.__name__ = function.__qualname__ = f"{verb}_{name}"
        function.__doc__ = what
    return set_it, get_it


for _name, _value in _UNUSED.items():
    globals()[f"set_{_name}"], globals()[f"get_{_name}"] = _accepted(_name, _value)

_settings["enable_autotune"] = False


def set_enable_autotune(enable, filepath_prefix=None):
    """Accepted: tessera decides how far it reads ahead, so that there is nothing to write to filepath_prefix, which is said once."""
    if not isinstance(enable, bool):
        raise TypeError("enable must be of type bool.")
    if enable and filepath_prefix is not None:
        context.warn_once(f"set_enable_autotune: filepath_prefix={filepath_prefix} has no effect: nothing is tuned that a file could hold")
    _settings["enable_autotune"] = enable


def get_enable_autotune():
    """What set_enable_autotune() set."""
    return _settings["enable_autotune"]


__getattr__ = missing(__name__)
del missing
