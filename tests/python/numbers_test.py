"""Numbers that a script may pass, and nobody expects: each is a result or an error with words, and the process lives on."""
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tessera
from tessera import data, nn, ops

X = np.arange(12, dtype=np.float32).reshape(3, 4)

@pytest.mark.parametrize("step", [4, 2**31, 2**53, 2**62, 2**63 - 1])
def test_a_step_beyond_the_dim_takes_one_element(step):
    tensor = tessera.Tensor.from_numpy(X)
    assert (tensor[::step].numpy() == X[::step]).all() and (tensor[::-step].numpy() == X[::-step]).all()
    assert (ops.slice(X, (0, 1), (3, 4), (step, 2)).numpy() == X[0:3:step, 1:4:2]).all()
    assert ops.range(0, 10, step).numpy().tolist() == np.arange(0, 10, step).tolist()


def test_a_range_by_a_step_that_is_no_int64_is_its_first_element():
    assert ops.range(0, 10, 1e300).numpy().tolist() == [0]
    assert ops.range(10, 0, -1e300).numpy().tolist() == [10]
    with pytest.raises(tessera.InvalidArgument, match="must be finite"):
        ops.range(0, 10, float("inf"))


@pytest.mark.parametrize("bound", [1e30, 1e38, 1e300])
def test_a_norm_below_a_large_bound_is_left_as_it_is(bound):
    assert (ops.clip_by_norm(X, bound).numpy() == X).all()
    assert (ops.clip_by_global_norm([X], bound)[0].numpy() == X).all()


@pytest.mark.parametrize("rows", [4, 2**31, 2**32, 2**53])
def test_global_rows_are_those_of_the_batch(rows):
    model = tessera.Model(nn.Dense(4, 4), nn.MSELoss(), nn.Momentum(learning_rate=0.1))
    with pytest.raises(tessera.InvalidArgument, match=f"train_step: global_rows is {rows}, the batch has 3 rows"):
        model.train_step(X, X, global_rows=rows)


REFUSED = {
    "num_layers must be at least 1 and at most 4096, got 2147483647": lambda: nn.RecurrentLayer(4, 3, "lstm", 2**31 - 1),
    "total_steps must be at most 268435456, got 2147483648": lambda: nn.cosine_decay_lr(0.0, 0.1, 2**31, 2, 2),
    "a milestone must be at most 268435456, got 2147483648": lambda: nn.piecewise_constant_lr([2**31], [0.1]),
    "train_records and test_records must be at most 1000000": lambda: data.write_synthetic_cifar10("unmade", 2**40, 1),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_no_memory_holds_is_refused_by_name(words):
    with pytest.raises(tessera.InvalidArgument, match=re.escape(words)):
        REFUSED[words]()


def test_threads_beyond_all_machines_are_refused(tmp_path):
    done = subprocess.run([sys.executable, "-c", "import tessera; tessera.cluster.init()"], capture_output=True, text=True, timeout=60,
                          env=os.environ | {"TESSERA_NUM_THREADS": "100000"})
    assert done.returncode == 2
    assert re.search("TESSERA_NUM_THREADS.*4096", done.stderr), done.stderr


def test_memory_that_the_machine_does_not_have_is_refused():
    rows = 2 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4 // 1024 + 2**28
    for make in (lambda: nn.Dense(1024, rows)(np.zeros((1, 1024), np.float32)), lambda: ops.fill((rows, 1024), 1.0, tessera.float32)):
        with pytest.raises(tessera.InvalidArgument, match="this machine or control group has .* of memory"):
            make()
