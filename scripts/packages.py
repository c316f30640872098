"""Makes packages of Tessera; scripts/package calls this.

  scripts/package wheel    dist/tessera-*.whl: both Python packages and the command `tessera`, with every library that a Linux of
                           the wheel's name (manylinux_2_35: glibc 2.35 or newer) does not have by itself. It has no plugin for
                           MPI: that one is built for the MPI of a machine (python -m pip install . in the sources, or tessera-mpi)
  scripts/package deb      dist/tessera_*.deb, dist/tessera-mpi_*.deb, dist/tessera-dev_*.deb for this Debian
"""

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import licenses

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "package"
SHELLS = {"bash": "bash-completion/completions/tessera", "zsh": "zsh/vendor-completions/_tessera",
          "fish": "fish/vendor_completions.d/tessera.fish"}


def run(*command, log=None, **variables):
    """What the command prints; a command that fails ends this program with the end of that, or of `log`."""
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    done = subprocess.run([str(word) for word in command], cwd=ROOT, env=environment, text=True, stdout=log or subprocess.PIPE,
                          stderr=subprocess.STDOUT if log else subprocess.PIPE)
    if done.returncode != 0:
        said = Path(log.name).read_text() if log else done.stdout + done.stderr
        sys.exit(f"{said[-4000:]}\nscripts/package: {command[0]} failed with code {done.returncode}")
    return done.stdout


def environment_python(name):
    return Path(run(sys.executable, ROOT / "scripts" / f"{name}_env.py").strip())


def say(path):
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB", flush=True)


def make_wheel(out):
    """One wheel in the folder `out`."""
    builder, packer = environment_python("python"), environment_python("package")
    with tempfile.TemporaryDirectory(prefix="tessera-wheel-") as folder:
        folder = Path(folder)
        with open(folder / "log", "w") as log:
            run(builder, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--wheel-dir",
                folder, "--config-settings", "cmake.define.TESSERA_MPI=OFF", "--config-settings", f"build-dir={ROOT}/build/package-wheel",
                ".", log=log)
        (wheel,) = folder.glob("*.whl")
        repaired = folder / "repaired"
        run(packer, "-m", "auditwheel", "repair", "--wheel-dir", repaired, wheel, PATH=f"{packer.parent}:{os.environ['PATH']}")
        (wheel,) = repaired.glob("*.whl")
        licensed = folder / wheel.name
        licenses.add_to_wheel(wheel, licensed, builder)
        for old in out.glob("tessera-*.whl"):
            old.unlink()
        say(Path(shutil.copy(licensed, out)))


def commands(program, words=()):
    """The command's name and all below it, as tuples of words, and what the help calls each."""
    found = {}
    printed = run(program, *words, "--help")
    _, _, listed = printed.partition("\nSubcommands:\n")
    for name, what in re.findall(r"^  (\S+) +(\S.*)$", listed.partition("\n\n")[0], re.MULTILINE):
        found[(*words, name)] = what
        found |= commands(program, (*words, name)) if (*words, name) != ("job",) else commands_of_job(program)
    return found


def commands_of_job(program):
    """The same of `tessera job`, whose help is that of a program of Python: what a name is may begin on the next line."""
    _, _, listed = run(program, "job", "--help").partition("\n  COMMAND\n")
    rows = re.findall(r"^ {4}(\S+)\s+(\S.*(?:\n {6,}\S.*)*)$", listed.partition("\n\n")[0], re.MULTILINE)
    return {("job", name): " ".join(what.split()) for name, what in rows}


def page_of(words, text):
    """The page by its own name, as `man -k` lists it: help2man writes that of the program, and in NAME the words of the command."""
    name = "-".join(["tessera", *words])
    text = text.replace(".TH TESSERA ", f".TH {name.upper()} ", 1)
    return text.replace(f".SH NAME\n{' '.join(['tessera', *words])} ", f".SH NAME\n{name} ", 1)


def write_share(program, share):
    """Pages of the manual, and what shells complete, as they lie in /usr/share."""
    shutil.rmtree(share, ignore_errors=True)
    manual = share / "man" / "man1"
    manual.mkdir(parents=True)
    version = run(program, "--version").strip()
    path = f"{program.parent}:{os.environ['PATH']}"
    pages = {(): "train a neural network that was written for one device on many devices"} | commands(program)
    for words, what in pages.items():
        text = run("help2man", "--no-info", "--no-discard-stderr", f"--version-string={version}", f"--name={what}",
                   " ".join(["tessera", *words]), PATH=path)
        with open(manual / f"{'-'.join(['tessera', *words])}.1.gz", "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as page:
            page.write(page_of(words, text).encode())
    for shell, place in SHELLS.items():
        file = share / place
        file.parent.mkdir(parents=True)
        file.write_text(run(program, "completion", shell))


def write_copyrights(folder, builder):
    """The file `copyright` of each package of Debian, which cmake/TesseraPackage.cmake installs from `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    compiled_in = licenses.licenses_of_compiled_in(builder)
    cache = (BUILD / "CMakeCache.txt").read_text()
    fetched = f"dnnl_DIR:PATH={licenses.ONEDNN}/" in cache
    brought = [licenses.license_of_onednn(file.name) for file in sorted(licenses.ONEDNN.glob("lib/libdnnl.so.*.*")) if fetched]
    for package, libraries in {"tessera": brought, "tessera-mpi": [], "tessera-dev": brought}.items():
        file = folder / package / "copyright"
        file.parent.mkdir(parents=True)
        file.write_text(licenses.copyright_of(package, [*libraries, *compiled_in]))


def make_debs(out):
    """The packages that cmake/TesseraPackage.cmake lists, in the folder `out`."""
    python = environment_python("python")
    log_file = ROOT / "build" / "package.log"
    log_file.parent.mkdir(exist_ok=True)
    with open(log_file, "w") as log:
        run("cmake", "-S", ".", "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DTESSERA_TESTS=OFF", "-DTESSERA_BENCHMARKS=OFF",
            "-DTESSERA_MPI=ON", "-DTESSERA_PYTHON=ON", "-DTESSERA_SHARED=ON", f"-DPython_EXECUTABLE={python}", log=log)
        run("cmake", "--build", BUILD, log=log)
    write_share(BUILD / "bin" / "tessera", BUILD / "share")
    write_copyrights(BUILD / "copyright", python)
    shutil.rmtree(BUILD / "packages", ignore_errors=True)
    with open(log_file, "w") as log:
        run("cpack", "--config", BUILD / "CPackConfig.cmake", log=log)
    made = sorted((BUILD / "packages").glob("*.deb"))
    for package in made:
        licenses.check_deb(package)
    for old in out.glob("tessera*.deb"):
        old.unlink()
    for package in made:
        say(Path(shutil.copy(package, out)))


def main():
    parser = argparse.ArgumentParser(prog="scripts/package", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("wheel", "deb"))
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="FOLDER", help="where the packages go; default: dist")
    arguments = parser.parse_args()
    # The compiler by the name that all builds call it by, so that ccache knows the objects.
    os.environ.setdefault("CXX", "c++")
    os.environ.setdefault("CCACHE_BASEDIR", str(ROOT))
    os.environ.setdefault("CCACHE_NOHASHDIR", "1")
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        make_wheel(arguments.out.resolve()) if arguments.what == "wheel" else make_debs(arguments.out.resolve())
    except licenses.Unlicensed as missing:
        sys.exit(f"scripts/package: {missing}")


if __name__ == "__main__":
    main()
