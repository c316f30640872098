"""A scheduler whose process was killed and started again with its state, and whose workers, simulated ones, return at once by TLS with
certificates. A round is that; its value is one of these:
  time    until the last one is in, in seconds
  cpu     what the scheduler computes for that, in seconds of a core
  memory  the most that it has had resident, in MiB"""
import argparse
import json
import sys
import tempfile
from pathlib import Path

from simulated_workers import Certificates, Scheduler, Swarm

LIMIT_S = 600


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path, help="where the programs are")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--measure", choices=("time", "cpu", "memory"), default="time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tessera-scheduler.") as folder:
        tessera = arguments.bin / "tessera"
        certificates = Certificates(folder, tessera)
        # None is lost while all come, however long that takes.
        scheduler = Scheduler(tessera, folder, arguments.workers, certificates, "--max_restarts", 1000, "--node_timeout", LIMIT_S)
        try:
            swarm = Swarm(arguments.workers, certificates.context())
            swarm.come(scheduler.port, LIMIT_S)
            print(json.dumps({"ready": True, "unit": "s"}), flush=True)
            for line in sys.stdin:
                if line.strip() != "go":
                    break
                scheduler.kill()
                swarm.leave()
                scheduler.start()
                before = scheduler.cpu_s()
                found = {"time": swarm.come(scheduler.port, LIMIT_S), "cpu": scheduler.cpu_s() - before, "memory": scheduler.peak_mib()}
                about = f"{swarm.num_attempts} connections; {found['time']:.2f} s, {found['cpu']:.2f} s of a core, {found['memory']:.0f} MiB"
                print(json.dumps({"value": found[arguments.measure], "about": about}), flush=True)
        finally:
            scheduler.kill()


if __name__ == "__main__":
    main()
