"""Jobs that strangers meet, and the strangers: processes of their own, of this user and, where root can be somebody else, of
another. How they speak stands in wire.py."""

import multiprocessing
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import wire

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/processes"), str(ROOT / "benchmarks")]
sys.path.append(str(ROOT / "tests/python"))
from own_tests import main
from ports import free_port  # noqa: F401, for those who import this

BIN = Path(os.environ["TESSERA_BUILD"]) / "bin" if "TESSERA_BUILD" in os.environ else Path(sys.argv.pop(1))
JOB = BIN / "strangers_job"
JOB_ID = "the job's own name"
STEPS = 6
NOBODY = 65534
FORK = multiprocessing.get_context("fork")


def eventually(holds, what, limit_s=60):
    end = time.monotonic() + limit_s
    while not (value := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {limit_s} s")
        time.sleep(0.002)
    return value


def read(path):
    try:
        return Path(path).read_bytes()
    except OSError:  # it has ended
        return b""


def family(pid):
    """The process and all that it has started, as far as they live."""
    found = [int(pid)]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in read(task).split()]
    return found


def _address(text):
    """As /proc/net/tcp and tcp6 write it: words of four bytes in the host's order."""
    words = bytes.fromhex(text)
    packed = b"".join(words[start:start + 4][::-1] for start in range(0, len(words), 4))
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def listening_ports(pid):
    """The addresses at which this process listens over TCP, by port."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(link))
        except OSError:
            pass
    ports = {}
    for line in [line for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            host, port = fields[1].split(":")
            ports[int(port, 16)] = _address(host)
    return ports


def listens(address):
    if address.startswith("unix:"):
        return f"@{address[5:]}\n" in Path("/proc/net/unix").read_text()
    port = int(address.rpartition(":")[2])
    return any(line.split()[3] == "0A" and int(line.split()[1].split(":")[1], 16) == port
               for line in Path("/proc/net/tcp").read_text().splitlines()[1:])


def _be_stranger(pipe, attack, address, secret, user):
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    stranger = wire.Stranger(address, secret)
    try:
        pipe.send(("done", attack(stranger)))
    except Exception as error:  # told to the test
        pipe.send(("failed", f"{type(error).__name__}: {error}"))
    pipe.recv()
    pipe.send(stranger.heard())
    os._exit(0)


class Attack:
    """A process that does `attack(stranger)` and keeps what it has opened until end(). `result` is what that returned."""

    def __init__(self, attack, address, secret=None, user=None):
        self.pipe, other = FORK.Pipe()
        self.process = FORK.Process(target=_be_stranger, args=(other, attack, address, secret, user), daemon=True)
        self.process.start()
        other.close()
        if not self.pipe.poll(120):
            raise AssertionError("the stranger hangs")
        how, self.result = self.pipe.recv()
        if how == "failed":
            raise AssertionError(self.result)

    def end(self):
        """What it has heard."""
        self.pipe.send("end")
        heard = self.pipe.recv()
        self.process.join(10)
        return heard


def hangs_up(line, limit_s):
    """Whether the other side of the connection closes it within that time; what comes before is read."""
    end = time.monotonic() + limit_s
    while True:
        line.socket.settimeout(max(end - time.monotonic(), 0.001))
        try:
            if line.read() is None:
                return True
        except TimeoutError:
            return False


def everything(size):
    """What a stranger without the secret may try at a hub."""

    def attack(stranger):
        for step in (lambda: stranger.idle(10), lambda: stranger.half_frames(6), stranger.garbage,
                     *(lambda rank=rank: stranger.join(rank, size, JOB_ID) for rank in range(-1, size + 1))):
            try:
                step()
            except OSError:  # the hub has hung up, or listens no more
                pass

    return attack


class Job:
    """Ranks that are started one by one, as by hand."""

    def __init__(self, folder, size, address, secret=None, program=(), **environment):
        self.folder, self.size, self.address = Path(tempfile.mkdtemp(dir=folder)), size, address
        self.secret = secret or os.urandom(32)
        self.secret_file = self.folder / "secret"
        self.secret_file.touch(0o600)
        self.secret_file.write_bytes(self.secret)
        self.program = program or (JOB, STEPS, self.folder)
        self.environment = environment
        self.ranks = {}

    def start(self, rank, address=None, is_seen=True, **options):
        """`is_seen`: what rank 0 listens at is of this network namespace."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_"))}
        env |= {"TESSERA_RANK": str(rank), "TESSERA_SIZE": str(self.size), "TESSERA_STORE": address or self.address, "TESSERA_JOB_ID": JOB_ID,
                "TESSERA_SECRET_FILE": str(self.secret_file), "TESSERA_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **self.environment}
        self.ranks[rank] = subprocess.Popen([str(word) for word in self.program], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                            text=True, **options)
        if rank == 0 and is_seen:
            eventually(lambda: self.ranks[0].poll() is not None or listens(self.address), "rank 0 listens")
        return self.ranks[rank]

    def start_others(self):
        for rank in range(self.size):
            if rank not in self.ranks:
                self.start(rank)

    def end(self, timeout=90):
        """(exit codes, outputs) by rank."""
        outputs = {rank: process.communicate(timeout=timeout)[0] for rank, process in self.ranks.items()}
        return {rank: process.returncode for rank, process in self.ranks.items()}, outputs

    def kill(self):
        for process in self.ranks.values():
            if process.poll() is None:
                process.kill()
                process.communicate()

    def weights(self):
        return (self.folder / f"step_{STEPS}").read_bytes()


def needs_root(test):
    return unittest.skipUnless(os.getuid() == 0, "only root can be another user")(test)


class Strangers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="tessera-strangers."))
        cls.undisturbed = {}
        for size in (2, 3, 4):
            job = Job(cls.folder, size, f"unix:tessera-strangers-{os.getpid()}-{size}")
            job.start(0)
            job.start_others()
            codes, outputs = job.end()
            assert set(codes.values()) == {0}, outputs
            cls.undisturbed[size] = job.weights()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def job(self, size, kind="tcp", **options):
        address = f"tcp:127.0.0.1:{free_port()}" if kind == "tcp" else f"unix:tessera-strangers-{os.getpid()}-{os.urandom(4).hex()}"
        job = Job(self.folder, size, address, **options)
        self.addCleanup(job.kill)
        return job

    def ends_undisturbed(self, job):
        codes, outputs = job.end()
        self.assertEqual(set(codes.values()), {0}, outputs)
        self.assertEqual(job.weights(), self.undisturbed[job.size])
        self.assertIn(f"saved step {STEPS}\n", outputs[0])
        self.assertEqual({int(name[5:]) for name in os.listdir(job.folder) if name.startswith("step_")}, set(range(1, STEPS + 1)))
        self.tells_nothing(job, "".join(outputs.values()).encode())
        return outputs

    def tells_nothing(self, job, heard):
        """No secret, no name, no weight is among these bytes."""
        for what in (job.secret, job.secret.hex().encode(), JOB_ID.encode(), str(job.secret_file).encode()):
            self.assertNotIn(what, heard)
        weights = self.undisturbed[job.size]
        for start in range(0, len(weights), 8):
            self.assertNotIn(weights[start:start + 8], heard)

    def refused(self, job, rank, *patterns):
        """That rank ends by an error with these words, not by a signal."""
        out = job.ranks[rank].communicate(timeout=90)[0]
        self.assertEqual(job.ranks[rank].returncode, 1, out)
        for pattern in patterns:
            self.assertRegex(out, pattern)
        return out
