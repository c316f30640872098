"""A Model's training as a cell: what Model.train_network is, and train_network of callbacks."""
import tessera

from mindspore.common.parameter import ParameterTuple
from mindspore.context import ParallelMode
from mindspore.nn.cell import Cell
from mindspore.nn.wrap.cell_wrapper import TrainOneStepCell, WithLossCell


class _Unchanged:
    """Cells that are told modes as before, though they become part of another one within: a network that is told one is then not traced anew."""

    def __init__(self, *cells):
        self._was = [(cell, cell.__dict__.get("_is_part", False)) for cell in cells if isinstance(cell, Cell)]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for cell, was in self._was:
            cell.__dict__["_is_part"] = was


class ModelStep(TrainOneStepCell):
    """What a Model trains: its parameters are the network's, the loss function's and the optimizer's states, with the values that they have in the
    training. A call is one step of it, as Model.train makes it, and returns the loss, float32 without dims. states: those of all pipeline stages, None
    where they are the optimizer's: every rank has all, for it takes part in reading them."""

    def __init__(self, model, network, loss_fn, optimizer, parallel_mode, states):
        Cell.__init__(self, auto_prefix=False)
        # Not TrainOneStepCell's __init__, which sets the network's mode and spreads a step of its own over the ranks.
        self.__dict__.update(_model=model, _has_agreed=True, return_grad=False, sens=1.0, parallel_mode=parallel_mode, mean=False,
                             reducer_flag=parallel_mode in (ParallelMode.DATA_PARALLEL, ParallelMode.HYBRID_PARALLEL))
        with _Unchanged(network, loss_fn, optimizer):
            self.network = network if loss_fn is None else WithLossCell(network, loss_fn)
            if states is None:
                self.optimizer, self.weights = optimizer, optimizer.parameters
            else:
                self._updated = ParameterTuple([*self.network.trainable_params(), *states])
                self.__dict__.update(optimizer=optimizer, weights=optimizer.parameters)
        self.weights_name = [weight.name for weight in self.weights]

    def construct(self, *inputs):
        raise RuntimeError("Model.train_network is a step of the Model's training and cannot be part of a network: in a cell or a function that is "
                           "compiled use nn.TrainOneStepCell(nn.WithLossCell(network, loss_fn), optimizer)")

    def _call(self, *inputs):
        return super()._call(*inputs) if tessera.nn.is_tracing() else self._model._train_once(inputs)

    def added_states(self):
        """{name: value} of what a loss scale that changes keeps, as a ModelCheckpoint has it."""
        return self._model._scale_states()

    def take_added_states(self, found):
        """Where these are among the parameters by name the training goes on from them."""
        self._model._take_scale_states(found)

    @property
    def parameter_layout_dict(self):
        return self._model._layouts_of_network()
