"""What callbacks write of a training: tables, JSON Lines, event files that TensorBoard reads."""
import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import event_files
import numpy as np
import pytest
import tessera
from tessera import nn

BUILD = Path(os.environ["TESSERA_BUILD"])


@pytest.fixture(scope="module")
def read_events():
    return event_files.made_reader()


def rows(count=12, batch=4):
    x = np.linspace(-1, 1, 2 * count, dtype=np.float32).reshape(count, 2)
    return tessera.data.tensors({"x": x, "y": x[:, :1] * 2}).batch(batch)


def make(rate=0.125, **options):
    return tessera.Model(nn.Dense(2, 1), nn.MSELoss(), nn.Momentum(learning_rate=rate), metrics=["mae"], **options)


def all_records(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def records(path):
    """Those of steps, epochs and evaluations."""
    return [record for record in all_records(path) if record["kind"] not in ("run", "end")]


def moments(path):
    return [f"{record['kind']} {record['step']}" for record in records(path)]


class Losses(tessera.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def step_end(self, run):
        self.losses.append(run.loss)


def test_a_log_has_the_losses_that_callbacks_see(tmp_path):
    losses = Losses()
    make().train(2, rows(), [losses, tessera.JsonLog(tmp_path / "log.jsonl"), tessera.CsvLog(tmp_path / "log.csv"), tessera.EpochSummary(valid=rows())])
    steps = [record for record in records(tmp_path / "log.jsonl") if record["kind"] == "step"]
    assert [record["loss"] for record in steps] == pytest.approx(losses.losses, rel=1e-7) and len(steps) == 6
    assert all(record["learning_rate"] == 0.125 and record["rows_per_second"] > 0 for record in steps)
    with open(tmp_path / "log.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in table if row["kind"] == "step"] == pytest.approx(losses.losses, rel=1e-7)
    assert [row["step"] for row in table if row["kind"] == "evaluation"] == ["3", "6"]
    assert all(float(row["evaluated_mae"]) >= 0 for row in table if row["kind"] == "evaluation")


def test_a_log_says_how_the_training_was_started_and_how_it_ended(tmp_path):
    make(seed=7).train(1, rows(), [tessera.JsonLog(tmp_path / "log")])
    first, *_, last = all_records(tmp_path / "log")
    assert first["kind"] == "run" and first["command"] == sys.orig_argv and first["version"] == tessera.__version__
    assert (first["seed"], first["ranks"], first["epochs"], first["steps_per_epoch"]) == (7, 1, 1, 3)
    assert first["directory"] == os.getcwd()
    assert last["kind"] == "end" and last["ended"] == "completed" and last["step"] == 3


def test_a_log_says_which_exception_of_python_has_ended_the_training(tmp_path):
    class Fails(tessera.Callback):
        def step_end(self, run):
            raise ValueError("no more\n  of these")

    with pytest.raises(ValueError):
        make().train(1, rows(), [tessera.JsonLog(tmp_path / "log"), Fails()])
    last = all_records(tmp_path / "log")[-1]
    assert (last["kind"], last["ended"], last["reason"]) == ("end", "failed", "ValueError: no more\n  of these")


def test_a_schedule_that_is_a_function_of_the_step_is_told(tmp_path):
    make().train(1, rows(), [tessera.JsonLog(tmp_path / "log", every_steps=3, learning_rate=lambda step: step / 2)])
    assert [record["learning_rate"] for record in records(tmp_path / "log")] == [1.5, 1.5]


def test_numbers_of_ones_own(tmp_path):
    log = tessera.CsvLog(tmp_path / "log")

    class Own(tessera.Callback):
        def epoch_end(self, run):
            log.add_metrics({"f1": 0.5})

    make().train(1, rows(), [log, Own()])
    with open(tmp_path / "log", newline="") as file:
        assert [row["evaluated_f1"] for row in csv.DictReader(file)] == ["", "", "", "", "0.5"]
    with pytest.raises(tessera.InvalidArgument, match="while a training goes on"):
        log.add_metrics({"f1": 0.5})


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import tessera
from logs_test import make, rows

class Kills(tessera.Callback):
    def step_end(self, run):
        if run.step == 5:
            os.kill(os.getpid(), signal.SIGKILL)

make(seed=1).train(3, rows(), [tessera.JsonLog("log"), tessera.TensorBoard("runs"), tessera.ModelCheckpoint("c", "saved", save_checkpoint_steps=2), Kills()])
"""


def test_a_training_that_was_killed_goes_on_in_its_log(tmp_path, read_events):
    done = subprocess.run([sys.executable, "-c", KILLED.format(tests=str(Path(__file__).parent))], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert moments(tmp_path / "log") == ["step 1", "step 2", "step 3", "epoch 3", "step 4", "step 5"], "nothing is lost"
    with open(tmp_path / "log", "a") as file:
        file.write('{"kind":"st')  # what it was writing
    whole = Losses()
    make(seed=1).train(3, rows(), [whole])
    model = make(seed=1)
    model.build(rows())
    model.load_checkpoint(tmp_path / "saved")
    model.train(3, rows(), [tessera.JsonLog(tmp_path / "log"), tessera.TensorBoard(tmp_path / "runs")])
    assert moments(tmp_path / "log") == ["step 1", "step 2", "step 3", "epoch 3", "step 4", "step 5", "step 6", "epoch 6", "step 7", "step 8", "step 9", "epoch 9"]
    steps = [record for record in records(tmp_path / "log") if record["kind"] == "step"]
    assert [record["loss"] for record in steps] == pytest.approx(whole.losses, rel=1e-6)
    seconds = [record["seconds"] for record in steps]
    assert seconds == sorted(seconds)
    assert [step for step, _ in read_events(tmp_path / "runs")["scalars"]["loss"]] == list(range(1, 10)), "step 5 is there once"


ENDED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import tessera
from logs_test import make, rows

class Ends(tessera.Callback):
    def step_end(self, run):
        if run.step != 5:
            return
        if {way!r} == "SIGTERM":
            os.kill({pid}, signal.SIGTERM)
            signal.pause()
        signal.raise_signal(signal.SIGINT)

callbacks = [tessera.JsonLog("log")] + ([tessera.ModelCheckpoint("c", "saved", save_checkpoint_steps=2)] if {saves} else [])
signal.signal(signal.SIGINT, signal.default_int_handler)
model = make(seed=1, parallel_mode="data_parallel")
try:
    model.train(3, rows(), callbacks + [Ends()])
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("saves", [False, True])
@pytest.mark.parametrize("way", ["SIGTERM", "SIGINT"])
def test_a_training_that_a_signal_ends_says_so(tmp_path, way, saves):
    text = ENDED.format(tests=str(Path(__file__).parent), way=way, saves=saves, pid="os.getpid()")
    if saves:
        text = text.replace("            signal.pause()\n", "            return\n")  # it ends after the step
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    expected = 0 if way == "SIGINT" else 128 + signal.SIGTERM if saves else -signal.SIGTERM
    assert done.returncode == expected, done.stderr
    ends = [record for record in all_records(tmp_path / "log") if record["kind"] == "end"]
    assert [(end["ended"], end["signal"]) for end in ends] == [("stopped", way)]
    assert all_records(tmp_path / "log")[-1] == ends[0]
    said = subprocess.run([BUILD / "bin" / "tessera", "report", "log"], cwd=tmp_path, capture_output=True, text=True)
    assert f"{way} stopped it after step 5" in said.stdout, said.stdout + said.stderr


def test_several_ranks_that_their_launcher_ends_say_so(tmp_path):
    # Between the launcher and a rank stands its guard.
    launcher = "int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])"
    text = ENDED.format(tests=str(Path(__file__).parent), way="SIGTERM", saves=False, pid=launcher)
    text = text.replace("if run.step != 5:", "if run.step != 5 or tessera.cluster.rank() != 1:")
    done = subprocess.run([BUILD / "bin" / "tessera", "run", "-n", "2", sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode != 0
    last = all_records(tmp_path / "log")[-1]
    assert (last["kind"], last["ended"], last.get("signal")) == ("end", "stopped", "SIGTERM"), done.stderr


def test_a_second_training_leaves_the_log_of_a_running_one(tmp_path):
    class Beside(tessera.Callback):
        def step_end(self, run):
            if run.step == 2:
                text = (f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nimport tessera\nfrom logs_test import make, rows\n"
                        f"make().train(1, rows(), [tessera.JsonLog({str(tmp_path / 'log')!r})])")
                self.other = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)

    beside = Beside()
    make().train(1, rows(), [tessera.JsonLog(tmp_path / "log"), beside])
    assert beside.other.returncode != 0 and "another training" in beside.other.stderr and "writes this log" in beside.other.stderr
    assert moments(tmp_path / "log") == ["step 1", "step 2", "step 3", "epoch 3"] and not (tmp_path / "log.1").exists()


def test_tensorboard_reads_what_was_trained(tmp_path, read_events):
    losses = Losses()
    model = make([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    board = tessera.TensorBoard(tmp_path, histogram_steps=6, hyper_parameters={"rate": 1, "is_deep": False, "name": "mlp"})

    class Own(tessera.Callback):
        def step_end(self, run):
            if run.step == 2:
                board.add_scalar("own", 7)
                board.add_text("note", "**two**")
                board.add_histogram("numbers", np.float32([1, 2, np.nan]))

    model.train(2, rows(), [losses, tessera.EpochSummary(valid=rows()), board, Own()])
    read = read_events(tmp_path)
    scalars = read["scalars"]
    assert scalars["loss"] == [[step + 1, pytest.approx(loss)] for step, loss in enumerate(losses.losses)]
    assert scalars["learning_rate"] == [[step, pytest.approx(step / 10)] for step in range(1, 7)]
    assert [step for step, _ in scalars["evaluation/mae"]] == [3, 6]
    assert scalars["evaluation/mae"][-1][1] == pytest.approx(model.eval(rows())["mae"])
    assert scalars["epoch/loss"] == [[3, pytest.approx(np.mean(losses.losses[:3]))], [6, pytest.approx(np.mean(losses.losses[3:]))]]
    assert scalars["own"] == [[2, 7.0]] and scalars["numbers/non_finite"] == [[2, 1.0]]
    assert min(value for _, value in scalars["memory/resident_bytes"]) > 1e6
    (step, low, high, count, total, squares, limits, counts), = read["histograms"]["weights/weight"]
    weight = model.value("weight").numpy().astype(np.float64)
    assert (step, count) == (6, 2) and (low, high, total, squares) == pytest.approx((weight.min(), weight.max(), weight.sum(), (weight ** 2).sum()))
    assert np.histogram(weight, [-np.inf, *limits])[0].tolist() == counts and sum(counts) == 2
    assert read["texts"] == {"note": [[2, "**two**"]]}
    assert read["hparams"] == {"rate": 1.0, "is_deep": False, "name": "mlp"} and read["status"] == 1


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Dense(2, 3), nn.ReLU(), nn.Dense(3, 1)

    def construct(self, x):
        return self.down(self.act(self.up(x)))


class TwoBlocks(nn.Cell):
    """The same block twice."""

    def __init__(self):
        super().__init__()
        self.block = Block()

    def construct(self, x):
        return self.block(x) + self.block(x * 2.0)


def test_tensorboard_reads_the_graph_under_the_names_of_cells(tmp_path, read_events):
    tessera.Model(TwoBlocks(), nn.MSELoss(), nn.Momentum(learning_rate=0.1)).train(1, rows(), [tessera.TensorBoard(tmp_path)])
    read = read_events(tmp_path)
    graph = read["graph"]
    assert graph["x"] == ["input", [], [[4, 2]]] and graph["block/up/weight"] == ["param", [], [[3, 2]]]
    assert graph["block/up/matmul"] == ["matmul", ["x", "block/up/weight"], [[4, 3]]]
    assert graph["block/up/bias_add"] == ["bias_add", ["block/up/matmul", "block/up/bias"], [[4, 3]]]
    assert graph["block/act/relu"][:2] == ["relu", ["block/up/bias_add"]] and graph["block/act/relu_1"][:2] == ["relu", ["block/up/bias_add_1"]]
    assert graph["add"] == ["add", ["block/down/bias_add", "block/down/bias_add_1"], [[4, 1]]]
    assert graph["loss/sub"][:2] == ["sub", ["add", "y"]] and graph["loss/reduce_mean"][2] == [[]]
    assert all(source.partition(":")[0] in graph for _, inputs, _ in graph.values() for source in inputs)
    assert not [node for node in graph if node.startswith(("optimizer", "moments"))] and not [op for op, _, _ in graph.values() if op == "relu_grad"]
    assert read["attributes"]["block/up/matmul"] == {"transpose_a": False, "transpose_b": True, "T": 1}  # DT_FLOAT


def test_a_graph_is_that_of_all_ranks_and_there_is_none_where_none_is_wanted(tmp_path, read_events):
    text = (f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nimport tessera\nfrom logs_test import make, rows\n"
            "make(parallel_mode='data_parallel').train(1, rows(), [tessera.TensorBoard('runs')])")
    subprocess.run([BUILD / "bin" / "tessera", "run", "-n", "2", sys.executable, "-c", text], cwd=tmp_path, check=True, timeout=120)
    assert read_events(tmp_path / "runs")["graph"]["matmul"] == ["matmul", ["x", "weight"], [[4, 1]]]
    make().train(1, rows(), [tessera.TensorBoard(tmp_path / "none", graph=False)])
    assert "graph" not in read_events(tmp_path / "none")


def test_a_graph_of_ones_own_event_file(tmp_path, read_events):
    writer, model = tessera.EventWriter(tmp_path), make()
    with pytest.raises(tessera.InvalidArgument, match="the model has compiled no training step"):
        writer.add_graph(model)
    x = np.zeros((4, 2), np.float32)
    model.train_step(x, x[:, :1])
    writer.add_graph(model)
    writer.close()
    assert "loss/square" in read_events(tmp_path)["graph"]


def test_a_new_training_voids_an_older_one_in_tensorboard(tmp_path, read_events):
    make().train(2, rows(), [tessera.TensorBoard(tmp_path)])
    make().train(1, rows(), [tessera.TensorBoard(tmp_path, every_steps=2)])
    assert [step for step, _ in read_events(tmp_path)["scalars"]["loss"]] == [2]


def test_an_event_file_of_ones_own(tmp_path, read_events):
    writer = tessera.EventWriter(tmp_path)
    writer.add_scalar("a", 0.5, 3)
    writer.add_text("b", "text", 4)
    writer.add_histogram("c", tessera.Tensor(np.arange(4, dtype=np.float32)), 5)
    writer.add_image("d", b"no png", 2, 3, 6)
    writer.close()
    with pytest.raises(tessera.InvalidArgument, match="it is closed"):
        writer.add_scalar("a", 0.5, 4)
    with open(writer.path, "ab") as file:
        file.write(b"\x20\0\0\0")  # what a killed process may leave
    read = read_events(tmp_path)
    assert read["scalars"] == {"a": [[3, 0.5]]} and read["texts"] == {"b": [[4, "text"]]}
    assert read["images"] == {"d": [[6, 3, 2, b"no png".hex()]]} and read["histograms"]["c"][0][:5] == [5, 0, 3, 4, 6]


def test_a_progress_bar_prints_json(capfd):
    make().train(2, rows(), [tessera.ProgressBar(log_format="json"), tessera.EpochSummary(valid=rows())])
    kinds = [json.loads(line)["kind"] for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    assert kinds == ["progress", "epoch", "evaluation", "epoch", "evaluation"]
    with pytest.raises(tessera.InvalidArgument, match='must be "text" or "json"'):
        tessera.ProgressBar(log_format="xml")


def test_a_log_among_the_callbacks_of_rank_0_alone(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
                      "import tessera\nfrom logs_test import make, rows\n"
                      "logs = [tessera.JsonLog('log'), tessera.TensorBoard('runs')] if tessera.cluster.rank() == 0 else []\n"
                      "make(parallel_mode='data_parallel').train(2, rows(), logs)\n")
    run = subprocess.run([BUILD / "bin" / "tessera", "run", "-n", "2", sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert len(moments(tmp_path / "log")) == 8 and len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.parametrize("program", ["resnet50_cifar10", "transformer_wmt14"])
def test_a_program_prints_json_and_writes_logs(tmp_path, program):
    size = ["--train_records", "32", "--test_records", "8"] if program == "resnet50_cifar10" else ["--train_pairs", "64", "--test_pairs", "8"]
    subprocess.run([BUILD / "bin" / program, "--make_data", "data", *size], cwd=tmp_path, check=True, capture_output=True)
    texts = ["--source", "data/train.source.sgm", "--target", "data/train.target.sgm"]
    data = ["--data_path", "data"] if program == "resnet50_cifar10" else texts
    run = subprocess.run([BUILD / "bin" / program, *data, "--epochs", "1", "--batch_size", "8", "--kernels", "fixed", "--print_loss", "2", "--progress",
                          "--log_format", "json", "--log_dir", "logs"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    printed = [json.loads(line) for line in run.stdout.splitlines()]
    assert {"message", "progress", "epoch"} <= {record["kind"] for record in printed}
    assert [record["step"] for record in records(tmp_path / "logs" / "log.jsonl") if record["kind"] == "step"][:4] == [1, 2, 3, 4]
    assert len(list((tmp_path / "logs").iterdir())) == 3


def test_the_page_runs_as_it_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).resolve().parents[2] / "docs" / "watching.md").read_text()
    scope = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S):
        exec(block, scope)
    assert len(scope["losses"]) == 30 and len(scope["accuracies"]) == 5 and scope["accuracies"][-1] <= 1
