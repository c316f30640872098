#!/usr/bin/env python3
"""Refuses includes that go upward or sideways between the folders of tessera/.

A folder includes only folders of lower layers, and a room within a folder only lower rooms of it. Its CMakeLists.txt names its dependencies (DEPS), which must be lower
too, and which must lead to every folder that its library includes. Programs that stand for a user's (examples/,
tessera/tools, python/) see of the library only its public headers; the command reads JSON as the library does, too. tessera/testing is for tests and benchmarks.
Prints one line for each fault: file:line, the include, the rule. Exit code 1 where there is one.
"""

import re
import sys
from pathlib import Path

# docs/architecture.md, "Folders".
LAYERS = {
    "base": 0,
    "tensor": 1, "solver": 1, "pipeline": 1, "timeline": 1,
    "mesh": 2, "kernels": 2, "comm": 2,
    "ir": 3, "checkpoint": 3, "cluster": 3, "data": 3,
    "ops": 4,
    "nn": 5, "compiler": 5, "executor": 5,
    "session": 6,
    "train": 7,
    "tools": 8,
}
# The rooms of a folder, from the lowest up. Its own files stand above them, or where "." is. Each folder within a folder of the library is
# a room. Tests may look into every room of their folder.
ROOMS = {
    "base": (".", "json", "files", "processes", "workers"),
    "tensor": (".", "dlpack"),
    "solver": ("problem", "bounds"),
    "pipeline": (".", "search"),
    "timeline": (".", "perfetto"),
    "mesh": (".", "redistribution"),
    "kernels": (".", "sharing", "reference", "cuda", "cpu"),
    "kernels/cpu": ("registry", "rows", "elementwise", "matmul", "images", "normalization", "attention"),
    "kernels/cuda": ("device_code", "core", "elementwise", "shapes", "creation", "indexing", "reduce", "optimizers", "matmul", "images",
                     "normalization", "attention", "device", "libraries"),
    "kernels/reference": ("loops",),
    "comm": (".", "memory", "wire"),
    "checkpoint": ("threads", "format", "manifest", "lock", "strategy", "read", "write", "convert", "resume"),
    "cluster": ("recovery", "ranks", "tls", "hub", "report", "rendezvous", "tls_wire", "launcher", "dashboard"),
    "cluster/rendezvous": ("messages", "membership"),
    "data": (".", "text", "sets"),
    "ops": ("registry", "functions", "rules", "defs"),
    "nn": (".", "layers", "optimizers", "tuning", "gradients", "transformer", "models"),
    "compiler": ("cost", "passes", "plan", "partition", "verify", "schedule", "search", ".", "stages", "cuts", "pipelines"),
    "session": ("values", "agree", "records", "speed", "messages"),
    "train": ("options", "modes", "core", "saving", "kept", ".", "monitors", "translation", "logs", "traces"),
    "train/modes": (".", "stages"),
    "tools": ("arguments", "page", "dashboard", "plan", "timeline", "report", "bisect", "check"),
}
# Named as another project has them, whose headers they stand in for.
FOLDERS_OF_OTHERS = ("comm/wire/gloo_headers/gloo/common",)
TESTING = "testing"
PUBLIC_HEADERS = ("tessera/tessera.h", "tessera/engine.h")
# Of no public header, as it names types of a library that a user's program may have in another version.
BESIDE_PUBLIC = {"tessera/tools": ("tessera/base/json/bounded_json.h",)}
PUBLIC_ONLY = ("tessera/tools", "examples", "python")
TOP_FOLDERS = ("tessera", "python", "examples", "tests", "benchmarks")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<(tessera/[^>]+)>)')
LIBRARY = re.compile(r"\b(tessera_library|tessera_test|tessera_program)\s*\(\s*(\w+)([^)]*)\)", re.S)
PLAIN_LIBRARY = re.compile(r"\badd_library\s*\(\s*tessera_(\w+)([^)]*)\)", re.S)
KEYWORDS = {"DEPS", "SOURCES", "LINK", "PRIVATE_LINK", "LABELS", "TIMEOUT"}


