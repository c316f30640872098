"""The machine that a proof runs on: the bundle's programs, the Python that has torch, and processes that end when their time is over."""

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

GRACE_S = 2  # between asking a process to end and ending it
CODE_OF_SIGNAL = 128
KEPT_CHARACTERS = 4_000_000  # of what a process prints


class Cut(Exception):
    """The time of a step was over."""


@dataclass
class Done:
    code: int
    output: str  # standard output and error
    seconds: float
    is_cut: bool  # it was ended because its time was over

    def last_line(self):
        return (self.output.strip().splitlines() or ["it said nothing"])[-1].strip()[:300]


class Machine:
    """`work`: a folder for data and caches, which stays for the next run. `log`: the file that gets all that programs print."""

    def __init__(self, root, bundle, work, log, torch_python):
        self.root = root  # of benchmarks/ and scripts/
        self.bundle = bundle
        self.work = work
        self.log = log
        self.torch_python = torch_python
        self.cores = len(os.sched_getaffinity(0))
        self.running = []
        self.is_starting = False
        self.code_to_end_with = None
        self.environment = os.environ | {"TESSERA_TORCH_PYTHON": torch_python, "TESSERA_CUDA_CACHE": str(work / "kernels"),
                                         "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"), "TRITON_CACHE_DIR": str(work / "triton"),
                                         "PYTHONUNBUFFERED": "1"}

    def prepare(self):
        self.work.mkdir(parents=True, exist_ok=True)
        if (self.bundle / "kernels").is_dir() and not (self.work / "kernels").exists():
            shutil.copytree(self.bundle / "kernels", self.work / "kernels", copy_function=shutil.copyfile)

    def program(self, name, *options):
        return [str(self.bundle / "run"), name, *map(str, options)]

    def torch(self, *options):
        return [self.torch_python, "-B", str(self.root / "benchmarks" / "peers" / "torch_gpu.py"), *map(str, options)]

    def start(self, command, env=None, stdout=None, stdin=subprocess.DEVNULL):
        """A process with a group of its own, so that all that it starts ends with it."""
        self.is_starting = True
        try:
            child = subprocess.Popen([str(word) for word in command], stdin=stdin, stdout=stdout, stderr=subprocess.STDOUT,
                                     env=self.environment | (env or {}), start_new_session=True)
            self.running.append(child)
        finally:
            self.is_starting = False
        if self.code_to_end_with is not None:
            sys.exit(self.code_to_end_with)
        return child

    def end_by_signal(self, number, _):
        """A signal's handler: all that has begun is ended on the way out, the process that is just being started, too."""
        if self.is_starting:
            self.code_to_end_with = CODE_OF_SIGNAL + number
        else:
            sys.exit(CODE_OF_SIGNAL + number)

    def end(self, child):
        """Ends it with its group, which may outlive it."""
        for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(patience_s)
        with contextlib.suppress(ValueError):
            self.running.remove(child)

    def wait_and_end(self, child, until):
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(until - time.monotonic(), 0.01))
        self.end(child)

    def end_all(self):
        for child in list(self.running):
            self.end(child)

    def run_all(self, commands, until, env=None):
        """Runs them at once. Those that are not done at `until` of time.monotonic() are ended."""
        with contextlib.ExitStack() as stack:
            begin = time.monotonic()
            outputs = [stack.enter_context(tempfile.TemporaryFile("w+b")) for _ in commands]
            children = []
            try:
                for command, output in zip(commands, outputs):
                    children.append(self.start(command, env, stdout=output))
                done = []
                for child, output, command in zip(children, outputs, commands):
                    is_cut = False
                    try:
                        child.wait(max(until - time.monotonic(), 0.01))
                    except subprocess.TimeoutExpired:
                        is_cut = True
                    seconds = time.monotonic() - begin
                    self.end(child)
                    output.seek(max(output.seek(0, os.SEEK_END) - KEPT_CHARACTERS, 0))
                    done.append(Done(child.returncode, output.read().decode(errors="replace"), seconds, is_cut))
                    self.note(command, done[-1])
                return done
            finally:
                for child in children:
                    if child in self.running:
                        self.end(child)

    def run(self, command, until, env=None):
        return self.run_all([command], until, env)[0]

    def must(self, command, until, env=None):
        """What it printed. Throws Cut where its time is over, RuntimeError where it fails."""
        done = self.run(command, until, env)
        if done.is_cut:
            raise Cut(f"{Path(command[0]).name} {command[1]} did not end in {done.seconds:.0f} s")
        if done.code != 0:
            raise RuntimeError(f"{' '.join(map(str, command[1:3]))} ended with code {done.code}: {done.last_line()}")
        return done.output

    @contextlib.contextmanager
    def beside(self, command, until):
        """A process that has said that it is ready, until the block is left. Throws Cut, RuntimeError as must() does."""
        with tempfile.TemporaryFile("w+b") as output:
            child = self.start(command, stdout=output, stdin=subprocess.PIPE)
            try:
                while b'"ready"' not in (said := output_so_far(output)):
                    if child.poll() is not None:
                        raise RuntimeError(f"{command[1]} ended with code {child.returncode}: {said[-300:].decode(errors='replace')}")
                    if time.monotonic() > until:
                        raise Cut(f"{command[1]} was not ready in time")
                    time.sleep(0.02)
                yield
            finally:
                self.end(child)

    def note(self, command, done):
        end = "time over" if done.is_cut else f"code {done.code}"
        with open(self.log, "a") as file:
            file.write(f"$ {' '.join(map(str, command))}\n{done.output.rstrip()}\n[{end}, {done.seconds:.1f} s]\n\n")

    @functools.cached_property
    def gpus(self):
        """"name, driver, MiB" of each; empty where the driver's program shows none, or is not there."""
        try:
            said = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                                  capture_output=True, text=True, timeout=60, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            return []
        return [line.strip() for line in said.splitlines() if line.strip()]

    @functools.cached_property
    def torch_facts(self):
        """Of torch and its libraries, by name; empty without one that sees a GPU."""
        code = ("import json, torch; print(json.dumps({'torch': torch.__version__, 'cuda': torch.version.cuda, "
                "'cudnn': torch.backends.cudnn.version(), 'device': torch.cuda.get_device_name()}))")
        try:
            said = subprocess.run([self.torch_python, "-c", code], capture_output=True, text=True, timeout=180, check=True,
                                  env=self.environment)
            return json.loads(said.stdout.splitlines()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError):
            return {}

    @functools.cached_property
    def sanitizer(self):
        """compute-sanitizer, or None."""
        beside_toolkit = Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda") / "bin" / "compute-sanitizer"
        return shutil.which("compute-sanitizer") or (str(beside_toolkit) if beside_toolkit.exists() else None)


def output_so_far(file):
    return os.pread(file.fileno(), 1 << 20, 0)
