"""Which samples of a data set are read, and in which order."""
import numpy as np
from tessera import data as _data

from mindspore.dataset import config


def _count(who, name, value, low=0):
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"{who}: {name} must be int, but got {type(value).__name__}.")
    if value is not None and value < low:
        raise ValueError(f"{who}: {name} should be at least {low}, but got {value}.")
    return value


class Sampler:
    """To be derived: iterating over it gives the numbers of samples. dataset_size is the data set's; num_samples: the first so many."""

    shuffles, shards = False, (None, None)

    def __init__(self, num_samples=None):
        self.num_samples, self.dataset_size = _count(type(self).__name__, "num_samples", num_samples), 0

    def __iter__(self):
        raise NotImplementedError("Sampler.__iter__ must be overridden")

    def apply(self, native, in_order):
        """tessera's data set of what it chooses of that one, whose rows in order are the other's."""
        self.dataset_size = in_order.get_dataset_size()
        chosen = [int(place) for place in self][:self.num_samples]
        for place in chosen:
            if not 0 <= place < self.dataset_size:
                raise ValueError(f"{type(self).__name__}: there is no sample {place} among {self.dataset_size}")
        return _data.generator(_Chosen(in_order, chosen), in_order.column_names(), 0, False, 1, 0, config.get_seed() or 0)


class _Chosen:
    """Rows of a data set by their numbers, all read once."""

    def __init__(self, native, places):
        self._native, self._places, self._rows = native, places, None

    def __len__(self):
        return len(self._places)

    def __getitem__(self, i):
        if self._rows is None:
            wanted = set(self._places)
            self._rows = {place: tuple(column.numpy() for column in row) for place, row in enumerate(self._native.batches(1, 0, 0)) if place in wanted}
        return self._rows[self._places[i]]


class SequentialSampler(Sampler):
    """In order, from start_index on."""

    def __init__(self, start_index=None, num_samples=None):
        super().__init__(num_samples)
        self.start_index = _count("SequentialSampler", "start_index", start_index) or 0

    def apply(self, native, in_order):
        made = in_order.skip(self.start_index) if self.start_index else in_order
        return made.take(self.num_samples) if self.num_samples else made


class RandomSampler(Sampler):
    """A new order in each epoch; the first num_samples of it."""

    shuffles = True

    def __init__(self, replacement=False, num_samples=None, shuffle=None):
        super().__init__(num_samples)
        if shuffle is not None and getattr(shuffle, "value", shuffle) != "global":
            raise NotImplementedError(f"RandomSampler: shuffle={shuffle} is not available: all rows are shuffled, Shuffle.GLOBAL")
        if replacement:
            raise NotImplementedError("RandomSampler: replacement=True is not available: each sample is read once in an epoch")

    def apply(self, native, in_order):
        return native.take(self.num_samples) if self.num_samples else native


class DistributedSampler(RandomSampler):
    """Every num_shards-th sample, from number shard_id on, of an order that shuffle says is new in each epoch."""

    def __init__(self, num_shards, shard_id, shuffle=True, num_samples=None, offset=-1):
        super().__init__(False, num_samples)
        if offset not in (-1, 0):
            raise NotImplementedError(f"DistributedSampler: offset={offset} is not available: shards begin with the first sample")
        self.shards, self.shuffles = (num_shards, shard_id), bool(shuffle)


class SubsetSampler(Sampler):
    """The samples of these numbers, in their order."""

    def __init__(self, indices, num_samples=None):
        super().__init__(num_samples)
        self.indices = [indices] if isinstance(indices, int) else [int(i) for i in np.asarray(indices).ravel()] if not isinstance(indices, list) else indices

    def __iter__(self):
        return iter(self.indices)


class SubsetRandomSampler(SubsetSampler):
    """The samples of these numbers, in a new order in each epoch."""

    def apply(self, native, in_order):
        made = super().apply(native, in_order)
        return made.shuffle(len(self.indices)) if len(self.indices) > 1 else made


class IterSampler(Sampler):
    """The samples whose numbers iterating over `sampler` gives."""

    def __init__(self, sampler, num_samples=None):
        super().__init__(num_samples)
        self.sampler = sampler

    def __iter__(self):
        return iter(self.sampler)


def settings(sampler, shuffle, num_shards, shard_id):
    """(shuffle, num_shards, shard_id) of a data set that has the sampler, a sequence of numbers, or None."""
    if sampler is None:
        return shuffle, num_shards, shard_id
    if shuffle is not None:
        raise RuntimeError("sampler and shuffle cannot be specified at the same time.")
    if num_shards is not None:
        raise RuntimeError("sampler and sharding cannot be specified at the same time.")
    made = of(sampler)
    return (made.shuffles, *made.shards)


def of(sampler):
    """The Sampler of a sampler or of anything that gives numbers."""
    if isinstance(sampler, Sampler):
        return sampler
    if not hasattr(sampler, "__iter__"):
        raise TypeError(f"Unsupported sampler object of type ({type(sampler)}).")
    return IterSampler(sampler)
