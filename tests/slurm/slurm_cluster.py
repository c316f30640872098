"""A cluster of Slurm on this machine, for tests: munged, slurmctld and a slurmd for each node, with a folder and ports of their own.

Its nodes are named by addresses of the loopback, 127.0.0.1, 127.0.0.2, ..., so that a node's name leads to it without a name server. They
are one machine: ranks that are to take them for several set TESSERA_HOST_ID to SLURMD_NODENAME.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd", "slurmstepd")
COMMANDS = ("srun", "sbatch", "sinfo", "squeue", "scancel", "scontrol")
START_S = 60
CPUS = 8  # a node says that it has so many, whatever there is

CONFIG = """\
ClusterName=tessera
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/linear
SchedulerParameters=sched_min_interval=1,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=5
NodeName={nodes} NodeHostname={host} NodeAddr={nodes} Port=[{ports}] CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def _program(name):
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/lib/slurm-wlm:/usr/lib/x86_64-linux-gnu/slurm-wlm:/usr/lib/aarch64-linux-gnu/slurm-wlm")


def why_not():
    """Why no cluster can be started here; "" where one can."""
    missing = [name for name in DAEMONS + COMMANDS if _program(name) is None]
    if missing:
        return f"Slurm is not installed ({', '.join(missing)}): scripts/setup slurm"
    if os.geteuid() != 0:
        return "Slurm's daemons start jobs as root"
    return ""


def _free_ports(count):
    """So many in a row, as far as can be seen."""
    for first in range(18000 + os.getpid() % 1000, 32000, count):
        held = []
        try:
            for port in range(first, first + count):
                held.append(socket.create_server(("127.0.0.1", port)))
            return first
        except OSError:
            continue
        finally:
            for listener in held:
                listener.close()
    raise RuntimeError("no ports are free")


class SlurmCluster:
    """`with SlurmCluster(2) as slurm: slurm.run("srun", ...)`; ends its jobs and daemons."""

    def __init__(self, num_nodes):
        self.num_nodes = num_nodes
        self.daemons = []

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="tessera-slurm."))
        self.folder.chmod(0o755)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if len(self.daemons) > 1:
            subprocess.run(["scancel", "--full", "--user", "root"], env=self.environment(), capture_output=True, timeout=60)
            end = time.monotonic() + 30
            while time.monotonic() < end and self.run("squeue", "--noheader")[1]:
                time.sleep(0.2)
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self):
        folder, host = self.folder, socket.gethostname().partition(".")[0]
        for name in ("state", "spool"):
            (folder / name).mkdir()
        with open(os.open(folder / "munge.key", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as key:
            key.write(os.urandom(1024))
        first = _free_ports(1 + self.num_nodes)
        names = "127.0.0.1" if self.num_nodes == 1 else f"127.0.0.[1-{self.num_nodes}]"
        (folder / "slurm.conf").write_text(CONFIG.format(folder=folder, host=host, port=first, nodes=names, cpus=CPUS,
                                                         ports=f"{first + 1}-{first + self.num_nodes}"))
        self._daemon("munged", "--foreground", "--force", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket",
                     f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed")
        self._wait("munged", lambda: (folder / "munge.socket").exists())
        self._daemon("slurmctld", "-D", "-i")
        for node in range(1, self.num_nodes + 1):
            self._daemon("slurmd", "-D", "-N", f"127.0.0.{node}")
        self._wait("all nodes are idle", lambda: self.run("sinfo", "--noheader", "--format=%D %t")[1].strip() == f"{self.num_nodes} idle")

    def _daemon(self, name, *arguments):
        with open(self.folder / f"{name}.out", "ab") as out:
            self.daemons.append(subprocess.Popen([_program(name), *arguments], env=self.environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                                 start_new_session=True))

    def _wait(self, what, holds):
        end = time.monotonic() + START_S
        while not holds():
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in self.daemons):
                logs = "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}"
                                 for path in sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")]))
                raise RuntimeError(f"{what}: it does not come to that:\n{logs}")
            time.sleep(0.1)

    def environment(self, **variables):
        """Of a shell outside of any job."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SRUN_", "SBATCH_", "TESSERA_", "OMPI_", "PMIX_"))}
        return kept | {"SLURM_CONF": f"{self.folder}/slurm.conf"} | {name: str(value) for name, value in variables.items()}

    def run(self, *command, timeout=120, cwd=None, **variables):
        """(exit code, standard output, standard error)"""
        done = subprocess.run([str(word) for word in command], env=self.environment(**variables), cwd=cwd or self.folder, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=timeout)
        return done.returncode, done.stdout, done.stderr

    def batch(self, script, *arguments, options=(), timeout=180, **variables):
        """Submits a script and waits for its end. Returns (exit code, what it has written)."""
        log = self.folder / f"batch-{time.monotonic_ns()}.log"
        code, out, err = self.run("sbatch", "--parsable", f"--output={log}", *options, script, *arguments, **variables)
        if code != 0:
            raise RuntimeError(f"sbatch: {out}{err}")
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            shown = dict(word.split("=", 1) for word in self.run("scontrol", "--oneliner", "show", "job", out.strip())[1].split() if "=" in word)
            if shown.get("JobState") in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"):
                number, _, by_signal = shown["ExitCode"].partition(":")
                return int(number) or 128 * (by_signal != "0") + int(by_signal), log.read_text()
            time.sleep(0.1)
        raise RuntimeError(f"job {out.strip()} does not end: {log.read_text() if log.exists() else 'it has written nothing'}")
