"""What a script says of parameter servers: set_ps_context() that there are some, set_param_ps() what they keep."""
import os

import tessera

_DEFAULTS = {"enable_ps": False, "enable_ssl": False, "config_file_path": "", "scheduler_manage_port": 11202, "client_password": None,
             "server_password": None}
# Of a process that keeps parameters, in MS_ROLE.
SERVER_ROLES = ("MS_PSERVER", "MS_SERVER")
_said = dict(_DEFAULTS)

_STEPS = ("1) call set_ps_context(enable_ps=True) before init(); 2) start the script with a scheduler, servers and workers, by MS_ROLE, MS_SERVER_NUM "
          "and MS_WORKER_NUM, or by tessera run --servers")


def set_ps_context(**settings):
    """enable_ps: the parameters that are set_param_ps() are kept by servers. enable_ssl: the processes of a scheduler's job show the certificates
    that config_file_path names, opened by server_password in the scheduler and by client_password in the others; connections are encrypted
    in any case."""
    for name, value in settings.items():
        if name not in _DEFAULTS:
            raise ValueError(f"For 'set_ps_context', the argument '{name}' is not available: its arguments are {', '.join(_DEFAULTS)}.")
        if name in ("enable_ps", "enable_ssl") and not isinstance(value, bool):
            raise TypeError(f"For 'set_ps_context', the type of argument '{name}' must be bool, but got {type(value).__name__}.")
        if name == "scheduler_manage_port":
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
                raise ValueError(f"For 'set_ps_context', the argument '{name}' must be a number from 1 to 65535, but got {value}.")
            if value != _DEFAULTS[name]:
                raise RuntimeError("set_ps_context: scheduler_manage_port: nothing listens there; tessera cluster status asks the scheduler at its own port")
        if name in ("config_file_path", "client_password", "server_password") and value is not None and not isinstance(value, str):
            raise TypeError(f"For 'set_ps_context', the type of argument '{name}' must be str, but got {type(value).__name__}.")
    _said.update(settings)


def get_ps_context(attr_key):
    """A setting of set_ps_context()."""
    if attr_key not in _said:
        raise ValueError(f"For 'get_ps_context', the argument '{attr_key}' is not available: the settings are {', '.join(_said)}.")
    return _said[attr_key]


def reset_ps_context():
    """All settings as they are at first: no parameter is kept by servers."""
    _said.update(_DEFAULTS)


def is_enabled():
    """Whether the script has asked for servers."""
    return _said["enable_ps"]


def show_certificates(is_scheduler):
    """Tells tessera which certificates set_ps_context() has named. RuntimeError where it has asked for some and named none."""
    if not _said["enable_ssl"]:
        return
    if not _said["config_file_path"]:
        raise RuntimeError("set_ps_context(enable_ssl=True): config_file_path is missing: the JSON file that says where the certificates are, as "
                           "`tessera cluster make-certificates FOLDER` makes it; without enable_ssl connections are encrypted by the job's secret.")
    os.environ["TESSERA_TLS_CONFIG"] = _said["config_file_path"]
    password = _said["server_password" if is_scheduler else "client_password"]
    if password is not None:
        os.environ["TESSERA_TLS_PASSWORD"] = password


def num_servers_of_environment():
    """How many servers the launcher speaks of, before the job is joined."""
    text = os.environ.get("MS_SERVER_NUM" if os.environ.get("MS_ROLE") else "TESSERA_NUM_SERVERS") or "0"
    if not text.isdecimal() or int(text) > 16384:
        raise RuntimeError(f"The MS_SERVER_NUM must be a number from 0 to 16384, but got {text}.")
    return int(text)


def require_servers(who):
    """RuntimeError unless there are servers and the script has asked for them."""
    in_job = tessera.cluster.num_servers() if tessera.cluster.is_initialized() else num_servers_of_environment()
    if not is_enabled() or in_job == 0:
        raise RuntimeError(f"{who}: there are no parameter servers: {_STEPS}.")


def own_rank():
    """This process among the workers, or among the servers."""
    servers, rank = tessera.cluster.num_servers(), tessera.cluster.rank()
    return rank if rank < servers else rank - servers


def num_workers():
    """The ranks of the job that train."""
    return tessera.cluster.size() - tessera.cluster.num_servers()
