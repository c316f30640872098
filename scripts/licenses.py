"""The licenses of the libraries of others that packages of Tessera bring along; scripts/packages.py puts them into each.

A library comes from a package of Debian, whose /usr/share/doc/PACKAGE/copyright is its license, or from the oneDNN that
scripts/setup has fetched, which has its own. Some have no file of their own: their headers are compiled into Tessera's.
"""

import base64
import csv
import gzip
import hashlib
import io
import re
import subprocess
import urllib.parse
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ONEDNN = ROOT / ".deps" / "onednn"
DOC = Path("/usr/share/doc")
COMMON = Path("/usr/share/common-licenses")
# Files of our own that a package may have.
OURS = re.compile(r"(_tessera\..*|libtessera(_\w+)?)\.so[.0-9]*")
# A header of each library of which code is compiled into Tessera's own files. Gloo, libpng and others that have a file lie beside it.
COMPILED_IN = {"Asio": "/usr/include/asio.hpp", "CLI11": "/usr/include/CLI/CLI.hpp", "fmt": "/usr/include/fmt/format.h",
               "Highway": "/usr/include/hwy/highway.h", "nlohmann-json": "/usr/include/nlohmann/json.hpp",
               "spdlog": "/usr/include/spdlog/spdlog.h"}


class Unlicensed(Exception):
    """A library whose license was not found: the package is not made."""


@dataclass
class License:
    """Where a library comes from and under which words it may be passed on."""

    library: str  # the name of its file; of one that is compiled in, its own name
    package: str
    version: str
    texts: dict = field(default_factory=dict)  # text by the name of the file that holds it
    source: str = ""  # where its sources are


def printed_by(*command):
    """What a command prints; "" where it fails or is not there."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""


def owners_of(pattern):
    """(package, path) of each installed file that `dpkg -S` finds by a pattern."""
    lines = [line for line in printed_by("dpkg-query", "--search", pattern).splitlines() if not line.startswith("diversion ")]
    return [(package, path) for names, _, path in (line.partition(": ") for line in lines) for package in names.split(", ")]


def license_of_package(library, package, doc=DOC):
    """The License of a library from an installed package of Debian."""
    file = doc / package.partition(":")[0] / "copyright"
    if file.is_file():
        text = file.read_text(errors="replace")
    elif file.with_suffix(".gz").is_file():
        text = gzip.decompress(file.with_suffix(".gz").read_bytes()).decode(errors="replace")
    else:
        raise Unlicensed(f"{library}: the package {package} has no {file}; `apt-get install --reinstall {package}` brings it back, "
                         "unless a path-exclude in /etc/dpkg leaves it out")
    version, source, of_source = printed_by("dpkg-query", "--show", "--showformat=${Version} ${source:Package} ${source:Version}", package).split()
    return License(library, package.partition(":")[0], version, {"copyright": text},
                   f"https://snapshot.debian.org/package/{source}/{urllib.parse.quote(of_source)}/")


def license_of_onednn(library, folder=ONEDNN):
    """The License of the oneDNN that scripts/setup has fetched, whose files lie below `folder`."""
    files = [folder / "share" / "doc" / "onednn" / name for name in ("LICENSE", "THIRD-PARTY-PROGRAMS")]
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise Unlicensed(f"{library}: oneDNN's license is not in {missing[0]}; remove {folder}, and scripts/setup fetches it anew")
    config = folder / "lib" / "cmake" / "dnnl" / "dnnl-config-version.cmake"
    version = re.search(r'PACKAGE_VERSION "([0-9.]+)"', config.read_text() if config.is_file() else "")
    number = version[1] if version else "3"
    return License(library, "oneDNN", number, {file.name: file.read_text(errors="replace") for file in files},
                   f"https://github.com/oneapi-src/oneDNN/tree/v{number}")


def license_of_file(name, content, onednn=ONEDNN):
    """The License of a library that a package has as the file `name`, which auditwheel may have given the start of its hash.

    auditwheel changes what it copies, so the name tells which file it was; of several of one name, the hash tells.
    """
    marked = re.fullmatch(r"(.+?)-([0-9a-f]{8})(\.so.*)", name)
    original, mark = (marked[1] + marked[3], marked[2]) if marked else (name, None)
    if original.startswith("libdnnl.so") and not mark:  # which only the fetched one is: auditwheel brings the system's
        return license_of_onednn(original, onednn)

    def is_it(path):
        read = Path(path).read_bytes() if Path(path).is_file() else b""
        return hashlib.sha256(read).hexdigest().startswith(mark) if mark else read == content

    found = owners_of(f"*/{original}")
    exact = [package for package, path in found if is_it(path)]
    candidates = exact or ([] if mark else sorted({package for package, _ in found}))
    if not candidates:
        raise Unlicensed(f"{name}: no installed package of Debian has this {original}, so its license is unknown; build Tessera "
                         f"with the library of a package, on Debian or Ubuntu")
    return license_of_package(original, candidates[0])


def licenses_of_compiled_in(builder):
    """The License of each library whose headers are compiled into Tessera's files; `builder` is the Python that has nanobind."""
    found = []
    for name, header in COMPILED_IN.items():
        owners = owners_of(header)
        if not owners:
            raise Unlicensed(f"{name}: no installed package of Debian has {header}, so its license is unknown; scripts/setup installs it")
        found.append(license_of_package(name, owners[0][0]))
    return [*found, *licenses_of_nanobind(builder)]


