"""run_blocks.py SCRIPT...: runs the scripts one after the other, as a rank of a job in a folder of its own; says how each
ended and stops at the first that fails.

A script whose name ends in `.refused.py` must raise an error whose message holds what its first line says.
"""
import os
import runpy
import sys
import traceback
from pathlib import Path

import mindspore


def run(script):
    """None where all is well, else what went wrong."""
    refusal = script.read_text().splitlines()[0].removeprefix("# ") if script.name.endswith(".refused.py") else None
    try:
        runpy.run_path(str(script), run_name="__main__")
    except Exception as error:
        return None if refusal is not None and refusal in str(error) else traceback.format_exc()
    return None if refusal is None else f"it ran, though it should be refused: {refusal}"


def main():
    scripts = [Path(name).resolve() for name in sys.argv[1:]]
    sys.path.insert(0, str(scripts[0].parent))
    folder = Path("device" + os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    for script in scripts:
        mindspore.reset_auto_parallel_context()
        failure = run(script)
        line = f"BLOCK {script.name.split('.')[0]} " + ("ok" if failure is None else "failed")
        sys.stdout.write(f"\n{line}\n" + (failure or ""))
        sys.stdout.flush()
        if failure is not None:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
