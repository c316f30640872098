"""What can be wrong with a page: a link that leads nowhere, a page that nobody is led to, a name that the code no longer has, a sentence
without a verb."""

import os
import re
from pathlib import Path

import comments

# Folders of builds and environments; their pages are not the project's.
NOT_OURS = re.compile(r"^(build|_deps|node_modules|shared)$|^\.")
LINK = re.compile(r"!?\[[^\]\[]*\]\(([^()\s]+)\)")


def pages(root):
    """All pages below a folder, by their path from it."""
    found = {}
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if not NOT_OURS.search(name))
        for name in sorted(files):
            if name.endswith(".md"):
                path = Path(folder, name)
                found[path.relative_to(root).as_posix()] = path.read_text()
    return found


def prose(text):
    """The page without its blocks of code, whose lines stay as empty ones."""
    lines, fenced = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
            line = ""
        lines.append("" if fenced or line.startswith("    ") else line)
    return "\n".join(lines)


def paragraphs(text):
    """(line, text) of each paragraph. Headings, rows of tables, items of lists, pictures and code are none."""
    found, begin, lines, is_item = [], 0, [], False
    for number, line in enumerate([*prose(text).splitlines(), ""], 1):
        is_item = re.match(r"\s*(?:[-*]|\d+\.) ", line) is not None or (is_item and bool(line.strip()))
        if re.match(r"[^\s#|!<]", line) and not is_item:
            begin = begin or number
            lines.append(line)
        elif lines:
            found.append((begin, " ".join(lines)))
            begin, lines = 0, []
    return found


def sentences(paragraph):
    """Those of a paragraph, without the words in bold that stand before it as a caption."""
    plain = LINK.sub(lambda match: match.group(0).lstrip("!")[1:].split("]")[0], re.sub(r"`[^`]*`", "X", paragraph))
    plain = re.sub(r"^\*\*[^*]*(?:\.\*\* |\*\*$)", "", plain).replace("**", "")
    return [one for one in re.split(r"(?:(?<=[.!?])|(?<=[.!?][)\"*])) +(?=[A-Z(`\"*])", plain) if one]


def verbless(root, known):
    """(page:line, sentence) of each sentence of a paragraph that has no verb. What comments.py takes for a caption or a formula needs no verb here either."""
    return [(f"{page}:{line}", sentence) for page, text in pages(root).items() for line, paragraph in paragraphs(text)
            for sentence in sentences(paragraph)
            if not (comments.has_verb(sentence, known) or comments.is_caption(sentence) or comments.is_formula(sentence))]


