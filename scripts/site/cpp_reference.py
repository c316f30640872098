"""The reference of C++: a page for each public header, of its comments and declarations, as the header has them.

The house's headers need no compiler to be read: clang-format lays them out, a comment stands before what it is about, and
what is private stands behind `private:`.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from as_markdown import block, cell, escape, first_sentence, prose

FACES = {"tessera/tessera.h": "To train: tessera/tessera.h", "tessera/engine.h": "To look behind a training: tessera/engine.h"}


@dataclass
class Declaration:
    code: str  # as the header has it, without bodies
    comment: str  # without slashes; "" where there is none
    name: str = ""  # of a type, with the types around it
    is_apart: bool = False  # an empty line stands before it
    members: list = field(default_factory=list)  # of a class or struct


def includes(text):
    return re.findall(r'^#include "(tessera/[^"]+)"', text, re.MULTILINE)


def public_headers(root):
    """tessera/tessera.h, tessera/engine.h and what they lead to, in the order in which they do."""
    found, waiting = [], list(FACES)
    while waiting:
        header = waiting.pop(0)
        if header not in found:
            found.append(header)
            waiting += includes(Path(root, header).read_text())
    return found


def groups(root, face):
    """(comment, headers) of the parts of tessera.h or engine.h."""
    found = []
    for part in Path(root, face).read_text().partition("#pragma once")[2].strip().split("\n\n"):
        comment = " ".join(line[3:] for line in part.splitlines() if line.startswith("// "))
        found.append((comment, includes(part)))
    return found


def opening(text):
    """The comment that a header begins with."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(re.sub(r"^// ?", "", line))
    return "\n".join(lines)


def skip_literal(text, at):
    """The place behind the text, character or remark that begins at `at`; `at` where none does."""
    if text.startswith("//", at):
        end = text.find("\n", at)
        return len(text) if end < 0 else end
    if text.startswith("/*", at):
        return text.index("*/", at) + 2
    if text.startswith('R"(', at):
        return text.index(')"', at) + 2
    if text[at] == '"' or text[at] == "'" and not text[at - 1].isalnum():
        quote, end = text[at], at + 1
        while text[end] != quote:
            end += 2 if text[end] == "\\" else 1
        return end + 1
    return at


def skip_braces(text, at):
    """The place behind the brace that closes the one at `at`."""
    depth = 0
    while at < len(text):
        behind = skip_literal(text, at)
        if behind != at:
            at = behind
            continue
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
        if depth == 0:
            return at
    return at


def has_initialiser(head):
    """Whether the brace behind `head` begins a value and no body: `int x = {`, `std::vector<int> x{`."""
    depth, is_call, head = 0, False, re.sub(r"\boperator\W+?(?=\(\w|\(\)|\(std|$)", "operator_", head)
    for at, letter in enumerate(head):
        depth += letter in "(<["
        depth -= letter in ")>]" and head[at - 1] != "-"
        is_call |= letter == "(" and depth == 1
        if letter == "=" and depth == 0:
            return True
    return not is_call


def without_constructors_list(head):
    """`Tensor(Type t) : type_(t)` without what is behind the parameters."""
    depth = 0
    for at, letter in enumerate(head):
        depth += letter in "([{"
        depth -= letter in ")]}"
        if letter == ":" and depth == 0 and ":" not in (head[at - 1], head[at + 1:at + 2]) and ")" in head[:at]:
            return head[:at].rstrip()
    return head.rstrip()


TYPE = re.compile(
    r"^(?:template\s*<.*?>\s*)?(?:class|struct)\s+(?:\[\[\w+\]\]\s*)?([A-Z]\w*(?:<[^{}]*>)?)(?:\s+final)?\s*(?::[^:].*)?$", re.DOTALL)
UNNAMED_TYPE = re.compile(r"(?:template\s*<.*?>\s*)?(?:class|struct|enum)\b[^(=]*$", re.DOTALL)


