"""Starts operators by fork, as its standard input says: ["start", ARGUMENT...] prints a process id, ["wait", PID] an exit code. All of
them end with it."""

import json
import os
import signal
import sys

import tessera_operator.operate


def main():
    children = set()
    for line in sys.stdin:
        word, *rest = json.loads(line)
        if word == "start":
            child = os.fork()
            if child == 0:
                os.close(0)
                os.dup2(2, 1)
                code = 1
                try:
                    code = tessera_operator.operate.main(rest)
                finally:
                    os._exit(code)
            children.add(child)
            print(child, flush=True)
        else:
            children.discard(rest[0])
            print(os.waitstatus_to_exitcode(os.waitpid(rest[0], 0)[1]), flush=True)
    for child in children:
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
