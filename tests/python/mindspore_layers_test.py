"""Transformers of release 2, volumes, lists of cells, copies: names, refusals and what the suite reference cannot compare."""
import copy
import importlib

import numpy as np
import pytest
import mindspore as ms
import mindspore.dataset as ds
from mindspore import Tensor, nn, ops

pytestmark = pytest.mark.usefixtures("fresh_context")

X = Tensor(np.random.default_rng(0).normal(size=(3, 4, 8)).astype(np.float32))


def names(cell):
    return [parameter.name for parameter in cell.get_parameters()]


def test_parameters_of_a_stack_are_named_by_layer_and_start_alike():
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, nn.LayerNorm((8, )))
    ends = ["self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight", "self_attn.out_proj.bias", "dense1.weight", "dense1.bias",
            "dense2.weight", "dense2.bias", "norm1.gamma", "norm1.beta", "norm2.gamma", "norm2.beta"]
    assert names(stack) == [f"layers.{i}.{end}" for i in range(2) for end in ends] + ["norm.gamma", "norm.beta"]
    first, second = stack.layers
    for one, other in zip(first.get_parameters(), second.get_parameters()):
        assert (one.asnumpy() == other.asnumpy()).all()
    assert first.dense1.weight.asnumpy().std() > 0


def test_attention_with_fast_kernels_and_without_is_one():
    attention = nn.MultiheadAttention(8, 2)
    (fast, ), (slow, weights) = attention(X, X, X, need_weights=False), attention(X, X, X)
    np.testing.assert_allclose(fast.asnumpy(), slow.asnumpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(weights.asnumpy().sum(-1), 1, rtol=1e-6)


def test_a_transformer_trains():
    class Copies(nn.Cell):
        def __init__(self):
            super().__init__()
            self.transformer = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

        def construct(self, x):
            return self.transformer(x, x)

    class Losses(ms.Callback):
        def step_end(self, run_context):
            losses.append(float(run_context.original_args().net_outputs.asnumpy()))

    losses, net = [], Copies()
    rows = ds.NumpySlicesDataset({"x": X.asnumpy(), "y": 0.1 * X.asnumpy()}, shuffle=False).batch(3)
    ms.Model(net, nn.MSELoss(), nn.Adam(net.trainable_params(), 1e-2)).train(8, rows, Losses())
    assert len(losses) == 8 and losses[-1] < losses[0]


@pytest.mark.parametrize("call, error, message", [
    (lambda: nn.MultiheadAttention(8, 3), ValueError, "'embed_dim' must be divisible by 'num_heads'"),
    (lambda: nn.MultiheadAttention(8, 2)(X, X, X, key_padding_mask=Tensor(np.ones((4, 3)), ms.int32)), ValueError, "only bool and floating types"),
    (lambda: nn.TransformerEncoderLayer(8, 2, activation="tanh"), ValueError, "relu/gelu"),
    (lambda: nn.TransformerEncoderLayer(8, 2, activation=nn.Tanh()), ValueError, "'activation'"),
    (lambda: nn.Transformer(8, 2, 1, 1)(X, X[:, :2]), ValueError, "batch size"),
    (lambda: nn.Conv3d(2, 3, 3, group=2), ValueError, "divisible by 'group'"), (lambda: nn.Conv3d(2, 4, (3, 3)), TypeError, "tuple of 3"),
    (lambda: nn.Conv3d(2, 4, 3, padding=1), ValueError, "'padding' must be zero"), (lambda: nn.MaxPool3d(2, return_indices=True), NotImplementedError, "not available"),
    (lambda: nn.MaxPool2d(2, return_indices=True), ValueError, "pad_mode is not 'pad'"),
    (lambda: nn.Dropout2d(1.5), ValueError, r"range \[0, 1\]"), (lambda: nn.Embedding(4, 2, padding_idx=4), ValueError, "'padding_idx'"),
    (lambda: ops.vmap(lambda x: x, in_axes=3)(X), ValueError, "out of the input's 3 dims"),
    (lambda: ops.jacrev(lambda x: x, 1)(X), ValueError, "out of the 1 inputs"), (lambda: ops.jacrev(lambda x: x, "0"), TypeError, "'grad_position'")])
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_channels_are_dropped_whole():
    x = np.ones((4, 50, 3, 2), np.float32)
    drop = nn.Dropout2d(0.4).set_train()
    made = drop(Tensor(x)).asnumpy()
    assert (made.min((2, 3)) == made.max((2, 3))).all() and {round(float(v), 5) for v in np.unique(made)} == {0.0, round(1 / 0.6, 5)}
    assert 0.4 < (made[..., 0, 0] > 0).mean() < 0.8
    assert (nn.Dropout1d(1.0).set_train()(X).asnumpy() == 0).all() and (nn.Dropout3d(0.5)(X).asnumpy() == X.asnumpy()).all()


def test_lists_of_cells_change():
    cells = nn.CellList([nn.Dense(2, 2)])
    cells.insert(0, nn.ReLU())
    cells.extend([nn.Dense(2, 3)]).append(nn.Tanh())
    assert [type(cell).__name__ for cell in cells] == ["ReLU", "Dense", "Dense", "Tanh"] and names(cells) == ["1.weight", "1.bias", "2.weight", "2.bias"]
    cells[1] = nn.Dense(2, 5)
    del cells[0]
    assert [p.shape for p in cells.get_parameters()] == [(5, 2), (5, ), (3, 2), (3, )] and names(cells)[0] == "0.weight" and len(cells) == 3
    with pytest.raises(IndexError):
        cells.insert(7, nn.ReLU())
    with pytest.raises(TypeError, match="subclass of Cell"):
        cells.insert(0, 3)
    chain = nn.SequentialCell(nn.Dense(2, 2)).append(nn.Dense(2, 1))
    assert chain(Tensor(np.ones((4, 2), np.float32))).shape == (4, 1)


def test_a_batch_of_batches():
    x = np.arange(24, dtype=np.float32).reshape(12, 2)
    batches = [row[0].asnumpy() for row in ds.NumpySlicesDataset({"x": x}, shuffle=False).batch(2).batch(3).create_tuple_iterator(num_epochs=1)]
    assert [batch.shape for batch in batches] == [(3, 2, 2)] * 2
    assert (np.concatenate(batches).reshape(12, 2) == x).all()


def test_the_default_is_no_sinking_so_that_callbacks_see_every_step():
    seen = []

    class Steps(ms.Callback):
        def step_end(self, run_context):
            seen.append(run_context.original_args().cur_step_num)

    net = nn.Dense(2, 1)
    rows = ds.NumpySlicesDataset({"x": np.ones((6, 2), np.float32), "y": np.ones((6, 1), np.float32)}).batch(2)
    model = ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
    model.train(1, rows, Steps())
    model.train(1, rows, Steps(), dataset_sink_mode=True)
    assert seen == [1, 2, 3, 3]


def test_a_padding_row_starts_as_zeros():
    one, other = (nn.Embedding(5, 3, padding_idx=2).embedding_table.asnumpy() for _ in range(2))
    assert (one[2] == 0).all() and (one[[0, 1, 3, 4]] != 0).all() and (one[0] != other[0]).any()


def test_an_initializer_of_ones_own_writes_the_values():
    from mindspore.common.initializer import Initializer, _assignment, initializer

    class Ramp(Initializer):
        def __init__(self, step):
            super().__init__(step=step)
            self.step = step

        def _initialize(self, arr):
            _assignment(arr, self.step * np.arange(arr.size).reshape(arr.shape))

    wanted = 0.5 * np.arange(6).reshape(3, 2)
    assert (nn.Dense(2, 3, weight_init=Ramp(0.5)).weight.asnumpy() == wanted).all()
    assert (initializer(Ramp(0.5), (3, 2)).init_data().asnumpy() == wanted).all()
    assert (ms.Parameter(initializer(Ramp(0.5), (3, 2), ms.float16)).asnumpy() == wanted).all()


def test_places_of_earlier_releases():
    from mindspore import ms_class
    from mindspore.nn.loss.loss import _Loss
    from mindspore.parallel.nn import TransformerOpParallelConfig

    assert _Loss is nn.LossBase and TransformerOpParallelConfig is nn.transformer.TransformerOpParallelConfig and ms_class(nn.ReLU) is nn.ReLU


def test_parameters_within_another_cell_are_named_by_attributes():
    assert names(nn.PReLU()) == ["a"] and names(nn.SequentialCell(nn.PReLU(), nn.MultiheadAttention(4, 2))) == [
        "0.w", "1.in_proj_weight", "1.in_proj_bias", "1.out_proj.weight", "1.out_proj.bias"]
    assert [path for path, _ in nn.MultiheadAttention(4, 2).cells_and_names()] == ["", "out_proj"]


def test_a_target_network_is_a_deep_copy():
    policy = nn.SequentialCell([nn.Dense(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(p=0.3), nn.Dense(8, 2)])
    target = copy.deepcopy(policy)
    rows = Tensor(np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32))
    assert names(target) == names(policy) and (target(rows).asnumpy() == policy(rows).asnumpy()).all()
    optimizer = nn.Adam(policy.trainable_params(), 0.1)
    gradients = ms.value_and_grad(lambda x: ops.ReduceSum()(policy(x) ** 2), None, optimizer.parameters)
    before = target(rows).asnumpy()
    optimizer(gradients(rows)[1])
    assert (target(rows).asnumpy() == before).all() and (policy(rows).asnumpy() != before).any()
    for mine, its in zip(target.trainable_params(), policy.trainable_params()):
        mine.set_data(its)
    assert (target(rows).asnumpy() == policy(rows).asnumpy()).all()


MODULES = ("mindspore", "mindspore.nn", "mindspore.ops", "mindspore.numpy", "mindspore.dataset", "mindspore.dataset.vision", "mindspore.dataset.transforms",
           "mindspore.train", "mindspore.communication", "mindspore.common.initializer", "mindspore.parallel")


@pytest.mark.parametrize("name", MODULES)
def test_a_star_import_gives_what_all_names(name):
    module = importlib.import_module(name)
    found = {}
    exec(f"from {name} import *", found)
    assert set(module.__all__) == set(found) - {"__builtins__"}
    assert module.__all__ and not [one for one in module.__all__ if one.startswith("_") or type(getattr(module, one)).__name__ == "module"]
    assert not {"tessera", "missing", "annotations", "to_native", "pi"} & set(module.__all__)
