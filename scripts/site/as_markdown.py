"""Markdown of texts that are none: comments of headers, documentation strings, what programs print."""

import re


def escape(text):
    """Prose of a comment as Markdown: nothing in it but `code` has a meaning."""
    parts = re.split(r"(`[^`\n]*`)", text)
    return "".join(part if part.startswith("`") and len(part) > 2 else re.sub(r"([\\*_<>\[\]#|~$`{}])", r"\\\1", part) for part in parts)


def prose(comment):
    """A comment as Markdown: paragraphs, lists, and what is indented as code."""
    out, is_code = [], False
    for line in comment.split("\n"):
        indented = re.match(r"  +\S", line) is not None
        if indented and not is_code:
            out += ["", "```none"]
        elif is_code and not indented and line.strip():
            out += ["```", ""]
        if line.strip():
            is_code = indented
            text = line if indented else re.sub(r"^(\d+)([.)]) ", r"\1\\\2 ", re.sub(r"^([-+=])", r"\\\1", escape(line)))
            out.append(text)
        else:
            out.append("")
    if is_code:
        out.append("```")
    return "\n".join(out)


def block(code, language="cpp"):
    return f"```{language}\n{code}\n```"


def first_sentence(text):
    return re.split(r"(?<=[.;])\s", text.replace("\n", " "), maxsplit=1)[0] if text else ""


def cell(text):
    """A text in a row of a table, in which a bar ends a cell even in code."""
    return re.sub(r"(?<!\\)\|", r"\\|", escape(text))
