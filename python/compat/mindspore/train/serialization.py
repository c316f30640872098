"""Checkpoints of networks."""
import tessera

from mindspore import context
from mindspore._missing import missing
from mindspore.common.parameter import Parameter


def save_checkpoint(save_obj, ckpt_file_name, integrated_save=True, async_save=False, append_dict=None, enc_key=None,
                    enc_mode="AES-GCM"):
    """Writes a network's parameters, or a list of {"name": ..., "data": ...}."""
    if not isinstance(save_obj, (tessera.nn.Cell, list)):
        raise TypeError(f"For 'save_checkpoint', the argument 'save_obj' should be nn.Cell or list, but got {type(save_obj).__name__}.")
    if not isinstance(ckpt_file_name, str):
        raise ValueError(f"For 'save_checkpoint', the argument 'ckpt_file_name' must be string, but got {type(ckpt_file_name).__name__}.")
    if async_save or enc_key is not None:
        raise NotImplementedError("For 'save_checkpoint', async_save and enc_key are not available yet")
    if isinstance(save_obj, list):
        values = {item["name"]: item["data"] for item in save_obj}
    else:
        values = {parameter.name: parameter.value() for parameter in save_obj.parameters()}
    for name, value in (append_dict or {}).items():
        values[name] = value if isinstance(value, (str, tessera.Tensor, tessera.Parameter)) else tessera.Tensor(value)
    tessera.checkpoint.save(ckpt_file_name, values)


def load_checkpoint(ckpt_file_name, net=None, strict_load=False, filter_prefix=None, dec_key=None, dec_mode="AES-GCM"):
    """The parameters of a file by name; with a net they are loaded into it, too."""
    if not isinstance(ckpt_file_name, str) or not ckpt_file_name.endswith(".ckpt"):
        raise ValueError(f"For 'load_checkpoint', the checkpoint file must be a string that ends with '.ckpt', but got {ckpt_file_name}.")
    if dec_key is not None:
        raise NotImplementedError("For 'load_checkpoint', encrypted files are not available yet")
    prefixes = (filter_prefix,) if isinstance(filter_prefix, str) else tuple(filter_prefix or ())
    parameters = {}
    for name, value in tessera.checkpoint.load(ckpt_file_name).items():
        if not any(name.startswith(prefix) for prefix in prefixes):
            parameters[name] = value if isinstance(value, str) else Parameter(value, name=name)
    if not parameters:
        raise ValueError(f"The loaded parameter dict is empty after filter or specify, please check whether filter_prefix was set correctly: {ckpt_file_name}.")
    if net is not None:
        load_param_into_net(net, parameters, strict_load)
    return parameters


def load_param_into_net(net, parameter_dict, strict_load=False):
    """Gives a network's parameters the values of those of the same names. Returns the names that found none."""
    if not isinstance(net, tessera.nn.Cell):
        raise TypeError(f"For 'load_param_into_net', the argument 'net' should be a Cell, but got {type(net).__name__}.")
    if not isinstance(parameter_dict, dict):
        raise TypeError(f"For 'load_param_into_net', the argument 'parameter_dict' should be a dict, but got {type(parameter_dict).__name__}.")
    not_loaded = []
    for parameter in net.parameters():
        if parameter.name not in parameter_dict:
            not_loaded.append(parameter.name)
            continue
        value = parameter_dict[parameter.name]
        if not isinstance(value, Parameter):
            raise TypeError("For 'load_param_into_net', the element in the argument 'parameter_dict' should be a "
                            f"'Parameter' type, but got {type(value).__name__}.")
        if value.shape != parameter.shape:
            raise RuntimeError(f"For 'load_param_into_net', {parameter.name} in the argument 'net' should have the same shape as "
                               f"{parameter.name} in the argument 'parameter_dict'. But got its shape {parameter.shape} in the "
                               f"argument 'net' and shape {value.shape} in the argument 'parameter_dict'.")
        parameter.set_data(value.value() if value.dtype == parameter.dtype else value.value().astype(parameter.dtype))
    if not_loaded:
        context.warn_once(f"{len(not_loaded)} parameters in the network are not loaded: {', '.join(not_loaded[:5])}"
                          f"{', ...' if len(not_loaded) > 5 else ''}")
    return not_loaded


__getattr__ = missing(__name__)
del missing
