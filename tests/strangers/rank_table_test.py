"""What strangers can do to a job whose ranks find each other by a rank table, as the package mindspore starts them: nothing. And
whose files such ranks take for secrets."""
import json
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from attacked_jobs import NOBODY, Attack, eventually, everything, free_port, listens  # noqa: E402
from mindspore.communication import _place  # noqa: E402

RANK = """
import numpy as np
from mindspore import Tensor, ops
from mindspore.communication import get_rank, init

init()
weights = np.random.RandomState(7).randn(2000).astype(np.float32)
for step in range(1, 6):
    weights -= 0.01 * ops.AllReduce()(Tensor(weights * (get_rank() + 1) / step)).asnumpy()
print(f"rank {get_rank()} has {weights.tobytes().hex()}", flush=True)
"""
USERS = [None] + [NOBODY] * (os.getuid() == 0)


def table_of(servers, devices):
    ranks = iter(range(devices * len(servers)))
    return json.dumps({"version": "1.0", "server_count": str(len(servers)), "status": "completed", "server_list": [
        {"server_id": server, "device": [{"device_id": str(device), "device_ip": f"192.1{server[-1]}.27.{device}", "rank_id": str(next(ranks))}
                                         for device in range(devices)]} for server in servers]})


class TableJob:
    """Two ranks of one server, or of two that are addresses of this machine."""

    def __init__(self, folder, monkeypatch, servers, secret=None):
        self.folder, self.table, self.secret = folder, folder / "table.json", secret
        self.table.write_text(table_of(servers, 2 // len(servers)))
        (folder / "rank.py").write_text(RANK)
        if secret is not None:
            file = folder / "table.json.secret"
            file.touch(0o600)
            file.write_bytes(secret)
        self.variables = {"RANK_TABLE_FILE": str(self.table), "RANK_SIZE": "2", "XDG_CACHE_HOME": str(folder / "cache"), "TESSERA_NUM_THREADS": "1",
                          "OMP_WAIT_POLICY": "PASSIVE", "TESSERA_PORT": str(free_port())}
        self.ranks = {}
        for name, value in {**self.variables, "RANK_ID": "0"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("TESSERA_SECRET_FILE", raising=False)
        monkeypatch.setattr(_place.os, "getppid", os.getpid)  # as its ranks see it
        place = _place.place_of_this_process(str(self.table))
        self.address, self.job_id = place["TESSERA_STORE"], place["TESSERA_JOB_ID"]

    def start(self, rank):
        foreign = ("TESSERA_", "OMPI_", "PMIX_", "RANK_", "DEVICE_", "MS_")
        env = {key: value for key, value in os.environ.items() if not key.startswith(foreign)} | self.variables | {"RANK_ID": str(rank), "DEVICE_ID": "0"}
        self.ranks[rank] = subprocess.Popen([sys.executable, "-B", "rank.py"], cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                            text=True)
        return self.ranks[rank]

    def start_listening(self):
        rank = self.start(0)
        eventually(lambda: rank.poll() is not None or listens(self.address), "rank 0 listens")

    def end(self):
        """(exit codes, what the ranks have printed, their errors)."""
        said = [self.ranks[rank].communicate(timeout=90) for rank in sorted(self.ranks)]
        return [self.ranks[rank].returncode for rank in sorted(self.ranks)], [out for out, _ in said], [err for _, err in said]


@pytest.fixture
def new_job(tmp_path, monkeypatch):
    jobs = []

    def make(name, *arguments, **options):
        (tmp_path / name).mkdir()
        jobs.append(TableJob(tmp_path / name, monkeypatch, *arguments, **options))
        return jobs[-1]

    yield make
    for process in (process for job in jobs for process in job.ranks.values()):
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("servers, kind", [(("127.0.0.1",), "unix:"), (("127.0.0.1", "127.0.0.2"), "tcp:")])
@pytest.mark.parametrize("user", USERS)
def test_strangers_learn_and_change_nothing(new_job, servers, kind, user):
    secret = secrets.token_bytes(32) if kind == "tcp:" else None
    undisturbed = new_job("undisturbed", servers, secret)
    for rank in (0, 1):
        undisturbed.start(rank)
    codes, expected, errors = undisturbed.end()
    assert codes == [0, 0], errors
    job = new_job("attacked", servers, secret)
    assert job.address.startswith(kind)
    job.start_listening()
    attack = Attack(everything(2), job.address, user=user)
    job.start(1)
    codes, printed, errors = job.end()
    assert codes == [0, 0] and printed == expected, errors
    heard = attack.end()
    weights = bytes.fromhex(re.search("has ([0-9a-f]+)", printed[0])[1])
    parts = [weights[start:start + 8] for start in range(0, len(weights), 8)]
    assert not [what for what in (job.job_id.encode(), *([secret, secret.hex().encode()] if secret else []), *parts) if what in heard]


def test_a_secret_that_others_may_read_is_refused(new_job):
    for mode in (0o644, 0o640, 0o602):
        job = new_job(f"{mode:o}", ("127.0.0.1", "127.0.0.2"), secrets.token_bytes(32))
        (job.folder / "table.json.secret").chmod(mode)
        for rank in (0, 1):
            job.start(rank)
        codes, _, errors = job.end()
        assert codes == [1, 1] and all("others may read or write it; chmod 600" in error for error in errors), errors


def spoil(key, how):
    """The user's key, as somebody else or a careless hand may have left it."""
    key.parent.mkdir(parents=True)
    if how == "a pipe":
        os.mkfifo(key, 0o600)
    elif how == "a link to one":
        os.mkfifo(key.parent / "pipe", 0o600)
        key.symlink_to("pipe")
    elif how == "a folder":
        key.mkdir()
    else:
        key.touch(0o600)
        key.write_bytes(bytes(32))
        if how == "another user's":
            os.chown(key, NOBODY, NOBODY)
        if how == "one that others may read":
            key.chmod(0o644)


@pytest.mark.parametrize("how", ["a pipe", "a link to one", "a folder", "one that others may read", "another user's"])
def test_a_key_that_is_not_the_users_own_is_not_used(tmp_path, monkeypatch, how, capfd):
    """Who knows it knows where the ranks meet, and could be there first."""
    if how == "another user's" and os.getuid() != 0:
        pytest.skip("only root can be another user")
    (tmp_path / "table.json").write_text(table_of(("10.0.0.1",), 2))
    monkeypatch.setenv("RANK_ID", "0")
    monkeypatch.delenv("RANK_SIZE", raising=False)
    stores = []
    for home in ("none", "spoilt"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / home) if home == "spoilt" else "/proc/nowhere")
        if home == "spoilt":
            spoil(tmp_path / home / "tessera" / "meeting_key", how)
        stores.append(_place.place_of_this_process(str(tmp_path / "table.json"))["TESSERA_STORE"])
    assert stores[0] == stores[1]
    assert "meeting_key" in capfd.readouterr().err
