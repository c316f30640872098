"""The tutorials' code blocks: read from their texts where those are at hand, in $TESSERA_SHARED or beside the project.

Two of the texts have lost their line ends; their blocks stand re-typed in retyped/, and a test compares them with the
texts without white space.
"""
import os
import re
import textwrap
from collections import namedtuple
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHARED = Path(os.environ.get("TESSERA_SHARED", ROOT.parent / "shared"))
PAGES = ("000", "001", "002", "003", "004")
RETYPED = ("002", "003")

Block = namedtuple("Block", "language code")


def text(page):
    """The page's text, None where it is absent."""
    files = sorted((SHARED / "tutorials").glob(f"{page}*.txt"))
    return files[0].read_text() if files else None


def fenced(page_text):
    """The fenced blocks of a text, without their indentation."""
    found = re.findall(r"^([ ]*)```(\w*)\n(.*?)^\1```$", page_text, re.S | re.M)
    return [Block(language, textwrap.dedent(code)) for _, language, code in found]


def flattened(page_text):
    """The blocks of a text without line ends."""
    return [Block(language, code) for language, code in re.findall(r"```(\w*) (.*?) ```", page_text, re.S)]


@cache
def blocks(page, language="python"):
    """The page's blocks in that language, None where the text is absent."""
    if page in RETYPED:
        found = fenced((HERE / "retyped" / f"{page}.md").read_text())
    else:
        page_text = text(page)
        if page_text is None:
            return None
        found = fenced(page_text)
    return [block.code for block in found if block.language == language]
