"""Values of an optimizer's states, which belong to the Model that trains with it."""
import weakref

# Counters of the engine, which a checkpoint holds only where they are not 0.
_MAY_BE_MISSING = ("random_step", "accu")


class States:
    """Loads moments, counters and learning rates of an optimizer: at once where a Model has them, else when one is made."""

    def __init__(self):
        self._model, self._of_network, self._waiting = None, (), {}

    def belong_to(self, model, network):
        """From now on those of a tessera.Model, which gets what was loaded before."""
        self._model, self._of_network = weakref.ref(model), {parameter.name for parameter in network.parameters()}
        self.load(self._waiting)
        self._waiting = {}

    def load(self, values):
        """Takes parameters of these names; of a state that is split over ranks this rank's slice, or the whole. Returns the names of
        the states that found none."""
        model = self._model() if self._model is not None else None
        if model is None:
            self._waiting |= values
            return []
        not_loaded = []
        for name in model.names():
            if name in self._of_network:
                continue
            if name in values:
                _set(model, name, values[name])
            elif not name.startswith(_MAY_BE_MISSING):
                not_loaded.append(name)
        return not_loaded


def _set(model, name, parameter):
    own = model.local_value(name)
    value = parameter.value().astype(own.dtype)
    if value.shape == own.shape:
        model.set_local_value(name, value)
        return
    try:
        model.set_value(name, value)
    except ValueError as error:
        raise RuntimeError(f"For 'load_param_into_net', {name} in the argument 'parameter_dict' does not fit: {error}; a checkpoint of slices is "
                           "loaded after Model.build") from None
