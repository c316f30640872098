"""Parameter servers whose workers do not wait for each other: over sockets, with certificates, on two hosts; who is named where a rank hangs or
ends; workers that are slower than the others."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "processes"))
from hosts import Hosts, may_have_hosts  # noqa: E402

TESSERA = str(Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera")
LIMIT_S = 120

SCRIPT = """
import sys
import time
import numpy as np
import tessera
from tessera import nn

staleness, who, how, epochs = sys.argv[1:]


class Rows(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(29, 6)
        self.out = nn.Dense(6, 3)

    def construct(self, ids):
        return self.out(self.table(ids))


class Fault(tessera.Callback):
    def step_end(self, run):
        losses.append(run.loss)
        if tessera.cluster.rank() != int(who):
            return
        if how == "slow":
            time.sleep(0.75)
        if run.step != 7:
            return
        if how == "hangs":
            time.sleep(1000)
        if how == "ends":
            sys.exit(0)
        if how == "throws":
            raise ValueError("its own words")


network = Rows()
network.set_on_servers()
model = tessera.Model(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), nn.LazyAdam(0.05), seed=5,
                      server_staleness=int(staleness) if staleness.isdigit() else staleness)
drawn = np.random.default_rng(1)
data = tessera.data.tensors({"ids": drawn.integers(0, 29, 12).astype(np.int32), "label": drawn.integers(0, 3, 12).astype(np.int32)}).batch(6)
losses = []
model.train(int(epochs), data, callbacks=[Fault()])
table = model.value("table.embedding_table").numpy()
print(f"first {losses[0]:.6f} last {losses[-1]:.6f} table {float(np.abs(table).sum()):.6f}\\n", end="", flush=True)
"""

STALENESS = ["2", "asynchronous"]


@pytest.fixture
def script(tmp_path):
    (tmp_path / "rows.py").write_text(SCRIPT)
    return tmp_path / "rows.py"


def environment(**variables):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "MS_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))}
    return kept | {"OMP_WAIT_POLICY": "PASSIVE", "TESSERA_NUM_THREADS": "1"} | {k: str(v) for k, v in variables.items()}


def train(script, staleness, who=-1, how="no", epochs=60, launcher=(), **variables):
    command = [TESSERA, "run", "-n", 3, "--servers", 2, *launcher, sys.executable, script, staleness, who, how, epochs]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LIMIT_S, env=environment(**variables))


def require_trained(out, ranks):
    found = re.findall(r"first (\S+) last (\S+) table (\S+)", out)
    assert len(found) == ranks, out
    # Of two rows that contradict each other a worker may have the wrong one last.
    assert sum(float(last) for _, last, _ in found) < 0.6 * sum(float(first) for first, _, _ in found), out
    assert len({table for _, _, table in found}) == 1, out


@pytest.mark.parametrize("staleness", STALENESS)
@pytest.mark.parametrize("transport", ["tls", "gloo"])
def test_sockets_connect_workers_and_servers(script, staleness, transport):
    done = train(script, staleness, launcher=["--transport", transport])
    assert done.returncode == 0, done.stderr
    require_trained(done.stdout, 5)


@pytest.mark.parametrize("staleness", STALENESS)
def test_a_worker_may_take_longer_than_the_deadline_for_all_its_steps(script, staleness):
    done = train(script, staleness, who=3, how="slow", epochs=10, launcher=["--transport", "tls", "--timeout", 10])
    assert done.returncode == 0, done.stderr
    assert len(re.findall("table", done.stdout)) == 5


# The second server's own threads wait for the first one and for workers, who owe it nothing.
@pytest.mark.parametrize("staleness", STALENESS)
@pytest.mark.parametrize("who, how, kind", [(0, "hangs", "stands still"), (1, "hangs", "stands still"), (3, "hangs", "stands still")])
def test_the_rank_that_hangs_is_named(script, tmp_path, staleness, who, how, kind):
    reports = tmp_path / "reports"
    done = train(script, staleness, who=who, how=how, launcher=["--transport", "tls", "--timeout", 10, "--report_dir", reports])
    assert done.returncode == 1, done.stdout
    found = subprocess.run([TESSERA, "cluster", "why", str(reports), "--json"], capture_output=True, text=True, timeout=LIMIT_S)
    verdict = json.loads(found.stdout)["verdict"]
    assert (verdict["kind"], verdict["ranks"]) == (kind, [who]), verdict["text"]


@pytest.mark.parametrize("who", [0, 1])
def test_a_server_that_ends_in_the_midst_of_a_training_is_named_at_once(script, who):
    done = train(script, "asynchronous", who=who, how="ends", launcher=["--transport", "tls", "--timeout", 60])
    assert done.returncode == 1
    assert f"because rank {who} failed: parameter server {who} (rank {who}) has ended while worker" in done.stderr


@pytest.mark.parametrize("who", [0, 1, 4])
def test_the_words_of_the_rank_that_fails_are_those_that_all_hear(script, who):
    done = train(script, "2", who=who, how="throws", launcher=["--transport", "tls"])
    assert done.returncode == 1
    assert f"because rank {who} failed: ValueError: its own words" in done.stderr
    assert f"tessera run: rank {who} failed" in done.stderr


def train_at_scheduler(script, tmp_path, staleness, at, address, port):
    """A scheduler and two launchers, of a server and a worker each, with certificates; `at` gives the command for a host. The output of each."""
    (tmp_path / "password").touch(0o600)
    (tmp_path / "password").write_text("a password of this job\n")
    variables = environment(TESSERA_TLS_PASSWORD_FILE=tmp_path / "password")
    made = subprocess.run([TESSERA, "cluster", "make-certificates", str(tmp_path / "tls")], capture_output=True, text=True, env=variables)
    assert made.returncode == 0, made.stderr
    variables["TESSERA_TLS_CONFIG"] = str(tmp_path / "tls" / "config.json")
    variables["TESSERA_TRANSPORT"] = "tls"
    commands = {"scheduler": at("left", TESSERA, "scheduler", "--workers", 4, "--host", address, "--port", port)}
    for host in ("left", "right"):
        commands[host] = at(host, TESSERA, "run", "--join", f"{address}:{port}", "--node_id", host, "--servers", 1, "-n", 1,
                            sys.executable, script, staleness, -1, "no", 60)
    processes = {name: subprocess.Popen([str(word) for word in command], env=variables, text=True, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE) for name, command in commands.items()}
    try:
        outs = {name: process.communicate(timeout=LIMIT_S) for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
    assert all(process.returncode == 0 for process in processes.values()), outs
    require_trained(outs["left"][0] + outs["right"][0], 4)


@pytest.mark.parametrize("staleness", STALENESS)
def test_a_job_with_certificates_trains(script, tmp_path, staleness):
    train_at_scheduler(script, tmp_path, staleness, lambda host, *command: command, "127.0.0.1", free_port())


@pytest.mark.skipif(not may_have_hosts(), reason="only root where network namespaces are allowed can have several hosts")
@pytest.mark.parametrize("staleness", STALENESS)
def test_two_hosts_with_certificates_train(script, tmp_path, staleness):
    hosts = Hosts("left", "right")
    try:
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; TESSERA_HOST_ID=$0 exec "$@"']
        train_at_scheduler(script, tmp_path, staleness, lambda host, *command: hosts.on(host, *named, host, *command), hosts.addresses["left"], 6667)
    finally:
        hosts.end()
