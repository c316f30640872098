"""Claims about names: a public type, and a header, has a name of its own, or a reason in shared_names.txt."""

import tempfile
import unittest
from pathlib import Path

import names
from claims import main

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Types(unittest.TestCase):
    def test_each_has_a_name_of_its_own_or_a_reason(self):
        shared = names.shared_types(ROOT) | names.shared_headers(ROOT)
        known = names.known(HERE / "shared_names.txt")
        new = {name: where for name, where in shared.items() if name not in known}
        self.assertEqual(new, {}, "a name for two things: rename one, or give the reason in tests/house/shared_names.txt")

    def test_no_reason_is_given_for_a_name_that_is_not_shared(self):
        shared = names.shared_types(ROOT) | names.shared_headers(ROOT)
        self.assertEqual(sorted(set(names.known(HERE / "shared_names.txt")) - set(shared)), [])

    def test_a_part_or_a_place_says_of_what(self):
        self.assertEqual(names.bare_types(ROOT), [], "name what it is of")

    def shared(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                file = Path(folder) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            return names.shared_types(folder)

    def test_one_name_in_two_namespaces_is_found_with_its_headers(self):
        files = {"tessera/a/a.h": "namespace tessera::a {\nstruct Box {\n  int x = 0;\n};\n}\n",
                 "tessera/b/b.h": "namespace tessera::b {\nusing Box = int;\n}\n"}
        self.assertEqual(self.shared(files), {"Box": ["tessera/a/a.h", "tessera/b/b.h"]})

    def test_one_name_in_two_headers_of_a_namespace_is_found(self):
        files = {path: "namespace tessera::a {\nenum class Kind { kA };\n}\n" for path in ("tessera/a/a.h", "tessera/a/inner/b.h")}
        self.assertEqual(self.shared(files), {"Kind": sorted(files)})

    def test_declarations_members_and_comments_are_no_definitions(self):
        files = {"tessera/a/a.h": "namespace tessera::a {\nclass Box {\n  struct Impl {\n    int x;\n  };\n};\nenum class Kind { kA };\n}\n",
                 "tessera/b/b.h": "namespace tessera::b {\nclass Box;  // struct Kind {\nclass Other {\n  struct Impl {};\n"
                                  "  enum class Kind { kB };\n};\nstruct Box::Impl {\n};\nconst char* text(struct Box b);\n}\n"}
        self.assertEqual(self.shared(files), {})

    def test_a_base_class_and_a_template_do_not_hide_a_type(self):
        files = {"tessera/a/a.h": "namespace tessera::a {\ntemplate <typename T>\nclass Box final : public Base<T> {\n};\n}\n",
                 "tessera/b/b.h": "namespace tessera {\nnamespace b {\nenum class Box : char { kX };\n}\n}\n"}
        self.assertEqual(list(self.shared(files)), ["Box"])

    def test_an_alias_of_the_same_name_is_no_other_thing(self):
        files = {"tessera/a/a.h": "namespace tessera::a {\nclass Value {\n};\n}\n",
                 "tessera/b/b.h": "namespace tessera::b {\nusing Value = a::Value;\nusing a::Value;\n}\n"}
        self.assertEqual(self.shared(files), {})


if __name__ == "__main__":
    main()
