"""msrun: scripts as a scheduler and workers, with a log each."""
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mindspore.parallel.cluster import run as cluster_run
from ports import free_port

MSRUN = Path(__file__).resolve().parents[2] / "python" / "compat" / "bin" / "msrun"
PROGRAM = """
import os
import signal
import sys

import mindspore.communication as comm

comm.init()
print("rank", comm.get_rank(), "of", comm.get_group_size(), os.environ["RANK_ID"], os.environ["DEVICE_ID"], sys.argv[1:])
if sys.argv[1:] == ["fail"] and comm.get_rank() == 1:
    sys.exit(3)
if sys.argv[1:] == ["wait"]:
    print("waits as", os.getpid(), flush=True)
    signal.pause()
"""


def command(*words):
    return [sys.executable, "-B", str(MSRUN), f"--master_port={free_port()}", *map(str, words)]


def environment():
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "MS_", "RANK_"))}
    return kept | {"PATH": f"{Path(sys.executable).parent}:{kept['PATH']}"}


def msrun(tmp_path, *words):
    (tmp_path / "program.py").write_text(PROGRAM)
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment())


def test_workers_meet_and_each_has_a_log(tmp_path):
    done = msrun(tmp_path, "--worker_num=3", "--local_worker_num=3", "--master_addr=127.0.0.1", "--log_dir=logs/all", "--join=True", "program.py", "--lr=0.1", "x")
    assert done.returncode == 0, done.stdout + done.stderr
    logs = {path.name: path.read_text() for path in (tmp_path / "logs" / "all").iterdir()}
    assert sorted(logs) == ["scheduler.log", "worker_0.log", "worker_1.log", "worker_2.log"]
    for rank in range(3):
        assert logs[f"worker_{rank}.log"] == f"rank {rank} of 3 {rank} {rank} ['--lr=0.1', 'x']\n"
        assert logs[f"worker_{rank}.log"] in done.stdout
    assert "all workers have ended" in logs["scheduler.log"]


def test_a_log_may_have_another_name_and_need_not_be_shown(tmp_path):
    done = msrun(tmp_path, "--worker_num", 2, "--local_worker_num", 2, "--join", "True", "--worker_log_name=own_{ip}", "--tail_worker_log=1", "python3",
                 "program.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 0 of 2" in (tmp_path / "own_127.0.0.1_0.log").read_text()
    assert "rank 1 of 2" in done.stdout and "rank 0 of 2" not in done.stdout


def test_where_a_worker_fails_the_others_end_and_the_exit_code_is_1(tmp_path):
    done = msrun(tmp_path, "--worker_num=2", "--local_worker_num=2", "--log_dir=logs", "--join=True", "program.py", "fail")
    assert done.returncode == 1
    assert "the job has failed: node 1 failed: it has ended with exit code 3\nmsrun: the job has failed: the worker process with rank id:" in done.stderr
    assert f"all logs are in {tmp_path}/logs" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_processes(tmp_path, number):
    (tmp_path / "program.py").write_text(PROGRAM)
    with subprocess.Popen(command("--worker_num=2", "--local_worker_num=2", "--join=True", "program.py", "wait"), stdout=subprocess.PIPE, text=True,
                          cwd=tmp_path, env=environment()) as job:
        waiting = []
        for line in job.stdout:
            waiting += re.findall(r"waits as (\d+)", line)
            if len(waiting) == 2:
                break
        job.send_signal(number)
        job.stdout.read()
    assert job.returncode == 128 + number and len(waiting) == 2
    for pid in waiting:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_without_join_it_ends_at_once_and_the_job_goes_on(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe2")
    (tmp_path / "program.py").write_text(PROGRAM + "open('pipe').read()\nopen('pipe2', 'w').write(str(comm.get_rank()))\n")
    done = subprocess.run(command("--worker_num=1", "--local_worker_num=1", "--log_dir=logs", "program.py"), capture_output=True, text=True, timeout=300,
                          cwd=tmp_path, env=environment())
    assert done.returncode == 0 and "Start worker process with rank id:0, log file:logs/worker_0.log" in done.stdout
    (tmp_path / "pipe").write_text("on")
    assert (tmp_path / "pipe2").read_text() == "0"


def test_hosts_have_their_ranks_by_their_number(monkeypatch, tmp_path):
    started = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster_run, "_Process", lambda what, number, command, environment, log, joins: started.append((what, environment, log)))
    monkeypatch.setattr(cluster_run, "_is_of_this_host", lambda ip: False)
    cluster_run.run(cluster_run.get_args(["--worker_num=4", "--local_worker_num=2", "--node_rank=1", "--cluster_time_out=-1", "--master_addr=10.0.0.1", "a.py"]))
    assert [log for _, _, log in started] == ["worker_2.log", "worker_3.log"]  # the scheduler is at the other host
    assert [(env["MS_NODE_ID"], env["RANK_ID"], env["DEVICE_ID"], env["MS_SCHED_HOST"]) for _, env, _ in started] == [
        ("2", "2", "0", "10.0.0.1"), ("3", "3", "1", "10.0.0.1")]
    assert all(env["MS_ROLE"] == "MS_WORKER" and env["MS_WORKER_NUM"] == "4" and env["MS_TOPO_TIMEOUT"] == "2147483" for _, env, _ in started)


@pytest.mark.parametrize("words, said", [
    (["--sim_level=1"], "--sim_level: is not available: tessera plan says"),
    (["--rank_table_file=table.json"], "--rank_table_file: is not available: the scheduler says where the ranks are"),
    (["--joined"], "unrecognized arguments: --joined; msrun --help says what there is"),
    (["--master_port=80"], "must be a number from 1024 to 65535, but got 80"),
    (["--worker_num=0"], "--worker_num must be greater than 0, but got 0"),
    (["--worker_num=2"], "--local_worker_num must be from 0 to --worker_num, 2, but got 8"),
    (["--worker_num=4", "--local_worker_num=2", "--node_rank=2"], "--node_rank 2 with 2 workers each is beyond --worker_num 4"),
    (["--join=yes"], "--join: must be True or False, but got yes"),
    (["--tail_worker_log=a"], "--tail_worker_log: must be -1 for all"),
    (["--master_addr=no.such.host.invalid"], "--master_addr no.such.host.invalid is no address and no name of a host"),
])
def test_a_wrong_command_line_is_refused(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        cluster_run.get_args([*words, "program.py"])
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_binding_has_no_effect_and_says_so(capsys):
    assert cluster_run.get_args(["--bind_core=True", "program.py"]).task_script == "program.py"
    assert "msrun: --bind_core has no effect: each process computes with its share" in capsys.readouterr().err