class Reader:
    """Reads the declarations of one header."""

    def __init__(self, text):
        self.text = text

    def read(self):
        begin = self.text.find("#pragma once")
        found = []
        self.scope(begin + len("#pragma once") if begin >= 0 else 0, found, "", "")
        return found

    def scope(self, at, into, namespace, around):
        """Reads to the brace that ends the scope; returns the place behind it. `into`: where public declarations go."""
        text, comment, is_public, is_apart = self.text, [], True, True
        while at < len(text):
            line_end = text.find("\n", at)
            line_end = len(text) if line_end < 0 else line_end
            line = text[at:line_end].strip()
            if not line:
                # A comment that an empty line follows stands for itself.
                comment, is_apart, at = [], True, line_end + 1
            elif line.startswith("//"):
                comment.append(re.sub(r"^// ?", "", line))
                at = line_end + 1
            elif line.startswith("#"):
                while text[line_end - 1] == "\\":
                    line_end = text.find("\n", line_end + 1)
                at, comment = line_end + 1, []
            elif line.startswith("}"):
                return text.index("}", at) + 1
            elif access := re.match(r"(public|private|protected):$", line):
                is_public, at, comment = access.group(1) != "private", line_end + 1, []
            else:
                found = []
                at = self.declaration(at, found, "\n".join(comment), namespace, around)
                rest = text[at:text.find("\n", at)] if at < len(text) else ""
                if trailing := re.match(r"\s*// ?(?!NOLINT|namespace)(\S.*)", rest):
                    if found:
                        found[-1].code += f"  // {trailing.group(1)}"
                    at += len(rest)
                if not text[at:text.find("\n", at)].strip():
                    at = text.find("\n", at) + 1
                if found:
                    found[0].is_apart = is_apart
                into += found if is_public else []
                comment, is_apart = [], False
        return at

    def declaration(self, at, into, comment, namespace, around):
        text, depth, code = self.text, 0, ""
        column = at - (text.rfind("\n", 0, at) + 1)
        column += len(text[at:]) - len(text[at:].lstrip(" "))
        while at < len(text):
            behind = skip_literal(text, at)
            if behind != at:
                if not text.startswith("//", at):
                    code += text[at:behind]
                at = behind
                continue
            letter = text[at]
            if letter in "([":
                depth += 1
            elif letter in ")]":
                depth -= 1
            elif letter == ";" and depth == 0:
                at += 1
                break
            elif letter == "{":
                head = code.strip()
                if depth == 0 and re.match(r"(?:inline )?namespace\b", head):
                    name = head.split("namespace")[1].strip()
                    inner = [] if not name or name == "detail" else into
                    return self.scope(at + 1, inner, f"{namespace}::{name}".strip(":"), around)
                if depth == 0 and (named := TYPE.match(head)):
                    own = Declaration(dedent(head, column), comment, (around + "::" if around else "") + named.group(1))
                    into.append(own)
                    at = self.scope(at + 1, own.members, namespace, own.name)
                    end = text.index(";", at)
                    return end + 1
                if depth == 0 and UNNAMED_TYPE.match(head):
                    behind = skip_braces(text, at)  # an enumeration: its body is what is to be read
                    code += text[at:behind]
                    at = behind
                    continue
                behind = skip_braces(text, at)
                if depth == 0 and not has_initialiser(head):
                    # The braces of a member's initial value, in a constructor's list, are followed by another or by the body.
                    following = text[behind:behind + 40].lstrip()
                    if re.search(r"\)\s*:[^:].*\w$", head, re.DOTALL) and following.startswith((",", "{")):
                        code += text[at:behind]
                        at = behind
                        continue
                    at = behind
                    if text[at:at + 1] == ";":
                        at += 1
                    break
                code += text[at:behind]
                at = behind
                continue
            code += letter
            at += 1
        code = dedent(without_constructors_list(code.strip("\n")), column)
        name = re.match(r"enum(?: class)?\s+([A-Z]\w*)|using\s+([A-Z]\w*)", code)
        if not re.match(r"friend\b|static_assert|extern template|(?:class|struct) [\w:]+$|using [\w:]+$", code.strip()) and code.strip():
            into.append(Declaration(code.strip() + ";", comment, next((one for one in name.groups() if one), "") if name else ""))
        return at


def dedent(code, column):
    """The code of a declaration that begins in that column, as if it began in the first one."""
    lines = code.strip().split("\n")
    return "\n".join([lines[0], *(line[min(column, len(line) - len(line.lstrip())):] for line in lines[1:])]).rstrip()


def show(declarations, level):
    """Markdown: each type under a heading of its own, behind what has none. A variable or function that stands without a comment of its
    own directly below another one is shown with it."""
    out, unnamed = [], [one for one in declarations if not one.name]
    at = 0
    while at < len(unnamed):
        first, codes = unnamed[at], [unnamed[at].code]
        at += 1
        while at < len(unnamed) and not unnamed[at].comment and not unnamed[at].is_apart:
            if ("(" in unnamed[at].code) != ("(" in first.code):
                break
            codes.append(unnamed[at].code)
            at += 1
        out += [block("\n".join(codes)), "", *([prose(first.comment), ""] if first.comment else [])]
    for one in declarations:
        if one.name:
            out += [f"{'#' * min(level, 6)} {escape(one.name)}", "", block(one.code), "", *([prose(one.comment), ""] if one.comment else []),
                    *show(one.members, level + 1)]
    return out


def namespace_of(text):
    spaces = re.findall(r"^namespace ([\w:]+) \{", text, re.MULTILINE)
    return spaces[0] if spaces else "tessera"


def header_page(root, header):
    text = Path(root, header).read_text()
    up = "../" * header.count("/")
    return "\n".join([f"# {escape(header)}", "", f"[All headers]({up}index.md)", "", block(f'#include "{header}"  // namespace {namespace_of(text)}'), "", prose(opening(text)), "",
                      *show(Reader(text).read(), 2)])


def page_of(header):
    return "cpp/" + header.removesuffix(".h")


def pages(root):
    """Pages of the site by their path without ending, as Markdown."""
    headers = public_headers(root)
    found = {page_of(header): header_page(root, header) for header in headers if header not in FACES}
    listed = set(FACES)

    def table(of):
        rows = [f"| [{escape(header)}]({header.removesuffix('.h')}.md) | {cell(first_sentence(opening(Path(root, header).read_text())))} |" for header in of]
        return ["| header | what it is |", "|---|---|", *rows, ""]

    index = ["# C++", "", "What a program includes is `tessera/tessera.h`; what looks behind a training includes `tessera/engine.h` too "
             "([program.md](../program.md)). Each header's own text is its reference.", ""]
    for face, title in FACES.items():
        index += [f"## {escape(title)}", "", prose(opening(Path(root, face).read_text())), ""]
        for comment, of in groups(root, face):
            index += [prose(comment), "", *table(of)]
            listed |= set(of)
    index += ["## What these are made of", "", "Types that the headers above name, and what classes inherit.", "",
              *table(sorted(header for header in headers if header not in listed))]
    found["cpp/index"] = "\n".join(index)
    return found


def public_types(root):
    """(header, name) of every public type outside of others."""
    return [(header, one.name) for header in public_headers(root) for one in Reader(Path(root, header).read_text()).read() if one.name]
