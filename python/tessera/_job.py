"""How this process leaves its job: it stops threads that compute and finishes the saves that are under way; then an exception ends the other ranks with its words,
before anything else is done at exit. What else a process ends with, the code of sys.exit() included, no hook of Python's hears:
python/src/tracing.cc."""
import atexit
import os
import sys
import threading

from tessera import _tessera, cluster

_failure = ""
_failed_rank = None


def _note_failure(kind, value, traceback):
    global _failure, _failed_rank
    words = str(value)
    _failure, _failed_rank = f"{kind.__name__}: {words}" if words else kind.__name__, getattr(value, "failed_rank", None)
    _tessera.cluster._note_left(traceback)
    if issubclass(kind, _tessera.UsageError):
        _tessera.cluster._fail_as_usage()
    _previous_hook(kind, value, traceback)
    if cluster.is_initialized() and os.getpid() == _process:
        threading.Thread(target=_leave_late, daemon=True).start()


def _leave_late():
    """The other ranks do not wait for what this script does at exit, such as threads of its own that go on."""
    if not _ends.wait(_LATE_S):
        _leave()


def finish_saves(finish):
    """Calls finish(), which waits for saves that are under way as the process ends: what it raises is the process's failure."""
    global _failure, _failed_rank
    try:
        finish()
    except Exception as error:
        words = f"{type(error).__name__}: a checkpoint was not saved before the process ended: {error}"
        print(words, file=sys.stderr, flush=True)
        _tessera.cluster._fail_end()
        if not _failure:
            _failure, _failed_rank = words, getattr(error, "failed_rank", None)


def _flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # None, broken or closed
            pass


def _leave():
    with _leaving:
        if _failure and cluster.is_initialized():
            _flush()  # once a job has failed its launcher may end this process at any time
            cluster.leave(_failure, _failed_rank)
            _tessera._leave_with_all_models()


def _timeout_ms():
    """TESSERA_TIMEOUT_MS as it is now: a script of the package mindspore sets it when it joins its job, by MS_RECEIVE_MSG_TIMEOUT."""
    text = os.environ.get("TESSERA_TIMEOUT_MS", "")
    return int(text) if text.isdecimal() and len(text) < 10 else 30000


def _end():
    _ends.set()
    is_child = os.getpid() != _process
    timeout_ms = _timeout_ms()
    stopped = is_child or _tessera._end_threads(timeout_ms)
    if stopped and not is_child:
        _tessera._stop_batches()
        _say_unused_options()
    finish_saves(_tessera._finish_all_saves)
    if not stopped:
        # Python would end the thread in C++, which ends the process by SIGABRT.
        print(f"a thread still computes {timeout_ms} ms after the script has ended: join threads before the end", file=sys.stderr, flush=True)
    _leave()
    if stopped and not is_child and not _failure:
        _tessera._leave_with_all_models()
    if not stopped:
        _flush()
        os._exit(1)


# Which say that a process is a rank, and which one.
_PLACE = ("TESSERA_RANK", "TESSERA_NODE_ID", "OMPI_COMM_WORLD_RANK", "RANK_ID", "SLURM_PROCID")
_place_of_parent = ()


def _place():
    return tuple(os.environ.get(name) for name in _PLACE)


def _note_fork():
    global _place_of_parent
    _place_of_parent = _place()
    _tessera._begin_child()


def has_place_of_parent():
    """Whether this process is a child, by fork(), of one that is the rank that this one would join as."""
    return any(_place_of_parent) and _place() == _place_of_parent


# The number of the process that has joined as the launcher's rank: those that it starts find it in their environment, too.
_RANK_PROCESS = "TESSERA_RANK_PROCESS"


def is_rank_of_launcher():
    """Whether `tessera run` has started this process as a rank, or a program that it has started; no child of a rank, which has the same variables."""
    if not os.environ.get("TESSERA_STATUS_FILE") or os.getpid() != _process:
        return False
    multiprocessing = sys.modules.get("multiprocessing.process")  # which a child that it has started has loaded
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        return False
    return os.environ.get(_RANK_PROCESS, str(_process)) == str(_process)


def note_joined():
    """This process has joined its job: what it starts from now on is no rank of the launcher's."""
    if os.environ.get("TESSERA_STATUS_FILE"):
        os.environ[_RANK_PROCESS] = str(os.getpid())


# What a launcher was asked for, by the variables that tell its ranks of it.
_OPTIONS = {"TESSERA_FIGURES_FILE": "--dashboard", "TESSERA_TRACE": "--trace"}


def _say_unused_options():
    """Says, by the first rank, what its launcher was asked for in vain where it has computed and has not joined its job."""
    unused = [option for variable, option in _OPTIONS.items() if os.environ.get(variable)]
    has_joined_none = not cluster.is_initialized() and is_rank_of_launcher() and _tessera.nn.num_compiled() > 0
    if unused and has_joined_none and os.environ.get("TESSERA_RANK", "0") == "0" and not _failure:
        print(f"{', '.join(unused)} of tessera run {'have' if len(unused) > 1 else 'has'} no effect on a script that does not join its job: call "
              "tessera.cluster.init() (in the package mindspore communication.init()) at its beginning; a Model does it by itself", file=sys.stderr, flush=True)


os.register_at_fork(after_in_child=_note_fork)
_process = os.getpid()
_ends, _leaving = threading.Event(), threading.Lock()
_LATE_S = 3
_previous_hook, sys.excepthook = sys.excepthook, _note_failure
atexit.register(_end)
