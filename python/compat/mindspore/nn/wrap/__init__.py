"""Cells around a network."""
from mindspore._missing import missing
from mindspore.nn.cell import Cell


class WithLossCell(Cell):
    """(data, label) -> loss_fn(backbone(data), label)."""

    def __init__(self, backbone, loss_fn):
        super().__init__(auto_prefix=False)
        self._backbone = backbone
        self._loss_fn = loss_fn

    def construct(self, data, label):
        return self._loss_fn(self._backbone(data), label)

    @property
    def backbone_network(self):
        """The network without the loss."""
        return self._backbone


__getattr__ = missing(__name__)
del missing
