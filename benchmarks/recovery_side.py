"""How long a job that trains is held up when one of its ranks is lost, in seconds. A round is KILLS of them, of ranks that are drawn; its
value is the quantile that is asked for, of one of these times:
  step       from the signal to the end of the next step
  left       from the signal until all others have left what they waited in
  survivors  from the signal until all ranks begin the next step, of which the first operator follows: a spare is ready, and takes the lost
             rank's place
With --measure resize a round is one time that an elastic job goes from four ranks to three, to two, to four; its value is the time from the
command until all ranks begin their next step, of the change that --change names.
With --measure own it is the mean time of a step of a job that loses nobody. That job is started for each round, so that it runs
beside no other side."""
import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KILLS = 50
BEGINS_ANEW = "this rank begins anew"
BEGINS = re.compile(r"begins \d+: rank (\d+) of (\d+) in generation (\d+)")
IS_SPARE = "these wait, and take the place of one that is lost"
IS_NEWCOMER = "it takes these ranks in when it saves next"
CHANGES = {"4to3": 3, "3to2": 2, "2to4": 4}


def children_of(pid):
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


class Job:
    def __init__(self, arguments, data):
        self.environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "TESSERA_BUDDIES": "0" if arguments.no_buddies else "1"}
        command = [arguments.bin / "tessera", "run", "-n", arguments.ranks // arguments.launchers, "--num_threads", 1]
        self.beside = []
        if arguments.launchers > 1:
            scheduler = self.start([arguments.bin / "tessera", "scheduler", "--workers", arguments.ranks, "--port", 0,
                                    "--max_restarts", arguments.restarts], stdout=subprocess.PIPE)
            self.beside.append(scheduler)
            command += ["--join", re.search(r"listening at (\S+) for", scheduler.stdout.readline())[1]]
        else:
            command += ["--max_restarts", arguments.restarts]
        if arguments.transport:
            command += ["--transport", arguments.transport]
        if arguments.timeout:
            command += ["--timeout", arguments.timeout]
        program = [arguments.bin / "train_job", "--data_path", data, "--network", arguments.network, "--steps", 10, "--epochs", 1_000_000]
        if arguments.shards:
            program.append("--shards")
        # Ranks are ordered by the names of their launchers: rank 0, which says the losses, is the first one's.
        nodes = [["--node_id", f"launcher_{number}"] if arguments.launchers > 1 else [] for number in range(arguments.launchers)]
        self.beside += [self.start([*command, *node, *program], stdout=subprocess.DEVNULL) for node in nodes[1:]]
        self.process = self.start([*command, *nodes[0], *program], stdout=subprocess.PIPE)
        self.ranks, self.last_step, self.step_began, self.own_times = arguments.ranks, 0, None, []

    def start(self, command, stdout):
        return subprocess.Popen([str(word) for word in command], env=self.environment, stdout=stdout, stderr=subprocess.STDOUT, text=True)

    def end(self):
        for process in (self.process, *self.beside):
            process.kill()
            process.wait()

    def read(self):
        """The next line; a step that has ended is noted."""
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"recovery_side: the job has ended with exit code {self.process.wait()}")
        if found := re.search(r"loss (\d+) ", line):
            now, self.last_step = time.monotonic(), int(found[1])
            if self.step_began is not None:
                self.own_times.append(now - self.step_began)
            self.step_began = now
        return line

    def await_step(self):
        while "loss " not in self.read():
            pass

    def hold_up(self, number):
        """(until the last survivor has left what it waited in, until the next step has ended, how many steps were made again)"""
        for _ in range(3):
            self.await_step()
        guards = [guard for guard in children_of(self.process.pid) if children_of(guard)]
        victim = children_of(random.choice(guards))[0]
        start = time.monotonic()
        os.kill(victim, number)
        made, survivors, num_left = self.last_step, None, 0
        while True:
            line = self.read()
            if BEGINS_ANEW in line:
                num_left += 1
                self.step_began = None
                if num_left == self.ranks - 1:
                    survivors = time.monotonic() - start
            elif "loss " in line and num_left == 0:
                made = self.last_step  # it had ended when the signal came
            elif "loss " in line and num_left == self.ranks - 1:
                return survivors, time.monotonic() - start, made + 1 - self.last_step

    def about(self, lost):
        own = sorted(self.own_times)
        return f"{len(lost)} losses: {sum(lost)} steps made again; a step takes {1000 * own[len(own) // 2]:.1f} ms"


