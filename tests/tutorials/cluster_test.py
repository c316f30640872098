"""Shell scripts of a scheduler and workers, in the form of the page on GPU clusters: 2, 4 and 8 workers on one host and on two, with the
certificates that the page's config.json names."""
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from ports import free_port

import job
from launch_test import block

sys.path.append(str(Path(__file__).resolve().parent.parent / "processes"))
from hosts import Hosts, may_have_hosts  # noqa: E402

PASSWORD = "123456"
WORKER = f"""
import sys
import numpy as np
from mindspore import Tensor, ops, set_ps_context
from mindspore.communication import get_group_size, get_rank, init

set_ps_context(config_file_path="config.json", enable_ssl=True, client_password="{PASSWORD}", server_password="{PASSWORD}")
init()
ranks = ops.AllGather()(Tensor(np.array([get_rank()], np.float32))).asnumpy()
assert (ranks == np.arange(get_group_size())).all()
sys.stdout.write(f"met {{len(ranks)}}\\n")
"""
# bash run_cluster.sh FIRST END ROLE: workers of these numbers on this host, and the scheduler where the last word says so.
SCRIPT = """
#!/bin/bash
if [ "$3" = scheduler ]; then
    export MS_ROLE=MS_SCHED
    python worker.py > scheduler.log 2>&1 &
fi
for((i=$1;i<$2;i++)); do
    export MS_ROLE=MS_WORKER
    export MS_NODE_ID=worker_$i
    python worker.py > worker_$i.log 2>&1 &
done
wait
"""


@contextmanager
def hosts(number):
    """([what begins a command on each host], the first one's address)."""
    if number == 1:
        yield [()], "127.0.0.1"
        return
    found = Hosts("left", "right")
    try:
        named = ("unshare", "--uts", "sh", "-c", 'hostname "$0"; TESSERA_HOST_ID=$0 exec "$@"')
        yield [found.on(name, *named, name) for name in found.addresses], found.addresses["left"]
    finally:
        found.end()


@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.skipif(
    not may_have_hosts(), reason="only root where network namespaces are allowed can have several hosts"))])
def test_workers_of_shell_scripts_meet_by_the_pages_certificates(tmp_path, workers, number):
    (tmp_path / "password").touch(0o600)
    (tmp_path / "password").write_text(PASSWORD)
    job.run([job.BIN / "tessera", "cluster", "make-certificates", "."], tmp_path, TESSERA_TLS_PASSWORD_FILE="password")
    (tmp_path / "config.json").write_text(block("001", "json", "server_cert_path"))
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "run_cluster.sh").write_text(SCRIPT)
    each = workers // number
    with hosts(number) as (places, address):
        variables = job.environment(MS_WORKER_NUM=workers, MS_SCHED_HOST=address, MS_SCHED_PORT=free_port(), TESSERA_NUM_THREADS=1)
        started = [subprocess.Popen([*place, "bash", "run_cluster.sh", str(at * each), str((at + 1) * each), "" if at > 0 else "scheduler"], cwd=tmp_path,
                                    env=variables) for at, place in enumerate(places)]
        for process in started:
            process.wait(timeout=600)
    logs = {path.name: path.read_text() for path in tmp_path.glob("*.log")}
    assert sum(f"met {workers}\n" in log for name, log in logs.items() if name != "scheduler.log") == workers, logs
    assert "all workers have ended" in logs["scheduler.log"], logs
    # The page's list has a name that is none: it is said, with its position.
    assert 'cipher 1, "ECDHE-R SA-AES128-GCM-SHA256", is not known' in logs["scheduler.log"], logs
