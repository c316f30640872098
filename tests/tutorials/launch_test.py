"""How ranks are started: by mpirun, by the tutorials' shell scripts with a rank table, with pytest as the launcher."""
import json
import os
import re
import secrets
import subprocess
import sys

import pytest
from mindspore.communication import _place, _rank_table
from ports import free_port

import job
import pages

GATHERED = "[[0.]\n [1.]\n [2.]\n [3.]]\n"
# Stands for the tutorials' training script, which the scripts start under this name.
SCRIPT = "resnet50_distributed_training.py"
GATHERS = """
import os
import numpy as np
from mindspore import Tensor, context, ops
from mindspore.communication import get_group_size, get_rank, init

context.set_context(device_target="Ascend", device_id=int(os.environ["DEVICE_ID"]))
init()

def test_the_ranks_meet():
    assert get_rank() == int(os.environ["RANK_ID"]) == context.get_context("device_id")
    ranks = ops.AllGather()(Tensor(np.array([get_rank()], np.float32))).asnumpy()
    assert (ranks == np.arange(get_group_size())).all()
    print(f"met {len(ranks)}\\n", end="", flush=True)  # in one piece: ranks share a file
"""
# mpirun asks root, and those who start more ranks than cores, to say that they mean it.
MEANT = {"OMPI_ALLOW_RUN_AS_ROOT": 1, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1, "OMPI_MCA_rmaps_base_oversubscribe": 1}


def block(page, language, part):
    """The page's block in that language that holds `part`."""
    found = pages.blocks(page, language)
    if found is None:
        pytest.skip(f"../shared/tutorials/{page} is absent")
    return next(code for code in found if part in code)


def json_of(page, number):
    """The page's rank table as it stands there."""
    text = pages.text(page)
    if text is None:
        pytest.skip(f"../shared/tutorials/{page} is absent")
    found = (pages.flattened if page in pages.RETYPED else pages.fenced)(text)
    return [code for language, code in found if language == "json"][number - 1]


def new_table(devices=2, servers=("10.0.0.1",), **changes):
    ranks = iter(range(devices * len(servers)))
    return {"version": "1.0", "server_count": str(len(servers)), "status": "completed", "server_list": [
        {"server_id": server, "host_nic_ip": "reserve", "device": [
            {"device_id": str(device), "device_ip": f"192.{server[-1]}.27.{device}", "rank_id": str(next(ranks))} for device in range(devices)]}
        for server in servers]} | changes


def old_table(devices=2, **changes):
    group = {"device_num": str(devices), "server_num": "1", "group_name": "", "instance_count": str(devices), "instance_list": [
        {"devices": [{"device_id": str(i), "device_ip": f"192.1.27.{i}"}], "rank_id": str(i), "server_id": "10.0.0.1"}
        for i in range(devices)]}
    return {"board_id": "0x0000", "group_count": "1", "group_list": [group | changes], "para_plane_nic_num": str(devices), "status": "completed"}


# The documented output, on every rank, each time in one piece.
def test_all_gather_prints_every_ranks_number(tmp_path):
    (tmp_path / "nccl_allgather.py").write_text(block("001", "python", "nccl_allgather.py"))
    out, err = job.run(job.python(4, "nccl_allgather.py"), tmp_path)
    assert sorted(re.findall(r"\[?\[\d\.\]\]?", out)) == sorted(4 * re.findall(r"\[?\[\d\.\]\]?", GATHERED))
    assert err.count('device_target "GPU" is not available') == 1
    job.run([*job.mpirun(4, "--output-filename", tmp_path / "log"), sys.executable, "nccl_allgather.py"], tmp_path)
    for rank in range(4):
        assert (tmp_path / "log" / "1" / f"rank.{rank}" / "stdout").read_text() == GATHERED


