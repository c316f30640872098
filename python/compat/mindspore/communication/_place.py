"""This process's place in a job whose ranks a rank table lists."""
import hashlib
import os

from mindspore import context
from mindspore.communication._rank_table import read_table

# A port for ranks of several servers, where none is given.
_FIRST_PORT, _NUM_PORTS = 20000, 10000


def _own_place(path, table):
    """This process's place, by RANK_ID or, in the older format, by DEVICE_ID."""
    rank, device, size = (os.environ.get(name) for name in ("RANK_ID", "DEVICE_ID", "RANK_SIZE"))
    if size is not None and int(size) != len(table.places):
        raise RuntimeError(f"RANK_SIZE is {size}, but {path} has {len(table.places)} ranks")
    if rank is None and table.is_old and device is not None:
        found = [place for place in table.places if place.device == device]
        if len(found) != 1:
            raise RuntimeError(f"DEVICE_ID {device} is {len(found)} times in {path}: export RANK_ID")
        return found[0]
    if rank is None:
        raise RuntimeError("Environment variables RANK_ID has not been exported, please export variables 'RANK_ID'.")
    found = next((place for place in table.places if place.rank == int(rank)), None)
    if found is None:
        raise RuntimeError(f"RANK_ID {rank} is not in {path}, which has {len(table.places)} ranks")
    if device is not None and device != found.device:
        table.notes.append(f"DEVICE_ID is {device}, but rank {rank} is device {found.device} there")
    return found


def _read(path):
    if not os.path.exists(path) and not os.path.isabs(path) and os.path.exists(os.path.join("..", path)):
        path = os.path.join("..", path)  # run scripts change the directory before they start a rank
    try:
        with open(path, "rb") as file:
            return path, file.read()
    except OSError as error:
        raise RuntimeError(f"Get hccl rank_table_file failed: {path}: {error.strerror}") from None


def place_of_this_process(path):
    """The variables that tell tessera its rank and where the ranks meet: on one server at a local name made of the table,
    the user and the process that started the ranks; on several at the server of rank 0, TESSERA_PORT or one made of
    the table. RANK_ID, too, is set then."""
    path, content = _read(path)
    table = read_table(path, content)
    if table.faults:
        raise RuntimeError(f"{path} is no usable rank table: " + "; ".join(table.faults))
    own = _own_place(path, table)
    os.environ.setdefault("RANK_ID", str(own.rank))
    for note in table.notes:
        context.warn_once(f"{path}: {note}")
    if len({place.server for place in table.places}) == 1:
        job = hashlib.sha256(content + f"|{os.getuid()}|{os.getppid()}".encode()).hexdigest()[:24]
        store = f"unix:tessera-{job}"
    else:
        job = hashlib.sha256(content).hexdigest()[:24]
        server = next(place.server for place in table.places if place.rank == 0)
        store = f"tcp:{server}:{os.environ.get('TESSERA_PORT') or _FIRST_PORT + int(job, 16) % _NUM_PORTS}"
    return {"TESSERA_RANK": str(own.rank), "TESSERA_SIZE": str(len(table.places)), "TESSERA_STORE": store,
            "TESSERA_JOB_ID": f"rank table {job}"}
