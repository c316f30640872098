"""The snippets of a page as programs. snippets.py PAGE LANGUAGE OUT writes those of a language into a file."""

import re
import sys
from pathlib import Path


def blocks(text, language):
    """The fenced blocks of that language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def sides(text):
    """By the caption in front of a block of Python, such as PyTorch, the program that its blocks make; "" for blocks without one."""
    found = {}
    for caption, block in re.findall(r"(?:^\*\*(\w+)\*\*\n\n)?^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        found.setdefault(caption, []).append(block)
    return {caption: "\n\n".join(parts) for caption, parts in found.items()}


def main():
    page, language, out = sys.argv[1:]
    program = "\n".join(blocks(Path(page).read_text(encoding="utf-8"), language))
    Path(out).write_text(program, encoding="utf-8")


if __name__ == "__main__":
    main()
