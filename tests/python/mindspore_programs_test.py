"""What published MindSpore programs do beside the documented ways: steps that are cells with checkpoints, callbacks of one rank, early names."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import mindspore.dataset.engine as engine
import numpy as np
import pytest
import tessera
from mindspore import Parameter, Tensor, context, nn, ops
from mindspore.common.initializer import One
from mindspore.nn.wrap.cell_wrapper import _VirtualDatasetCell

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
RUN = [str(Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera"), "run"]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMI", "RANK_", "DEVICE_"))}


@pytest.fixture(autouse=True)
def as_at_first():
    yield
    context.reset_auto_parallel_context()


def on_two_ranks(tmp_path, script, launcher=(*MPIRUN, "-n", "2")):
    """What the ranks print."""
    if shutil.which(launcher[0]) is None:
        pytest.skip(f"{launcher[0]} is absent")
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run([*launcher, sys.executable, "script.py"], capture_output=True, text=True, timeout=120, cwd=tmp_path, env=CLEAN)
    return done.stdout + done.stderr


HEAD = """
import numpy as np
import mindspore as ms
from mindspore import nn
from mindspore.communication import get_rank, init
from mindspore.train import CheckpointConfig, ModelCheckpoint

init()
rank = get_rank()
X = np.random.default_rng(0).random((16, 2), dtype=np.float32)
Y = X.sum(1, keepdims=True)
net = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")


def rows(x, y):
    return ms.dataset.NumpySlicesDataset((x, y), ["x", "y"], shuffle=False).batch(8)
"""

FUNCTION = HEAD + """
loss = nn.MSELoss()
own = slice(rank * 8, rank * 8 + 8)


def step(*rows):
    g = ms.value_and_grad(lambda x, y: loss(net(x) * 2, y), None, net.trainable_params())
    return float(g(*(ms.Tensor(part) for part in rows))[0].asnumpy())


whole = (Y ** 2).mean()
ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", dataset_strategy=((2, 1), (2, 1)))
np.testing.assert_allclose(step(X, Y), whole, rtol=1e-5)
try:
    step(X[own], Y[own])
except ValueError as error:
    print("refused", error)
