"""What the launch of a script says wrongly is told in its words: modes, seeds and variables, by one process for all."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = [str(Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera"), "run"]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMI", "RANK_", "DEVICE_", "SLURM"))}

TRAIN = """
import sys
import numpy as np
import tessera
from tessera import nn

options = eval(sys.argv[1])
rank = tessera.cluster.rank() if options else 0
x = np.ones((4, 4), np.float32)
rows = tessera.data.tensors({"x": x, "label": x[:, :3].copy()}).batch(4)
values = {name: value(rank) if callable(value) else value for name, value in options.items()}
net = nn.Dense(4, 3)
if options and tessera.cluster.num_servers() > 0:
    net.set_on_servers()
model = tessera.Model(net, nn.MSELoss(), nn.SGD(learning_rate=0.1), **values)
model.train(1, rows)
print("weight", net.weight.numpy().sum())
"""

MINDSPORE = """
import sys
import numpy as np
import mindspore as ms
import mindspore.dataset as ds
from mindspore import nn
from mindspore.communication import init

ms.set_ps_context(enable_ps=True)
init()
if sys.argv[1] != "None":
    ms.set_auto_parallel_context(parallel_mode=sys.argv[1])
x = np.ones((4, 4), np.float32)
net = nn.Dense(4, 3)
net.set_param_ps()
ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1)).train(1, ds.NumpySlicesDataset((x, x[:, :3].copy()), shuffle=False).batch(4))
"""


def done(tmp_path, script, argument, *launcher, **variables):
    path = tmp_path / "script.py"
    path.write_text(script)
    return subprocess.run([*launcher, sys.executable, path, argument], capture_output=True, text=True, timeout=120, env=CLEAN | variables)


def test_a_mode_without_others_beside_servers_is_refused(tmp_path):
    with_servers = [*RUN, "-n", "1", "--servers", "1"]
    refused = done(tmp_path, TRAIN, '{"parallel_mode": "stand_alone"}', *with_servers)
    assert refused.returncode == 1 and "parallel_mode is stand_alone, where each rank trains by itself, but 1 of the job's 2 ranks keeps parameters" in refused.stderr
    for options in ('{"seed": 1}', '{"parallel_mode": "data_parallel"}'):
        assert done(tmp_path, TRAIN, options, *with_servers).returncode == 0
    refused = done(tmp_path, MINDSPORE, "stand_alone", *with_servers)
    assert refused.returncode == 1 and "parallel_mode is stand_alone, where each rank trains by itself" in refused.stderr
    assert done(tmp_path, MINDSPORE, "None", *with_servers).returncode == 0


@pytest.mark.parametrize("mode", ["data_parallel", "semi_auto_parallel"])
def test_a_seed_for_each_rank_is_said_once_and_rank_zeros_is_taken(tmp_path, mode):
    both = done(tmp_path, TRAIN, f'{{"parallel_mode": "{mode}", "seed": lambda rank: 7 + rank}}', *RUN, "-n", "2")
    assert both.returncode == 0 and both.stderr.count("rank 1 has the seed 8, rank 0 has 7: ") == 1, both.stderr
    one = done(tmp_path, TRAIN, f'{{"parallel_mode": "{mode}", "seed": 7}}', *RUN, "-n", "2")
    assert "seed" not in one.stderr
    assert sorted(both.stdout.split()) == sorted(one.stdout.split())


def test_each_rank_that_trains_by_itself_has_its_seed(tmp_path):
    ended = done(tmp_path, TRAIN, '{"parallel_mode": "stand_alone", "seed": lambda rank: 7 + rank}', *RUN, "-n", "2")
    assert ended.returncode == 0 and "has the seed" not in ended.stderr
    assert len({line.split()[-1] for line in ended.stdout.splitlines() if "weight" in line}) == 2


@pytest.mark.parametrize("launcher", [[], [*RUN, "-n", "2"]])
def test_a_misspelt_variable_is_said_once(tmp_path, launcher):
    ended = done(tmp_path, TRAIN, "{}", *launcher, TESSERA_THREADS="1", TESSERA_NUM_THREADS="1")
    assert ended.returncode == 0
    assert ended.stderr.count("TESSERA_THREADS (did you mean TESSERA_NUM_THREADS?)") == 1, ended.stderr
    assert "did you mean" not in done(tmp_path, TRAIN, "{}", *launcher, TESSERA_NUM_THREADS="1").stderr


def test_a_script_in_the_shell_of_a_job_of_slurm_says_that_it_is_alone(tmp_path):
    shell = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    for options in ("{}", '{"parallel_mode": "data_parallel"}'):
        ended = done(tmp_path, TRAIN, options, **shell)
        assert ended.returncode == 0
        assert ended.stderr.count("started once, without srun, in a job of Slurm that has 4 tasks") == 1, ended.stderr
    assert "srun" not in done(tmp_path, TRAIN, "{}", *RUN, "-n", "2", **shell).stderr


def as_module(folder, path, *arguments):
    return subprocess.run([sys.executable, "-B", "-m", "tessera", *arguments], capture_output=True, text=True, timeout=120, cwd=folder,
                          env=CLEAN | {"PYTHONPATH": str(folder), "PATH": str(path)})


def test_python_finds_the_program_of_its_build(tmp_path):
    ended = subprocess.run([sys.executable, "-m", "tessera", "--help"], capture_output=True, text=True, timeout=120, cwd=tmp_path, env=CLEAN | {"PATH": str(tmp_path)})
    assert ended.returncode == 0 and "Usage: " in ended.stdout and "run" in ended.stdout, ended.stdout + ended.stderr


def test_python_says_where_it_has_looked_for_the_program(tmp_path):
    package = tmp_path / "packages" / "tessera"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    source = Path(os.environ["TESSERA_BUILD"]) / "python" / "tessera" / "__main__.py"
    (package / "__main__.py").write_text(source.read_text())
    # The command that pip makes of the package is a script, which would come back here.
    (tmp_path / "tessera").write_text(f"#!/bin/sh\nexec {sys.executable} -m tessera\n")
    (tmp_path / "tessera").chmod(0o755)
    ended = as_module(package.parent, tmp_path, "--help")
    assert ended.returncode == 127 and ended.stdout == ""
    assert ended.stderr == (f"error: python -m tessera: there is no program tessera: neither {package}/bin/tessera nor {tmp_path}/bin/tessera is one, and no folder "
                            "of PATH has one; install the package again, or name the program's folder in PATH\n")
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "tessera").symlink_to(Path(sys.executable).resolve())
    ended = as_module(package.parent, f"{tmp_path}:{tmp_path / 'programs'}", "-c", "print('that of PATH')")
    assert (ended.returncode, ended.stdout) == (0, "that of PATH\n"), ended.stderr


def test_the_interpreter_of_a_job_is_named_for_the_command_alone(tmp_path):
    (tmp_path / "tessera").symlink_to("/usr/bin/env")  # which starts `job` with the variables that it was given
    package = tmp_path / "packages" / "tessera"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text((Path(os.environ["TESSERA_BUILD"]) / "python" / "tessera" / "__main__.py").read_text())
    (tmp_path / "job").write_text('#!/bin/sh\necho "$PYTHON $_PYTHON_OF_TESSERA_JOB"\n')
    (tmp_path / "job").chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    assert as_module(package.parent, path, "job").stdout == f"{sys.executable} 1\n"
    environment = CLEAN | {"PYTHONPATH": str(package.parent), "PATH": path, "PYTHON": "mine"}
    named = subprocess.run([sys.executable, "-B", "-m", "tessera", "job"], capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment)
    assert named.stdout == "mine \n"
