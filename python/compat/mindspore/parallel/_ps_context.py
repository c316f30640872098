"""What this process is in a job with parameter servers."""
import os

from mindspore import _parameter_server
from mindspore._missing import missing
from mindspore._parameter_server import get_ps_context, reset_ps_context, set_ps_context


def _get_ps_context(attr_key):
    """A setting of set_ps_context()."""
    return get_ps_context(attr_key)


def _set_ps_context(**kwargs):
    """set_ps_context()."""
    set_ps_context(**kwargs)


def _reset_ps_context():
    """reset_ps_context()."""
    reset_ps_context()


def _is_ps_mode():
    """Whether the script has asked for servers and the launcher speaks of some."""
    return _parameter_server.is_enabled() and _parameter_server.num_servers_of_environment() > 0


def _is_role_worker():
    """Whether the environment says that this process trains."""
    return os.environ.get("MS_ROLE") == "MS_WORKER"


def _is_role_pserver():
    """Whether the environment says that this process keeps parameters."""
    return os.environ.get("MS_ROLE") in _parameter_server.SERVER_ROLES


def _is_role_sched():
    """Whether the environment says that this process is the scheduler."""
    return os.environ.get("MS_ROLE") == "MS_SCHED"


__getattr__ = missing(__name__)
del missing
