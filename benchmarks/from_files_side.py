"""A side that trains as the tutorials do, from the files of a data set to the updated parameters: images are read, cropped, flipped,
enlarged and brought to the device. A round is an epoch. `from_files_side.py -- PROGRAM [OPTION...]` starts resnet50_cifar10."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from rounds import serve_rounds  # noqa: E402

EPOCH = re.compile(r"^epoch \d+/\d+: loss ([\d.]+), ([\d.]+) images/s")


def rate_of(lines):
    """Images in a second of the next epoch. `lines`: what the program prints."""
    said = []
    for line in lines:
        if found := EPOCH.match(line):
            return float(found[2])
        said.append(line)
    raise SystemExit("from_files_side: the program has ended; it said:\n" + "".join(said[-10:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=6400, help="of an epoch")
    parser.add_argument("--warmup_epochs", type=int, default=2, help="the first compiles the step")
    parser.add_argument("--num_workers", type=int, default=max(len(os.sched_getaffinity(0)) - 2, 1), help="threads that prepare batches")
    parser.add_argument("command", nargs="+", metavar="PROGRAM")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        subprocess.run([*options.command, "--make_data", data, "--train_records", str(options.images), "--test_records", "100"],
                       check=True, stdout=subprocess.DEVNULL)
        child = subprocess.Popen([*options.command, "--data_path", data, "--num_workers", str(options.num_workers), "--epochs", "500",
                                  "--no_progress"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            for _ in range(options.warmup_epochs):
                rate_of(child.stdout)
            about = f"{options.num_workers} threads prepare batches, {options.images} images an epoch"
            serve_rounds("images/s", about, lambda: rate_of(child.stdout))
        finally:
            child.kill()
            child.wait()


if __name__ == "__main__":
    main()
