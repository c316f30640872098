"""Models of the package tessera on two ranks: what scripts see of values that are split."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = [str(Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera"), "run", "-n", "2"]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))}

HEAD = """
import os
import numpy as np
import tessera
from tessera import nn

rank = tessera.cluster.rank()
x = np.ones((4, 4), np.float32)
rows = tessera.data.tensors({"x": x, "label": x[:, :3].copy()}).batch(4)

def model_of(net):
    return tessera.Model(net, nn.MSELoss(), nn.SGD(learning_rate=0.1), parallel_mode="semi_auto_parallel")

def dense(strategy=((1, 1), (2, 1))):
    net = nn.Dense(4, 3)
    if strategy:
        net.shard("matmul", strategy)
    return net
"""

REPLICAS = """
model = model_of(dense())
model.build(rows)
print(rank, model.num_replicas("weight"), model.local_value("weight").shape[0])
whole = model_of(dense(None))
whole.build(rows)
print(rank, whole.num_replicas("weight"), whole.local_value("weight").shape[0])
"""

LOST = """
class Reads(tessera.Callback):
    def step_end(self, run):
        if rank == 1:
            tessera.cluster.leave("gone", None)
            os._exit(0)
        for _ in range(2):
            try:
                net.weight.numpy()
                print("read", flush=True)
            except OSError as error:
                print("refused", flush=True)
        os._exit(0)

net = dense()
model_of(net).train(1, rows, [Reads()])
"""

LATE = """
net = dense(None)
model = model_of(net)
model.train(1, rows)
net.shard("matmul", ((1, 1), (99, 1)))
try:
    model.train(2, rows)
except tessera.InvalidArgument as error:
    print(rank, "refused")
"""

SHAPES = """
import resource

