"""How this process leaves its job: the other ranks wait for its end, or learn of its failure at once."""
import atexit
import os
import sys

from tessera import cluster

_failure = ""


def _note_failure(kind, value, traceback):
    global _failure
    _failure = f"{kind.__name__}: {value}"
    _previous_hook(kind, value, traceback)


def _leave():
    if not cluster.is_initialized():
        return
    try:
        cluster.leave(_failure)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(1)  # a peer has failed: so has the job


_previous_hook, sys.excepthook = sys.excepthook, _note_failure
atexit.register(_leave)