class Launchers:
    """A scheduler, and launchers of one rank each, which come and go. What all of them write comes through one pipe."""

    def __init__(self, arguments, data, ranks, *options):
        self.arguments, self.data, self.generation, self.number, self.launchers = arguments, data, 1, 0, []
        self.size = ranks  # of the generation that has spoken last
        read_end, self.write_end = os.pipe()
        self.out = os.fdopen(read_end, encoding="utf-8", errors="replace")
        self.scheduler = self.start("scheduler", "--workers", ranks, "--port", 0, *options)
        self.address = re.search(r"listening at (\S+) for", self.await_words("listening at"))[1]
        for _ in range(ranks):
            self.launch()
        self.await_ranks(ranks)

    def start(self, *words):
        return subprocess.Popen([self.arguments.bin / "tessera", *map(str, words)], env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}, stdout=self.write_end,
                                stderr=subprocess.STDOUT)

    def launch(self):
        self.number += 1
        transport = ["--transport", self.arguments.transport] if self.arguments.transport else []
        self.launchers.append(self.start("run", "--join", self.address, "--node_id", f"node_{self.number}", "-n", 1, "--num_threads", 1, *transport,
                                         self.arguments.bin / "train_job", "--data_path", self.data, "--network", self.arguments.network, "--says_begin",
                                         "--steps", self.arguments.steps_of_an_epoch, "--epochs", 1_000_000))

    def read(self):
        if self.scheduler.poll() is not None:
            raise SystemExit(f"recovery_side: the scheduler has ended with exit code {self.scheduler.returncode}")
        line = self.out.readline()
        if found := BEGINS.search(line):
            self.size = int(found[2])
        return line

    def await_words(self, words):
        while words not in (line := self.read()):
            pass
        return line

    def await_ranks(self, number, generation=1):
        """Until so many ranks have begun a step of that generation, or of a later one; returns when the last of them has."""
        begun = {}
        while True:
            if found := BEGINS.search(self.read()):
                rank, size, its_generation = map(int, found.groups())
                if its_generation >= generation and size == number:
                    begun.setdefault(its_generation, set()).add(rank)
                    if len(begun[its_generation]) == number:
                        self.generation = its_generation
                        return time.monotonic()

    def forget_ended(self):
        for launcher in [launcher for launcher in self.launchers if launcher.poll() is not None]:
            self.launchers.remove(launcher)

    def lose_one(self):
        """From the signal until all ranks have begun a step, a spare among them."""
        running = list(self.launchers)
        self.launch()
        self.await_words(IS_SPARE)
        for _ in range(3):
            self.await_ranks(len(running), self.generation)
        lost = random.choice(running)
        (guard,) = [child for child in children_of(lost.pid) if children_of(child)]
        start = time.monotonic()
        os.kill(children_of(guard)[0], signal.SIGKILL)
        held_up = self.await_ranks(len(running), self.generation + 1) - start
        lost.wait()
        self.launchers.remove(lost)
        return held_up

    def resize(self, number):
        """From the command until all ranks have begun a step; None where an epoch has ended before the command, which takes newcomers in, too."""
        before = len(self.launchers)
        for _ in range(number - before):
            self.launch()
            self.await_words(IS_NEWCOMER)
        is_by_command = self.size == before
        start = time.monotonic()
        done = subprocess.run([self.arguments.bin / "tessera", "cluster", "resize", self.address, str(number)], stdout=subprocess.DEVNULL)
        changed = self.await_ranks(number, self.generation + 1) - start
        while len(self.launchers) > number:  # those that leave end by themselves
            self.await_ranks(number, self.generation)
            self.forget_ended()
        return changed if is_by_command and done.returncode == 0 else None

    def end(self):
        for process in (*self.launchers, self.scheduler):
            process.kill()
            process.wait()


