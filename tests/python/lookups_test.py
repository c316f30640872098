"""Tables of which steps look up some rows: LazyAdam, and EmbeddingLookup of the package mindspore."""
import mindspore as ms
import numpy as np
import pytest
import tessera
from mindspore import Tensor, context, nn, ops
from mindspore.communication import init

IDS = np.array([[1, 3], [3, 0]], np.int32)


class Rows(tessera.nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = tessera.nn.Embedding(9, 4)
        self.out = tessera.nn.Dense(4, 2)

    def construct(self, ids):
        return self.out(tessera.ops.reduce_sum(self.table(ids), 1))


def tables_of(optimizer, batches, model=tessera.Model):
    """The table before the first step, and after each."""
    network = Rows()
    made = model(network, tessera.nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), optimizer, seed=3)
    found = [network.table.embedding_table.numpy().copy()]
    for ids in batches:
        made.train_step(np.array(ids, np.int32), np.zeros(len(ids), np.int32))
        found.append(network.table.embedding_table.numpy().copy())
    return found


def moved_rows(before, after):
    return np.nonzero((before != after).any(1))[0].tolist()


BATCHES = [[[1, 3], [3, 0]], [[2, 2], [3, 3]]]


def test_lazy_adam_moves_the_rows_of_the_batch():
    first, second, third = tables_of(tessera.nn.LazyAdam(0.1), BATCHES)
    assert moved_rows(first, second) == [0, 1, 3] and moved_rows(second, third) == [2, 3]
    first, second, third = tables_of(tessera.nn.Adam(0.1), BATCHES)
    assert moved_rows(first, second) == [0, 1, 3] and moved_rows(second, third) == [0, 1, 2, 3]


def test_lazy_adam_is_told_which_tables_are_lazy():
    asked = []

    def is_lazy(name):
        asked.append(name)
        return False

    first, second, third = tables_of(tessera.nn.LazyAdam(0.1, is_lazy=is_lazy), BATCHES)
    assert moved_rows(second, third) == [0, 1, 2, 3] and "table.embedding_table" in asked


def test_lazy_adam_with_groups_and_accumulated_gradients():
    network = Rows()
    groups = [{"params": [network.table.embedding_table], "lr": 0.2}]
    model = tessera.Model(network, tessera.nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"),
                          tessera.nn.LazyAdam(0.1, groups=groups), gradient_accumulation_steps=2, seed=3)
    before = network.table.embedding_table.numpy().copy()
    for ids in BATCHES:
        model.train_step(np.array(ids, np.int32), np.zeros(2, np.int32))
    assert moved_rows(before, network.table.embedding_table.numpy()) == [0, 1, 2, 3]


class Looking(nn.Cell):
    def __init__(self, lookup):
        super().__init__()
        self.lookup = lookup
        self.out = nn.Dense(4, 1)

    def construct(self, ids):
        return self.out(ops.reduce_sum(self.lookup(ids), 1))


def reference_tables(network, table, optimizer):
    step = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), optimizer(network.trainable_params(), learning_rate=0.1))
    step.set_train()
    found = [table.asnumpy().copy()]
    for ids in BATCHES:
        step(Tensor(np.array(ids, np.int32)), Tensor(np.ones((2, 1), np.float32)))
        found.append(table.asnumpy().copy())
    return found


class BySparseGather(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding_table = ms.Parameter(Tensor(np.ones((9, 4), np.float32)), name="embedding_table")
        self.gather = ops.SparseGatherV2()

    def construct(self, ids):
        return self.gather(self.embedding_table, ids, 0)


@pytest.mark.parametrize("optimizer", [nn.LazyAdam, nn.FTRL])
@pytest.mark.parametrize("make, is_sparse", [
    (lambda: nn.EmbeddingLookup(9, 4, "normal"), True),
    (BySparseGather, True),
    (lambda: nn.EmbeddingLookup(9, 4, "normal", target="DEVICE", sparse=False), False),
    (lambda: nn.Embedding(9, 4), False),
], ids=["sparse", "primitive", "dense", "embedding"])
def test_the_reference_is_lazy_where_a_lookup_is_sparse(make, is_sparse, optimizer):
    lookup = make()
    first, second, third = reference_tables(Looking(lookup), lookup.embedding_table, optimizer)
    assert moved_rows(first, second) == ([0, 1, 3] if is_sparse or optimizer is nn.LazyAdam else list(range(9)))
    assert moved_rows(second, third) == ([0, 1, 2, 3] if optimizer is nn.LazyAdam and not is_sparse else [2, 3])


def test_embedding_lookup_gives_rows():
    lookup = nn.EmbeddingLookup(9, 4, "normal")
    table = lookup.embedding_table.asnumpy()
    assert lookup.embedding_table.name == "embedding_table" and table.shape == (9, 4)
    np.testing.assert_array_equal(lookup(Tensor(IDS)).asnumpy(), table[IDS])


def test_embedding_lookup_bounds_the_lengths_of_rows():
    lookup = nn.EmbeddingLookup(9, 4, Tensor(np.full((9, 4), 3, np.float32)), max_norm=2.0)
    np.testing.assert_allclose(np.linalg.norm(lookup(Tensor(IDS)).asnumpy(), axis=2), 2, rtol=1e-6)


def test_embedding_lookup_says_that_a_cache_has_no_effect(capfd):
    for _ in range(2):
        nn.EmbeddingLookup(9, 4, vocab_cache_size=5)
    assert capfd.readouterr().err.count("EmbeddingLookup: vocab_cache_size=5 has no effect: a row that a step looks up has changed") == 1


@pytest.mark.parametrize("words, error, text", [
    (dict(vocab_size=0), ValueError, "the 'vocab_size' must be greater than 0, but got 0"),
    (dict(sparse=1), TypeError, "'sparse'"),
    (dict(target="GPU"), ValueError, r"the 'target' must be one of \['CPU', 'DEVICE'\], but got GPU"),
    (dict(sparse=False), ValueError, "'sparse' must be True when 'target' is \"CPU\""),
    (dict(vocab_cache_size=-1), ValueError, "the 'vocab_cache_size' must be at least 0, but got -1"),
    (dict(max_norm=-1.0), ValueError, "the 'max_norm' must be greater than 0.0"),
])
def test_embedding_lookup_refuses(words, error, text):
    with pytest.raises(error, match=text):
        nn.EmbeddingLookup(**dict(vocab_size=9, embedding_size=4) | words)


def test_slice_modes_are_of_semi_automatic_and_automatic_parallel():
    nn.EmbeddingLookup(9, 4, slice_mode="anything")
    init()
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
    try:
        for mode in ("batch_slice", "table_row_slice", "table_column_slice"):
            nn.EmbeddingLookup(9, 4, slice_mode=mode)
        with pytest.raises(ValueError, match="the 'slice_mode' must be in .*, but got \"anything\""):
            nn.EmbeddingLookup(9, 4, slice_mode="anything")
        with pytest.raises(ValueError, match="'manual_shapes' should not be none"):
            nn.EmbeddingLookup(9, 4, slice_mode="field_slice")
        with pytest.raises(NotImplementedError, match="slice_mode field_slice is not available"):
            nn.EmbeddingLookup(9, 4, slice_mode="field_slice", manual_shapes=(3, 6))
    finally:
        context.reset_auto_parallel_context()
