"""LeNet with parameter servers, started as the reference's page on parameter server mode does: a shell script for each role, which exports who the process
is, and a log for each process."""
import math
import re
import subprocess
import sys

import pytest
from ports import free_port
from servers_test import LENET

import job

STEPS = [(epoch, step) for epoch in (1, 2) for step in range(1, 7)]
ROLE = """
#!/bin/bash
export MS_SERVER_NUM={servers}
export MS_WORKER_NUM={workers}
export MS_SCHED_HOST=127.0.0.1
export MS_SCHED_PORT={port}
export MS_ROLE={role}
python train.py servers
"""


def start_as_the_page_does(folder, servers, workers):
    """Writes and starts the scripts; waits for all of them. Returns (exit codes by log, logs)."""
    port = free_port()
    (folder / "train.py").write_text(LENET)
    for name, role in (("Scheduler", "MS_SCHED"), ("Server", "MS_PSERVER"), ("Worker", "MS_WORKER")):
        (folder / f"{name}.sh").write_text(ROLE.format(servers=servers, workers=workers, port=port, role=role))
    variables = job.environment(TESSERA_NUM_THREADS=1, OMP_WAIT_POLICY="PASSIVE", XDG_CACHE_HOME=folder / "cache")
    scripts = {"scheduler.log": "Scheduler", **{f"server_{i}.log": "Server" for i in range(servers)}, **{f"worker_{i}.log": "Worker" for i in range(workers)}}
    started = {log: subprocess.Popen(["bash", "-c", f"sh {name}.sh > {log} 2>&1"], cwd=folder, env=variables) for log, name in scripts.items()}
    codes = {log: process.wait(timeout=600) for log, process in started.items()}
    return port, codes, {log: (folder / log).read_text() for log in scripts}


@pytest.mark.parametrize("servers, workers", [(1, 1), (1, 2)])
def test_each_log_says_what_its_process_did(tmp_path, servers, workers):
    port, codes, logs = start_as_the_page_does(tmp_path, servers, workers)
    assert set(codes.values()) == {0}, logs
    alone, _ = job.run([sys.executable, "train.py"], tmp_path, TESSERA_NUM_THREADS=1)

    # The scheduler's own lines, in this order, and nothing of a training.
    ranks = servers + workers
    said = [line.removeprefix("tessera scheduler: ") for line in logs["scheduler.log"].splitlines() if line.startswith("tessera scheduler: ")]
    assert said == [f"listening at 127.0.0.1:{port} for {ranks} workers", f"generation 1 begins: {ranks} ranks at 1 host", "all workers have ended"], logs["scheduler.log"]
    assert not job.losses(logs["scheduler.log"])

    # A line for each step, which workers and servers print alike, beginning where chance does among ten classes.
    for log in logs.keys() - {"scheduler.log"}:
        lines = re.findall(r"^epoch: (\d+) step: (\d+), loss is (\d+\.\d+)$", logs[log], re.MULTILINE)
        assert [(int(epoch), int(step)) for epoch, step, _ in lines] == STEPS, logs[log]
        assert float(lines[0][2]) == pytest.approx(math.log(10), abs=0.1), logs[log]
        assert [float(loss) for _, _, loss in lines] == pytest.approx([float(loss) for _, _, loss in job.losses(alone)], rel=1e-4), logs[log]
    places = {log: re.search(r"^place (\d+) of (\d+)$", text, re.MULTILINE) for log, text in logs.items() if log != "scheduler.log"}
    for name, count in (("server", servers), ("worker", workers)):
        assert sorted(places[f"{name}_{i}.log"].groups() for i in range(count)) == [(str(i), str(workers)) for i in range(count)], logs


def test_the_scheduler_names_whom_it_waits_for_when_a_server_does_not_come(tmp_path):
    """The scheduler gives up after its MS_TOPO_TIMEOUT seconds, and with it the worker, which would wait for longer."""
    port = free_port()
    (tmp_path / "train.py").write_text(LENET)
    both = {}
    for log, role, seconds in (("scheduler.log", "MS_SCHED", 10), ("worker.log", "MS_WORKER", 300)):
        (tmp_path / f"{log}.sh").write_text(ROLE.format(servers=1, workers=1, port=port, role=role))
        both[log] = subprocess.Popen(["bash", "-c", f"sh {log}.sh > {log} 2>&1"], cwd=tmp_path,
                                     env=job.environment(MS_TOPO_TIMEOUT=seconds, TESSERA_NUM_THREADS=1, XDG_CACHE_HOME=tmp_path / "cache"))
    codes = {log: process.wait(timeout=600) for log, process in both.items()}
    scheduler, worker = ((tmp_path / log).read_text() for log in both)
    assert all(codes.values()) and "the job has failed: " in scheduler and "1 of 2" in scheduler, (scheduler, worker)
    assert not job.losses(worker)
