"""Claims about the pages: every link leads somewhere, docs/README.md leads to every page, names are those of the code, and sentences have a
verb."""

import itertools
import re
import sys
import tempfile
import unittest
from pathlib import Path

import comments
import documents
from claims import main

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import check_layers  # noqa: E402


def in_folder(files, check):
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            file = Path(folder) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return check(folder)


class Commands(unittest.TestCase):
    def test_the_readme_has_a_row_for_each(self):
        sources = "".join(path.read_text() for path in sorted((ROOT / "tessera/tools").rglob("*_command.cc")) + [ROOT / "tessera/tools/tessera.cc"])
        names = set(re.findall(r'\bapp\.add_subcommand\(\s*"([\w-]+)"', sources))
        self.assertGreater(len(names), 10)
        table = (ROOT / "README.md").read_text().split("\n## The command `tessera`", 1)[1].split("\n## ", 1)[0]
        rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
        listed = {word for row in rows for word in re.findall(r"`tessera ([\w-]+)|, `([\w-]+)`", row) for word in word if word}
        self.assertEqual(names - listed, set(), "README.md: The command `tessera`")


class Metrics(unittest.TestCase):
    def test_the_page_of_the_dashboard_has_those_that_are_served(self):
        source = (ROOT / "tessera/cluster/dashboard/job_board.cc").read_text()
        families = re.findall(r'\b(?:family|of_each)\(\s*"(\w+)"(?:, "(info)")?', source)
        served = {name + ("_info" if kind else "") for name, kind in families}
        self.assertGreater(len(served), 10)
        self.assertEqual(served, set(re.findall(r"`(tessera_\w+)`", (ROOT / "docs/dashboard.md").read_text())), "docs/dashboard.md")


class Links(unittest.TestCase):
    def faults(self, files):
        return in_folder(files, documents.dead_links)

    def test_all_of_the_project_lead_somewhere(self):
        self.assertEqual(documents.dead_links(ROOT), [])

    def test_a_missing_file_is_named_with_page_and_line(self):
        self.assertEqual(self.faults({"docs/a.md": "# A\n\nSee [b](b.md).\n"}), ["docs/a.md:3: b.md: there is no docs/b.md"])

    def test_a_missing_heading_is_named(self):
        self.assertEqual(self.faults({"a.md": "[b](docs/b.md#two)\n", "docs/b.md": "# One\n"}),
                         ["a.md:1: docs/b.md#two: docs/b.md has no heading #two"])

    def test_headings_are_found_as_github_names_them(self):
        page = "# The `.ckpt` file, byte by byte\n## Limits\n## Limits\n[x](#the-ckpt-file-byte-by-byte) [y](#limits) [z](#limits-1)\n"
        self.assertEqual(self.faults({"a.md": page}), [])

    def test_a_heading_of_the_page_itself_must_be_there(self):
        self.assertEqual(len(self.faults({"a.md": "# A\n[x](#b)\n"})), 1)

    def test_code_and_other_sites_are_no_links(self):
        page = "`f[i](x)` [site](https://example.org/x)\n\n    [a](b)\n\n```cpp\n[&](auto)\n# no heading\n```\n"
        self.assertEqual(self.faults({"a.md": page}), [])


class Index(unittest.TestCase):
    def test_it_leads_to_every_page(self):
        self.assertEqual(documents.unlinked(ROOT), [])

    def test_a_page_that_nobody_is_led_to_is_named(self):
        files = {"docs/README.md": "[a](a.md#x)\n", "docs/a.md": "# X\n", "docs/b.md": "# Y\n"}
        self.assertEqual(in_folder(files, documents.unlinked), ["docs/b.md: docs/README.md does not link to it"])

    def test_the_readme_leads_to_it(self):
        self.assertIn("docs/README.md", [target for _, target in documents.links((ROOT / "README.md").read_text())])


