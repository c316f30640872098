"""program_test.py BUILD_FOLDER: docs/program.md's program, built outside of the project from an installation, and run; docs/extending.md's, compiled."""
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "packages"))
import package  # noqa: E402


def blocks(text, language):
    """The fenced blocks of that language."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def run(*command, cwd=None):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def public_headers():
    """tessera/tessera.h, tessera/engine.h and what they lead to, as the sources say it."""
    found, waiting = set(), ["tessera/tessera.h", "tessera/engine.h"]
    while waiting:
        header = waiting.pop()
        if header not in found:
            found.add(header)
            waiting += re.findall(r'^#include "(tessera/[^"]+)"', (ROOT / header).read_text(encoding="utf-8"), re.MULTILINE)
    return found


def check_headers(include):
    """What is installed is what programs can include: nothing of tests, and nothing that names a header that is not there."""
    installed = {str(path.relative_to(include)) for path in include.rglob("*") if path.is_file()}
    assert installed == public_headers(), installed ^ public_headers()
    ours = [path for path in installed if re.search(r"test|/tools/|fuzz|mutat|golden|_cases", path)]
    assert not ours, f"headers of tests: {ours}"
    for header in installed:
        text = (include / header).read_text(encoding="utf-8")
        assert not re.search(r"#include <(gtest|gmock|benchmark)/", text), header


def check_components(prefix, folder):
    """find_package(Tessera COMPONENTS ...) says which component is not there, and what is instead; so does find_package(tessera)."""
    folder.mkdir()
    has_shared = (prefix / "lib" / "cmake" / "Tessera" / "TesseraSharedTargets.cmake").exists()
    asked = {"gpu": 'component "gpu": Tessera has no such one; there are static (target Tessera::tessera) and shared (target Tessera::shared)',
             "shared": None if has_shared else "has no libtessera.so; build it with -DTESSERA_SHARED=ON, or take the component static",
             "static": None}
    for package_name, (component, refusal) in itertools.product(("Tessera", "tessera"), asked.items()):
        target = "tessera" if component == "static" else component
        (folder / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.25)
project(asks LANGUAGES CXX)
find_package({package_name} 0.1 REQUIRED CONFIG COMPONENTS {component})
if(NOT TARGET Tessera::{target})
  message(FATAL_ERROR "no target Tessera::{target}")
endif()
if(TARGET Tessera::{'shared' if component == 'static' else 'tessera'})
  message(FATAL_ERROR "a component that nobody asked for")
endif()
""", encoding="utf-8")
        shutil.rmtree(folder / "build", ignore_errors=True)
        done = subprocess.run(["cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}"],
                              capture_output=True, text=True, check=False)
        said = " ".join(done.stderr.split())
        assert (done.returncode == 0) == (refusal is None), (package_name, component, said)
        assert refusal is None or refusal in said, (package_name, component, said)
    # One that a program can do without is no error.
    optional = "".join(f"find_package({name} REQUIRED COMPONENTS static OPTIONAL_COMPONENTS gpu)\n" for name in ("tessera", "Tessera"))
    (folder / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.25)\nproject(asks LANGUAGES CXX)\n{optional}", encoding="utf-8")
    run("cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}")


def check_both(prefix, folder):
    """A target that links both forms of Tessera is refused when it is configured, and a process that loads both when it starts."""
    folder.mkdir()
    targets = prefix / "lib" / "cmake" / "Tessera" / "TesseraSharedTargets.cmake"
    is_made_up = not targets.exists()
    if is_made_up:  # this build has no libtessera.so: nothing is linked here, so its target may stand for it
        targets.write_text("if(NOT TARGET Tessera::shared)\n  add_library(Tessera::shared INTERFACE IMPORTED)\nendif()\n", encoding="utf-8")
    (folder / "both.cc").write_text("int main() {}\n", encoding="utf-8")
    for first, second in (("tessera", "shared"), ("shared", "tessera"), ("train", "shared"), ("shared", "ops")):
        (folder / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.25)
project(both LANGUAGES CXX)
find_package(Tessera REQUIRED)
add_library(part INTERFACE)
target_link_libraries(part INTERFACE Tessera::{first})
add_executable(both both.cc)
target_link_libraries(both PRIVATE part Tessera::{second})
""", encoding="utf-8")
        done = subprocess.run(["cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}"],
                              capture_output=True, text=True, check=False)
        said = " ".join(done.stderr.split())
        assert done.returncode != 0 and "TESSERA_IS_LINKED_STATIC_OR_SHARED_NOT_BOTH" in said and '"both"' in said, (first, second, said)
    if is_made_up:
        targets.unlink()
    twice = folder / "twice"
    twice.mkdir()
    package.write_twice(twice, "Tessera::tessera")
    run("cmake", "-G", "Ninja", "-S", twice, "-B", twice / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", twice / "build")
    package.check_refused(twice / "build" / "twice")


def main():
    build = Path(sys.argv[1]).resolve()
    page = (ROOT / "docs" / "program.md").read_text(encoding="utf-8")
    (operator,) = blocks((ROOT / "docs" / "extending.md").read_text(encoding="utf-8"), "cpp")
    with tempfile.TemporaryDirectory(prefix="tessera-program-") as folder:
        prefix, source = Path(folder) / "installed", Path(folder) / "line"
        source.mkdir()
        program, cell = blocks(page, "cpp")
        # The cell and the operator, whose kernel is left out, are compiled only.
        project = blocks(page, "cmake")[0]
        for name in ("cell", "operator"):
            project += f"add_library({name} OBJECT {name}.cc)\ntarget_link_libraries({name} PRIVATE Tessera::tessera)\n"
        (source / "CMakeLists.txt").write_text(project, encoding="utf-8")
        (source / "line.cc").write_text(program, encoding="utf-8")
        (source / "cell.cc").write_text(f"#include <tessera/tessera.h>\nusing namespace tessera;\n{cell}", encoding="utf-8")
        (source / "operator.cc").write_text(operator, encoding="utf-8")
        for component in ("runtime", "mpi", "development"):
            run("cmake", "--install", build, "--prefix", prefix, "--component", component)
        check_headers(prefix / "include")
        check_components(prefix, Path(folder) / "components")
        check_both(prefix, Path(folder) / "both")
        # An installation does not need the clone.
        for file in [*prefix.glob("bin/*"), *prefix.glob("lib/*.so*")]:
            assert str(ROOT) not in run("readelf", "--dynamic", file), f"{file} seeks libraries in the clone"
        run("cmake", "-G", "Ninja", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", source / "build")
        program = source / "build" / "line"
        command = prefix / "bin" / "tessera"
        for launcher in ([], [command, "run", "-n", "2"], [command, "run", "--threads", "2"]):
            printed = run(*launcher, program, cwd=folder)
            assert printed.count("f(3) = 7.0") == 1, printed
            assert len(re.findall(r"^(?:\[0\] )?epoch \d+/20: loss ", printed, re.MULTILINE)) == 20, printed
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
