"""docs/versions.md has the number of every format and protocol, as the sources have it."""

import re
import tomllib
import unittest
from pathlib import Path

import documents
from claims import main

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = "docs/versions.md"
# Constants of such names that are numbers of formats of others, or no numbers.
NO_VERSIONS = {
    ("tessera/data/sets/mnist.cc", "kImagesMagic"): "MNIST's own",
    ("tessera/data/sets/mnist.cc", "kLabelsMagic"): "MNIST's own",
    ("tessera/tensor/dlpack/dlpack_abi.h", "kMinorVersion"): "DLPack's own, behind kMajorVersion, which decides",
    ("tessera/train/kept/kept_training.cc", "kNextVersion"): "a word between two versions of what is kept",
    ("tessera/train/kept/kept_restores.cc", "kMostVersions"): "how many versions are kept",
    ("tessera/cluster/report/rank_report.cc", "kRankFormat"): "a name, with kFormatVersion beside it",
    ("tessera/cluster/report/rank_report.cc", "kLauncherFormat"): "a name, with kFormatVersion beside it",
    ("tessera/checkpoint/manifest/manifest.cc", "kFormat"): "a name, with kVersion beside it",
    ("tessera/compiler/search/plan_record.cc", "kFormat"): "a name, with kVersion beside it",
    ("tessera/tools/plan/plan_budget.cc", "kFormat"): "a name, with kVersion beside it",
    ("tessera/tools/tessera.cc", "kVersion"): "that of the project",
    ("tessera/cluster/rendezvous/messages/frame.cc", "kMagic"): "what a frame begins with, with kProtocolVersion behind it",
}
CONSTANT = re.compile(r"^\s*(?:inline |static )*constexpr (?:const )?[\w:]+\*? (k\w*?(?:Version|Versions|Format|Protocol|Magic|FormatVersion))(?:\[\d*\])? = (.+?);", re.M)


def constants(root):
    """(file, name) -> value, of each constant that is called after a version, a format or a protocol."""
    found = {}
    for path in sorted(Path(root, "tessera").rglob("*.*")):
        if path.suffix in (".h", ".cc") and "test" not in path.stem:
            for name, value in CONSTANT.findall(path.read_text()):
                found[path.relative_to(root).as_posix(), name] = value
    return found


def listed(page):
    """(file, name) -> number, of the rows that name a constant in a file."""
    found = {}
    for _, cells in documents.rows(page):
        for name, file in re.findall(r"`(k\w+)` in `([^`]+)`", cells[2] if len(cells) > 2 else ""):
            found[file, name] = cells[1].strip("`")
    return found


def differ(number, value):
    """Whether the source's value is not the page's number: 2, 0x7F, or "tessera hub 5" and "\\x89TSRAES1" by their end."""
    text = value.strip('"')
    return not (value == number or re.search(rf"(?<![A-Za-z0-9]){re.escape(number)}$", re.sub(r"\\x[0-9A-Fa-f]{2}", " ", text)))


class Versions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.page = (ROOT / PAGE).read_text()
        cls.sources = constants(ROOT)
        cls.listed = listed(cls.page)

    def test_the_page_has_the_numbers_of_the_sources(self):
        self.assertGreater(len(self.listed), 12)
        self.assertEqual({place: number for place, number in self.listed.items() if place not in self.sources}, {}, "the source has no such constant")
        self.assertEqual({place: (number, self.sources[place]) for place, number in self.listed.items() if differ(number, self.sources[place])}, {},
                         "the page's number, the source's")

    def test_every_number_of_the_sources_is_on_the_page(self):
        self.assertEqual(self.sources.keys() - self.listed.keys() - NO_VERSIONS.keys(), set(),
                         f"give it a row in {PAGE}, or say in NO_VERSIONS what it is")
        self.assertEqual(NO_VERSIONS.keys() - self.sources.keys(), set(), "these are gone: take them off the list")

    def number_of(self, what):
        return next(cells[1].split()[0].strip("`") for _, cells in documents.rows(self.page) if cells[0] == what)

    def test_the_library_has_one_version(self):
        cmake = re.search(r"project\(tessera VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        self.assertEqual([self.number_of("Tessera"), project["version"]], [cmake, cmake])
        self.assertEqual(project["requires-python"], f">={self.number_of('the wheel' + chr(39) + 's Python')}")
        package = (ROOT / "python/compat/mindspore/version.py").read_text()
        self.assertIn(f'"{self.number_of("the interface that the package `mindspore` follows")}"', package)
        self.assertIn(f"find_package(Tessera {cmake.rpartition('.')[0]})", self.page)

    def test_installations_are_compatible_as_the_page_says(self):
        rule = re.search(r"COMPATIBILITY (\w+)", (ROOT / "cmake/TesseraInstall.cmake").read_text())[1]
        self.assertIn(f"`COMPATIBILITY {rule}` in `cmake/TesseraInstall.cmake`", self.page)

    def test_the_shared_library_is_called_after_the_minor_version(self):
        minor = re.search(r"project\(tessera VERSION (\d+\.\d+)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertIn("set(TESSERA_SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})", (ROOT / "cmake/TesseraShared.cmake").read_text())
        self.assertEqual(self.number_of(f"the shared library, `libtessera.so.{minor}`"), minor)
        for page, name in (("docs/program.md", "libtessera.so"), ("docs/packages.md", "libtessera.so"), ("docs/packages.md", "libtessera")):
            found = re.findall(rf"{re.escape(name)}\.?(\d+\.\d+)", (ROOT / page).read_text())
            self.assertEqual(set(found), {minor}, page)

    def test_the_objects_of_kubernetes_have_the_version_of_the_definition(self):
        text = (ROOT / "deploy/operator/config/crd/tesserajobs.tessera.dev.yaml").read_text()
        self.assertEqual(re.findall(r"^  - name: (v\w+)$", text, re.M), [self.number_of("objects of Kubernetes, `TesseraJob`")])

    def test_a_manifest_is_read_from_version_1_on(self):
        code = (ROOT / "tessera/checkpoint/manifest/manifest.cc").read_text()
        self.assertIn("version < 1 || version > kVersion", code)

    def test_another_number_is_noticed(self):
        for number, value in (("3", "4"), ("5", '"tessera hub 6"'), ("TSRAES1", '"\\x89TSRAES2"'), ("5", '"tessera hub 15"'), ("TRS9", '"TRS10"')):
            self.assertTrue(differ(number, value), (number, value))
        for number, value in (("3", "3"), ("5", '"tessera hub 5"'), ("TSRAES1", '"\\x89TSRAES1"'), ("TRS9", '"TRS9"')):
            self.assertFalse(differ(number, value), (number, value))


if __name__ == "__main__":
    main()
