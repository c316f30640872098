"""Options of a Model in every parallel mode: those that a mode does not read are said, once, by rank 0; others train."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESSERA = Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera"
SCRIPT = """
import sys
import numpy as np
import tessera
from tessera import nn, ops


class Net(nn.Cell):
    def __init__(self, is_split):
        super().__init__()
        self.norm, self.up, self.down = nn.BatchNorm1d(4), nn.Dense(4, 8), nn.Dense(8, 4)
        if is_split:
            self.up.shard("matmul", ((1, 1), (tessera.cluster.size(), 1)))

    def construct(self, x):
        return self.down(ops.relu(self.up(self.norm(x))))


x = (np.arange(8)[:, None] ** 2 + np.arange(4)[None, :]).astype(np.float32)
for name, options in OPTIONS.items():
    print(f"## {name}", file=sys.stderr, flush=True)
    try:
        model = tessera.Model(Net(name == "strategies"), nn.MSELoss(), nn.Momentum(learning_rate=[0.1, 0.05], momentum=0.9), parallel_mode=sys.argv[1],
                              **options)
        model.train(2, tessera.data.tensors({"x": x / 8, "y": x / 4 - 1}).batch(8))
        if name == "rates":
            model.train(1, tessera.data.tensors({"x": x / 8, "y": x / 4 - 1}).batch(8))
            model.train(1, tessera.data.tensors({"x": x / 8, "y": x / 4 - 1}).batch(8))
    except tessera.InvalidArgument as error:
        print(f"refused: {error}", file=sys.stderr, flush=True)
"""
STAND, DATA, HYBRID, SEMI, AUTO = MODES = ["stand_alone", "data_parallel", "hybrid_parallel", "semi_auto_parallel", "auto_parallel"]
# By name: the options that set it, and the modes in which it has no effect.
OPTIONS = {
    "full_batch": ({"full_batch": True}, (STAND, DATA, HYBRID)),
    "sharding_propagation": ({"sharding_propagation": True}, (STAND, DATA, HYBRID, AUTO)),
    "dataset_strategy": ({"dataset_strategy": ((1, 2), (2, 1))}, (STAND, DATA, HYBRID)),
    "strategy_ckpt_save_file": ({"strategy_ckpt_save_file": "a.ckpt"}, (STAND, DATA, HYBRID)),
    "group_ckpt_save_file": ({"group_ckpt_save_file": "g.pb"}, (STAND, DATA, HYBRID)),
    "search": ({"search": {"max_axes": 1}}, (STAND, DATA, HYBRID, SEMI)),
    'search["save"]': ({"search": {"save": "a.plan"}}, (STAND, DATA, HYBRID, SEMI)),
    "parallel_optimizer": ({"parallel_optimizer": True}, (STAND, AUTO)),
    "parallel_optimizer_threshold": ({"parallel_optimizer_threshold": 0}, (STAND, HYBRID, AUTO)),
    "optimizer_weight_shard_size": ({"optimizer_weight_shard_size": 1}, (STAND, HYBRID, AUTO)),
    "gradients_mean": ({"gradients_mean": False}, (STAND, HYBRID, SEMI, AUTO)),
    "parameter_broadcast": ({"parameter_broadcast": True}, (STAND,)),
    "batch_norm_statistics": ({"batch_norm_statistics": "local"}, (SEMI, AUTO)),
    "strategies": ({}, (STAND, DATA, HYBRID)),
    "rates": ({}, ()),
}


def said(tmp_path, mode, ranks, options):
    """By name: what rank 0 says while it trains with these options."""
    (tmp_path / "script.py").write_text(SCRIPT.replace("OPTIONS", repr(options)))
    done = subprocess.run([TESSERA, "run", "-n", str(ranks), sys.executable, "script.py", mode], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line[4:] for line in done.stderr.splitlines() if line.startswith("[0] ")] if ranks > 1 else done.stderr.splitlines()
    parts = re.split(r"^## (\S+)$", "\n".join(lines), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


@pytest.mark.parametrize("mode", MODES)
def test_an_option_without_effect_is_said_in_every_mode(tmp_path, mode):
    heard = said(tmp_path, mode, 2, {name: options for name, (options, _) in OPTIONS.items()})
    for name, (_, unused) in OPTIONS.items():
        words = re.findall(r"(\S+) has no effect in (\S+):", heard[name])
        if name == "strategies":
            assert heard[name].count(f"the strategies of 1 operator have no effect in {mode}: ") == (mode in unused), heard[name]
        else:
            assert words == ([(name, mode)] if mode in unused else []), heard[name]
        assert ("refused: " in heard[name]) == (name == "parallel_optimizer" and mode == HYBRID), heard[name]
    assert len(re.findall(r"learning_rate has the rates of 2 steps, the training goes on to step 3: the last rate holds from step 2 on", heard["rates"])) == 1


def test_an_option_that_needs_another_says_so(tmp_path):
    heard = said(tmp_path, DATA, 2, {"a": {"parallel_optimizer_threshold": 0}, "b": {"optimizer_weight_shard_size": 2}})
    assert "parallel_optimizer_threshold has no effect without parallel_optimizer\n" in heard["a"] + "\n"
    assert "optimizer_weight_shard_size has no effect without parallel_optimizer, strategy_ckpt_load_file" in heard["b"]


def test_a_single_rank_writes_no_files_and_says_so(tmp_path):
    heard = said(tmp_path, AUTO, 1, {name: OPTIONS[name][0] for name in ("strategy_ckpt_save_file", "group_ckpt_save_file", 'search["save"]')})
    for name, text in heard.items():
        assert f"{name} has no effect on one rank, which splits nothing" in text
    assert {path.name for path in tmp_path.iterdir()} == {"script.py"}
