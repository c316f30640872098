"""Several threads, and processes made by fork(): what waits, what is refused, and how a script ends while a thread trains."""
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tessera
from tessera import data, nn, ops

ROWS = np.random.default_rng(1).standard_normal((96, 8), dtype=np.float32)
LABELS = ROWS[:, :3].argmax(1).astype(np.int32)


def new_model():
    return tessera.Model(nn.Dense(8, 3), nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), nn.Momentum(learning_rate=0.1),
                         metrics=["accuracy"])


def rows():
    return data.tensors({"x": ROWS, "label": LABELS}).batch(8)


class Calls(tessera.Callback):
    """Calls a function at the end of each step, and keeps the losses."""

    def __init__(self, call=lambda run: None):
        super().__init__()
        self.call = call
        self.losses = []

    def step_end(self, run):
        self.losses.append(run.loss)
        self.call(run)


def in_threads(*calls):
    """Calls all at once; returns what each returned, or raised."""
    results = [None] * len(calls)

    def work(i):
        try:
            results[i] = calls[i]()
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=work, args=(i, )) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_threads_take_turns_in_one_model():
    model = new_model()
    model.train(1, rows())
    wanted = model.eval(rows())
    results = in_threads(*[lambda: [model.eval(rows()) for _ in range(40)]] * 3)
    assert results == [[wanted] * 40] * 3


def test_a_thread_comes_in_between_two_steps_of_a_training():
    alone = Calls()
    new_model().train(3, rows(), [alone])
    model = new_model()
    ended = threading.Event()
    predicted, beside = [], Calls()

    def predict():
        while not ended.is_set():
            predicted.append(model.predict(ROWS[:4]).numpy().copy())

    def train():
        try:
            # It is slow until somebody has come in beside it.
            model.train(3, rows(), [beside, Calls(lambda run: predicted or time.sleep(0.2))])
        finally:
            ended.set()

    results = in_threads(train, predict, predict)
    assert results == [None] * 3
    assert beside.losses == alone.losses
    assert len({p.tobytes() for p in predicted}) >= 1
    assert np.isfinite(predicted).all()


def test_a_callback_may_use_its_model_but_not_train_it():
    model = new_model()
    refused = []

    def use(run):
        model.predict(ROWS[:4])
        if run.step == 3:
            with pytest.raises(tessera.InvalidArgument, match="train: the model is being trained: a callback cannot train it again"):
                model.train(1, rows())
            refused.append(run.step)
        if run.step == 5:
            raise KeyError("on purpose")

    with pytest.raises(KeyError):
        model.train(1, rows(), [Calls(use)])
    assert refused == [3]
    model.train(1, rows())  # the training that failed has ended


def test_threads_that_wait_for_each_others_models_hear_of_it():
    one, other = new_model(), new_model()
    for model in (one, other):
        model.predict(ROWS[:4])
    both = threading.Barrier(2)

    def train(own, others):
        def cross(run):
            if run.step == 1:
                both.wait()
                others.predict(ROWS[:4])
        own.train(1, rows(), [Calls(cross)])

    results = in_threads(lambda: train(one, other), lambda: train(other, one))
    errors = [result for result in results if result is not None]
    assert len(errors) == 1
    assert "a thread waits for a model that another thread is in" in str(errors[0])


class Twice(nn.Cell):
    """Many lines of Python's between the nodes of its graph."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def construct(self, x):
        for _ in range(50):
            x = x * self.factor
        return x


def test_threads_trace_and_run_beside_each_other():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        results = in_threads(*[lambda: [float(Twice(-1.0)(np.full((2, n % 5 + 1), 3.0, np.float32)).numpy()[0, 0]) for n in range(40)],
                               lambda: [float(Twice(1.0)(np.full((3, n % 5 + 1), 5.0, np.float32)).numpy()[0, 0]) for n in range(40)],
                               lambda: [float(ops.add(np.full(7, n, np.float32), 1.0).numpy()[6]) for n in range(400)],
                               lambda: [float(ops.add(np.full(7, -n, np.float32), 1.0).numpy()[6]) for n in range(400)]])
    finally:
        sys.setswitchinterval(interval)
    assert results == [[3.0] * 40, [5.0] * 40, [n + 1.0 for n in range(400)], [1.0 - n for n in range(400)]]


JOINS = """
import os, threading, time
import tessera
if os.environ["TESSERA_RANK"] == "1":
    time.sleep(1)  # so long rank 0 joins
both, found = threading.Barrier(2), []
def use():
    both.wait()
    found.append(tessera.cluster.rank())
