"""Which samples of a data set are read, and in which order."""
import enum
import itertools
import math
import numbers

import numpy as np
from tessera import data as _data

from mindspore.dataset import config
from mindspore.dataset.ragged import RaggedRows


class Shuffle(str, enum.Enum):
    """What a data set of files shuffles."""
    FALSE = "false"
    ADAPTIVE = "adaptive"
    GLOBAL = "global"
    PARTIAL = "partial"
    FILES = "files"
    INFILE = "infile"


def _count(who, name, value, low=0):
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"{who}: {name} must be int, but got {type(value).__name__}.")
    if value is not None and value < low:
        raise ValueError(f"{who}: {name} should be at least {low}, but got {value}.")
    return value


class Sampler:
    """To be derived: iterating over it gives the numbers of samples. dataset_size is the data set's; num_samples: the first so many."""

    shuffles, shards = False, (None, None)
    child_sampler = None
    # Whether what it chooses is another choice in each epoch.
    is_drawn = False
    # Whether it chooses rows by their numbers, in an order of its own.
    by_number = True

    def add_child(self, sampler):
        """Chooses of what another sampler has chosen, which chooses first."""
        if self.child_sampler is not None:
            raise RuntimeError(f"{type(self).__name__}: it has a child already; a child may have one of its own")
        self.child_sampler = None if sampler is None else of(sampler)

    def get_child(self):
        """The sampler of whose choice this one chooses, or None."""
        return self.child_sampler

    @property
    def chooses_by_number(self):
        """Whether it chooses rows by their numbers: also where it has a child."""
        return self.by_number or self.child_sampler is not None

    @property
    def source_settings(self):
        """(shuffle, num_shards, shard_id) of the data set that it chooses of: the whole in order where it has a child."""
        return (self.shuffles, *self.shards) if self.child_sampler is None else (False, None, None)

    def choose(self, native, in_order):
        """tessera's data set of what this sampler chooses, of what its child has chosen, of that one, whose rows in order are the other's."""
        return self.apply(native, in_order) if self.child_sampler is None else self._apply_places(in_order)

    def numbers(self, rng, count, in_order):
        """Which of `count` rows it chooses, of those of the data set: an array of their places."""
        self.dataset_size = count
        chosen = np.array([int(place) for place in itertools.islice(self, self.num_samples or None)], np.int64)
        for place in chosen:
            if not 0 <= place < count:
                raise ValueError(f"{type(self).__name__}: there is no sample {place} among {count}")
        return chosen

    def _chain(self):
        """This sampler behind those below it, in the order in which they choose."""
        return ([] if self.child_sampler is None else self.child_sampler._chain()) + [self]

    def _apply_places(self, in_order):
        """tessera's data set of the rows that the whole chain chooses."""
        chain, seed = self._chain(), config.get_seed() or 0
        num_fixed = next((i for i, sampler in enumerate(chain) if sampler.is_drawn), len(chain))
        rng = np.random.default_rng((seed, 0))
        places = _chosen_by(chain[:num_fixed], rng, np.arange(in_order.get_dataset_size()), in_order)
        drawn = _chosen_by(chain[num_fixed:], rng, np.arange(len(places)), in_order)
        if len(drawn) == 0:
            raise RuntimeError(f"{type(self).__name__}: it chooses no sample")
        if num_fixed == len(chain):
            made = _rows_of_places(in_order, places.tolist())
        else:
            made = _drawn_rows(in_order, places.tolist(), lambda rng: _chosen_by(chain[num_fixed:], rng, np.arange(len(places)), in_order), len(drawn))
        shards = math.prod(sampler.shards[0] or 1 for sampler in chain)
        return made.as_part_of(shards) if shards > 1 else made

    def __init__(self, num_samples=None):
        self.num_samples, self.dataset_size = _count(type(self).__name__, "num_samples", num_samples), 0

    def __iter__(self):
        raise NotImplementedError("Sampler.__iter__ must be overridden")

    def apply(self, native, in_order):
        """tessera's data set of what it chooses of that one, whose rows in order are the other's."""
        return self._apply_places(in_order)


def _rows_of_places(in_order, places):
    """tessera's data set of the rows at these places."""
    rows = _Chosen(in_order, places)
    if isinstance(in_order, RaggedRows):
        return RaggedRows.listed(rows, in_order.column_names(), _data.tensors({"place": np.arange(len(places))}), in_order.num_shards())
    return _data.generator(rows, in_order.column_names(), 0, False, 1, 0, config.get_seed() or 0)


