"""The recovery of the tutorial on GPU clusters, by its own commands: the scheduler is killed and started again, then a worker is; the losses
that are printed are those of a job that nobody has disturbed."""
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from ports import free_port

import job
from launch_test import block

# The page has eight workers; two cores are enough for fewer.
WORKERS = 8 if job.FULL else 3
STEPS, EPOCHS = 8, 3
# At these steps every worker waits until the test has done what it does there.
SCHEDULER_AT, WORKER_AT = 6, 12
SCRIPT = "resnet50_distributed_training_gpu_recovery.py"
# Stands for the page's script: its network is large. Mode, sinking, checkpoints and monitor are as there.
TRAINS = f"""
import os
import time
import numpy as np
import mindspore as ms
from mindspore import Model, ParallelMode, dataset as ds, nn, set_context, set_auto_parallel_context, set_seed
from mindspore.communication import get_rank, get_group_size, init
from mindspore.train.callback import Callback, CheckpointConfig, LossMonitor, ModelCheckpoint

class Waits(Callback):
    def step_end(self, run_context):
        step = run_context.original_args().cur_step_num
        if step not in ({SCHEDULER_AT}, {WORKER_AT}):
            return
        open(f"../at_{{step}}_{{os.environ['MS_NODE_ID']}}", "w").close()
        while not os.path.exists(f"../go_{{step}}"):
            time.sleep(0.01)

def test_train():
    set_context(mode=ms.GRAPH_MODE, device_target="GPU")
    init()
    set_seed(1)
    set_auto_parallel_context(parallel_mode=ParallelMode.DATA_PARALLEL, gradients_mean=True)
    rows = np.random.RandomState(3).randn({24 * STEPS}, 6).astype(np.float32)
    labels = (rows.sum(axis=1) > 0).astype(np.int32)
    data = ds.NumpySlicesDataset((rows, labels), ["x", "y"], shuffle=True, num_shards=get_group_size(), shard_id=get_rank())
    data = data.batch(24 // get_group_size(), drop_remainder=True)
    network = nn.SequentialCell(nn.Dense(6, 16), nn.ReLU(), nn.Dropout(0.8), nn.Dense(16, 2))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = Model(network, loss, nn.Momentum(network.trainable_params(), 0.1, 0.9))
    config = CheckpointConfig(save_checkpoint_steps=2, keep_checkpoint_max=5)
    saves = ModelCheckpoint(prefix="train", directory="./ckpt_of_rank_/" + str(get_rank()), config=config)
    model.train({EPOCHS}, data, callbacks=[LossMonitor(2), saves, Waits()], dataset_sink_mode=True, sink_size=2)
    print("trained", flush=True)
"""


def eventually(holds, what, limit_s=120):
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def has_ended(process):
    """Of a process by its folder in /proc, whose files go with it."""
    try:
        return "Z" in (process / "stat").read_text().rsplit(")", 1)[1][:3]
    except OSError:
        return True


class Cluster:
    """The page's shell scripts, in a folder of their own."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        folder.mkdir()
        (folder / SCRIPT).write_text(TRAINS)
        (folder / "resnet.py").write_text("")
        self.variables = job.environment(XDG_CACHE_HOME=folder / "cache", TESSERA_NUM_THREADS=1, OMP_WAIT_POLICY="PASSIVE")
        self.shells = []

    def script(self, mark):
        text = block("001", "bash", mark).replace("XXX.XXX.XXX.XXX", "127.0.0.1").replace("/XXX/XXX", str(self.folder / "recovery"))
        return re.sub(r"\bXXXX\b", str(self.port), text).replace("i<8", f"i<{WORKERS}").replace("MS_WORKER_NUM=8", f"MS_WORKER_NUM={WORKERS}")

    def run(self, script):
        self.shells.append(subprocess.Popen(["bash", "-c", f"set -- /data; {script}\nwait"], cwd=self.folder, env=self.variables,
                                            stdout=subprocess.DEVNULL))

    def start(self):
        self.run(self.script("export MS_NODE_ID=worker_$i"))

    def start_scheduler_again(self):
        self.run(self.restart().replace("> scheduler.log", ">> scheduler.log"))

    def start_worker_again(self, number):
        """As the page has it of the scheduler, "in a similar way"."""
        again = self.restart().replace("MS_ROLE=MS_SCHED", "MS_ROLE=MS_WORKER").replace("MS_NODE_ID=sched", f"MS_NODE_ID=worker_{number}")
        self.run(again.replace("> scheduler.log", f">> worker_{number}.log"))

    def restart(self):
        return self.script("export DATA_PATH=YOUR_DATA_PATH")

    def await_workers(self, step):
        eventually(lambda: len(list(self.folder.glob(f"at_{step}_*"))) == WORKERS, f"the workers come to step {step}: {self.logs()}")

    def go(self, step):
        (self.folder / f"go_{step}").touch()

    def kill(self, node):
        for process in Path("/proc").glob("[0-9]*"):
            try:
                variables = (process / "environ").read_bytes().split(b"\0")
                own = Path(os.readlink(process / "cwd")) == self.folder / "device"
                name = (process / "comm").read_text()
            except OSError:
                continue
            if own and f"MS_NODE_ID={node}".encode() in variables and name != "bash\n":
                os.kill(int(process.name), signal.SIGKILL)
                eventually(lambda: has_ended(process), "it is dead")

    def logs(self):
        return {path.name: path.read_text()[-3000:] for path in (self.folder / "device").glob("*.log")}

    def end(self):
        for shell in self.shells:
            shell.wait(timeout=600)
        for worker in range(WORKERS):
            assert "trained" in (self.folder / "device" / f"worker_{worker}.log").read_text(), self.logs()

    def losses(self, worker):
        """What it has printed, by epoch and step; what was printed twice is equal."""
        found = {}
        for epoch, step, loss in job.losses((self.folder / "device" / f"worker_{worker}.log").read_text()):
            assert found.setdefault((epoch, step), loss) == loss, self.logs()
        return found


def test_the_scheduler_and_a_worker_are_killed_and_started_again(tmp_path):
    undisturbed = Cluster(tmp_path / "undisturbed")
    for step in (SCHEDULER_AT, WORKER_AT):
        undisturbed.go(step)
    undisturbed.start()
    undisturbed.end()
    expected = undisturbed.losses(0)
    assert len(expected) == STEPS * EPOCHS // 2, expected

    cluster = Cluster(tmp_path / "disturbed")
    cluster.start()
    cluster.await_workers(SCHEDULER_AT)
    cluster.kill("sched")
    cluster.go(SCHEDULER_AT)
    cluster.start_scheduler_again()
    cluster.await_workers(WORKER_AT)
    cluster.kill("worker_1")
    cluster.go(WORKER_AT)
    cluster.start_worker_again(1)
    cluster.end()
    for worker in range(WORKERS):
        assert cluster.losses(worker) == expected, cluster.logs()
    names = {path.name for path in (cluster.folder / "recovery").iterdir()}
    assert {"config.json", "recovery.dat"} <= names, names
    for rank in range(WORKERS):
        saved = cluster.folder / "device" / "ckpt_of_rank_" / str(rank)
        assert len(list(saved.glob("train-*.ckpt"))) == 5, sorted(saved.iterdir())
    scheduler, worker = ((cluster.folder / "device" / f"{name}.log").read_text() for name in ("scheduler", "worker_0"))
    assert scheduler.count("listening at 127.0.0.1:") == 2 and "all workers have ended" in scheduler, scheduler
    assert "generation 1 has ended, this rank begins anew for the next one" in worker, worker