class Sentences(unittest.TestCase):
    """Those of paragraphs: tables, lists and headings speak in phrases."""

    def setUp(self):
        self.known = comments.verbs(ROOT / "tests/house/verbs.txt")

    def faults(self, page):
        return in_folder({"docs/a.md": page}, lambda folder: documents.verbless(folder, self.known))

    def test_each_has_a_verb(self):
        lines = (ROOT / "tests/house/verbless_of_pages.txt").read_text().splitlines()
        accepted = [line for line in lines if line and not line.startswith("#")]
        found = documents.verbless(ROOT, self.known)
        self.assertEqual([f"{place}: {sentence}" for place, sentence in found if sentence not in accepted], [],
                         "say who does what; a verb that is not known goes into tests/house/verbs.txt, a sentence that must stay as it is into "
                         "verbless_of_pages.txt, with X for code")
        self.assertEqual([sentence for sentence in accepted if sentence not in [each for _, each in found]], [])

    def test_one_without_a_verb_is_found_with_its_place(self):
        self.assertEqual(self.faults("# A\n\nIt holds a. Text, in `UTF-8`.\nOf [this rank](b.md):\n"),
                         [("docs/a.md:3", "Text, in X."), ("docs/a.md:3", "Of this rank:")])

    def test_captions_tables_lists_and_code_need_none(self):
        self.assertEqual(self.faults("**For users.** It holds a.\n\n**Others**\n\n| of a | b |\n|---|---|\n| two | three |\n\n* of this rank\n  and of that\n\n"
                                     "    no sentence\n\n```\nno sentence\n```\n"), [])


# Sources that a page names and that are the reader's own.
FILES_OF_READERS = {"line.cc", "nccl_allgather.py", "preprocess.py"}

# The pages that follow something through the code, function by function.
WALKS = ("docs/a_batch.md", "docs/a_pipeline.md", "docs/a_save.md", "docs/a_loss.md", "docs/a_mindspore_train.md")

# Where a row's first function is called by none above it in a way that a text shows: the row above, the row's own, and the way.
CALLED_OTHERWISE = {
    ("trace_train_step", "Cell::operator()"): "a network is called as a function: network(x)",
    ("launch", "add_convolution"): "a registry adds it; the queue runs what it has prepared",
    ("all_finite", "add_optimizers"): "a registry adds them; the queue runs what they have prepared",
    ("tensors", "set_attribute"): "by the script",
    ("set_attribute", "PythonModel"): "by the script",
    ("HeldParameters::take", "bind_training"): "by the script",
    ("PythonCell::construct", "PythonCallback"): "by the loop, as any callback",
    ("Snapshot::begin", "run_task"): "by a step that runs beside the copy",
    ("RecordWriter::add", "create_local_file"): "by FileSystem::create, before the first record",
    ("receive", "SchedulerLink::hear"): "as the client's on_end, which the link gives it",
    ("CommLane::start", "travel_on_host"): "by the lane, as a task that make_message_channel has made",
    ("CommLane::start", "travel"): "by the lane, as a task that make_message_channel has made",
    ("rename", "Retention::tidy"): "as the job's after_commit, which the callback gives it",
}


