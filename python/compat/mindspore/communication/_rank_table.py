"""Rank tables: which rank is which device of which server. Two formats, with "server_list" and, older, "group_list"."""
import hashlib
import json
import os
import re
from collections import namedtuple

from mindspore import context

Place = namedtuple("Place", "rank device address server")
# A table's places, its faults, and what is worth a warning.
Table = namedtuple("Table", "places is_old faults notes")

# A port for ranks of several servers, where none is given.
_FIRST_PORT, _NUM_PORTS = 20000, 10000
_DEVICES_OF_A_RING = 4


def _json(text):
    """The value, and whether trailing commas or comments had to be left out."""
    clean = re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*', lambda match: match.group(1) or "", text)
    clean = re.sub(r",(\s*[\]}])", r"\1", clean)
    return json.loads(clean), clean != text


def _expect(faults, what, stated, found):
    """A number that the table states beside what can be counted; tables may leave it out."""
    if stated is not None and int(stated) != found:
        faults.append(f"{what} is {stated}, but there are {found}")


def _expect_unique(faults, what, values):
    repeated = sorted({value for value in values if values.count(value) > 1})
    if repeated:
        faults.append(f"{what} must be unique, but {', '.join(map(str, repeated))} is there more than once")


def _new_format(table, faults):
    servers = table["server_list"]
    if table.get("version", "1.0") != "1.0":
        faults.append(f"version must be 1.0, but it is {table['version']}")
    _expect(faults, "server_count", table.get("server_count"), len(servers))
    _expect_unique(faults, "server_id", [server["server_id"] for server in servers])
    places = [Place(int(device["rank_id"]), str(device["device_id"]), device.get("device_ip"), server["server_id"])
              for server in servers for device in server["device"]]
    by_rank = [place.server for place in sorted(places)]
    if by_rank != sorted(by_rank):
        faults.append("the ranks of several servers must be in the order of their server_id")
    return places


def _old_format(table, faults):
    _expect(faults, "group_count", table.get("group_count"), len(table["group_list"]))
    places = []
    for group in table["group_list"]:
        instances = group["instance_list"]
        for what, stated in (("device_num", group.get("device_num")), ("instance_count", group.get("instance_count")),
                             ("para_plane_nic_num", table.get("para_plane_nic_num"))):
            _expect(faults, what, stated, len(instances))
        _expect(faults, "server_num", group.get("server_num"), len({instance["server_id"] for instance in instances}))
        places += [Place(int(instance["rank_id"]), str(device["device_id"]), device.get("device_ip"), instance["server_id"])
                   for instance in instances for device in instance["devices"]]
    return places


def _limits_of_other_devices(places):
    """What the devices that such tables are made for cannot do; here nothing depends on it."""
    servers = {place.server for place in places}
    if len(servers) > 1:
        if len(places) % 8:
            yield f"{len(places)} devices on {len(servers)} servers: the devices that the table names work in eights"
    elif len(places) not in (1, 2, 4, 8):
        yield f"{len(places)} devices on one server: the devices that the table names work as 1, 2, 4 or 8"
    elif len(places) < 8 and len({int(place.device) // _DEVICES_OF_A_RING for place in places if place.device.isdigit()}) > 1:
        yield "devices 0 to 3 and 4 to 7 are rings of their own; the table takes devices of both"


def read_table(path, text):
    """The table in the text of the file `path`. RuntimeError where it is none."""
    faults, notes = [], []
    try:
        table, was_repaired = _json(text)
        is_old = "server_list" not in table
        places = _old_format(table, faults) if is_old else _new_format(table, faults)
    except (ValueError, KeyError, TypeError) as error:
        raise RuntimeError(f"{path} is no rank table: {type(error).__name__}: {error}") from None
    if table.get("status", "completed") != "completed":
        faults.append(f"status must be completed, but it is {table['status']}")
    if sorted(place.rank for place in places) != list(range(len(places))):
        faults.append(f"the ranks must be 0 to {len(places) - 1}, but they are {sorted(place.rank for place in places)}")
    _expect_unique(faults, "device_id within a server", [f"{place.server}/{place.device}" for place in places])
    _expect_unique(faults, "device_ip", [place.address for place in places if place.address is not None])
    if was_repaired:
        notes.append("trailing commas and // comments are no JSON; they were left out")
    if not faults:
        notes += _limits_of_other_devices(places)
    return Table(places, is_old, faults, notes)


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
        with open(path, encoding="utf-8") as file:
            return path, file.read()
    except OSError as error:
        raise RuntimeError(f"Get hccl rank_table_file failed: {path}: {error.strerror}") from None


def place_of_this_process(path):
    """The variables that tell tessera its rank and where the ranks meet: on one server at a local name made of the table,
    the user and the process that started the ranks; on several at the server of rank 0, TESSERA_PORT or one made of
    the table. RANK_ID, too, is set then."""
    path, text = _read(path)
    table = read_table(path, text)
    if table.faults:
        raise RuntimeError(f"{path} is no usable rank table: " + "; ".join(table.faults))
    own = _own_place(path, table)
    os.environ.setdefault("RANK_ID", str(own.rank))
    for note in table.notes:
        context.warn_once(f"{path}: {note}")
    if len({place.server for place in table.places}) == 1:
        job = hashlib.sha256(f"{text}|{os.getuid()}|{os.getppid()}".encode()).hexdigest()[:24]
        store = f"unix:tessera-{job}"
    else:
        job = hashlib.sha256(text.encode()).hexdigest()[:24]
        server = next(place.server for place in table.places if place.rank == 0)
        store = f"tcp:{server}:{os.environ.get('TESSERA_PORT') or _FIRST_PORT + int(job, 16) % _NUM_PORTS}"
    return {"TESSERA_RANK": str(own.rank), "TESSERA_SIZE": str(len(table.places)), "TESSERA_STORE": store,
            "TESSERA_JOB_ID": f"rank table {job}"}
