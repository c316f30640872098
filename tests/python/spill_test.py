"""A server whose table is four times the memory that its rows may take trains, saves and goes on within it, with the bits of a job without a
limit. What its process may have is limited by the system, too."""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

TESSERA = str(Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera")
MIB = 1 << 20
TABLE_MIB = 256
LIMIT_MIB = 64
# Beside these rows: stacks of threads, what a step needs, and Python. Together they are less than one table.
SLACK_MIB = 180

SCRIPT = """
import os
import resource
import sys
import numpy as np
import tessera
from tessera import nn

limit, bound, folder, group = sys.argv[1:]
MIB = 1 << 20
tessera.cluster.init()
serves = tessera.cluster.rank() < tessera.cluster.num_servers()


def mib_of(*names):
    lines = dict(line.split(":") for line in open("/proc/self/status"))
    return sum(int(lines[name].split()[0]) for name in names) / 1024


class Rows(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(%d, 64)
        self.out = nn.Dense(64, 3)

    def construct(self, ids):
        return self.out(self.table(ids))


if serves:
    before = mib_of("RssAnon", "RssShmem")
    if bound == "data":
        most = int(mib_of("VmData") + %d) * MIB
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    if group:
        open(group, "w").write(str(os.getpid()))
network = Rows()
network.table.set_on_servers()
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
model = tessera.Model(network, loss, nn.LazyAdam(0.05), seed=5, server_memory_limit=None if limit == "none" else limit, spill_directory=folder)


def step(number):
    drawn = np.random.default_rng(number)
    ids = drawn.integers(0, %d, 512).astype(np.int32)
    said = model.train_step(ids, drawn.integers(0, 3, 512).astype(np.int32))
    print(f"loss {number} {said.hex()}\\n", end="", flush=True)


for number in range(3):
    step(number)
model.save_checkpoint(f"{folder}/whole.ckpt")
model.load_checkpoint(f"{folder}/whole.ckpt")
model.save_checkpoint(f"{folder}/slices/slices.ckpt", integrated=False)
model.load_checkpoint(f"{folder}/slices/slices.ckpt")
model.save_checkpoint(f"{folder}/behind/behind.ckpt", integrated=False, async_save=True)
step(3)
model.finish_saves()
print("predicted " + model.predict(np.arange(0, %d, 997, dtype=np.int32)).numpy().astype(np.float32).tobytes().hex() + "\\n", end="", flush=True)
if serves:
    print(f"server: {mib_of('RssAnon', 'RssShmem') - before:.0f} MiB of memory, {model.spilled_bytes / MIB:.0f} MiB in a file\\n", end="", flush=True)
""".replace("\\n", "\\n") % ((TABLE_MIB * MIB // 256,) + (LIMIT_MIB + SLACK_MIB,) + 2 * (TABLE_MIB * MIB // 256,))


class MemoryGroup:
    """A group of processes that have so much memory together (control groups, version 1 or 2). Root's."""

    def __init__(self, mebibytes):
        root = Path("/sys/fs/cgroup")
        is_second = (root / "cgroup.controllers").exists()
        self.folder = (root if is_second else root / "memory") / f"tessera-spill-{os.getpid()}"
        self.folder.mkdir()
        (self.folder / ("memory.max" if is_second else "memory.limit_in_bytes")).write_text(str(mebibytes << 20))
        # What goes beyond that is not to go to where the system swaps, either.
        swap, most = ("memory.swap.max", 0) if is_second else ("memory.memsw.limit_in_bytes", mebibytes << 20)
        if (self.folder / swap).exists():
            (self.folder / swap).write_text(str(most))
        self.members = self.folder / "cgroup.procs"

    def __enter__(self):
        return str(self.members)

    def __exit__(self, *_):
        end = time.monotonic() + 30
        while self.members.read_text() and time.monotonic() < end:
            time.sleep(0.05)
        self.folder.rmdir()


def may_have_memory_groups():
    try:
        with MemoryGroup(100):
            return os.getuid() == 0
    except OSError:
        return False


def start(folder, limit, bound="", group=""):
    """One server and one worker: (code, what they printed, what they said)."""
    folder.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "MS_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))}
    script = folder / "rows.py"
    script.write_text(SCRIPT)
    words = [TESSERA, "run", "-n", "1", "--servers", "1", sys.executable, script, limit, bound, folder, group]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=600,
                          env=kept | {"OMP_WAIT_POLICY": "PASSIVE", "TESSERA_NUM_THREADS": "1", "TESSERA_LOG_LEVEL": "info"})
    return done.returncode, done.stdout, done.stderr


def results(out):
    """What each rank says of the training, bit by bit."""
    found = re.findall(r"(?:loss \d+|predicted) \S+", out)
    assert len(found) == 2 * 5, out
    return sorted(found)


def server_of(out):
    memory, in_file = re.search(r"server: (-?\d+) MiB of memory, (\d+) MiB in a file", out).groups()
    return int(memory), int(in_file)


def saved_in(folder):
    """The sums of what the checkpoints of a job hold."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and ".ckpt" in path.name and not path.name.endswith((".json", ".manifest"))]  # which say when
    return {str(path.relative_to(folder)): hashlib.file_digest(path.open("rb"), "sha256").hexdigest() for path in files}


@pytest.fixture(name="scratch")
def a_large_folder(tmp_path):
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.fixture(scope="module")
def without_limit(tmp_path_factory):
    """What a job prints that has no limit, and what it saves."""
    folder = tmp_path_factory.mktemp("free") / "job"
    code, out, err = start(folder, "none")
    assert code == 0, out + err
    saved = saved_in(folder)
    shutil.rmtree(folder)
    assert len(saved) >= 3
    return out, saved


def test_a_table_of_four_times_the_limit_trains_and_is_saved_with_the_same_bits(scratch, without_limit):
    straight, saved = without_limit
    code, out, err = start(scratch / "job", f"{LIMIT_MIB}MiB", bound="data")
    assert code == 0, out + err
    assert results(out) == results(straight)
    assert saved_in(scratch / "job") == saved
    memory, in_file = server_of(out)
    assert in_file >= 3 * TABLE_MIB
    assert memory < LIMIT_MIB + SLACK_MIB, out
    # What is measured grows where nothing spills.
    assert server_of(straight)[0] > 3 * TABLE_MIB and server_of(straight)[1] == 0
    assert re.search(rf"the rows that server 0 keeps take {3 * TABLE_MIB}\.0 MiB: 0 B in memory, of {LIMIT_MIB}\.0 MiB that they may, and "
                     rf"{3 * TABLE_MIB}\.0 MiB in a file: moment1\.table\S+, moment2\.table\S+, table\.embedding_table", err), err
    assert re.search(r"server 0 needs \S+ [KM]iB of memory beside its values for", err), err
    assert not [path for path in (scratch / "job").iterdir() if "spill" in path.name]


@pytest.mark.skipif(not may_have_memory_groups(), reason="only root where control groups of memory can be made can limit a rank's memory")
def test_a_server_trains_in_a_control_group_that_has_less_memory_than_the_table(scratch, without_limit):
    with MemoryGroup(LIMIT_MIB + SLACK_MIB) as group:
        code, out, err = start(scratch / "job", f"{LIMIT_MIB}MiB", group=group)
        assert code == 0, out + err
        assert results(out) == results(without_limit[0])
        # Without a file the system ends it.
        code, out, err = start(scratch / "free", "none", group=group)
        assert code != 0, out + err


def test_who_has_no_servers_is_told_that_the_limit_has_no_effect(tmp_path):
    script = tmp_path / "alone.py"
    script.write_text("import tessera\nfrom tessera import nn\n"
                      "tessera.Model(nn.Dense(2, 2), nn.MSELoss(), nn.SGD(0.1), server_memory_limit='1MiB')\n"
                      "tessera.Model(nn.Dense(2, 2), nn.MSELoss(), nn.SGD(0.1), spill_directory='/tmp')\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "server_memory_limit has no effect without servers" in done.stderr
    assert "spill_directory has no effect without server_memory_limit" in done.stderr
