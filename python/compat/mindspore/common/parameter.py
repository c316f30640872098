"""Parameter and ParameterTuple."""
import tessera

from mindspore import _check, _parameter_server, context
from mindspore._join import join_by_role
from mindspore.common.initializer import PendingTensor
from mindspore.common.tensor import in_memory

_MAX_NAME = 1024


def _bool(name, value):
    if not isinstance(value, bool):
        raise TypeError(f"The argument `{name}` must be bool type, but got {type(value).__name__}.")
    return value


def _fusion(name, value):
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"The argument `{name}` must be int type, but got {type(value).__name__}.")
    if value < 0:
        raise ValueError(f"The argument `{name}` must be at least 0, but got {value}.")
    return value


def _checked(name, check):
    native = getattr(tessera.Parameter, name)
    return property(lambda self: native.__get__(self, type(self)), lambda self, value: native.__set__(self, check(name, value)), doc=native.__doc__)


class _Parameter(tessera.Parameter):
    """What Parameter makes: tessera's, with the methods that scripts call."""

    def __init__(self, default_input, name=None, requires_grad=True, layerwise_parallel=False, parallel_optimizer=True, storage_format="",
                 device=None):
        _check.only("Parameter", "storage_format", storage_format, ("", ), "parameters lie as their shape says")
        in_memory("Parameter", device)
        if name is not None and not isinstance(name, str):
            raise ValueError(f"The type of the Parameter's name should be 'string' or 'None', but got {type(name).__name__}.")
        if name is not None and len(name) > _MAX_NAME:
            raise ValueError(f"The length of the '{name}' name should be less than {_MAX_NAME}.")
        if isinstance(default_input, bool):
            raise ValueError("Parameter data can not be `bool`.")
        settings = dict(name=name or "", requires_grad=_bool("requires_grad", requires_grad),
                        layerwise_parallel=_bool("layerwise_parallel", layerwise_parallel),
                        parallel_optimizer=_bool("parallel_optimizer", parallel_optimizer))
        if isinstance(default_input, PendingTensor):
            super().__init__(default_input.init, default_input.shape, default_input.dtype, **settings)
        else:
            super().__init__(tessera.Tensor(default_input, tessera.int32) if isinstance(default_input, int) else default_input, **settings)
        self.sliced = self.unique = self.cache_enable = False

    requires_grad = _checked("requires_grad", _bool)
    layerwise_parallel = _checked("layerwise_parallel", _bool)
    parallel_optimizer = _checked("parallel_optimizer", _bool)
    comm_fusion = _checked("comm_fusion", _fusion)

    def set_data(self, data, slice_shape=False):
        """Makes this the parameter's value; the shape must be the parameter's."""
        _bool("slice_shape", slice_shape)
        if isinstance(data, PendingTensor):
            data = data.init_data(self.name)
        if isinstance(data, tessera.Parameter):
            data = data.value()
        if not isinstance(data, tessera.Tensor):
            raise TypeError(f"Parameter data must be [`Tensor`, `Parameter`] type, but got {type(data).__name__}.")
        if data.shape != self.shape:
            if slice_shape:
                raise RuntimeError(f"Parameter {self.name}: slice_shape is not available: a parameter keeps its shape {self.shape}")
            raise ValueError("Can not change the shape of Parameter which has been initialized. "
                             f"Current shape is {self.shape}, and incoming is {data.shape}.")
        super().set_data(data if data.dtype == self.dtype else data.astype(self.dtype))
        return self

    def init_data(self, layout=None, set_sliced=False):
        """The parameter, whose value is there. Returns itself. layout must be None: Model.build() gives slices; set_sliced is noted as `sliced`."""
        _check.only("Parameter.init_data", "layout", layout, (None, ), "Model.build() or Model.infer_predict_layout() gives parameters the slices of the plan")
        self.value()
        self.sliced = _bool("set_sliced", set_sliced)
        return self

    def clone(self, init="same"):
        """A parameter of the same type and name; init: "same" value, or an initializer."""
        return clone(self, "", init)

    def add_pipeline_stage(self, stage):
        """Accepted, without effect: a parameter is on the stages whose cells read it."""
        if isinstance(stage, bool) or not isinstance(stage, int):
            raise TypeError(f"The type of the argument 'stage' should be a positive int number, but got {type(stage).__name__}.")
        if stage < 0:
            raise TypeError(f"The argument 'stage' should be a positive int number, but got {stage}.")

    def set_param_ps(self, init_in_server=False):
        """Servers keep the parameter. init_in_server has no effect: values begin equal everywhere."""
        if not isinstance(init_in_server, bool):
            raise TypeError(f"For 'Parameter.set_param_ps', the 'init_in_server' must be bool, but got {type(init_in_server).__name__}.")
        _parameter_server.require_servers(f"Parameter {self.name}: set_param_ps")
        join_by_role(f"Parameter {self.name}: set_param_ps")
        self.on_servers = True


_set_native = tessera.Parameter.set_data


def _set_data(self, value, *args, **kwargs):
    """Makes this the parameter's value; also what initializer() gives."""
    _set_native(self, value.init_data(self.name) if isinstance(value, PendingTensor) else value, *args, **kwargs)


def _described(self):
    """As the reference writes it."""
    return f"Parameter (name={self.name}, shape={tuple(self.shape)}, dtype={self.dtype}, requires_grad={self.requires_grad})"


# Also of the parameters of cells that come with Tessera.
tessera.Parameter.set_data = _set_data
tessera.Parameter.__repr__ = _described
tessera.Parameter.data = property(lambda self: self, doc="The parameter, which is a tensor.")


class _ParameterType(type):
    """Parameters of the cells that come with Tessera are parameters, too, so that the class of what is made is another."""

    def __call__(cls, *args, **kwargs):
        return _Parameter(*args, **kwargs)

    def __instancecheck__(cls, instance):
        return isinstance(instance, tessera.Parameter)


class Parameter(metaclass=_ParameterType):
    """Parameter(default_input, name=None, requires_grad=True, layerwise_parallel=False, parallel_optimizer=True, storage_format="", device=None):
    a tensor that training may change; see tessera.Parameter. storage_format and device are "" and None or "CPU"."""


class ParameterTuple(tuple):
    """Parameters in an order."""

    def __new__(cls, iterable):
        parameters = tuple(iterable)
        for parameter in parameters:
            if not isinstance(parameter, Parameter):
                raise TypeError(f"For ParameterTuple initialization, 'ParameterTuple' input should be 'Parameter' "
                                f"collection, but got {type(parameter).__name__}.")
        return super().__new__(cls, parameters)

    def clone(self, prefix, init="same"):
        """Copies, named `prefix.name`; init: "same", or an initializer."""
        if not isinstance(prefix, str):
            raise TypeError(f"The type of the argument 'prefix' must be string, but got {type(prefix).__name__}.")
        return ParameterTuple(clone(parameter, prefix, init) for parameter in self)


def clone(parameter, prefix, init="same"):
    """A parameter of the same type, named `prefix.name`."""
    value = parameter.value() if isinstance(init, str) and init == "same" else PendingTensor(init, parameter.shape, parameter.dtype)
    return Parameter(value, f"{prefix}.{parameter.name}" if prefix else parameter.name, parameter.requires_grad,
                     parameter.layerwise_parallel, parameter.parallel_optimizer)


from mindspore._missing import missing  # noqa: E402

__getattr__ = missing(__name__)
del missing
