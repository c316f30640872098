"""Ranks that end by themselves: another exit code than 0 is a failure of the job, however it was launched."""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tessera

BUILD = Path(os.environ["TESSERA_BUILD"])
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
TESSERA_RUN = [str(BUILD / "bin" / "tessera"), "run"]
# Whoever is waited for in vain, though it has ended, is waited for longer than a job may take here.
LIMIT_S = 240
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))} | {
    "TESSERA_TIMEOUT_MS": str(2 * LIMIT_S * 1000)}

TESSERA = """
import os, sys
import tessera
rank = tessera.cluster.rank()
meet = tessera.cluster.barrier
"""

MINDSPORE = """
import os, sys
from mindspore import Tensor, ops
from mindspore.communication import get_rank, init
init()
rank = get_rank()
meet = lambda: ops.AllReduce()(Tensor([1.0]))
"""

TRAINING = """
import os, sys
import numpy as np
from mindspore import Model, context, dataset, nn
from mindspore.communication import get_rank, init
from mindspore.train.callback import Callback
init()
context.set_auto_parallel_context(parallel_mode="data_parallel")
rank = get_rank()

class End(Callback):
    def step_end(self, run_context):
        if rank == 1:
            END

rows = np.ones((8, 4), np.float32)
data = dataset.NumpySlicesDataset({"x": rows, "y": rows}, shuffle=False).batch(2)
network = nn.Dense(4, 4)
Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 0.1)).train(3, data, [End()], dataset_sink_mode=False)
"""

AMID_CALLS = """
meet()
if rank == 1:
    END
meet()
"""

WAYS = {"sys.exit": "sys.exit(3)", "SystemExit": "raise SystemExit(3)", "os._exit": "os._exit(3)"}
SCRIPTS = {"tessera": TESSERA + AMID_CALLS, "mindspore": MINDSPORE + AMID_CALLS, "training": TRAINING}
PEER_ENDS = r"because rank 1 failed: it has ended with exit code 3"
# What is said of a process whose end nobody but the system sees.
PEER_IS_GONE = r"because rank 1 failed: its process has ended without a word"


def write(folder, name, way):
    path = folder / "script.py"
    path.write_text(SCRIPTS[name].replace("END", WAYS[way]))
    return path


def words_of_peers(way):
    return PEER_IS_GONE if way == "os._exit" else PEER_ENDS


def run(command, transport="", **environment):
    if command[0] == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("mpirun is absent")
    if transport == "mpi" and not (BUILD / "lib" / "libtessera_mpi_plugin.so").exists():
        pytest.skip("the MPI plugin is not built")
    if transport:
        environment |= {"TESSERA_TRANSPORT": transport, "TESSERA_PLUGIN_DIR": str(BUILD / "lib")}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LIMIT_S, env=CLEAN | environment)
    assert not re.search("Segmentation|Process received signal|terminate called|Aborted", done.stderr), done.stderr
    return done


@pytest.mark.parametrize("name", ["tessera", "mindspore"])
@pytest.mark.parametrize("variables", [{"TESSERA_TIMEOUT_MS": "0"}, {"TESSERA_RANK": "5", "TESSERA_SIZE": "2"}, {"TESSERA_LOG_LEVEL": "verbose"}])
def test_a_variable_that_makes_no_sense_has_exit_code_2(tmp_path, name, variables):
    done = run([sys.executable, write(tmp_path, name, "sys.exit")], **variables)
    assert done.returncode == 2, done.stderr
    assert "UsageError" in done.stderr and list(variables)[0] in done.stderr


@pytest.mark.parametrize("variable, value", [("TESSERA_ROLE", "servr"), ("TESSERA_NUM_SERVERS", "1"), ("TESSERA_CUDA_TF32", "yes"),
                                             ("TESSERA_RECORD_STEPS", "x"), ("TESSERA_ON_DIFFERENCE", "shout")])
def test_a_variable_that_makes_no_sense_is_refused_where_one_process_trains(tmp_path, variable, value):
    (tmp_path / "script.py").write_text("from tessera import Model, nn\nModel(nn.Dense(2, 2), nn.MSELoss(), nn.SGD(0.1))\n")
    done = run([sys.executable, tmp_path / "script.py"], **{variable: value})
    assert done.returncode == 2, done.stderr
    assert f"UsageError: {variable}" in done.stderr, done.stderr


