"""Writes docs/tutorials.md: how each Python block of the tutorials is run."""
import pages
from uses import USES

TITLES = {
    "000": "Distributed parallel training basics (Ascend)",
    "001": "Distributed parallel training (GPU)",
    "002": "Distributed parallel training, an early release",
    "003": "Parallel distributed training (Ascend), release 1.5",
    "004": "Distributed resilience training and inference",
}
HEAD = """# The tutorials, block by block

Which Python blocks of the five tutorials run, and with what. `scripts/test --all tutorials` runs each on one rank and on 2 and 4 by mpirun,
blocks that stand alone as they are, others with what their text implies: an import, a name defined in another block, a value that the
reader is to provide. It reads the blocks from the tutorials' texts where those are at hand; this page is made by `tests/tutorials/table.py`.
Images of CIFAR-10 are 32 pixels wide there instead of 224; `--full` takes 224.
"""


def counts():
    """(as they are, with something, waiting)."""
    hows = [use.how() for use in USES]
    as_is, waiting = hows.count("as is"), sum(how.startswith("waits") for how in hows)
    return as_is, len(hows) - as_is - waiting, waiting


def text():
    as_is, with_something, waiting = counts()
    lines = [HEAD, f"Of {len(USES)} blocks {as_is} run as they are, {with_something} with what their text implies, {waiting} wait."]
    for page in pages.PAGES:
        lines += ["", f"## {TITLES[page]}", "", "| block | what | runs |", "|---|---|---|"]
        lines += [f"| {use.number} | {use.title} | {use.how()} |" for use in USES if use.page == page]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (pages.ROOT / "docs" / "tutorials.md").write_text(text())
