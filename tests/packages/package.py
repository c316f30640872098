"""Making packages, and a job of four ranks that uses one."""
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# What a user would not have set, or has set for another copy of the package.
FOREIGN = ("TESSERA_", "OMPI_", "PMIX_", "RANK_", "MS_", "SLURM", "PYTHON")

# A manifest of two workers.
JOB = ROOT / "deploy" / "operator" / "config" / "samples" / "tesserajob_example.yaml"


def run(*command, cwd, timeout=1800, **variables):
    """What a command prints, which must succeed; it sees nothing of the packages that these tests run with."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout, cwd=cwd,
                          env=environment | {name: str(value) for name, value in variables.items()}, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def make(what, out):
    """What `scripts/package WHAT` has put into the folder `out`."""
    run(ROOT / "scripts" / "package", what, "--out", out, cwd=ROOT, timeout=3500)
    return sorted(out.iterdir())


def defined_names(library):
    """The names that a shared library shows to programs, as compilers write them."""
    return {line.split()[-1].partition("@")[0] for line in run("nm", "--dynamic", "--defined-only", library, cwd=ROOT).splitlines()}


def is_ours(name):
    """Whether a name is of namespace tessera: a function, a variable, a class's tables, or what belongs to one of these."""
    return re.match(r"_Z(T[VTISHW]|T[hv]\w+?_|GV)?Z?NK?[RO]?7tessera", name) is not None


def loaded(program, **variables):
    """The file of each shared library that a program loads, by its name."""
    return dict(re.findall(r"^\s*(\S+) => (\S+)", run("ldd", program, cwd=ROOT, **variables), re.MULTILINE))


def needed(file):
    """The shared libraries that a program or library names, and the folders in which it seeks them."""
    printed = run("readelf", "--dynamic", file, cwd=ROOT)
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", printed)), re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", printed)


def require_no_place_of_the_build(file):
    """What is handed out says nothing of the folder in which it was built."""
    data, place = file.read_bytes(), os.fsencode(ROOT) + b"/"
    at = data.find(place)
    assert at < 0, (file, data[max(0, at - 40):at + 160])


def training_script():
    """The readme's model, which says at its end how many ranks there are."""
    model = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    return f"{model}print('ranks:', tessera.cluster.size())\n"


def check_trained(printed):
    """What four ranks of training_script() have printed says that they have learned."""
    losses = [float(loss) for loss in re.findall(r"epoch \d+/5: loss ([0-9.]+)", printed)]
    assert len(losses) == 5 and losses[-1] < losses[0] / 2, printed
    assert printed.count("ranks: 4") == 4, printed


def check_training(tessera, python, folder, **variables):
    """The readme's model learns on four ranks."""
    (folder / "model.py").write_text(training_script())
    check_trained(run(tessera, "run", "-n", "4", python, "model.py", cwd=folder, **variables))


def write_program(folder, shared=False):
    """The program of docs/program.md with one of its CMakeLists.txt; as `line` it prints "f(3) = 7.0"."""
    text = (ROOT / "docs" / "program.md").read_text(encoding="utf-8")
    with_static, with_shared = (block for block in re.findall(r"```cmake\n(.*?)```", text, re.DOTALL) if "find_package" in block)
    (folder / "CMakeLists.txt").write_text(with_shared if shared else with_static)
    (folder / "line.cc").write_text(re.search(r"```cpp\n(.*?)```", text, re.DOTALL)[1])


def write_twice(folder, form):
    """A program that links Tessera by `form`, and a library of its own that has the static one in itself and shows none of its names."""
    count = "static_cast<int>(tessera::ops::OpRegistry::instance().all().size())"
    (folder / "own.cc").write_text(f"#include <tessera/ops/registry/op_def.h>\nint own_count() {{ return {count}; }}\n")
    (folder / "twice.cc").write_text(f"#include <tessera/ops/registry/op_def.h>\nint own_count();\nint main() {{ return own_count() - {count}; }}\n")
    (folder / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.25)
project(twice LANGUAGES CXX)
find_package(Tessera REQUIRED)
add_library(own SHARED own.cc)
target_link_libraries(own PRIVATE Tessera::tessera)
target_link_options(own PRIVATE LINKER:--exclude-libs,ALL)
add_executable(twice twice.cc)
target_link_libraries(twice PRIVATE own {form})
""")


def check_refused(program, *others):
    """The program ends before its main with one sentence that names it, or one of `others`, and the library of write_twice()."""
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    said = re.fullmatch(r"error: Tessera is in this process twice, in (\S+) and in (\S+), each with operators of its own: link all of them with "
                        r"Tessera::shared, or only one of them with Tessera::tessera\n", done.stderr)
    assert done.returncode == 2 and said and not done.stdout, (done.returncode, done.stdout, done.stderr)
    names = {Path(name).name for name in said.groups()}
    assert names in [{"libown.so", Path(other).name} for other in (program, *others)], names


def check_lacks_yaml(program, folder, **variables):
    """`tessera job render` in an environment without PyYAML says which command installs it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)} | {name: str(value) for name, value in variables.items()}
    done = subprocess.run([program, "job", "render", JOB], capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.returncode == 1 and "has no package yaml" in done.stderr and "-m pip install pyyaml" in done.stderr, done.stdout + done.stderr


def is_elf(path):
    return path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"
