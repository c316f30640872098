"""Claims about the scripts around the code: the layer check and the counting of test cases; and about documents that
must list what the code has."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import check_layers
import imports
import suites
import variables
from claims import main


def faults_of(files):
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            file = Path(folder) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return check_layers.check(folder)


class Environment(unittest.TestCase):
    def test_the_page_lists_every_variable_and_no_other(self):
        page = (ROOT / "docs/environment.md").read_text()
        library = variables.of_library(ROOT)
        self.assertEqual(variables.listed(page, "Variables of a rank") | variables.listed(page, "Variables that scripts"), library)
        self.assertEqual(variables.listed(page, "Variables for developers"), variables.of_developers(ROOT) - library)

    def test_a_process_knows_those_that_the_page_lists(self):
        page = (ROOT / "docs/environment.md").read_text()
        names = {name for heading in ("Variables of a rank", "Variables that scripts", "Variables for developers")
                 for name in variables.listed(page, heading) if name.startswith("TESSERA_")}
        self.assertEqual(variables.declared(ROOT), sorted(names))

    def test_a_variable_of_a_test_or_a_script_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in {"tests/a.cc": 'std::getenv("ONE")', "scripts/b": "x=${TWO:-3}", "benchmarks/c.py": "os.environ.get('THREE')",
                               "tessera/d_test.cc": 'getenv("FOUR")', "examples/e.sh": "$mine ${mine:-} ${#FIVE}"}.items():
                (Path(folder) / path).parent.mkdir(exist_ok=True)
                (Path(folder) / path).write_text(text)
            self.assertEqual(variables.of_developers(Path(folder)), {"ONE", "TWO", "THREE", "FOUR"})


class Layers(unittest.TestCase):
    def test_the_project_is_clean(self):
        self.assertEqual(check_layers.check(ROOT), [])

    def test_downward_is_allowed(self):
        self.assertEqual(faults_of({"tessera/ir/a.h": '#include "tessera/base/error.h"\n#include <vector>\n'}), [])

    def test_upward_is_refused_with_file_line_include_and_rule(self):
        self.assertEqual(
            faults_of({"tessera/mesh/a.cc": '// a\n#include "tessera/ir/graph.h"\n'}),
            ['tessera/mesh/a.cc:2: includes "tessera/ir/graph.h": upward: mesh (layer 2) may include only base, tensor, solver, pipeline, timeline; '
             "ir is layer 3"])

    def test_sideways_is_refused(self):
        self.assertIn("sideways", faults_of({"tessera/nn/a.cc": '#include "tessera/compiler/compile.h"\n'})[0])

    def test_a_room_includes_only_lower_rooms_of_its_folder(self):
        self.assertEqual(faults_of({"tessera/train/model.h": '#include "tessera/train/modes/mode.h"\n',
                                    "tessera/train/modes/mode.h": '#include "tessera/train/options/model_options.h"\n'}), [])
        self.assertIn("upward: train/modes may include of train only train/options",
                      faults_of({"tessera/train/modes/mode.h": '#include "tessera/train/model.h"\n'})[0])
        self.assertIn("only nothing", faults_of({"tessera/train/options/a.cc": '#include "tessera/train/modes/mode.h"\n'})[0])

    def test_a_folders_own_files_stand_where_the_table_says(self):
        self.assertEqual(faults_of({"tessera/base/files/file_system.h": '#include "tessera/base/error.h"\n'}), [])
        self.assertIn("upward: base may include of base only nothing",
                      faults_of({"tessera/base/error.h": '#include "tessera/base/files/file_system.h"\n'})[0])

    def test_a_test_may_look_into_every_room_of_its_folder(self):
        self.assertEqual(faults_of({"tessera/train/options/a_test.cc": '#include "tessera/train/modes/mode.h"\n'}), [])

    def test_a_file_of_a_room_within_a_room_keeps_to_the_order_of_both(self):
        self.assertIn("upward: train/modes may include of train/modes only nothing",
                      faults_of({"tessera/train/modes/mode.cc": '#include "tessera/train/modes/stages/servers.h"\n'})[0])
        self.assertIn("upward: train/modes may include of train only train/options",
                      faults_of({"tessera/train/modes/stages/servers.cc": '#include "tessera/train/model.h"\n'})[0])
        self.assertIn("upward: cluster/rendezvous may include of cluster only",
                      faults_of({"tessera/cluster/rendezvous/client.cc": '#include "tessera/cluster/dashboard/job_board.h"\n'})[0])

    def test_the_commands_rooms_have_an_order_too(self):
        self.assertIn("upward: tools/check may include of tools only",
                      faults_of({"tessera/tools/check/measure.cc": '#include "tessera/tools/info.h"\n'})[0])
        self.assertEqual(faults_of({"tessera/tools/info.cc": '#include "tessera/tools/check/cpu_features.h"\n'}), [])

    def test_a_folder_that_is_no_room_is_named(self):
        self.assertEqual(faults_of({"tessera/ir/attic/a.h": "", "tessera/testing/attic/a.h": ""}),
                         ["tessera/ir/attic: is no room of ir: list it in ROOMS of scripts/check_layers.py, in the order of the includes, and in "
                          "docs/architecture.md"])

    def test_a_folder_is_a_room_that_one_can_know(self):
        """Sources: .h and .cc, tests and their helpers included, of one folder without those below it."""
        folders = {}
        for path in (ROOT / "tessera").rglob("*.*"):
            if path.suffix in (".h", ".cc"):
                folders.setdefault(path.parent.relative_to(ROOT).as_posix(), []).append(path.name)
        self.assertEqual({folder: len(files) for folder, files in folders.items() if len(files) > 30}, {}, "split it into rooms")

    def test_an_elementwise_operator_has_four_files(self):
        sources = [path for folder in ("tessera", "python/src") for path in sorted((ROOT / folder).rglob("*"))
                   if path.suffix in (".h", ".cc") and not path.stem.endswith("_test")]
        for name, constant in (("sin", "kSin"), ("cos", "kCos"), ("floor", "kFloor")):
            names_it = re.compile(rf'"{name}"|\b{constant}\b(?=[^a-z])')
            own = [str(path.relative_to(ROOT)) for path in sources if names_it.search(path.read_text())]
            self.assertEqual(own, ["tessera/kernels/cpu/rows/row_ops.cc", "tessera/ops/defs/elementwise.cc",
                                   "tessera/ops/functions/elementwise_functions.h", "tessera/tensor/element_op.h"], name)

    def test_testing_is_for_tests(self):
        include = '#include "tessera/testing/run_ranks.h"\n'
        self.assertEqual(faults_of({"tessera/comm/a_test.cc": include, "tests/laws/laws_test.cc": include, "benchmarks/a.cc": include}), [])
        self.assertIn("testing is for tests", faults_of({"tessera/comm/a.cc": include})[0])

    def test_a_helper_that_only_tests_compile_is_a_test(self):
        tree = {"tessera/comm/CMakeLists.txt": "tessera_library(comm SOURCES comm.cc)\ntessera_test(a_test SOURCES a_test.cc job.cc)\n",
                "tessera/comm/job.h": '#include "tessera/testing/run_ranks.h"\n'}
        self.assertEqual(faults_of(tree), [])

    def test_a_test_keeps_to_its_folders_layer(self):
        self.assertIn("upward", faults_of({"tessera/ops/a_test.cc": '#include "tessera/executor/executor.h"\n'})[0])

    def test_programs_see_only_the_public_header(self):
        self.assertEqual(faults_of({"examples/a.cc": '#include "tessera/tessera.h"\n',
                                    "tessera/tools/a.cc": '#include "tessera/tools/run.h"\n'}), [])
        self.assertEqual(faults_of({"tessera/tools/a.cc": '#include "tessera/engine.h"\n'}), [])
        self.assertEqual(faults_of({"tessera/tools/a.cc": '#include "tessera/base/json/bounded_json.h"\n'}), [])
        self.assertIn("includes only tessera/tessera.h", faults_of({"examples/a.cc": '#include "tessera/base/json/bounded_json.h"\n'})[0])
        self.assertIn("includes only tessera/tessera.h", faults_of({"examples/a.cc": '#include "tessera/nn/cell.h"\n'})[0])
        self.assertIn("is for users", faults_of({"tessera/nn/a.cc": '#include "tessera/tessera.h"\n'})[0])

    def test_an_include_relative_to_the_file_is_refused(self):
        self.assertIn("from the project's root", faults_of({"tessera/nn/a.cc": '#include "cell.h"\n'})[0])

    def test_cmake_dependencies_go_downward(self):
        cmake = {"tessera/ir/CMakeLists.txt": "tessera_library(ir DEPS mesh SOURCES graph.cc)\n",
                 "tessera/mesh/CMakeLists.txt": "tessera_library(mesh DEPS ir SOURCES mesh.cc)\n"}
        self.assertEqual(faults_of(cmake), ["tessera/mesh/CMakeLists.txt:1: mesh depends on ir: mesh (layer 2) may use "
                                            "only base, tensor, solver, pipeline, timeline"])

    def test_a_plain_library_counts(self):
        cmake = {"tessera/mesh/CMakeLists.txt": "add_library(tessera_mesh INTERFACE)\n"
                                                "target_link_libraries(tessera_mesh INTERFACE tessera_ir)\n",
                 "tessera/ir/CMakeLists.txt": "tessera_library(ir SOURCES graph.cc)\n"}
        self.assertEqual(len(faults_of(cmake)), 1)

    def test_cmake_dependencies_lead_to_what_is_included(self):
        tree = {"tessera/base/CMakeLists.txt": "tessera_library(base SOURCES error.cc)\n",
                "tessera/tensor/CMakeLists.txt": "tessera_library(tensor DEPS base SOURCES shape.cc)\n",
                "tessera/mesh/CMakeLists.txt": "tessera_library(mesh DEPS base SOURCES mesh.cc)\n",
                "tessera/mesh/mesh.cc": '#include "tessera/base/error.h"\n#include "tessera/tensor/shape.h"\n'}
        self.assertEqual(faults_of(tree), ['tessera/mesh/mesh.cc:2: includes "tessera/tensor/shape.h": DEPS of mesh in '
                                           "tessera/mesh/CMakeLists.txt do not lead to tensor"])


class PythonImports(unittest.TestCase):
    def test_no_arrow_leads_back(self):
        for folder in ("python/compat", "python"):
            self.assertEqual(imports.circles(imports.imports(ROOT / folder)), [], "move what both need below them")

    def test_a_circle_is_found_where_a_function_closes_it(self):
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder, "house")
            package.mkdir()
            (package / "__init__.py").write_text("")
            (package / "lower.py").write_text("def f():\n    from house import upper\n    return upper\n")
            (package / "upper.py").write_text("from house import lower\n")
            self.assertEqual(imports.circles(imports.imports(folder)), [["house.lower", "house.upper", "house.lower"]])


class Suites(unittest.TestCase):
    def test_what_the_fast_suite_has_is_a_suite_where_it_is_named(self):
        listed = {"house_test": suites.Test({"fast", "house", "no-sanitizer"}, None), "laws_test": suites.Test({"laws"}, None)}
        self.assertEqual(suites.suites_of(listed), (["fast", "lint", "laws", "fuzz", "asan-ubsan", "tsan"], ["house"]))

    def test_the_house_is_one(self):
        text = (ROOT / "tests/house/CMakeLists.txt").read_text()
        self.assertEqual(len(re.findall(r'LABELS "(?:fast|laws);house;no-sanitizer"', text)), text.count("LABELS"))


class Time(unittest.TestCase):
    def test_it_is_told_by_a_clock_that_is_passed_in(self):
        """But of waits for other ranks, whose processes have no clock of a test's: comm, cluster and kernels/sharing count them themselves. What a thread
        has computed is no time."""
        asks = re.compile(r"\b(?:steady|system|high_resolution)_clock\b|\bsleep_(?:for|until)\b|\b(?:clock_)?gettime(?:ofday)?\((?!CLOCK_THREAD_CPUTIME_ID)")
        places = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "tessera").rglob("*"))
                  if path.suffix in (".h", ".cc") and not path.stem.endswith(("_test", "_bench")) and asks.search(path.read_text())]
        own = [place for place in places if not place.startswith(("tessera/comm/", "tessera/cluster/", "tessera/kernels/sharing/", "tessera/testing/"))]
        self.assertEqual(own, ["tessera/base/clock.cc"], "take a Clock: a test must be able to move time")


class Json(unittest.TestCase):
    PARSES = re.compile(r"\b\w*[jJ]son::(?:parse|accept|sax_parse|from_(?:bjdata|bson|cbor|msgpack|ubjson))\s*\(")

    def parsers(self, root):
        """The sources that parse JSON themselves, but for tests, which read what the project has written."""
        return [path.relative_to(root).as_posix() for folder in ("tessera", "python/src", "examples", "benchmarks") for path in sorted((root / folder).rglob("*"))
                if path.suffix in (".h", ".cc") and not path.stem.endswith("_test") and self.PARSES.search(path.read_text())]

    def test_is_read_to_a_depth_and_no_deeper(self):
        """Texts nested deep take the stack of who copies or prints their values."""
        self.assertEqual(self.parsers(ROOT), ["tessera/base/json/bounded_json.cc"], "call parse_bounded_json() of tessera/base/json/bounded_json.h")

    def test_who_parses_it_otherwise_is_found_by_any_name_of_the_type(self):
        texts = {"tessera/a.cc": "nlohmann::json::parse(text)", "tessera/b/b.h": "const auto x = Json::parse (text);", "examples/c.cc": "TimelineJson::accept(text)",
                 "tessera/d.cc": "nlohmann::ordered_json::sax_parse(a, b, &c)", "benchmarks/e.cc": "json::from_cbor(bytes)",
                 "tessera/f_test.cc": "json::parse(text)", "tessera/g.cc": "parse_bounded_json<Json>(text, file, kind); Json::object(); json.parse(x)"}
        with tempfile.TemporaryDirectory() as folder:
            for path, text in texts.items():
                (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / path).write_text(text)
            self.assertEqual(sorted(self.parsers(Path(folder))), sorted(["tessera/a.cc", "tessera/b/b.h", "tessera/d.cc", "examples/c.cc", "benchmarks/e.cc"]))


class Places(unittest.TestCase):
    def test_no_file_names_the_folder_in_which_the_project_lies_here(self):
        """As what a tool has written and somebody has added does."""
        listed = shutil.which("git") and subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
        if not listed or listed.returncode != 0 or len(ROOT.parts) < 3:
            self.skipTest("there is no git, or the folder's name is one that a file may say by chance")
        files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
        own = f"{ROOT}/".encode()
        self.assertEqual([str(file) for file in files if file.is_file() and own in file.read_bytes()], [])


GTEST = """[ RUN      ] Data.ReadsCifar
../a.cc:1: Skipped
../shared/data is absent

