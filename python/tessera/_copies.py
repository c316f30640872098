"""copy.deepcopy() of cells, parameters and tensors: copies start from the values of what they are copies of, and share nothing with it."""
import copy
import copyreg

from tessera._tessera import data, nn

# Of one object only: what it was compiled into, how often it drew, and where it stands.
_OWN = {"_calls", "_changes", "_phases", "_programs", "_random_step", "_sessions", "_unsigned", "_made_of", "_is_called_by_others"}


def _copy_parameter(self, memo, name=None):
    """Named as this one; in the copy of a cell, `name` given, by its place there unless this one's name is given, too."""
    made = type(self).__new__(type(self))
    nn.Parameter.__init__(made, self.whole_value(), name=self.name if name is None else name, requires_grad=self.requires_grad,
                          layerwise_parallel=self.layerwise_parallel, parallel_optimizer=self.parallel_optimizer, comm_fusion=self.comm_fusion)
    made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return made


def _copy_cell(self, memo):
    """A cell of the same class, made as this one was, with copies of its attributes, values and settings."""
    made = type(self).__new__(type(self))
    memo[id(self)] = made
    initialize, args, keywords = self.__dict__["_made_of"]
    initialize(made, *copy.deepcopy(args, memo), **copy.deepcopy(keywords, memo))
    for name, value in self.__dict__.items():
        if name in _OWN:
            continue
        if isinstance(value, nn.Parameter) and id(value) not in memo:
            memo[id(value)] = _copy_parameter(value, memo, value.own_name)
        copied = copy.deepcopy(value, memo)
        if isinstance(copied, (nn.Cell, nn.Parameter)) or isinstance(copied, tuple) and copied and isinstance(copied[0], nn.Parameter):
            nn.Cell.__setattr__(made, name, copied)
        else:
            made.__dict__[name] = copied
    made.configure_as(self)
    theirs = dict(made.named_parameters())
    for path, parameter in self.named_parameters():
        own = theirs[path]
        if memo.setdefault(id(parameter), own) is own:
            own.set_data(parameter.whole_value())
            own.requires_grad, own.comm_fusion, own.given_name = parameter.requires_grad, parameter.comm_fusion, parameter.given_name
    return made


def _itself(self, memo):
    """What is constant needs no copy."""
    return self


# A function of C++ is one and the same everywhere, as one of Python.
for _function in (nn.is_tracing, nn.Cell.__call__, data.Transform.__repr__):
    copyreg.pickle(type(_function), lambda function: function.__qualname__)
for _constant in (nn.initializers.Initializer, nn.TransformerOpParallelConfig, data.Dataset, data.Transform):
    _constant.__deepcopy__ = _itself
nn.Parameter.__deepcopy__ = _copy_parameter
nn.Cell.__deepcopy__ = _copy_cell
