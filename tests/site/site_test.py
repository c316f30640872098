"""site_test.py BUILD_FOLDER: what scripts/docs builds: every link leads somewhere, and what is public has its entry."""

import html
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "scripts" / "site"), str(ROOT / "tests" / "house")]
import as_markdown
import check_links
import command_reference
import cpp_reference
import documents
import python_reference
import stage
from claims import main

BUILD = Path(sys.argv.pop(1)).resolve()


def environment():
    """Sphinx's interpreter, or why there is none."""
    made = subprocess.run([sys.executable, ROOT / "scripts" / "docs_env.py"], capture_output=True, text=True, check=False)
    return made.stdout.strip(), made.stderr.strip()


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        python, reason = environment()
        if not python:
            print(f"\nskipped: the site is not built: {reason.splitlines()[-1] if reason else 'no environment'}")
            raise unittest.SkipTest("scripts/docs_env.py could not make .venv-docs")
        cls.folder = tempfile.TemporaryDirectory(prefix="tessera-site-")
        cls.site = Path(cls.folder.name) / "site"
        cls.done = subprocess.run([python, "-B", ROOT / "scripts/site/build.py", "-o", cls.site, "--build", BUILD], capture_output=True, text=True, check=False)

    @classmethod
    def tearDownClass(cls):
        if hasattr(cls, "folder"):
            cls.folder.cleanup()

    def setUp(self):
        self.assertEqual(self.done.returncode, 0, self.done.stdout + self.done.stderr)

    def text(self, place):
        return (self.site / f"{place}.html").read_text()

    def headings(self, place):
        return {html.unescape(re.sub(r"<[^>]*>", "", heading)).rstrip("¶#").strip() for heading in re.findall(r"<h\d>(.*?)</h\d>", self.text(place), re.S)}

    def test_every_page_of_docs_is_there_and_in_the_navigation(self):
        index = self.text("index")
        for page in sorted((ROOT / "docs").glob("*.md")):
            place = stage.place_of(f"docs/{page.name}")
            self.assertTrue((self.site / f"{place}.html").is_file(), place)
            if place != "index":
                self.assertIn(f'class="reference internal" href="{place}.html"', index)

    def test_each_reader_has_a_part_of_the_navigation(self):
        captions = [html.unescape(one) for one in re.findall(r'class="caption-text">(.*?)</span>', self.text("index"))]
        for reader in ("You use it", "You change it", "You operate it", "Reference"):
            self.assertTrue(any(caption.startswith(reader) for caption in captions), captions)

    def test_nothing_leads_nowhere_and_nothing_is_fetched(self):
        self.assertEqual(check_links.faults(self.site), [])

    def test_it_is_light_and_dark_and_is_searched_from_disk(self):
        self.assertIn("theme-toggle", self.text("index"))
        self.assertIn('src="searchindex.js"', self.text("search"))
        self.assertTrue((self.site / "searchindex.js").read_text().startswith("Search.setIndex("))

    def test_every_public_header_has_its_page_and_every_type_its_heading(self):
        for header in cpp_reference.public_headers(ROOT):
            if header not in cpp_reference.FACES:
                self.assertIn(header, self.headings(cpp_reference.page_of(header)))
        for header, name in cpp_reference.public_types(ROOT):
            self.assertIn(name, self.headings(cpp_reference.page_of(header)), header)

    def test_every_class_of_python_has_its_heading(self):
        classes = python_reference.public_classes(ROOT, BUILD)
        self.assertGreater(len(classes), 300)
        for module, name in classes:
            self.assertIn(name, self.headings(python_reference.page_of(module)), module)

    def test_every_command_has_its_entry(self):
        declared = {name for name, _ in command_reference.declared(ROOT)}
        self.assertGreater(len(declared), 20)
        index = self.text("commands/index")
        for name in declared:
            self.assertRegex(index, rf"\b{re.escape(name)}\b")
        if (BUILD / "bin" / "tessera").exists():
            pages = {path.stem.split("-", 1)[1] for path in (self.site / "commands").glob("tessera-*.html")}
            self.assertEqual({name for name in declared if not any(page == name or page.endswith(f"-{name}") for page in pages)}, set())


