"""How long a job that trains is held up when one of its ranks is lost, in seconds. A round is KILLS of them, of ranks that are drawn; its
value is the quantile that is asked for, of one of these times:
  step       from the signal to the end of the next step
  survivors  from the signal until all others have left what they waited in
With --measure own it is the time of a step of a job that loses nobody."""
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
    def __init__(self, arguments, folder):
        data = Path(folder) / "cifar"
        subprocess.run([arguments.bin / "resnet50_cifar10", "--make_data", data, "--train_records", "320", "--test_records", "40"], check=True,
                       stdout=subprocess.DEVNULL)
        command = [arguments.bin / "tessera", "run", "-n", arguments.ranks, "--num_threads", 1, "--max_restarts", arguments.restarts]
        if arguments.transport:
            command += ["--transport", arguments.transport]
        if arguments.timeout:
            command += ["--timeout", arguments.timeout]
        command += [arguments.bin / "train_job", "--data_path", data, "--network", arguments.network, "--steps", 10, "--epochs", 1_000_000]
        self.process = subprocess.Popen([str(word) for word in command], env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"},
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.ranks, self.last_step, self.step_began, self.own_times = arguments.ranks, 0, None, []

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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path, help="where the programs are")
    parser.add_argument("--measure", choices=("step", "survivors", "own"), default="step")
    parser.add_argument("--signal", choices=("SIGKILL", "SIGSTOP"), default="SIGKILL")
    parser.add_argument("--timeout", type=float, default=0, help="seconds after which a silent rank is lost")
    parser.add_argument("--restarts", type=int, default=1_000_000, help="0: the job keeps nothing, and a loss would be its end")
    parser.add_argument("--transport", default="")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--network", default="small")
    parser.add_argument("--quantile", type=float, default=0.5)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--steps", type=int, default=100, help="of a round of --measure own")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tessera-recovery.") as folder:
        job = Job(arguments, folder)
        try:
            job.await_step()
            if arguments.measure != "own":
                job.hold_up(signal.SIGKILL)
            print(json.dumps({"ready": True, "unit": "s"}), flush=True)
            for line in sys.stdin:
                if line.strip() != "go":
                    break
                job.own_times = []
                if arguments.measure == "own":
                    for _ in range(arguments.steps):
                        job.await_step()
                    print(json.dumps({"value": quantile_of(job.own_times, arguments.quantile)}), flush=True)
                    continue
                found = [job.hold_up(signal.Signals[arguments.signal]) for _ in range(arguments.kills)]
                times = [survivors if arguments.measure == "survivors" else step for survivors, step, _ in found]
                print(json.dumps({"value": quantile_of(times, arguments.quantile), "about": job.about([lost for _, _, lost in found])}), flush=True)
        finally:
            job.process.kill()
            job.process.wait()


if __name__ == "__main__":
    main()
