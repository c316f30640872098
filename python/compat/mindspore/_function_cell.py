"""A cell that stands for a function, and how it is spread over the ranks."""
import tessera

from mindspore import context
from mindspore._join import join_job
from mindspore._parallel_options import spread_options

_SPREAD = (context.ParallelMode.SEMI_AUTO_PARALLEL, context.ParallelMode.AUTO_PARALLEL)


class FunctionCell(tessera.nn.Cell):
    """A cell that stands for a function. In semi-automatic and automatic parallel, where the function asks for gradients, it is a
    training step and is split over the ranks: each gives its rows, or all with full_batch, and gets what one device would on all."""

    # How often functions have drawn: those that are written once and compiled at each call go on where the last one was.
    _random_step = tessera.Parameter(tessera.Tensor(0, tessera.int64), name="random_step", requires_grad=False)

    def __init__(self):
        super().__init__(auto_prefix=False)

    def __call__(self, *inputs, **kwargs):
        if not tessera.nn.is_tracing():
            self._spread_as_context_says()
        return super().__call__(*inputs, **kwargs)

    @classmethod
    def restart_random(cls):
        """What functions draw begins anew."""
        cls._random_step.set_data(tessera.Tensor(0, tessera.int64))

    def _spread_as_context_says(self):
        mode = context.get_auto_parallel_context("parallel_mode")
        if mode not in _SPREAD:
            self.__dict__.pop("_spread", None)
            return
        context.check_mode(mode)
        join_job()
        options = spread_options("a function that is differentiated")
        if "_spread" in self.__dict__ and self.__dict__.get("_spread_options") == options:
            return
        context.warn_of_gradients_mean(mode)
        if context.is_literal_gradients_mean(mode):
            raise RuntimeError("TESSERA_LITERAL_GRADIENTS_MEAN=1 needs to know how parameters are split: give the network, its loss and the "
                               "optimizer to a Model")
        self.spread(**options, only_training=True)
        self.__dict__["_spread_options"] = options
