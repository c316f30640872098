"""Pipelines from Python: processes that train in stages have the losses of one that trains alone, by tessera and by mindspore."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESSERA = Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera"

NATIVE = """
import numpy as np
import tessera
from tessera import nn, ops


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Dense(4, 8), nn.Dense(8, 3)
        self.first.set_stage(0)
        self.second.set_stage(1)

    def construct(self, x):
        return self.second(ops.tanh(self.first(x)))


size = tessera.cluster.size() if RANKS > 1 else 1
options = {"parallel_mode": MODE, "pipeline": PIPELINE | {"micro_batches": 4, "schedule": SCHEDULE}} if size > 1 else {
    "gradient_accumulation_steps": 4}
model = tessera.Model(Net(), nn.MSELoss(), nn.Momentum(learning_rate=0.1, momentum=0.9), seed=3, **options)
x = np.random.RandomState(1).rand(24, 4).astype(np.float32)
y = np.random.RandomState(2).rand(24, 3).astype(np.float32)
rows = tessera.data.tensors({"x": x, "y": y}).batch(8 if size > 1 else 2)
losses = []


class Note(tessera.Callback):
    def step_end(self, run):
        losses.append(run.loss)


model.train(2, rows, [Note()])
if size == 1 or tessera.cluster.rank() == 0:
    print("losses", *losses, flush=True)
weight = model.predict(x[:2])
if size == 1 or tessera.cluster.rank() == 0:
    print("output", *weight.numpy().ravel().tolist(), flush=True)
"""

MINDSPORE = """
import numpy as np
import mindspore as ms
from mindspore import nn, ops
from mindspore.communication import init, get_rank

