"""Claims about the licenses that packages of Tessera bring along: how each is found, when a package is refused, what a wheel has of them."""

import base64
import csv
import hashlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

from claims import main

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import licenses  # noqa: E402

NEEDS_DPKG = unittest.skipIf(shutil.which("dpkg-deb") is None, "this system has no dpkg")
ELF = b"\x7fELF and so on"


def folder_of_test(test):
    """An empty folder, gone when the test is over."""
    folder = tempfile.TemporaryDirectory(prefix="tessera-licenses-")
    test.addCleanup(folder.cleanup)
    return Path(folder.name)


def fetched_onednn(folder, files=("LICENSE", "THIRD-PARTY-PROGRAMS")):
    """A folder as scripts/setup makes of oneDNN, with these files about its license."""
    doc, config = folder / "share" / "doc" / "onednn", folder / "lib" / "cmake" / "dnnl"
    doc.mkdir(parents=True)
    config.mkdir(parents=True)
    for name in files:
        (doc / name).write_text(f"{name} of oneDNN\n")
    (config / "dnnl-config-version.cmake").write_text('set(PACKAGE_VERSION "3.2.0")\n')
    return folder


class FindsLicenses(unittest.TestCase):
    @NEEDS_DPKG
    def test_a_library_that_auditwheel_has_copied_has_that_of_the_package_with_these_bytes(self):
        package, path = licenses.owners_of("*/libssl.so.3")[0]
        mark = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:8]
        found = licenses.license_of_file(f"libssl-{mark}.so.3", b"changed")
        self.assertEqual((found.library, found.package), ("libssl.so.3", package.partition(":")[0]))
        self.assertIn("Copyright", found.texts["copyright"])
        self.assertRegex(found.source, r"^https://snapshot\.debian\.org/package/openssl/3\.")

    @NEEDS_DPKG
    def test_a_library_of_the_same_name_with_other_bytes_is_refused(self):
        with self.assertRaisesRegex(licenses.Unlicensed, r"libssl-00000000\.so\.3: no installed package of Debian has this libssl\.so\.3"):
            licenses.license_of_file("libssl-00000000.so.3", b"")

    def test_a_library_that_no_package_has_is_refused(self):
        with self.assertRaisesRegex(licenses.Unlicensed, r"libnobody_has_this\.so\.1: .* its license is unknown; build Tessera with"):
            licenses.license_of_file("libnobody_has_this.so.1", ELF)

    def test_a_package_without_a_copyright_file_is_refused(self):
        with self.assertRaisesRegex(licenses.Unlicensed, r"libssl\.so\.3: the package libssl3:amd64 has no .*/libssl3/copyright; .*reinstall"):
            licenses.license_of_package("libssl.so.3", "libssl3:amd64", doc=folder_of_test(self))

    def test_the_fetched_onednn_has_its_own(self):
        found = licenses.license_of_file("libdnnl.so.3", ELF, onednn=fetched_onednn(folder_of_test(self)))
        self.assertEqual((found.version, list(found.texts)), ("3.2.0", ["LICENSE", "THIRD-PARTY-PROGRAMS"]))
        with self.assertRaisesRegex(licenses.Unlicensed, r"libdnnl\.so\.3: oneDNN's license is not in .*/THIRD-PARTY-PROGRAMS; remove "):
            licenses.license_of_file("libdnnl.so.3", ELF, onednn=fetched_onednn(folder_of_test(self), files=["LICENSE"]))

    def test_own_libraries_need_none(self):
        for name in ("_tessera.cpython-311-x86_64-linux-gnu.so", "libtessera.so.0.1.0", "libtessera_mpi_plugin.so"):
            self.assertFalse(licenses.is_library(name, ELF), name)
        self.assertTrue(licenses.is_library("libtesseract.so.5", ELF))

    def test_common_licenses_that_a_license_only_names_are_brought_along(self):
        common = folder_of_test(self)
        (common / "LGPL-2.1").write_text("the lesser one\n")
        text = "On Debian systems it can be found in /usr/share/common-licenses/LGPL-2.1.\n"
        files = licenses.files_of([licenses.License("liba.so.1", "liba1", "1.0-2", {"copyright": text}, "https://a.example")], common)
        self.assertEqual(set(files), {"LIBRARIES.txt", "liba1/copyright", "common-licenses/LGPL-2.1"})
        self.assertEqual(files["LIBRARIES.txt"].splitlines()[-1].split(), ["liba.so.1", "1.0-2", "liba1", "liba1/copyright", "https://a.example"])


