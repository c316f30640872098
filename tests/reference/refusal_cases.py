"""More cases: what scripts meet at the edges: operands of different shapes, keys that are wrong, what functions return beside tensors."""
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import Tensor, nn, ops

from function_cases import function
from kinds import cell, floats, value


def refusal(call):
    """The class of what a call raises, as a text; "none" where it does not raise."""
    try:
        result = call()
        if isinstance(result, Tensor):
            result.asnumpy()
    except Exception as error:  # noqa: BLE001: which one is the question
        return np.array(next(kind.__name__ for kind in (TypeError, ValueError, KeyError, RuntimeError, Exception) if isinstance(error, kind)))
    return np.array("none")


# --- losses of operands of different shapes
for reduction in ("mean", "sum", "none"):
    for name in "mse_loss l1_loss huber_loss".split():
        function(f"ops.{name} {reduction} broadcast", lambda f, x, y, r=reduction: f(x, y, reduction=r), floats(4, 1), floats(4))
    cell(f"nn.MSELoss {reduction} broadcast", lambda r=reduction: nn.MSELoss(r), floats(4, 1), floats(4))
    cell(f"nn.L1Loss {reduction} broadcast", lambda r=reduction: nn.L1Loss(r), floats(4, 1), floats(4))
for label, (target, dtype) in {"shape": (np.zeros(4), ms.float32), "int": (np.zeros((4, 1)), ms.int32)}.items():
    given = Tensor(np.ones((4, 1)), ms.float32), Tensor(target, dtype)
    value(f"nn.SmoothL1Loss refused {label}", lambda given=given: refusal(lambda: nn.SmoothL1Loss()(*given)))
    value(f"ops.smooth_l1_loss refused {label}", lambda given=given: refusal(lambda: ops.smooth_l1_loss(*given)))

# --- what is not loaded, of the network and of the checkpoint
def not_loaded(names):
    """What load_param_into_net gives for a network of a weight and a bias and parameters of these names, as texts."""
    network = nn.Dense(2, 3)
    given = {name: ms.Parameter(Tensor(np.zeros((3, 2) if name.endswith("weight") else (3, )), ms.float32), name=name) for name in names.split()}
    return tuple(np.array(" ".join(sorted(part))) for part in ms.load_param_into_net(network, given))


for label, names in {"all": "weight bias", "more": "weight bias other", "less": "weight", "others": "other one"}.items():
    value(f"load_param_into_net {label}", lambda names=names: not_loaded(names))

# --- gradients that are not centralized: the reference's CPU kernels lack the others
for shape in ((3, 6), (2, 1, 3, 3), (3, 12, 16), (4, )):
    def centralized(shape=shape):
        parameter = ms.Parameter(Tensor(np.zeros(shape), ms.float32), name="w")
        nn.SGD([{"params": [parameter], "grad_centralization": True}], 1.0)((Tensor(np.arange(np.prod(shape)).reshape(shape), ms.float32), ))
        return Tensor(parameter.asnumpy())

    value(f"nn.SGD grad_centralization of {shape}", centralized)


# --- the metric of losses, where the last batch is smaller
def losses_of(metrics):
    network = nn.Dense(2, 2, weight_init="ones", bias_init="zeros")
    rows = ds.NumpySlicesDataset((np.arange(10, dtype=np.float32).reshape(5, 2), np.zeros((5, 2), np.float32)), ["x", "y"], shuffle=False)
    return Tensor(float(ms.Model(network, nn.MSELoss(), metrics=metrics).eval(rows.batch(2), dataset_sink_mode=False)["loss"]), ms.float32)


value("Model.eval of nn.Loss", lambda: losses_of({"loss": nn.Loss()}))
value("Model.eval of loss by name", lambda: losses_of({"loss"}))

# --- dtypes of what is made of data
for dtype in (np.int8, np.int32, np.int64):
    for smoothing in (0.0, 0.1):
        value(f"transforms.OneHot {np.dtype(dtype).name} {smoothing}", lambda dtype=dtype, smoothing=smoothing: np.asarray(ds.transforms.OneHot(4, smoothing)(np.array(2, dtype))))
value("Dataset.output_types", lambda: np.array(str(ds.NumpySlicesDataset({"x": np.zeros((4, 2), np.float32)}).output_types())))
for label, given in {"True": [True, True], "False": [False, False], "both": [True, False]}.items():
    value(f"ops.ReduceSum of bools {label}", lambda given=given: ops.ReduceSum()(Tensor(given)))

for label, entries in {"slices": (slice(0, 2), slice(1, 3)), "ellipsis": (..., slice(0, 1)), "list": ([0, 2], ), "number": (-1, )}.items():
    value(f"transforms.Slice {label}", lambda entries=entries: np.asarray(ds.transforms.Slice(*entries)(np.arange(12).reshape(3, 4))))
for name in ("EQ", "NE", "LT", "LE", "GT", "GE"):
    value(f"transforms.Mask {name}", lambda name=name: np.asarray(ds.transforms.Mask(getattr(ds.transforms.Relational, name), 2)(np.arange(6))))
value("transforms.Unique", lambda: tuple(np.asarray(part) for part in ds.transforms.Unique()(np.array([[1, 2], [2, 5]]))))
