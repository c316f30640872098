"""The loss of token predictions."""
import tessera

from mindspore._missing import missing
from mindspore.nn.cell import Cell
from mindspore.nn.transformer.op_parallel_config import OpParallelConfig, default_dpmp_config


class CrossEntropyLoss(Cell):
    """(logits [n,v], label int32 [n], input_mask [n]) -> sum(input_mask * -log softmax(logits)[label]) / (sum(input_mask) + 1e-5),
    in float32."""

    def __init__(self, parallel_config=default_dpmp_config):
        super().__init__(auto_prefix=False)
        if not isinstance(parallel_config, OpParallelConfig):
            raise TypeError(f"For 'CrossEntropyLoss', the class variable 'parallel_config' must be OpParallelConfig, but got "
                            f"{type(parallel_config).__name__}.")
        self.loss = tessera.nn.CrossEntropyLoss(parallel_config.native())

    def construct(self, logits, label, input_mask):
        return self.loss(logits, label, input_mask)


__getattr__ = missing(__name__)
del missing
