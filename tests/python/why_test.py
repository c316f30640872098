"""What went wrong is told with the line of the script that made it: in errors, and in the reports of ranks that `tessera cluster why` reads."""
import json
import os
import re
import signal
import subprocess
import sys
import time
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
    assert child.wait(60) == -signal.SIGTERM
    child.stdout.close()
    assert json.loads((reports / "rank.0.json").read_text())["event"] == "told to end"


# Ends of every day, on one of three ranks; with what a user is told of each.
ENDS = """
import os
import signal
import sys
import time

how = sys.argv[1]
bad = os.environ["TESSERA_RANK"] == "1"
if how == "import" and bad:
    import no_such_module
if how == "exit before joining" and bad:
    sys.exit(0)

import numpy as np
import tessera
from tessera import nn

rank = tessera.cluster.rank()

class Ends(tessera.Callback):
    def step_begin(self, run):
        if not bad or run.step_in_epoch != 3:
            return
        if how == "exit":
            sys.exit(0)  # LEFT
        if how == "exit with a code":
            sys.exit(3)  # CODE
        if how == "end without a word":
            os._exit(0)
        if how == "memory":
            raise MemoryError  # MEMORY
        if how == "assertion":
            assert run.step < 0, "the step is wrong"
        if how == "exception":
            {}["key"]
        if how == "interrupt":
            raise KeyboardInterrupt
        if how in ("SIGHUP", "SIGTERM", "SIGKILL"):
            os.kill(os.getpid(), getattr(signal, how))
            time.sleep(10)
        if how == "other order":
            time.sleep(3)
            tessera.cluster.barrier()
        if how == "full disk":
            raise OSError(28, "No space left on device", "/data/run/metrics.csv")
        if how == "sleep":
            time.sleep(1000)  # SLEEP
        if how == "loop":
            while True: pass  # LOOP

def check(row):
    check.calls += 1
    assert how != "loader" or not bad or check.calls < 10, "a row is broken"  # ROW
    return row

check.calls = 0
x = np.ones((48, 4), np.float32)
if how == "nan":
    x[30] = np.nan
rows = tessera.data.tensors({"x": x, "label": x[:, :3].copy()}).map("x", check).batch(6)
epochs = 2 if how == "more epochs" and bad else 1
if how == "fewer batches" and bad:
    rows = rows.take(2)
model = tessera.Model(nn.Dense(4, 3), nn.MSELoss(), nn.SGD(learning_rate=0.1), metrics=["loss"], parallel_mode="data_parallel")
if how not in ("one trains", "one trains, all evaluate") or bad:
    model.train(epochs, rows, [Ends()])  # TRAINS
if how == "one trains, all evaluate":
    model.eval(rows)  # EVALUATES
if how == "error behind":
    assert not bad, "the training was bad"
"""

ONE = r"rank 1 \(\S+, pid \d+\)"
WAITED = r'; ranks 0, 2 waited for it in all_reduce "loss"'

