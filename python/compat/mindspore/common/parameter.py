"""Parameter and ParameterTuple."""
import tessera

from mindspore.common.initializer import PendingTensor

_MAX_NAME = 1024


class _ParameterType(type):
    """All parameters are tessera's: this class only makes and recognises them."""

    def __call__(cls, default_input, name=None, requires_grad=True, layerwise_parallel=False, parallel_optimizer=True):
        if name is not None and not isinstance(name, str):
            raise ValueError(f"The type of the Parameter's name should be 'string' or 'None', but got {type(name).__name__}.")
        if name is not None and len(name) > _MAX_NAME:
            raise ValueError(f"The length of the '{name}' name should be less than {_MAX_NAME}.")
        for what, flag in (("requires_grad", requires_grad), ("layerwise_parallel", layerwise_parallel),
                           ("parallel_optimizer", parallel_optimizer)):
            if not isinstance(flag, bool):
                raise TypeError(f"The argument `{what}` must be bool type, but got {type(flag).__name__}.")
        if isinstance(default_input, bool):
            raise ValueError("Parameter data can not be `bool`.")
        settings = dict(name=name or "", requires_grad=requires_grad, layerwise_parallel=layerwise_parallel,
                        parallel_optimizer=parallel_optimizer)
        if isinstance(default_input, PendingTensor):
            return tessera.Parameter(default_input.init, default_input.shape, default_input.dtype, **settings)
        if isinstance(default_input, int):
            return tessera.Parameter(tessera.Tensor(default_input, tessera.int32), **settings)
        return tessera.Parameter(default_input, **settings)

    def __instancecheck__(cls, instance):
        return isinstance(instance, tessera.Parameter)


class Parameter(metaclass=_ParameterType):
    """Parameter(default_input, name=None, requires_grad=True, layerwise_parallel=False, parallel_optimizer=True):
    a tensor that training may change; see tessera.Parameter."""


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
        return ParameterTuple(clone(parameter, prefix, init) for parameter in self)


def clone(parameter, prefix, init="same"):
    """A parameter of the same type, named `prefix.name`."""
    value = parameter.value() if isinstance(init, str) and init == "same" else PendingTensor(init, parameter.shape, parameter.dtype)
    return Parameter(value, f"{prefix}.{parameter.name}", parameter.requires_grad, parameter.layerwise_parallel,
                     parameter.parallel_optimizer)
