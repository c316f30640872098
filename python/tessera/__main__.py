"""The command `tessera`: `tessera compat-path` prints where the package `mindspore` lies; all else is the program's."""
import os
import sys
from pathlib import Path

PACKAGE = Path(os.path.abspath(__file__)).parent
# As a shell says of a command that it does not find.
_NOT_FOUND = 127


def _is_program(path):
    """Not a script: the command of this name that pip makes would only come back here."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF" and os.access(path, os.X_OK)
    except OSError:
        return False


def find_program(package, folders):
    """The program, or None, and where it was looked for: in the package, as a wheel has it; beside it, as a build has it; in the folders of PATH."""
    places = [package / "bin" / "tessera", package.parent.parent / "bin" / "tessera", *(Path(folder) / "tessera" for folder in folders if folder)]
    return next((place for place in places if _is_program(place)), None), places


def main():
    if sys.argv[1:] == ["compat-path"]:
        print(PACKAGE / "compat")
        return 0
    program, places = find_program(PACKAGE, os.environ.get("PATH", os.defpath).split(os.pathsep))
    if program is None:
        print(f"error: python -m tessera: there is no program tessera: neither {places[0]} nor {places[1]} is one, and no folder of PATH has one; install the "
              "package again, or name the program's folder in PATH", file=sys.stderr)
        return _NOT_FOUND
    if sys.argv[1:2] == ["job"] and not os.environ.get("PYTHON"):
        # Which has the operator's package and what it needs; python3 may be another one. The second says that it is no variable of the user's.
        os.environ |= {"PYTHON": sys.executable, "_PYTHON_OF_TESSERA_JOB": "1"}
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
