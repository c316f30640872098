"""Variables with which jobs of the reference are tuned: each says something to a job here, or rank 0 says once that it does not."""
import io
import os
import re
import socket
import subprocess
import sys

import pytest
from ports import free_port

MEETS = ("import os\nfrom mindspore.communication import _scheduler\n_scheduler.meet_at_scheduler()\n"
         "for name in ('TESSERA_INTERFACE', 'TESSERA_JOIN_TIMEOUT_MS', 'TESSERA_TIMEOUT_MS'):\n    print(name, os.environ.get(name, 'unset'))\n"
         "for sentence in _scheduler._without_effect:\n    print('idle', sentence)\n")


def process(script, **variables):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TESSERA_INTERFACE", "TESSERA_TIMEOUT", "NCCL_", "GLOO_", "MS_"))}
    common = {"MS_WORKER_NUM": 1, "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": free_port()}
    environment = clean | {name: str(value) for name, value in (common | variables).items()}
    return subprocess.Popen([sys.executable, "-c", script], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def worker(**variables):
    started = process(MEETS, MS_ROLE="MS_WORKER", **variables)
    out, err = started.communicate(timeout=120)
    return started.returncode, out, err


def told(**variables):
    code, out, err = worker(**variables)
    assert code == 0, err
    return dict(re.findall(r"^(TESSERA_\w+) (\S+)$", out, re.M)), re.findall(r"^idle (.*)$", out, re.M)


# NCCL takes beginnings of names, exact ones after `=`, and all others after `^`; Gloo names.
@pytest.mark.parametrize("variable, text", [("NCCL_SOCKET_IFNAME", "=lo"), ("NCCL_SOCKET_IFNAME", "nothing,lo"), ("GLOO_SOCKET_IFNAME", "lo")])
def test_an_interface_is_where_the_worker_listens(variable, text):
    variables, idle = told(**{variable: text})
    assert variables["TESSERA_INTERFACE"] == "lo" and idle == []


def test_the_nearest_word_names_the_interface():
    assert told(NCCL_SOCKET_IFNAME="lo", MS_INTERFACE="eth7")[0]["TESSERA_INTERFACE"] == "eth7"
    assert told(NCCL_SOCKET_IFNAME="nothing", TESSERA_INTERFACE="eth7")[0]["TESSERA_INTERFACE"] == "eth7"
    assert told(NCCL_SOCKET_IFNAME="=lo", GLOO_SOCKET_IFNAME="nothing")[0]["TESSERA_INTERFACE"] == "lo"
    assert told()[0]["TESSERA_INTERFACE"] == "unset"


@pytest.mark.parametrize("variable, text", [("NCCL_SOCKET_IFNAME", "nothing7"), ("NCCL_SOCKET_IFNAME", "=l"), ("GLOO_SOCKET_IFNAME", "l"),
                                            ("NCCL_SOCKET_IFNAME", "^" + ",".join(name for _, name in socket.if_nameindex()))])
def test_an_interface_that_is_not_there_is_refused_with_those_that_are(variable, text):
    code, _, err = worker(**{variable: text})
    assert code == 1 and f"The {variable} must be a network interface of this host that has an address, but got {text}; this host has" in err
    assert "lo" in err.rsplit("this host has", 1)[1]  # a traceback shows the line that has raised it, too


# Nobody listens at an address that is its link's alone.
@pytest.mark.parametrize("scope, has_address", [("00", True), ("20", False)])
def test_an_interface_with_an_address_of_its_link_alone_has_none(monkeypatch, scope, has_address):
    from mindspore.communication import _variables
    monkeypatch.setattr(_variables, "open", lambda *_, **__: io.StringIO(f"fe800000000000000000000000000001 04 40 {scope} 80 nothing7\n"), raising=False)
    assert _variables._has_address("nothing7") == has_address


def test_times_that_are_longer_are_taken():
    variables, idle = told(MS_CLUSTER_RETRY_NUM=1000, MS_RECEIVE_MSG_TIMEOUT=300, MS_COMM_TYPE="tcp", MS_RECOVERY_INTERVAL=30)
    assert (variables["TESSERA_JOIN_TIMEOUT_MS"], variables["TESSERA_TIMEOUT_MS"]) == ("3000000", "300000")
    assert idle == []  # nothing recovers
    assert told(MS_RECEIVE_MSG_TIMEOUT=300, TESSERA_TIMEOUT_MS=5000)[0]["TESSERA_TIMEOUT_MS"] == "5000"


def test_for_so_long_the_end_of_the_process_waits_for_what_still_computes():
    waits = "from tessera import _tessera\n_tessera._end_threads = lambda timeout_ms: print('waits', timeout_ms) or True\n"
    for variables, timeout_ms in (({"MS_RECEIVE_MSG_TIMEOUT": 300}, 300000), ({"MS_RECEIVE_MSG_TIMEOUT": 300, "TESSERA_TIMEOUT_MS": 5000}, 5000), ({}, 30000)):
        started = process(MEETS + waits, MS_ROLE="MS_WORKER", **variables)
        out, err = started.communicate(timeout=120)
        assert started.returncode == 0 and f"waits {timeout_ms}\n" in out, (out, err)


def test_what_has_no_effect_is_said_with_what_to_set(tmp_path):
    variables, idle = told(MS_CLUSTER_RETRY_NUM=10, MS_RECEIVE_MSG_TIMEOUT=5, MS_COMM_TYPE="ibverbs", MS_RECOVERY_INTERVAL=60, MS_ENABLE_RECOVERY=1,
                           MS_RECOVERY_PATH=tmp_path, MS_NODE_ID="worker_0")
    assert (variables["TESSERA_JOIN_TIMEOUT_MS"], variables["TESSERA_TIMEOUT_MS"]) == ("600000", "unset")
    said = {sentence.split("=")[0]: sentence for sentence in idle}
    assert sorted(said) == ["MS_CLUSTER_RETRY_NUM", "MS_COMM_TYPE", "MS_RECEIVE_MSG_TIMEOUT", "MS_RECOVERY_INTERVAL"]
    for name, instead in (("MS_CLUSTER_RETRY_NUM", "MS_TOPO_TIMEOUT"), ("MS_COMM_TYPE", "TESSERA_TRANSPORT"),
                          ("MS_RECEIVE_MSG_TIMEOUT", "TESSERA_TIMEOUT_MS"), ("MS_RECOVERY_INTERVAL", "TESSERA_KEEP_STEPS")):
        assert "has no effect" in said[name] and instead in said[name]


@pytest.mark.parametrize("variable, text, words", [
    ("MS_COMM_TYPE", "pigeon", "must be tcp, zmq or ibverbs, but got pigeon"), ("MS_RECEIVE_MSG_TIMEOUT", "0", "must be a number from 1 to 2147483, but got 0"),
    ("MS_CLUSTER_RETRY_NUM", "many", "must be a number from 1 to 715827, but got many"), ("MS_RECOVERY_INTERVAL", "-1", "must be a number from 1"),
    ("NCCL_SOCKET_IFNAME", "^", "must be names of network interfaces, separated by commas"), ("GLOO_SOCKET_IFNAME", ",", "must be names of network")])
def test_a_value_that_makes_no_sense_is_refused(variable, text, words):
    code, _, err = worker(**{variable: text})
    assert code == 1 and f"The {variable} {words}" in err, err


def test_rank_0_says_it_once_for_its_job():
    script = "from mindspore.communication import get_rank, init\ninit()\nprint('rank', get_rank())\n"
    common = {"MS_WORKER_NUM": 2, "MS_SCHED_PORT": free_port(), "MS_RECEIVE_MSG_TIMEOUT": 5, "GLOO_SOCKET_IFNAME": "lo"}
    started = [process(script, MS_ROLE=role, **common) for role in ("MS_SCHED", "MS_WORKER", "MS_WORKER")]
    ended = [one.communicate(timeout=240) for one in started]
    assert [one.returncode for one in started] == [0, 0, 0], ended
    said = [err.count("MS_RECEIVE_MSG_TIMEOUT=5 has no effect") for _, err in ended]
    assert sorted(said) == [0, 0, 1] and ended[said.index(1)][0] == "rank 0\n", ended