def anchors(text):
    """Those that a page's headings make, as GitHub does."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", prose(text), re.M):
        plain = re.sub(LINK, lambda match: match.group(0)[1:].split("]")[0], heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        number = 0
        while (anchor if number == 0 else f"{anchor}-{number}") in found:
            number += 1
        found.add(anchor if number == 0 else f"{anchor}-{number}")
    return found


def links(text):
    """(line, target) of each link to a file or a heading; without code, and without the world outside."""
    plain = re.sub(r"`[^`\n]*`", "", prose(text))
    return [(number, target) for number, line in enumerate(plain.splitlines(), 1) for target in LINK.findall(line)
            if not re.match(r"\w+:", target)]


def dead_links(root):
    faults = []
    texts = pages(root)
    for page, text in texts.items():
        for line, target in links(text):
            path, _, anchor = target.partition("#")
            file = (Path(page).parent / path).as_posix() if path else page
            file = os.path.normpath(file)
            if not Path(root, file).exists():
                faults.append(f"{page}:{line}: {target}: there is no {file}")
            elif anchor and anchor not in anchors(texts.get(file, "")):
                faults.append(f"{page}:{line}: {target}: {file} has no heading #{anchor}")
    return faults


def unlinked(root, folder="docs"):
    """Pages of the folder that its README.md has no link to."""
    texts = pages(root)
    index = f"{folder}/README.md"
    led_to = {os.path.normpath(Path(folder, target.partition("#")[0])) for _, target in links(texts.get(index, ""))}
    return [f"{page}: {index} does not link to it" for page in texts
            if Path(page).parent.as_posix() == folder and page != index and page not in led_to]


def rows(text):
    """The cells of each row of the page's tables, with the row's line; heads and rulers are left out."""
    found, lines = [], text.splitlines()
    for number, line in enumerate(lines, 1):
        is_head = number < len(lines) and lines[number].startswith("|--")
        if line.startswith("|") and not line.startswith("|--") and not is_head:
            found.append((number, [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]))
    return found


def names_in(cell):
    return re.findall(r"`([^`]+)`", cell)


def has_name(text, name):
    return re.search(r"(?<!\w)" + re.escape(name) + r"(?!\w)", text) is not None


def absent_names(root, page, names_column, files_column):
    """Faults of the rows that say which files have which names: a file that is not there or has none of them, a name that is in none."""
    faults = []
    for line, cells in rows(Path(root, page).read_text()):
        if len(cells) <= max(names_column, files_column):
            continue
        names, texts = names_in(cells[names_column]), {}
        for file in names_in(cells[files_column]):
            if Path(root, file).is_file():
                texts[file] = Path(root, file).read_text()
            else:
                faults.append(f"{page}:{line}: there is no file {file}")
        for file, text in texts.items():
            if not any(has_name(text, name) for name in names):
                faults.append(f"{page}:{line}: {file} has none of {', '.join(names)}")
        for name in names:
            if texts and not any(has_name(text, name) for text in texts.values()):
                faults.append(f"{page}:{line}: {', '.join(texts)} has no {name}")
    return faults


def is_cpp(files):
    return bool(files) and all(file.endswith((".cc", ".h")) for file in files)


def uncalled(root, page):
    """Faults of the tables of functions and their files, in the order of the calls: (the page's line, the function of the row above, the
    row's own) where no row above calls a row's first function, as no file of theirs names it. The first row of a table is called from
    elsewhere. Only C++ is looked at. A file that has both functions must name the called one twice, once where it is defined."""
    found, above, last = [], [], 0
    lines = Path(root, page).read_text().splitlines()
    for line, cells in rows("\n".join(lines)):
        if line != last + 1:
            above, is_of_functions = [], lines[line - 3].startswith("| function |")
        last = line
        files = names_in(cells[1])
        if not is_of_functions or not is_cpp(files):
            continue
        function = names_in(cells[0])[0]
        name = re.compile(r"(?<!\w)" + re.escape(function.split("::")[-1]) + r"(?!\w)")
        calls = {file: len(name.findall(Path(root, file).read_text())) for _, names in above for file in names if Path(root, file).is_file()}
        if above and not any(number > (file in files) for file, number in calls.items()):
            found.append((f"{page}:{line}", above[-1][0], function))
        above.append((function, files))
    return found


def absent_files(root, page):
    """Sources that the page names by a path, from the project or from tessera/, and that are not there."""
    named = [(number, file) for number, line in enumerate(Path(root, page).read_text().splitlines(), 1)
             for file in re.findall(r"`((?:\w+/)+[\w.-]+\.(?:cc|h|py|golden|txt))`", line)]
    return [f"{page}:{number}: there is no file {file}" for number, file in named
            if not any(Path(root, start, file).is_file() for start in ("", "tessera", "python", "python/compat"))]


FILE = re.compile(r"(?<![\w/.*-])([\w-]+\.(?:cc|h|py|golden))\b")


def folders_of(root, cells):
    """Those of the library that the first cell of folders has: "kernels/reference, kernels/cpu"."""
    for cell in cells:
        named = cell.split(", ")
        if all(re.fullmatch(r"[\w/]+", name) and Path(root, "tessera", name).is_dir() for name in named):
            return [Path(root, "tessera", name) for name in named]
    return []


def absent_bare_files(root, page):
    """Sources that the page names without their folder, and that are nowhere; in a row of a table that begins with a folder, not in that."""
    folders_by_line = {line: folders_of(root, cells) for line, cells in rows(Path(root, page).read_text())}
    anywhere = [Path(root, folder) for folder in ("tessera", "python", "tests", "scripts", "examples", "benchmarks")]
    faults = []
    for line, text in enumerate(prose(Path(root, page).read_text()).splitlines(), 1):
        folders = folders_by_line.get(line) or anywhere
        for file in FILE.findall(text):
            if not any(next(folder.rglob(file), None) for folder in folders):
                where = ", ".join(folder.relative_to(root).as_posix() for folder in folders)
                faults.append(f"{page}:{line}: there is no {file} in {where}")
    return faults
