"""The packages that `scripts/package deb` makes, unpacked, and what is done with each."""
import gzip
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import package

if shutil.which("dpkg-deb") is None:
    pytest.skip("this system has no dpkg", allow_module_level=True)

COMPLETE = """
source "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_tessera
echo "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The packages by name."""
    return {path.name.partition("_")[0]: path for path in package.make("deb", tmp_path_factory.mktemp("dist"))}


@pytest.fixture(scope="module")
def root(made, tmp_path_factory):
    """A folder in which all of them are unpacked."""
    folder = tmp_path_factory.mktemp("root")
    for file in made.values():
        package.run("dpkg-deb", "--extract", file, folder, cwd=folder)
    return folder / "usr"


def depends(file):
    return package.run("dpkg-deb", "--field", file, "Depends", cwd="/")


def test_they_say_what_they_need(made):
    assert set(made) == {"tessera", "tessera-mpi", "tessera-dev"}
    for name in ("libgloo0", "libssl3", "libgomp1", "python3-numpy"):
        assert name in depends(made["tessera"]), name
    assert "openmpi" in depends(made["tessera-mpi"]) and "openmpi" not in depends(made["tessera"])
    assert re.search(r"tessera \(= [0-9.]+\)", depends(made["tessera-dev"])) and "libgloo-dev" in depends(made["tessera-dev"])


def test_each_has_a_copyright_file_that_names_what_it_brings(made, root):
    for name in made:
        text = (root / "share" / "doc" / name / "copyright").read_text()
        assert "Apache License" in text and "Copyright (c) 2022 Wenzel Jakob" in text, name
    brought = [path for path in (root / "lib" / "tessera" / "onednn" / "lib").glob("libdnnl.so.*") if not path.is_symlink()]
    for path in brought:
        text = (root / "share" / "doc" / "tessera" / "copyright").read_text()
        assert f"  {path.name} 3." in text and f"{path.name}: THIRD-PARTY-PROGRAMS" in text


def test_a_manifest_of_a_job_is_rendered_where_there_is_pyyaml(made, root, tmp_path):
    assert "python3-yaml" in package.run("dpkg-deb", "--field", made["tessera"], "Recommends", cwd="/")
    package.check_lacks_yaml(root / "bin" / "tessera", tmp_path, PYTHON=sys.executable)
    if Path("/usr/lib/python3/dist-packages/yaml").exists():
        assert package.run(root / "bin" / "tessera", "job", "render", package.JOB, cwd=tmp_path, PYTHON="/usr/bin/python3").count("kind: Pod\n") == 3
    assert "kind: CustomResourceDefinition" in package.run(root / "bin" / "tessera", "job", "manifests", cwd=tmp_path)
    assert (root / "share/tessera/deploy/operator/chart/crds").is_dir()


def version(made):
    return package.run("dpkg-deb", "--field", made["tessera"], "Version", cwd="/").strip()


@pytest.fixture(scope="module")
def library(made, root):
    """libtessera.so by the name by which programs load it."""
    return root / "lib" / f"libtessera.so.{version(made).rpartition('.')[0]}"


def test_no_file_is_in_two_of_them_or_names_the_clone(made, root):
    files = [line.split()[-1] for file in made.values() for line in package.run("dpkg-deb", "--contents", file, cwd="/").splitlines()
             if not line.startswith("d") and "->" not in line]
    assert len(files) == len(set(files))
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            package.require_no_place_of_the_build(path)


def test_four_ranks_train(root, tmp_path):
    modules = root / "lib" / "python3" / "dist-packages"
    assert Path(package.run(sys.executable, "-c", "import tessera; print(tessera.__file__)", cwd=tmp_path,
                            PYTHONPATH=modules).strip()).is_relative_to(modules)
    package.check_training(root / "bin" / "tessera", sys.executable, tmp_path, PYTHONPATH=modules)


def test_every_command_has_a_page_of_the_manual(root):
    pages = {path.name.removesuffix(".1.gz"): gzip.decompress(path.read_bytes()).decode() for path in (root / "share" / "man" / "man1").iterdir()}
    assert {"tessera", "tessera-run", "tessera-cluster-status", "tessera-ckpt-ls", "tessera-job", "tessera-job-run", "tessera-job-render",
            "tessera-job-manifests"} <= set(pages)
    assert ".SH SYNOPSIS" in pages["tessera-run"]
    for name, text in pages.items():
        assert text.partition(".SH NAME\n")[2].startswith(f"{name} \\- ") and f"\n.TH {name.upper()} " in text
        said = package.run(root / "bin" / "tessera", *name.split("-", 2 if name.startswith("tessera-c") else -1)[1:], "--help", cwd="/", PYTHON="/usr/bin/python3")
        assert set(re.findall(r"^ {2}(?:-\w, ?)?(--\w+)", said, re.MULTILINE)) <= set(re.findall(r"--\w+", text.replace("\\-", "-"))), name


