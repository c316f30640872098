"""This process's place in a job whose ranks a rank table lists."""
import hashlib
import hmac
import os
import re
import secrets
import socket
import stat

from mindspore import context
from mindspore.communication._rank_table import read_table

# A port for ranks of several servers, where none is given.
_FIRST_PORT, _NUM_PORTS = 20000, 10000
# A table of all ranks that a job may have is a tenth of this.
_MOST_BYTES = 16 << 20


def _number_in(name):
    """What the variable says; None where it is not set."""
    text = os.environ.get(name)
    if text is not None and not re.fullmatch("[0-9]{1,9}", text):
        raise RuntimeError(f"{name} must be a number from 0 on, but it is {text[:80]!r}")
    return None if text is None else int(text)


def _ranks(table):
    return f"{len(table.places)} rank{'s' if len(table.places) != 1 else ''}"


def _own_place(path, table):
    """This process's place, by RANK_ID or, in the older format, by DEVICE_ID."""
    rank, size, device = _number_in("RANK_ID"), _number_in("RANK_SIZE"), os.environ.get("DEVICE_ID")
    if size is not None and size != len(table.places):
        raise RuntimeError(f"RANK_SIZE is {size}, but {path} has {_ranks(table)}")
    if rank is None and table.is_old and device is not None:
        found = [place for place in table.places if place.device == device]
        if len(found) != 1:
            raise RuntimeError(f"DEVICE_ID {device} is {len(found)} times in {path}: export RANK_ID")
        return found[0]
    if rank is None:
        raise RuntimeError("Environment variables RANK_ID has not been exported, please export variables 'RANK_ID'.")
    found = next((place for place in table.places if place.rank == rank), None)
    if found is None:
        raise RuntimeError(f"RANK_ID {rank} is not in {path}, which has {_ranks(table)}")
    if device is not None and device != found.device:
        table.notes.append(f"DEVICE_ID is {device}, but rank {rank} is device {found.device} there")
    return found


def _read(path):
    if not os.path.exists(path) and not os.path.isabs(path) and os.path.exists(os.path.join("..", path)):
        path = os.path.join("..", path)  # run scripts change the directory before they start a rank
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe must not keep us waiting
        try:
            content = _read_whole(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RuntimeError(f"Get hccl rank_table_file failed: {path}: {error.strerror}") from None
    if content is None:
        raise RuntimeError(f"Get hccl rank_table_file failed: {path}: no regular file of at most {_MOST_BYTES} bytes")
    return path, content


def _read_whole(descriptor):
    """A file's bytes; None of what is none, or longer than any table."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    content = b""
    while (part := os.read(descriptor, 1 << 20)) and len(content) <= _MOST_BYTES:
        content += part
    return content if len(content) <= _MOST_BYTES else None


def _key_of_user():
    """Random bytes that this user's processes on this server share: of a file that nobody else reads, made where there is none.
    Without a place for it, none: then others can guess where ranks meet, and keep them from it, but not join them."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.join(cache, "tessera", "meeting_key")
    try:
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            own = f"{path}.{secrets.token_hex(8)}"
            with open(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
            try:
                os.link(own, path)  # of ranks that start together one is the first
            except FileExistsError:
                pass
            os.unlink(own)
        return _read_own(path)
    except OSError:
        return b""


def _read_own(path):
    """A file's bytes; none, with a warning, where it is not one that this user alone may read. A pipe is not waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077:
            return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
    context.warn_once(f"{path} is no file that only this user may read, and is not used: others can guess where ranks meet, and keep them from it; "
                      "remove it, and it is made anew")
    return b""


def _is_here(server):
    """Whether the server is an address of this machine."""
    try:
        family, kind, _, _, where = socket.getaddrinfo(server, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(where)
        return True
    except (OSError, UnicodeError):  # a name that no host has
        return False


def place_of_this_process(path):
    """The variables that tell tessera its rank and where the ranks meet: on one server at a local name made of the table,
    the user and the process that started the ranks, at which only this user's processes meet; on several at the server
    of rank 0, TESSERA_PORT or one made of the table, with the secret that TESSERA_SECRET_FILE or the file TABLE.secret
    holds. Without one, servers that are all addresses of this machine meet at a local name, too. RANK_ID is set then."""
    path, content = _read(path)
    table = read_table(path, content)
    if table.faults:
        raise RuntimeError(f"{path} is no usable rank table: " + "; ".join(table.faults))
    own = _own_place(path, table)
    os.environ.setdefault("RANK_ID", str(own.rank))
    for note in table.notes:
        context.warn_once(f"{path}: {note}")
    variables = {"TESSERA_RANK": str(own.rank), "TESSERA_SIZE": str(len(table.places))}
    servers = {place.server for place in table.places}
    secret = f"{path}.secret"
    has_secret = "TESSERA_SECRET_FILE" in os.environ or os.path.exists(secret)
    if len(servers) == 1 or not has_secret and all(map(_is_here, servers)):
        # Who starts the ranks of one server tells jobs apart.
        starter = os.getppid() if len(servers) == 1 else 0
        job = hmac.new(_key_of_user(), content + f"|{os.getuid()}|{starter}".encode(), hashlib.sha256).hexdigest()[:24]
        return variables | {"TESSERA_STORE": f"unix:tessera-{job}", "TESSERA_JOB_ID": f"rank table {job}"}
    if not has_secret:
        raise RuntimeError(f"{path} lists ranks of several servers, which meet over the network and need a secret, so that nobody else "
                           f"joins: make it once, (umask 077; head -c 32 /dev/urandom > {secret}), copy it to all servers as you copied "
                           "the table, or name another file by TESSERA_SECRET_FILE")
    if "TESSERA_SECRET_FILE" not in os.environ:
        variables["TESSERA_SECRET_FILE"] = secret
    job = hashlib.sha256(content).hexdigest()[:24]
    server = next(place.server for place in table.places if place.rank == 0)
    store = f"tcp:{server}:{os.environ.get('TESSERA_PORT') or _FIRST_PORT + int(job, 16) % _NUM_PORTS}"
    return variables | {"TESSERA_STORE": store, "TESSERA_JOB_ID": f"rank table {job}"}
