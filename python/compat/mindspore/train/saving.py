"""Arguments of all that saves and loads checkpoints."""
import tessera

from mindspore import context


def check_key(who, key, mode, kind="enc", format="ckpt"):
    """tessera's arguments for an encrypted file, enc_key and enc_mode or dec_key and dec_mode: none without a key."""
    if key is not None and not isinstance(key, bytes):
        raise ValueError(f"For '{who}', the key must be bytes, but got {type(key).__name__}.")
    if not isinstance(mode, str):
        raise ValueError(f"For '{who}', the mode of encryption must be str, but got {type(mode).__name__}.")
    if key is None:
        if mode != "AES-GCM":
            context.warn_once(f"For '{who}', the argument '{kind}_mode' {mode!r} has no effect without {kind}_key: " +
                              ("what is saved is not encrypted" if kind == "enc" else "nothing is decrypted"))
        return {}
    if format != "ckpt":
        raise ValueError(f"For '{who}', a file of the format {format} cannot be encrypted")
    if mode not in ("AES-GCM", "AES-GCM/reference", "AES-CBC"):
        raise ValueError(f"For '{who}', the mode of encryption must be 'AES-GCM', 'AES-GCM/reference' or 'AES-CBC', but got {mode}.")
    if kind == "enc" and mode == "AES-CBC":
        context.warn_once(f"For '{who}', AES-CBC does not notice when a file is changed, so the file is written with AES-GCM; it is "
                          "loaded with dec_mode 'AES-CBC', too. What the reference is to read is saved with 'AES-GCM/reference'")
        mode = "AES-GCM"
    return {f"{kind}_key": key, f"{kind}_mode": mode}


def has_own_form(path):
    """Whether the file is encrypted as Tessera writes it, and not as the reference does."""
    with open(path, "rb") as file:
        return file.read(8) == b"\x89TSRAES1"


def is_async(who, value):
    """async_save: a bool, or how the reference would do it; here a thread writes."""
    if not isinstance(value, (bool, str)):
        raise TypeError(f"For '{who}', the argument 'async_save' must be bool or str, but got {type(value).__name__}.")
    if isinstance(value, str) and value not in ("process", "thread"):
        raise ValueError(f"For '{who}', the argument 'async_save' must be 'process' or 'thread', but got {value}.")
    return bool(value)


def tensor_of(who, data, is_whole=True):
    """A tensor, or a text, of what is to be saved. is_whole: of a parameter that is split over ranks the whole, which every rank must
    ask for; else this rank's slice."""
    if isinstance(data, tessera.Parameter):
        return data.whole_value() if is_whole else data.value()
    if isinstance(data, (tessera.Tensor, str)):
        return data
    raise TypeError(f"For '{who}', what is saved must be Tensor or Parameter, but got {type(data).__name__}.")


def appended_values(who, argument, values):
    """A dict of numbers, texts and tensors, as tensors and texts."""
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise TypeError(f"For '{who}', the argument '{argument}' must be dict, but got {type(values).__name__}.")
    result = {}
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, (int, float, bool, str, tessera.Tensor, tessera.Parameter)):
            raise TypeError(f"For '{who}', the keys of '{argument}' must be str and its values int, float, bool, str, Tensor or "
                            f"Parameter, but got {type(name).__name__} and {type(value).__name__}.")
        result[name] = tensor_of(who, value) if isinstance(value, (str, tessera.Tensor, tessera.Parameter)) else tessera.Tensor(value)
    return result