def _chosen_by(chain, rng, places, in_order):
    """What samplers choose of these places, one of what the one before has chosen."""
    for sampler in chain:
        places = places[sampler.numbers(rng, len(places), in_order)]
    return places


def _drawn_rows(in_order, places, draw, count):
    """tessera's data set of `count` rows: draw(rng) says for each epoch which of those at the places."""
    seed = config.get_seed() or 0
    rows = _Chosen(in_order, places)

    def opened(epoch):
        return (rows[int(number)] for number in draw(np.random.default_rng((seed, epoch))))

    if isinstance(in_order, RaggedRows):
        return RaggedRows.streamed(opened, in_order.column_names(), count, in_order.num_shards(), seed)
    return _data.stream(opened, in_order.column_names(), count, 0, seed, by_epoch=True)


class _DrawnSampler(Sampler):
    """Draws the numbers of samples anew in each epoch, by the seed."""

    is_drawn = True

    def _drawn(self, rng, in_order):
        """The numbers of an epoch."""
        raise NotImplementedError

    def _count(self, in_order):
        """How many an epoch has."""
        return min(self.num_samples or self.dataset_size, self.dataset_size)

    def __iter__(self):
        raise RuntimeError(f"{type(self).__name__}: a data set draws by it; it has no numbers of its own")

    def numbers(self, rng, count, in_order):
        """Those of an epoch."""
        self.dataset_size = count
        return self._drawn(rng, in_order)[:self._count(in_order)]


class WeightedRandomSampler(_DrawnSampler):
    """num_samples samples, each drawn with a probability in proportion to its weight; those behind the weights never. replacement=False: each once, those of
    weight 0 behind all others."""

    def __init__(self, weights, num_samples=None, replacement=True):
        super().__init__(num_samples)
        weights = weights if isinstance(weights, list) else [weights]
        for place, weight in enumerate(weights):
            if not isinstance(weight, numbers.Number):
                raise TypeError(f"type of weights element must be number, but got w[{place}]: {weight}, type: {type(weight)}.")
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement must be a boolean value but was: {replacement}.")
        self.weights, self.replacement = weights, replacement

    def _count(self, in_order):
        count = super()._count(in_order)
        weights = np.array(self.weights, np.float64)
        if weights.size == 0:
            raise RuntimeError("WeightedRandomSampler: weights vector must not be empty")
        if not np.isfinite(weights).all() or (weights < 0).any():
            place = int(np.flatnonzero(~(weights >= 0) | np.isinf(weights))[0])
            raise RuntimeError(f"WeightedRandomSampler: weights vector must not contain negative numbers, infinities or NaN, got: weights[{place}] = {weights[place]}")
        if not weights.any():
            raise RuntimeError("WeightedRandomSampler: elements of weights vector must not be all zero")
        if weights.size > self.dataset_size:
            raise RuntimeError(f"WeightedRandomSampler: size of sample weights must be less than or equal to num of data, got weight size: {weights.size}, num of "
                               f"data: {self.dataset_size}")
        if not self.replacement and count > weights.size:
            raise RuntimeError(f"WeightedRandomSampler: without replacement, num_samples must be at most the number of weights, {weights.size}, but it is {count}")
        return count

    def _drawn(self, rng, in_order):
        weights = np.array(self.weights, np.float64)
        count = self._count(in_order)
        if self.replacement:
            return rng.choice(weights.size, count, p=weights / weights.sum())
        # Of exponential times at these rates the earliest: Efraimidis and Spirakis, 2006.
        with np.errstate(divide="ignore"):
            times = rng.standard_exponential(weights.size) / weights
        return np.argsort(times, kind="stable")