[  SKIPPED ] Data.ReadsCifar (0 ms)
[==========] 4 tests from 2 test suites ran. (3 ms total)
[  PASSED  ] 2 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Data.ReadsCifar
[  FAILED  ] 1 test, listed below:
[  FAILED  ] Data.Fails
"""


class Counting(unittest.TestCase):
    def counted(self, output, ok):
        count = suites.count_test("program", output, ok)
        return count.passed, count.failed, count.skipped

    def test_googletest_cases_are_counted_and_skipped_ones_named(self):
        self.assertEqual(self.counted(GTEST, False), (2, 1, ["program: Data.ReadsCifar: ../shared/data is absent"]))

    def test_the_plain_line_is_counted(self):
        self.assertEqual(self.counted("skipped: torch is absent\n41 passed, 0 failed, 1 skipped\n", True),
                         (41, 0, ["torch is absent"]))

    def test_a_program_without_a_summary_is_one_case(self):
        self.assertEqual(self.counted("hello\n", True), (1, 0, []))
        self.assertEqual(self.counted("hello\n", False), (0, 1, []))

    def test_a_crash_after_the_last_case_is_a_failure(self):
        self.assertEqual(self.counted("[  PASSED  ] 3 tests.\n", False), (3, 1, []))

    def test_of_a_build_that_was_cut_short_only_programs_that_are_up_to_date_count(self):
        with tempfile.TemporaryDirectory() as folder:
            old, new = Path(folder, "old"), Path(folder, "new")
            old.touch()
            new.touch()
            listed = {"old": suites.Test({"threads"}, old), "new": suites.Test({"fast", "threads"}, new),
                      "absent": suites.Test({"threads"}, Path(folder, "absent")), "unnamed": suites.Test({"threads"}, None),
                      "other": suites.Test({"fast"}, new), "excluded": suites.Test({"threads", "no-sanitizer"}, new)}
            with mock.patch.object(suites, "tests_of", lambda preset: listed), mock.patch.object(suites, "stale_targets", lambda preset: {"old"}):
                self.assertEqual(suites.compiled_tests("tsan", "threads"), (["new"], ["old", "absent", "unnamed"]))

    def test_what_begins_in_time_runs_side_by_side_or_alone_and_the_rest_is_named(self):
        listed = {name: suites.Test({"some"}, None, name.startswith("alone")) for name in ("a", "b", "c", "alone", "alone_too")}
        running, most = set(), {}

        def run(preset, label, full, name):
            running.add(name)
            time.sleep(0.02)
            most[name] = len(running)
            time.sleep(0.02)
            running.remove(name)
            return suites.Count(passed=1, failed=name == "b"), f"{name} ran\n"

        patches = [mock.patch.object(suites, "tests_of", lambda preset: listed), mock.patch.object(suites, "run_tests", run),
                   mock.patch("builtins.print")]
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            count = suites.run_until("release", "some", False, sorted(listed), time.monotonic() + 60)
            self.assertEqual((count.passed, count.failed, count.skipped, running), (5, 1, [], set()))
            self.assertEqual((most["alone"], most["alone_too"]), (1, 1))
            self.assertLessEqual(max(most.values()), suites.JOBS)
            count = suites.run_until("release", "some", False, ["a", "b"], time.monotonic() - 1)
            self.assertEqual((count.passed, sorted(count.skipped)), (0, ["a: the time was over", "b: the time was over"]))

    def test_an_order_is_drawn_where_there_is_no_git(self):
        with mock.patch.dict(os.environ, PATH=""):
            self.assertEqual(sorted(suites.drawn_order({"b", "a"})), ["a", "b"])


if __name__ == "__main__":
    main()