class Calls(unittest.TestCase):
    """The pages that follow one batch, one step of a pipeline, one save, one lost rank and one Model.train have no gap between two functions."""

    def test_each_function_is_called_by_one_above_it(self):
        found = {(above, own): place for page in WALKS
                 for place, above, own in documents.uncalled(ROOT, page)}
        self.assertEqual({gap: place for gap, place in found.items() if gap not in CALLED_OTHERWISE}, {},
                         "no row above calls the second: add the row between them, or say in CALLED_OTHERWISE who calls it")
        self.assertEqual(CALLED_OTHERWISE.keys() - found.keys(), set(), "these rows are called by one above, or are gone: take them off the list")

    def gaps(self, *table):
        files = {"docs/a.md": "\n".join(("| function | file |", "|---|---|") + table) + "\n", "tessera/a.cc": "void outer() { inner(); }\n",
                 "tessera/b.cc": "void inner() { innermost(); }\nvoid innermost() {}\nvoid apart() {}\n", "python/c.py": ""}
        return in_folder(files, lambda folder: documents.uncalled(folder, "docs/a.md"))

    def test_a_chain_has_no_gap(self):
        self.assertEqual(self.gaps("| `outer` | `tessera/a.cc` |", "| `A::inner` | `tessera/b.cc` |", "| `innermost` | `tessera/b.cc` |"), [])

    def test_a_row_that_is_missing_is_noticed(self):
        self.assertEqual(self.gaps("| `outer` | `tessera/a.cc` |", "| `innermost` | `tessera/b.cc` |"), [("docs/a.md:4", "outer", "innermost")])

    def test_a_definition_alone_is_no_call(self):
        self.assertEqual(self.gaps("| `inner` | `tessera/b.cc` |", "| `apart` | `tessera/b.cc` |"), [("docs/a.md:4", "inner", "apart")])

    def test_what_python_calls_is_not_looked_at(self):
        self.assertEqual(self.gaps("| `f` | `python/c.py` |", "| `apart` | `tessera/b.cc` |"), [])


class Forms(unittest.TestCase):
    def test_the_page_has_every_form_of_a_save(self):
        forms = re.findall(r"^  (k\w+),", (ROOT / "tessera/train/modes/save_form.h").read_text(), re.M)
        said = [name for _, cells in documents.rows((ROOT / "docs/a_save.md").read_text()) for name in documents.names_in(cells[0])
                if re.fullmatch(r"k[A-Z]\w+", name)]
        self.assertEqual(said, forms)


class Decisions(unittest.TestCase):
    def test_the_page_lists_its_sections_with_the_folders_that_they_are_of(self):
        begin, *sections = (ROOT / "docs/decisions.md").read_text().split("\n## ")
        listed = re.findall(r"^\* \[(.+?)\]\(#\S+\), of ((?:`[\w/]+`(?:, )?)+): ", begin, re.M)
        self.assertEqual([name for name, _ in listed], [section.splitlines()[0] for section in sections])
        folders = [folder for _, names in listed for folder in documents.names_in(names)]
        self.assertEqual([folder for folder in folders if not any((ROOT / top / folder).is_dir() for top in ("", "tessera"))], [])


# Which test runs the code of a page.
RUN_BY = {"docs/python.md": "tests/python/guide_test.py", "docs/watching.md": "tests/python/logs_test.py", "docs/program.md": "tests/program/program_test.py",
          "docs/start_from_pytorch.md": "tests/site/snippets_test.py", "docs/start_from_mindspore.md": "tests/site/snippets_test.py",
          "docs/other_frameworks.md": "tests/site/snippets_test.py", "docs/start_in_cpp.md": "tests/site/CMakeLists.txt",
          "docs/extending.md": "tests/program/program_test.py", "README.md": "tests/python/readme_test.py"}


class Snippets(unittest.TestCase):
    def test_a_page_with_code_has_a_test_that_runs_it(self):
        with_code = {page for page, text in documents.pages(ROOT).items()
                     if not page.startswith("tests/tutorials/retyped/") and re.search(r"^```(?:python|cpp)$", text, re.M)}
        self.assertEqual(with_code, RUN_BY.keys(), "have a test run the page's code, and name it in RUN_BY")
        for page, test in RUN_BY.items():
            self.assertIn(Path(page).name, (ROOT / test).read_text(), f"{test} runs the code of {page}")


class Shares(unittest.TestCase):
    def test_data_parallel_stays_by_the_share_that_the_code_has(self):
        code = (ROOT / "tessera/compiler/choose_plan.h").read_text()
        share = 100 * float(re.search(r"kWorthwhile = ([\d.]+);", code)[1])
        said = {}
        for page in sorted((ROOT / "docs").glob("*.md")):
            for sentence in re.split(r"(?<=[.:;|])\s", page.read_text().replace("\n", " ")):
                if re.search(r"data parallel\b.*\bstays\b", sentence, re.I) and "%" in sentence:
                    said[f"{page.name}: {sentence.strip()}"] = [float(n) for n in re.findall(r"([\d.]+) %", sentence)]
        self.assertGreaterEqual(len(said), 2, "planning.md and decisions.md say by how much a plan must be faster")
        self.assertEqual({where: shares for where, shares in said.items() if shares != [share]}, {})