class PKSampler(_DrawnSampler):
    """num_val samples of each class, drawn of the class's, class after class; shuffle: in a new order of classes. class_column: the column of the classes' numbers."""

    def __init__(self, num_val, num_class=None, shuffle=False, class_column="label", num_samples=None):
        super().__init__(num_samples)
        if isinstance(num_val, bool) or not isinstance(num_val, int):
            raise TypeError(f"num_val must be integer but was: {num_val}.")
        if num_class is not None:
            raise NotImplementedError("Not supported to specify num_class for PKSampler.")
        if not isinstance(shuffle, bool):
            raise TypeError(f"shuffle must be a boolean value but was: {shuffle}.")
        if not isinstance(class_column, str):
            raise TypeError(f"class_column must be a str value but was: {class_column}.")
        if num_val < 1:
            raise RuntimeError(f"PKSampler: num_val must be greater than 0, but got: {num_val}")
        self.num_val, self.shuffle, self.class_column = num_val, shuffle, class_column
        # (a data set, the numbers of the samples of each of its classes) of the last one that was asked for.
        self._of_class = (None, [])

    def add_child(self, sampler):
        """NotImplementedError: it chooses of all rows."""
        raise NotImplementedError("PKSampler: a child is not available: it draws of the classes of all samples. Make it the child of another sampler, whose add_child "
                                  "takes it")

    def _classes(self, in_order):
        """The numbers of the samples of each class."""
        if self._of_class[0] is not in_order:
            if self.class_column not in in_order.column_names():
                raise RuntimeError(f"PKSampler: there is no column \"{self.class_column}\"; there are {in_order.column_names()}")
            labels = getattr(in_order, "labels", None)
            if labels is None:
                labels = [int(row[0].numpy()) for row in in_order.project([self.class_column]).batches(1, 0, 0)]
            self._of_class = (in_order, [np.flatnonzero(labels == label) for label in np.unique(labels)])
        return self._of_class[1]

    def _count(self, in_order):
        every = len(self._classes(in_order)) * self.num_val
        return min(self.num_samples or every, every)

    def _drawn(self, rng, in_order):
        classes = self._classes(in_order)
        order = rng.permutation(len(classes)) if self.shuffle else range(len(classes))
        return np.concatenate([rng.choice(classes[i], self.num_val) for i in order])


class _Chosen:
    """Rows of a data set by their numbers, all read once where the data set is no list."""

    def __init__(self, native, places):
        self._native, self._places, self._rows = native, places, None
        self._row_of = native.by_number() if isinstance(native, RaggedRows) else None

    def __len__(self):
        return len(self._places)

    def __getitem__(self, i):
        if self._row_of is not None:
            return self._row_of(self._places[i])
        if self._rows is None:
            wanted = set(self._places)
            self._rows = {place: tuple(column.numpy() for column in row) for place, row in enumerate(self._native.batches(1, 0, 0)) if place in wanted}
        return self._rows[self._places[i]]


class SequentialSampler(Sampler):
    """In order, from start_index on."""

    by_number = False

    def __init__(self, start_index=None, num_samples=None):
        super().__init__(num_samples)
        self.start_index = _count("SequentialSampler", "start_index", start_index) or 0

    def numbers(self, rng, count, in_order):
        """Those from start_index on."""
        if self.start_index >= count:
            raise RuntimeError(f"SequentialSampler: start_index must be less than the number of rows, {count}, but it is {self.start_index}")
        return np.arange(self.start_index, count)[:self.num_samples or None]

    def apply(self, native, in_order):
        made = in_order.skip(self.start_index) if self.start_index else in_order
        return made.take(self.num_samples) if self.num_samples else made


class RandomSampler(_DrawnSampler):
    """A new order in each epoch; the first num_samples of it. replacement: each sample is drawn of all."""

    shuffles = True

    def __init__(self, replacement=False, num_samples=None, shuffle=None):
        super().__init__(num_samples)
        if shuffle is not None and getattr(shuffle, "value", shuffle) != "global":
            raise NotImplementedError(f"RandomSampler: shuffle={shuffle} is not available: all rows are shuffled, Shuffle.GLOBAL")
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement must be a boolean value but was: {replacement}.")
        self.replacement = self.by_number = replacement

    def _drawn(self, rng, in_order):
        return rng.integers(0, self.dataset_size, self._count(in_order)) if self.replacement else rng.permutation(self.dataset_size)

    def apply(self, native, in_order):
        if self.replacement:
            return super().apply(native, in_order)
        return native.take(self.num_samples) if self.num_samples else native


