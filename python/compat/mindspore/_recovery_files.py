"""The files of MS_RECOVERY_PATH that say where a job's own are: config.json, and ROLE_RANK_persistent.json of each worker, as jobs of the reference
have them. What stands in them already stays."""
import contextlib
import json
import os
import sys

import tessera

from mindspore import _parameter_server

_KEY = "ckpt_path"
_directory = []  # of the newest ModelCheckpoint
_written = []  # by this process


@contextlib.contextmanager
def _told_as_of(path, doing):
    """An OSError becomes tessera's, which says what could not be done with the path, and the way out."""
    try:
        yield
    except OSError as error:
        raise tessera.IoError(f"{path}: cannot {doing}: {error.strerror or error}; MS_RECOVERY_PATH must name a folder that all processes of the job may read "
                              "and write, on a disk with room: mend that, or name another folder in all of them") from error


def _write(path, value, what):
    own = f"{path}.{os.getpid()}"
    with _told_as_of(path, f"write {what}"):
        try:
            with open(own, "w", encoding="utf-8") as file:
                json.dump(value, file)
            os.replace(own, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.remove(own)
            raise


def make_recovery_folder(path):
    """The folder, and in it config.json where there is none. IoError where it cannot be made."""
    with _told_as_of(path, "make the folder of a job that recovers"):
        os.makedirs(path, exist_ok=True)
    config = os.path.join(path, "config.json")
    if not os.path.exists(config):
        storage = {"storage_type": 1, "storage_file_path": os.path.join(path, "storage_file_path.json"),
                   "scheduler_storage_file_path": os.path.join(path, "scheduler_storage_file_path.json")}
        _write(config, {"recovery": storage}, "where the job's own files are")


def remember_checkpoints(directory):
    """In a worker of a job that recovers: writes where its checkpoints are, now or once it has joined its job. Says so where they were elsewhere in an
    earlier process."""
    _directory[:] = [directory]
    if tessera.cluster.is_initialized():
        remember_after_join()


def remember_after_join():
    """Writes what remember_checkpoints() was told before the rank was known."""
    folder, role = os.environ.get("MS_RECOVERY_PATH"), os.environ.get("MS_ROLE")
    if not _directory or not folder or not role or os.environ.get("MS_ENABLE_RECOVERY") != "1":
        return
    path = os.path.join(folder, f"{role}_{_parameter_server.own_rank()}_persistent.json")
    with _told_as_of(path, "read where this rank's checkpoints are"):
        known = _read(path)
    now = os.path.realpath(_directory[0])
    if known is None:
        print(f"[WARNING] {path} is no JSON object: it stays as it is, and does not say that checkpoints are in {now}; remove it where nobody needs it",
              file=sys.stderr, flush=True)
        return
    before = known.get(_KEY, now)
    if before != now and before not in _written:
        print(f"[WARNING] checkpoints of this rank were in {before}, as {path} says, and are in {now} now: a training goes on after those that are there; "
              "for the others give ModelCheckpoint the folder from before", file=sys.stderr, flush=True)
    if known.get(_KEY) != now:
        _write(path, known | {_KEY: now}, f"that this rank's checkpoints are in {now}")
    _written.append(now)


def _read(path):
    """The object that stands there, {} where there is no file; None where it is none."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):  # the latter for what is nested too deep
        return None
    return value if isinstance(value, dict) else None
