#!/usr/bin/env python3
"""Gives the reader of rank tables damaged ones, as the program `fuzz` does for the parsers of the library: each is refused by
the one error that says so, names its faults, or prints and reads back equal, in 0.1 s and no more than 16 MiB for all of
them. Execution number N of a seed is always the same bytes, so what fails is repeated by --only N.
    tests/fuzz/rank_table.py --executions 100000 --seed 1
"""
import argparse
import importlib.util
import json
import os
import random
import resource
import sys
import time
from pathlib import Path

SAMPLE, FULL = 100_000, 10_000_000
MAX_MEMORY_KIB, MAX_SECONDS = 16 << 10, 0.1
MOST_TRIES = 8  # of what takes longer: the fastest time counts
FAILURES_SHOWN = 5
READER = Path(__file__).resolve().parents[2] / "python/compat/mindspore/communication/_rank_table.py"

NEW = {"version": "1.0", "server_count": "2", "status": "completed", "server_list": [
    {"server_id": f"10.0.0.{server}", "host_nic_ip": "reserve", "device": [
        {"device_id": str(device), "device_ip": f"192.{server}.27.{device}", "rank_id": str(2 * server + device)} for device in range(2)]}
    for server in range(2)]}
OLD = {"board_id": "0x0000", "group_count": "1", "para_plane_nic_num": "2", "status": "completed", "group_list": [
    {"device_num": "2", "server_num": "1", "group_name": "", "instance_count": "2", "instance_list": [
        {"devices": [{"device_id": str(i), "device_ip": f"192.1.27.{i}"}], "rank_id": str(i), "server_id": "10.0.0.1"} for i in range(2)]}]}
EXAMPLES = (NEW, OLD)

# At which readers go wrong.
NUMBERS = (0, 1, -1, 2, 3, 1.5, -0.0, 1e308, float("inf"), float("nan"), 10**9, 2**31, 2**63, 2**64, 10**30, "0", "1", "01", " 1", "1_0", "²", "١",
           "9" * 5000)
TEXTS = ("", "/", "..", "a b", "\0", "\ud800", "\x1b[31m", "10.0.0.1", "10.*.*.*", "::1", "a" * 300, "completed", "server_list", "group_list", "{}")
VALUES = NUMBERS + TEXTS + (None, True, False, [], {}, [[]], [{}], {"server_list": []})
PARTS = ("[", "]", "{", "}", ",", ":", '"', "\\", "//", "\n", ",]", "NaN", "Infinity", "[" * 5000, '{"a":' * 5000, "\ufeff")


