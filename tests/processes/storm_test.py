"""Random signals to the workers, servers, launchers and the scheduler of a job, one after the other: SIGKILL, SIGSTOP and SIGTERM. Outside stands
only a loop that starts again what it has started itself. The losses and the values are those of a job that nobody has disturbed, from
whatever its trainings go on."""

import os
import random
import re
import signal
import time
from pathlib import Path

import recovery_test
from own_tests import OwnTests, main
from recovery_test import ENDLESS, eventually, losses_of, ranks_of

FULL = os.environ.get("TESSERA_TEST_FULL") == "1"
NUM_FAULTS = int(os.environ.get("TESSERA_STORM_SIGNALS", "1000" if FULL else "20"))
SEED = int(os.environ.get("TESSERA_STORM_SEED", "1"))
SILENCE_S = 3
NO_PROGRESS_S = 90


class Storm(recovery_test.Scheduled):
    options = {"scheduler": ["--node_timeout", SILENCE_S]}
    targets = ("worker", "worker", "worker", "left", "right", "scheduler")

    def setUp(self):
        self.draws = random.Random(SEED)
        self.stopped = []  # (process, when it goes on)
        self.log = [f"seed {SEED}"]

    def watch(self):
        """The loop outside: what has ended is started again. Returns whether the job is over."""
        for pid, due in list(self.stopped):
            if time.monotonic() < due:
                continue
            self.stopped.remove((pid, due))
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        if self.processes["scheduler"].poll() == 0:
            return True
        for name, process in self.processes.items():
            if process.poll() is None or (name != "scheduler" and process.returncode == 0):
                continue
            self.processes[name] = self.start(name)
        return False

    def strike(self):
        """One signal to one process; what it was."""
        what = self.draws.choice(self.targets)
        how = self.draws.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
        if what in ("worker", "server"):
            launcher = self.processes[self.draws.choice(["left", "right"])]
            ranks = {rank: pid for rank, pid in ranks_of(launcher).items() if (rank < self.servers) == (what == "server")}
            if not ranks:
                return None
            pid = ranks[self.draws.choice(sorted(ranks))]
        else:
            process = self.processes[what]
            if process.poll() is not None:
                return None
            pid = process.pid
        if how == signal.SIGSTOP:
            # Short, or so long that it is taken for lost.
            self.stopped.append((pid, time.monotonic() + self.draws.choice([0.2, 2 * SILENCE_S])))
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            return None
        return f"{how.name} to {what} {pid}"

    def storm(self, *arguments, only_disturbed=(), **variables):
        """`only_disturbed`: arguments that the job has without which it is compared."""
        over = self.folder / f"over.{self.id()}"
        self.start_job(*ENDLESS, *arguments, *only_disturbed, "--checkpoint_dir", self.folder / self.id(), "--save_steps", 7, "--stop_file", over,
                       restarts=1_000_000, TESSERA_TIMEOUT_MS=1000 * SILENCE_S, **variables)
        num_faults, seen, since, at_step = 0, 0, time.monotonic(), 1
        next_strike = time.monotonic() + 0.5
        while not self.watch():
            step = max(losses_of(self.said()), default=0)
            if step > seen:
                seen, since = step, time.monotonic()
            self.assertLess(time.monotonic() - since, NO_PROGRESS_S, "\n".join([*self.log, self.said()[-20000:]]))
            if num_faults < NUM_FAULTS and time.monotonic() >= next_strike and seen >= at_step:
                if struck := self.strike():
                    num_faults += 1
                    self.log.append(f"{time.strftime('%H:%M:%S')} step {seen}: {struck}")
                # Amid recovery, and amid training.
                next_strike = time.monotonic() + self.draws.uniform(0.02, 0.6)
                at_step = seen + self.draws.choice([0, 0, 1, 20, 80])
            elif num_faults == NUM_FAULTS and seen > at_step:
                over.touch()
            time.sleep(0.02)
        self.addCleanup(print, f"storm: {num_faults} signals, seed {SEED}, {len(losses_of(self.said()))} steps")
        if path := os.environ.get("TESSERA_STORM_LOG"):
            with open(f"{path}.{self.id().rpartition('.')[2]}", "w", encoding="utf-8") as file:
                file.write("\n".join([*self.log, self.said()]))
        self.wait_for_the_last_words()
        try:
            self.assert_undisturbed(self.said(), 4, *ENDLESS, *arguments)
        except AssertionError:
            print("\n".join(self.log))
            raise
        eventually(lambda: not self.left_over(), "nothing that was started runs any more")
        self.assertEqual(len(list((self.folder / self.id()).glob("*.ckpt"))), 1)

    def wait_for_the_last_words(self):
        """When the scheduler has ended, launchers may still have to write what the last ranks have said, and may be stopped."""
        for pid, _ in self.stopped:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        for name in ("left", "right"):
            self.processes[name].wait(timeout=recovery_test.LIMIT_S)

    def left_over(self):
        """Ranks that still run."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(self.data).encode() in words:
                found.append(process.name)
        return found

    def test_F12_a_storm_of_signals_changes_no_bit_of_what_memory_keeps(self):
        self.storm(TESSERA_KEEP_STEPS=1)

    def test_F12_a_storm_of_signals_changes_no_bit_where_memory_keeps_as_often_as_is_cheap(self):
        self.storm()

    def test_F12_a_storm_of_signals_changes_no_bit_where_each_rank_keeps_a_slice(self):
        self.storm("--shards", TESSERA_KEEP_STEPS=1)

    def test_F12_a_storm_of_signals_changes_no_bit_where_memory_keeps_every_fifth_step(self):
        self.storm("--shards", TESSERA_KEEP_STEPS=5)

    def test_F12_a_storm_of_signals_changes_no_bit_of_what_checkpoints_keep(self):
        self.storm(TESSERA_KEEP_STEPS=1_000_000)
        said = self.said()
        self.assertGreater(len(re.findall(r"loss \d+ ", said)), len(losses_of(said)), "steps since the newest checkpoint are made again")


class StormWithServers(Storm):
    """Two ranks train, and two keep their parameters."""
    servers = 2
    targets = ("server", "server", "worker", "worker", "left", "right", "scheduler")

    def test_F12_a_storm_of_signals_changes_no_bit_of_what_servers_keep(self):
        self.storm("--network", "small_on_servers")

    def test_F12_a_storm_of_signals_changes_no_bit_of_a_table_that_workers_read_where_it_lies(self):
        self.storm("--network", "lookup_on_servers")

    def test_F12_a_storm_of_signals_changes_no_bit_of_what_lies_in_files_of_servers(self):
        self.storm("--network", "small_on_servers", only_disturbed=("--server_memory_limit", 1000))
        said = self.said()
        self.assertGreater(len(re.findall(r"loss \d+ ", said)), len(losses_of(said)), "steps since the newest checkpoint are made again")


if __name__ == "__main__":
    main(loader=OwnTests())
