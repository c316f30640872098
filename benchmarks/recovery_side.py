"""How long a job that trains is held up when one of its ranks is killed: from SIGKILL to the end of the next step, in seconds. A round
is KILLS of them, of ranks that are drawn; its value is the quantile that is asked for."""
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


def children_of(pid):
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


class Job:
    def __init__(self, bin_folder, folder, ranks, network):
        data = Path(folder) / "cifar"
        subprocess.run([bin_folder / "resnet50_cifar10", "--make_data", data, "--train_records", "320", "--test_records", "40"], check=True,
                       stdout=subprocess.DEVNULL)
        self.process = subprocess.Popen(
            [bin_folder / "tessera", "run", "-n", str(ranks), "--num_threads", "1", "--max_restarts", "1000000", bin_folder / "train_job", "--data_path",
             data, "--network", network, "--steps", "10", "--epochs", "1000000"], env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def await_step(self, after_restart=False):
        """Until a step has ended: with after_restart, one of processes that have begun since."""
        while line := self.process.stdout.readline():
            if "parallel_optimizer_threshold has no effect" in line:  # rank 0 has made its model
                after_restart = False
            elif not after_restart and re.search(r"loss \d+ ", line):
                return
        raise SystemExit(f"recovery_side: the job has ended with exit code {self.process.wait()}")

    def hold_up(self):
        for _ in range(3):
            self.await_step()
        guards = [guard for guard in children_of(self.process.pid) if children_of(guard)]
        victim = children_of(random.choice(guards))[0]
        start = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        self.await_step(after_restart=True)
        return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin", type=Path, help="where the programs are")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--network", default="small")
    parser.add_argument("--quantile", type=float, default=0.5)
    parser.add_argument("--kills", type=int, default=KILLS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tessera-recovery.") as folder:
        job = Job(arguments.bin, folder, arguments.ranks, arguments.network)
        try:
            job.hold_up()
            print(json.dumps({"ready": True, "unit": "s", "about": f"{arguments.kills} kills a round"}), flush=True)
            for line in sys.stdin:
                if line.strip() != "go":
                    break
                times = sorted(job.hold_up() for _ in range(arguments.kills))
                print(json.dumps({"value": times[min(len(times) - 1, int(arguments.quantile * len(times)))]}), flush=True)
        finally:
            job.process.kill()
            job.process.wait()


if __name__ == "__main__":
    main()
