"""A side of the benchmark `first_minutes`: what a newcomer does on a bare Debian 12, in a chroot of its own.

What must be there: root, debootstrap, a mirror of Debian in /etc/apt, PyPI for pip, and the packages, in `dist`, or those of Debian where they were
built:
  wheel        scripts/package wheel
  deb, cmake   scripts/package deb

What it times, in seconds, from an installation that has not been there yet. What is downloaded is on the disk beforehand, so that no network
is measured:
  wheel    a virtual environment, pip install of the wheel, and the readme's model on four ranks; Debian's python3-venv is there. Goal: 60 s
  deb      apt-get install ./tessera_*.deb, with what it depends on and recommends, and the same model. Goal: 60 s
  cmake    cmake and the compiler on the program of docs/program.md; cmake, ninja, a compiler and tessera-dev are there. Goal: 30 s

The system that all rows begin with is kept in build/first_minutes/debian.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from peers.rounds import serve_rounds

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "packages"))
import package  # noqa: E402

FOLDER = ROOT / "build" / "first_minutes"
RELEASE = "bookworm"
PACKAGES_OF = {"wheel": ["tessera-*.whl"], "deb": ["tessera_*.deb"], "cmake": ["tessera_*.deb", "tessera-dev_*.deb"]}
GOALS_S = {"wheel": 60, "deb": 60, "cmake": 30}
# Of this machine: where Debian's and PyPI's packages come from, and who vouches for it.
SETTINGS = ("etc/apt/sources.list.d", "etc/apt/sources.list", "etc/apt/auth.conf.d", "etc/resolv.conf", "etc/hosts", "etc/pip.conf", "etc/ssl/certs",
            "root/.config/pip", "usr/local/share/ca-certificates")
PASSED_ON = re.compile(r"(PIP_|SSL_|REQUESTS_|https?_proxy$|no_proxy$)", re.IGNORECASE)
# What stands ready before the clock starts; a newcomer's own install is as apt does it by itself.
APT = "apt-get install -y -q --no-install-recommends"
APT_OF_NEWCOMER = "apt-get install -y -q"
# What the disk has not would be downloaded, and measured: then it fails. (--no-download fails where a package is a file of one's own.)
NO_NETWORK = "-o Acquire::http::Proxy=http://127.0.0.1:1 -o Acquire::https::Proxy=http://127.0.0.1:1"
# Its mounts and processes are its own and end with it.
ENTER = """
mount -t proc proc "$0/proc"
mount -t sysfs -o ro sysfs "$0/sys"
mount --bind /dev "$0/dev"
mount --bind /dev/pts "$0/dev/pts"
mount -t tmpfs shm "$0/dev/shm"
exec chroot "$0" bash -ec "cd /root; $1"
"""


def find_packages(row, root=ROOT):
    """The newest packages that the row installs, all of one folder, so that they are of one build."""
    candidates = []
    for folder in (root / "dist", root / "build" / "package" / "packages"):
        found = [max(folder.glob(pattern), key=lambda path: path.stat().st_mtime, default=None) for pattern in PACKAGES_OF[row]]
        if None not in found:
            candidates.append((min(path.stat().st_mtime for path in found), found))
    if candidates:
        return max(candidates)[1]
    what = "wheel" if row == "wheel" else "deb"
    sys.exit(f"first_minutes: {root / 'dist'} has not {' and '.join(PACKAGES_OF[row])} for the row {row}: run scripts/package {what} first")


def age_of(packages, root=ROOT):
    """What must be said of packages that were made before the commit that is measured; "" of others, and without git."""
    try:
        git = subprocess.run(["git", "-C", root, "log", "-1", "--format=%ct"], capture_output=True, text=True)
    except OSError:
        return ""
    is_old = git.returncode == 0 and min(path.stat().st_mtime for path in packages) < int(git.stdout)
    return ", OLDER THAN THE COMMIT" if is_old else ""


def against_goal(row, seconds):
    """What there is to tell of rounds that have taken so long."""
    goal, most = GOALS_S[row], max(seconds)
    return f"goal: {goal} s in each round, " + ("reached" if most < goal else f"MISSED by {most - goal:.1f} s")


def settings():
    """The files and folders of SETTINGS, and those of apt's options that say how it fetches."""
    options = [path for path in Path("/etc/apt/apt.conf.d").glob("*") if re.search(r"^Acquire::", path.read_text(errors="replace"), re.MULTILINE)]
    return [*SETTINGS, *(str(path.relative_to("/")) for path in options)]


def mirror():
    """Where this machine has Debian's packages from."""
    for file in (*sorted(Path("/etc/apt/sources.list.d").glob("*.sources")), Path("/etc/apt/sources.list")):
        found = re.search(r"^URIs:\s*(\S+)|^deb\s.*?(https?://\S+)", file.read_text() if file.exists() else "", re.MULTILINE)
        if found:
            return found[1] or found[2]
    sys.exit("first_minutes: /etc/apt names no mirror of Debian")


