"""SIGTERM to a job that trains: it saves the step that it is in, and what resumes from there ends as if nothing had been."""
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

TESSERA = str(Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera")
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))}
STEPS = 400

PROGRAM = """
import os, sys, time
import numpy as np
import tessera
from tessera import nn

tessera.set_seed(3)
mode, directory, saves = sys.argv[1], sys.argv[2], sys.argv[3] == "saves"
x = np.random.RandomState(0).randn(24, 6).astype(np.float32)
rows = tessera.data.tensors({"x": x, "y": x[:, :4].copy()}, num_shards=tessera.cluster.size() if mode == "data_parallel" else 1,
                            shard_id=tessera.cluster.rank() if mode == "data_parallel" else 0).batch(4)
net = nn.Dense(6, 4)
model = tessera.Model(net, nn.MSELoss(), nn.Momentum(learning_rate=0.01, momentum=0.9), parallel_mode=mode)
class Tell(tessera.Callback):
    def step_end(self, run):
        if run.step == 5:
            print("pid", os.getpid(), flush=True)
        if run.step < 395 and "quick" not in sys.argv:
            time.sleep(0.05)
callbacks = [Tell()]
if saves:
    callbacks.append(tessera.ModelCheckpoint("CKP", directory, save_checkpoint_steps=1000))
if "resume" in sys.argv:
    model.load_checkpoint(directory)
try:
    model.train(STEPS // (len(x) // 4 // (tessera.cluster.size() if mode == "data_parallel" else 1)), rows, callbacks)
except Exception as error:
    print("an exception:", error, flush=True)
if tessera.cluster.rank() == 0:
    np.save(os.path.join(directory, "end.npy"), model.value("weight").numpy())
print("went on", flush=True)
""".replace("STEPS", str(STEPS))


def command(mode, directory, ranks, *more):
    program = [sys.executable, "-c", PROGRAM, mode, str(directory), *more]
    return [TESSERA, "run", "-n", str(ranks), *program] if ranks else program


def start(*arguments):
    return subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=CLEAN, start_new_session=True)


def pid_in(job):
    """Of a rank that has trained five steps."""
    for line in job.stdout:
        if match := re.search(r"pid (\d+)", line):
            return int(match.group(1))
    raise AssertionError("the job has ended")


def rest(job):
    out = job.communicate(timeout=120)[0]
    return job.returncode, out


@pytest.mark.parametrize("mode, ranks, told", [
    ("stand_alone", 0, "rank"),
    ("data_parallel", 2, "launcher"),
    ("data_parallel", 2, "rank"),
    ("semi_auto_parallel", 2, "launcher"),
])
def test_the_step_is_saved_and_the_training_goes_on_from_it(tmp_path, mode, ranks, told):
    job = start(mode, tmp_path, ranks, "saves")
    pid = pid_in(job)
    os.kill(job.pid if told == "launcher" else pid, signal.SIGTERM)
    code, out = rest(job)
    saved = re.findall(r"SIGTERM ends the training after epoch (\d+), step (\d+): it is saved as \S+/CKP-\1_\2.ckpt", out)
    assert len(set(saved)) == 1 and "went on" not in out and "an exception" not in out, out
    assert code == (128 + signal.SIGTERM if told == "launcher" or ranks == 0 else 1), out
    assert "failed" not in out or told == "rank", out
    assert len(list(tmp_path.glob("*.ckpt"))) == 1
    code, out = rest(start(mode, tmp_path, ranks, "saves", "resume", "quick"))
    assert code == 0, out
    resumed = np.load(tmp_path / "end.npy")
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    code, out = rest(start(mode, undisturbed, ranks, "not", "quick"))
    assert code == 0, out
    np.testing.assert_array_equal(resumed, np.load(undisturbed / "end.npy"))


def test_without_a_checkpoint_the_signal_ends_the_process_at_once(tmp_path):
    job = start("stand_alone", tmp_path, 0, "not")
    os.kill(pid_in(job), signal.SIGTERM)
    code, out = rest(job)
    assert code in (-signal.SIGTERM, 128 + signal.SIGTERM) and "went on" not in out, out


def test_a_second_signal_does_not_wait(tmp_path):
    slow = PROGRAM.replace("time.sleep(0.05)", "time.sleep(0.05 if run.step < 5 else 60)")
    job = subprocess.Popen([sys.executable, "-c", slow, "stand_alone", str(tmp_path), "saves"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, env=CLEAN)
    pid = pid_in(job)
    os.kill(pid, signal.SIGTERM)
    time.sleep(0.3)
    assert job.poll() is None
    os.kill(pid, signal.SIGTERM)
    code, out = rest(job)
    assert code in (-signal.SIGTERM, 128 + signal.SIGTERM), out


def test_a_program_that_handles_the_signal_itself_goes_on_to_do_so(tmp_path):
    own = "import signal\nheard = []\nsignal.signal(signal.SIGTERM, lambda *_: heard.append(print('mine', flush=True)))\n" + \
        PROGRAM.replace("time.sleep(0.05)", "while run.step == 6 and not heard: time.sleep(0.05)")
    job = subprocess.Popen([sys.executable, "-c", own, "stand_alone", str(tmp_path), "saves"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, env=CLEAN)
    os.kill(pid_in(job), signal.SIGTERM)
    code, out = rest(job)
    assert code == 0 and "mine" in out and "went on" in out and "SIGTERM ends" not in out, out


def test_a_signal_that_comes_with_the_last_step_ends_the_process_after_it(tmp_path):
    late = PROGRAM.replace('if run.step < 395 and "quick" not in sys.argv:',
                           "if run.step == 396:\n            import signal; os.kill(os.getpid(), signal.SIGTERM)\n        if False:")
    job = subprocess.Popen([sys.executable, "-c", late, "stand_alone", str(tmp_path), "saves"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, env=CLEAN)
    code, out = rest(job)
    assert code in (-signal.SIGTERM, 128 + signal.SIGTERM) and "went on" not in out, out
    assert len(list(tmp_path.glob("*.ckpt"))) == 1  # the end of training has saved it