def test_the_launcher_ends_with_the_code_of_ranks_whose_variables_make_no_sense(tmp_path):
    (tmp_path / "script.py").write_text("import os\nos.environ['TESSERA_NUM_THREADS'] = 'many'\nimport tessera\ntessera.cluster.init()\n")
    done = run([*TESSERA_RUN, "-n", 2, sys.executable, tmp_path / "script.py"])
    assert done.returncode == 2, done.stderr


def test_what_a_script_says_wrongly_has_exit_code_1(tmp_path):
    (tmp_path / "script.py").write_text("import tessera\ntessera.nn.Dropout(2.0)\n")
    done = run([sys.executable, tmp_path / "script.py"])
    assert done.returncode == 1 and "InvalidArgument" in done.stderr and issubclass(tessera.UsageError, tessera.InvalidArgument)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_code_fails_the_job_of_the_launcher(tmp_path, name, way):
    done = run([*TESSERA_RUN, "-n", 3, sys.executable, write(tmp_path, name, way)])
    assert done.returncode == 1, done.stderr
    assert re.search(words_of_peers(way), done.stderr), done.stderr
    assert "tessera run: rank 1 failed: exit code 3" in done.stderr


@pytest.mark.parametrize("name, way, transport", [
    *[("tessera", way, transport) for way in WAYS for transport in ("shm", "tls", "gloo", "mpi")], ("mindspore", "sys.exit", "shm"),
    ("training", "sys.exit", "shm"), ("training", "sys.exit", "mpi")])
def test_a_code_fails_the_job_of_mpirun(tmp_path, name, way, transport):
    done = run([*MPIRUN, "-n", 2, sys.executable, write(tmp_path, name, way)], transport)
    # mpirun ends the others itself, and with the code of the process that it has seen first.
    assert done.returncode in (1, 3), done.stderr
    assert re.search(r"Exit code: +3\n", done.stderr) or re.search(words_of_peers(way), done.stderr) or \
        "mpirun has exited due to process rank 1" in done.stderr, done.stderr


def run_by_table(script, folder, size=3):
    """(code, standard error) of each rank."""
    devices = [{"device_id": str(i), "device_ip": f"192.1.27.{i}", "rank_id": str(i)} for i in range(size)]
    table = folder / "table.json"
    table.write_text(json.dumps({"version": "1.0", "server_count": "1", "server_list": [{"server_id": "10.0.0.1", "device": devices}],
                                 "status": "completed"}))
    ranks = [subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=CLEAN | {"RANK_TABLE_FILE": str(table), "RANK_ID": str(i), "RANK_SIZE": str(size)}) for i in range(size)]
    return [(rank.communicate(timeout=LIMIT_S)[1], rank.returncode) for rank in ranks]


@pytest.mark.parametrize("name, way", [*[("mindspore", way) for way in WAYS], ("training", "sys.exit")])
def test_a_code_fails_the_job_of_a_rank_table(tmp_path, name, way):
    path = write(tmp_path, name, way)
    (first, first_code), (second, second_code), (third, third_code) = run_by_table(path, tmp_path)
    assert (first_code, second_code, third_code) == (1, 3, 1), first + second + third
    for words in (first, third):
        assert re.search(words_of_peers(way), words), words


FAILED_SAVE = """
import os, signal, sys
import tessera
from tessera import nn
network = nn.Dense(4, 4)
model = tessera.Model(network, nn.MSELoss(), nn.SGD(learning_rate=0.1), parallel_mode="data_parallel")
try:
    model.save_checkpoint(sys.argv[1])
except tessera.IoError:
    if tessera.cluster.rank() != 0:
        raise
    signal.pause()  # the others end first
"""


def test_a_failed_save_is_the_failure_of_the_rank_that_saved(tmp_path):
    (tmp_path / "x.ckpt.tmp").mkdir()  # where a file must be
    script = tmp_path / "script.py"
    script.write_text(FAILED_SAVE)
    done = run([*TESSERA_RUN, "-n", 3, sys.executable, script, tmp_path / "x.ckpt"])
    assert done.returncode == 1, done.stderr
    assert "IoError: rank 0: cannot save: " in done.stderr
    assert "tessera run: rank 0 failed: killed by signal SIGTERM" in done.stderr, done.stderr


GOOD_ENDS = {"falls off its end": "pass", "sys.exit()": "sys.exit()", "a child of fork() that exits": """
if os.fork() == 0:
    sys.exit(5)
os.wait()
meet()
""", "a child of fork() of a rank that trains": """
import numpy as np
from tessera import data, nn
ones = np.ones((8, 4), np.float32)
rows = data.tensors({"x": ones, "y": ones}).batch(4)
model = tessera.Model(nn.Dense(4, 4), nn.MSELoss(), nn.Adam(learning_rate=0.1), parallel_mode="data_parallel")
model.train(1, rows)
batches = rows.batches(num_epochs=-1)
next(batches)
if os.fork() == 0:
    sys.exit(5)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 5
model.train(1, rows)
meet()
"""}


