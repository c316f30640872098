"""Batch norm in data parallel: each rank's moving statistics look as on one device, and checkpoints load on any number of ranks."""
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

HEADER = """
import os

import numpy as np
import mindspore as ms
import mindspore.dataset as ds
import tessera
from mindspore import Tensor, nn
from mindspore.communication import get_group_size, get_rank, init
from mindspore.train.callback import CheckpointConfig, ModelCheckpoint

rank, size = 0, 1
if "OMPI_COMM_WORLD_SIZE" in os.environ:
    init()
    rank, size = get_rank(), get_group_size()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
ms.set_seed(3)
x = np.random.default_rng(0).standard_normal((48, 6)).astype(np.float32)
y = x[:, :3].argmax(1).astype(np.int32)


def new_net():
    return nn.SequentialCell(nn.Dense(6, 8), nn.BatchNorm1d(8), nn.Dense(8, 3))


def new_model(net):
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    return ms.Model(net, loss, nn.Momentum(net.trainable_params(), 0.1, 0.9), metrics={"acc"})


def rows():
    return ds.NumpySlicesDataset({"x": x, "y": y}, shuffle=False, num_shards=size, shard_id=rank).batch(8)


def train(net, callbacks=None):
    model = new_model(net)
    model.train(1, rows(), callbacks=callbacks, dataset_sink_mode=False)
    return model


def statistics(net):
    return np.stack([net[1].moving_mean.asnumpy(), net[1].moving_variance.asnumpy()])


def by_hand(net, rows):
    hidden = rows @ net[0].weight.asnumpy().T + net[0].bias.asnumpy()
    mean, variance = statistics(net)
    hidden = (hidden - mean) / np.sqrt(variance + 1e-5) * net[1].gamma.asnumpy() + net[1].beta.asnumpy()
    return hidden @ net[2].weight.asnumpy().T + net[2].bias.asnumpy()
"""


def on_ranks(tmp_path, script, ranks, *arguments):
    """The script on some ranks, as processes; on one without any launcher."""
    (tmp_path / "script.py").write_text(HEADER + script)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))}
    command = [sys.executable, "script.py", *map(str, arguments)]
    if ranks > 1:
        if shutil.which("mpirun") is None:
            pytest.skip("mpirun is absent")
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def saved_rows(tmp_path, ranks):
    """[ranks, 2, 8]: the moving means and variances that the ranks had."""
    return np.stack([np.load(tmp_path / f"statistics_{rank}.npy") for rank in range(ranks)])


