"""Options of a Model are declared once."""

import shutil
import tempfile
import unittest
from pathlib import Path

import options
from claims import main

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL_OPTIONS = options.HEADERS["ModelOptions"]


def changed(file, old, new):
    """The faults of a copy in which the file has `new` for `old`."""
    with tempfile.TemporaryDirectory() as scratch:
        for header in options.HEADERS.values():
            path = Path(scratch, header)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / header, path)
        path = Path(scratch, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / file).read_text()
        assert text.count(old) == 1, (file, old)
        path.write_text(text.replace(old, new))
        return options.faults(scratch)


class Options(unittest.TestCase):
    def test_each_is_declared_once(self):
        self.assertEqual(options.faults(ROOT), [])

    def test_all_of_them_are_found(self):
        names = {name for header in options.HEADERS.values() for name, _ in options.rows((ROOT / header).read_text())}
        self.assertGreater(len(names), 40)
        self.assertLessEqual({"parallel_mode", "memory_limit", "fully_use_devices", "micro_batches"}, names)

    def test_a_member_without_a_row_is_named(self):
        self.assertEqual(changed(MODEL_OPTIONS, "  bool full_batch = false;\n", "  bool full_batch = false;\n  int page_size = 0;\n"),
                         [f"{MODEL_OPTIONS}: ModelOptions::page_size has no row in for_each_option(): Python does not know it"])

    def test_a_second_place_is_named(self):
        found = changed("python/src/train.cc", '"sliced_parameters"_a = false, ', '"sliced_parameters"_a = false, "full_batch"_a = true, ')
        self.assertEqual(len(found), 1)
        self.assertRegex(found[0], r"^python/src/train.cc:\d+: names the option full_batch again: for_each_option\(\) has it$")

    def test_an_option_costs_one_file(self):
        member = "  bool full_batch = false;\n"
        row = '  visit(OptionInfo{.name = "full_batch",'
        more = '  visit(OptionInfo{.name = "page_size", .doc = "Bytes of a page."}, options.page_size);\n'
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch, "model_options.h")
            text = (ROOT / MODEL_OPTIONS).read_text()
            path.write_text(text.replace(member, member + "  int page_size = 0;\n").replace(row, more + row))
            self.assertIn(("page_size", "page_size"), options.rows(path.read_text()))


if __name__ == "__main__":
    main()