def folder_of(path):
    """tessera/ir/graph.h -> ir; None for a file outside tessera/ or directly in it."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "tessera" else None


def rooms_of(path):
    """tessera/kernels/cpu/rows/row_ops.h -> {kernels: its rooms from the lowest up and cpu, kernels/cpu: its rooms and rows}: of each folder
    around the file that has rooms."""
    parts = path.split("/")
    found = {}
    for depth in range(2, len(parts)):
        folder = "/".join(parts[1:depth])
        if folder in ROOMS:
            rooms = ROOMS[folder] if "." in ROOMS[folder] else (*ROOMS[folder], ".")
            found[folder] = rooms, parts[depth] if depth < len(parts) - 1 and parts[depth] in rooms else "."
    return found


def check_rooms(path, target):
    """The rule that `path` breaks by including `target`, or None."""
    used_rooms = rooms_of(target)
    for folder, (rooms, room) in rooms_of(path).items():
        _, used = used_rooms.get(folder, (rooms, room))
        if rooms.index(used) > rooms.index(room):
            name = lambda room: folder if room == "." else f"{folder}/{room}"
            return f"upward: {name(room)} may include of {folder} only " + (", ".join(map(name, rooms[:rooms.index(room)])) or "nothing")
    return None


def unlisted_rooms(root):
    """A line for each folder within a folder of the library that ROOMS does not list: its files would be taken for those of the folder around it."""
    folders = {file.parent.relative_to(root) for file in Path(root, "tessera").rglob("*.*") if file.suffix in (".h", ".cc")}
    faults = []
    for folder in sorted(folders):
        parts = folder.parts[1:]
        if len(parts) < 2 or parts[0] not in LAYERS or parts[-1] in ROOMS.get("/".join(parts[:-1]), ()):
            continue
        if "/".join(parts) not in FOLDERS_OF_OTHERS:
            faults.append(f"{folder.as_posix()}: is no room of {'/'.join(parts[:-1])}: list it in ROOMS of scripts/check_layers.py, in the order of the includes, and "
                          "in docs/architecture.md")
    return faults


def lower_than(folder):
    return ", ".join(name for name, layer in LAYERS.items() if layer < LAYERS[folder])


def is_test(path, test_files=frozenset()):
    return path.endswith("_test.cc") or path.startswith(("tests/", "benchmarks/")) or path in test_files


def check_include(path, target, test_files=frozenset()):
    """The rule that `path` breaks by including `target`, or None."""
    own = folder_of(path)
    if "/" not in target or target.startswith("."):
        return "write includes from the project's root: tessera/FOLDER/FILE.h"
    if target.split("/")[0] not in TOP_FOLDERS:
        return None  # another project's header
    public_only = next((top for top in PUBLIC_ONLY if path.startswith(top + "/")), None)
    if public_only and not is_test(path, test_files):
        if target in PUBLIC_HEADERS or target in BESIDE_PUBLIC.get(public_only, ()):
            return None
        if target.startswith(public_only + "/"):
            return check_rooms(path, target) if own else None
        return f"{public_only} includes only {' and '.join(PUBLIC_HEADERS)} and its own headers"
    if target in PUBLIC_HEADERS:
        return None if own is None or is_test(path, test_files) else f"{target} is for users; include the header that you need"
    used = folder_of(target)
    if used == own:
        return check_rooms(path, target) if own and not is_test(path, test_files) else None
    if used is None:
        return "a library folder includes tessera/FOLDER/FILE.h" if own else None
    if used == TESTING:
        return None if is_test(path, test_files) else f"{TESTING} is for tests"
    if used not in LAYERS:
        return f"'{used}' is no folder of the library; scripts/check_layers.py lists them"
    if own is None or own == TESTING:
        return None
    if own not in LAYERS:
        return f"'{own}' is no folder of the library; scripts/check_layers.py lists them"
    if LAYERS[used] < LAYERS[own]:
        return None
    direction = "sideways" if LAYERS[used] == LAYERS[own] else "upward"
    return (f"{direction}: {own} (layer {LAYERS[own]}) may include only " + (lower_than(own) or "nothing") +
            f"; {used} is layer {LAYERS[used]}")


def includes_of(root):
    """(path, line, target) of each include of a project header."""
    for top in TOP_FOLDERS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in (".h", ".cc"):
                continue
            path = file.relative_to(root).as_posix()
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
                match = INCLUDE.match(line)
                if match:
                    yield path, number, match.group(1) or match.group(2)


def cmake_targets(root):
    """(path, line, kind, name, deps, sources) of each target in tessera/; a plain add_library counts as a tessera_library."""
    for file in sorted((root / "tessera").rglob("CMakeLists.txt")):
        text = re.sub(r"#[^\n]*", "", file.read_text())
        for match in LIBRARY.finditer(text):
            lists, current = {}, None
            for word in match.group(3).split():
                current = word if word in KEYWORDS else current
                if word not in KEYWORDS and current:
                    lists.setdefault(current, []).append(word)
            yield (file.relative_to(root).as_posix(), text.count("\n", 0, match.start()) + 1, match.group(1), match.group(2),
                   lists.get("DEPS", []), lists.get("SOURCES", []))
        for match in PLAIN_LIBRARY.finditer(text):
            name = match.group(1)
            links = " ".join(link.group(1) for link in re.finditer(rf"target_link_libraries\s*\(\s*tessera_{name}\s([^)]*)\)", text))
            yield (file.relative_to(root).as_posix(), text.count("\n", 0, match.start()) + 1, "tessera_library", name,
                   [word[8:] for word in links.split() if word.startswith("tessera_") and word != "tessera_flags"],
                   [word for word in match.group(2).split() if word.endswith(".cc")])


def check(root):
    """The faults of the tree at `root`, each a line of text that begins with the file's path."""
    root = Path(root)
    faults = unlisted_rooms(root)
    targets = list(cmake_targets(root))
    # Helpers of tests: sources that belong to tests and to no library, with their headers.
    sources_of = lambda test: {str(Path(path).parent / source) for path, _, kind, name, _, sources in targets for source in sources
                               if (kind == "tessera_test" or name.endswith("_testing")) == test}
    helpers = sources_of(True) - sources_of(False)
    test_files = helpers | {source[:-3] + ".h" for source in helpers}

    includes = list(includes_of(root))
    for path, line, target in includes:
        rule = check_include(path, target, test_files)
        if rule:
            faults.append(f'{path}:{line}: includes "{target}": {rule}')

    folder_of_library, deps_of_library = {}, {}
    for path, line, kind, name, deps, _ in targets:
        if kind == "tessera_library":
            folder_of_library[name] = folder_of(path)
            deps_of_library[name] = deps

    def closure(deps):
        seen, queue = set(), list(deps)
        while queue:
            dep = queue.pop()
            if dep not in seen:
                seen.add(dep)
                queue += deps_of_library.get(dep, [])
        return seen

    for path, line, kind, name, deps, sources in targets:
        own = folder_of(path)
        test = kind == "tessera_test"
        for dep in deps:
            used = folder_of_library.get(dep)
            if used is None:
                faults.append(f"{path}:{line}: {name} depends on {dep}: no tessera_library has that name")
            elif used == own or own == TESTING or own not in LAYERS or (used == TESTING and test):
                continue
            elif used == TESTING:
                faults.append(f"{path}:{line}: {name} depends on {dep}: {TESTING} is for tests")
            elif LAYERS[used] >= LAYERS[own]:
                faults.append(f"{path}:{line}: {name} depends on {dep}: {own} (layer {LAYERS[own]}) may use only "
                              f"{lower_than(own) or 'nothing'}")
        if kind != "tessera_library":
            continue
        # The sources' includes must be reachable through DEPS; headers belong to the library of the nearest CMakeLists.txt.
        home = str(Path(path).parent)
        files = {f"{home}/{source}" for source in sources}
        reachable = {folder_of_library.get(dep) for dep in closure(deps)} | {own}
        for include_path, include_line, target in includes:
            beside_source = include_path in files or (include_path.endswith(".h") and
                                                      f"{include_path[:-2]}.cc" in files)
            used = folder_of(target)
            if beside_source and used in LAYERS and used not in reachable:
                faults.append(f'{include_path}:{include_line}: includes "{target}": DEPS of {name} in {path} do not lead to '
                              f"{used}")
    return faults


if __name__ == "__main__":
    found = check(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    print("\n".join(found) if found else "layers: clean")
    sys.exit(1 if found else 0)
