"""Four ranks that train a small network, and who looks at their page meanwhile. A round is a job of its own, so that it runs beside no other
side: it is started, warms up, is counted for some seconds and ended. Its value is the steps that it makes in a second. With --readers so many
look on; with 0 there is a page, and nobody does; without --readers there is no page."""

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from page_readers import PAUSE_S, ReadersProcess
from peers.rounds import serve_rounds
from recovery_side import quantile_of

RANKS = 4
WARM_S, COUNTED_S = 3, 6
START_LIMIT_S, END_LIMIT_S = 120, 60
MOST_READERS = 256  # that a page serves at a time
TAIL = 1 << 14


def newest_step(text):
    """The step of the last line that says a loss and is whole; None where there is none."""
    found = re.findall(rb"loss (\d+) \S+\n", text)
    return int(found[-1]) if found else None


def address_in(text):
    """The page's, as the launcher says it; None where it has not yet."""
    found = re.search(rb"dashboard: (http://\S+)\n", text)
    return found[1].decode() if found else None


def said_of(launcher_s, figures, seconds):
    """In a few words what it has cost. `launcher_s`: what the launcher has computed in these seconds; `figures`: the readers', or None."""
    launcher = f"the launcher takes {100 * launcher_s / seconds:.1f} % of a core"
    if figures is None:
        return launcher
    times = figures["times"]
    return (f"{len(times) / figures['seconds']:.0f} answers a second of {figures['bytes'] / len(times) / 1024:.0f} KiB, 99 % within "
            f"{1000 * quantile_of(times, 0.99):.0f} ms; {launcher}, the readers themselves {100 * figures['cpu_s'] / figures['seconds']:.1f} %")


def check_looked(figures, count):
    """Who is answered too seldom costs less than a reader does."""
    least = count * figures["seconds"] / PAUSE_S / 2
    if len(figures["times"]) < least:
        raise RuntimeError(f"{count} readers have had {len(figures['times'])} answers in {figures['seconds']:.1f} s, less than {least:.0f}: "
                           "what they cost is not measured")


class Job:
    """It trains until it is ended. What it says is in a file, which costs the round no process that reads it."""

    def __init__(self, bin_folder, data, out, has_page):
        page = ["--dashboard", 0] if has_page else []
        command = [bin_folder / "tessera", "run", "-n", RANKS, "--num_threads", 1, *page,
                   bin_folder / "train_job", "--data_path", data, "--steps", 0, "--epochs", 1_000_000]
        self.out = out
        with open(out, "wb") as file:
            self.launcher = subprocess.Popen([str(word) for word in command], env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"},
                                             stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)

    def tail(self):
        with open(self.out, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - TAIL, 0))
            return file.read()

    def step(self):
        """The one that has ended last."""
        text = self.tail()
        if self.launcher.poll() is not None:
            raise RuntimeError(f"the job has ended with exit code {self.launcher.returncode}: {text[-500:].decode(errors='replace')}")
        step = newest_step(text)
        if step is None:
            raise RuntimeError(f"the job says no loss: {text[-500:].decode(errors='replace')}")
        return step

    def await_step(self):
        end = time.monotonic() + START_LIMIT_S
        while self.launcher.poll() is None and newest_step(self.tail()) is None and time.monotonic() < end:
            time.sleep(0.05)
        self.step()

    def address(self):
        address = address_in(self.out.read_bytes())
        if address is None:
            raise RuntimeError("the job does not say where its page is")
        return address

    def state(self):
        parts = urlsplit(self.address())
        token = parse_qs(parts.query)["token"][0]
        request = urllib.request.Request(f"http://{parts.netloc}/state.json", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def cpu_s(self):
        """What the launcher has computed, its page included, in seconds of a core."""
        fields = Path(f"/proc/{self.launcher.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self):
        self.launcher.terminate()
        try:
            self.launcher.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.launcher.kill()
            self.launcher.wait()


def round_of(arguments, data, out):
    """(steps a second, in a few words what it has cost)"""
    job, readers = Job(arguments.bin, data, out, has_page=arguments.readers is not None), None
    try:
        job.await_step()
        if arguments.readers:
            readers = ReadersProcess(job.address(), arguments.readers)
        time.sleep(WARM_S)
        if readers:
            readers.count()
        first, begin, launcher_s = job.step(), time.monotonic(), job.cpu_s()
        time.sleep(COUNTED_S)
        last, end, launcher_s = job.step(), time.monotonic(), job.cpu_s() - launcher_s
        figures = readers.end() if readers else None
        if figures:
            check_looked(figures, arguments.readers)
        if arguments.readers is not None:
            shown = job.state()
            if shown["num_ranks"] != RANKS or not first <= shown["step"] <= job.step():
                raise RuntimeError(f"the page shows step {shown['step']} of {shown['num_ranks']} ranks; {RANKS} have made those from {first} to {last}")
        return (last - first) / (end - begin), said_of(launcher_s, figures, end - begin)
    finally:
        if readers:
            readers.kill()
        job.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path, help="where the programs are")
    parser.add_argument("--readers", type=int, help="how many look at the page (default: there is no page)")
    arguments = parser.parse_args()
    if not 0 <= (arguments.readers or 0) <= MOST_READERS:
        parser.error(f"--readers is from 0 to {MOST_READERS}, which a page serves at a time")
    with tempfile.TemporaryDirectory(prefix="tessera-readers.") as folder:
        data = Path(folder) / "cifar"
        subprocess.run([arguments.bin / "resnet50_cifar10", "--make_data", data, "--train_records", "3200", "--test_records", "40"], check=True,
                       stdout=subprocess.DEVNULL)
        serve_rounds("steps/s", f"{RANKS} ranks, a job a round", lambda: round_of(arguments, data, Path(folder) / "said"))


if __name__ == "__main__":
    main()
