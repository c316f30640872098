"""Which modules of our Python packages import which, and whether an arrow leads back: imports within functions count, too."""

import ast
from pathlib import Path


def modules(folder):
    """Name -> file, of a folder that holds packages."""
    found = {}
    for path in sorted(Path(folder).rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(folder):
    """Name -> the modules that it imports. A package's import of its own parts is none: it is how it is made."""
    known = modules(folder)
    arrows = {}
    for name, path in known.items():
        targets = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                targets |= {full if (full := f"{node.module}.{alias.name}") in known else node.module for alias in node.names}
        arrows[name] = sorted(target for target in targets if target in known and target != name and "." in target)
    return arrows


def circles(arrows):
    """Each as the modules on the way, the first of them again at the end."""
    found, done = [], set()

    def walk(name, way):
        if name in way:
            found.append([*way[way.index(name):], name])
        elif name not in done:
            for target in arrows.get(name, ()):
                walk(target, [*way, name])
            done.add(name)

    for name in sorted(arrows):
        walk(name, [])
    return found
