"""Networks that take their batch in pieces."""
import tessera

from mindspore import _check
from mindspore._missing import missing
from mindspore.nn.cell import Cell


class _InPieces(Cell):
    def __init__(self, network, count):
        super().__init__(auto_prefix=False)
        if not isinstance(network, tessera.nn.Cell):
            raise TypeError(f"For '{type(self).__name__}', the argument 'network' must be Cell, but got {type(network).__name__}.")
        self.network, self._count = network, count

    def construct(self, *inputs):
        total = None
        for i in range(self._count):
            result = self.network(*(self._piece(x, i) for x in inputs))
            total = result if total is None else total + result
        return total

    def _piece(self, x, i):
        rows = x.shape[0]
        if rows % self._count:
            raise ValueError(f"For micro batch initialization, the 0th dimension shape of input({rows}) must be divided by micro "
                             f"size({self._count})")
        size = rows // self._count
        return x[i * size:(i + 1) * size]


class PipelineCell(_InPieces):
    """The sum of the network's results for micro_size pieces of the batch, one after the other. With pipeline_stages > 1 a Model has them
    pass through the stages instead; the loss and its gradients are that sum all the same. stage_config, segment_config: {path of a cell in the
    network: its pipeline_stage, its pipeline_segment}."""

    def __init__(self, network, micro_size, stage_config=None, segment_config=None):
        super().__init__(network, _check.integer("PipelineCell", "micro_size", micro_size, 1))
        for what, config in (("stage", stage_config), ("segment", segment_config)):
            if config is not None and not isinstance(config, dict):
                raise TypeError(f"For 'PipelineCell', the argument '{what}_config' must be dict, but got {type(config).__name__}.")
            cells = dict(network.cells_and_names()) if config else {}
            absent = [path for path in config or () if path not in cells]
            if absent:
                raise KeyError(f"For 'PipelineCell', the argument '{what}_config' : {absent} is not found in 'network', which has {list(cells)}")
            for path, number in (config or {}).items():
                setattr(cells[path], f"pipeline_{what}", number)

    @property
    def micro_size(self):
        """Into how many pieces the batch is cut."""
        return self._count


class MicroBatchInterleaved(_InPieces):
    """The sum of the network's results for interleave_num pieces of the batch."""

    def __init__(self, network, interleave_num=2):
        super().__init__(network, _check.integer("MicroBatchInterleaved", "interleave_num", interleave_num, 1))


__getattr__ = missing(__name__)
del missing