def licenses_of_nanobind(builder):
    """nanobind's License, and that of the map that it has in itself."""
    words = "import nanobind, importlib.metadata as m; d = m.distribution('nanobind'); print(d.version, d._path, nanobind.__path__[0], sep='\\n')"
    printed = printed_by(str(builder), "-c", words).splitlines()
    if len(printed) != 3:
        raise Unlicensed(f"nanobind: {builder} has none, so its license is unknown; scripts/python_env.py makes one that has it")
    version, metadata, folder = printed
    file, header = Path(metadata) / "licenses" / "LICENSE", Path(folder) / "ext" / "robin_map" / "include" / "tsl" / "robin_map.h"
    comment = re.match(r"/\*\*(.*?)\*/", header.read_text(), re.DOTALL) if header.is_file() else None
    if not file.is_file() or not comment or "Copyright" not in comment[1]:
        raise Unlicensed(f"nanobind: its license is not in {file if not file.is_file() else header}; scripts/python_env.py installs it anew where "
                         ".venv-python is removed")
    return [License("nanobind", "nanobind of PyPI", version, {"LICENSE": file.read_text()}, "https://github.com/wjakob/nanobind"),
            License("robin-map", "nanobind of PyPI", version, {"LICENSE.robin-map": re.sub(r"^ \* ?", "", comment[1], flags=re.MULTILINE).strip() + "\n"},
                    "https://github.com/Tessil/robin-map")]


def is_library(name, content):
    return content[:4] == b"\x7fELF" and ".so" in name and not OURS.fullmatch(name)


def files_of(licenses, common=COMMON):
    """Text by path below a folder of licenses: a list of the libraries, each one's license, and the licenses that these name as Debian's common ones."""
    files, rows = {}, []
    for each in licenses:
        folder = re.sub(r"\W+", "-", each.package.removesuffix(" of PyPI"))
        for name, text in each.texts.items():
            files[f"{folder}/{name}"] = text
        rows.append((each.library, each.version, each.package, " ".join(f"{folder}/{name}" for name in each.texts), each.source))
    named = {name for text in files.values() for name in re.findall(r"/usr/share/common-licenses/(\w[\w.-]*\w)", text)}
    for name in sorted(named):
        if (common / name).is_file():
            files[f"common-licenses/{name}"] = (common / name).read_text()
    heads = ("library", "version", "package", "license", "source")
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(4)]
    lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[4]]).rstrip() for row in (heads, *rows)]
    said = ("Libraries of others that this package of Tessera has in itself, each under its own license, in the file that is named. What a license\n"
            "has in /usr/share/common-licenses stands in the folder common-licenses here.\n\n")
    return {"LIBRARIES.txt": said + "\n".join(lines) + "\n"} | files