SHOWN = """
net = new_net()
moving = net[1].moving_mean
moving.set_data(Tensor(np.full(8, 1 + rank, np.float32)))
model = new_model(net)
model.build(rows())
assert moving.shape == (8,) and (moving.asnumpy() == 1 + rank).all(), moving.asnumpy()
model.train(1, rows(), dataset_sink_mode=False)
own = moving.asnumpy().copy()
assert own.shape == moving.shape == net[1].moving_variance.shape == (8,)
all_of_them = tessera.ops.all_gather(tessera.Tensor(own.reshape(1, 8))).numpy()
assert (all_of_them[rank] == own).all() and len(np.unique(all_of_them, axis=0)) == size
if rank == size - 1:  # reading and setting is the rank's own matter
    moving.set_data(Tensor(own + 1))
    assert (moving.asnumpy() == own + 1).all()
    moving.set_data(Tensor(own))
tessera.cluster.barrier()
model.train(1, rows(), dataset_sink_mode=False)
kept = moving.asnumpy().copy()
del model
assert (moving.asnumpy() == kept).all()  # the network goes on without its model
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_sees_and_sets_its_own_statistics(tmp_path, ranks):
    on_ranks(tmp_path, SHOWN, ranks)


PREDICTED = """
net = new_net()
before = net(Tensor(x[:5])).asnumpy()
model = new_model(net)
np.testing.assert_allclose(model.predict(Tensor(x[:5])).asnumpy(), before, rtol=1e-4, atol=1e-5)
model.train(2, rows(), dataset_sink_mode=False)
for count in (1, 5):
    own = x[rank:rank + count]
    predicted = model.predict(Tensor(own)).asnumpy()
    assert predicted.shape == (count, 3), predicted.shape
    np.testing.assert_allclose(predicted, by_hand(net, own), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(net(Tensor(own)).asnumpy(), predicted, rtol=1e-4, atol=1e-5)
"""


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_rank_predicts_all_its_rows_by_its_own_statistics(tmp_path, ranks):
    on_ranks(tmp_path, PREDICTED, ranks)


def test_so_it_does_where_the_ranks_share_the_optimizers_work(tmp_path):
    script = """
ms.set_auto_parallel_context(enable_parallel_optimizer=True, parallel_optimizer_config={"parallel_optimizer_threshold": 0})
""" + PREDICTED
    on_ranks(tmp_path, script, 2)


SAVED = """
import sys
how = sys.argv[1]
net = new_net()
if how == "function":
    train(net)
    ms.save_checkpoint(net, f"own_{rank}.ckpt")
    path = "own_0.ckpt"
else:
    folder = "apart/rank_" if "apart" in how else "together"
    config = CheckpointConfig(save_checkpoint_steps=1, integrated_save="whole" in how)
    train(net, [ModelCheckpoint("net", f"{folder}{rank}" if "apart" in how else folder, config)])
    path = f"{folder}{0 if 'apart' in how else ''}/net-1_{48 // size // 8}.ckpt"
np.save(f"statistics_{rank}.npy", statistics(net))
if rank == 0:
    open("path", "w").write(path)
"""

LOADED = """
import sys
expected = np.load("expected.npy")[rank]
found = ms.load_checkpoint(open("path").read())
for how in ("before", "built", "trained"):
    net = new_net()
    if how == "before":
        assert ms.load_param_into_net(net, found)[0] == []
        np.testing.assert_allclose(statistics(net), expected, rtol=1e-6)
        np.testing.assert_allclose(net(Tensor(x[:5])).asnumpy(), by_hand(net, x[:5]), rtol=1e-4, atol=1e-5)
        model = new_model(net)
    elif how == "built":
        model = new_model(net)
        model.build(rows())
        assert ms.load_param_into_net(net, found)[0] == []
    else:
        model = train(net)
        assert ms.load_param_into_net(net, found)[0] == []
    np.testing.assert_allclose(statistics(net), expected, rtol=1e-6)
    if "exact" in sys.argv:
        assert (statistics(net) == expected).all()
    np.testing.assert_allclose(model.predict(Tensor(x[:5])).asnumpy(), by_hand(net, x[:5]), rtol=1e-4, atol=1e-5)
    assert 0 <= model.eval(rows(), dataset_sink_mode=False)["acc"] <= 1
    model.train(1, rows(), dataset_sink_mode=False)
"""


def load_on(tmp_path, ranks, expected, *arguments):
    np.save(tmp_path / "expected.npy", expected)
    said = on_ranks(tmp_path, LOADED, ranks, *arguments)
    assert "not loaded" not in said, said


@pytest.mark.parametrize("how", ["whole", "whole apart", "slices", "slices apart", "function"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_checkpoints_of_any_number_of_ranks_load_on_any_other(tmp_path, how, ranks):
    on_ranks(tmp_path, SAVED, ranks, how)
    own = saved_rows(tmp_path, ranks)
    is_of_all = how in ("whole", "whole apart", "slices")  # else the file is rank 0's
    for readers in (1, 2, 3):
        expected = [own[0]] * readers if not is_of_all else own if readers == ranks else [own.mean(0)] * readers
        exact = [] if is_of_all and readers != ranks else ["exact"]
        load_on(tmp_path, readers, np.stack(expected), *exact)


def test_a_whole_file_has_statistics_as_on_one_device(tmp_path):
    import mindspore as ms
    on_ranks(tmp_path, SAVED, 2, "whole")
    found = ms.load_checkpoint(str(tmp_path / (tmp_path / "path").read_text()))
    own = saved_rows(tmp_path, 2)
    for i, name in enumerate(("1.moving_mean", "1.moving_variance")):
        assert found[name].shape == (8,)
        np.testing.assert_allclose(found[name].asnumpy(), own[:, i].mean(0), rtol=1e-6)
        np.testing.assert_array_equal(found[name].rows_of_ranks.asnumpy(), own[:, i])
    assert not [name for name in found if name.endswith(".of_ranks")]
    assert list(ms.load_checkpoint(str(tmp_path / (tmp_path / "path").read_text()), specify_prefix="1.moving_mean")) == ["1.moving_mean"]


ROWS = """
import sys
saved_rows = np.load("rows.npy")
net = new_net()
values = {p.name: p for p in net.get_parameters()} | {"1.moving_mean": ms.Parameter(Tensor(saved_rows), name="1.moving_mean")}
assert ms.load_param_into_net(net, values)[0] == []
expected = saved_rows[rank] if len(saved_rows) == size > 1 else saved_rows.mean(0)
np.testing.assert_allclose(net[1].moving_mean.asnumpy(), expected, rtol=1e-6)
train(net)
"""


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_files_that_have_a_row_of_each_rank_load_as_well(tmp_path, ranks):
    np.save(tmp_path / "rows.npy", np.arange(16, dtype=np.float32).reshape(2, 8))
    on_ranks(tmp_path, ROWS, ranks)


BROADCAST = """
ms.set_auto_parallel_context(parameter_broadcast=True)
net = new_net()
net[1].moving_mean.set_data(Tensor(np.full(8, 1 + rank, np.float32)))
model = new_model(net)
model.build(rows())
assert (net[1].moving_mean.asnumpy() == 1).all()
"""


def test_parameter_broadcast_gives_all_ranks_the_first_ones_statistics(tmp_path):
    on_ranks(tmp_path, BROADCAST, 2)