ms.set_seed(1)
if RANKS > 1:
    init()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=SHARDS == 0, pipeline_stages=2,
                                 strategy_ckpt_save_file="strategy%d.ckpt" % (get_rank() * 2 // RANKS))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Dense(4, 8, weight_init="ones", bias_init="zeros"), nn.Dense(8, 3, weight_init="ones", bias_init="zeros")
        self.first.pipeline_stage = 0
        self.second.pipeline_stage = 1

    def construct(self, x):
        return self.second(ops.tanh(self.first(x)))


net = Net()
if RANKS > 1:
    print("stage", get_rank(), *[p.name for p in net.infer_param_pipeline_stage()], flush=True)
net = nn.PipelineCell(nn.WithLossCell(net, nn.MSELoss()), 4)
opt = nn.Momentum(net.infer_param_pipeline_stage() if OWN_STAGE else net.trainable_params(), 0.02, 0.9)
x = np.random.RandomState(1).rand(24, 4).astype(np.float32)
y = np.random.RandomState(2).rand(24, 3).astype(np.float32)
shard = {} if SHARDS < 2 or RANKS == 1 else {"num_shards": SHARDS, "shard_id": get_rank() % SHARDS}
rows = ms.dataset.NumpySlicesDataset({"x": x, "y": y}, shuffle=False, **shard).batch(8 // SHARDS if shard else 8)
losses = []


class Note(ms.Callback):
    def step_end(self, run_context):
        losses.append(float(run_context.original_args().net_outputs.asnumpy()))


model = ms.Model(net, optimizer=opt)
model.train(2, rows, callbacks=[Note()], dataset_sink_mode=False)
ms.save_checkpoint(model.train_network, "step.ckpt")  # every rank has all states
if RANKS == 1 or get_rank() == 0:
    print("losses", *losses, flush=True)
    print("weights", *[value for p in net.get_parameters() for value in p.asnumpy().ravel()], flush=True)
    print("states", *[value for p in ms.load_checkpoint("step.ckpt").values() for value in p.asnumpy().ravel()], flush=True)
"""


def run_any(script, tmp_path, ranks):
    (tmp_path / "script.py").write_text(f"RANKS = {ranks}\n" + script)
    command = [sys.executable, "script.py"]
    if ranks > 1:
        command = [str(TESSERA), "run", "-n", str(ranks), *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)


def run(script, tmp_path, ranks):
    done = run_any(script, tmp_path, ranks)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def numbers(output, word):
    return [float(number) for number in re.search(rf"{word} (.*)", output)[1].split()]


@pytest.mark.parametrize("ranks, schedule, pipeline", [(2, "1f1b", {"stages": 2}), (4, "zb_h1", {"stages": 2}),
                                                       (3, "1f1b", {"ranks": [2, 1]}), (3, "zb_h1", {"stages": 2, "ranks": (1, 2)}),
                                                       (2, "auto", {"stages": "auto"})])
def test_processes_in_stages_have_the_losses_of_one(tmp_path, ranks, schedule, pipeline):
    mode = "auto_parallel" if pipeline.get("stages") == "auto" else "pipeline_parallel"
    script = f"SCHEDULE = {schedule!r}\nPIPELINE = {pipeline!r}\nMODE = {mode!r}\n" + NATIVE
    alone, _ = run(script, tmp_path, 1)
    stages, _ = run(script, tmp_path, ranks)
    assert numbers(stages, "losses") == pytest.approx(numbers(alone, "losses"), rel=1e-5)
    assert numbers(stages, "output") == pytest.approx(numbers(alone, "output"), rel=1e-4)


@pytest.mark.parametrize("ranks, own_stage", [(2, False), (4, False), (4, True)])
def test_a_pipeline_cell_passes_through_stages(tmp_path, ranks, own_stage):
    alone, _ = run("SHARDS = 0\nOWN_STAGE = False\n" + MINDSPORE, tmp_path, 1)
    stages, _ = run(f"SHARDS = 0\nOWN_STAGE = {own_stage}\n" + MINDSPORE, tmp_path, ranks)
    assert numbers(stages, "losses") == pytest.approx(numbers(alone, "losses"), rel=1e-5)  # sums over the pieces
    assert "stage 0 first.weight first.bias" in stages
    assert f"stage {ranks - 1} second.weight second.bias" in stages
    assert numbers(stages, "weights") == pytest.approx(numbers(alone, "weights"), rel=1e-4)
    assert numbers(stages, "states") == pytest.approx(numbers(alone, "states"), rel=1e-4)
    assert (tmp_path / "strategy0.ckpt").exists() and (tmp_path / "strategy1.ckpt").exists()


@pytest.mark.parametrize("ranks, shards", [(2, 1), (4, 1), (4, 2), (6, 1)])
def test_ranks_of_a_stage_give_rows_of_their_own(tmp_path, ranks, shards):
    """Where full_batch is off. Of 4 ranks with 2 shards each gives half of a batch, without shards each gives a whole one: the batch is of as many
    equal ones, which have the loss of one."""
    alone, _ = run("SHARDS = 0\nOWN_STAGE = False\n" + MINDSPORE, tmp_path, 1)
    stages, said = run(f"SHARDS = {shards}\nOWN_STAGE = False\n" + MINDSPORE, tmp_path, ranks)
    assert numbers(stages, "losses") == pytest.approx(numbers(alone, "losses"), rel=1e-5)
    assert numbers(stages, "weights") == pytest.approx(numbers(alone, "weights"), rel=1e-4)
    assert ("trains on the same rows" in said) == (ranks > 2 and shards == 1)


@pytest.mark.parametrize("script, why", [
    (MINDSPORE.replace("get_rank() % SHARDS", "get_rank()").replace("SHARDS if shard", "4 if shard").replace('"num_shards": SHARDS', '"num_shards": 4'),
     r"rank 2 reads shard 2 of 4, and rank 0, which has the same place in its stage, shard 0 of 4; .*num_shards=2 and shard_id=rank % 2"),
    (MINDSPORE.replace("8 // SHARDS if shard", "3 if shard"), "each of the 2 ranks of a stage gives 3 rows, which cannot be cut into 4 micro-batches|"
     "a batch of 6 rows cannot be cut into 4 micro-batches"),
])
def test_rows_that_do_not_make_a_batch_are_refused(tmp_path, script, why):
    done = run_any("SHARDS = 2\nOWN_STAGE = False\n" + script, tmp_path, 4)
    assert done.returncode != 0 and re.search(why, done.stderr), done.stderr


SEGMENTS = """
import numpy as np
import mindspore as ms
from mindspore import nn, ops
from mindspore.communication import init

ms.set_seed(1)
if RANKS > 1:
    init()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True, pipeline_stages=2, pipeline_config=CONFIG)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layers = nn.CellList([nn.Dense(4, 4) for _ in range(4)])
        for layer, (stage, segment) in zip(self.layers, PLACES):
            layer.pipeline_stage = stage
            layer.pipeline_segment = segment

    def construct(self, x):
        for layer in self.layers:
            x = ops.tanh(layer(x))
        return x


net = Net()
assert [layer.pipeline_segment for layer in net.layers] == [segment for _, segment in PLACES]
cell = nn.PipelineCell(nn.WithLossCell(net, nn.MSELoss()), 4)
opt = nn.Momentum(net.trainable_params(), 0.02, 0.9)
x = np.random.RandomState(1).rand(24, 4).astype(np.float32)
rows = ms.dataset.NumpySlicesDataset({"x": x, "y": x[::-1].copy()}, shuffle=False).batch(8)
losses = []


class Note(ms.Callback):
    def step_end(self, run_context):
        losses.append(float(run_context.original_args().net_outputs.asnumpy()))


ms.Model(cell, optimizer=opt).train(2, rows, callbacks=[Note()], dataset_sink_mode=False)
print("losses", *losses, flush=True)
"""


@pytest.mark.parametrize("config, places", [({"pipeline_interleave": True}, [(0, 0), (1, 0), (0, 1), (1, 1)]),
                                            ({"pipeline_scheduler": "zero_bubble_v"}, [(0, 0), (1, 0), (1, 1), (0, 1)])])
def test_cells_of_several_segments_are_on_one_stage(tmp_path, config, places):
    script = f"CONFIG = {config!r}\nPLACES = {places!r}\n" + SEGMENTS
    alone, _ = run(script, tmp_path, 1)
    stages, _ = run(script, tmp_path, 2)
    assert numbers(stages, "losses") == pytest.approx(numbers(alone, "losses"), rel=1e-5)


def test_a_segment_is_refused_where_nothing_interleaves(tmp_path):
    script = "CONFIG = {}\nPLACES = [(0, 0), (1, 0), (0, 1), (1, 1)]\n" + SEGMENTS
    (tmp_path / "script.py").write_text("RANKS = 2\n" + script)
    done = subprocess.run([str(TESSERA), "run", "-n", "2", sys.executable, "script.py"], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode != 0
    assert "must go once over the stages, 0, 1, ..., they go 0, 1, 0, 1" in done.stdout + done.stderr


TIED = """
import numpy as np
import mindspore as ms
from mindspore import nn, ops
from mindspore.communication import init, get_rank

ms.set_seed(1)
if RANKS > 1:
    init()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True, pipeline_stages=2)


