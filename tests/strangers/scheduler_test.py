"""What strangers to a scheduler's port can do: nothing. `tessera scheduler` and ranks that join by it are processes, and so are the
strangers, of this user and, where root can be somebody else, of another. strangers_test.py does the same to the hub."""

import errno
import json
import os
import re
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

import attacked_jobs
from attacked_jobs import BIN, JOB, NOBODY, STEPS, Attack, eventually, needs_root
from hostile_load import client_hello
from simulated_workers import text

TESSERA = BIN / "tessera"
NODE_ID = "the-name-of-a-node"


def half_hellos(stranger, count):
    for _ in range(count):
        stranger.connect().send(client_hello()[:-1])


def everything(stranger):
    """What one without the secret may try."""
    hello = client_hello()
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\xff" * 5000, os.urandom(4096), hello, hello[:100] + b"x" * 9000,
                 b"TR\10\1" + bytes(12), b"TR\10\1\xff\xff\xff\xff" + bytes(8), b"\x16\3\1\xff\xff" + bytes(4000)):
        line = stranger.connect()
        try:
            line.send(data)
            while heard := line.socket.recv(65536):
                line.heard += heard
        except OSError:
            pass
    half_hellos(stranger, 6)
    stranger.idle(10)


class Relay:
    """Stands between members and the scheduler, keeps what members say and may change one of their bytes."""

    def __init__(self, port, change_at=None):
        self.target, self.change_at, self.said = port, change_at, b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                member = self.listener.accept()[0]
                scheduler = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            threading.Thread(target=self._pass, args=(member, scheduler, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(scheduler, member, False), daemon=True).start()

    def _pass(self, source, target, keeps):
        try:
            while data := source.recv(65536):
                if keeps:
                    place = None if self.change_at is None else self.change_at - len(self.said)
                    self.said += data
                    if place is not None and 0 <= place < len(data):
                        data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1:]
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()


