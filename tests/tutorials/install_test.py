"""`python -m pip install .` in a virtual environment of its own, and a training with what it installed."""
import os
import sys

import pytest

import job
import pages

TRAINING = """
import numpy as np
import mindspore as ms
from mindspore import nn
from mindspore.communication import get_rank, init

init()
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
x = np.random.RandomState(get_rank()).rand(32, 4).astype(np.float32)
data = ms.dataset.NumpySlicesDataset({"x": x, "y": x.sum(1, keepdims=True)}, shuffle=False).batch(8)
net = nn.Dense(4, 1)
ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1)).train(5, data, [ms.LossMonitor()], dataset_sink_mode=False)
"""
WITHOUT_PACKAGES = {"PYTHONPATH": ""}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of the environment's programs. pip fetches what the build needs, as it does for a user; ccache knows the objects of
    the build that these tests run in."""
    folder = tmp_path_factory.mktemp("environment")
    base = os.path.realpath(sys.executable)
    job.run([base, "-m", "venv", folder], pages.ROOT, **WITHOUT_PACKAGES)
    variables = {"CCACHE_BASEDIR": pages.ROOT, "CCACHE_NOHASHDIR": 1, "PIP_DISABLE_PIP_VERSION_CHECK": 1} | WITHOUT_PACKAGES
    job.run([folder / "bin" / "python", "-m", "pip", "install", "."], pages.ROOT, timeout=1700, **variables)
    return folder / "bin"


def test_the_package_is_whole(installed, tmp_path):
    out, _ = job.run([installed / "python", "-c", "import tessera, tessera.nn; print(tessera.__file__); help(tessera.nn.Dense)"], tmp_path,
                     **WITHOUT_PACKAGES)
    assert str(installed.parent) in out and "weight" in out
    package = next(installed.parent.glob("lib/python3*/site-packages/tessera"))
    for part in ("py.typed", "_tessera/__init__.pyi", "bin/tessera", "compat/mindspore/__init__.py"):
        assert (package / part).exists(), part
    assert "mindspore" not in [path.name for path in package.parent.iterdir()]  # only where it is asked for
    assert "operators" in job.run([installed / "tessera", "info"], tmp_path, **WITHOUT_PACKAGES)[0]


@pytest.mark.parametrize("ranks", [1, 2])
def test_it_trains(installed, tmp_path, ranks):
    (tmp_path / "train.py").write_text(TRAINING)
    compat = job.run([installed / "tessera", "compat-path"], tmp_path, **WITHOUT_PACKAGES)[0].strip()
    assert compat.startswith(str(installed.parent))
    launcher = job.mpirun(ranks) if ranks > 1 else []
    out, _ = job.run([*launcher, installed / "python", "train.py"], tmp_path, PYTHONPATH=compat)
    losses = [float(loss) for _, _, loss in job.losses(out)]
    assert len(losses) == 20 * ranks and losses[-1] < losses[0] / 2
    by_tessera, _ = job.run([installed / "tessera", "run", "-n", ranks, installed / "python", "train.py"], tmp_path, PYTHONPATH=compat)
    assert sorted(job.losses(by_tessera)) == sorted(job.losses(out))