def quantile_of(values, quantile):
    return sorted(values)[min(len(values) - 1, int(quantile * len(values)))]


def own_time(arguments, data):
    job = Job(arguments, data)
    try:
        for _ in range(arguments.warmup_steps):  # they compile, touch memory, and measure what a copy costs
            job.await_step()
        job.own_times = []
        for _ in range(arguments.steps):
            job.await_step()
        return sum(job.own_times) / len(job.own_times)  # of all: few of them are kept
    finally:
        job.end()


def measure_launchers(arguments, data):
    is_resized = arguments.measure == "resize"
    job = Launchers(arguments, data, arguments.ranks, *(["--min_ranks", 2, "--max_ranks", 4] if is_resized else ["--spares", 1]))

    def measure():
        while is_resized:
            times = {change: job.resize(number) for change, number in CHANGES.items()}
            if times[arguments.change] is not None:
                return times[arguments.change]
        return quantile_of([job.lose_one() for _ in range(arguments.kills)], arguments.quantile)

    try:
        if not is_resized:
            job.lose_one()
        print(json.dumps({"ready": True, "unit": "s"}), flush=True)
        for line in sys.stdin:
            if line.strip() != "go":
                break
            print(json.dumps({"value": measure()}), flush=True)
    finally:
        job.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path, help="where the programs are")
    parser.add_argument("--measure", choices=("step", "left", "survivors", "resize", "own"), default="step")
    parser.add_argument("--change", choices=CHANGES, default="4to3", help="of --measure resize")
    parser.add_argument("--signal", choices=("SIGKILL", "SIGSTOP"), default="SIGKILL")
    parser.add_argument("--timeout", type=float, default=0, help="seconds after which a silent rank is lost")
    parser.add_argument("--restarts", type=int, default=1_000_000, help="0: the job keeps nothing, and a loss would be its end")
    parser.add_argument("--transport", default="")
    parser.add_argument("--launchers", type=int, default=1, help="that share the ranks; of several with a scheduler beside them")
    parser.add_argument("--shards", action="store_true", help="each rank has a slice of the optimizer's states")
    parser.add_argument("--no_buddies", action="store_true", help="no rank keeps what another one has")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--network", default="small")
    parser.add_argument("--quantile", type=float, default=0.5)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--steps", type=int, default=100, help="of a round of --measure own, whose value is their mean")
    parser.add_argument("--warmup_steps", type=int, default=50, help="before these")
    arguments = parser.parse_args()
    # At the end of an epoch newcomers are taken in without a command.
    arguments.steps_of_an_epoch = 2000 if arguments.measure == "resize" else 10
    with tempfile.TemporaryDirectory(prefix="tessera-recovery.") as folder:
        data = Path(folder) / "cifar"
        records = max(320, 16 * arguments.steps_of_an_epoch)
        subprocess.run([arguments.bin / "resnet50_cifar10", "--make_data", data, "--train_records", str(records), "--test_records", "40"], check=True,
                       stdout=subprocess.DEVNULL)
        if arguments.measure == "own":
            print(json.dumps({"ready": True, "unit": "s"}), flush=True)
            for line in sys.stdin:
                if line.strip() != "go":
                    break
                print(json.dumps({"value": own_time(arguments, data)}), flush=True)
            return
        if arguments.measure in ("survivors", "resize"):
            return measure_launchers(arguments, data)
        job = Job(arguments, data)
        try:
            job.await_step()
            job.hold_up(signal.SIGKILL)
            print(json.dumps({"ready": True, "unit": "s"}), flush=True)
            for line in sys.stdin:
                if line.strip() != "go":
                    break
                job.own_times = []
                found = [job.hold_up(signal.Signals[arguments.signal]) for _ in range(arguments.kills)]
                times = [left if arguments.measure == "left" else step for left, step, _ in found]
                print(json.dumps({"value": quantile_of(times, arguments.quantile), "about": job.about([lost for _, _, lost in found])}), flush=True)
        finally:
            job.end()


if __name__ == "__main__":
    main()