class Wheel(unittest.TestCase):
    def made(self, libraries):
        """A wheel as auditwheel leaves it, with these libraries."""
        wheel, rows = folder_of_test(self) / "tessera-0.1.0-py3-none-any.whl", []
        files = {name: ELF for name in libraries} | {"tessera-0.1.0.dist-info/METADATA": b"Metadata-Version: 2.4\nName: tessera\n\nWhat it is.\n\nMore.\n"}
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
                rows.append(f"{name},sha256=old,{len(content)}\n")
            archive.writestr("tessera-0.1.0.dist-info/RECORD", "".join(rows) + "tessera-0.1.0.dist-info/RECORD,,\n")
        return wheel

    def licensed(self, wheel):
        out = folder_of_test(self) / wheel.name
        known = mock.patch.object(licenses, "license_of_file", lambda name, content: licenses.License(name, "liba1", "1", {"copyright": "A's words\n"}))
        compiled = mock.patch.object(licenses, "licenses_of_compiled_in", lambda builder: [licenses.License("B", "b", "2", {"LICENSE": "B's words\n"})])
        with known, compiled:
            licenses.add_to_wheel(wheel, out, sys.executable)
        return zipfile.ZipFile(out)

    def test_it_has_each_license_and_lists_it(self):
        with self.licensed(self.made(["tessera.libs/liba.so.1", "tessera/_tessera.cpython-311-x86_64-linux-gnu.so"])) as archive:
            folder = "tessera-0.1.0.dist-info/licenses/third_party"
            self.assertEqual(archive.read(f"{folder}/liba1/copyright"), b"A's words\n")
            self.assertEqual(archive.read(f"{folder}/b/LICENSE"), b"B's words\n")
            listed = [line.split()[0] for line in archive.read(f"{folder}/LIBRARIES.txt").decode().split("\n\n")[1].splitlines()]
            self.assertEqual(listed, ["library", "liba.so.1", "B"])
            head, _, body = archive.read("tessera-0.1.0.dist-info/METADATA").decode().partition("\n\n")
            self.assertIn("License-File: third_party/liba1/copyright", head.splitlines())
            self.assertEqual(body, "What it is.\n\nMore.\n")

    def test_its_record_names_each_file_once_with_its_hash(self):
        with self.licensed(self.made(["tessera.libs/liba.so.1"])) as archive:
            self.assertIsNone(archive.testzip())
            record = "tessera-0.1.0.dist-info/RECORD"
            rows = {name: digest for name, digest, _ in csv.reader(archive.read(record).decode().splitlines())}
            self.assertEqual(sorted(rows), sorted(archive.namelist()))
            self.assertEqual(rows[record], "")
            for name in archive.namelist():
                if "/licenses/" in name or name.endswith("METADATA"):
                    digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).decode().rstrip("=")
                    self.assertEqual(rows[name], f"sha256={digest}", name)

    def test_it_is_not_made_with_a_library_of_unknown_license(self):
        wheel, out = self.made(["tessera.libs/libnobody_has_this.so.1"]), folder_of_test(self) / "out.whl"
        with self.assertRaisesRegex(licenses.Unlicensed, "libnobody_has_this"):
            licenses.add_to_wheel(wheel, out, sys.executable)
        self.assertFalse(out.exists())


@NEEDS_DPKG
class Deb(unittest.TestCase):
    def made(self, files):
        """A package of Debian with these files, text by path."""
        folder = folder_of_test(self)
        files = {"DEBIAN/control": "Package: tessera\nVersion: 1\nArchitecture: all\nMaintainer: N <n@n.example>\nDescription: d\n"} | files
        for name, text in files.items():
            (folder / "root" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "root" / name).write_text(text)
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", folder / "root", folder / "tessera_1_all.deb"], check=True, capture_output=True)
        return folder / "tessera_1_all.deb"

    def test_without_a_copyright_file_it_is_refused(self):
        with self.assertRaisesRegex(licenses.Unlicensed, "tessera_1_all.deb: it has no /usr/share/doc/tessera/copyright"):
            licenses.check_deb(self.made({"usr/lib/libtessera.so.0.1.0": ""}))

    def test_with_a_library_that_the_copyright_file_does_not_name_it_is_refused(self):
        library = licenses.License("libdnnl.so.3.2", "oneDNN", "3.2.0", {"LICENSE": "its words"})
        files = {"usr/lib/libtessera.so.0.1.0": "", "usr/lib/libtessera_base.a": "", "usr/lib/tessera/onednn/lib/libdnnl.so.3.2": ""}
        place = "usr/share/doc/tessera/copyright"
        with self.assertRaisesRegex(licenses.Unlicensed, "it has /usr/lib/tessera/onednn/lib/libdnnl.so.3.2, whose license "):
            licenses.check_deb(self.made(files | {place: licenses.copyright_of("tessera", [])}))
        text = licenses.copyright_of("tessera", [library])
        licenses.check_deb(self.made(files | {place: text}))
        self.assertIn("its words", text)
        self.assertIn("Apache License", text)


if __name__ == "__main__":
    main()
