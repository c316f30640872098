"""What strangers to a job can do: nothing. They learn no byte of its secret, name or weights, change no bit of its result, and
neither end it nor keep a rank out. The jobs and the strangers stand in attacked_jobs.py."""

import mmap
import os
import re
import resource
import socket
import unittest
from pathlib import Path

import wire
from attacked_jobs import BIN, JOB_ID, NOBODY, Attack, Strangers, eventually, everything, hangs_up, main, needs_root

RANK_PROGRAM = BIN / "rank_program"


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
        job = self.job(3, TESSERA_TIMEOUT_MS="120000")
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

    def test_who_does_not_join_is_hung_up_on_before_the_job_gives_up(self):
        """One that says nothing, one that stops in mid frame, and one that has proven the secret and then says nothing."""
        job = self.job(2, TESSERA_TIMEOUT_MS="120000")
        job.start(0)

        def crowd(stranger):
            stranger.half_frames(1)
            stranger.idle(2)
            line = stranger.prove()
            at_once = [hangs_up(line, 0) for line in stranger.lines]
            return line is not None, at_once, [hangs_up(line, 30) for line in stranger.lines]

        attack = Attack(crowd, job.address, job.secret)
        self.assertEqual(attack.result, (True, [False] * 4, [True] * 4))
        job.start_others()
        self.ends_undisturbed(job)
        self.tells_nothing(job, attack.end())

    def test_a_flood_of_connections_keeps_no_rank_out(self):
        for kind in ("tcp", "unix"):
            with self.subTest(kind=kind):
                job = self.job(2, kind, TESSERA_TIMEOUT_MS="60000")
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

    def test_who_stands_between_a_rank_and_the_hub_reads_nothing(self):
        job = self.job(2, TESSERA_HOST_ID="the-name-of-this-host")
        job.start(0)
        relay = wire.Relay("tcp:127.0.0.1:0", job.address)
        self.addCleanup(relay.close)
        job.start(1, relay.address)
        self.ends_undisturbed(job)
        for heard in (relay.to_hub, relay.to_rank):
            self.assertGreater(len(heard), 200)
            self.tells_nothing(job, heard)
            for what in (wire.PROTOCOL, b"the-name-of-this-host", b"127.0.0.1", b"/proc/"):
                self.assertNotIn(what, heard)

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

    def test_a_rank_whose_words_come_late_is_hung_up_on_and_joins_again(self):
        job = self.job(2, TESSERA_TIMEOUT_MS="60000")
        job.start(0)
        relay = wire.Relay("tcp:127.0.0.1:0", job.address)
        self.addCleanup(relay.close)
        relay.hold(wire.JOIN)
        job.start(1, relay.address)
        eventually(lambda: relay.num_connections >= 2, "rank 1 has not come again")
        relay.go_on()
        self.ends_undisturbed(job)

    def test_what_is_changed_on_its_way_ends_the_job_and_not_its_result(self):
        for number in (wire.HELLO, wire.FINISHED, wire.JOIN, wire.JOINED):
            with self.subTest(record=number):
                job = self.job(2, TESSERA_TIMEOUT_MS="3000")
                job.start(0)
                relay = wire.Relay("tcp:127.0.0.1:0", job.address)
                self.addCleanup(relay.close)
                relay.change(number)
                job.start(1, relay.address)
                codes, outputs = job.end()
                if set(codes.values()) == {0}:  # the first connection's handshake was spoilt, the second one's was not
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
        job = self.job(2, TESSERA_TIMEOUT_MS="12000")
        job.start(0)
        other = self.job(2, TESSERA_TIMEOUT_MS="5000")
        other.start(1, job.address)
        self.refused(other, 1, "rank 1 cannot join the job: what answers at .* does not know this rank's secret")
        self.tells_nothing(job, self.refused(job, 0, r"rank 1 did not join the job within 12000 ms; \d+ connections? did not prove").encode())

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
        relay.hold(wire.JOINED)
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

    def test_who_joins_as_no_rank_is_hung_up_on(self):
        """With the secret, so that the rank is read; nothing of what it is may end rank 0."""
        job = self.job(2)
        job.start(0)
        texts = ("no number", "", "-1", "1x", " 1", "0x1", "1.0", "1e0", str(2**31), str(2**63), str(2**70), "9" * 200, "\x00", "\u0661")
        bodies = [f"{JOB_ID}\0{rank}\0{size}\0host" for text in texts for rank, size in ((text, 2), (1, text))]
        bodies += ["", "x", JOB_ID, f"{JOB_ID}\0" "1", f"{JOB_ID}\0" "1\0" "2", f"{JOB_ID}\0" "1\0" "2\0host\0more", "\0" * 100]

        def claim(stranger):
            answers = []
            for body in bodies:
                line = stranger.prove()
                line.send_frame(b"J", body.encode())
                answers.append(line.read())
            return answers

        attack = Attack(claim, job.address, job.secret)
        for body, answer in zip(bodies, attack.result, strict=True):
            with self.subTest(body):
                self.assertTrue(answer is None or answer[0] == b"R", answer)
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
                    self.assertEqual(len(wire.answer_asked(line, [b"shm", str(path).encode()])), 2)
                    self.refused(job, 1, "cannot open the shared memory of rank 0")
        os.close(other)


def _peak(pid):
    try:
        return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1])
    except (OSError, TypeError):
        return 0


if __name__ == "__main__":
    main()