class Reading(unittest.TestCase):
    """Of headers, bindings and stubs."""

    def declarations(self, text):
        return cpp_reference.Reader(f"// A header.\n#pragma once\n\nnamespace tessera {{\n\n{text}\n\n}}  // namespace tessera\n").read()

    def test_a_function_is_shown_without_its_body_and_with_its_comment(self):
        (one,) = self.declarations("// Adds.\n// Two lines.\ninline int add(int a, int b = 1) { return a + b; }")
        self.assertEqual((one.code, one.comment), ("inline int add(int a, int b = 1);", "Adds.\nTwo lines."))

    def test_a_class_has_its_public_members_only(self):
        (one,) = self.declarations("class A : public B {\n public:\n  A() : x_(1), y_{2} {}\n  int get() const { return x_; }  // always 1\n\n private:\n  int x_;\n};")
        self.assertEqual((one.name, one.code), ("A", "class A : public B"))
        self.assertEqual([member.code for member in one.members], ["A();", "int get() const;  // always 1"])

    def test_an_enumeration_and_an_initial_value_are_whole(self):
        one, two = self.declarations("enum class Kind { kOne, kTwo };\nstd::vector<int> all = {1, 2};")
        self.assertEqual((one.code, one.name, two.code), ("enum class Kind { kOne, kTwo };", "Kind", "std::vector<int> all = {1, 2};"))

    def test_what_is_of_details_is_not_shown(self):
        self.assertEqual(self.declarations("namespace detail {\nint hidden();\n}\n#define X 1\nclass Later;\nnamespace {\nint own();\n}"), [])

    def test_every_public_type_that_the_house_knows_is_read(self):
        import names
        for header in cpp_reference.public_headers(ROOT):
            text = (ROOT / header).read_text()
            known = {name for _, name in names.types_in(text)}
            read = {one.name.split("<")[0] for one in cpp_reference.Reader(text).read() if one.name}
            self.assertEqual(known - read, set(), header)

    def test_prose_means_nothing_to_markdown_but_code(self):
        self.assertEqual(as_markdown.escape("a_b *c* <d> `e_f` [g]"), r"a\_b \*c\* \<d\> `e_f` \[g\]")
        self.assertEqual(as_markdown.prose("Says:\n    x = 1\n\n      y\nThen."), "Says:\n\n```none\nx = 1\n\n  y\n```\n\nThen.")

    def test_bindings_say_what_the_stubs_say(self):
        """Names of modules, classes and functions; where a package is built."""
        built = python_reference.stubs(BUILD / "python" / "tessera")
        if not built:
            print("\nskipped: bindings beside stubs: the Python package was not built")
            self.skipTest("the Python package was not built")
        import binding_reader
        read = binding_reader.read(ROOT)
        self.assertEqual(set(read), set(built))
        for name, module in built.items():
            for kind in ("classes", "functions"):
                wanted = {one.name for one in getattr(module, kind)}
                self.assertEqual(wanted ^ {one.name for one in getattr(read[name], kind)}, set(), f"{name}: {kind}")

    def test_members_that_parts_of_a_binding_add_are_of_the_class(self):
        import binding_reader
        read = binding_reader.read(ROOT)
        for module, name, wanted in (("tessera", "Model", {"train", "eval", "build", "set_value", "save_checkpoint", "step"}),
                                     ("tessera.nn", "Cell", {"__call__", "parameters", "set_stage", "training"})):
            made = next(one for one in read[module].classes if one.name == name)
            self.assertLessEqual(wanted, {member.name for member in made.members}, name)

    def test_stubs_can_be_parsed(self):
        import ast
        for path in (BUILD / "python" / "tessera").rglob("*.pyi"):
            ast.parse(path.read_text(), str(path))


class OtherFrameworks(unittest.TestCase):
    """The last column of docs/other_frameworks.md names what there is."""

    @classmethod
    def setUpClass(cls):
        cls.modules = python_reference.tessera(ROOT, BUILD)
        page = (ROOT / "docs/other_frameworks.md").read_text()
        cls.cells = [cells[4] for _, cells in documents.rows(page) if len(cells) == 5]

    def names(self):
        return {name for cell in self.cells for text in documents.names_in(cell)
                for name in re.findall(r"(?<![\w.])((?:tessera|nn|ops)(?:\.\w+)+)", text)}

    def test_each_name_of_the_package_is_there(self):
        names = self.names()
        self.assertGreater(len(names), 25)
        absent = []
        for name in names:
            module, _, own = (name if name.startswith("tessera") else f"tessera.{name}").rpartition(".")
            if not (module in self.modules and self.modules[module].has(own)):
                absent.append(name)
        self.assertEqual(absent, [])

    def test_each_argument_is_one_of_some_call(self):
        sources = "".join(path.read_text() for folder in ("python/src", "tessera/train/options") for path in (ROOT / folder).rglob("*.*"))
        given = {name for cell in self.cells for text in documents.names_in(cell) for name in re.findall(r"(?<![\w-])([a-z]\w*)=", text)}
        self.assertGreater(len(given), 20)
        self.assertEqual([name for name in sorted(given) if f'"{name}"' not in sources], [])

    def test_each_method_of_a_model_is_there(self):
        model = next(one for one in self.modules["tessera"].classes if one.name == "Model")
        called = {name for cell in self.cells for text in documents.names_in(cell) for name in re.findall(r"\bmodel\.(\w+)", text)}
        self.assertEqual(called - {member.name for member in model.members}, set())


class Links(unittest.TestCase):
    def faults(self, **pages):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in pages.items():
                (Path(folder) / f"{name}.html").write_text(text)
            return check_links.faults(folder)

    def test_a_link_that_leads_nowhere_is_named(self):
        self.assertEqual(self.faults(a='<a href="b.html">', b='<a href="a.html#x">'), ["b.html: a.html#x: a.html has no place #x"])
        self.assertEqual(self.faults(a='<a href="c.html">'), ["a.html: c.html: there is no c.html"])
        self.assertEqual(self.faults(a='<p id="x"><a href="#x"><a href="https://example.org">'), [])

    def test_what_is_fetched_from_a_network_and_what_is_not_relative_is_named(self):
        self.assertEqual(self.faults(a='<script src="https://example.org/a.js">'), ["a.html: https://example.org/a.js: is fetched from the network"])
        self.assertEqual(self.faults(a='<a href="/b.html">'), ["a.html: /b.html: is not relative"])

    def test_a_page_that_names_a_file_that_is_gone_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(f"{folder}/docs")
            Path(folder, "docs/a.md").write_text("[b](../b.cc) and `[c](c.cc)`\n")
            self.assertEqual(stage.Stage(folder).faults, ["docs/a.md: ../b.cc: there is no file b.cc"])
            Path(folder, "b.cc").write_text("int b;\n")
            staged = stage.Stage(folder)
            self.assertEqual(staged.pages["a"], "[b](files/b.cc.md) and `[c](c.cc)`\n")
            self.assertIn("int b;", staged.pages["files/b.cc"])


if __name__ == "__main__":
    main()