TABLE = {
    "import": ("failed", [1], ONE + r" ended with exit code 1; its last line: ModuleNotFoundError: No module named 'no_such_module'$"),
    "exit before joining": ("ended", [1], ONE + " ended with exit code 0, without a word to the others$"),
    "exit": ("ended", [1], ONE + " ended with exit code 0 in step 3, at PLACE:LEFT in step_begin" + WAITED),
    "exit with a code": ("failed", [1], ONE + " failed in step 3, at PLACE:CODE in step_begin: it has ended with exit code 3" + WAITED),
    "end without a word": ("ended", [1], ONE + " ended with exit code 0 in step 3, without a word to the others" + WAITED),
    "memory": ("failed", [1], ONE + " failed in step 3, at PLACE:MEMORY in step_begin: MemoryError" + WAITED),
    "assertion": ("failed", [1], ONE + r" failed in step 3, at \S+ in step_begin: AssertionError: the step is wrong" + WAITED),
    "exception": ("failed", [1], ONE + r" failed in step 3, at \S+ in step_begin: KeyError: 'key'" + WAITED),
    "error behind": ("failed", [1], ONE + r" failed, at \S+ in <module>: AssertionError: the training was bad"),
    "loader": ("failed", [1], ONE + r" failed(?: in step \d)?, at PLACE:ROW in check: AssertionError: a row is broken"),
    "interrupt": ("killed", [1], ONE + " was killed by SIGINT in step 3" + WAITED),
    "SIGHUP": ("killed", [1], ONE + " was killed by SIGHUP in step 3" + WAITED),
    "SIGTERM": ("killed", [1], ONE + " was killed by SIGTERM in step 3" + WAITED),
    "SIGKILL": ("killed", [1], ONE + " was killed by SIGKILL in step 3" + WAITED),
    "other order": ("different calls", [1], ONE + r' made another call than the others in step 3: rank 1 waited in barrier.*, ranks 0, 2 waited '
                    r'in all_reduce.*, and neither went on; every rank must make the same calls, .*, in the same order; '),
    "full disk": ("full disk", [1], ONE + r" failed in step 3, at \S+ in step_begin: OSError: \[Errno 28\] No space left on device: '/data/run/metrics.csv'; "
                  "the disk of /data/run is full: remove there"),
    "sleep": ("stands still", [1], ONE + r" stood still for \d+ s in step 3, in the callbacks, at PLACE:SLEEP in step_begin \(it waits in .*\)" + WAITED),
    "nan": ("non-finite", None, r"the loss of step 6 is not finite: the first result that is not is of \S+"),
    "fewer batches": ("failed", [0, 1, 2], r"all 3 ranks failed, at \S+ in <module>: InvalidArgument: train: rank 1 has 2 batches an epoch, rank 0 has 8"),
    "more epochs": ("different calls", [1], "the ranks did not make the same calls: ranks 0, 2 had ended with exit code 0 when others were in step 9; "
                    'rank 1 waited for them in all_reduce "loss"'),
    "one trains": ("different calls", [1], "the ranks did not make the same calls: ranks 0, 2 had ended with exit code 0; rank 1 waited for them in "),
    "one trains, all evaluate": ("different calls", None, r'.*(?:barrier "begin of a training" #\d+ against barrier "begin of an evaluation"|'
                                 r'barrier "begin of an evaluation" #\d+ against barrier "begin of a training").*; .* at PLACE:EVALUATES in <module>.*'),
}


def place_of(pattern, script):
    """The pattern with the script's name and the lines of its marks."""
    for number, line in enumerate(ENDS.splitlines(), 1):
        if "  # " in line:
            pattern = pattern.replace("PLACE:" + line.rsplit("  # ", 1)[1] + " ", f"{re.escape(str(script))}:{number} ")
    assert "PLACE" not in pattern
    return pattern


@pytest.mark.parametrize("how", TABLE)
def test_an_end_of_every_day_is_told_as_what_it_is(tmp_path, how):
    kind, ranks, pattern = TABLE[how]
    script, reports = tmp_path / "script.py", tmp_path / "reports"
    script.write_text(ENDS)
    done = subprocess.run([TESSERA, "run", "-n", "3", "--num_threads", "1", "--timeout", "15", "--report_dir", str(reports), sys.executable, str(script), how],
                          env=CLEAN, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    why = subprocess.run([TESSERA, "cluster", "why", str(reports), "--json"], env=CLEAN, capture_output=True, text=True, timeout=60)
    assert why.returncode == 0, why.stderr
    verdict = json.loads(why.stdout)["verdict"]
    assert re.match(place_of(pattern, script), verdict["text"]), verdict
    assert (verdict["kind"], ranks or verdict["ranks"]) == (kind, verdict["ranks"]), verdict
    assert f"tessera run: why: {verdict['text']}" in done.stderr
    if how == "exit":
        assert re.search(r"tessera run: rank 1 ended before a call for which ranks? [02, ]+ waited: ", done.stderr), done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_who_interrupts_a_job_that_hangs_is_told_where_its_script_is(tmp_path, number):
    script, reports = tmp_path / "script.py", tmp_path / "reports"
    script.write_text(ENDS)
    # The loop keeps the interpreter: when the signal comes, nobody can ask it where it is.
    job = subprocess.Popen([TESSERA, "run", "-n", "3", "--num_threads", "1", "--timeout", "30", "--report_dir", str(reports), sys.executable, str(script),
                            "loop"], env=CLEAN, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        limit = time.monotonic() + 240
        while time.monotonic() < limit:
            known = [json.loads((reports / f"rank.{rank}.json").read_text()) for rank in (0, 1) if (reports / f"rank.{rank}.json").exists()]
            if [report["event"] for report in known] == ["waits", "stands still"] and known[1]["script"]:
                break
            time.sleep(0.05)
        else:
            pytest.fail(f"the reports say {known}")
        job.send_signal(number)
        err = job.communicate(timeout=60)[1]
    finally:
        job.kill()
        job.communicate()
    pattern = (f"tessera run: why: {number.name} ended the job: " + ONE + r" stood still for \d+ s in step 3, in the callbacks, at PLACE:LOOP in step_begin "
               r"\(.*\)" + WAITED)
    assert re.search(place_of(pattern, script), err), err
