"""A job of a scheduler and workers, each a process that runs the same script with its MS_ROLE."""
import os
import sys

import tessera

from mindspore import _parameter_server, context
from mindspore._recovery_files import make_recovery_folder, remember_after_join
from mindspore.communication._variables import listen_at_named_interface, number, settings_of_job

_SCHEDULER, _WORKER, _SERVER = "MS_SCHED", "MS_WORKER", _parameter_server.SERVER_ROLES
_without_effect = []


def is_launched_by_scheduler():
    """Whether the environment says so: MS_ROLE, which goes before what mpirun and others have set."""
    return bool(os.environ.get("MS_ROLE"))


def refuse_workers_without_role():
    """RuntimeError where the environment says how many workers there are, but not that this process is one of them: it would train alone."""
    workers = os.environ.get("MS_WORKER_NUM", "")
    if workers.isdecimal() and int(workers) > 1:
        raise RuntimeError(f"The MS_WORKER_NUM is {workers}, but MS_ROLE is not set: each process would be alone. Export MS_ROLE={_SCHEDULER} in one process and "
                           f"MS_ROLE={_WORKER} in {workers} others, with MS_SCHED_HOST and MS_SCHED_PORT, or start the script by tessera run -n {workers}; "
                           "unset MS_WORKER_NUM where one process is meant.")


def _host():
    host = os.environ.get("MS_SCHED_HOST")
    if not host:
        raise RuntimeError("The MS_SCHED_HOST should not be null! Export it in all processes of the job.")
    return host


def _end_process(code):
    """The scheduler's part of the script is over. Inside pytest, which would report the end as a failure, it ends the session."""
    sys.stdout.flush()
    if "_pytest" in sys.modules:
        import pytest
        pytest.exit("the scheduler's job has ended", returncode=code)
    sys.exit(code)


# So often a worker may be lost: as often as it happens.
_ANY_NUMBER = 1_000_000


def _recovers():
    text = os.environ.get("MS_ENABLE_RECOVERY") or "0"
    if text not in ("0", "1"):
        raise RuntimeError(f"The MS_ENABLE_RECOVERY must be 0 or 1, but got {text}.")
    return text == "1"


def _recovery_path():
    """The folder MS_RECOVERY_PATH, made where it is missing, with its config.json."""
    path = os.environ.get("MS_RECOVERY_PATH")
    if not path:
        raise RuntimeError("The MS_RECOVERY_PATH should not be null where MS_ENABLE_RECOVERY is 1! Export it in all processes of the job.")
    make_recovery_folder(path)
    return path


def _recovery_of_scheduler():
    """Arguments of run_scheduler."""
    node = number("MS_NODE_TIMEOUT", os.environ.get("MS_NODE_TIMEOUT") or "30", 1, 2147483)
    timeout = {"node_timeout_ms": 1000 * node}
    if not _recovers():
        return timeout
    return timeout | {"max_restarts": _ANY_NUMBER, "state": os.path.join(_recovery_path(), "recovery.dat")}


def meet_at_scheduler():
    """In a worker: tells tessera where its scheduler is. In the scheduler: is it until the job has ended, and ends the process."""
    role = os.environ.get("MS_ROLE")
    workers = number("MS_WORKER_NUM", os.environ.get("MS_WORKER_NUM"), 1, 16384)
    port = number("MS_SCHED_PORT", os.environ.get("MS_SCHED_PORT"), 1, 65535)
    host = _host()
    seconds = number("MS_TOPO_TIMEOUT", os.environ.get("MS_TOPO_TIMEOUT") or "600", 1, 2147483)
    servers = _parameter_server.num_servers_of_environment() if _parameter_server.is_enabled() else 0
    if role in _SERVER and servers == 0:
        raise RuntimeError(f"MS_ROLE {role}: there are no servers unless the script calls set_ps_context(enable_ps=True) before init() and MS_SERVER_NUM "
                           "says how many.")
    own, _without_effect[:] = settings_of_job(seconds, _recovers())
    _parameter_server.show_certificates(role == _SCHEDULER)
    if role == _SCHEDULER:
        _end_process(tessera.cluster.run_scheduler(host, port, workers + servers, timeout_ms=1000 * seconds, **_recovery_of_scheduler()))
    if role != _WORKER and role not in _SERVER:
        raise RuntimeError(f"The MS_ROLE must be {_SCHEDULER}, {_WORKER} or {_SERVER[0]}, but got {role}.")
    if _recovers():
        if not os.environ.get("MS_NODE_ID"):
            raise RuntimeError("The MS_NODE_ID should not be null where MS_ENABLE_RECOVERY is 1: by it a worker that is started again has "
                               "its rank.")
        _recovery_path()
    os.environ["TESSERA_SCHEDULER"] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    os.environ["TESSERA_NUM_WORKERS"] = str(workers + servers)
    os.environ["TESSERA_ROLE"] = "server" if role in _SERVER else "worker"
    os.environ.update(own)
    if os.environ.get("MS_NODE_ID"):
        os.environ["TESSERA_NODE_ID"] = os.environ["MS_NODE_ID"]
    if os.environ.get("MS_INTERFACE"):
        os.environ["TESSERA_INTERFACE"] = os.environ["MS_INTERFACE"]
    listen_at_named_interface()


def tell_place():
    """Sets the variables that scripts read of their place, once the scheduler has given it, and says which have no effect."""
    for sentence in _without_effect:
        context.warn_once(sentence)
    os.environ["RANK_ID"] = str(_parameter_server.own_rank())
    os.environ["RANK_SIZE"] = str(_parameter_server.num_workers())
    os.environ["DEVICE_ID"] = str(tessera.cluster.local_rank())
    remember_after_join()
