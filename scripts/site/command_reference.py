"""The reference of the command line: a page for each command, which is what its --help prints; without a built command, what the
sources say it is for."""

import re
import subprocess
from pathlib import Path

from as_markdown import block, cell

# What this command prints needs the package of Tessera's operator; its page is another one.
ELSEWHERE = {("job", ): "What it can do says [kubernetes.md](../kubernetes.md#try-a-manifest-without-a-cluster)."}


def declared(root):
    """(name, what it does) of each command and of those below one, as the sources declare them."""
    found = []
    for path in sorted(Path(root, "tessera/tools").rglob("*.cc")):
        found += re.findall(r'add_subcommand\(\s*"([\w-]+)",\s*"([^"]+)"', path.read_text())
    return found


def run(program, words):
    done = subprocess.run([str(program), *words, "--help"], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program} {' '.join(words)} --help: code {done.returncode}\n{done.stderr}")
    return done.stdout


def commands(program, words=()):
    """The help of a command and of all below it, by their words."""
    if words in ELSEWHERE:
        return {words: ""}
    found = {words: run(program, words)}
    _, _, listed = found[words].partition("\nSubcommands:\n")
    for name in re.findall(r"^  (\S+) +\S.*$", listed.partition("\n\n")[0], re.MULTILINE):
        found |= commands(program, (*words, name))
    return found


def page_of(words):
    return "-".join(["commands/tessera", *words])


def table(rows):
    return ["| command | what it does |", "|---|---|", *[f"| {name} | {cell(what)} |" for name, what in rows], ""]


def pages(root, build):
    """Pages of the site by their path without ending, as Markdown."""
    text = ("The command `tessera` starts jobs, looks into plans and checkpoints, and predicts what a step costs. "
            "`tessera COMMAND --help` prints what stands here.")
    program = Path(build, "bin/tessera")
    if not program.exists():
        rows = [(f"`{name}`", what) for name, what in sorted(declared(root))]
        missing = ("The command was not built when this site was: what follows is what the sources say. "
                   "`scripts/docs` after a build has the whole help of each.")
        return {"commands/index": "\n".join(["# The command tessera", "", text, "", missing, "", *table(rows)])}
    helps = commands(program)
    what = dict(declared(root))
    rows = [(f"[{' '.join(['tessera', *words])}]({Path(page_of(words)).name}.md)", what.get(words[-1], "")) for words in helps if words]
    found = {}
    for words, printed in helps.items():
        if words:
            body = block(printed.rstrip(), "none") if printed else ELSEWHERE[words]
            found[page_of(words)] = f"# {' '.join(['tessera', *words])}\n\n[All commands](index.md)\n\n{body}\n"
    found["commands/index"] = "\n".join(["# The command tessera", "", text, "", *table(rows), block(helps[()].rstrip(), "none"), ""])
    return found