def test_shells_complete_commands_options_and_values(root, tmp_path):
    file = root / "share" / "bash-completion" / "completions" / "tessera"

    def completed(*words):
        return package.run("bash", "-c", COMPLETE, "bash", file, "tessera", *words, cwd=tmp_path).split()

    assert {"run", "plan", "cluster"} <= set(completed(""))
    assert completed("cluster", "stat") == ["status"]
    assert completed("run", "-n", "4", "--trans") == ["--transport"]
    assert completed("run", "--transport", "g") == ["gloo"] == completed("run", "--transport", "=", "g")
    assert completed("run", "./program", "--trans") == []  # it is the program's
    assert completed("run", "--log_dir", "") == []  # names of files
    zsh = (root / "share" / "zsh" / "vendor-completions" / "_tessera").read_text()
    assert zsh.startswith("#compdef tessera\n") and zsh.endswith(file.read_text())
    fish = (root / "share" / "fish" / "vendor_completions.d" / "tessera.fish").read_text()
    assert "-l transport -x -a 'shm tls gloo mpi threads'" in fish


def test_a_program_is_built_with_them(root, tmp_path):
    package.write_program(tmp_path)
    package.run("cmake", "-G", "Ninja", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={root}", cwd=tmp_path)
    package.run("cmake", "--build", "build", cwd=tmp_path)
    assert "f(3) = 7.0" in package.run(root / "bin" / "tessera", "run", "-n", "2", "build/line", cwd=tmp_path)


def test_the_shared_library_has_the_minor_version_in_its_name(made, root, library):
    assert f"[{library.name}]" in re.search(r"\(SONAME\).*", package.run("readelf", "--dynamic", library, cwd="/"))[0]
    assert library.resolve().name == f"libtessera.so.{version(made)}"
    of_the_package = {name: package.run("dpkg-deb", "--contents", file, cwd="/") for name, file in made.items()}
    assert f"/{library.name} -> " in of_the_package["tessera"] and "/libtessera.so -> " in of_the_package["tessera-dev"]
    assert (root / "lib" / "libtessera.so").resolve() == library.resolve()


def test_programs_depend_on_a_package_of_the_minor_version(made, library, tmp_path):
    minor = library.name.partition(".so.")[2]
    assert package.run("dpkg-deb", "--field", made["tessera"], "Provides", cwd="/").strip() == f"libtessera{minor} (= {version(made)})"
    package.run("dpkg-deb", "--control", made["tessera"], tmp_path, cwd="/")
    assert (tmp_path / "shlibs").read_text().split() == ["libtessera", minor, f"libtessera{minor}"]
    assert "ldconfig" in (tmp_path / "triggers").read_text()


def test_the_shared_library_shows_names_of_tessera_only(library):
    names = package.defined_names(library)
    assert {name for name in names if not package.is_ours(name)} == set()
    # Not everything is hidden: a function, a class's tables.
    assert {"_ZN7tessera5train10print_lineERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", "_ZTIN7tessera15InvalidArgumentE"} <= names


def test_a_program_is_built_with_the_shared_library(root, library, tmp_path):
    package.write_program(tmp_path, shared=True)
    package.run("cmake", "-G", "Ninja", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={root}", cwd=tmp_path)
    package.run("cmake", "--build", "build", cwd=tmp_path)
    program = tmp_path / "build" / "line"
    assert Path(package.loaded(program)[library.name]).samefile(library)
    # The program itself links what it uses of the headers, and none of what Tessera alone uses.
    assert not [name for name in package.needed(program)[0] if name.startswith(("libdnnl", "libgloo", "libspdlog", "libssl", "libhwy"))]
    assert "f(3) = 7.0" in package.run(root / "bin" / "tessera", "run", "-n", "2", program, cwd=tmp_path)
    assert "f(3) = 7.0" in package.run(root / "bin" / "tessera", "run", "--threads", "2", program, cwd=tmp_path)


def test_a_target_that_links_both_libraries_is_refused(root, tmp_path):
    package.write_program(tmp_path)
    with (tmp_path / "CMakeLists.txt").open("a") as project:
        project.write("target_link_libraries(line PRIVATE Tessera::shared)\n")
    done = subprocess.run(["cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={root}"],
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "TESSERA_IS_LINKED_STATIC_OR_SHARED_NOT_BOTH" in done.stderr and '"Tessera::shared"' in done.stderr and '"line"' in done.stderr, done.stderr


def test_a_program_that_loads_both_libraries_is_refused(root, library, tmp_path):
    package.write_twice(tmp_path, "Tessera::shared")
    package.run("cmake", "-G", "Ninja", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={root}", cwd=tmp_path)
    package.run("cmake", "--build", "build", cwd=tmp_path)
    package.check_refused(tmp_path / "build" / "twice", library)


def test_a_folder_with_a_program_and_the_library_may_move(root, library, tmp_path):
    package.write_program(tmp_path)
    folder, moved = tmp_path / "folder", tmp_path / "moved"
    shutil.copytree(root, folder, symlinks=True, ignore=shutil.ignore_patterns("*.a", "python3", "share"))
    flags = package.run("pkg-config", "--cflags", "--libs", "tessera", cwd=tmp_path, PKG_CONFIG_PATH=folder / "lib" / "pkgconfig").split()
    package.run("c++", "-std=c++20", "-O1", "line.cc", *flags, "-Wl,-rpath,$ORIGIN/../lib", "-o", folder / "bin" / "line", cwd=tmp_path)
    folder.rename(moved)
    found = package.loaded(moved / "bin" / "line")
    assert Path(found[library.name]).samefile(moved / "lib" / library.name)
    assert found["libdnnl.so.3"].startswith(f"{tmp_path}/moved/") or not (root / "lib" / "tessera" / "onednn").exists()
    assert "f(3) = 7.0" in package.run(moved / "bin" / "line", cwd=tmp_path)
