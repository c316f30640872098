"""Markdown of texts that are none: comments of headers, documentation strings, what programs print."""

import re


def escape(text):
    """Prose of a comment as Markdown: nothing in it but `code` has a meaning."""
    parts = re.split(r"(`[^`\n]*`)", text)
    return "".join(part if part.startswith("`") and len(part) > 2 else re.sub(r"([\\*_<>\[\]#|~$`{}])", r"\\\1", part) for part in parts)


def prose(comment):
    """A comment as Markdown: paragraphs, and as code what is indented."""
    out, code = [], []

    def end_code():
        if code:
            depth = min(len(line) - len(line.lstrip()) for line in code if line.strip())
            out.extend(["", "```none", *[line[depth:] for line in "\n".join(code).rstrip().split("\n")], "```", ""])
            code.clear()

    for line in comment.split("\n"):
        if re.match(r"  +\S", line) or code and not line.strip():
            code.append(line)
            continue
        end_code()
        # No sign that begins a list stands at a line's beginning.
        out.append(re.sub(r"^(\d+)([.)]) ", r"\1\\\2 ", re.sub(r"^([-+=])", r"\\\1", escape(line))))
    end_code()
    return "\n".join(out).strip("\n")


def block(code, language="cpp"):
    return f"```{language}\n{code}\n```"


def first_sentence(text):
    return re.split(r"(?<=[.;])\s", text.replace("\n", " "), maxsplit=1)[0] if text else ""


def cell(text):
    """A text in a row of a table, in which a bar ends a cell even in code."""
    return re.sub(r"(?<!\\)\|", r"\\|", escape(text))
