"""Claims about adding to Tessera: how many files an operator and a kind of collective touch, that what is added to a few files is
really there, in Python, too, that nothing outside a collective's definition asks for its name, and that element_op.h compiles as a
kernel's text. All that holds for the project must hold for the project with the additions, too.

With --build FOLDER --laws PROGRAM... it also compiles what additions.py adds, and runs those programs of claims with it."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import additions
import documents
from claims import main

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts/site")]
import binding_reader  # noqa: E402
import check_layers  # noqa: E402

DEFINITIONS = ("tessera/ops/defs/collectives.cc", "tessera/ops/rules/exchange.cc")

# Sources that may have a collective's name in quotes, without their suffix, and why. Tests may have any.
MAY_NAME_COLLECTIVES = {
    "tessera/ops/defs/collectives": "the definitions, whose gradients are made of each other",
    "tessera/ops/rules/exchange": "the definition of exchange, which has attributes `send` and `receive`",
    "tessera/ops/functions/collective_functions": "the functions that write them into a network",
    "tessera/ops/rules/localize": "writes them into a rank's graph",
    "tessera/compiler/partition/lowering": "writes the steps of a redistribution into a rank's graph",
    "tessera/mesh/redistribution/redistribution": "what the steps of a redistribution are called, below the operators",
    "tessera/comm/transport": "what the calls of a communicator are called, below the operators",
    "tessera/comm/device_group": "what the calls of a communicator of devices are called, below the operators",
    "tessera/kernels/cuda/libraries/nccl": "what the calls of NCCL are called in errors, below the operators",
    "tessera/comm/group_calls": "what a message without an operator is called in errors",
    "tessera/testing/collective_script": "what the calls of a job's test are called in errors",
    "tessera/ir/program": "the phases of a pipeline's program: a stage sends and receives values, not operators",
    "python/src/operators": "the names that Python knows them by",
}


class Collective:
    """A definition as its source says it."""

    def __init__(self, text):
        self.name = re.search(r'\.name = "(\w+)"', text).group(1)
        steps = re.search(r"\.num_steps = (\d+)", text)
        self.num_steps = steps.group(1) if steps else "1"
        self.received = re.search(r'\.received = "([^"]+)"', text).group(1)


def collectives(root):
    return [Collective(text) for file in DEFINITIONS
            for text in Path(root, file).read_text().split("static const CollectiveDef communication{")[1:]]


def sources(root):
    return [path for folder in ("tessera", "python/src") for path in sorted(Path(root, folder).rglob("*"))
            if path.suffix in (".h", ".cc") and not path.stem.endswith("_test")]


def faults_of_table(root):
    """What the page's table of steps and bytes and the definitions say differently."""
    page = Path(root, "docs/collectives.md").read_text().split("## What the planner counts")[1].split("\n## ")[0]
    said = {name.strip(): cells[1:] for _, cells in documents.rows(page) for name in cells[0].split(",")}
    told = {each.name: [each.num_steps, each.received] for each in collectives(root)}
    return {name: (said.get(name), told.get(name)) for name in said.keys() | told.keys() if said.get(name) != told.get(name)}