def test_a_strict_device_is_an_error(tmp_path):
    code = "import mindspore as ms\ntry: ms.set_context(device_target='GPU')\nexcept RuntimeError as error: print('refused:', error)"
    assert "refused: device_target \"GPU\" is not available" in job.run(job.python(1, "-c", code), tmp_path, TESSERA_STRICT_DEVICE=1)[0]


def start(folder, script, arguments, **variables):
    """Runs a bash script in the folder, until what it has left in the background has ended, too."""
    (folder / "run.sh").write_text(script)
    return job.run(["bash", "-c", f". ./run.sh {arguments}; wait"], folder, **variables)


def logs(folder, pattern, ranks):
    found = {path.parent.name: path.read_text() for path in folder.glob(pattern)}
    assert len(found) == ranks, sorted(found)
    return found


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_first_pages_run_script(tmp_path, ranks):
    script = block("000", "bash", "run.sh DATA_PATH RANK_SIZE")
    if ranks == 4:  # the script knows 2 and 8
        script = script.replace("2pcs", "4pcs").replace("RANK_SIZE=2", "RANK_SIZE=4")
    table = json_of("000", 1) if ranks == 8 else json.dumps(new_table(ranks))
    (tmp_path / f"rank_table_{ranks}pcs.json").write_text(table)
    (tmp_path / SCRIPT).write_text(GATHERS)
    (tmp_path / "resnet.py").write_text("")
    out, _ = start(tmp_path, script, f"/data {ranks}")
    assert out.count("start training for device") == ranks and out.rstrip().endswith("training success")
    for log in logs(tmp_path, "device*/train.log*", ranks).values():
        assert f"met {ranks}" in log and "PASSED" in log, log


