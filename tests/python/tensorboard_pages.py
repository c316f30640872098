"""TensorBoard's own server, in the virtual environment that has it, for a directory of event files."""
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def python():
    """The interpreter of that environment. Skips the test where it cannot be made."""
    made = subprocess.run([sys.executable, ROOT / "scripts" / "tensorboard_env.py"], capture_output=True, text=True)
    if made.returncode != 0:
        import pytest  # scripts/pictures.py, which has none, uses this module, too
        pytest.skip("no TensorBoard: scripts/tensorboard_env.py could not make .venv-tensorboard")
    return made.stdout.strip()


@contextmanager
def served(interpreter, directory):
    """The address at which it shows what the directory has when it starts."""
    command = [interpreter, "-m", "tensorboard.main", "--logdir", str(directory), "--host", "127.0.0.1", "--port", "0", "--load_fast", "false",
               "--reload_interval", "0", "--reload_task", "blocking"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        said = []
        for line in server.stderr:
            said.append(line)
            if address := re.search(r"at (http://127\.0\.0\.1:\d+/)", line):
                yield address[1]
                return
        raise RuntimeError("TensorBoard does not start: " + "".join(said))
    finally:
        server.terminate()
        server.communicate()