def load_reader():
    spec = importlib.util.spec_from_file_location("_rank_table", READER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.read_table


def copy(value):
    """Of what JSON can say."""
    if isinstance(value, dict):
        return {key: copy(item) for key, item in value.items()}
    return [copy(item) for item in value] if isinstance(value, list) else value


def holders(value):
    """All objects and lists that hold something, the whole first."""
    found = [value] if value else []
    for holder in found:
        found += [item for item in (holder.values() if isinstance(holder, dict) else holder) if isinstance(item, (dict, list)) and item]
    return found


def edit(table, draws):
    """Changes one place of the tree."""
    places = holders(table)
    if not places:
        return
    holder = draws.choice(places)
    key = draws.choice(list(holder)) if isinstance(holder, dict) else draws.randrange(len(holder))
    other = draws.choice(places)
    match draws.randrange(6):
        case 0:
            del holder[key]
        case 1:
            holder[key] = copy(draws.choice(VALUES))
        case 2:
            holder[key] = draws.choice(NUMBERS)
        case 3:
            holder[key] = copy(other)
        case 4 if isinstance(holder, list):
            holder.insert(draws.randrange(len(holder) + 1), copy(holder[key]))
        case 4:
            holder[draws.choice(TEXTS)] = holder.pop(key)
        case 5 if isinstance(holder, list):
            holder.reverse()
        case 5:
            value = holder[key]
            holder[key] = int(value) if isinstance(value, str) and value in "0123456789" and value else str(value)


def damage(content, draws):
    """Flips, cuts, inserts and repeats bytes."""
    content = bytearray(content)
    for _ in range(1 + draws.randrange(4)):
        at = draws.randrange(len(content) + 1)
        match draws.randrange(4):
            case 0 if at < len(content):
                content[at] ^= 1 << draws.randrange(8)
            case 1:
                del content[at:at + 1 + draws.randrange(8)]
            case 2:
                content[at:at] = draws.choice(PARTS).encode()
            case _:
                content[at:at] = content[draws.randrange(len(content) + 1):][:draws.randrange(40)]
    return bytes(content)


def mutate(draws):
    table = copy(draws.choice(EXAMPLES))
    for _ in range(draws.randrange(4)):
        edit(table, draws)
    text = json.dumps(table, ensure_ascii=draws.randrange(2) == 0)
    if draws.randrange(4) == 0:
        text = text.replace("}]", "},]").replace("{", "{ // a comment\n", 1)
    content = text.encode(errors="surrogatepass")
    return damage(content, draws) if draws.randrange(3) == 0 else content


def printed(table):
    """A table of these places in the format that they had."""
    def device(place):
        return {"device_id": place.device} | ({} if place.address is None else {"device_ip": place.address})

    if table.is_old:
        instances = [{"devices": [device(place)], "rank_id": place.rank, "server_id": place.server} for place in table.places]
        return json.dumps({"group_list": [{"instance_list": instances}]})
    servers = {}
    for place in table.places:
        servers.setdefault(place.server, []).append(device(place) | {"rank_id": str(place.rank)})
    return json.dumps({"server_list": [{"server_id": server, "device": devices} for server, devices in servers.items()]})


def execute(read_table, content):
    """Whether it was a table, and what is wrong, "" where nothing is."""
    good, problem, seconds = execute_once(read_table, content)
    for _ in range(1, MOST_TRIES):
        if seconds <= MAX_SECONDS:
            break
        seconds = min(seconds, execute_once(read_table, content)[2])
    return good, problem or (f"took {seconds:.3f} s" if seconds > MAX_SECONDS else "")


def execute_once(read_table, content):
    start = time.thread_time()
    good, problem = False, ""
    try:
        table = read_table("f", content)
        good = not table.faults
        if good:
            again = read_table("f", printed(table))
            if again.faults or again.places != table.places:
                problem = f"what was read and printed reads as {again}"
            os.environ["TESSERA_STORE"] = f"tcp:{table.places[0].server}:1"  # a variable takes it
    except RuntimeError as error:
        if not str(error).startswith("f is no rank table: "):
            problem = f"{type(error).__name__}: {error}"
    except Exception as error:  # pylint: disable=broad-except
        problem = f"{type(error).__name__}: {error}"
    return good, problem, time.thread_time() - start


def input_of(seed, execution):
    return mutate(random.Random(f"{seed} {execution}"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executions", type=int, default=FULL if os.environ.get("TESSERA_TEST_FULL") == "1" else SAMPLE)
    parser.add_argument("--seed", type=int, default=1, help="other damage")
    parser.add_argument("--only", type=int, help="the execution of this number, its input on standard output")
    options = parser.parse_args()
    read_table = load_reader()
    if options.only is not None:
        content = input_of(options.seed, options.only)
        sys.stdout.buffer.write(content)
        good, problem = execute(read_table, content)
        print(f"\n{len(content)} bytes: {problem or ('parsed' if good else 'refused')}", file=sys.stderr)
        return 1 if problem else 0

    failures = parsed = 0
    for example in EXAMPLES:
        good, problem = execute(read_table, json.dumps(example).encode())
        if not good or problem:
            print(f"fuzz rank_table: an example is refused {problem}")
            failures += 1
    memory = 0
    for i in range(options.executions):
        good, problem = execute(read_table, input_of(options.seed, i))
        parsed += good
        if i == min(1000, options.executions - 1):  # by then everything was there once
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if problem:
            if failures < FAILURES_SHOWN:
                print(f"fuzz rank_table: execution {i}: {problem}")
            failures += 1
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    if grown > MAX_MEMORY_KIB:
        print(f"fuzz rank_table: took {grown} KiB of memory")
        failures += 1
    print(f"{options.executions} cases, {failures} failures: fuzz rank_table, seed {options.seed}, {parsed} parsed", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
