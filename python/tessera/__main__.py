"""The command `tessera`: `tessera compat-path` prints where the package `mindspore` lies; all else is the program's."""
import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def main():
    if sys.argv[1:] == ["compat-path"]:
        print(Path(os.path.abspath(__file__)).parent / "compat")
        return 0
    program = PACKAGE / "bin" / "tessera"
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