class ScheduledJob:
    """A scheduler and ranks that join by it."""

    def __init__(self, folder, size, secret=None, **environment):
        self.folder, self.size, self.secret = Path(tempfile.mkdtemp(dir=folder)), size, secret or secrets.token_bytes(32)
        self.secret_file = self.folder / "secret"
        self.secret_file.touch(0o600)
        self.secret_file.write_bytes(self.secret)
        self.environment, self.processes, self.port = environment, [], 0

    def run(self, command, **options):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "MS_"))}
        env |= {"TESSERA_SECRET_FILE": str(self.secret_file), "TESSERA_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **self.environment,
                **options.pop("env", {})}
        process = subprocess.Popen([str(word) for word in command], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        self.processes.append(process)
        return process

    def start_scheduler(self, *arguments, **options):
        self.scheduler = self.run((TESSERA, "scheduler", "--workers", self.size, "--port", self.port, *arguments), **options)
        line = self.scheduler.stdout.readline()
        found = re.search(r"listening at 127\.0\.0\.1:(\d+) for", line)
        assert found, line + self.scheduler.stdout.read()
        self.port = int(found[1])
        return self.scheduler

    @property
    def address(self):
        return f"tcp:127.0.0.1:{self.port}"

    def start_rank(self, number, port=None, arguments=(), **env):
        return self.run((JOB, STEPS, self.folder, *arguments), env={"TESSERA_SCHEDULER": f"127.0.0.1:{port or self.port}",
                                                                    "TESSERA_NODE_ID": f"{NODE_ID}-{number}", **env})

    def start_ranks(self, *arguments):
        return [self.start_rank(number, arguments=arguments) for number in range(self.size)]

    def status(self):
        out = self.run((TESSERA, "cluster", "status", f"127.0.0.1:{self.port}", "--json")).communicate(timeout=30)[0]
        return json.loads(out)

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def weights(self):
        return (self.folder / f"step_{STEPS}").read_bytes()


def open_gate_if_awaited(gate):
    """Rank 0 may have heard already that the job has failed, and wait no more."""
    try:
        descriptor = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return
    os.write(descriptor, b"go\n")
    os.close(descriptor)


class AtTheSchedulersPort(unittest.TestCase):
    variables = {}

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="tessera-scheduler."))
        cls.make_identities()
        job = ScheduledJob(cls.folder, 2, **cls.variables)
        job.start_scheduler()
        outputs = [rank.communicate(timeout=90)[0] for rank in job.start_ranks()]
        assert {process.wait(timeout=30) for process in job.processes} == {0}, outputs
        cls.undisturbed = job.weights()

    @classmethod
    def make_identities(cls):
        """The secret of each job is enough."""

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def job(self, size=2, **options):
        job = ScheduledJob(self.folder, size, **{**self.variables, **options})
        self.addCleanup(job.kill)
        return job

    def ends_undisturbed(self, job, ranks):
        outputs = [rank.communicate(timeout=90)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0] * len(ranks), outputs)
        self.assertEqual(job.scheduler.wait(timeout=30), 0)
        self.assertEqual(job.weights(), self.undisturbed)
        self.tells_nothing(job, "".join(outputs).encode())

    def tells_nothing(self, job, heard):
        """No secret, no node, no address of a rank, no weight is among these bytes."""
        for what in (job.secret, job.secret.hex().encode(), NODE_ID.encode(), str(job.secret_file).encode(), b"tcp:"):
            self.assertNotIn(what, heard)
        for start in range(0, len(self.undisturbed), 8):
            self.assertNotIn(self.undisturbed[start:start + 8], heard)

    def attacked(self, user):
        job = self.job()
        job.start_scheduler()
        first = Attack(everything, job.address, user=user)
        ranks = [job.start_rank(0)]
        second = Attack(everything, job.address, user=user)
        ranks.append(job.start_rank(1))
        self.ends_undisturbed(job, ranks)
        for attack in (first, second):
            self.tells_nothing(job, attack.end())

    def test_F63_strangers_learn_and_change_nothing(self):
        self.attacked(None)

    @needs_root
    def test_other_users_learn_and_change_nothing(self):
        self.attacked(NOBODY)

    def test_strangers_in_the_middle_of_a_job_learn_and_change_nothing(self):
        job = self.job(TESSERA_TIMEOUT_MS="120000")
        job.start_scheduler()
        gate = job.folder / "gate"
        os.mkfifo(gate)
        ranks = job.start_ranks(gate)
        eventually(lambda: job.status()["phase"] == "running", "the job runs")
        attack = Attack(everything, job.address)
        gate.write_text("go\n")
        self.ends_undisturbed(job, ranks)
        self.tells_nothing(job, attack.end())

    def test_F66_a_thousand_idle_connections_and_sixty_half_frames_cost_little(self):
        job = self.job()
        scheduler = job.start_scheduler(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))

        def use():
            text = Path(f"/proc/{scheduler.pid}/status").read_text()
            return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]), len(os.listdir(f"/proc/{scheduler.pid}/fd"))

        memory, descriptors = use()

        def crowd(stranger):
            for _ in range(60):
                stranger.idle(16)
                half_hellos(stranger, 1)
            stranger.idle(40)

        attack = Attack(crowd, job.address)
        after = use()
        self.assertLess(after[0] - memory, 16 << 10)
        self.assertLess(after[1] - descriptors, 100)
        self.ends_undisturbed(job, job.start_ranks())
        self.tells_nothing(job, attack.end())

    def test_F66_a_flood_of_connections_keeps_no_rank_out(self):
        job = self.job(TESSERA_JOIN_TIMEOUT_MS="60000")
        job.start_scheduler()
        floods = [Attack(lambda stranger: stranger.flood(), job.address) for _ in range(3)]
        self.ends_undisturbed(job, job.start_ranks())
        for flood in floods:
            self.tells_nothing(job, flood.end())

    def test_a_wrong_secret_is_named_on_both_sides(self):
        job, other = self.job(), self.job(TESSERA_JOIN_TIMEOUT_MS="300000")
        job.start_scheduler()
        rank = other.start_rank(0, port=job.port)
        out = rank.communicate(timeout=60)[0]
        self.assertEqual(rank.returncode, 1)
        # It is shown some times, and does not wait for the end of the time to join.
        self.assertIn("it does not know the job's secret, or is no scheduler", out)
        self.assertIn("it has another secret than this process, or is no scheduler", out)
        self.ends_undisturbed(job, job.start_ranks())
        self.assertRegex(job.scheduler.stdout.read(), r"turned away a connection from 127\.0\.0\.1: it does not know the job's secret")

    def test_F64_what_a_member_said_is_of_no_use_to_who_says_it_again(self):
        first = self.job()
        first.start_scheduler()
        relay = Relay(first.port)
        self.addCleanup(relay.close)
        self.ends_undisturbed(first, [first.start_rank(0), first.start_rank(1, port=relay.port)])
        self.assertGreater(len(relay.said), 500)
        second = self.job(secret=first.secret)
        second.start_scheduler()

        def replay(stranger):
            line = stranger.connect()
            try:
                line.send(relay.said)
                while heard := line.socket.recv(65536):
                    line.heard += heard
            except OSError:
                pass

        attack = Attack(replay, second.address)
        self.assertEqual(second.status()["nodes"], [])
        self.ends_undisturbed(second, second.start_ranks())
        self.tells_nothing(second, attack.end())

    def test_F25_what_is_changed_on_its_way_changes_no_result(self):
        for place in (20, 300, 450, 700):
            with self.subTest(place=place):
                job = self.job()
                job.start_scheduler()
                relay = Relay(job.port, change_at=place)
                self.addCleanup(relay.close)
                # Its connection ends, and it comes again.
                self.ends_undisturbed(job, [job.start_rank(0), job.start_rank(1, port=relay.port)])

    def test_a_member_tells_a_false_scheduler_nothing_and_finds_the_true_one(self):
        job = self.job(size=1)
        false_one = socket.create_server(("127.0.0.1", 0))
        job.port = false_one.getsockname()[1]
        rank = job.start_rank(0)
        heard = b""
        for answer in (b"", os.urandom(500), client_hello()):
            line = false_one.accept()[0]
            line.settimeout(60)
            heard += line.recv(65536)
            line.sendall(answer)
            line.close()
        false_one.close()
        # The host's name as it would be said: it may be so short that it stands in random bytes.
        for what in (job.secret, NODE_ID.encode(), text(socket.gethostname())):
            self.assertNotIn(what, heard)
        job.start_scheduler()
        self.assertEqual(rank.wait(timeout=60), 0)
        self.assertEqual(job.scheduler.wait(timeout=30), 0)

    def test_F03_a_scheduler_that_is_killed_and_started_again_is_not_missed(self):
        job = self.job(TESSERA_TIMEOUT_MS="120000")
        state = job.folder / "state"
        job.start_scheduler("--state", state)
        gate = job.folder / "gate"
        os.mkfifo(gate)
        ranks = job.start_ranks(gate)
        eventually(lambda: job.status()["phase"] == "running", "the job runs")
        ranks_before = [(node["node_id"], node["rank"]) for node in job.status()["nodes"]]
        self.assertEqual(state.stat().st_mode & 0o777, 0o600)
        job.scheduler.send_signal(signal.SIGKILL)
        job.scheduler.wait(timeout=30)
        job.start_scheduler("--state", state)
        eventually(lambda: [node["state"] for node in job.status()["nodes"]] == ["present", "present"], "they have come back")
        self.assertEqual([(node["node_id"], node["rank"]) for node in job.status()["nodes"]], ranks_before)
        gate.write_text("go\n")
        self.ends_undisturbed(job, ranks)

    def test_a_rank_that_is_killed_ends_the_job_with_its_name(self):
        job = self.job(size=3, TESSERA_TIMEOUT_MS="120000")
        job.start_scheduler()
        gate = job.folder / "gate"
        os.mkfifo(gate)
        ranks = job.start_ranks(gate)
        eventually(lambda: job.status()["phase"] == "running" and all(node["started"] for node in job.status()["nodes"]), "the job runs")
        ranks[2].kill()
        for rank in ranks[1:2]:
            self.assertRegex(rank.communicate(timeout=60)[0], "because rank 2 failed")
            self.assertEqual(rank.returncode, 1)
        open_gate_if_awaited(gate)
        self.assertEqual(job.scheduler.wait(timeout=60), 1)
        self.assertRegex(job.scheduler.stdout.read(), "the job has failed: node the-name-of-a-node-[0-2] failed")

    def test_a_file_that_others_may_read_is_no_secret_and_no_scheduler_listens_everywhere(self):
        job = self.job()
        job.secret_file.chmod(0o640)
        process = job.run((TESSERA, "scheduler", "--workers", 2, "--port", 0))
        self.assertRegex(process.communicate(timeout=30)[0], "others may read or write it; chmod 600")
        self.assertEqual(process.returncode, 1)
        job.secret_file.chmod(0o600)
        for host in ("0.0.0.0", "::"):
            process = job.run((TESSERA, "scheduler", "--workers", 2, "--port", 0, "--host", host))
            self.assertRegex(process.communicate(timeout=30)[0], "at one interface's address, not at all of them")
            self.assertEqual(process.returncode, 2)


