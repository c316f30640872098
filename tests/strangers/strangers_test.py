"""What strangers to a job can do: nothing. They learn no byte of its secret, name or weights, change no bit of its result, and
neither end it nor keep a rank out. Strangers are processes of their own, of this user and, where root can be somebody else, of
another. How they speak stands in wire.py."""

import mmap
import multiprocessing
import os
import re
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

BIN = Path(sys.argv.pop(1))
JOB, RANK_PROGRAM = BIN / "strangers_job", BIN / "rank_program"
JOB_ID = "the job's own name"
STEPS = 6
NOBODY = 65534
FORK = multiprocessing.get_context("fork")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def eventually(holds, what, limit_s=60):
    end = time.monotonic() + limit_s
    while not (value := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {limit_s} s")
        time.sleep(0.002)
    return value


def listening_ports(pid):
    """The TCP ports at which this process listens, by address."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(link))
        except OSError:
            pass
    ports = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            host, port = fields[1].split(":")
            ports[int(port, 16)] = socket.inet_ntoa(bytes.fromhex(host)[::-1])
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

    def start(self, rank, address=None, **options):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_"))}
        env |= {"TESSERA_RANK": str(rank), "TESSERA_SIZE": str(self.size), "TESSERA_STORE": address or self.address, "TESSERA_JOB_ID": JOB_ID,
                "TESSERA_SECRET_FILE": str(self.secret_file), "TESSERA_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **self.environment}
        self.ranks[rank] = subprocess.Popen([str(word) for word in self.program], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                            text=True, **options)
        if rank == 0:
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


class AtTheDoor(Strangers):
    def attacked(self, kind, user):
        for size in (2, 3, 4):
            with self.subTest(ranks=size):
                job = self.job(size, kind)
                job.start(0)
                first = Attack(everything(size), job.address, user=user)
                for rank in range(1, size - 1):
                    job.start(rank)
                second = Attack(everything(size), job.address, user=user)
                job.start(size - 1)
                self.ends_undisturbed(job)
                for attack in (first, second):
                    self.tells_nothing(job, attack.end())

    def test_strangers_over_tcp_learn_and_change_nothing(self):
        self.attacked("tcp", None)

    def test_strangers_at_a_local_socket_learn_and_change_nothing(self):
        self.attacked("unix", None)

    @needs_root
    def test_other_users_over_tcp_learn_and_change_nothing(self):
        self.attacked("tcp", NOBODY)

    @needs_root
    def test_other_users_at_a_local_socket_learn_and_change_nothing(self):
        self.attacked("unix", NOBODY)

    def test_strangers_in_the_middle_of_a_job_learn_and_change_nothing(self):
        job = self.job(3)
        gate = job.folder / "gate"
        os.mkfifo(gate)
        job.program = (*job.program, gate)
        job.start(0)
        job.start_others()
        self.assertEqual(job.ranks[0].stdout.readline(), "waiting\n")
        attack = Attack(everything(3), job.address)
        gate.write_text("go\n")
        self.ends_undisturbed(job)
        self.tells_nothing(job, attack.end())

    def test_a_thousand_idle_connections_and_sixty_half_frames_cost_little_and_saves_go_on(self):
        job = self.job(2)
        rank = job.start(0, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))

        def use():
            text = Path(f"/proc/{rank.pid}/status").read_text()
            return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]), len(os.listdir(f"/proc/{rank.pid}/fd"))

        memory, descriptors = use()

        def crowd(stranger):
            for _ in range(60):  # among the others: who comes first is let go of first
                stranger.idle(16)
                stranger.half_frames(1)
            stranger.idle(40)

        attack = Attack(crowd, job.address)
        after = use()
        self.assertLess(after[0] - memory, 16 << 10)
        self.assertLess(after[1] - descriptors, 100)
        job.start_others()
        self.ends_undisturbed(job)
        self.tells_nothing(job, attack.end())


    def test_a_flood_of_connections_keeps_no_rank_out(self):
        for kind in ("tcp", "unix"):
            with self.subTest(kind=kind):
                job = self.job(2, kind, TESSERA_TIMEOUT_MS="10000")
                job.start(0)
                floods = [Attack(lambda stranger: stranger.flood(), job.address) for _ in range(3)]
                job.start(1)
                self.ends_undisturbed(job)
                for flood in floods:
                    self.tells_nothing(job, flood.end())


class WithoutTheSecret(Strangers):
    def test_a_guess_is_refused_with_no_reason(self):
        job = self.job(2)
        job.start(0)
        attack = Attack(lambda stranger: stranger.join(1, 2, JOB_ID)[1], job.address)
        self.assertEqual(attack.result, "the secret")
        heard = attack.end()
        self.assertLess(len(heard), 100)
        self.tells_nothing(job, heard)
        job.start_others()
        self.ends_undisturbed(job)

    def test_a_replayed_rank_is_refused(self):
        first = self.job(2)
        first.start(0)
        relay = wire.Relay("tcp:127.0.0.1:0", first.address)
        self.addCleanup(relay.close)
        first.start(1, relay.address)
        self.ends_undisturbed(first)
        self.assertGreater(len(relay.to_hub), 200)
        second = self.job(2, secret=first.secret)
        second.start(0)
        attack = Attack(lambda stranger: stranger.replay(relay.to_hub), second.address)
        second.start_others()
        self.ends_undisturbed(second)
        self.tells_nothing(second, attack.end())

    def test_what_is_changed_on_its_way_ends_the_job_and_not_its_result(self):
        for number in range(0, 3):
            with self.subTest(frame=number):
                job = self.job(2, TESSERA_TIMEOUT_MS="3000")
                job.start(0)
                relay = wire.Relay("tcp:127.0.0.1:0", job.address)
                self.addCleanup(relay.close)
                relay.change(number)
                job.start(1, relay.address)
                codes, outputs = job.end()
                if set(codes.values()) == {0}:  # the first connection's proof was spoilt, the second one's was not
                    self.assertEqual(job.weights(), self.undisturbed[2])
                else:
                    self.assertEqual(set(codes.values()), {1}, outputs)
                self.tells_nothing(job, "".join(outputs.values()).encode())

    def test_a_rank_tells_a_false_hub_nothing_and_finds_the_true_one(self):
        users = [None, NOBODY] if os.getuid() == 0 else [None]
        for kind, user in [(kind, user) for kind in ("tcp", "unix") for user in users]:
            with self.subTest(kind=kind, user=user):
                job = self.job(2, kind)

                def pretend(stranger, job=job):
                    hub = wire.FalseHub(job.address)
                    stranger.lines.append(hub.accept())
                    try:
                        hub.welcome(stranger.lines[0])
                    except OSError:  # the rank has seen whose socket this is
                        pass
                    stranger.lines.append(hub.accept())  # it tries again
                    hub.close()

                job.start(1)
                attack = Attack(pretend, job.address, user=user)
                heard = attack.end()
                self.tells_nothing(job, heard)
                self.assertNotIn(socket.gethostname().encode(), heard.replace(b"\0", b" ").split(b" "))
                job.start(0)
                self.ends_undisturbed(job)

    def test_a_hub_that_reflects_is_not_believed(self):
        job = self.job(2, TESSERA_TIMEOUT_MS="1500")
        hub = wire.FalseHub(job.address)
        job.start(1)
        line = hub.accept()
        hub.reflect(line)
        hub.close()
        self.refused(job, 1, "cannot join the job|does not answer")
        self.tells_nothing(job, line.heard)

    def test_a_wrong_secret_is_named_on_both_sides(self):
        job = self.job(2, TESSERA_TIMEOUT_MS="1500")
        job.start(0)
        other = self.job(2, TESSERA_TIMEOUT_MS="1000")
        other.start(1, job.address)
        self.refused(other, 1, "rank 1 cannot join the job: what answers at .* refuses this rank's secret")
        self.tells_nothing(job, self.refused(job, 0, r"rank 1 did not join the job within 1500 ms; \d+ connections? did not prove").encode())

    def test_tcp_without_a_secret_is_refused(self):
        job = self.job(2)
        job.environment["TESSERA_SECRET_FILE"] = ""
        job.start(0)
        self.refused(job, 0, "without a secret of the job: anybody could join.*TESSERA_SECRET_FILE")

    def test_a_file_that_others_may_read_is_no_secret(self):
        job = self.job(2)
        job.secret_file.chmod(0o640)
        job.start(0)
        self.refused(job, 0, "others may read or write it; chmod 600")

    def test_rank_0_does_not_listen_at_every_interface(self):
        job = self.job(2)
        for host in ("0.0.0.0", "[::]"):
            job.address = f"tcp:{host}:0"
            job.start(0)
            self.refused(job, 0, "at one interface's address, not at all of them")


class WithTheSecret(Strangers):
    """What a rank that has gone wrong can do: end its job, with a word."""

    def test_a_rank_that_has_joined_is_not_displaced(self):
        job = self.job(4)
        job.start(0)
        relay = wire.Relay("tcp:127.0.0.1:0", job.address)
        self.addCleanup(relay.close)
        relay.hold(2)  # proof and join have passed
        job.start(1, relay.address)

        def displace(stranger):
            """The hub's answers to those that claim places that cannot be had; rank 1 may just be joining."""
            answers = []
            for rank in (0, 4, 10**6):
                line, _ = stranger.join(rank, 4, JOB_ID)
                answers.append(line.read())
            for job_id, size in (("another", 4), (JOB_ID, 3)):
                line, _ = stranger.join(3, size, job_id)
                answers.append(line.read())
            return answers

        attack = Attack(displace, job.address, job.secret)
        self.assertEqual([kind for kind, _ in attack.result], [b"R"] * 5)
        self.assertIn(b"rank 0 has joined already", attack.result[0][1])
        self.assertNotIn(JOB_ID.encode(), attack.result[3][1])
        relay.go_on()
        job.start_others()
        self.ends_undisturbed(job)
        attack.end()

    def member(self, attack, size=2, **environment):
        """Rank 0 and, as the last rank, somebody with the secret."""
        job = self.job(size, TESSERA_TIMEOUT_MS="20000", **environment)
        job.start(0)
        for rank in range(1, size - 1):
            job.start(rank)

        def join_and(stranger):
            line, _ = stranger.join(size - 1, size, JOB_ID)
            while line.read()[0] != b"A":
                pass
            return attack(stranger, line)

        return job, Attack(join_and, job.address, job.secret)

    def test_wrong_words_of_a_rank_end_the_job_with_its_name(self):
        for name, (kind, body) in {"no kind": (b"?", b""), "a value without a name": (b"S", b"value"), "a join": (b"J", b"again"),
                                   "a long name": (b"G", b"n" * 1000), "a failure of no rank": (b"F", b"message")}.items():
            with self.subTest(name):
                job, attack = self.member(lambda stranger, line, kind=kind, body=body: line.send_frame(kind, body))
                self.refused(job, 0, "because rank 1 failed: rank 0 closed its connection")
                attack.end()

    def test_a_frame_beyond_the_limit_ends_the_job_before_it_is_read(self):
        def announce(stranger, line):
            line.send((0xffffffff).to_bytes(4, "little") + b"S")

        job, attack = self.member(announce)
        self.refused(job, 0, "rank 1 failed: .*no frame: 4294967295 bytes announced")
        attack.end()

    def test_a_store_is_bounded(self):
        def flood(stranger, line):
            try:
                for number in range(300):
                    stranger.store(line, f"flood {number}", bytes(1 << 20))
            except OSError:
                pass

        job, attack = self.member(flood)
        memory = []
        eventually(lambda: memory.append(_peak(job.ranks[0].pid)) or job.ranks[0].poll() is not None, "the job ends")
        self.refused(job, 0, "rank 1 failed: rank 0 closed its connection: its values have more than 8388608 bytes")
        self.assertLess(max(memory) - min(memory), 24 << 10)
        attack.end()

    def test_who_stops_reading_holds_up_nobody(self):
        def ask_only(stranger, line):
            stranger.store(line, "large", bytes(1 << 20))
            for _ in range(100):
                stranger.ask(line, "large")

        job, attack = self.member(ask_only, size=3)
        for rank in (0, 1):
            self.refused(job, rank, "rank 2 failed: it has stopped reading what the others tell it")
        attack.end()

    def test_text_of_peers_cannot_steer_a_terminal(self):
        job, attack = self.member(lambda stranger, line: stranger.fail(line, 1, b"\x1b[2J\x1b]0;title\x07 \xff \xc2\x9b31m"))
        out = self.refused(job, 0, r"because rank 1 failed: \\x1b\[2J\\x1b\]0;title\\x07 \\xff \\xc2\\x9b31m")
        self.assertNotRegex(out, "[\x00-\x08\x0b-\x1f\x7f-\x9f]")
        attack.end()

    def test_wrong_words_of_a_hub_end_a_rank_with_its_name(self):
        for name, (kind, body) in wire.WRONG_WORDS.items():
            with self.subTest(name):
                job = self.job(2, TESSERA_TIMEOUT_MS="20000")
                hub = wire.FalseHub(job.address, job.secret)
                self.addCleanup(hub.close)
                job.start(1)
                line = hub.accept()
                self.assertEqual(hub.welcome(line)[:3], (JOB_ID, "1", "2"))
                line.send_frame(kind, body)
                self.refused(job, 1, "rank 0 failed: what came from it, at tcp:127.0.0.1:[0-9]+, cannot be used: ")

    def test_only_memory_of_a_rank_is_opened(self):
        fifo, file = self.folder / "fifo", self.folder / "memfd:tessera (deleted)"
        os.mkfifo(fifo)
        file.write_bytes(bytes(1 << 20))
        other = os.memfd_create("other")
        os.truncate(other, 1 << 20)
        with open(file, "r+b") as like_memory, mmap.mmap(like_memory.fileno(), 0):
            paths = {"a pipe": fifo, "a device": "/dev/zero", "a terminal": "/dev/tty", "a file": file, "memory of another name": f"/proc/{os.getpid()}/fd/{other}",
                     "a file by its descriptor": f"/proc/{os.getpid()}/fd/{like_memory.fileno()}", "a way around": f"/proc/{os.getpid()}/fd/../../self/fd/0",
                     "nothing": ""}
            for name, path in paths.items():
                with self.subTest(name):
                    job = self.job(2, TESSERA_TIMEOUT_MS="20000", program=(RANK_PROGRAM, "wait"))
                    hub = wire.FalseHub(job.address, job.secret)
                    self.addCleanup(hub.close)
                    job.start(1)
                    line = hub.accept()
                    host = hub.welcome(line)[3]
                    wire.welcome_all(hub, line, [host, host])
                    self.assertEqual(len(wire.answer_asked(line, [str(path).encode()])), 1)
                    self.refused(job, 1, "cannot open the shared memory of rank 0")
        os.close(other)


class BetweenRanks(Strangers):
    """Gloo's connections. A relay keeps one rank's words back while a thief connects in its place."""

    def stolen(self, size):
        job = self.job(size, TESSERA_TRANSPORT="gloo", TESSERA_TIMEOUT_MS="20000")
        job.start(0)
        relay = wire.Relay("tcp:127.0.0.1:0", job.address)
        self.addCleanup(relay.close)
        relay.hold(2)  # proof and join have passed; then it says where it listens
        for rank in range(1, size - 1):
            job.start(rank)
        job.start(size - 1, relay.address)
        self.assertTrue(relay.held.wait(60))
        ports = eventually(lambda: (found := listening_ports(job.ranks[0].pid)) and len(found) == size - 1 and found, "rank 0 listens for the others")
        self.assertEqual(set(ports.values()), {"127.0.0.1"})
        thieves = [thief for port in ports if (thief := wire.steal(port))]
        relay.go_on()
        return job, thieves

    def test_a_stolen_connection_is_made_anew(self):
        for size in (2, 3, 4):
            with self.subTest(ranks=size):
                job, thieves = self.stolen(size)
                outputs = self.ends_undisturbed(job)
                self.assertIn(" over gloo\n", outputs[0])
                heard = [heard_by(thief) for thief in thieves]
                self.assertTrue(any(heard), "no pair was stolen")
                self.tells_nothing(job, b"".join(heard))


def heard_by(connection):
    heard = b""
    connection.settimeout(5)
    try:
        while data := connection.recv(4096):
            heard += data
    except OSError:
        pass
    connection.close()
    return heard


def _peak(pid):
    try:
        return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1])
    except (OSError, TypeError):
        return 0


del Strangers  # has no tests of its own


def main(module="__main__"):
    result = unittest.main(module, exit=False, verbosity=2, warnings="ignore").result
    for test, reason in result.skipped:
        print(f"skipped: {test.id().removeprefix('__main__.')}: {reason}")
    failed = len(result.failures) + len(result.errors)
    skipped = f", {len(result.skipped)} skipped" if result.skipped else ""
    print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed{skipped}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
