"""A training program for tests, of a scheduler and workers: it checks its environment, the workers meet at the scheduler, which proves
that all know the job's secret, and each works until it is told to end well. Standard library only.

    trainee.py [--work S] [--until FILE] [--fail-once FILE] [--exit CODE] [--show FILE]
"""

import argparse
import hashlib
import hmac
import json
import os
import socket
import stat
import sys
import time


def refuse(what):
    print(f"trainee: {what}", flush=True)
    sys.exit(3)


def secret():
    path = os.environ.get("TESSERA_SECRET_FILE") or os.environ.get("TESSERA_TLS_PASSWORD_FILE")
    if not path:
        refuse("neither a secret nor certificates")
    status = os.stat(path)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077 or not stat.S_ISREG(status.st_mode):
        refuse(f"{path}: mode {status.st_mode:o} of user {status.st_uid}")
    with open(path, "rb") as file:
        return file.read()


def number(name, least=0):
    text = os.environ.get(name, "")
    if not text.isdecimal() or int(text) < least:
        refuse(f"{name} is {text!r}")
    return int(text)


def proof(line):
    return hmac.new(secret(), line.encode(), hashlib.sha256).hexdigest()


def serve(num_ranks):
    """Answers HELLO NODE PROOF with the node's rank, until so many nodes have said BYE."""
    server = socket.create_server((os.environ["MS_SCHED_HOST"], number("MS_SCHED_PORT", 1)))
    server.settimeout(0.1)
    gone = set()
    state = os.environ.get("MS_RECOVERY_PATH")
    if state:
        os.makedirs(state, exist_ok=True)
        state = os.path.join(state, "gone.json")
        if os.path.exists(state):
            gone = set(json.load(open(state)))
    print(f"scheduler of {num_ranks}, {len(gone)} have left", flush=True)
    while len(gone) < num_ranks:
        try:
            peer, _ = server.accept()
        except TimeoutError:
            continue
        try:
            peer.settimeout(5)
            with peer, peer.makefile("rw") as stream:
                word, node, shown = stream.readline().split()
                is_known = hmac.compare_digest(shown, proof(f"{word} {node}"))
                if is_known and word == "BYE":
                    gone.add(node)
                    if state:
                        json.dump(sorted(gone), open(state, "w"))
                stream.write("ok\n" if is_known else "refused\n")
                stream.flush()
        except (OSError, ValueError):  # it was killed amid its words, and comes again
            continue
    print("scheduler: the job has ended", flush=True)


def say(word):
    node = os.environ["MS_NODE_ID"]
    while True:  # a scheduler that is not there yet, or is gone, comes again
        try:
            with socket.create_connection((os.environ["MS_SCHED_HOST"], number("MS_SCHED_PORT", 1)), 5) as peer, peer.makefile("rw") as stream:
                stream.write(f"{word} {node} {proof(f'{word} {node}')}\n")
                stream.flush()
                answer = stream.readline().strip()
                if answer == "ok":
                    return
                if answer:
                    refuse(f"the scheduler says {answer!r}")
        except OSError:
            pass
        time.sleep(0.02)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=float, default=0.0)
    parser.add_argument("--until")
    parser.add_argument("--fail-once")
    parser.add_argument("--exit", type=int, default=0)
    parser.add_argument("--show")
    options = parser.parse_args()
    role, workers, servers = os.environ.get("MS_ROLE"), number("MS_WORKER_NUM", 1), number("MS_SERVER_NUM")
    if options.fail_once and not os.path.exists(options.fail_once):
        open(options.fail_once, "w").close()
        refuse("fails once")
    if role == "MS_SCHED":
        if "TESSERA_SCHEDULER" in os.environ:
            refuse("a scheduler has TESSERA_SCHEDULER")
        serve(workers + servers)
        return options.exit
    if role not in ("MS_WORKER", "MS_PSERVER"):
        refuse(f"MS_ROLE is {role!r}")
    if os.environ["TESSERA_SCHEDULER"] != f"{os.environ['MS_SCHED_HOST']}:{os.environ['MS_SCHED_PORT']}":
        refuse("TESSERA_SCHEDULER is not the scheduler's")
    if os.environ["TESSERA_NODE_ID"] != os.environ["MS_NODE_ID"] or os.environ["TESSERA_NUM_WORKERS"] != str(workers + servers):
        refuse("TESSERA_ variables differ from MS_ variables")
    say("HELLO")
    print(f"{os.environ['MS_NODE_ID']} attempt {os.environ['TESSERA_ATTEMPT']} has met its scheduler", flush=True)
    end = time.monotonic() + options.work
    while time.monotonic() < end or options.until and not os.path.exists(options.until):
        time.sleep(0.02)
    if options.show:
        print("shown: " + open(os.path.expandvars(options.show)).read(), flush=True)
    if options.exit:
        return options.exit
    say("BYE")
    return 0


if __name__ == "__main__":
    sys.exit(main())
