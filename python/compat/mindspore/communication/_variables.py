"""Variables with which jobs of the reference are tuned. Each says something to Tessera, or rank 0 says once that it has no effect and what to set."""
import fcntl
import os
import socket
import struct

_SECONDS_OF_A_TRY = 3  # between two of the reference's attempts to register
_TIMEOUT_S = 30  # for which a rank waits for another one where nothing is said
_MOST_SECONDS = 2147483
_WAYS = ("tcp", "zmq", "ibverbs")
_OF_ITS_LINK = "20"  # the scope of an address by which nobody listens, in /proc/net/if_inet6


def number(name, text, least, most):
    """RuntimeError for what is no such number."""
    if not text:
        raise RuntimeError(f"The {name} should not be null! Export it in all processes of the job.")
    if not text.isdecimal() or not least <= int(text) <= most:
        raise RuntimeError(f"The {name} must be a number from {least} to {most}, but got {text}.")
    return int(text)


def settings_of_job(topology_s, recovers):
    """What they say to a worker, as Tessera's own variables, and what has no effect, a sentence each. topology_s: for how long the members of the job
    wait for one another. RuntimeError for a value that makes no sense."""
    own, idle = {"TESSERA_JOIN_TIMEOUT_MS": str(1000 * topology_s)}, []
    way = os.environ.get("MS_COMM_TYPE", "")
    if way and way not in _WAYS:
        raise RuntimeError(f"The MS_COMM_TYPE must be {', '.join(_WAYS[:-1])} or {_WAYS[-1]}, but got {way}.")
    if way == "ibverbs":
        idle.append("MS_COMM_TYPE=ibverbs has no effect: processes talk by TCP, encrypted; TESSERA_TRANSPORT says what carries tensors between hosts")
    if tries := os.environ.get("MS_CLUSTER_RETRY_NUM", ""):
        seconds = _SECONDS_OF_A_TRY * number("MS_CLUSTER_RETRY_NUM", tries, 1, _MOST_SECONDS // _SECONDS_OF_A_TRY)
        if seconds < topology_s:
            idle.append(f"MS_CLUSTER_RETRY_NUM={tries} has no effect: a worker looks for the scheduler and for the others for {topology_s} s, longer than "
                        f"{tries} times {_SECONDS_OF_A_TRY} s; MS_TOPO_TIMEOUT says for how many seconds")
        own["TESSERA_JOIN_TIMEOUT_MS"] = str(1000 * max(seconds, topology_s))
    if wait := os.environ.get("MS_RECEIVE_MSG_TIMEOUT", ""):
        seconds = number("MS_RECEIVE_MSG_TIMEOUT", wait, 1, _MOST_SECONDS)
        if "TESSERA_TIMEOUT_MS" not in os.environ:
            if seconds < _TIMEOUT_S:
                idle.append(f"MS_RECEIVE_MSG_TIMEOUT={wait} has no effect: a rank waits for a message of another one for {_TIMEOUT_S} s; "
                            "TESSERA_TIMEOUT_MS says for how many milliseconds")
            else:
                own["TESSERA_TIMEOUT_MS"] = str(1000 * seconds)
    if interval := os.environ.get("MS_RECOVERY_INTERVAL", ""):
        number("MS_RECOVERY_INTERVAL", interval, 1, _MOST_SECONDS)
        if recovers:
            idle.append(f"MS_RECOVERY_INTERVAL={interval} has no effect: a rank keeps its values as often as takes a hundredth of the training's time; TESSERA_KEEP_STEPS says after how many steps")
    return own, idle


def _has_address(interface):
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            lines = [line.split() for line in file]
        if any(name == interface and scope != _OF_ITS_LINK for _, _, _, scope, _, name in lines):
            return True
    except OSError:
        pass  # there is no IPv6
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            fcntl.ioctl(asked, 0x8915, struct.pack("256s", interface.encode()[:15]))  # SIOCGIFADDR
        except OSError:
            return False
    return True


def _interface(name, text, is_exact):
    """The first interface of this host that has an address and that the text means: names, or where not is_exact beginnings of names unless `=` stands
    before them, separated by commas; after `^` those that are not meant."""
    is_left_out = text.startswith("^")
    words = text.removeprefix("^")
    is_exact = is_exact or words.startswith("=")
    words = words.removeprefix("=").split(",")
    if not all(words):
        raise RuntimeError(f"The {name} must be names of network interfaces, separated by commas, but got {text}.")
    own = [interface for _, interface in socket.if_nameindex()]

    def is_named(interface, word):
        return interface == word if is_exact else interface.startswith(word)

    if is_left_out:
        meant = [interface for interface in own if interface != "lo" and not any(is_named(interface, word) for word in words)]
    else:
        meant = [interface for word in words for interface in own if is_named(interface, word)]
    for interface in meant:
        if _has_address(interface):
            return interface
    raise RuntimeError(f"The {name} must be a network interface of this host that has an address, but got {text}; this host has {', '.join(own)}.")


def listen_at_named_interface():
    """Where the rank listens for the others: Tessera's own variable, else the first of the others' that is set. RuntimeError where it names no
    interface of this host."""
    if os.environ.get("TESSERA_INTERFACE"):
        return
    if text := os.environ.get("NCCL_SOCKET_IFNAME"):
        os.environ["TESSERA_INTERFACE"] = _interface("NCCL_SOCKET_IFNAME", text, is_exact=False)
    elif text := os.environ.get("GLOO_SOCKET_IFNAME"):
        os.environ["TESSERA_INTERFACE"] = _interface("GLOO_SOCKET_IFNAME", text, is_exact=True)
