"""The guards of a job that runs on this machine, programs of their own: run by their path, with the standard library alone.

`program`: between the command and a container's program. All that the program starts falls to its guard when its parents end, whatever session it
has (PR_SET_CHILD_SUBREAPER), and ends when the program does, when the command asks for it (SIGUSR1), and when the command is gone, also by SIGKILL.
`folder`: removes the job's folder, which has its secrets, once the command and all guards of programs are gone: they hold the other end of its pipe.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
END_ALL = signal.SIGUSR1
PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
PAUSE_S = 0.01


def children():
    """Of this thread, by their numbers; a process's first thread has those that have fallen to it, too."""
    try:
        return list(map(int, Path("/proc/thread-self/children").read_text().split()))
    except OSError:
        return _children_by_search()


def _children_by_search():
    """Kernels without lists of children: looks at every process there is."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.joinpath("stat").read_bytes().rpartition(b")")[2].split()[1]) == os.getpid():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _kill(pid, number, send=os.kill):
    try:
        send(pid, number)
    except ProcessLookupError:
        pass


def adopt_fallen_processes():
    """From now on those below this process whose parents end become its children."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children(limit_s):
    """A process that is killed leaves its own children to us: only a look that finds none is the last one."""
    end = time.monotonic() + limit_s
    while (found := children()) and time.monotonic() < end:
        for pid in found:
            _kill(pid, signal.SIGKILL)
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass
        time.sleep(PAUSE_S)


class _Guard:
    def __init__(self, parent, program):
        self._parent, self._program, self._status = parent, program, None

    def _note_ended(self):
        """Whether there are children that have not ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._program:
                self._status = status

    def watch(self):
        signals = {signal.SIGCHLD, END_ALL, *PASSED_ON}
        while True:
            number = signal.sigwait(signals)
            if number == signal.SIGCHLD:
                self._note_ended()
                if self._status is not None:
                    return self._end()
            elif number == END_ALL or os.getppid() != self._parent:
                return self._end()
            else:
                _kill(self._program, number, os.killpg)

    def _end(self):
        # A process that is killed leaves its own children to us, and the list may lack one while others end: so until none is left.
        while self._note_ended():
            if self._status is None:
                _kill(self._program, signal.SIGKILL, os.killpg)
            for pid in children():
                _kill(pid, signal.SIGKILL)
            signal.sigtimedwait({signal.SIGCHLD}, PAUSE_S)
        code = os.waitstatus_to_exitcode(self._status)
        return code if code >= 0 else 128 - code


def guard_program(parent, told, held, words):
    """`told`: a pipe in which the number of an error stands where the program cannot be started. `held`: that of the folder's guard."""
    control = ctypes.CDLL(None).prctl
    for descriptor in (told, held):
        os.set_inheritable(descriptor, False)
    control(PR_SET_NAME, b"pod-guard", 0, 0, 0)
    adopt_fallen_processes()
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    control(PR_SET_PDEATHSIG, END_ALL, 0, 0, 0)
    if os.getppid() != parent:
        return 1  # it died before that could be noticed
    guard = os.getpid()
    program = os.fork()
    if program == 0:
        try:
            os.setsid()
            control(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() == guard:
                for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # Python's own ways
                    signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                os.execvp(words[0], words)
        except OSError as failure:
            os.write(told, str(failure.errno).encode())
        finally:
            os._exit(127)
    os.close(told)
    # The program's outputs end with it, not with us.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    return _Guard(parent, program).watch()


def guard_folder(folder):
    """Its standard input is the pipe."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"folder-guard", 0, 0, 0)
    while os.read(0, 64):
        pass
    import shutil  # takes its time, of which a program's guard has no need
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def main(kind, *arguments):
    if kind == "folder":
        return guard_folder(*arguments)
    parent, told, held, *words = arguments
    return guard_program(int(parent), int(told), int(held), words)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