def tables(root, page, heading):
    """The names of each row's first cell, table by table, of a section of a page."""
    section = Path(root, page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = []
    for block in re.split(r"\n(?!\|)", section):
        if names := {name for _, cells in documents.rows(block) for name in documents.names_in(cells[0])}:
            found.append(names)
    return found


def functions_of_python(root):
    """Those of tessera.ops, by name, as the bindings say, and the definitions where a binding goes through the registry."""
    return {function.name: function for function in binding_reader.read(root)["tessera.ops"].functions}


def device_code(element_op):
    """What the kernels of an emulated GPU begin with, with every element operator computed of float and of double. `element_op`: the text
    of that header."""
    files = [ROOT / "tessera/testing/devices/emulation.h", "#define TESSERA_DEVICE_CODE 1\n",
             ROOT / "tessera/kernels/cuda/device_code/prelude.h", element_op]
    text = "".join(file if isinstance(file, str) else file.read_text() for file in files)
    text = re.sub(r"^#(?:include|pragma once).*$", "", text, flags=re.M)
    operators = re.findall(r'^  X\((k\w+), "', element_op, re.M)
    calls = "".join(f"  x += tessera::element_value<tessera::ElementOp::{operator}>(x, x, x);\n" for operator in operators)
    return text + "".join(f"{number} compute({number} x) {{\n{calls}  return x;\n}}\n" for number in ("float", "double"))


def faults_of_device_code(element_op):
    """What the host's compiler says of it: nothing where it compiles."""
    compiler = os.environ.get("CXX", "c++").split()
    result = subprocess.run([*compiler, "-std=c++20", "-fsyntax-only", "-w", "-x", "c++", "-"], input=device_code(element_op),
                            capture_output=True, text=True)
    return result.stderr if result.returncode else ""


class OfTheProject(unittest.TestCase):
    """What holds for the project as it is; OfTheAdditions has the same for the project with the additions."""

    root = ROOT

    def test_all_definitions_are_found(self):
        names = [each.name for each in collectives(self.root)]
        registered = sum(path.read_text().count(".collective = &") for path in sources(self.root))
        self.assertGreater(registered, 4)
        self.assertEqual(len(names), registered, f"a CollectiveDef is read where it begins with `static const CollectiveDef communication{{`, in {DEFINITIONS}")
        self.assertEqual(len(set(names)), len(names))

    def test_only_who_writes_them_has_their_names(self):
        names = "|".join(each.name for each in collectives(self.root))
        found = {path.relative_to(self.root).with_suffix("").as_posix() for path in sources(self.root)
                 if re.search(f'"({names})"', path.read_text())}
        self.assertEqual(found - MAY_NAME_COLLECTIVES.keys(), set(), "ask a column of CollectiveDef instead")
        self.assertEqual(MAY_NAME_COLLECTIVES.keys() - found, set(), "these have no such name any more: take them off the list")

    def test_nobody_compares_with_their_names(self):
        names = "|".join(each.name for each in collectives(self.root))
        compares = re.compile(f'(?:[=!]=|starts_with\\(|contains\\(|case) *"({names})"|"({names})" *[!=]=')
        self.assertEqual([str(path.relative_to(self.root)) for path in sources(self.root) if compares.search(path.read_text())], [])

    def test_the_page_has_the_steps_and_bytes_of_the_definitions(self):
        self.assertEqual(faults_of_table(self.root), {})

    def test_the_page_names_the_files_that_an_operator_and_a_collective_touch(self):
        for addition, section in ((additions.CONTRACTION, "Add an operator"), (additions.ELEMENTWISE, "Add an operator"),
                                  (additions.OF_ANOTHER_FUNCTION, "Add an operator"), (additions.COLLECTIVE, "Add a collective")):
            self.assertIn(set(addition.lines), tables(self.root, "docs/extending.md", section), addition.name)

    def test_the_page_names_the_columns_of_a_collective(self):
        header = Path(self.root, "tessera/ops/registry/collective_def.h").read_text().split("struct CollectiveDef {")[1].split("\n};")[0]
        columns = set(re.findall(r"^  [^/\n]*?(\w+) = [^;\n]+;", header, re.M)) - {"received"}  # for people
        self.assertIn(columns, tables(self.root, "docs/extending.md", "Add a collective"))

    def test_the_element_operators_compile_as_a_kernels_text(self):
        self.assertEqual(faults_of_device_code(Path(self.root, "tessera/tensor/element_op.h").read_text()), "")

    def test_no_folder_includes_one_above_it(self):
        self.assertEqual(check_layers.check(self.root), [])


class OfTheAdditions(OfTheProject):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = Path(cls.folder.name)
        additions.overlay(ROOT, cls.root)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_each_is_within_its_number_of_files(self):
        for addition in additions.ALL:
            names = [name for name in (addition.name, addition.constant) if name]
            files = [path for path in self.root.rglob("*") if path.suffix in (".h", ".cc", ".md")
                     and any(documents.has_name(path.read_text(), name) for name in names)]
            own = sorted(str(path.relative_to(self.root)) for path in files)
            was_there = [file for file in own if file not in addition.lines]
            self.assertEqual(was_there, [], f"{addition.name} is a name that is used already")
            self.assertEqual(own, sorted(addition.lines), addition.name)
            self.assertLessEqual(len(own), addition.limit, addition.name)

    def test_each_is_a_function_of_python_with_a_text(self):
        functions = functions_of_python(self.root)
        for addition in additions.ALL:
            self.assertIn(addition.name, functions)
            self.assertEqual(functions[addition.name].signature, addition.in_python, addition.name)
            self.assertNotEqual(functions[addition.name].doc, "", addition.name)

    def test_what_python_is_not_given_is_missed(self):
        source = self.root / "python/src/operators.cc"
        text = source.read_text()
        for addition, line in ((additions.CONTRACTION, '  add_function(m, "matrix_vector", ops::matrix_vector, "", "lhs"_a, "rhs"_a);\n'),
                               (additions.ELEMENTWISE, "  bind_elementwise_of_registry(m);\n")):
            self.assertEqual(text.count(line), 1, line)
            source.write_text(text.replace(line, ""))
            self.assertNotIn(addition.name, functions_of_python(self.root))
        source.write_text(text)

    def test_a_collective_without_its_row_is_missed(self):
        page = self.root / "docs/collectives.md"
        text = page.read_text()
        page.write_text(text.replace("| reduce_onto | 1 | (n-1) B |\n", ""))
        self.assertEqual(faults_of_table(self.root), {"reduce_onto": (None, ["1", "(n-1) B"])})
        page.write_text(text)

    def test_a_function_that_kernels_do_not_have_is_named(self):
        text = (self.root / "tessera/tensor/element_op.h").read_text()
        self.assertIn("std::log2(a)", text)
        self.assertIn("assoc_laguerre", faults_of_device_code(text.replace("std::log2(a)", "std::assoc_laguerre(1, 1, a)")))


PROGRAM = """
#include <gtest/gtest.h>

#include "tessera/ops/functions/functions.h"

namespace tessera {{

TEST(Added, IsAFunctionAndHasATextForm) {{
  ir::Graph graph("added");
  int number = 0;
  const auto input = [&](const Shape& shape) {{
    return graph.add_input(ir::InputKind::kInput, std::string(1, static_cast<char>('a' + number++)), {{DType::kF32, shape}});
  }};
  graph.add_output("result", {call});
  EXPECT_EQ(graph.node(0).op, "{name}");
  EXPECT_EQ(ir::print(ir::parse(ir::print(graph))), ir::print(graph));
  EXPECT_FALSE(ops::OpRegistry::instance().get("{name}").doc.empty());
}}

}}  // namespace tessera
"""


class Built:
    """Objects of the build's own options, but for what additions.py touches; linked in front of the libraries."""

    build = None
    laws = ()

    def __init__(self, scratch):
        self.scratch = scratch

    def commands_of(self, target):
        shown = subprocess.run(["ninja", "-C", self.build, "-t", "commands", target], check=True, capture_output=True, text=True).stdout
        return shown.splitlines()

    @staticmethod
    def commands_for(file, commands):
        """That of the source; where several are compiled as one, those of such units of its library. None where it is in none."""
        own = [command for command in commands if re.search(rf" -c \S*{re.escape(file)}$", command)]
        units = [command for folder in Path(file).parents for command in commands
                 if re.search(rf" -o {re.escape(str(folder))}/CMakeFiles/tessera_\S+ -c ", command)]
        return own + units

    def object_of(self, file, commands):
        """Compiles a source of the scratch copy as the build compiles that of the project."""
        given = self.commands_for(file, commands)[0]
        made = self.scratch / (file.replace("/", "_") + ".o")
        source = self.scratch / file if (self.scratch / file).exists() else ROOT / file
        command = re.sub(r" -o \S+ -c \S+$", f" -O0 -o {made} -c {source}", re.sub(r" -M[DTF]\S*( \S+\.[od]+)?", "", given))
        self.run(command.replace(" -I", f" -I{self.scratch} -I", 1))
        return str(made)

    def run(self, command):
        result = subprocess.run(command, shell=True, cwd=self.build, capture_output=True, text=True)
        if result.returncode != 0:
            raise AssertionError(f"{command}\n{result.stdout}{result.stderr}")
        return result.stdout

    def linked(self, target, objects):
        """The program with those of the objects, by source, that it has; they come before the libraries that have the same ones."""
        *commands, link = self.commands_of(target)
        objects = [made for file, made in objects.items() if not file.startswith("tessera/") or self.commands_for(file, commands)]
        program = self.scratch / target
        # A unit of several sources also has the sources as they were: the first of two definitions counts.
        objects = f" -Wl,--allow-multiple-definition {' '.join(objects)} -o {program}"
        self.run(re.sub(r" -o (\S+)", lambda _: objects, link, count=1))
        return program


class TriedOut(unittest.TestCase):
    @unittest.skipIf("--build" not in sys.argv, "needs --build, as the suite `laws` gives it")
    def test_what_is_added_is_a_function_has_a_text_and_keeps_the_laws(self):
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder)
            additions.apply(ROOT, additions.ALL, scratch)
            for addition in additions.ALL:
                text = PROGRAM.format(call=addition.check, name=addition.name).replace("Added", f"Added_{addition.name}")
                (scratch / f"{addition.name}.cc").write_text(text)
            built = Built(scratch)
            commands = [command for target in built.laws for command in built.commands_of(target)]
            test = next(command for command in commands if re.search(r" -o \S+_test\.dir/\S+ -c \S+$", command))
            files = sorted({file for addition in additions.ALL for file in addition.sources(ROOT)})
            claims = [f"{addition.name}.cc" for addition in additions.ALL]
            for claim in claims:
                commands.append(re.sub(r" -c \S+$", f" -c {claim}", test))
            with ThreadPoolExecutor() as pool:
                objects = dict(zip(files + claims, pool.map(lambda file: built.object_of(file, commands), files + claims)))
            outputs = [built.run(f"{built.linked(target, objects)} --gtest_brief=0") for target in built.laws]
            for addition in additions.ALL:
                for output in outputs:
                    self.assertIn(f"[       OK ] Added_{addition.name}.IsAFunctionAndHasATextForm", output)
            for addition in (additions.ELEMENTWISE, additions.OF_ANOTHER_FUNCTION):
                fast = f"[       OK ] All/Kernels.FastOnesAgreeWithTheReference/{addition.name}_0"
                self.assertTrue(any(fast in output for output in outputs), f"no program has tried the vector form: {fast}")


if __name__ == "__main__":
    if "--build" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--build", required=True)
        parser.add_argument("--laws", nargs="+", required=True)
        given = parser.parse_args()
        Built.build, Built.laws = given.build, given.laws
        sys.argv = [sys.argv[0], "TriedOut"]  # for unittest
    main()
