"""How long a job that trains is held up when one of its ranks is lost, in seconds. A round is KILLS of them, of ranks that are drawn; its
value is the quantile that is asked for, of one of these times:
  step       from the signal to the end of the next step
  survivors  from the signal until all others have left what they waited in
With --measure own it is the time of a step of a job that loses nobody. That job is started for each round, so that it runs
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


def quantile_of(values, quantile):
    return sorted(values)[min(len(values) - 1, int(quantile * len(values)))]


def own_time(arguments, data):
    job = Job(arguments, data)
    try:
        for _ in range(3):  # the first ones compile and touch memory
            job.await_step()
        job.own_times = []
        for _ in range(arguments.steps):
            job.await_step()
        return quantile_of(job.own_times, arguments.quantile)
    finally:
        job.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path, help="where the programs are")
    parser.add_argument("--measure", choices=("step", "survivors", "own"), default="step")
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
    parser.add_argument("--steps", type=int, default=100, help="of a round of --measure own")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tessera-recovery.") as folder:
        data = Path(folder) / "cifar"
        subprocess.run([arguments.bin / "resnet50_cifar10", "--make_data", data, "--train_records", "320", "--test_records", "40"], check=True,
                       stdout=subprocess.DEVNULL)
        if arguments.measure == "own":
            print(json.dumps({"ready": True, "unit": "s"}), flush=True)
            for line in sys.stdin:
                if line.strip() != "go":
                    break
                print(json.dumps({"value": own_time(arguments, data)}), flush=True)
            return
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
                times = [survivors if arguments.measure == "survivors" else step for survivors, step, _ in found]
                print(json.dumps({"value": quantile_of(times, arguments.quantile), "about": job.about([lost for _, _, lost in found])}), flush=True)
        finally:
            job.end()


if __name__ == "__main__":
    main()
