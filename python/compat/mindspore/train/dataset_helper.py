"""DatasetHelper: the rows that a training loop of one's own reads."""
from mindspore._missing import missing
from mindspore.dataset.datasets import native_dataset, rows_of_ranks


class DatasetHelper:
    """The batches of an epoch, and with epoch_num of so many: tuples of tensors. Data sinking is not part of such a loop:
    dataset_sink_mode must be False, and sink_size and iter_first_order, which belong to it, have no effect."""

    def __init__(self, dataset, dataset_sink_mode=True, sink_size=-1, epoch_num=1, iter_first_order=0):
        if not isinstance(dataset_sink_mode, bool):
            raise TypeError(f"For 'DatasetHelper', the argument 'dataset_sink_mode' must be bool, but got {type(dataset_sink_mode).__name__}.")
        if dataset_sink_mode:
            raise RuntimeError("For 'DatasetHelper', data sinking is not available: pass dataset_sink_mode=False, the steps are the same")
        self._dataset, self._num_workers = native_dataset(dataset, rows_of_ranks())
        self._epochs = None
        self._epoch_num, self._num_opened = epoch_num, 0

    def __iter__(self):
        if self._epochs is None:
            first_epoch = self._num_opened * max(self._epoch_num, 1)
            self._num_opened += 1
            self._epochs = self._dataset.batches(num_epochs=self._epoch_num, num_workers=self._num_workers, first_epoch=first_epoch)
        for _ in range(self._dataset.get_dataset_size()):
            row = next(self._epochs, None)
            if row is None:
                self._epochs = None
                return
            yield tuple(row)

    def sink_size(self):
        """Steps of an iteration: 1."""
        return 1

    def stop_send(self):
        """Ends reading."""
        self._epochs = None

    release = stop_send


def connect_network_with_dataset(network, dataset_helper):
    """The network; rows are passed to it by the loop."""
    if not isinstance(dataset_helper, DatasetHelper):
        raise TypeError(f"The argument 'dataset_helper' must be DatasetHelper, but got {type(dataset_helper).__name__}.")
    return network


__getattr__ = missing(__name__)
del missing
