"""Rank tables: which rank is which device of which server. Two formats, with "server_list" and, older, "group_list".
Anyone may have written them: nothing is taken for what it should be before it was looked at. Imports nothing of ours."""
import json
import re
from collections import Counter, namedtuple

Place = namedtuple("Place", "rank device address server")
# A table's places, its faults, and what is worth a warning.
Table = namedtuple("Table", "places is_old faults notes")

_DEVICES_OF_A_RING = 4


def _json(text):
    """The value, and whether trailing commas or comments had to be left out."""
    clean = re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*', lambda match: match.group(1) or "", text)
    clean = re.sub(r",(\s*[\]}])", r"\1", clean)
    return json.loads(clean), clean != text


def _fail(expected, value):
    raise ValueError(f"{expected} must stand where {repr(value)[:80]} does")


def _number(value):
    """Tables write numbers as such or as texts."""
    if not re.fullmatch("[0-9]{1,9}", value if isinstance(value, str) else repr(value)):
        _fail("a number", value)
    return int(value)


def _text(value):
    if not isinstance(value, str):
        _fail("a text", value)
    return value


def _server(value):
    """The name or address of a host; it becomes part of an address, and of a variable of the environment."""
    if not re.fullmatch(r"[A-Za-z0-9_.:*%\[\]-]+", _text(value)):
        _fail("a server's name or address", value)
    return value


def _list(table, name):
    if not isinstance(table[name], list):
        _fail(f"the list {name}", table[name])
    return table[name]


def _place(holder_of_rank, device, server):
    rank, number = _number(holder_of_rank["rank_id"]), _number(device["device_id"])
    address = device.get("device_ip")
    return Place(rank, str(number), None if address is None else _text(address), server)


def _expect(faults, what, stated, found):
    """A number that the table states beside what can be counted; tables may leave it out."""
    if stated is not None and _number(stated) != found:
        faults.append(f"{what} is {stated}, but there are {found}")


def _expect_unique(faults, what, values):
    repeated = sorted(value for value, times in Counter(values).items() if times > 1)
    if repeated:
        faults.append(f"{what} must be unique, but {', '.join(repeated)} is there more than once")


def _new_format(table, faults):
    servers = _list(table, "server_list")
    if table.get("version", "1.0") != "1.0":
        faults.append(f"version must be 1.0, but it is {table['version']}")
    _expect(faults, "server_count", table.get("server_count"), len(servers))
    _expect_unique(faults, "server_id", [_server(server["server_id"]) for server in servers])
    places = [_place(device, device, server["server_id"]) for server in servers for device in _list(server, "device")]
    by_rank = [place.server for place in sorted(places, key=lambda place: place.rank)]
    if by_rank != sorted(by_rank):
        faults.append("the ranks of several servers must be in the order of their server_id")
    return places


def _old_format(table, faults):
    groups = _list(table, "group_list")
    _expect(faults, "group_count", table.get("group_count"), len(groups))
    places = []
    for group in groups:
        instances = _list(group, "instance_list")
        for what, stated in (("device_num", group.get("device_num")), ("instance_count", group.get("instance_count")),
                             ("para_plane_nic_num", table.get("para_plane_nic_num"))):
            _expect(faults, what, stated, len(instances))
        _expect(faults, "server_num", group.get("server_num"), len({_server(instance["server_id"]) for instance in instances}))
        places += [_place(instance, device, instance["server_id"]) for instance in instances for device in _list(instance, "devices")]
    return places


def _limits_of_other_devices(places):
    """What the devices that such tables are made for cannot do; here nothing depends on it."""
    servers = {place.server for place in places}
    if len(servers) > 1:
        if len(places) % 8:
            yield f"{len(places)} devices on {len(servers)} servers: the devices that the table names work in eights"
    elif len(places) not in (1, 2, 4, 8):
        yield f"{len(places)} devices on one server: the devices that the table names work as 1, 2, 4 or 8"
    elif len(places) < 8 and len({int(place.device) // _DEVICES_OF_A_RING for place in places}) > 1:
        yield "devices 0 to 3 and 4 to 7 are rings of their own; the table takes devices of both"


def read_table(path, content):
    """The table in the content of the file `path`, a text or its bytes in UTF-8. RuntimeError where it is none."""
    faults, notes = [], []
    try:
        table, was_repaired = _json(content if isinstance(content, str) else content.decode())
        is_old = "server_list" not in table
        places = _old_format(table, faults) if is_old else _new_format(table, faults)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RuntimeError(f"{path} is no rank table: {type(error).__name__}: {error}") from None
    if table.get("status", "completed") != "completed":
        faults.append(f"status must be completed, but it is {table['status']}")
    ranks = sorted(place.rank for place in places)
    if not ranks:
        faults.append("there are no ranks")
    elif ranks != list(range(len(ranks))):
        faults.append(f"the ranks must be 0 to {len(ranks) - 1}, but they are {ranks}")
    _expect_unique(faults, "device_id within a server", [f"{place.server}/{place.device}" for place in places])
    _expect_unique(faults, "device_ip", [place.address for place in places if place.address is not None])
    if was_repaired:
        notes.append("trailing commas and // comments are no JSON; they were left out")
    if not faults:
        notes += _limits_of_other_devices(places)
    return Table(places, is_old, faults, notes)
