"""The pages of the project as those of a site: where each goes, and its links rewritten to where the others are."""

import os
import re
from pathlib import Path

LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]\[]*\])*\]\()([^()\s]+)(\))")
LANGUAGES = {".cc": "cpp", ".h": "cpp", ".py": "python", ".sh": "bash", ".yaml": "yaml", ".json": "json"}
PICTURES = (".png", ".svg", ".jpg")


def place_of(path):
    """Where a file of the project, by its path from the root, is in the site, without an ending."""
    if path == "docs/README.md":
        return "index"
    if path.startswith("docs/"):
        return path.removeprefix("docs/").removesuffix(".md")
    return "project/" + path.removesuffix(".md") if path.endswith(".md") else "files/" + path


def outside_of_code(text, change):
    """The page with `change` made of what is no code."""
    out, is_fenced = [], False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            is_fenced = not is_fenced
        elif not is_fenced and not line.startswith("    "):
            line = "".join(part if part.startswith("`") else change(part) for part in re.split(r"(`[^`]*`(?!\]))", line))
        out.append(line)
    return "\n".join(out)


PAIR = re.compile(r"^\*\*(\w+)\*\*\n\n(```python\n.*?^```)\n\n\*\*(\w+)\*\*\n\n(```python\n.*?^```)$", re.DOTALL | re.MULTILINE)


def beside_each_other(text):
    """The page with snippets of two packages, each under its name, in two columns where there is room."""
    def columns(match):
        if match.group(1) == match.group(3):
            return match.group(0)
        sides = [f":::{{container}} side\n**{name}**\n\n{code}\n:::" for name, code in (match.group(1, 2), match.group(3, 4))]
        return "\n".join(["::::{container} pair", *sides, "::::"])
    return PAIR.sub(columns, text)


class Stage:
    """Collects the pages that docs/ has and what they lead to. `faults`: links that lead nowhere, with their page."""

    def __init__(self, root):
        self.root = Path(root)
        self.pages = {}  # place in the site -> Markdown
        self.pictures = {}  # place in the site -> file
        self.faults = []
        self.waiting = sorted(f"docs/{path.name}" for path in (self.root / "docs").glob("*.md"))
        self.seen = set(self.waiting)
        while self.waiting:
            self.take(self.waiting.pop(0))

    def take(self, path):
        text = (self.root / path).read_text()
        if path.endswith(".md"):
            linked = outside_of_code(text, lambda part: LINK.sub(lambda match: self.link(path, match), part))
            self.pages[place_of(path)] = beside_each_other(linked)
        else:
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
            self.pages[place_of(path)] = f"# {path}\n\n{fence}{LANGUAGES.get(Path(path).suffix, 'none')}\n{text.rstrip()}\n{fence}\n"

    def link(self, page, match):
        before, target, after = match.groups()
        if re.match(r"\w+:", target) or target.startswith("#"):
            return match.group(0)
        path, _, anchor = target.partition("#")
        file = os.path.normpath((Path(page).parent / path).as_posix())
        if not (self.root / file).is_file():
            self.faults.append(f"{page}: {target}: there is no file {file}")
            return match.group(0)
        here = Path(place_of(page)).parent.as_posix()
        if file.endswith(PICTURES):
            place = f"pictures/{file}"
            self.pictures[place] = self.root / file
            return before + os.path.relpath(place, here) + after
        if file not in self.seen:
            self.seen.add(file)
            self.waiting.append(file)
        return before + os.path.relpath(place_of(file), here) + ".md" + (f"#{anchor}" if anchor else "") + after


def navigation(text):
    """(caption, places) by docs/README.md: for each reader what it leads to, under its groups; a page stands where it is named first."""
    found, seen, section, group = [], {"index"}, "", ""
    for line in text.splitlines():
        if heading := re.match(r"## (.*)", line):
            section, group = heading.group(1), ""
        elif bold := re.match(r"\*\*(.*)\*\*$", line):
            group = bold.group(1)
        elif section and line.startswith("* "):
            for _, target, _ in LINK.findall(line)[:1]:
                place = place_of(os.path.normpath(os.path.join("docs", target.partition("#")[0])))
                if place not in seen:
                    seen.add(place)
                    caption = f"{section}: {group[0].lower()}{group[1:]}" if group else section
                    if not found or found[-1][0] != caption:
                        found.append((caption, []))
                    found[-1][1].append(place)
    return found
