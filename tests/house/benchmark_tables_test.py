"""Claims about the tables that benchmarks/run prints."""

import sys
import unittest
from pathlib import Path

from claims import main

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import harness  # noqa: E402

LONG = "the reference, compiled, with its own threads and all of its caches warm"


class Table(unittest.TestCase):
    def lines(self, *names, values=(1.0, 2.0, 4.0), peak=512.0, failures=None):
        """Of sides of these names; the first is ours."""
        sides = [harness.Side("peer" if i else "ours", name, []) for i, name in enumerate(names)]
        case = harness.Case("a case", sides)
        results = {side.name: (side, "by hand", list(values), peak) for side in sides}
        return harness.table_lines(case, results, harness.summarise(case, results, failures or {}))

    def test_short_names_stand_in_the_usual_columns(self):
        header, ours, peer = self.lines("tessera", "PyTorch")
        self.assertEqual(header, "                                     median       lowest      highest  ours/this  peak MiB")
        self.assertEqual(ours, "  tessera" + " " * 30 + "2.00         1.00         4.00" + " " * 18 + "512  by hand")
        self.assertEqual(peer, "  PyTorch" + " " * 30 + "2.00         1.00         4.00      1.000       512  by hand")

    def test_a_long_name_widens_its_column_for_all(self):
        header, ours, peer = self.lines("tessera", LONG)
        end = header.index("median") + len("median")
        for line, name in ((ours, "tessera"), (peer, LONG)):
            self.assertTrue(line.startswith(f"  {name}  "), line)
            self.assertEqual(line[:end].split()[-1], "2.00", line)
            self.assertEqual(line[end - len("2.00"):end], "2.00", line)

    def test_large_figures_stand_apart(self):
        value = 123456789012.5
        header, ours = self.lines("tessera", values=(value, value, value), peak=1e12)
        self.assertEqual(ours.split(), ["tessera", *["123,456,789,012.50"] * 3, "1,000,000,000,000", "by", "hand"])
        for word in ("median", "lowest", "highest"):
            end = header.index(word) + len(word)
            self.assertEqual(ours[end - 18:end], "123,456,789,012.50", ours)

    def test_a_side_that_failed_is_in_line(self):
        *_, ours, failed = self.lines("tessera", failures={LONG: "it has ended"})
        self.assertEqual(failed, f"  {LONG} failed: it has ended")
        self.assertEqual(ours.index("2.00") + 4, len(f"  {LONG}") + 13)


if __name__ == "__main__":
    main()
