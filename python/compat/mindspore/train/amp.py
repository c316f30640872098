"""Mixed precision for training steps of one's own; Model takes amp_level itself."""
import tessera

from mindspore import nn, ops
from mindspore._missing import missing
from mindspore.nn.wrap import TrainOneStepCell, TrainOneStepWithLossScaleCell, WithLossCell
from mindspore.ops.primitive import Primitive
from mindspore.train.loss_scale_manager import DynamicLossScaleManager

LEVELS = ("O0", "O1", "O2", "O3", "auto")

# What a level sets where a call says nothing else.
_config_level = {
    "O0": {"keep_batchnorm_fp32": False, "cast_model_type": tessera.float32, "loss_scale_manager": None},
    "O1": {"keep_batchnorm_fp32": False, "cast_model_type": tessera.float32, "loss_scale_manager": None},
    "O2": {"keep_batchnorm_fp32": True, "cast_model_type": tessera.float16, "loss_scale_manager": DynamicLossScaleManager()},
    "O3": {"keep_batchnorm_fp32": False, "cast_model_type": tessera.float16, "loss_scale_manager": None},
    "auto": {"keep_batchnorm_fp32": False, "cast_model_type": tessera.float32, "loss_scale_manager": None},
}


def check_level(who, level):
    """ValueError unless the level is known."""
    if level not in LEVELS:
        raise ValueError(f"For '{who}', the amp_level must be one of {list(LEVELS)}, but got {level}.")


def check_boost_level(who, boost_level):
    """RuntimeError for what the reference calls boost."""
    if boost_level not in ("O0", "", None):
        raise RuntimeError(f"For '{who}', boost_level={boost_level} is not available: use O0")


def _norms(cell):
    for name, child in cell.children():
        if isinstance(child, (tessera.nn.BatchNorm2d, tessera.nn.LayerNorm)) or type(child).__name__ in ("BatchNorm2d", "LayerNorm"):
            yield child
        else:
            yield from _norms(child)


def _lowered(network, level, keep_batchnorm_fp32, cast_model_type=None):
    """The network in cast_model_type, else in what the level says."""
    if cast_model_type not in (None, tessera.float16, tessera.float32):
        raise TypeError(f"The argument 'cast_model_type' must be mindspore.float16 or mindspore.float32, but got {cast_model_type}.")
    if level == "O1" and cast_model_type is None:
        return auto_mixed_precision(network, level)
    if (cast_model_type or (tessera.float16 if level in ("O2", "O3") else tessera.float32)) == tessera.float32:
        return network
    network.to_float(tessera.float16)
    keeps = level == "O2" if keep_batchnorm_fp32 is None else keep_batchnorm_fp32
    for norm in _norms(network) if keeps else ():
        norm.to_float(tessera.float32)
    return network


# What O1 and auto compute in the half type: what is made of products.
_WHITE = ("Conv1d", "Conv2d", "Conv3d", "Conv1dTranspose", "Conv2dTranspose", "Conv3dTranspose", "Dense", "LSTMCell", "RNNCell", "GRUCell")


def auto_mixed_precision(network, amp_level="O0", dtype=tessera.float16):
    """The network, set to compute in `dtype`: O0 nothing of it, O1 and auto layers that are made of products, O2 all but norms, O3 all."""
    if not isinstance(network, tessera.nn.Cell):
        raise TypeError("The network type should be Cell.")
    if amp_level not in LEVELS:
        raise ValueError(f"The amp level {amp_level} is not supported")
    if dtype not in (tessera.float16, tessera.bfloat16):
        raise ValueError(f"The argument 'dtype' must be float16 or bfloat16, but got {dtype}.")
    if amp_level in ("O1", "auto"):
        for _, cell in network.cells_and_names():
            if type(cell).__name__ in _WHITE:
                cell.to_float(dtype)
    elif amp_level != "O0":
        network.to_float(dtype)
        for norm in _norms(network) if amp_level == "O2" else ():
            norm.to_float(tessera.float32)
    return network


_WHITE_OPERATORS = ("Conv2D", "Conv2DTranspose", "Conv2DBackpropInput", "MatMul", "BatchMatMul", "PReLU", "ReLU", "Ger")


def get_white_list():
    """The classes of what O1 computes in the half type, a list to be changed and given to custom_mixed_precision()."""
    return [getattr(nn, name) for name in _WHITE] + [getattr(ops, name) for name in _WHITE_OPERATORS]


def get_black_list():
    """The classes of what O2 computes in float32, a list to be changed and given to custom_mixed_precision()."""
    return [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm]


def _check_classes(name, classes, kinds):
    if not isinstance(classes, list):
        raise TypeError(f"The type of {name} should be list, but got {type(classes).__name__}.")
    for item in classes:
        if not isinstance(item, type) or not issubclass(item, kinds):
            raise TypeError(f"The elements of {name} should be classes of {' or '.join(kind.__name__ for kind in kinds)}, but got {item!r}.")


def custom_mixed_precision(network, *, white_list=None, black_list=None, dtype=tessera.float16):
    """The network, set to compute in `dtype`, float16 or bfloat16: of a white_list the cells and operators of these classes, of a black_list all but the
    cells of these."""
    if not isinstance(network, tessera.nn.Cell):
        raise TypeError("The network type should be Cell.")
    if (white_list is None) == (black_list is None):
        raise ValueError("For custom_mixed_precision, one of white_list and black_list must be provided, but got "
                         f"{'neither' if white_list is None else 'both'}.")
    if dtype not in (tessera.float16, tessera.bfloat16):
        raise ValueError(f"The dtype should be float16 or bfloat16, but got {dtype}.")
    if black_list is not None:
        _check_classes("black_list", black_list, (tessera.nn.Cell, ))
        network.to_float(dtype)
    else:
        _check_classes("white_list", white_list, (tessera.nn.Cell, Primitive))
    chosen, of_chosen = tuple(white_list if black_list is None else black_list), dtype if black_list is None else tessera.float32
    for _, cell in list(network.cells_and_names()):
        if isinstance(cell, chosen):
            cell.to_float(of_chosen)
        elif black_list is None:
            for part in vars(cell).values():
                if isinstance(part, Primitive) and type(part) in chosen:
                    part.compute_dtype = dtype
    tessera.nn.retrace()  # what was compiled computes as before
    return network


def build_train_network(network, optimizer, loss_fn=None, level="O0", boost_level="O0", **kwargs):
    """A training step of the network: O0 in float32; O2 in float16, norms in float32, with a dynamic loss scale; O3 in float16.

    kwargs: loss_scale_manager, keep_batchnorm_fp32, and cast_model_type, float16 or float32, instead of the level's type."""
    check_level("build_train_network", level)
    check_boost_level("build_train_network", boost_level)
    unknown = set(kwargs) - {"loss_scale_manager", "keep_batchnorm_fp32", "cast_model_type"}
    if unknown:
        raise ValueError(f"For 'build_train_network', the keyword arguments {sorted(unknown)} are not supported.")
    _lowered(network, level, kwargs.get("keep_batchnorm_fp32"), kwargs.get("cast_model_type"))
    manager = kwargs.get("loss_scale_manager", DynamicLossScaleManager() if level == "O2" else None)
    if loss_fn is not None:
        network = WithLossCell(network, loss_fn)
    if manager is None:
        return TrainOneStepCell(network, optimizer).set_train()
    update = manager.get_update_cell()
    if update is None:
        return TrainOneStepCell(network, optimizer, manager.get_loss_scale()).set_train()
    return TrainOneStepWithLossScaleCell(network, optimizer, update).set_train()


__getattr__ = missing(__name__)
del missing
