"""A side of the benchmark `build`: a commit is cloned and compiled by as many jobs at once as is said, without a cache of objects.

What it times, in seconds, from cmake's first word to the last target:
  demo     what scripts/demo compiles
  tests    all that scripts/test compiles, from nothing
  wheel    pip's wheel of the package, after a build of `tests` whose objects a cache has
  change   a source of the kernels gets a declaration more: its test is compiled and linked anew

The clone stays in build/clones, so that wheel and change find what tests built there.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from peers.rounds import serve_rounds

ROOT = Path(__file__).resolve().parent.parent
DEMO_TARGETS = ["tessera", "resnet50_cifar10"]
CHANGED, ITS_TEST = "tessera/kernels/cpu/rows/row_ops.cc", "cpu_rows_test"


class Clone:
    def __init__(self, commit, jobs):
        self.commit = subprocess.run(["git", "rev-parse", "--short=12", commit], cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True).stdout.strip()
        self.folder = ROOT / "build" / "clones" / f"{self.commit}-{jobs}"
        self.clone, self.jobs = self.folder / "clone", str(jobs)
        self.stamp = self.folder / "tests-are-built"
        self.environment = os.environ | {"CCACHE_DIR": str(self.folder / "cache"), "CCACHE_BASEDIR": str(self.clone), "CCACHE_NOHASHDIR": "1",
                                         "CMAKE_BUILD_PARALLEL_LEVEL": self.jobs}
        if not self.clone.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.run("git", "clone", "-q", ROOT, self.clone, folder=ROOT)
            self.run("git", "checkout", "-q", self.commit)
            if (ROOT / ".deps").exists():
                shutil.copytree(ROOT / ".deps", self.clone / ".deps", symlinks=True)
        made = self.run(sys.executable, "scripts/python_env.py")
        self.python = made.stdout.strip().splitlines()[-1]

    def run(self, *command, folder=None):
        done = subprocess.run([str(word) for word in command], cwd=folder or self.clone, env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}:\n{done.stdout[-2000:]}")
        return done

    def clear(self):
        self.stamp.unlink(missing_ok=True)
        for folder in (self.clone / "build", self.folder / "cache"):
            shutil.rmtree(folder, ignore_errors=True)

    def build(self, wanted, targets=("all",)):
        self.run("cmake", "--preset", "release", f"-DTESSERA_TESTS={wanted}", f"-DTESSERA_BENCHMARKS={wanted}",
                 f"-DTESSERA_PYTHON={wanted}", f"-DPython_EXECUTABLE={self.python}")
        self.run("cmake", "--build", "--preset", "release", "--target", *targets)

    def build_tests(self):
        if not self.stamp.exists():
            self.build("ON")
            self.stamp.touch()


def seconds(work):
    start = time.monotonic()
    work()
    return time.monotonic() - start


def round_of(what, clone):
    if what == "demo":
        clone.clear()
        return seconds(lambda: clone.build("OFF", DEMO_TARGETS))
    if what == "tests":
        clone.clear()
        return seconds(clone.build_tests)
    if what == "wheel":
        wheels = clone.folder / "wheels"
        for folder in (wheels, *clone.clone.glob("build/wheel-*")):
            shutil.rmtree(folder, ignore_errors=True)
        return seconds(lambda: clone.run(clone.python, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", wheels, "."))
    source = clone.clone / CHANGED
    with open(source, "a") as out:  # a comment would change nothing: ccache would know the object
        out.write(f'extern "C" int tessera_changed_{time.monotonic_ns()}();\n')
    return seconds(lambda: clone.run("cmake", "--build", "--preset", "release", "--target", ITS_TEST))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("demo", "tests", "wheel", "change"))
    parser.add_argument("--commit", default="HEAD", help="which commit (default: HEAD; what is not committed is left out)")
    parser.add_argument("--jobs", type=int, default=2, help="how many compilers run at once (default: 2)")
    arguments = parser.parse_args()
    clone = Clone(arguments.commit, arguments.jobs)
    if arguments.what in ("wheel", "change"):
        clone.build_tests()
    serve_rounds("s", f"commit {clone.commit}, {arguments.jobs} jobs", lambda: round_of(arguments.what, clone))


if __name__ == "__main__":
    main()
