"""Rank tables: which rank is which device of which server. Two formats, with "server_list" and, older, "group_list"."""
import hashlib
import json
import os
import re
from collections import namedtuple

from mindspore import context

Place = namedtuple("Place", "rank device server")
# A port for ranks of several servers, where none is given.
_FIRST_PORT, _NUM_PORTS = 20000, 10000


def _parse(path, text):
    clean = re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*', lambda match: match.group(1) or "", text)
    clean = re.sub(r",(\s*[\]}])", r"\1", clean)
    if clean != text:
        context.warn_once(f"{path}: trailing commas and // comments are no JSON; they were left out")
    try:
        table = json.loads(clean)
        if "server_list" in table:
            return False, [Place(int(device["rank_id"]), device["device_id"], server["server_id"])
                           for server in table["server_list"] for device in server["device"]]
        return True, [Place(int(instance["rank_id"]), device["device_id"], instance["server_id"])
                      for group in table["group_list"] for instance in group["instance_list"] for device in instance["devices"]]
    except (ValueError, KeyError, TypeError) as error:
        raise RuntimeError(f"{path} is no rank table: {type(error).__name__}: {error}") from None


def _own_rank(places, is_old):
    rank = os.environ.get("RANK_ID")
    # Scripts of the older format say which device they are.
    if rank is None and is_old and "DEVICE_ID" in os.environ:
        rank = next((place.rank for place in places if place.device == os.environ["DEVICE_ID"]), None)
    if rank is None:
        raise RuntimeError("Environment variables RANK_ID has not been exported, please export variables 'RANK_ID'.")
    return int(rank)


def place_of_this_process(path):
    """The variables that tell tessera its rank and where the ranks meet: on one server at a local name made of the table,
    the user and the process that started the ranks; on several at the server of rank 0, TESSERA_PORT or one made of
    the table."""
    if not os.path.exists(path) and not os.path.isabs(path) and os.path.exists(os.path.join("..", path)):
        path = os.path.join("..", path)  # run scripts change the directory before they start a rank
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise RuntimeError(f"Get hccl rank_table_file failed: {path}: {error.strerror}") from None
    is_old, places = _parse(path, text)
    rank = _own_rank(places, is_old)
    if sorted(place.rank for place in places) != list(range(len(places))):
        raise RuntimeError(f"{path}: the ranks must be 0 to {len(places) - 1}, but they are {sorted(place.rank for place in places)}")
    if not 0 <= rank < len(places):
        raise RuntimeError(f"RANK_ID {rank} is not in {path}, which has {len(places)} ranks")
    if len({place.server for place in places}) == 1:
        job = hashlib.sha256(f"{text}|{os.getuid()}|{os.getppid()}".encode()).hexdigest()[:24]
        store = f"unix:tessera-{job}"
    else:
        job = hashlib.sha256(text.encode()).hexdigest()[:24]
        server = next(place.server for place in places if place.rank == 0)
        store = f"tcp:{server}:{os.environ.get('TESSERA_PORT') or _FIRST_PORT + int(job, 16) % _NUM_PORTS}"
    return {"TESSERA_RANK": str(rank), "TESSERA_SIZE": str(len(places)), "TESSERA_STORE": store,
            "TESSERA_JOB_ID": f"rank table {job}"}