def add_to_wheel(wheel, out, builder):
    """Writes a wheel that auditwheel has made to `out`, with the license of every library in it; returns their Licenses."""
    with zipfile.ZipFile(wheel) as archive:
        libraries = {Path(name).name: archive.read(name) for name in archive.namelist() if ".so" in Path(name).name}
        licenses = [license_of_file(name, content) for name, content in sorted(libraries.items()) if is_library(name, content)]
        licenses += licenses_of_compiled_in(builder)
        (record,) = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
        info = record.rpartition("/")[0]
        added = {f"third_party/{name}": text.encode() for name, text in files_of(licenses).items()}
        metadata = archive.read(f"{info}/METADATA").decode()
        head, blank, body = metadata.partition("\n\n")
        changed = {f"{info}/licenses/{name}": content for name, content in added.items()}
        changed[f"{info}/METADATA"] = (head + "".join(f"\nLicense-File: {name}" for name in ["LICENSE", *added]
                                                     if f"\nLicense-File: {name}\n" not in f"{head}\n") + blank + body).encode()
        rows = [row for row in csv.reader(io.StringIO(archive.read(record).decode())) if row and row[0] not in changed]
        for name, content in changed.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            rows.insert(len(rows) - 1, [name, f"sha256={digest}", str(len(content))])
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows(rows)
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as written:
            for entry in archive.infolist():
                if entry.filename not in (*changed, record):
                    written.writestr(entry, archive.read(entry), zipfile.ZIP_DEFLATED)
            date = archive.getinfo(record).date_time
            for name, content in [*changed.items(), (record, table.getvalue().encode())]:
                entry = zipfile.ZipInfo(name, date)
                entry.external_attr = 0o100644 << 16
                written.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return licenses


def copyright_of(package, licenses):
    """The file /usr/share/doc/PACKAGE/copyright of a package of Debian: Tessera's license, then those of the libraries in it."""
    text = f"{package} is a package of Tessera, which is licensed under the Apache License 2.0:\n\n{(ROOT / 'LICENSE').read_text().rstrip()}\n"
    if licenses:
        text += "\nIt has these libraries of others in itself, each under its own license:\n\n"
        text += "".join(f"  {each.library} {each.version} ({each.package}), {each.source}\n" for each in licenses)
        for each in licenses:
            text += "".join(f"\n{'-' * 80}\n{each.library}: {name}\n\n{content.strip()}\n" for name, content in each.texts.items())
    return text


def check_deb(deb):
    """Refuses a package of Debian without a copyright file, or with a library that this does not name."""
    package = deb.name.partition("_")[0]
    folder = printed_by("dpkg-deb", "--contents", str(deb))
    files = [line.split(None, 5)[5] for line in folder.splitlines() if line.startswith("-")]
    place = f"./usr/share/doc/{package}/copyright"
    if place not in files:
        raise Unlicensed(f"{deb.name}: it has no {place.removeprefix('.')}")
    tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(deb)], capture_output=True, check=True).stdout
    text = subprocess.run(["tar", "--extract", "--to-stdout", "--file=-", place], input=tar, capture_output=True, check=True).stdout.decode()
    for file in files:
        name = Path(file).name
        if re.search(r"\.(so[.0-9]*|a)$", name) and not OURS.fullmatch(name) and not re.fullmatch(r"libtessera(_\w+)?\.a", name) and f"  {name} " not in text:
            raise Unlicensed(f"{deb.name}: it has {file.removeprefix('.')}, whose license {place.removeprefix('.')} does not name")
