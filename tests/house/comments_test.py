"""Claims about the comments of headers: their first sentences have a verb."""

import tempfile
import unittest
from pathlib import Path

import comments
from claims import main

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class FirstSentences(unittest.TestCase):
    def setUp(self):
        self.known = comments.verbs(HERE / "verbs.txt")
        self.accepted = [line for line in (HERE / "verbless.txt").read_text().splitlines() if line and not line.startswith("#")]

    def test_those_of_the_library_have_a_verb(self):
        faults = [f"{place}: {sentence}" for place, sentence in comments.verbless(ROOT, self.known) if sentence not in self.accepted]
        self.assertEqual(faults, [], "say who does what; a verb that is not known goes into tests/house/verbs.txt, a sentence that must "
                                     "stay as it is into verbless.txt")

    def test_what_is_accepted_is_there(self):
        found = {sentence for _, sentence in comments.verbless(ROOT, self.known)}
        self.assertEqual([sentence for sentence in self.accepted if sentence not in found], [])

    def faults(self, header):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "tessera/ir/a.h")
            path.parent.mkdir(parents=True)
            path.write_text(header)
            return comments.verbless(folder, self.known)

    def test_one_without_a_verb_is_found_with_its_place(self):
        self.assertEqual(self.faults("// Reductions.\n#pragma once\n"), [("tessera/ir/a.h:1", "Reductions.")])
        opening = "// It holds a.\n#pragma once\n\n"
        self.assertEqual(self.faults(opening + "// Of this rank.\nint a();\n"), [("tessera/ir/a.h:4", "Of this rank.")])
        self.assertEqual(self.faults(opening + "// The head of a post.\nstruct A {\n"), [("tessera/ir/a.h:4", "The head of a post.")])

    def test_a_caption_a_formula_and_a_named_result_need_none(self):
        self.assertEqual(self.faults("// Board: memory of all ranks.\n#pragma once\n\n// max(x, 0), element by element.\nint a();\n"
                                     "// The next batch in its own memory.\nint b();\n// \"sum\", or \"max\".\nint c();\n"), [])

    def test_what_is_private_and_what_belongs_to_a_variable_is_left_out(self):
        self.assertEqual(self.faults("// It holds a.\n#pragma once\n\nclass A {\n public:\n  // Milliseconds.\n  int a = 0;\n\n private:\n"
                                     "  // Of this rank.\n  int b();\n};\n"), [])

    def test_only_the_first_sentence_counts(self):
        self.assertEqual(self.faults("// It holds a. No more.\n#pragma once\n"), [])


if __name__ == "__main__":
    main()