class Head(nn.Cell):
    def __init__(self, table):
        super().__init__()
        self.table = table
        self.table.add_pipeline_stage(1)
        self.matmul = ops.MatMul(transpose_b=True)

    def construct(self, x):
        return self.matmul(x, self.table)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(6, 4)
        self.middle = nn.Dense(4, 4)
        self.head = Head(self.words.embedding_table)
        self.words.pipeline_stage = 0
        self.middle.pipeline_stage = 1
        self.head.pipeline_stage = 1

    def construct(self, ids):
        return self.head(ops.tanh(self.middle(self.words(ids))))


net = Net()
if RANKS > 1:
    print("stage", get_rank(), *[p.name for p in net.infer_param_pipeline_stage()], flush=True)
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
net = nn.PipelineCell(nn.WithLossCell(net, loss), 2)
opt = nn.Momentum(net.infer_param_pipeline_stage() if OWN_STAGE else net.trainable_params(), 0.02, 0.9)
ids = np.arange(24).astype(np.int32) % 6
rows = ms.dataset.NumpySlicesDataset({"x": ids, "y": (ids * 5 + 1) % 6}, shuffle=False).batch(8)
losses = []


class Note(ms.Callback):
    def step_end(self, run_context):
        losses.append(float(run_context.original_args().net_outputs.asnumpy()))