resource.setrlimit(resource.RLIMIT_NOFILE, (400, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
net, many = nn.Dense(4, 3), np.ones((500, 4), np.float32)
for n in range(1, 500):
    net(many[:n])
print(rank, "done")
"""

UNEQUAL = """
net = nn.Dense(4, 3)
net.spread()
for _ in range(2):
    print(rank, tuple(net(x).shape))
    try:
        net(x[:4 - 2 * rank])
    except tessera.InvalidArgument as error:
        print(rank, error)
net(x[:2])
if rank == 0:
    tessera.nn.retrace()
print(rank, tuple(net(x[:2]).shape))
"""

BY_HAND = """
x = np.arange(48, dtype=np.float32).reshape(12, 4) / 48
whole, part = (tessera.data.tensors({"x": x, "label": x[:, :3].copy()}, **shards).batch(size)
               for shards, size in (({}, 4), ({"num_shards": 2, "shard_id": rank}, 2)))

def fresh(seed=3):
    tessera.set_seed(seed)
    return tessera.Model(nn.Dense(4, 3), nn.MSELoss(), nn.SGD(learning_rate=0.1), parallel_mode="data_parallel", seed=seed)

model, losses = fresh(), []
for batch in whole:
    n = batch[0].shape[0]
    losses.append(model.train_step(*(column.numpy()[n * rank // 2:n * (rank + 1) // 2] for column in batch), global_rows=n))
print(rank, len(losses), np.isfinite(losses).all())
model = fresh()
print(rank, len([model.train_step(*batch, global_rows=2 * batch[0].shape[0]) for batch in part]))
try:
    fresh().train_step(x, x[:, :3].copy())
except tessera.InvalidArgument as error:
    print(rank, error)
"""

OTHER_PARTS = """
import sys

x = np.arange(96, dtype=np.float32).reshape(24, 4)
part = tessera.data.tensors({"x": x, "label": x[:, :3].copy()}, num_shards=int(sys.argv[2]), shard_id=rank).batch(2)

def said(call):
    try:
        return call()
    except tessera.InvalidArgument as error:
        return error

model = tessera.Model(nn.Dense(4, 3), nn.MSELoss(), nn.SGD(learning_rate=1e-5), metrics=["mse"], parallel_mode=sys.argv[1])
print(rank, said(lambda: model.train(1, part)), "step", model.step)
print(rank, said(lambda: model.eval(part)))
"""

GONE = """
def seen():
    value, whole = net.weight.value(), net.weight.whole_value()
    return [tuple(value.shape), tuple(whole.shape), value.numpy().tobytes(), whole.numpy().tobytes(), np.asarray(net.weight).tobytes()]

for sliced in (False, True):
    net = dense()
    options = dict(parallel_mode="semi_auto_parallel", sliced_parameters=sliced)
    model = tessera.Model(net, nn.MSELoss(), nn.SGD(learning_rate=0.1), **options)
    model.train(1, rows)
    before = seen()
    del model
    print(rank, sliced, seen() == before, *before[:2])
own = net.weight.value().numpy() + 1
net.weight.set_data(tessera.Tensor(own))
try:
    net.weight.whole_value()
except tessera.InvalidArgument as error:
    print(rank, (net.weight.value().numpy() == own).all(), "split over the ranks of a model that is gone" in str(error))
whole = np.arange(12, dtype=np.float32).reshape(3, 4)
net.weight.set_data(tessera.Tensor(whole))
print(rank, (net.weight.value().numpy() == (whole[2:] if rank else whole[:2])).all(), (net.weight.whole_value().numpy() == whole).all())
model = model_of(net)
model.build(rows)
print(rank, (net.weight.value().numpy() == whole).all())
"""

AGAIN = """
def mib_of(name):
    lines = dict(line.split(":") for line in open("/proc/self/status"))
    return int(lines[name].split()[0]) / 1024

net = nn.Dense(1000, 20000)
net.shard("matmul", ((1, 1), (2, 1)))
model = model_of(net)
rows = tessera.data.tensors({"x": np.ones((4, 1000), np.float32), "label": np.ones((4, 20000), np.float32)}).batch(4)
model.train(1, rows)
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = mib_of("VmHWM")
model.train(2, rows)
print(rank, net.weight.numpy().shape, mib_of("VmHWM") - before < 40 or f"{before:.0f} {mib_of('VmHWM'):.0f}")
"""

SEARCH = """
net = dense(None)
model = tessera.Model(net, nn.MSELoss(), nn.SGD(learning_rate=0.1), parallel_mode="auto_parallel", search=SEARCH)
try:
    model.train(1, rows)
    print("trained", np.isfinite(net.weight.numpy()).all())
except OSError as error:
    print("refused:", error)
"""


def lines(script, tmp_path, **environment):
    (tmp_path / "script.py").write_text(HEAD + script)
    done = subprocess.run([*RUN, sys.executable, "script.py"], capture_output=True, text=True, timeout=300, cwd=tmp_path, env=CLEAN | environment)
    return sorted(line.removeprefix("[0] ").removeprefix("[1] ") for line in done.stdout.splitlines()), done.stdout + done.stderr


def test_ranks_count_the_replicas_of_a_parameter_that_is_dealt_unevenly(tmp_path):
    said, everything = lines(REPLICAS, tmp_path)
    assert said == ["0 1 2", "0 2 3", "1 1 1", "1 2 3"], everything


def test_a_value_that_could_not_be_gathered_is_not_the_old_one_afterwards(tmp_path):
    said, everything = lines(LOST, tmp_path)
    assert said == ["refused", "refused"], everything


def test_a_cell_is_called_with_more_shapes_than_a_process_may_have_files(tmp_path):
    said, everything = lines(SHAPES, tmp_path)
    assert said == ["0 done", "1 done"], everything


def test_a_strategy_that_is_set_after_training_is_looked_at(tmp_path):
    said, everything = lines(LATE, tmp_path)
    assert said == ["0 refused", "1 refused"], everything


def test_a_parameter_is_seen_as_before_when_the_model_that_split_it_is_gone(tmp_path):
    said, everything = lines(GONE, tmp_path)
    slices = ["(2, 4)", "(1, 4)"]
    expected = [f"{rank} False True (3, 4) (3, 4)" for rank in (0, 1)] + [f"{rank} True True {slices[rank]} (3, 4)" for rank in (0, 1)]
    assert said == sorted(expected + 2 * [f"{rank} True True" for rank in (0, 1)] + [f"{rank} True" for rank in (0, 1)]), everything


# Of 76 MiB.
def test_a_whole_value_is_in_memory_once_when_a_second_training_ends(tmp_path):
    said, everything = lines(AGAIN, tmp_path)
    assert said == [f"{rank} (20000, 1000) True" for rank in (0, 1)], everything


def test_ranks_that_give_other_rows_to_a_spread_call_all_hear_of_it_and_where_one_compiles_anew_all_do(tmp_path):
    said, everything = lines(UNEQUAL, tmp_path)
    refused = [line for line in said if '"Dense"' in line]
    shapes = [line for line in said if line.endswith(")")]
    assert shapes == sorted([f"{rank} ({rows}, 3)" for rank in (0, 1) for rows in (8, 8, 4)]), everything
    assert len(refused) == 4 and len(said) == 10, everything
    for line in refused:
        assert 'in the same columns: rank 0 gives f32[4,4]; rank 1 gives f32[2,4]; leave out' in line, everything


def test_a_loop_of_ones_own_gives_the_rows_of_a_rank_and_is_told_so_where_it_does_not(tmp_path):
    said, everything = lines(BY_HAND, tmp_path)
    for rank in (0, 1):
        mine = [line for line in said if line.startswith(f"{rank} ")]
        assert f"{rank} 3 True" in mine and f"{rank} 3" in mine, everything
        assert any(f"it gave 12; give rows {6 * rank}:{6 * rank + 6} of the batch and global_rows=12" in line for line in mine), everything


@pytest.mark.parametrize("mode, ranks, shards, is_refused", [
    ("data_parallel", 2, 4, True), ("semi_auto_parallel", 2, 4, True), ("data_parallel", 1, 2, True), ("data_parallel", 2, 2, False),
    ("hybrid_parallel", 2, 4, False), ("stand_alone", 2, 4, False), ("stand_alone", 1, 2, False)])
def test_a_part_of_another_number_than_there_are_ranks_is_refused_where_they_share_batches(tmp_path, mode, ranks, shards, is_refused):
    (tmp_path / "script.py").write_text(HEAD + OTHER_PARTS)
    done = subprocess.run([*RUN[:-1], str(ranks), sys.executable, "script.py", mode, str(shards)], capture_output=True, text=True, timeout=300,
                          cwd=tmp_path, env=CLEAN)
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = f"num_shards={ranks} and shard_id, the rank" if ranks > 1 else "make it without num_shards and shard_id"
    for call in ("train", "eval"):
        said = f"{call}: rank 0's data set is one rank's part of {shards} (num_shards), but {ranks} rank"
        if call == "eval" and mode == "semi_auto_parallel":
            said, wanted = "eval: every rank must read the whole data set, but this is one rank's part of 4", "num_shards"
        assert done.stdout.count(said) == (ranks if is_refused else 0), done.stdout
        assert not is_refused or wanted in done.stdout
    assert done.stdout.count("step 0") == (ranks if is_refused else 0), done.stdout


@pytest.mark.parametrize("timeout, is_cut", [("1e-9", True), ("1e10", False), ("float('inf')", False)])
def test_a_search_ends_when_its_time_is_up_and_never_where_that_is_beyond_any_clock(tmp_path, timeout, is_cut):
    said, everything = lines(SEARCH.replace("SEARCH", f"{{'timeout': {timeout}}}"), tmp_path, TESSERA_LOG_LEVEL="info")
    assert said == ["trained True"] * 2, everything
    assert ("left out because time was up" in everything) == is_cut, everything


@pytest.mark.parametrize("algorithm", ["certified", "dynamic_programming", "recursive_programming"])
def test_with_options_of_the_search_within_their_ranges_a_step_is_planned_and_trained(tmp_path, algorithm):
    search = {"timeout": 60, "rounds": 1, "max_axes": 1, "slice_align_size": 1, "fully_use_devices": True, "algorithm": algorithm, "save": "plan.json"}
    said, everything = lines(SEARCH.replace("SEARCH", repr(search)), tmp_path)
    assert said == ["trained True"] * 2, everything
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["mesh"] == [["x", 2]] and set(plan["inputs"]) == {"x", "label"}


def test_a_plan_that_cannot_be_written_is_an_error_of_the_system_on_all_ranks(tmp_path):
    (tmp_path / "file").write_text("")
    said, everything = lines(SEARCH.replace("SEARCH", "{'save': 'file/plan.json'}"), tmp_path)
    assert len(said) == 2 and all("refused: auto_parallel: " in line and "file/plan.json" in line for line in said), everything