@pytest.mark.parametrize("end", GOOD_ENDS)
@pytest.mark.parametrize("launcher, transport", [(TESSERA_RUN, "shm"), (TESSERA_RUN, "tls"), (TESSERA_RUN, "gloo"), (MPIRUN, "shm"), (MPIRUN, "tls"),
                                                 (MPIRUN, "mpi")],
                         ids=["tessera run", "tessera run over TLS", "tessera run over gloo", "mpirun", "mpirun over TLS", "mpirun over MPI"])
def test_a_job_whose_ranks_end_well_is_a_success(tmp_path, end, launcher, transport):
    script = tmp_path / "script.py"
    script.write_text(TESSERA + "meet()\nprint('met')\nsys.stdout.flush()\n" + GOOD_ENDS[end])
    done = run([*launcher, "-n", 2, sys.executable, script], transport)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("met") == 2  # mpirun may write the ends of lines apart


def test_a_rank_that_has_ended_well_says_whose_failure_ends_the_job(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(TESSERA + "meet()\nprint('done')\nif rank == 1: sys.exit('no room')\n")
    done = run([*TESSERA_RUN, "-n", 2, sys.executable, script])
    assert done.returncode == 1
    assert done.stdout.count("done\n") == 2
    assert "rank 0: error: stopped in the end of the job because rank 1 failed: it has ended with exit code 1" in done.stderr
    assert "[1] no room\n" in done.stderr
    assert "tessera run: rank 1 failed: exit code 1" in done.stderr


def test_an_exception_is_told_with_its_words(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(TESSERA + "meet()\nif rank == 1: raise KeyError('on purpose')\nmeet()\n")
    done = run([*TESSERA_RUN, "-n", 2, sys.executable, script])
    assert done.returncode == 1
    assert "because rank 1 failed: KeyError: 'on purpose'" in done.stderr


FORKS = """
import multiprocessing
import numpy as np
import tessera
from tessera import cluster, nn
def child(results):
    try:
        tessera.Model(nn.Dense(4, 2), nn.MSELoss(), nn.Momentum(learning_rate=0.1), parallel_mode="data_parallel")
    except ValueError as error:
        results.put(str(error))
        if joins: results.put(cluster.rank())
results = multiprocessing.get_context("fork").Queue()
if joins: cluster.init()
process = multiprocessing.get_context("fork").Process(target=child, args=(results, ))
process.start()
assert "is a child of a rank's by fork()" in results.get()
if joins: assert results.get() == cluster.rank()
process.join()
assert process.exitcode == 0
cluster.barrier()
print("done")
"""


@pytest.mark.parametrize("joins", [False, True])
def test_a_child_by_fork_is_no_rank_and_leaves_its_parents_job_alone(tmp_path, joins):
    script = tmp_path / "script.py"
    script.write_text(f"joins = {joins}\n{FORKS}")
    for options in ((), ("--max_restarts", 1)):
        done = run([*TESSERA_RUN, "-n", 2, *options, sys.executable, script])
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("done\n") == 2
        assert "again" not in done.stderr


# What comes before tessera's own end of the process, and takes its time.
LINGERS = {"a function at exit": "atexit.register(time.sleep, 1000)", "a thread": "threading.Thread(target=time.sleep, args=(1000, )).start()"}


@pytest.mark.parametrize("how", LINGERS)
def test_nobody_waits_for_a_failed_script_that_does_not_end(tmp_path, how):
    script = tmp_path / "script.py"
    script.write_text(f"import atexit, threading, time\n{TESSERA}meet()\nif rank == 1:\n    {LINGERS[how]}\n    raise KeyError('on purpose')\nmeet()\n")
    done = run([*TESSERA_RUN, "-n", 2, sys.executable, script])
    assert done.returncode == 1
    assert "because rank 1 failed: KeyError: 'on purpose'" in done.stderr
    assert "Traceback (most recent call last)" in done.stderr


# What was registered before tessera's own comes after it at the end of the process.
LAST_WORDS = """
import atexit, os, signal
if os.environ["TESSERA_RANK"] == "1":
    atexit.register(signal.pause)
""" + TESSERA + """
meet()
if rank == 1:
    print("last words")
    raise KeyError("on purpose")
meet()
"""


# Python flushes what a script has printed when the script ends, but not what another way of running it has.
@pytest.mark.parametrize("way", ["-c", "-m"])
def test_a_failing_rank_has_said_everything_when_the_job_ends_it(tmp_path, way):
    (tmp_path / "script.py").write_text(LAST_WORDS)
    path = f"{os.environ['PYTHONPATH']}:{tmp_path}"
    done = run([*TESSERA_RUN, "-n", 2, sys.executable, way, LAST_WORDS if way == "-c" else "script"], PYTHONPATH=path, PYTHONUNBUFFERED="")
    assert done.returncode == 1
    assert "[1] last words\n" in done.stdout, done.stdout + done.stderr


ASYNC_SAVE = """
import os, sys
import numpy as np
import tessera
from tessera import nn
class Network(nn.Cell):  # a class of Python's: Python does not free what its end finds of it
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Dense(4, width)
    def construct(self, x):
        return self.layer(x)
ones = np.ones((8, 4), np.float32)
models = [tessera.Model(Network(width), nn.MSELoss(), nn.Adam(learning_rate=0.1), parallel_mode="data_parallel") for width in (4, 1 << 16)]
models[0].train(1, tessera.data.tensors({"x": ones, "y": ones}).batch(4))
for i, each in enumerate(models):
    each.save_checkpoint(f"{sys.argv[1]}/{i}.ckpt", async_save=True)
print("saved", flush=True)
"""
# What the script ends with, and the code of a process that does.
SAVING_ENDS = {"falls off its end": ("pass", 0), "sys.exit(0)": ("sys.exit(0)", 0), "sys.exit(3)": ("sys.exit(3)", 3),
               "an exception": ("raise KeyError('on purpose')", 1),
               "an exception of one rank": ("if tessera.cluster.rank() + 1 == tessera.cluster.size(): raise KeyError('on purpose')", 1),
               "a child of fork() that exits": ("if os.fork() == 0: sys.exit(5)\nos.wait()", 0)}


@pytest.mark.parametrize("end", SAVING_ENDS)
@pytest.mark.parametrize("launcher", [[], [*TESSERA_RUN, "-n", 2]], ids=["alone", "tessera run"])
def test_the_end_waits_for_the_saves_that_are_under_way(tmp_path, launcher, end):
    script = tmp_path / "script.py"
    last, code = SAVING_ENDS[end]
    script.write_text(ASYNC_SAVE + last)
    done = run([*launcher, sys.executable, script, tmp_path])
    assert done.returncode == (min(code, 1) if launcher else code), done.stderr
    for i in range(2):
        checked = run([TESSERA_RUN[0], "ckpt", "verify", tmp_path / f"{i}.ckpt"])
        assert checked.returncode == 0, checked.stderr + done.stderr


@pytest.mark.parametrize("launcher", [[], [*TESSERA_RUN, "-n", 2]], ids=["alone", "tessera run"])
def test_a_save_that_fails_as_the_process_ends_is_its_failure(tmp_path, launcher):
    (tmp_path / "1.ckpt.tmp").mkdir()  # where a file must be
    script = tmp_path / "script.py"
    script.write_text(ASYNC_SAVE)
    done = run([*launcher, sys.executable, script, tmp_path])
    assert done.returncode == 1, done.stderr
    assert re.search("IoError: a checkpoint was not saved before the process ended: .*1.ckpt", done.stderr), done.stderr


MINDSPORE_ASYNC_SAVE = """
import sys
import mindspore as ms
if sys.argv[2] == "job":
    ms.communication.init()
ms.save_checkpoint([{"name": "w", "data": ms.Tensor([1.0])}], f"{sys.argv[1]}/w.ckpt", async_save=True)
"""


@pytest.mark.parametrize("launcher, place", [([], "alone"), ([*TESSERA_RUN, "-n", 2], "job")], ids=["alone", "tessera run"])
def test_an_async_save_checkpoint_that_fails_last_is_the_failure_of_the_process(tmp_path, launcher, place):
    (tmp_path / "w.ckpt.tmp").mkdir()  # where a file must be
    script = tmp_path / "script.py"
    script.write_text(MINDSPORE_ASYNC_SAVE)
    done = run([*launcher, sys.executable, script, tmp_path, place])
    assert done.returncode == 1, done.stderr
    assert re.search("a checkpoint was not saved before the process ended: .*w.ckpt", done.stderr), done.stderr
