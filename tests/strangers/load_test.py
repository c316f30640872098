"""Load at a scheduler's port, of strangers and of members: what it costs has a bound, and members go on. The scheduler is a process; members
and workers are simulated (benchmarks/simulated_workers.py). The tests carry the numbers of docs/faults.md."""

import json
import os
import re
import resource
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import attacked_jobs
import hostile_load
from attacked_jobs import BIN, FORK, eventually
from simulated_workers import Certificates, Member, Scheduler, Swarm, frame, register, text

TESSERA = BIN / "tessera"
FULL = os.environ.get("TESSERA_TEST_FULL") == "1"
MEMBERS = ["a", "b", "c"]


def kept_waiting_s(tasks):
    """How long threads have waited for a core that others had, together, in seconds."""
    return sum(int(path.read_text().split()[1]) for path in tasks) / 1e9


def p99(times):
    return sorted(times)[int(0.99 * (len(times) - 1))]


class AtAScheduler(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="tessera-load."))
        self.addCleanup(shutil.rmtree, self.folder)
        self.certificates = Certificates(self.folder, TESSERA)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def start(self, workers=len(MEMBERS), *options, descriptors=None):
        self.scheduler = Scheduler(TESSERA, self.folder, workers, self.certificates, "--max_restarts", 9, *options, descriptors=descriptors)
        self.addCleanup(self.end)

    def end(self):
        """Once: what it has said."""
        if not hasattr(self, "said"):
            self.said = self.scheduler.kill()
        return self.said

    def member(self, node_id=None, context="client", **fields):
        member = Member(self.scheduler.port, self.certificates.context(context))
        self.addCleanup(member.close)
        if node_id:
            self.assertEqual(member.enroll(node_id, **fields), "")
        return member

    def running(self):
        """Members of a generation."""
        members = [self.member(node_id) for node_id in MEMBERS]
        for member in members:
            self.assertIsNotNone(member.hear("Assigned"))
        return members

    def beats_of(self, members, seconds):
        """How long heartbeats take meanwhile, without what other processes of the machine keep the two sides waiting for."""
        tasks = [*Path(f"/proc/{self.scheduler.process.pid}/task").glob("*/schedstat"), Path("/proc/thread-self/schedstat")]
        times, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            for member in members:
                before = kept_waiting_s(tasks)
                taken = member.beat()
                times.append(max(taken - (kept_waiting_s(tasks) - before), 0))
            time.sleep(0.01)
        return times

    def resident_kib(self):
        return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.scheduler.process.pid}/status").read_text())[1])

    def test_F66_ten_thousand_idle_connections_and_a_loop_of_others_leave_the_members_their_heartbeats(self):
        self.start()
        members = self.running()
        before = self.resident_kib()
        idle = [socket.create_connection(("127.0.0.1", self.scheduler.port)) for _ in range(300)]
        over = FORK.Event()
        flooding = FORK.Process(target=self.flood, args=(over,), daemon=True)
        flooding.start()
        try:
            times = self.beats_of(members, 30 if FULL else 5)
        finally:
            over.set()
            flooding.join()
        self.assertLess(p99(times), 0.1)
        self.assertLess(self.resident_kib() - before, 16 << 10)
        eventually(lambda: all(hostile_load.Crowd.has_ended(line) for line in idle), "those that said nothing are hung up on")

    def flood(self, over):
        crowd = hostile_load.Idle(self.scheduler.port, 10_000 if FULL else 2_000)
        while not over.is_set():
            crowd.work()
            time.sleep(0.001)
        crowd.end()

    def test_F67_a_byte_a_second_and_replies_that_nobody_reads_end_at_their_deadlines(self):
        self.start()
        members = self.running()
        slow = hostile_load.Slow(self.scheduler.port, 20)
        slow.fill()
        lines, begin = list(slow.lines), time.monotonic()
        half_a_frame = self.member()
        half_a_frame.say(register(["d"])[:20])
        while not all(line.fileno() == -1 for line in lines):
            self.assertLess(time.monotonic() - begin, 30, "they have 5 seconds for their handshake")
            slow.work()
            self.beats_of(members, 0.2)
        self.assertEqual(half_a_frame.refusal("Welcome"), "without a word")
        deaf = members.pop()
        before = self.resident_kib()
        members[0].say(frame("SetValue", text("large") + text(bytes(1 << 20)), members[0].generation))
        try:
            for _ in range(200):
                deaf.say(frame("GetValue", text("large"), deaf.generation))
        except OSError:
            pass
        self.beats_of(members, 1)
        self.assertLess(self.resident_kib() - before, 64 << 10, "16 MiB may wait for one who does not read")

    def test_F68_handshakes_without_end_leave_the_members_their_heartbeats(self):
        self.start()
        members = self.running()
        strangers = FORK.Process(target=self.shake_hands, args=(10,), daemon=True)
        strangers.start()
        times = self.beats_of(members, 6)
        strangers.join()
        self.assertLess(p99(times), 0.1)

    def shake_hands(self, seconds):
        """Each costs the scheduler a signature and an exchange of keys."""
        hello, end = hostile_load.client_hello(), time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                with socket.create_connection(("127.0.0.1", self.scheduler.port), timeout=1) as line:
                    line.sendall(hello)
                    line.recv(65536)
            except OSError:
                pass

    def test_F71_a_member_beyond_its_quotas_or_that_speaks_for_others_harms_itself_alone(self):
        self.start()
        a, b, c = self.running()
        kind = frame("SetValue")[:4]
        for member, words, *frames in (
                (a, "SetValue|value", kind + (1 << 30).to_bytes(4, "little") + bytes(8)),
                (b, "its values have more than 8388608 bytes",
                 *(frame("SetValue", text(str(number)) + text(bytes(1 << 20)), b.generation) for number in range(9)))):
            try:
                for one in frames:
                    member.say(one)
            except OSError:
                pass
            self.assertRegex(member.refusal("HeartbeatAnswer"), words)
            c.beat()
        stranger = self.member()
        self.assertRegex(stranger.enroll("d"), "3 workers")  # nobody takes a place that is not free
        c.say(frame("Leave", text("a") + bytes(8) + b"\1" + text("it has failed, says another"), c.generation))
        self.assertNotEqual(c.refusal("HeartbeatAnswer"), "")
        self.assertNotIn("left", self.states().values())

    def test_F72_who_is_there_stays_when_descriptors_run_out_and_the_log_says_so_seldom(self):
        self.start(descriptors=64)
        members = self.running()
        crowd = [socket.create_connection(("127.0.0.1", self.scheduler.port)) for _ in range(200)]
        times = self.beats_of(members, 3)
        self.assertLess(p99(times), 0.1)
        for line in crowd:
            line.close()
        self.member()
        self.assertLess(len(self.end().splitlines()), 20)

    def test_F73_workers_that_return_at_once_are_all_in_with_the_ranks_that_they_had(self):
        count = 1000 if FULL else 200
        self.start(count, "--node_timeout", 600)
        swarm = Swarm(count, self.certificates.context())
        self.addCleanup(swarm.leave)
        swarm.come(self.scheduler.port, 120)
        before = self.ranks()
        self.assertEqual(sorted(before.values()), list(range(count)))
        self.scheduler.kill()
        swarm.leave()
        self.scheduler.start()
        print(f"{count} workers are in after {swarm.come(self.scheduler.port, 120):.1f} s")
        self.assertEqual(self.ranks(), before)

    def nodes(self):
        found = subprocess.run([TESSERA, "cluster", "status", f"127.0.0.1:{self.scheduler.port}", "--json"], capture_output=True, text=True, check=True,
                               env=os.environ | self.certificates.environment)
        return json.loads(found.stdout)["nodes"]

    def ranks(self):
        return {node["node_id"]: node["rank"] for node in self.nodes()}

    def states(self):
        return {node["node_id"]: node["state"] for node in self.nodes()}

    def test_F74_what_members_say_is_one_line_each_and_escaped_and_a_flood_of_refusals_is_not_logged(self):
        # Its members say nothing meanwhile, however long that takes, and stay.
        self.start(len(MEMBERS), "--node_timeout", 600)
        self.running()
        begin, evil = time.monotonic(), "\x1b[2Jhost\nthe job has failed"
        for number in range(300):
            member = self.member()
            self.assertNotEqual(member.enroll(f"other{number}", host=evil), "")
            if number < 20:
                member = self.member()
                self.assertRegex(member.enroll(f"node\n\x1b[31m{number}"), "node id")
        newer = self.member()
        self.assertEqual(newer.enroll("a", host=evil, incarnation=9), "")
        said, seconds = self.end(), time.monotonic() - begin
        self.assertNotIn("\x1b", said)
        self.assertNotIn("\nthe job has failed", said)
        self.assertLess(len(said.splitlines()), 50 + 2 * seconds)  # reasons are said once a second


if __name__ == "__main__":
    attacked_jobs.main(__name__)