threads = [threading.Thread(target=use) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
tessera.cluster.barrier()
print(found)
"""


def test_threads_that_need_the_job_at_once_join_it_once(tmp_path):
    (tmp_path / "script.py").write_text(JOINS)
    tool = os.path.join(os.environ["TESSERA_BUILD"], "bin", "tessera")
    done = subprocess.run([tool, "run", "-n", "2", sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] [0, 0]", "[1] [1, 1]"], done.stderr


SCRIPT = """
import os, sys, threading
import numpy as np
import tessera
from tessera import data, nn
ones = np.ones((64, 8), np.float32)
rows = data.tensors({"x": ones, "y": ones}).batch(8)
def new_model():
    return tessera.Model(nn.Dense(8, 8), nn.MSELoss(), nn.Momentum(learning_rate=0.1), num_threads=2)
"""


def run(tmp_path, text):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + text)
    return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100)


THREADS = {
    "trains": "lambda: new_model().train(1000000, rows, [Started()])",
    "trains again and again": "endless",
    "computes": "operators",
    "calls a cell of Python": "cells",
    "reads batches of Python": "batches",
}


@pytest.mark.parametrize("work", THREADS)
def test_a_script_may_end_while_a_thread(tmp_path, work):
    done = run(tmp_path, f"""
started = threading.Event()
class Started(tessera.Callback):
    def step_end(self, run):
        started.set()
def endless():
    while True:
        new_model().train(1, rows, [Started()])
def operators():
    while True:
        tessera.ops.add(ones, 1.0).numpy()
        started.set()
class Sum(nn.Cell):
    def construct(self, x):
        return sum([x] * 20) + 1.0
def cells():
    while True:
        Sum()(ones).numpy()
        started.set()
class Rows:
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return (np.full(8, sum(range(1000)), np.float32), )
def batches():
    made = data.generator(Rows(), ["x"]).map("x", data.function(lambda x: sum([x] * 20))).batch(8)
    for batch in made.batches(num_epochs=-1, num_workers=2):
        started.set()
threading.Thread(target={THREADS[work]}, daemon=True).start()
started.wait()
""")
    assert (done.returncode, done.stderr) == (0, "")


CHILD = """
new_model().train(1, rows)
child = os.fork()
if child == 0:
    try:
        new_model().train(1, rows)
    except tessera.Error as error:
        print(error, flush=True)
        os._exit(7)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_of_fork_cannot_compute_in_threads_that_its_parent_has(tmp_path):
    done = run(tmp_path, CHILD)
    assert "7" in done.stdout.split(), done.stdout + done.stderr
    assert "this process was made by fork() after its parent had computed in threads" in done.stdout
    assert 'multiprocessing.get_context("spawn")' in done.stdout


def test_a_child_of_fork_may_train_where_its_parent_has_not(tmp_path):
    done = run(tmp_path, CHILD.replace("new_model().train(1, rows)\n", "", 1))
    assert (done.stdout.split(), done.stderr) == (["0"], ""), done.stderr


FORKED = """
import gc, multiprocessing
model = new_model()
model.train(1, rows)
batches = rows.batches(num_epochs=-1, num_workers=2)
next(batches)
class Doubled(nn.Cell):
    def construct(self, x):
        return x * 2
Doubled()(ones)
started = threading.Event()
class Started(tessera.Callback):
    def step_end(self, run):
        started.set()
trained = new_model()
threading.Thread(target=lambda: trained.train(1000000, rows, [Started()]), daemon=True).start()
started.wait()
"""
# What a child ends with, and its code.
CHILD_ENDS = {"sys.exit(5)": 5, "sys.exit()": 0, "raise SystemExit('words')": 1, "raise KeyError('on purpose')": 1,
              "del model, batches, trained; gc.collect(); sys.exit(5)": 5, "next(batches)": 1, "trained.predict(ones)": 1}
CHILD_WORDS = {"next(batches)": "the threads that make its batches are the parent's", "trained.predict(ones)": "another thread of its parent was in the model"}


@pytest.mark.parametrize("end", CHILD_ENDS)
def test_a_child_of_fork_ends_at_once_with_its_own_code(tmp_path, end):
    done = run(tmp_path, FORKED + f"""
child = os.fork()
if child == 0:
    {end}
    os._exit(99)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(next(batches)))
""")
    assert (done.returncode, done.stdout.split()) == (0, [str(CHILD_ENDS[end]), "2"]), done.stdout + done.stderr
    assert CHILD_WORDS.get(end, "") in done.stderr and "is lost with its model" not in done.stderr, done.stderr


def test_processes_by_fork_work_beside_a_training(tmp_path):
    done = run(tmp_path, FORKED + """
context = multiprocessing.get_context("fork")
def square(i):
    gc.collect()
    return i * i
with context.Pool(2) as pool:
    print(pool.map(square, range(4)))
child = context.Process(target=sys.exit, args=(3, ))
child.start()
child.join()
print(child.exitcode, len(next(batches)))
""")
    assert (done.returncode, done.stdout.splitlines()) == (0, ["[0, 1, 4, 9]", "3 2"]), done.stdout + done.stderr


NUMBER = "import tessera; print(tessera.cluster.num_compute_threads())"


def number_of_threads(*launcher, **variables):
    """What each process says of itself."""
    environment = {k: v for k, v in os.environ.items() if k not in ("TESSERA_NUM_THREADS", "OMP_NUM_THREADS")} | variables
    done = subprocess.run([*launcher, sys.executable, "-c", NUMBER], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return [int(line.split()[-1]) for line in done.stdout.splitlines()]


def test_a_process_computes_with_the_threads_that_openmps_variable_says():
    assert number_of_threads(OMP_NUM_THREADS="3") == number_of_threads(OMP_NUM_THREADS=" 3,2") == [3]
    assert number_of_threads(OMP_NUM_THREADS="3", TESSERA_NUM_THREADS="2") == [2]
    unsaid = number_of_threads()
    for wrong in ("many", "0", "-1", "3x", ""):
        assert number_of_threads(OMP_NUM_THREADS=wrong) == unsaid


def test_ranks_do_so_unless_the_command_line_says_another_number():
    run = [os.path.join(os.environ["TESSERA_BUILD"], "bin", "tessera"), "run", "-n", "2"]
    assert number_of_threads(*run, OMP_NUM_THREADS="3") == [3, 3]
    assert number_of_threads(*run, OMP_NUM_THREADS="3", TESSERA_NUM_THREADS="2") == [2, 2]
    assert number_of_threads(*run, "--num_threads", "5", OMP_NUM_THREADS="3", TESSERA_NUM_THREADS="2") == [5, 5]