ms.set_auto_parallel_context(dataset_strategy="data_parallel")
np.testing.assert_allclose(step(X[own], Y[own]), whole, rtol=1e-5)
print("done")
"""


def test_a_function_step_that_takes_pieces_of_one_batch_refuses_other_rows_on_each_rank(tmp_path):
    said = on_two_ranks(tmp_path, FUNCTION)
    assert said.count("done") == 2, said
    assert said.count('for rows of each rank\'s own set dataset_strategy="data_parallel"): the rows of rank 1 are not rank 0\'s') == 2, said


def rows():
    x = np.random.default_rng(0).random((32, 2), dtype=np.float32)
    return ms.dataset.NumpySlicesDataset((x, x.sum(1, keepdims=True)), ["x", "y"], shuffle=False).batch(8)


def step():
    net = nn.Dense(2, 1)
    return net, nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Momentum(net.trainable_params(), 0.01, 0.9))


def saved(folder):
    return sorted(path.name for path in folder.glob("*.ckpt"))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_step_that_is_a_cell_is_saved_with_its_optimizers_states(tmp_path, is_async):
    net, cell = step()
    saver = ms.ModelCheckpoint("a", str(tmp_path), ms.CheckpointConfig(save_checkpoint_steps=3, keep_checkpoint_max=2, async_save=is_async,
                                                                       append_info=["epoch_num", "step_num", {"rate": 0.5}]))
    ms.Model(cell).train(2, rows(), callbacks=[saver])
    assert saved(tmp_path) == ["a-2_2.ckpt", "a-2_4.ckpt"]
    assert saver.latest_ckpt_file_name == str(tmp_path / "a-2_4.ckpt")
    values = ms.load_checkpoint(saver.latest_ckpt_file_name)
    assert {"weight", "bias", "moments.weight", "moments.bias", "global_step", "learning_rate"} <= set(values)
    assert (int(values["epoch_num"].asnumpy()), int(values["step_num"].asnumpy()), float(values["rate"].asnumpy())) == (2, 8, 0.5)
    np.testing.assert_array_equal(values["weight"].asnumpy(), net.weight.asnumpy())
    again, other = step()
    ms.load_param_into_net(other, values)
    np.testing.assert_array_equal(again.weight.asnumpy(), net.weight.asnumpy())


@pytest.mark.parametrize("settings, names", [
    ({"save_checkpoint_steps": 0, "keep_checkpoint_max": 2}, ["a-2_4.ckpt"]), ({"save_checkpoint_steps": 2, "keep_checkpoint_max": 0}, ["a-2_4.ckpt"]),
    ({"save_checkpoint_steps": 3}, ["a-1_3.ckpt", "a-2_2.ckpt", "a-2_4.ckpt"]),
    ({"keep_checkpoint_max": 0, "keep_checkpoint_per_n_minutes": 60}, ["a-1_1.ckpt", "a-2_4.ckpt"])])
def test_a_config_means_the_same_to_a_step_and_to_a_network_with_an_optimizer(tmp_path, settings, names):
    net, cell = step()
    for folder, model in (("step", ms.Model(cell)), ("model", ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.01)))):
        saver = ms.ModelCheckpoint("a", str(tmp_path / folder), ms.CheckpointConfig(**settings))
        model.train(2, rows(), callbacks=[saver], dataset_sink_mode=False)
        assert saved(tmp_path / folder) == names, folder


def test_an_older_checkpoint_of_a_step_is_there_until_a_thread_has_written_the_newer_one(tmp_path, monkeypatch):
    seen, save = [], tessera.checkpoint.save

    def watched(*arguments, **options):
        save(*arguments, **options)
        seen.append(saved(tmp_path))

    monkeypatch.setattr(tessera.checkpoint, "save", watched)
    ms.Model(step()[1]).train(1, rows(), callbacks=[ms.ModelCheckpoint("a", str(tmp_path), ms.CheckpointConfig(keep_checkpoint_max=1, async_save=True))],
                              dataset_sink_mode=False)
    assert seen == [["a-1_1.ckpt"], ["a-1_1.ckpt", "a-1_2.ckpt"], ["a-1_2.ckpt", "a-1_3.ckpt"], ["a-1_3.ckpt", "a-1_4.ckpt"]]
    assert saved(tmp_path) == ["a-1_4.ckpt"]


def test_another_training_of_a_step_saves_under_another_name(tmp_path):
    for _ in range(2):
        ms.Model(step()[1]).train(1, rows(), callbacks=[ms.ModelCheckpoint("a", str(tmp_path), ms.CheckpointConfig(save_checkpoint_steps=4))])
    assert saved(tmp_path) == ["a-1_4.ckpt", "a_1-1_4.ckpt"]


ONE_SAVES = HEAD + """
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
own = slice(rank * 8, rank * 8 + 8)
optimizer = nn.SGD(net.trainable_params(), 0.01)
for name, model in (("model", ms.Model(net, nn.MSELoss(), optimizer)),
                    ("step", ms.Model(nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)))):
    callbacks = [ModelCheckpoint(name, "saved", CheckpointConfig(save_checkpoint_steps=1, append_info=["step_num"]))] if rank == 0 else []
    model.train(2, rows(X[own], Y[own]), callbacks=callbacks, dataset_sink_mode=False)
    if rank == 0:
        values = ms.load_checkpoint(f"saved/{name}-2_1.ckpt")
        np.testing.assert_array_equal(values["weight"].asnumpy(), net.weight.asnumpy())
        print("saved", name)
try:
    model.train(1, rows(X[own], Y[own]), callbacks=[ModelCheckpoint("x", "other")] * (1 + rank))
except RuntimeError as error:
    print("refused", error)
if rank == 0:
    callbacks = [ModelCheckpoint("x", "other", CheckpointConfig(enc_key=b"0123456789abcdef"))]
try:
    model.train(1, rows(X[own], Y[own]), callbacks=callbacks)
except RuntimeError as error:
    print("refused", error)
"""


def test_a_checkpoint_callback_of_rank_0_alone_saves_and_the_others_take_part(tmp_path):
    said = on_two_ranks(tmp_path, ONE_SAVES)
    assert said.count("saved model") == 1 and said.count("saved step") == 1, said
    assert saved(tmp_path / "saved") == ["model-1_1.ckpt", "model-2_1.ckpt", "step-1_1.ckpt", "step-2_1.ckpt"]
    assert said.count("but they have [1, 2]") == 2 and said.count("has an enc_key, which other ranks are not told") == 2, said


SERVED = """
import os
import numpy as np
import mindspore as ms
from mindspore import nn
from mindspore.communication import init
import tessera