def must(command, what, **options):
    """What a command prints; where it fails, its end ends this side."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", **options)
    if done.returncode != 0:
        sys.exit(f"{done.stdout[-3000:]}\nfirst_minutes: {what} failed with code {done.returncode}")
    return done.stdout


class Debian:
    """A system in a folder."""

    def __init__(self, root):
        self.root = root

    def run(self, script):
        """What bash prints of the script, in the system's /root."""
        environment = {name: value for name, value in os.environ.items() if PASSED_ON.match(name)}
        environment |= {"HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "TERM": "dumb",
                        "DEBIAN_FRONTEND": "noninteractive", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
        return must(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", ENTER, self.root, script], script, env=environment)

    def copy(self, root):
        """The same system in another folder, in place of what is there."""
        shutil.rmtree(root, ignore_errors=True)
        must(["cp", "-a", "--reflink=auto", self.root, root], "copying a system")
        return Debian(root)

    def timed(self, script):
        """The seconds that a script takes, and what it prints."""
        start = time.monotonic()
        printed = self.run(script)
        return time.monotonic() - start, printed


def bare():
    """A bare Debian, which knows this machine's package lists."""
    root, ready = FOLDER / "debian", FOLDER / "ready"
    if not ready.exists():
        shutil.rmtree(root, ignore_errors=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        must(["debootstrap", "--variant=minbase", RELEASE, root, mirror()], "debootstrap")
        (root / "etc" / "apt" / "sources.list").unlink(missing_ok=True)
        for name in settings():
            if Path("/", name).exists():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                must(["rm", "-rf", root / name], "removing settings")
                must(["cp", "-aL", Path("/", name), root / name], "copying settings")
        Debian(root).run("apt-get update -q")
        ready.touch()
    return Debian(root)


def prepare(row, system, made):
    """Puts into the system all that is there before the clock starts; `made` are Tessera's packages."""
    packages = system.root / "packages"
    packages.mkdir()
    system.run("apt-get update -q")  # the lists of the system that is kept may be weeks old
    for path in made:
        shutil.copy(path, packages)
    (system.root / "root" / "model.py").write_text(package.training_script())
    if row == "wheel":
        system.run(f"{APT} python3-venv; python3 -m venv fetch; fetch/bin/pip download -q --only-binary :all: -d /packages /packages/*.whl; rm -r fetch")
    elif row == "deb":
        system.run(f"{APT_OF_NEWCOMER} --download-only /packages/*.deb")
    else:
        program = system.root / "root" / "line"
        program.mkdir()
        package.write_program(program)
        system.run(f"{APT} g++ cmake ninja-build /packages/*.deb")


def round_of(row, prepared):
    """The seconds of a round, whose result is checked."""
    if row == "wheel":
        shutil.rmtree(prepared.root / "root" / "venv", ignore_errors=True)
        seconds, printed = prepared.timed("python3 -m venv venv; venv/bin/pip install -q --no-index --find-links /packages tessera; "
                                          "venv/bin/tessera run -n 4 venv/bin/python model.py")
        package.check_trained(printed)
    elif row == "deb":
        system = prepared.copy(FOLDER / "deb-round")
        seconds, printed = system.timed(f"{APT_OF_NEWCOMER} {NO_NETWORK} /packages/*.deb; tessera run -n 4 python3 model.py")
        shutil.rmtree(system.root)
        package.check_trained(printed)
    else:
        shutil.rmtree(prepared.root / "root" / "line" / "build", ignore_errors=True)
        seconds, _ = prepared.timed("cd line; cmake -G Ninja -B build; cmake --build build")
        printed = prepared.run("tessera run -n 2 line/build/line")
        if "f(3) = 7.0" not in printed:
            sys.exit(f"{printed}\nfirst_minutes: the program does not say f(3) = 7.0")
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", choices=PACKAGES_OF)
    row = parser.parse_args().row
    packages = find_packages(row)
    names = ", ".join(path.name for path in packages) + age_of(packages)
    if os.getuid() != 0:
        sys.exit("first_minutes: only root may make a system of its own: sudo benchmarks/run first_minutes")
    if shutil.which("debootstrap") is None:
        sys.exit("first_minutes: there is no debootstrap: apt-get install debootstrap")
    prepared = bare().copy(FOLDER / row)
    rounds = []

    def run_round():
        rounds.append(round_of(row, prepared))
        return rounds[-1], f"{names}; {against_goal(row, rounds)}"

    try:
        prepare(row, prepared, packages)
        serve_rounds("s", names, run_round)
    finally:
        for name in (row, "deb-round"):
            shutil.rmtree(FOLDER / name, ignore_errors=True)


if __name__ == "__main__":
    main()