class DistributedSampler(RandomSampler):
    """Every num_shards-th sample, from number shard_id on, of an order that shuffle says is new in each epoch. Shards have as many samples each, the first ones
    again where they run out; with an offset each sample is in one shard, and the first is that of shard `offset`."""

    def __init__(self, num_shards, shard_id, shuffle=True, num_samples=None, offset=-1):
        super().__init__(False, num_samples)
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise TypeError(f"offset must be integer but was: {offset}.")
        if offset < -1:
            raise ValueError(f"DistributedSampler: offset should be at least -1, but got {offset}.")
        for name, value in (("num_shards", num_shards), ("shard_id", shard_id)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be integer but was: {value}.")
        self.shards, self.shuffles, self.offset = (num_shards, shard_id), bool(shuffle), offset
        self.is_drawn, self.by_number = self.shuffles, offset != -1

    @property
    def source_settings(self):
        """The source shards itself, unless an offset or a child needs numbers."""
        return (False, None, None) if self.by_number else super().source_settings

    def numbers(self, rng, count, in_order):
        """Those of this shard."""
        devices, device = self.shards
        if devices < 1 or not 0 <= device < devices:
            raise ValueError(f"Input shard_id is not within the required interval of [0, {devices - 1}], but got {device}.")
        if self.offset > devices:
            raise RuntimeError(f"DistributedSampler: offset must be at most num_shards, {devices}, but it is {self.offset}")
        offset = max(self.offset, 0)
        first = (device - offset) % devices if offset else device
        size = -(-count // devices) if self.offset == -1 else len(range(first, count, devices))
        places = (first + devices * np.arange(min(self.num_samples or size, size))) % count
        return rng.permutation(count)[places] if self.shuffles else places

    def apply(self, native, in_order):
        return self._apply_places(in_order) if self.by_number else super().apply(native, in_order)


class SubsetSampler(Sampler):
    """The samples of these numbers, in their order."""

    def __init__(self, indices, num_samples=None):
        super().__init__(num_samples)
        self.indices = [indices] if isinstance(indices, int) else [int(i) for i in np.asarray(indices).ravel()] if not isinstance(indices, list) else indices

    def __iter__(self):
        return iter(self.indices)


class SubsetRandomSampler(SubsetSampler):
    """The samples of these numbers, in a new order in each epoch."""

    is_drawn = True

    def numbers(self, rng, count, in_order):
        """All of them, in the epoch's order."""
        return rng.permutation(super().numbers(rng, count, in_order))

    def apply(self, native, in_order):
        chosen = super().numbers(None, in_order.get_dataset_size(), in_order)
        if len(chosen) == 0:
            raise RuntimeError("SubsetRandomSampler: it chooses no sample")
        made = _rows_of_places(in_order, chosen.tolist())
        return made.shuffle(len(chosen)) if len(chosen) > 1 else made


class IterSampler(Sampler):
    """The samples whose numbers iterating over `sampler` gives."""

    def __init__(self, sampler, num_samples=None):
        super().__init__(num_samples)
        self.sampler = sampler

    def __iter__(self):
        return iter(self.sampler)


def limited(sampler, num_samples):
    """(the sampler, num_samples) of a data set in memory, whose num_samples is that of a sequence of numbers."""
    return (sampler, num_samples) if sampler is None or isinstance(sampler, Sampler) else (of(sampler, num_samples), None)


def settings(sampler, shuffle, num_shards, shard_id, num_samples, error=RuntimeError):
    """(shuffle, num_shards, shard_id) of a data set that has the sampler, a sequence of numbers, or None. error: of arguments that the sampler excludes."""
    if sampler is None:
        return shuffle, num_shards, shard_id
    made = of(sampler)
    for name, value in (("shuffle", shuffle), ("sharding", num_shards), ("num_samples", num_samples)):
        if value is not None:
            raise error(f"sampler and {name} cannot be specified at the same time.")
    return made.source_settings


def implied(num_samples, shuffle, num_shards, shard_id, is_list):
    """The sampler of a data set that was made without one."""
    shuffles = is_list if shuffle is None else bool(shuffle)
    if num_shards is not None:
        return DistributedSampler(num_shards, shard_id, shuffles, num_samples)
    return RandomSampler(num_samples=num_samples) if shuffles else SequentialSampler(num_samples=num_samples)


def of(sampler, num_samples=None):
    """The Sampler of a sampler or of anything that gives numbers."""
    if isinstance(sampler, Sampler):
        return sampler
    if not hasattr(sampler, "__iter__"):
        raise TypeError(f"Unsupported sampler object of type ({type(sampler)}).")
    return IterSampler(sampler, num_samples)
