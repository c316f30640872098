"""A rank of a pipeline whose process is killed in the middle of training: every other rank, of its stage and of the others, ends within two
seconds with its name, unless the machine keeps it waiting, and never as late as by a time-out."""

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

BIN = Path(sys.argv.pop(1))
RANKS = 4
EQUAL, UNEQUAL = (2, 2), (3, 1)
USUAL_S, LIMIT_S, TIMEOUT_S = 2, 20, 120


class Ranks:
    """The processes of a job, each started by itself: no launcher ends them."""

    def __init__(self, data, transport, stage_ranks):
        # Sockets of this name are the machine's: no other test has it.
        store = f"unix:tessera-lost-stage-{os.getpid()}-{transport}-{time.monotonic_ns()}"
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("TESSERA_", "OMPI_", "PMIX_"))}
        command = [BIN / "train_job", "--data_path", data, "--network", "small_in_stages", "--stage_ranks", ",".join(map(str, stage_ranks)),
                   "--epochs", "100000"]
        self.steps = 0
        self.stepped = threading.Condition()
        self.errors = [b""] * RANKS
        self.ended_at = [None] * RANKS
        self.processes = []
        for rank in range(RANKS):
            environment = inherited | {"TESSERA_RANK": str(rank), "TESSERA_SIZE": str(RANKS), "TESSERA_STORE": store, "TESSERA_TRANSPORT": transport,
                                         "TESSERA_TIMEOUT_MS": str(1000 * TIMEOUT_S)}
            self.processes.append(subprocess.Popen([str(word) for word in command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        self.threads = [threading.Thread(target=self.read, args=(rank,)) for rank in range(RANKS)]
        self.threads.append(threading.Thread(target=self.count_steps))
        for thread in self.threads:
            thread.start()

    def read(self, rank):
        self.errors[rank] = self.processes[rank].stderr.read()
        self.processes[rank].wait()
        self.ended_at[rank] = time.monotonic()

    def count_steps(self):
        for line in self.processes[0].stdout:
            if line.startswith(b"loss "):
                with self.stepped:
                    self.steps += 1
                    self.stepped.notify()

    def wait_for_step(self, step):
        with self.stepped:
            return self.stepped.wait_for(lambda: self.steps >= step, timeout=120)

    def end(self):
        for process in self.processes:
            process.kill()
        for thread in self.threads:
            thread.join()
        for process in self.processes:
            process.stdout.close()
            process.stderr.close()


class LostStage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="tessera-lost-stage."))
        subprocess.run([BIN / "resnet50_cifar10", "--make_data", cls.folder, "--train_records", "320", "--test_records", "40"], check=True,
                       stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def setUp(self):
        self.times = []

    def lose(self, lost, transport, stage_ranks):
        ranks = Ranks(self.folder, transport, stage_ranks)
        try:
            self.assertTrue(ranks.wait_for_step(3), b"\n".join(process.stderr.read() for process in ranks.processes if process.poll() is not None))
            killed_at = time.monotonic()
            ranks.processes[lost].send_signal(signal.SIGKILL)
            for thread in ranks.threads[:RANKS]:
                thread.join(60)
            for rank in range(RANKS):
                if rank == lost:
                    continue
                said = ranks.errors[rank].decode()
                self.assertIsNotNone(ranks.ended_at[rank], f"rank {rank} has not ended")
                self.assertIn(f"because rank {lost} failed: its process has ended without a word", said)
                self.assertEqual(ranks.processes[rank].returncode, 1, said)
                self.assertLess(ranks.ended_at[rank] - killed_at, LIMIT_S, said)
            slowest = max(at for rank, at in enumerate(ranks.ended_at) if rank != lost) - killed_at
            self.times.append(slowest)
            print(f"{transport}: rank {lost} of stage {int(lost >= stage_ranks[0])} killed, the last of the others ended after {slowest:.2f} s")
        finally:
            ranks.end()

    def test_every_other_rank_names_it(self):
        for transport in ("shm", "tls", "gloo"):
            # Of each stage its first rank and another; rank 0 is the one by which ranks find each other.
            for lost in range(RANKS):
                with self.subTest(transport=transport, lost=lost):
                    self.lose(lost, transport, EQUAL)
        self.assertLess(statistics.median(self.times), USUAL_S, self.times)

    def test_of_unequal_stages_too(self):
        for lost in (0, 2, 3):
            with self.subTest(lost=lost):
                self.lose(lost, "shm", UNEQUAL)
        self.assertLess(statistics.median(self.times), USUAL_S, self.times)


if __name__ == "__main__":
    unittest.main(verbosity=2)
