"""Layers, clang-format and clang-tidy. Each file that a tool looks at counts once, passed or failed.

clang-tidy reads every system header of a source anew, seconds for each, a quarter of an hour for all on two cores: it runs
with --full only. A source that passed is not read again until it, a project header it includes, its flags or .clang-tidy
change (build/lint holds the fingerprints).
"""

import concurrent.futures
import hashlib
import json
import re
import subprocess
import threading
from pathlib import Path

import check_layers

FOLDERS = ("tessera", "python", "examples", "tests", "benchmarks")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def sources(root):
    files = [path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in (".h", ".cc")]
    return sorted(files)


def run_format(root, files):
    passed = failed = 0
    for path in files:
        result = subprocess.run(["clang-format-14", "--dry-run", "-Werror", path], cwd=root, capture_output=True, text=True)
        if result.returncode == 0:
            passed += 1
        else:
            failed += 1
            print(f"{path.relative_to(root)}: not as clang-format writes it; clang-format -i {path.relative_to(root)}")
            print("\n".join(result.stderr.splitlines()[:3]), flush=True)
    return passed, failed


def fingerprint(root, path, command):
    """Of all that decides clang-tidy's answer, but for system headers."""
    digest = hashlib.sha256(command.encode() + (root / ".clang-tidy").read_bytes())
    seen, queue = set(), [path]
    while queue:
        current = queue.pop()
        if current in seen or not current.is_file():
            continue
        seen.add(current)
        text = current.read_text(errors="replace")
        digest.update(str(current).encode() + text.encode())
        # Sorted where found: the order of the walk is that of the text.
        queue += [root / name for name in INCLUDE.findall(text)] + [current.parent / name for name in INCLUDE.findall(text)]
    return digest.hexdigest()


# What our sources use of gcc's omp.h, whose attributes clang does not parse.
OMP_H = """#pragma once
extern "C" {
int omp_get_max_threads();
int omp_get_num_procs();
int omp_get_num_threads();
int omp_get_thread_num();
void omp_set_num_threads(int);
}
"""


def tidy_command(root, build):
    """clang-tidy reads the flags that gcc gets; clang does not know all of its warnings, and has no omp.h of its own."""
    include = root / "build" / "lint" / "include"
    include.mkdir(parents=True, exist_ok=True)
    header = include / "omp.h"
    header.unlink(missing_ok=True)  # may be a link
    header.write_text(OMP_H)
    return ["clang-tidy-16", "-p", build, "--quiet", "--extra-arg=-Wno-unknown-warning-option", f"--extra-arg=-isystem{include}"]


def own_units(root, build):
    """A build folder that is configured only: its commands compile each source by itself, those of `build` several at once."""
    settings = re.findall(r"^((?:TESSERA_\w+|Python_EXECUTABLE):\w+=.*)$", (build / "CMakeCache.txt").read_text(), re.M)
    units = root / "build" / "lint" / "units"
    subprocess.run(["cmake", "-S", root, "-B", units, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    *(f"-D{setting}" for setting in settings), "-DTESSERA_UNITY=OFF"], stdout=subprocess.DEVNULL, check=True)
    return units


def run_tidy(root, build, jobs):
    command = tidy_command(root, build)
    database = json.loads((build / "compile_commands.json").read_text())
    store = root / "build" / "lint"
    store.mkdir(parents=True, exist_ok=True)

    # A fault in a header comes up in each source that includes it; it is printed once.
    printed, lock = set(), threading.Lock()

    def report(output):
        with lock:
            for fault in re.split(r"^(?=\S+:\d+:\d+: (?:error|warning):)", output, flags=re.M)[1:]:
                first = fault.splitlines()[0]
                if first not in printed:
                    printed.add(first)
                    print("\n".join(fault.splitlines()[:8]).replace(f"{root}/", ""), flush=True)

    def check(entry):
        path = Path(entry["file"])
        name = str(path.relative_to(root))
        mark = store / (name.replace("/", "__") + ".ok")
        print_of_now = fingerprint(root, path, entry.get("command", ""))
        if mark.exists() and mark.read_text() == print_of_now:
            return True
        result = subprocess.run([*command, path], cwd=root, capture_output=True, text=True)
        if result.returncode == 0:
            mark.write_text(print_of_now)
            return True
        mark.unlink(missing_ok=True)
        report(result.stdout + result.stderr)
        return False

    entries = {entry["file"]: entry for entry in database if Path(entry["file"]).is_relative_to(root)
               and not Path(entry["file"]).is_relative_to(build)}
    chosen = [entries[name] for name in sorted(entries)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(check, chosen))
    return sum(results), len(results) - sum(results)


def run(root, build, jobs, full):
    files = sources(root)
    faults = check_layers.check(root)
    for fault in faults:
        print(fault)
    failing = len({fault.partition(":")[0] for fault in faults})
    rows = {"layers": (max(len(files) - failing, 0), failing), "format": run_format(root, files)}
    if full:
        rows["tidy"] = run_tidy(root, own_units(root, build), jobs)
    for name, (passed, failed) in rows.items():
        print(f"  {name:<8}{passed:>5} files clean, {failed} not", flush=True)
    return sum(row[0] for row in rows.values()), sum(row[1] for row in rows.values())
