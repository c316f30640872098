"""A job of four ranks, with certificates, while strangers do all that they can to its scheduler's port (hostile_load.py). A round is SECONDS
of that; its value is one of these:
  steps   that are made in a second
  answer  how long the scheduler takes to answer who has shown its certificate and asks, in seconds: the 99th percentile
With --quiet there are no strangers."""
import argparse
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import hostile_load
from simulated_workers import Certificates, Member, Scheduler, frame
from recovery_side import quantile_of

RANKS = 4
# Between two questions; and the time after which the scheduler hangs up on who only asks is longer than this.
PAUSE_S, ASKS_FOR_S = 0.02, 3


class Job:
    """A scheduler, and ranks that train until they are ended."""

    def __init__(self, bin_folder, folder):
        data = Path(folder) / "cifar"
        subprocess.run([bin_folder / "resnet50_cifar10", "--make_data", data, "--train_records", "320", "--test_records", "40"], check=True,
                       stdout=subprocess.DEVNULL)
        self.certificates = Certificates(folder, bin_folder / "tessera")
        self.scheduler = Scheduler(bin_folder / "tessera", folder, RANKS, self.certificates)
        command = [bin_folder / "tessera", "run", "--join", f"127.0.0.1:{self.scheduler.port}", "-n", RANKS, "--num_threads", 1,
                   bin_folder / "train_job", "--data_path", data, "--steps", 10, "--epochs", 1_000_000]
        self.launcher = subprocess.Popen([str(word) for word in command], env=os.environ | self.certificates.environment | {"OMP_WAIT_POLICY": "PASSIVE"},
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.num_steps, self.last_words = 0, ""
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.launcher.stdout:
            self.last_words = line
            self.num_steps += bool(re.search(r"loss \d+ ", line))

    def check(self):
        if self.launcher.poll() is not None or self.scheduler.process.poll() is not None:
            raise SystemExit(f"hostile_side: the job has ended: {self.last_words}")

    def end(self):
        self.launcher.kill()
        self.launcher.wait()
        self.scheduler.kill()


def answer_times(job, seconds):
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            observer = Member(job.scheduler.port, job.certificates.context("observer"))
        except OSError:  # it was crowded out, and comes again
            continue
        asks_until = time.monotonic() + ASKS_FOR_S
        while time.monotonic() < min(asks_until, end):
            begin = time.monotonic()
            observer.say(frame("AskStatus"))
            if observer.hear("Status") is None:
                raise SystemExit("hostile_side: the scheduler has hung up on an observer")
            times.append(time.monotonic() - begin)
            time.sleep(PAUSE_S)
        observer.close()
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path, help="where the programs are")
    parser.add_argument("--measure", choices=("steps", "answer"), default="steps")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--quiet", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tessera-hostile.") as folder:
        job = Job(arguments.bin, folder)
        try:
            while job.num_steps < 20:
                job.check()
                time.sleep(0.05)
            print(json.dumps({"ready": True, "unit": "s"}), flush=True)
            for line in sys.stdin:
                if line.strip() != "go":
                    break
                strangers = multiprocessing.Process(target=hostile_load.attack, args=(job.scheduler.port, arguments.seconds), daemon=True)
                if not arguments.quiet:
                    strangers.start()
                before, begin, cpu = job.num_steps, time.monotonic(), job.scheduler.cpu_s()
                times = answer_times(job, arguments.seconds)
                rate = (job.num_steps - before) / (time.monotonic() - begin)
                busy = (job.scheduler.cpu_s() - cpu) / (time.monotonic() - begin)
                if not arguments.quiet:
                    strangers.join()
                job.check()
                late = quantile_of(times, 0.99)
                about = f"{rate:.1f} steps a second; {len(times)} answers, p99 {1000 * late:.1f} ms; the scheduler takes {100 * busy:.0f} % of a core"
                print(json.dumps({"value": rate if arguments.measure == "steps" else late, "about": about}), flush=True)
        finally:
            job.end()


if __name__ == "__main__":
    main()
