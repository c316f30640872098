"""Keys of encrypted checkpoints."""


def check_key(who, key, mode, format="ckpt"):
    """tessera's arguments for it: none without a key."""
    if key is not None and not isinstance(key, bytes):
        raise TypeError(f"For '{who}', the key must be bytes, but got {type(key).__name__}.")
    if not isinstance(mode, str):
        raise TypeError(f"For '{who}', the mode of encryption must be str, but got {type(mode).__name__}.")
    if key is None:
        return {}
    if format != "ckpt":
        raise ValueError(f"For '{who}', a file of the format {format} cannot be encrypted")
    raise NotImplementedError(f"For '{who}', encrypted files are not available yet")
