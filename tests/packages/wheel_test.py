"""A wheel that `scripts/package wheel` makes, in a virtual environment that has nothing else, and four ranks that train with it."""
import os
import re
import sys
import zipfile
from pathlib import Path

import pytest

import package

LARGEST = 40_000_000  # bytes
# What every Linux has that a wheel of this name may be installed on.
OF_THE_SYSTEM = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1", "libstdc++.so.6", "libz.so.1",
                 "ld-linux-x86-64.so.2"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    (made,) = package.make("wheel", tmp_path_factory.mktemp("dist"))
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of an environment's programs."""
    folder = tmp_path_factory.mktemp("environment")
    package.run(os.path.realpath(sys.executable), "-m", "venv", folder, cwd=folder)
    package.run(folder / "bin" / "python", "-m", "pip", "install", "--only-binary", ":all:", wheel, cwd=folder, PIP_DISABLE_PIP_VERSION_CHECK=1)
    return folder / "bin"


def test_its_name_says_which_systems_may_have_it(wheel):
    tag = re.fullmatch(r"tessera-[0-9.]+-cp3\d+-cp3\d+-manylinux_2_(\d+)_x86_64\.whl", wheel.name)
    assert tag and int(tag[1]) <= 35, wheel.name
    assert wheel.stat().st_size <= LARGEST


def test_it_brings_the_libraries_that_a_system_lacks(installed):
    packages = next(installed.parent.glob("lib/python3*/site-packages"))
    files = [path for part in ("tessera", "tessera.libs") for path in (packages / part).rglob("*") if package.is_elf(path)]
    brought = {path.name for path in files}
    assert {"tessera", "libdnnl.so.3"} <= brought
    for path in files:
        package.require_no_place_of_the_build(path)
        names, places = package.needed(path)
        assert names <= brought | OF_THE_SYSTEM, f"{path}: {names - brought - OF_THE_SYSTEM}"
        assert all(place.startswith("$ORIGIN") for text in places for place in text.split(":")), f"{path}: {places}"


def test_each_library_in_it_has_its_license(wheel, installed):
    info = next(installed.parent.glob("lib/python3*/site-packages/tessera-*.dist-info"))
    folder = info / "licenses" / "third_party"
    rows = [line.split() for line in (folder / "LIBRARIES.txt").read_text().split("\n\n")[1].splitlines()[1:]]
    listed = {row[0]: [folder / word for word in row if (folder / word).is_file()] for row in rows}
    with zipfile.ZipFile(wheel) as archive:
        brought = {re.sub(r"-[0-9a-f]{8}(?=\.so)", "", Path(name).name) for name in archive.namelist() if re.search(r"\.so[.0-9]*$", name)}
    brought = {name for name in brought if not name.startswith("_tessera.")}
    assert "libdnnl.so.3" in brought and brought <= set(listed) and {"nanobind", "CLI11"} <= set(listed)
    assert all(files and all(file.stat().st_size > 500 for file in files) for files in listed.values()), listed
    assert "Copyright" in (folder / "oneDNN" / "THIRD-PARTY-PROGRAMS").read_text()
    # libnl's, which Debian's file only names.
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in (folder / "common-licenses" / "LGPL-2.1").read_text()


def test_four_ranks_train(installed, tmp_path):
    package.check_training(installed / "tessera", installed / "python", tmp_path)


def test_a_script_for_the_other_package_runs(installed, tmp_path):
    (tmp_path / "script.py").write_text("import mindspore as ms\nprint(ms.ops.add(ms.Tensor(1.0), ms.Tensor(2.0)))\n")
    compat = package.run(installed / "tessera", "compat-path", cwd=tmp_path).strip()
    assert "3" in package.run(installed / "python", "script.py", cwd=tmp_path, PYTHONPATH=compat)
    assert "--worker_num" in package.run(f"{compat}/bin/msrun", "--help", cwd=tmp_path, PATH=f"{installed}:/usr/bin:/bin")


def test_the_operator_is_in_it_and_its_extra_brings_what_that_needs(wheel, installed, tmp_path):
    package.check_lacks_yaml(installed / "tessera", tmp_path)
    assert "kind: CustomResourceDefinition" in package.run(installed / "tessera", "job", "manifests", cwd=tmp_path)
    package.run(installed / "python", "-m", "pip", "install", "--only-binary", ":all:", f"{wheel}[operator]", cwd=tmp_path, PIP_DISABLE_PIP_VERSION_CHECK=1)
    printed = package.run(installed / "tessera", "job", "render", package.JOB, cwd=tmp_path, PATH="/usr/bin:/bin")  # in which python3 is another one
    assert printed.count("kind: Pod\n") == 3
    assert "Runs the MSJobs and TesseraJobs" in package.run(installed / "tessera-operator", "--help", cwd=tmp_path)
    package.run(installed / "tessera", "job", "manifests", "--to", "operator", cwd=tmp_path)
    assert {path.name for path in (tmp_path / "operator").iterdir()} == {"Containerfile", ".containerignore", "pyproject.toml", "config", "chart", "tessera_operator"}
    assert len(list((tmp_path / "operator/chart/crds").iterdir())) == 2
