"""Public types that have one name in two folders. One word stands for one thing, so a reader need not ask which."""

import re
from collections import defaultdict
from pathlib import Path


def plain(text):
    """The code without comments, preprocessor lines and the content of texts."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^[ \t]*#.*(?:\\\n.*)*$", "", text, flags=re.M)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)


def types_in(text):
    """(namespace, name) of each class, struct, enumeration and alias that the header defines outside of other types."""
    found, open_scopes = [], []
    for head, end in re.findall(r"([^;{}]*)([;{}])", plain(text)):
        head = head.strip()
        in_namespace = all(scope is not None for scope in open_scopes)
        namespace = "::".join(scope for scope in open_scopes if scope)
        alias = re.match(r"using\s+([A-Z]\w*)\s*=\s*(?!\s*[\w:]*\b\1\b\s*$)", head)
        if end == ";" and in_namespace and alias:
            found.append((namespace, alias.group(1)))
        if end == "{":
            scope = re.search(r"^(?:inline )?namespace\s*([\w:]*)$", head)
            defined = re.match(r"(?:template\s*<[^{}]*>\s*)?(?:class|struct|enum(?:\s+class)?)\s+([A-Z]\w*)\b(?!::)[^()]*$", head, re.S)
            if in_namespace and defined:
                found.append((namespace, defined.group(1)))
            open_scopes.append(scope.group(1) if scope else None)
        elif end == "}" and open_scopes:
            open_scopes.pop()
    return found


def shared_types(root):
    """Name -> the headers that define a type of it."""
    homes = defaultdict(set)
    for header in sorted(Path(root, "tessera").rglob("*.h")):
        for namespace, name in types_in(header.read_text()):
            homes[name].add((namespace, header.relative_to(root).as_posix()))
    return {name: sorted(header for _, header in where) for name, where in homes.items() if len(where) > 1}


def shared_headers(root):
    """Name -> the headers of that name."""
    homes = defaultdict(list)
    for header in sorted(Path(root, "tessera").rglob("*.h")):
        homes[header.name].append(header.relative_to(root).as_posix())
    return {name: where for name, where in homes.items() if len(where) > 1}


def bare_types(root):
    """Types of headers, those within others too, that are called a part or a place, and not of what."""
    found = []
    for header in sorted(Path(root, "tessera").rglob("*.h")):
        for name in re.findall(r"\b(?:class|struct|enum(?: class)?|using)\s+(Part|Place)\b(?=\s*[:{=])", plain(header.read_text())):
            found.append(f"{header.relative_to(root).as_posix()}: {name}")
    return found


def known(path):
    """Names in a file of exceptions: a name, a colon, the reason; # begins a remark."""
    lines = [line for line in Path(path).read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(": ", 1) for line in lines)
