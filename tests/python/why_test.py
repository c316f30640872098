"""What went wrong is told with the line of the script that made it: in errors, and in the reports of ranks that `tessera cluster why` reads."""
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tessera
from tessera import nn, ops

TESSERA = str(Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera")
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))}

SCRIPT = """
import os
import signal
import sys

import numpy as np
import tessera
from tessera import nn, ops

rank = tessera.cluster.rank()

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(4, 3)

    def construct(self, x):
        x = self.fc(x)  # DENSE
        if sys.argv[1] == "nan":
            x = ops.log(ops.abs(x) - 1e6)  # LOG
        return x

class Ends(tessera.Callback):
    def step_begin(self, run):
        if sys.argv[1] == "kill" and rank == 1 and run.step_in_epoch == 2:
            os.kill(os.getpid(), signal.SIGKILL)

x = np.ones((8, 4), np.float32)
rows = tessera.data.tensors({"x": x, "label": x[:, :3].copy()}).batch(2)
model = tessera.Model(Net(), nn.MSELoss(), nn.SGD(learning_rate=0.1), parallel_mode="data_parallel")
model.train(1, rows, [Ends()])
"""


def line_of(mark):
    return 1 + next(number for number, line in enumerate(SCRIPT.splitlines()) if line.endswith(f"# {mark}"))


def verdict_of(tmp_path, how):
    script, reports = tmp_path / "script.py", tmp_path / "reports"
    script.write_text(SCRIPT)
    done = subprocess.run([TESSERA, "run", "-n", "2", "--report_dir", str(reports), sys.executable, str(script), how], env=CLEAN, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    why = subprocess.run([TESSERA, "cluster", "why", str(reports), "--json"], env=CLEAN, capture_output=True, text=True, timeout=60)
    assert why.returncode == 0, why.stderr
    verdict = json.loads(why.stdout)["verdict"]
    assert f"tessera run: why: {verdict['text']}" in done.stderr
    return verdict, done.stderr, script


def test_a_loss_that_is_not_finite_leads_to_its_line(tmp_path):
    verdict, err, script = verdict_of(tmp_path, "nan")
    place = f"{script}:{line_of('LOG')}"
    assert f", made by {place}" in err
    assert verdict["kind"] == "non-finite"
    assert f"made by {place}" in verdict["text"]


def test_who_waits_for_a_killed_rank_says_of_which_line_the_gradients_are(tmp_path):
    verdict, _, script = verdict_of(tmp_path, "kill")
    assert (verdict["kind"], verdict["ranks"]) == ("killed", [1])
    assert "was killed by SIGKILL in step 2; rank 0 waited for it in all_reduce" in verdict["text"]


class Logarithm(nn.Cell):
    def construct(self, x):
        return ops.log(x)


class Outer(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(3, 3)
        self.log = Logarithm()

    def construct(self, x):
        return self.log(self.fc(x) - 1e6)


def test_the_line_is_the_one_of_the_operator_and_not_of_the_package(tmp_path):
    rows = tessera.data.tensors({"x": np.ones((2, 3), np.float32), "label": np.ones((2, 3), np.float32)}).batch(2)
    model = tessera.Model(Outer(), nn.MSELoss(), nn.SGD(learning_rate=0.1))
    with pytest.raises(tessera.NonFiniteLoss) as error:
        model.train(1, rows)
    code = Logarithm.construct.__code__
    assert f"made by {code.co_filename}:{code.co_firstlineno + 1}" in str(error.value)


def test_a_script_that_is_told_to_end_ends_by_the_signal(tmp_path):
    script, reports = tmp_path / "script.py", tmp_path / "reports"
    script.write_text("import time, tessera\ntessera.cluster.init()\nprint('ready', flush=True)\ntime.sleep(60)\n")
    child = subprocess.Popen([sys.executable, str(script)], env=CLEAN | {"TESSERA_REPORT_DIR": str(reports)}, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == -signal.SIGTERM
    child.stdout.close()
    assert json.loads((reports / "rank.0.json").read_text())["event"] == "told to end"