class Faults(unittest.TestCase):
    """The numbers of the form F34, by which pages and tests speak of a fault."""

    @staticmethod
    def numbers(cell):
        """Those that a row begins with: "F54 to F56" are three."""
        found = set()
        for first, last in re.findall(r"\bF(\d\d)\b(?: to F(\d\d)\b)?", cell):
            found |= set(range(int(first), int(last or first) + 1))
        return found

    def tables(self):
        """By page and heading, where a table has any."""
        found = {}
        for page in ("docs/faults.md", "docs/kubernetes.md"):
            for part in (ROOT / page).read_text().split("\n## "):
                if numbers := set().union(*(self.numbers(cells[0]) for _, cells in documents.rows(part))):
                    found[page, part.splitlines()[0]] = numbers
        return found

    def test_a_number_is_that_of_one_table(self):
        tables = self.tables()
        self.assertEqual(len(tables), 3)
        self.assertEqual([(one, other, both) for (one, of_one), (other, of_other) in itertools.combinations(tables.items(), 2)
                          if (both := of_one & of_other)], [])

    def test_a_number_that_a_test_carries_is_in_a_table(self):
        known = set().union(*self.tables().values())
        name = re.compile(r"(?:\bTEST(?:_[FP])?\(\w+, |\bdef test_)((?:F\d\d_)+)")
        carried = {(path.relative_to(ROOT).as_posix(), int(number)) for folder in ("tessera", "tests", "deploy")
                   for path in (ROOT / folder).rglob("*_test.*") for numbers in name.findall(path.read_text())
                   for number in re.findall(r"\d\d", numbers)}
        self.assertGreater(len(carried), 40)
        self.assertEqual({(file, number) for file, number in carried if number not in known}, set())


class Names(unittest.TestCase):
    def test_each_function_that_a_page_follows_is_in_its_file(self):
        self.assertEqual([fault for page in WALKS for fault in documents.absent_names(ROOT, page, 0, 1)], [])

    def test_every_page_that_follows_something_is_looked_at(self):
        self.assertEqual(sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("a_*.md")), sorted(WALKS))

    def test_each_type_of_the_glossary_is_in_its_header(self):
        self.assertEqual(documents.absent_names(ROOT, "docs/glossary.md", 2, 3), [])

    def test_every_file_that_a_page_names_is_there(self):
        self.assertEqual([fault for page in documents.pages(ROOT) if page.startswith("docs/") for fault in documents.absent_files(ROOT, page)], [])

    def test_every_file_that_a_page_names_without_its_folder_is_there(self):
        faults = [fault for page in documents.pages(ROOT) for fault in documents.absent_bare_files(ROOT, page)]
        self.assertEqual([fault for fault in faults if fault.split(" no ")[1].split()[0] not in FILES_OF_READERS], [])

    def test_a_file_without_its_folder_is_looked_for_in_that_of_its_row(self):
        page = "| line | folder | holds |\n|---|---|---|\n| 5 | ops | a.cc |\n| 6 | ir | `a.cc` |\n\nAnywhere: `a.cc`; nowhere: `c.cc`.\n"
        files = {"docs/a.md": page, "tessera/ops/rules/a.cc": "", "tessera/ir/b.cc": ""}
        self.assertEqual([fault.split(" in ")[0] for fault in in_folder(files, lambda folder: documents.absent_bare_files(folder, "docs/a.md"))],
                         ["docs/a.md:4: there is no a.cc", "docs/a.md:6: there is no c.cc"])

    def faults(self, row):
        files = {"docs/a.md": "| who | where |\n|---|---|\n" + row + "\n", "tessera/a.cc": "void A::run() {}\nint look_at(B b);\n"}
        return in_folder(files, lambda folder: documents.absent_names(folder, "docs/a.md", 0, 1))

    def test_a_name_that_is_there_is_none(self):
        self.assertEqual(self.faults("| `A::run`, `look_at` | `tessera/a.cc` |"), [])

    def test_a_file_and_a_name_that_are_gone_are_named(self):
        self.assertEqual(self.faults("| `run` | `tessera/b.cc` |"), ["docs/a.md:3: there is no file tessera/b.cc"])
        self.assertEqual(self.faults("| `A::run`, `look` | `tessera/a.cc` |"), ["docs/a.md:3: tessera/a.cc has no look"])

    def test_a_file_that_has_none_of_its_names_is_a_fault(self):
        self.assertEqual(self.faults("| `B::run` | `tessera/a.cc` |"),
                         ["docs/a.md:3: tessera/a.cc has none of B::run", "docs/a.md:3: tessera/a.cc has no B::run"])

    def test_a_file_is_found_from_the_library_too(self):
        files = {"docs/a.md": "`ir/graph.h` and `ir/gone.h`, in `tessera/ir/graph.h`\n", "tessera/ir/graph.h": ""}
        self.assertEqual(in_folder(files, lambda folder: documents.absent_files(folder, "docs/a.md")), ["docs/a.md:1: there is no file ir/gone.h"])


