"""Parameter servers: scripts with MS_ROLE and set_param_ps(), and programs of tessera, train as one process does."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port

TESSERA = str(Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera")

LENET = """
import sys
import numpy as np
import mindspore as ms
import mindspore.dataset as ds
from mindspore import Model, context, nn
from mindspore.common.initializer import Normal
from mindspore.communication import get_group_size, get_rank, init
from mindspore.train.callback import LossMonitor

servers = sys.argv[1:2] == ["servers"]
context.set_context(mode=context.GRAPH_MODE, device_target="CPU")
if len(sys.argv) > 2:
    context.set_auto_parallel_context(parallel_mode=sys.argv[2], gradients_mean=True)
if servers:
    context.set_ps_context(enable_ps=True)
    init()
    assert context.get_ps_context("enable_ps")
    print(f"place {get_rank()} of {get_group_size()}\\n", end="", flush=True)


class LeNet5(nn.Cell):
    def __init__(self, num_class=10, num_channel=1):
        super().__init__()
        self.conv1 = nn.Conv2d(num_channel, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.fc1 = nn.Dense(16 * 5 * 5, 120, weight_init=Normal(0.02))
        self.fc2 = nn.Dense(120, 84, weight_init=Normal(0.02))
        self.fc3 = nn.Dense(84, num_class, weight_init=Normal(0.02))
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()

    def construct(self, x):
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        x = self.flatten(x)
        x = self.relu(self.fc1(x))
        x = self.relu(self.fc2(x))
        return self.fc3(x)


ms.set_seed(1)
drawn = np.random.default_rng(0)
data = ds.NumpySlicesDataset({"image": drawn.uniform(-1, 1, (96, 1, 32, 32)).astype(np.float32),
                              "label": drawn.integers(0, 10, 96).astype(np.int32)}, shuffle=False).batch(16)
network = LeNet5()
if servers:
    network.set_param_ps()
    assert network.fc1.weight.on_servers
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
model = Model(network, loss, nn.Momentum(network.trainable_params(), 0.01, 0.9), metrics={"accuracy": nn.Accuracy()})
model.train(2, data, callbacks=[LossMonitor()], dataset_sink_mode=False)
print(f"accuracy {model.eval(data, dataset_sink_mode=False)['accuracy']}\\n", end="", flush=True)
"""

# What scripts of the reference do with tables that are too large for a worker.
LOOKUPS = """
import sys
import numpy as np
import mindspore as ms
import mindspore.dataset as ds
from mindspore import Model, context, nn, ops
from mindspore.communication import init
from mindspore.train.callback import LossMonitor

servers = sys.argv[1:] == ["servers"]
context.set_context(mode=context.GRAPH_MODE, device_target="CPU")
if servers:
    context.set_ps_context(enable_ps=True)
    init()


class Clicks(nn.Cell):
    def __init__(self):
        super().__init__()
        self.wide = nn.EmbeddingLookup(200, 1, vocab_cache_size=50)
        self.deep = nn.EmbeddingLookup(200, 4, "normal")
        self.out = nn.Dense(12, 1, weight_init="ones")

    def construct(self, ids):
        return ops.reduce_sum(self.wide(ids), 1) + self.out(ops.reshape(self.deep(ids), (ids.shape[0], 12)))


ms.set_seed(1)
drawn = np.random.default_rng(0)
data = ds.NumpySlicesDataset({"ids": drawn.integers(0, 200, (96, 3)).astype(np.int32),
                              "clicked": drawn.integers(0, 2, (96, 1)).astype(np.float32)}, shuffle=False).batch(16)
network = Clicks()
if servers:
    network.wide.set_param_ps()
    network.deep.embedding_table.set_param_ps(init_in_server=True)
model = Model(network, nn.MSELoss(), nn.LazyAdam(network.trainable_params(), 0.05))
model.train(2, data, callbacks=[LossMonitor()], dataset_sink_mode=False)
print(f"sum {float(np.abs(network.deep.embedding_table.asnumpy()).sum()):.4f}\\n", end="", flush=True)
"""

NATIVE = """
import numpy as np
import tessera
from tessera import nn

class Rows(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(29, 6)
        self.out = nn.Dense(6, 3)

    def construct(self, ids):
        return self.out(self.table(ids))

network = Rows()
network.table.set_on_servers()
model = tessera.Model(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), nn.Adam(0.05), seed=5)
for step in range(4):
    drawn = np.random.default_rng(step)
    loss = model.train_step(drawn.integers(0, 29, 12).astype(np.int32), drawn.integers(0, 3, 12).astype(np.int32))
    print(f"loss {loss:.6f} of {tessera.cluster.num_servers()} servers\\n", end="", flush=True)
"""


def environment(**variables):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "MS_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))}
    return kept | {"OMP_WAIT_POLICY": "PASSIVE", "TESSERA_NUM_THREADS": "1"} | {k: str(v) for k, v in variables.items()}


def run(command, cwd, **variables):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=240, cwd=cwd, env=environment(**variables))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses_of(out):
    return [float(loss) for loss in re.findall(r"loss is ([\d.]+)", out)]


@pytest.fixture(scope="module")
def lenet(tmp_path_factory):
    """The folder of the script, and what one process prints."""
    folder = tmp_path_factory.mktemp("lenet")
    (folder / "train.py").write_text(LENET)
    return folder, run([sys.executable, "train.py"], folder)


def expect_same(out, straight):
    assert losses_of(out) == pytest.approx(losses_of(straight), rel=1e-4)
    assert len(losses_of(straight)) == 12
    assert re.search(r"accuracy (\S+)", out)[1] == re.search(r"accuracy (\S+)", straight)[1]


# As the tutorial on parameter servers starts them: a process each, told by variables who it is.
# A data set that is not sharded is the whole batches of all, whether the script says data_parallel or not.
@pytest.mark.parametrize("servers, workers, mode", [(1, 1, []), (2, 2, []), (1, 2, ["data_parallel"])])
def test_a_scheduler_servers_and_workers_train_lenet(lenet, servers, workers, mode):
    folder, straight = lenet
    common = {"MS_SERVER_NUM": servers, "MS_WORKER_NUM": workers, "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": free_port()}
    roles = ["MS_SCHED"] + servers * ["MS_PSERVER"] + workers * ["MS_WORKER"]
    processes = [subprocess.Popen([sys.executable, "train.py", "servers", *mode], cwd=folder, env=environment(MS_ROLE=role, **common), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for role in roles]
    outs = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == len(roles) * [0], outs
    for role, place in (("MS_PSERVER", servers), ("MS_WORKER", workers)):
        of_role = [out for (out, err), own in zip(outs, roles) if own == role]
        # Servers and workers are numbered each for themselves; what is asked for is how many train.
        assert sorted(re.search(r"place (\d+) of (\d+)", out).groups() for out in of_role) == [(str(i), str(workers)) for i in range(place)]
        for out in of_role:
            expect_same(out, straight)


# Its word is the only one that the scheduler waits for: nobody else says that the job has ended well.
@pytest.mark.parametrize("ends, code", [("", 0), ("raise SystemExit(3)", 3)])
def test_a_scheduler_hears_of_the_end_of_its_only_worker(tmp_path, ends, code):
    (tmp_path / "place.py").write_text(f"from mindspore.communication import get_rank, init\ninit()\nprint('place', get_rank())\n{ends}\n")
    common = {"MS_WORKER_NUM": 1, "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": free_port()}
    processes = [subprocess.Popen([sys.executable, "place.py"], cwd=tmp_path, env=environment(MS_ROLE=role, **common), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for role in ("MS_SCHED", "MS_WORKER")]
    outs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [1 if code else 0, code], outs
    assert outs[1][0] == "place 0\n" and "its connection has ended" not in outs[0][1], outs


# A script that says nothing but what servers keep, or not even that.
@pytest.mark.parametrize("said", ["context.set_ps_context(enable_ps=True)", "pass"])
def test_roles_are_taken_where_the_script_has_not_joined_the_job(lenet, tmp_path, said):
    script = LENET.replace("    init()\n", "").replace("    context.set_ps_context(enable_ps=True)", "    " + said)
    script = re.sub(r"\n    assert context[^\n]*\n[^\n]*", "", script).replace("    network.set_param_ps()", f"    {said if said == 'pass' else 'network.set_param_ps()'}")
    (tmp_path / "train.py").write_text(script.replace("    assert network.fc1.weight.on_servers\n", ""))
    common = {"MS_SERVER_NUM": 1, "MS_WORKER_NUM": 2, "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": free_port()}
    roles = ["MS_SCHED", "MS_PSERVER", "MS_WORKER", "MS_WORKER"] if said != "pass" else ["MS_PSERVER", "MS_WORKER"]
    processes = [subprocess.Popen([sys.executable, "train.py", "servers"], cwd=tmp_path, env=environment(MS_ROLE=role, **common), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for role in roles]
    outs = [process.communicate(timeout=240) for process in processes]
    if said == "pass":
        assert processes[0].returncode == 1 and "MS_ROLE MS_PSERVER: there are no servers unless the script calls set_ps_context(enable_ps=True)" in outs[0][1]
        assert "this process trains apart from the others" in outs[1][0] + outs[1][1]
        return
    assert [process.returncode for process in processes] == len(roles) * [0], outs
    assert "loss is" not in outs[0][0] and "init() is called here" in outs[0][0] + outs[0][1]
    for out, _ in outs[1:]:
        expect_same(out, lenet[1])


# As the tutorial on GPU clusters asks for an encrypted job.
def test_a_script_names_the_certificates_of_its_job(tmp_path):
    (tmp_path / "password").touch(0o600)
    (tmp_path / "password").write_text("123456")
    run([TESSERA, "cluster", "make-certificates", tmp_path / "tls"], tmp_path, TESSERA_TLS_PASSWORD_FILE=tmp_path / "password")
    (tmp_path / "gather.py").write_text("""
import sys
import numpy as np
from mindspore import Tensor, ops, set_ps_context
from mindspore.communication import get_rank, init

set_ps_context(config_file_path="tls/config.json", enable_ssl=True, client_password=sys.argv[1], server_password="123456")
init()
print(ops.AllGather()(Tensor(np.array([get_rank()], np.float32))).asnumpy().tolist())
""")

    def outs_of(password):
        common = {"MS_WORKER_NUM": 2, "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": free_port(), "MS_TOPO_TIMEOUT": 120}
        roles = ["MS_SCHED", "MS_WORKER", "MS_WORKER"]
        processes = [subprocess.Popen([sys.executable, "gather.py", password], cwd=tmp_path, env=environment(MS_ROLE=role, MS_NODE_ID=f"worker_{i}", **common),
                                      text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i, role in enumerate(roles)]
        if password != "123456":
            processes[1].wait(timeout=240)
            processes[0].kill()
        return [(process.communicate(timeout=240), process.returncode) for process in processes]

    outs = outs_of("123456")
    assert [code for _, code in outs] == [0, 0, 0], outs
    assert [out for (out, _), _ in outs[1:]] == ["[0.0, 1.0]\n", "[0.0, 1.0]\n"]
    (_, err), code = outs_of("654321")[1]
    assert code == 1 and "password" in err, err


def test_certificates_that_a_script_asks_for_and_does_not_name_are_refused(tmp_path):
    script = "from mindspore import set_ps_context\nfrom mindspore.communication import init\nset_ps_context(enable_ssl=True)\ninit()\n"
    common = {"MS_WORKER_NUM": 2, "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": free_port()}
    for role in ("MS_SCHED", "MS_WORKER"):
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment(MS_ROLE=role, **common), capture_output=True, text=True, timeout=120)
        assert done.returncode == 1 and "set_ps_context(enable_ssl=True): config_file_path is missing" in done.stderr, done.stderr


def test_a_worker_listens_at_the_interface_that_is_named(tmp_path):
    script = ("import os\nfrom mindspore.communication import _scheduler\n_scheduler.meet_at_scheduler()\n"
              "print(os.environ['TESSERA_INTERFACE'], os.environ['TESSERA_NODE_ID'])\n")
    variables = {"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": 2, "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": free_port(), "MS_INTERFACE": "eth7",
                 "MS_NODE_ID": "worker_1"}
    assert run([sys.executable, "-c", script], tmp_path, **variables) == "eth7 worker_1\n"


def test_the_launcher_starts_servers_beside_ranks(lenet):
    folder, straight = lenet
    out = run([TESSERA, "run", "-n", 2, "--servers", 1, sys.executable, "train.py", "servers"], folder)
    for rank in range(3):
        expect_same("".join(line + "\n" for line in out.splitlines() if line.startswith(f"[{rank}]")), straight)
    out = run([TESSERA, "run", "-n", 1, "--servers", 2, "--max_restarts", 1, sys.executable, "train.py", "servers"], folder)
    expect_same("".join(line + "\n" for line in out.splitlines() if line.startswith("[2]")), straight)


def test_a_table_is_kept_by_servers(tmp_path):
    (tmp_path / "rows.py").write_text(NATIVE)
    straight = re.findall(r"loss (\S+)", run([sys.executable, "rows.py"], tmp_path))
    assert len(straight) == 4
    done = subprocess.run([TESSERA, "run", "-n", "2", "--servers", "3", sys.executable, "rows.py"], capture_output=True, text=True, timeout=120,
                          cwd=tmp_path, env=environment(TESSERA_LOG_LEVEL="info"))
    out = done.stdout
    assert done.returncode == 0, done.stderr
    assert "3 servers keep 1 parameter, 2 ranks train" in done.stderr
    assert re.findall(r"\[4\] loss (\S+) of 3 servers", out) == straight


def test_a_model_that_says_how_many_servers_needs_no_mode(tmp_path):
    (tmp_path / "rows.py").write_text(NATIVE)
    straight = re.findall(r"loss (\S+)", run([sys.executable, "rows.py"], tmp_path))
    assert NATIVE.count("seed=5") == 1
    (tmp_path / "rows.py").write_text(NATIVE.replace("seed=5", "seed=5, servers=1"))
    for started in (["-n", 2, "--servers", 1], ["-n", 3]):
        out = run([TESSERA, "run", *started, sys.executable, "rows.py"], tmp_path)
        assert re.findall(r"\[2\] loss (\S+) of", out) == straight, started
    for text, started, problem in (
            ("servers=2", ["-n", 2, "--servers", 1], "servers is 2, but the job was started with 1 (tessera run --servers): leave it out"),
            ("servers=1, parallel_mode='stand_alone'", ["-n", 3], "parallel_mode is stand_alone, where each rank trains by itself, but 1 of the "
             "job's 3 ranks keeps parameters for the others (servers=1): leave it out or say data_parallel, or have no servers")):
        (tmp_path / "rows.py").write_text(NATIVE.replace("seed=5", f"seed=5, {text}"))
        done = subprocess.run([TESSERA, "run", *map(str, started), sys.executable, "rows.py"], capture_output=True, text=True, timeout=120,
                              cwd=tmp_path, env=environment())
        assert done.returncode != 0 and problem in done.stderr


STALE = """
import numpy as np
import tessera
from tessera import nn

class Rows(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(29, 6)
        self.out = nn.Dense(6, 3)

    def construct(self, ids):
        return self.out(self.table(ids))

network = Rows()
network.set_on_servers()
model = tessera.Model(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), nn.LazyAdam(0.05), seed=5, STALENESS)
drawn = np.random.default_rng(1)
data = tessera.data.tensors({"ids": drawn.integers(0, 29, 12).astype(np.int32), "label": drawn.integers(0, 3, 12).astype(np.int32)}).batch(6)
losses = []
class Keep(tessera.Callback):
    def step_end(self, run):
        losses.append(run.loss)
model.train(80, data, callbacks=[Keep()])
table = model.value("table.embedding_table").numpy()
print(f"first {losses[0]:.6f} last {losses[-1]:.6f} table {float(np.abs(table).sum()):.6f}\\n", end="", flush=True)
"""


@pytest.mark.parametrize("staleness", ["server_staleness=0", "server_staleness=2", "server_staleness='asynchronous'"])
def test_workers_that_do_not_wait_learn_and_see_one_table(tmp_path, staleness):
    (tmp_path / "rows.py").write_text(STALE.replace("STALENESS", staleness))
    out = run([TESSERA, "run", "-n", 3, "--servers", 2, sys.executable, "rows.py"], tmp_path)
    found = re.findall(r"first (\S+) last (\S+) table (\S+)", out)
    assert len(found) == 5
    for first, last, _ in found:
        assert float(last) < 0.5 * float(first)
    assert len({table for _, _, table in found}) == 1


def test_one_worker_that_does_not_wait_trains_as_one_that_does(tmp_path):
    outs = []
    for staleness in ("server_staleness=0", "server_staleness=None"):
        (tmp_path / "rows.py").write_text(STALE.replace("STALENESS", staleness))
        outs.append(sorted(re.findall(r"first \S+ last \S+ table \S+", run([TESSERA, "run", "-n", 1, "--servers", 1, sys.executable, "rows.py"], tmp_path))))
    assert len(outs[0]) == 2 and outs[0] == outs[1]


# A table of 64 MiB, and how much more memory a rank has between the last step and the end of the training.
ENDS = """
import sys
import numpy as np
import tessera
from tessera import nn

serves = tessera.cluster.num_servers() > 0
limit = sys.argv[1:] == ["limit"]


def mib_of(name):
    lines = dict(line.split(":") for line in open("/proc/self/status"))
    return int(lines[name].split()[0]) / 1024


class Rows(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(262144, 64)
        self.out = nn.Dense(64, 3)

    def construct(self, ids):
        return self.out(self.table(ids))


class Before(tessera.Callback):
    def end(self, run):
        open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
        self.peak, self.own = mib_of("VmHWM"), mib_of("RssAnon")


def say(*words):
    print(" ".join(str(word) for word in words) + "\\n", end="", flush=True)


def seen():
    table = network.table.embedding_table.numpy()
    return f"{np.abs(table[:64]).sum(dtype=np.float64):.5f} {np.abs(table).sum(dtype=np.float64):.1f}"


network = Rows()
if serves:
    network.table.set_on_servers()
options = {"server_memory_limit": "8MiB", "spill_directory": "."} if serves and limit else {}
model = tessera.Model(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), nn.SGD(0.5), seed=5, **options)
drawn = np.random.default_rng(1)
data = tessera.data.tensors({"ids": np.arange(64, dtype=np.int32), "label": drawn.integers(0, 3, 64).astype(np.int32)}).batch(16)
before = Before()
owns = []
for training in range(2):
    model.train(training + 1, data, callbacks=[before])
    owns.append(mib_of("RssAnon"))
    say(f"grown {mib_of('VmHWM') - before.peak:.0f} {owns[-1] - before.own:.0f}")
    say("seen", seen())
    say(f"gathered {mib_of('RssAnon') - owns[-1]:.0f}")
say(f"later {owns[1] - owns[0]:.0f}")
last = seen()
trained = network.out.weight.numpy().copy()
del model
say("kept", seen() == last, (network.out.weight.numpy() == trained).all())
"""


@pytest.mark.parametrize("limit", [[], ["limit"]])
def test_a_table_stays_with_servers_when_a_training_ends(tmp_path, limit):
    (tmp_path / "rows.py").write_text(ENDS)
    straight = re.findall(r"seen (\S+) (\S+)", run([sys.executable, "rows.py"], tmp_path))
    out = run([TESSERA, "run", "-n", 1, "--servers", 1, sys.executable, "rows.py", *limit], tmp_path)
    assert len(straight) == 2 and straight[0] != straight[1]
    for rank in range(2):
        own = "".join(line + "\n" for line in out.splitlines() if line.startswith(f"[{rank}]"))
        grown = [(int(peak), int(after)) for peak, after in re.findall(r"grown (-?\d+) (-?\d+)", own)]
        assert len(grown) == 2 and max(max(pair) for pair in grown) < 24, out
        # What is measured grows by the table when all ranks read it, and a worker lets go of it in the next training.
        assert min(int(mebibytes) for mebibytes in re.findall(r"gathered (\d+)", own)) > 56, out
        assert rank == 0 or int(re.search(r"later (-?\d+)", own)[1]) < 24, out
        seen = re.findall(r"seen (\S+) (\S+)", own)
        assert [float(number) for pair in seen for number in pair] == pytest.approx([float(number) for pair in straight for number in pair], rel=1e-5)
        # What was read before the model went is there behind it.
        assert "kept True True" in own, out


def test_a_table_that_nobody_has_read_goes_with_its_model(tmp_path):
    head, _, _ = STALE.partition("losses = []")
    (tmp_path / "rows.py").write_text(head.replace("network.set_on_servers()", "network.table.set_on_servers()").replace(", STALENESS", "") + """
model.train(1, data)
bias = network.out.bias.numpy().copy()
del model
try:
    network.table.embedding_table.numpy()
except tessera.InvalidArgument as error:
    print(f"{error}\\nthe bias is {(network.out.bias.numpy() == bias).all()}\\n", end="", flush=True)
""")
    out = run([TESSERA, "run", "-n", 2, "--servers", 1, sys.executable, "rows.py"], tmp_path)
    words = ('the value of "table.embedding_table" was on the servers of a model that is gone: read it before, on all ranks, or save it with '
             "model.save_checkpoint()")
    assert out.count(words) == 3 and out.count("the bias is True") == 3, out


@pytest.mark.parametrize("staleness", ["'lazy'", "-1", "1.5"])
def test_another_staleness_is_refused(tmp_path, staleness):
    (tmp_path / "rows.py").write_text(STALE.replace("STALENESS", "server_staleness=" + staleness))
    done = subprocess.run([sys.executable, "rows.py"], capture_output=True, text=True, timeout=240, cwd=tmp_path, env=environment())
    assert done.returncode == 1 and 'server_staleness' in done.stderr and 'a whole number, "asynchronous" or None' in done.stderr, done.stderr


def test_a_data_set_that_is_one_rank_s_part_is_refused_in_the_words_of_servers(tmp_path):
    rows = "tessera.data.tensors({'ids': np.zeros(8, np.int32), 'label': np.zeros(8, np.int32)}, num_shards=2, shard_id=0).batch(2)"
    (tmp_path / "rows.py").write_text(NATIVE.partition("for step")[0] + f"model.train(1, {rows})\n")
    done = subprocess.run([TESSERA, "run", "-n", "2", "--servers", "1", sys.executable, "rows.py"], capture_output=True, text=True, timeout=240,
                          cwd=tmp_path, env=environment())
    assert done.returncode == 1 and "pipeline" not in done.stderr
    assert "parameter servers: every rank must read the whole batch" in done.stderr and "make it without num_shards and shard_id" in done.stderr


# One thread draws longer than the worker's deadline.
def test_a_server_may_draw_a_table_for_longer_than_ranks_wait(tmp_path):
    (tmp_path / "large.py").write_text(NATIVE.split("network = Rows()")[0].replace("Embedding(29, 6)", "Embedding(8_000_000, 16)").replace("Dense(6, 3)", "Dense(16, 3)")
                                       + "network = Rows()\nnetwork.table.set_on_servers()\n"
                                         "model = tessera.Model(network, nn.MSELoss(), nn.SGD(0.1), parallel_mode='data_parallel')\nprint('made')\n")
    out = run([TESSERA, "run", "-n", "1", "--servers", "1", "--timeout", "2", sys.executable, "large.py"], tmp_path)
    assert out.count("made") == 2


def test_the_launcher_says_how_many_train_where_it_is_not_told(tmp_path):
    command = [sys.executable, "-c", "import tessera; tessera.cluster.init()"]
    done = subprocess.run([TESSERA, "run", "--servers", "1", *command], capture_output=True, text=True, timeout=240, cwd=tmp_path, env=environment())
    assert "tessera run: one rank trains beside 1 that keeps parameters; -n N starts N that train" in done.stderr


def test_who_marks_nothing_is_told_so(tmp_path):
    (tmp_path / "rows.py").write_text(NATIVE.replace("network.table.set_on_servers()", ""))
    done = subprocess.run([TESSERA, "run", "-n", "1", "--servers", "1", sys.executable, "rows.py"], capture_output=True, text=True, timeout=240,
                          cwd=tmp_path, env=environment())
    assert done.returncode == 1
    assert "1 rank is to keep parameters, but no parameter is set_on_servers()" in done.stderr


@pytest.mark.parametrize("servers", [1, 2])
def test_tables_of_lookups_train_as_one_process_does(tmp_path, servers):
    (tmp_path / "train.py").write_text(LOOKUPS)
    straight = run([sys.executable, "train.py"], tmp_path)
    assert len(losses_of(straight)) == 12
    out = run([TESSERA, "run", "-n", 2, "--servers", servers, sys.executable, "train.py", "servers"], tmp_path)
    for rank in range(2 + servers):
        own = "".join(line + "\n" for line in out.splitlines() if line.startswith(f"[{rank}]"))
        assert losses_of(own) == pytest.approx(losses_of(straight), rel=1e-4)
        assert float(re.search(r"sum (\S+)", own)[1]) == pytest.approx(float(re.search(r"sum (\S+)", straight)[1]), rel=1e-4)