class WithCertificates(AtTheSchedulersPort):
    """The same attacks where certificates take the secret's place, and those that certificates invite."""

    @classmethod
    def make_identities(cls):
        password = cls.folder / "password"
        password.touch(0o600)
        password.write_text("the password of the certificates\n")
        cls.variables = {"TESSERA_TLS_PASSWORD_FILE": str(password), "TESSERA_TLS_CONFIG": str(cls.folder / "tls" / "config.json")}
        subprocess.run([TESSERA, "cluster", "make-certificates", cls.folder / "tls", "--nodes", f"{NODE_ID}-1"], check=True,
                       env={**os.environ, **cls.variables})

    def config(self, name):
        """A configuration with the certificate of this name in place of the workers'."""
        path = self.folder / "tls" / f"{name}.json"
        path.write_text((self.folder / "tls" / "config.json").read_text().replace("client.p12", f"{name}.p12"))
        return {"TESSERA_TLS_CONFIG": str(path)}

    def test_a_wrong_secret_is_named_on_both_sides(self):
        """Here it is another authority's certificate."""
        job = self.job()
        job.start_scheduler()
        subprocess.run([TESSERA, "cluster", "make-certificates", job.folder / "other"], check=True, env={**os.environ, **self.variables})
        out = job.start_rank(0, TESSERA_TLS_CONFIG=str(job.folder / "other" / "config.json"), TESSERA_JOIN_TIMEOUT_MS="6000").communicate(timeout=60)[0]
        self.assertRegex(out, "has not reached it .its certificate is not to be trusted")
        self.ends_undisturbed(job, job.start_ranks())

    def test_F60_a_certificate_is_good_for_its_node_and_its_role_only(self):
        job = self.job()
        job.start_scheduler()
        for name, number, reason in ((f"{NODE_ID}-1", 0, f"its certificate does not name node {NODE_ID}-0"),
                                     ("observer", 0, "its certificate is of role observer, which is no worker"),
                                     ("server", 0, "is of role scheduler, with which nobody joins a job")):
            with self.subTest(name):
                rank = job.start_rank(number, **self.config(name))
                self.assertIn(reason, rank.communicate(timeout=60)[0])
                self.assertEqual(rank.returncode, 1)
        self.ends_undisturbed(job, [job.start_rank(0), job.start_rank(1, **self.config(f"{NODE_ID}-1"))])

    def test_F58_who_is_revoked_loses_its_connection_and_comes_no_more(self):
        job = self.job(TESSERA_TLS_CONFIG=str(self.folder / "own" / "config.json"))
        subprocess.run([TESSERA, "cluster", "make-certificates", self.folder / "own"], check=True, env={**os.environ, **job.environment})
        job.start_scheduler()
        rank = job.start_rank(0, TESSERA_JOIN_TIMEOUT_MS="300000")
        observer = {"TESSERA_TLS_CONFIG": str(self.folder / "own" / "observer.json")}
        Path(observer["TESSERA_TLS_CONFIG"]).write_text((self.folder / "own" / "config.json").read_text().replace("client.p12", "observer.p12"))
        job.environment |= observer
        eventually(lambda: [node["state"] for node in job.status()["nodes"]] == ["present"], "the rank is there")
        subprocess.run([TESSERA, "cluster", "make-certificates", self.folder / "own", "--revoke", "client"], check=True,
                       env={**os.environ, **job.environment})
        eventually(lambda: [node["state"] for node in job.status()["nodes"]] != ["present"], "it is hung up on")
        self.assertIn("the certificate of this process is on the scheduler's list of revoked ones", rank.communicate(timeout=60)[0])

    def test_F61_the_password_is_seen_nowhere(self):
        job = self.job(TESSERA_TLS_PASSWORD_FILE="", TESSERA_TLS_PASSWORD="the password of the certificates")
        scheduler = job.start_scheduler()
        self.assertNotIn(b"the password of", Path(f"/proc/{scheduler.pid}/environ").read_bytes())
        ranks = job.start_ranks()
        self.ends_undisturbed(job, ranks)


if __name__ == "__main__":
    attacked_jobs.main(__name__)