ms.Model(net, optimizer=opt, loss_scale_manager=ms.train.FixedLossScaleManager(8)).train(2, rows, callbacks=[Note()], dataset_sink_mode=False)
if RANKS == 1 or get_rank() == 0:
    print("losses", *losses, flush=True)
    print("weights", *[value for p in net.get_parameters() for value in p.asnumpy().ravel()], flush=True)
"""


@pytest.mark.parametrize("own_stage", [False, True])
def test_cells_of_two_stages_share_a_parameter(tmp_path, own_stage):
    alone, _ = run("OWN_STAGE = False\n" + TIED, tmp_path, 1)
    stages, _ = run(f"OWN_STAGE = {own_stage}\n" + TIED, tmp_path, 2)
    assert numbers(stages, "losses") == pytest.approx(numbers(alone, "losses"), rel=1e-5)
    assert numbers(stages, "weights") == pytest.approx(numbers(alone, "weights"), rel=1e-4)
    assert re.search(r"stage 0 head\.table$", stages, re.M) and re.search(r"stage 1 head\.table middle\.weight", stages)


def test_what_does_not_fit_is_refused(fresh_context, monkeypatch):
    import mindspore as ms
    import tessera
    from mindspore import nn
    net = nn.Dense(2, 2)
    opt = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    monkeypatch.setattr(tessera.cluster, "size", lambda: 2)  # one rank has all stages
    ms.set_auto_parallel_context(pipeline_stages=2, parallel_mode="data_parallel")
    with pytest.raises(RuntimeError, match="pipeline_stages=2 needs parallel_mode=semi_auto_parallel"):
        ms.Model(nn.PipelineCell(net, 2), optimizer=opt)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
    ms.set_auto_parallel_context(dataset_strategy=((2, 1), (2,)))
    with pytest.raises(RuntimeError, match=r"dataset_strategy=\(\(2, 1\), \(2,\)\) is not available with pipeline_stages=2"):
        ms.Model(nn.PipelineCell(net, 2), optimizer=opt)
    ms.set_auto_parallel_context(dataset_strategy="full_batch")
    with pytest.raises(RuntimeError, match=r"needs nn.PipelineCell\(network, micro_size\)"):
        ms.Model(net, nn.MSELoss(), opt)
    with pytest.raises(RuntimeError, match="micro_size 1 must not be less than the 2 pipeline stages"):
        ms.Model(nn.PipelineCell(net, 1), optimizer=opt)


GROUPED = """
import mindspore as ms
from mindspore import nn
from mindspore.communication import init

init()
ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True, pipeline_stages=2)
net = nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 3))
net[0].pipeline_stage, net[1].pipeline_stage = 0, 1
net = nn.PipelineCell(nn.WithLossCell(net, nn.MSELoss()), 2)
opt = nn.Momentum([{"params": net.infer_param_pipeline_stage(), "weight_decay": 0.01}], 0.02, 0.9)
rows = ms.dataset.NumpySlicesDataset({"x": [[1.0] * 4] * 4, "y": [[1.0] * 3] * 4}, shuffle=False).batch(4)
try:
    ms.Model(net, optimizer=opt).train(1, rows)
except RuntimeError as error:
    print("refused", error, flush=True)
"""


def test_groups_of_one_stage_are_refused(tmp_path):
    said, _ = run(GROUPED, tmp_path, 2)
    assert said.count("refused For 'Model', Momentum has the parameters of this rank's stage") >= 1
    assert "give the optimizer network.trainable_params()" in said
