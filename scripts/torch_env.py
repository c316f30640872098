#!/usr/bin/env python3
"""Makes .venv-torch, the virtual environment with PyTorch that benchmarks and parity tests compare with.

Prints the path of its Python interpreter. Quick where it exists. PyPI's torch for Linux is built for CUDA and wants
gigabytes of CUDA libraries just to be imported; on a CPU none of them is ever called. They are therefore not installed:
those that the machine lacks are replaced by stub libraries beside torch's own, in which every function returns an error.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import virtual_environment

# torch, and of what it requires all but CUDA and Triton.
PACKAGES = ["torch==2.15.0", "numpy", "filelock", "typing-extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe",
            "fsspec", "setuptools"]
NO_DEVICE = 100  # cudaErrorNoDevice: what every stub returns


def output_of(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def needed(library):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "-dW", library))


def make_stubs(folder):
    """Writes a stub for each library that torch's libraries in `folder` need and that is nowhere."""
    libraries = [*folder.glob("*.so*"), *folder.parent.glob("_C*.so")]
    shipped = {library.name for library in libraries}
    missing, defined, undefined = set(), set(), set()
    system = set()
    for library in libraries:
        for line in output_of("ldd", library).splitlines():
            name, _, place = line.strip().partition(" => ")
            if place == "not found":
                if name in needed(library):
                    missing.add(name)
            elif place.startswith("/") and Path(name).name not in shipped:
                system.add(place.split(" (")[0])
    # libcuda belongs to the driver and is opened only where there is a device.
    missing -= shipped | {"libcuda.so.1"}
    if not missing:
        return
    for library in [*libraries, *system]:
        for line in output_of("nm", "-D", "--with-symbol-versions", library).splitlines():
            kind, symbol = line.split()[-2:]
            if kind == "U" and library in libraries:
                undefined.add(symbol)
            elif kind not in "Uw":
                defined.add(symbol.partition("@")[0])
    versions = {}  # version name -> the library that must define it
    for library in libraries:
        file = None
        for line in output_of("readelf", "-VW", library).splitlines():
            match = re.search(r"File: (\S+)", line)
            file = match.group(1) if match else file
            match = re.search(r"Name: (\S+)\s+Flags:", line)
            if match and file in missing:
                versions[match.group(1)] = file
    # A symbol is looked up in all libraries in turn: one without a version may be in any stub.
    home = sorted(missing)[0]
    symbols = {name: {} for name in missing}  # library -> version ("" for none) -> symbols
    for symbol in undefined:
        name, _, version = symbol.partition("@")
        if name not in defined:
            symbols[versions.get(version.lstrip("@"), home)].setdefault(version.lstrip("@"), set()).add(name)
    for version, library in versions.items():
        symbols[library].setdefault(version, set())
    with tempfile.TemporaryDirectory() as build:
        for library, by_version in symbols.items():
            source, script = Path(build) / "stub.c", Path(build) / "stub.map"
            names = sorted(set().union(*by_version.values()))
            source.write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in names))
            script.write_text("".join(f"{version} {{ global: {' '.join(f'{name};' for name in sorted(members))} }};\n"
                                      for version, members in by_version.items() if version and library in versions.values()))
            output_of("gcc", "-w", "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{library}",
                      *([f"-Wl,--version-script={script}"] if script.read_text() else []), source, "-o", folder / library)


def finish(python):
    make_stubs(Path(output_of(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()) / "torch" / "lib")


if __name__ == "__main__":
    sys.exit(virtual_environment.make(".venv-torch", PACKAGES, options=["--no-deps"], check="import torch; torch.zeros(1)", finish=finish,
                                      announce="installing PyTorch (0.5 GB to fetch, 1.5 GB on disk)"))
