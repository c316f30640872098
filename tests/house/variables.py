"""The environment variables that sources read or set, by name: each is a literal where it is used."""

import re

# In the library and its packages, whose functions read_text() and read_number() take a variable's name, too.
_IN_LIBRARY = re.compile(r"""getenv\("(\w+)"|read_(?:text|number)\(\s*"([A-Z]\w+)"|settings\["(\w+)"\]|defaults\["(\w+)"\]|"""
                         r"""environ\.(?:get|setdefault)\(["'](\w+)["']|environ\[["'](\w+)["']\]|["'](\w+)["'] in os\.environ|"""
                         r"""["']((?:TESSERA|OMPI|PMIX|OMP|RANK|DEVICE)_[A-Z_0-9]+)["']""")
# In what is written for those who work on it.
_ELSEWHERE = re.compile(r"""getenv\("(\w+)"|environ\.(?:get|pop|setdefault)\(["'](\w+)["']|environ\[["'](\w+)["']\]|"""
                        r"""["'](\w+)["'] (?:not )?in os\.environ|\$ENV\{(\w+)\}|\$\{([A-Z]\w+):[-=]""")


DECLARED = "tessera/cluster/ranks/variable_names.cc"


def _names(pattern, text):
    return {name for groups in pattern.findall(text) for name in (groups if isinstance(groups, tuple) else [groups]) if name}


def of_library(root):
    """What a rank, a script and the command read."""
    names = set()
    for folder in ("tessera", "python"):
        for path in (root / folder).rglob("*"):
            is_source = path.suffix in (".cc", ".h", ".py") and not path.stem.endswith("_test") and "testing" not in path.relative_to(root).parts
            is_source = is_source and path != root / DECLARED  # reads none
            if is_source and re.search(r"getenv|environ", text := path.read_text()):
                names |= _names(_IN_LIBRARY, text)
    names |= set(re.findall(r'"(TESSERA_[A-Z_]+)"', (root / "deploy/operator/tessera_operator/pods.py").read_text()))  # of pods
    return names


def declared(root):
    """Those of Tessera's own that a process takes for known ones; of others it warns."""
    return re.findall(r'^    "(\w+)",$', (root / DECLARED).read_text(), re.MULTILINE)


def of_developers(root):
    """What tests, benchmarks, examples and scripts read."""
    names = set()
    for folder in ("tests", "benchmarks", "examples", "scripts", "cmake", ".ci"):
        for path in (root / folder).rglob("*"):
            is_source = path.suffix in (".cc", ".h", ".py", ".sh", ".cmake") or path.suffix == "" and path.is_file()
            if is_source and "house" not in path.relative_to(root).parts:
                names |= _names(_ELSEWHERE, path.read_text(errors="replace"))
    for path in (root / "tessera").rglob("*"):
        if path.suffix in (".cc", ".h") and (path.stem.endswith(("_test", "_bench")) or "testing" in path.relative_to(root).parts):
            names |= _names(_ELSEWHERE, path.read_text())
    return names


def listed(page, heading):
    """Those of the tables below the heading that begins so, up to the next one."""
    part = page.split(f"\n## {heading}", 1)[1].split("\n## ", 1)[0]
    return {name for line in part.splitlines() if line.startswith("|") for name in re.findall(r"`(\w+)`", line.split("|")[1])}