class Map(unittest.TestCase):
    """docs/architecture.md has the folders and rooms that scripts/check_layers.py holds."""

    def cells_under(self, heading):
        section = (ROOT / "docs/architecture.md").read_text().split(heading)[1].split("\n##")[0]
        return [cells for _, cells in documents.rows(section)]

    def test_each_folder_is_on_its_line(self):
        said = {folder.split("/")[0]: line for line, folders, *_ in self.cells_under("\n## Folders\n") for folder in folders.split(", ") if line != "-"}
        self.assertEqual({folder: line for folder, line in said.items() if folder != "python"},
                         {folder: str(line) for folder, line in check_layers.LAYERS.items()})

    def test_each_room_is_there_in_the_order_of_the_rooms(self):
        said = {}
        for folder, room, _ in self.cells_under("\n### Rooms\n"):
            said.setdefault(folder, []).append("." if room == "(its own files)" else room.rstrip("/"))
        for folder, rooms in check_layers.ROOMS.items():
            self.assertEqual([room for room in said[folder] if room != "."], [room for room in rooms if room != "."], folder)
            if "." in rooms:
                self.assertEqual(said[folder], list(rooms), folder)


class Process(unittest.TestCase):
    """docs/architecture.md says what a process has once."""

    def of_library(self, pattern):
        files = [path for folder in ("tessera",) for path in (ROOT / folder).rglob("*.*") if path.suffix in (".cc", ".h")]
        return {path.relative_to(ROOT / "tessera").as_posix() for path in files
                if not re.search(r"test", path.as_posix()[len(str(ROOT)):]) and re.search(pattern, path.read_text(), re.M)}

    def named(self):
        page = (ROOT / "docs/architecture.md").read_text()
        passage = page.split("**What decides a result is passed in.**")[1].split("\n**")[0]
        return set(documents.names_in(passage))

    def test_who_reads_the_environment_is_named(self):
        self.assertEqual(self.of_library(r"\bgetenv\(|\benviron\b") - self.named(), set())

    def test_who_keeps_a_variable_for_the_process_is_named(self):
        self.assertEqual(self.of_library(r"\bthread_local\b|\bstatic std::(?:once_flag|atomic)|^std::(?:once_flag|atomic)") - self.named(), set())

    def test_who_handles_a_signal_for_the_process_is_named(self):
        outside_of_launcher = {file for file in self.of_library(r"\bsigaction\(|\bsignal\(") if not file.startswith("cluster/")}
        self.assertEqual(outside_of_launcher - self.named(), set())


if __name__ == "__main__":
    main()