ms.set_ps_context(enable_ps=True)
init()
if tessera.cluster.rank() == 0:
    ms.set_auto_parallel_context(parallel_mode="data_parallel")
x = np.ones((4, 4), np.float32)
net = nn.Dense(4, 3)
net.set_param_ps()
try:
    ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1)).train(1, ms.dataset.NumpySlicesDataset((x, x[:, :3].copy()), shuffle=False).batch(4))
except RuntimeError as error:
    print("refused", error)
"""


def test_a_mode_of_the_worker_alone_is_said_beside_the_servers(tmp_path):
    said = on_two_ranks(tmp_path, SERVED, [*RUN, "-n", "1", "--servers", "1"])
    assert said.count("workers and servers need one parallel_mode, but rank 0 has data_parallel, rank 1 has no mode") == 2, said


def test_settings_of_the_reference_that_are_not_here_are_told_apart_from_unknown_ones():
    context.set_auto_parallel_context(pipeline_result_broadcast=False)
    assert context.get_auto_parallel_context("pipeline_result_broadcast") is False
    with pytest.raises(NotImplementedError, match="pipeline_result_broadcast=True is not available: Model.predict"):
        context.set_auto_parallel_context(pipeline_result_broadcast=True)
    context.set_context(jit_config={"jit_level": "O0"}, inter_op_parallel_num=2)
    with pytest.raises(ValueError, match="is not recognized"):
        context.set_context(jit_konfig={})


def test_the_names_of_early_programs_are_there():
    engine.config.set_seed(1)
    assert ms.dataset.config.get_seed() == 1 and engine.MnistDataset is ms.dataset.MnistDataset
    x = Tensor(np.arange(3, dtype=np.float32))
    assert _VirtualDatasetCell(nn.ReLU())(x).asnumpy().tolist() == [0, 1, 2]

    class Sum(nn.Cell):
        def construct(self, a, b, c):
            return a + b + c

    assert nn.VirtualDatasetCellTriple(Sum())(x, x, x).asnumpy().tolist() == [0, 3, 6]
    data = ms.dataset.NumpySlicesDataset((np.arange(4, dtype=np.float32),), ["x"], shuffle=False).batch(2)
    iterator = data.create_dict_iterator()
    assert [iterator.get_next()["x"].asnumpy().tolist() for _ in range(2)] == [[0, 1], [2, 3]]


def test_set_strategy_takes_the_early_name_of_its_argument():
    assert ops.MatMul().set_strategy(strategy=((1, 1), (1, 1))).in_strategy == ((1, 1), (1, 1))
    with pytest.raises(TypeError, match="set_strategy"):
        ops.MatMul().set_strategy(strategies=((1, 1), (1, 1)))


def test_assign_takes_values_of_another_dtype():
    parameter = Parameter(Tensor(np.zeros(3), ms.float32), name="p")
    ops.assign(parameter, Tensor([7, 8, 9]))
    assert parameter.dtype == ms.float32 and parameter.asnumpy().tolist() == [7, 8, 9]

    @ms.jit
    def doubled(x):
        ops.assign(parameter, x * 2)
        return x

    doubled(Tensor([1, 2, 3]))
    assert parameter.dtype == ms.float32 and parameter.asnumpy().tolist() == [2, 4, 6]


def test_a_tensor_of_an_initializer_is_a_tensor():
    x = Tensor(shape=(2, 2), dtype=ms.float32, init=One())
    assert isinstance(x, Tensor)
    for y in (x + 1, 1 + x, x * 2, ops.relu(x) + x, Tensor(np.ones((2, 2), np.float32)) + x, 3 - x):
        assert y.asnumpy().tolist() == [[2, 2], [2, 2]]
    assert x[0].asnumpy().tolist() == [1, 1] and len(x) == 2 and str(x) == str(x.init_data()) and (x > 0).asnumpy().all()
    assert (x == 1).asnumpy().all() and not (x != 1).asnumpy().any() and len({x, x}) == 1
    assert Parameter(x, name="p").asnumpy().tolist() == [[1, 1], [1, 1]]