def test_a_failing_rank_is_a_failed_training(tmp_path):
    (tmp_path / "rank_table_2pcs.json").write_text(json.dumps(new_table()))
    (tmp_path / SCRIPT).write_text(GATHERS.replace('print(f"met', 'assert get_rank() != 0; print(f"met'))
    (tmp_path / "resnet.py").write_text("")
    (tmp_path / "run.sh").write_text(block("000", "bash", "run.sh DATA_PATH RANK_SIZE"))
    done = subprocess.run(["bash", "run.sh", "/data", "2"], cwd=tmp_path, env=job.environment(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 2 and "training failed" in done.stdout


def test_the_third_pages_loop_takes_ranks_from_devices(tmp_path):
    """The table's path is relative to where the loop starts, and RANK_ID is not exported."""
    (tmp_path / "rank_table.json").write_text(json_of("002", 1))
    (tmp_path / SCRIPT).write_text(GATHERS)
    start(tmp_path, block("002", "bash", "RANK_TABLE_FILE"), "")
    found = logs(tmp_path, "device*/train.log*", 8)
    assert all("met 8" in log and "PASSED" in log for log in found.values()), found
    assert sum("trailing commas and // comments" in log for log in found.values()) == 1


@pytest.mark.parametrize("has_secret", [False, True])
def test_two_servers_of_the_cluster_script(tmp_path, has_secret):
    """Eight ranks each; the two servers are addresses of this machine, between which ranks with a secret meet by TCP."""
    (tmp_path / "rank_table.json").write_text(json.dumps(new_table(8, ("127.0.0.1", "127.0.0.2"))))
    if has_secret:
        secret = tmp_path / "rank_table.json.secret"
        secret.touch(0o600)
        secret.write_bytes(secrets.token_bytes(32))
    (tmp_path / SCRIPT).write_text(GATHERS.replace("int(os.environ[\"RANK_ID\"]) == context.get_context(\"device_id\")",
                                                   "int(os.environ[\"RANK_ID\"])"))
    (tmp_path / "run_cluster.sh").write_text(block("000", "bash", "run_cluster.sh DATA_PATH RANK_TABLE_FILE"))
    variables = job.environment(TESSERA_PORT=free_port())
    servers = [subprocess.Popen(["bash", "-c", f". ./run_cluster.sh /data {tmp_path}/rank_table.json 16 {first}; wait"], cwd=tmp_path,
                                env=variables, stdout=subprocess.DEVNULL) for first in (0, 8)]
    assert [server.wait(timeout=600) for server in servers] == [0, 0]
    found = logs(tmp_path, "device_*/train*.log", 16)
    assert all("met 16" in log for log in found.values()), found


@pytest.mark.parametrize("has_table", [False, True])
def test_the_tasks_of_srun_are_ranks(tmp_path, has_table):
    """By the variables that srun sets; a rank table that the user names goes before them."""
    (tmp_path / "train.py").write_text(f"{GATHERS}\ntest_the_ranks_meet()\n")
    (tmp_path / "table.json").write_text(json.dumps(new_table(2)))
    step = {"SLURM_JOB_ID": os.getpid(), "SLURM_STEP_ID": 0, "SLURM_STEP_NUM_TASKS": 3, "SLURM_STEP_NODELIST": "node1", "SLURM_STEP_TASKS_PER_NODE": 3}
    size = 2 if has_table else 3
    ranks = [subprocess.Popen([sys.executable, "-B", "train.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=job.environment(
        **step, SLURM_PROCID=rank, SLURM_LOCALID=rank, XDG_CACHE_HOME=tmp_path,
        **({"RANK_TABLE_FILE": "table.json", "RANK_ID": size - 1 - rank, "DEVICE_ID": size - 1 - rank} if has_table else {}))) for rank in range(size)]
    for rank in ranks:
        out, _ = rank.communicate(timeout=600)
        assert rank.returncode == 0 and f"met {size}" in out, out


def test_the_gpu_pages_run_script(tmp_path):
    """mpirun starts pytest eight times."""
    job.mpirun(8)  # skips where there is none
    (tmp_path / SCRIPT).write_text(GATHERS)
    (tmp_path / "resnet.py").write_text("")
    out, _ = start(tmp_path, block("001", "bash", "bash run_gpu.sh DATA_PATH"), "/data", **MEANT)
    log = (tmp_path / "device" / "train.log").read_text()
    assert "start training" in out and log.count("met 8") == 8, log


def cluster_scripts(*marks):
    """The page's scripts that start workers and a scheduler, one for each mark, with the scheduler's address filled in."""
    port = free_port()
    return [re.sub(r"\bXXXX\b", str(port), block("001", "bash", mark).replace("XXX.XXX.XXX.XXX", "127.0.0.1")) for mark in marks]


def write_worker_script(folder):
    (folder / SCRIPT.replace(".py", "_gpu.py")).write_text(GATHERS.replace(', device_id=int(os.environ["DEVICE_ID"])', "").replace(
        ' == context.get_context("device_id")', ""))
    (folder / "resnet.py").write_text("")


def met_at_the_scheduler(folders):
    workers = [path.read_text() for folder in folders for path in (folder / "device").glob("worker_*.log")]
    (scheduler,) = [path.read_text() for folder in folders for path in (folder / "device").glob("scheduler.log")]
    assert len(workers) == 8 and all("met 8" in log for log in workers), workers
    assert "listening at 127.0.0.1:" in scheduler and "for 8 workers" in scheduler and "all workers have ended" in scheduler, scheduler


def test_the_gpu_pages_cluster_script(tmp_path):
    """Eight workers and a scheduler, each a process of pytest that runs the same script."""
    write_worker_script(tmp_path)
    (script,) = cluster_scripts("# Launch 8 workers.")
    start(tmp_path, script, "/data", XDG_CACHE_HOME=tmp_path / "cache")
    met_at_the_scheduler([tmp_path])


def test_the_gpu_pages_cluster_scripts_of_two_hosts(tmp_path):
    """Four workers and the scheduler by the one, four workers by the other; workers come before the scheduler and wait."""
    first, second = cluster_scripts("# Launch 1-4 workers.", "# Launch 5-8 workers.")
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        write_worker_script(folder)
    variables = job.environment(XDG_CACHE_HOME=tmp_path / "cache")
    started = [subprocess.Popen(["bash", "-c", f"set -- /data; {script}\nwait"], cwd=folder, env=variables, stdout=subprocess.DEVNULL)
               for folder, script in zip(reversed(folders), (second, first))]
    assert [process.wait(timeout=600) for process in started] == [0, 0]
    met_at_the_scheduler(folders)


@pytest.mark.parametrize("page, number, ranks", [("000", 1, 8), ("000", 2, 16), ("002", 1, 8), ("003", 1, 8)])
def test_the_pages_rank_tables_are_read(page, number, ranks):
    table = _rank_table.read_table("table", json_of(page, number))
    assert len(table.places) == ranks and table.faults == []
    assert [place.rank for place in table.places] == list(range(ranks))


def test_a_masked_address_may_stand_for_one_server_only():
    assert _rank_table.read_table("table", json_of("003", 2)).faults == ["server_id must be unique, but 10.*.*.* is there more than once",
                                                                        "device_id within a server must be unique, but " + ", ".join(
                                                                            f"10.*.*.*/{i}" for i in range(8)) + " is there more than once"]


def moved(table, server, **device):
    table["server_list"][server]["device"][0] |= device
    return table


@pytest.mark.parametrize("table, says", [
    ("no json", "is no rank table"), ({}, "is no rank table: KeyError: 'group_list'"),
    (new_table(version="2.0"), "version must be 1.0, but it is 2.0"),
    (new_table(status="initializing"), "status must be completed, but it is initializing"),
    (new_table(server_count="2"), "server_count is 2, but there are 1"),
    (moved(new_table(), 0, rank_id="2"), r"the ranks must be 0 to 1, but they are \[1, 2\]"),
    (moved(new_table(), 0, device_id="1"), "device_id within a server must be unique, but 10.0.0.1/1"),
    (moved(new_table(), 0, device_ip="192.1.27.1"), "device_ip must be unique, but 192.1.27.1"),
    (new_table(1, ("10.0.0.2", "10.0.0.1")), "must be in the order of their server_id"),
    (old_table(device_num="8"), "device_num is 8, but there are 2"),
    (old_table(instance_count="8"), "instance_count is 8, but there are 2"),
    (old_table(server_num="2"), "server_num is 2, but there are 1"),
    (old_table() | {"para_plane_nic_num": "4"}, "para_plane_nic_num is 4, but there are 2"),
    (old_table() | {"group_count": "4"}, "group_count is 4, but there are 1"),
    (new_table(4), "RANK_SIZE is 2, but .*table.json has 4 ranks"), (new_table(1, ("a" * 300, "b")), "lists ranks of several servers"),
], ids=lambda value: value if isinstance(value, str) else "table")
def test_a_wrong_rank_table_is_refused(tmp_path, monkeypatch, table, says):
    path = tmp_path / "table.json"
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    for name, value in (("RANK_ID", "0"), ("DEVICE_ID", "0"), ("RANK_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match=says):
        _place.place_of_this_process(str(path))


def pipe(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


def huge(path):
    with open(path, "wb") as file:
        file.truncate(6 << 30)


@pytest.mark.parametrize("make", [pipe, endless, huge])
def test_what_no_table_can_be_is_refused_before_it_is_read(tmp_path, monkeypatch, make):
    make(tmp_path / "table.json")
    monkeypatch.setenv("RANK_ID", "0")
    with pytest.raises(RuntimeError, match=r"rank_table_file failed: .*table\.json: no regular file of at most 16777216 bytes"):
        _place.place_of_this_process(str(tmp_path / "table.json"))


@pytest.mark.parametrize("name", ["RANK_ID", "RANK_SIZE"])
@pytest.mark.parametrize("value", ["", "-1", "1x", " 1", "\u00b2", "\u0661", str(2**70), "9" * 5000])
def test_a_place_that_is_no_number_is_named(tmp_path, monkeypatch, name, value):
    (tmp_path / "table.json").write_text(json.dumps(new_table()))
    for variable, good in (("RANK_ID", "0"), ("RANK_SIZE", "2")):
        monkeypatch.setenv(variable, value if variable == name else good)
    with pytest.raises(RuntimeError, match=f"{name} must be a number from 0 on, but it is '{value[:80]}"):
        _place.place_of_this_process(str(tmp_path / "table.json"))


@pytest.mark.parametrize("variables, says", [
    ({}, "RANK_ID has not been exported"), ({"RANK_ID": "2"}, "RANK_ID 2 is not in"), ({"DEVICE_ID": "0"}, "RANK_ID has not been exported")])
def test_a_rank_that_is_not_in_the_table_is_refused(tmp_path, monkeypatch, variables, says):
    (tmp_path / "table.json").write_text(json.dumps(new_table()))
    for name in ("RANK_ID", "DEVICE_ID", "RANK_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match=says):
        _place.place_of_this_process(str(tmp_path / "table.json"))


@pytest.mark.parametrize("table, variables, says", [
    (new_table(3), {}, "3 devices on one server"), (new_table(3, ("10.0.0.1", "10.0.0.2")), {}, "6 devices on 2 servers"),
    (moved(new_table(), 0, device_id="7"), {}, "rings of their own"), (new_table(), {"DEVICE_ID": "1"}, "rank 0 is device 0 there")])
def test_what_only_other_devices_mind_is_a_warning(tmp_path, monkeypatch, capfd, table, variables, says):
    (tmp_path / "table.json").write_text(json.dumps(table))
    monkeypatch.setenv("TESSERA_SECRET_FILE", "elsewhere")
    for name, value in ({"RANK_ID": "0", "RANK_SIZE": str(sum(len(s["device"]) for s in table["server_list"]))} | variables).items():
        monkeypatch.setenv(name, value)
    assert _place.place_of_this_process(str(tmp_path / "table.json"))["TESSERA_RANK"] == "0"
    assert says in capfd.readouterr().err


def test_a_place_names_the_job_and_where_it_meets(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK_ID", "1")
    monkeypatch.delenv("RANK_SIZE", raising=False)
    monkeypatch.delenv("TESSERA_SECRET_FILE", raising=False)
    (tmp_path / "table.json.secret").write_bytes(bytes(range(32)))
    for servers, store in ((("10.0.0.1",), r"unix:tessera-[0-9a-f]{24}"), (("10.0.0.1", "10.0.0.2"), r"tcp:10\.0\.0\.1:\d{5}")):
        (tmp_path / "table.json").write_text(json.dumps(new_table(2, servers)))
        place = _place.place_of_this_process(str(tmp_path / "table.json"))
        assert re.fullmatch(store, place["TESSERA_STORE"]) and place["TESSERA_RANK"] == "1"
    monkeypatch.setenv("TESSERA_PORT", "6667")
    place = _place.place_of_this_process(str(tmp_path / "table.json"))
    assert place["TESSERA_STORE"] == "tcp:10.0.0.1:6667" and place["TESSERA_SECRET_FILE"] == str(tmp_path / "table.json.secret")


def test_ranks_of_several_servers_need_a_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK_ID", "1")
    monkeypatch.delenv("RANK_SIZE", raising=False)
    monkeypatch.delenv("TESSERA_SECRET_FILE", raising=False)
    (tmp_path / "table.json").write_text(json.dumps(new_table(2, ("10.0.0.1", "10.0.0.2"))))
    with pytest.raises(RuntimeError, match=r"need a secret.*table\.json\.secret.*TESSERA_SECRET_FILE"):
        _place.place_of_this_process(str(tmp_path / "table.json"))
    monkeypatch.setenv("TESSERA_SECRET_FILE", "elsewhere")
    assert "TESSERA_SECRET_FILE" not in _place.place_of_this_process(str(tmp_path / "table.json"))


def test_servers_that_are_one_machine_need_none(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK_ID", "1")
    monkeypatch.delenv("RANK_SIZE", raising=False)
    monkeypatch.delenv("TESSERA_SECRET_FILE", raising=False)
    table = tmp_path / "table.json"
    table.write_text(json.dumps(new_table(2, ("127.0.0.1", "127.0.0.2"))))
    assert _place.place_of_this_process(str(table))["TESSERA_STORE"].startswith("unix:tessera-")
    (tmp_path / "table.json.secret").write_bytes(bytes(32))
    assert _place.place_of_this_process(str(table))["TESSERA_STORE"].startswith("tcp:127.0.0.1:")


def test_a_meeting_place_cannot_be_guessed(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK_ID", "1")
    monkeypatch.delenv("RANK_SIZE", raising=False)
    (tmp_path / "table.json").write_text(json.dumps(new_table(2)))
    stores = []
    for home in ("a", "a", "b"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / home))
        stores.append(_place.place_of_this_process(str(tmp_path / "table.json"))["TESSERA_STORE"])
    assert stores[0] == stores[1] != stores[2]
    key = tmp_path / "a" / "tessera" / "meeting_key"
    assert key.stat().st_mode & 0o777 == 0o600 and len(key.read_bytes()) == 32 and len(list(key.parent.iterdir())) == 1
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")  # where nothing can be written the ranks meet all the same
    assert _place.place_of_this_process(str(tmp_path / "table.json"))["TESSERA_STORE"].startswith("unix:tessera-")


SEEDS = r"""
import sys
import numpy as np
import mindspore as ms
from mindspore import Model, Parameter, Tensor, dataset, nn, ops
from mindspore.communication import get_rank, init
init()
MODE
class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(np.random.rand(4, 1).astype(np.float32)))
        self.matmul = ops.MatMul()
    def construct(self, x):
        return self.matmul(x, self.weight)
net = Net()
start = net.weight.asnumpy().copy()
data = dataset.NumpySlicesDataset({'x': np.ones((4, 4), np.float32), 'y': np.zeros((4, 1), np.float32)}, shuffle=False).batch(4)
model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 1e-30))
model.train(1, data)
sys.stdout.write(f"rank {get_rank()} {start.tobytes().hex()} {net.weight.asnumpy().tobytes().hex()}\n")  # in one piece
"""


@pytest.mark.parametrize("mode, seed, start_equal, end_equal, says", [
    ("semi_auto_parallel", "", False, True, "all take rank 0's"), ("data_parallel", "", False, False, "rank 1 has other parameter values than rank 0"),
    ("data_parallel", "ms.set_seed(1)", True, True, "")], ids=["semi-auto", "data parallel", "one seed"])
def test_values_of_numpy_on_several_ranks(tmp_path, mode, seed, start_equal, end_equal, says):
    """NumPy's numbers differ between ranks unless one seed is set; split networks start from rank 0's."""
    settings = f"ms.set_auto_parallel_context(parallel_mode='{mode}', gradients_mean=True"
    settings += ", full_batch=True)" if mode == "semi_auto_parallel" else ")"
    (tmp_path / "seeds.py").write_text(SEEDS.replace("MODE", f"{settings}\n{seed}"))
    out, err = job.run(job.python(2, "seeds.py"), tmp_path)
    rows = re.findall(r"rank (\d) ([0-9a-f]{32}) ([0-9a-f]{32})", out)
    assert len(rows) == 2, out
    assert (rows[0][1] == rows[1][1]) == start_equal and (rows[0][2] == rows[1][2]) == end_equal, rows
    assert says in err if says else not re.search("rank 0's|than rank 0", err), err
