"""Claims about what `cmake --install` makes of the operator, with no source of Tessera in reach and PyYAML alone beside Python: components of a build folder,
of which nothing need be compiled but the command."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from harness import OPERATOR, ROOT, manifests
from job_command_test import JOB
from manifests_test import base

BUILD = Path(os.environ.get("TESSERA_BIN", ROOT / "build/release/bin")).parent
COMMAND = BUILD / "bin/tessera"
MISSING = 'raise ModuleNotFoundError("No module named " + repr(__name__), name=__name__)\n'

if not (BUILD / "cmake_install.cmake").exists():
    pytest.skip(f"{BUILD} is no build folder", allow_module_level=True)
needs_command = pytest.mark.skipif(not COMMAND.exists(), reason=f"{COMMAND} is not built")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    # The command is copied: its component has libraries, too, which a build need not have made.
    done = subprocess.run(["cmake", "--install", BUILD, "--prefix", folder, "--component", "operator"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if COMMAND.exists():
        (folder / "bin").mkdir()
        shutil.copy(COMMAND, folder / "bin")
    return folder


@pytest.fixture
def lack(tmp_path):
    """A function that runs a command where Python lacks these modules; its standard input is a manifest."""
    def run(*command, modules=("kopf", "kubernetes"), path=(), code=0, **variables):
        lacking = tmp_path / "lacking"
        lacking.mkdir(exist_ok=True)
        for module in ("kopf", "kubernetes", "yaml"):
            (lacking / f"{module}.py").unlink(missing_ok=True)
        for module in modules:
            (lacking / f"{module}.py").write_text(MISSING)
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "TMPDIR": str(tmp_path), "PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1",
                       "PYTHONPATH": ":".join(map(str, (lacking, *path)))} | variables
        done = subprocess.run([str(word) for word in command], cwd=tmp_path, env=environment, input=JOB, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        return done
    return run


def modules_of(prefix):
    return prefix / "lib/python3/dist-packages"


def test_all_of_it_is_there(prefix):
    """But tests, and what writes the CRDs."""
    sources = {path.relative_to(OPERATOR) for top in ("tessera_operator", "config", "chart") for path in (OPERATOR / top).rglob("*")
               if path.is_file() and path.suffix != ".pyc"}
    sources |= {Path("chart/crds") / path.name for path in (OPERATOR / "config/crd").iterdir()} | {Path("Containerfile"), Path(".containerignore"), Path("pyproject.toml")}
    share = prefix / "share/tessera/deploy/operator"
    there = {path.relative_to(share) for path in share.rglob("*") if path.is_file()}
    there |= {path.relative_to(modules_of(prefix)) for path in modules_of(prefix).rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert there == sources
    assert not [path for path in share.rglob("*") if path.is_symlink()]


@needs_command
def test_the_command_finds_the_package_that_is_installed_with_it(prefix, lack):
    command = prefix / "bin/tessera"
    done = lack(command, "job", "render", "-", "--pod", "small-worker-1")
    assert yaml.safe_load(done.stdout)["metadata"]["name"] == "small-worker-1"
    done = lack(command, "job", "run", "--help", modules=("kopf", "kubernetes", "yaml"))
    assert "tessera job run job.yaml --local" in done.stdout


@needs_command
def test_a_module_in_the_users_folder_is_not_taken_for_one_of_pythons(prefix, lack, tmp_path):
    (tmp_path / "copy.py").write_text("raise SystemExit('the module of the folder')\n")
    assert "small-worker-1" in lack(prefix / "bin/tessera", "job", "render", "-").stdout


@needs_command
def test_a_package_of_the_interpreter_goes_before_it(prefix, lack, tmp_path):
    own = tmp_path / "own/tessera_operator"
    own.mkdir(parents=True)
    (own / "__init__.py").touch()
    (own / "job_command.py").write_text("def main():\n    print('its own')\n")
    assert lack(prefix / "bin/tessera", "job", "render", "-", path=[own.parent]).stdout == "its own\n"


@needs_command
def test_a_command_without_the_package_says_where_that_comes_from(prefix, lack, tmp_path):
    (tmp_path / "bin").mkdir()
    command = Path(shutil.copy(prefix / "bin/tessera", tmp_path / "bin"))
    said = lack(command, "job", "render", "-", code=1).stderr
    assert f"neither has {sys.executable} the package tessera_operator" in said and f"in {command.parent}. It comes with Tessera's wheel" in said
    for words in (["--help"], ["render", "-h"], ["run", "--help"]):
        done = lack(command, "job", *words)
        assert done.stderr == "" and "usage: tessera job render" in done.stdout and "pip install ./deploy/operator" in done.stdout


def test_a_manifest_is_rendered_and_run_with_pyyaml_alone(prefix, lack, tmp_path):
    words = (sys.executable, "-m", "tessera_operator", "job")
    assert lack(*words, "render", "-", path=[modules_of(prefix)]).stdout.count("kind: Pod\n") == 3
    body = yaml.safe_load(JOB)
    body["spec"]["msReplicaSpecs"]["Worker"]["replicas"] = 1
    body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", "echo here"]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(body))
    assert "[small-worker-0] here\n" in lack(*words, "run", "job.yaml", "--local", path=[modules_of(prefix)]).stdout


def test_what_is_missing_is_said_with_the_command_that_installs_it(prefix, lack):
    said = lack(sys.executable, "-m", "tessera_operator", "job", "render", "-", modules=("yaml", ), path=[modules_of(prefix)], code=1).stderr
    assert said == (f"error: tessera job: {sys.executable} has no package yaml, by which manifests are read. Install it: {sys.executable} -m pip install pyyaml; "
                    "or name by PYTHON an interpreter that has it\n")
    said = lack(sys.executable, "-m", "tessera_operator", path=[modules_of(prefix)], code=1).stderr
    assert said == (f"error: tessera-operator: {sys.executable} has no package kopf. Install what the operator needs: {sys.executable} -m pip install kopf==1.45.2 "
                    "kubernetes==37.0.2 pyyaml==6.0.4\n")


def test_the_manifests_are_those_of_the_base(prefix, lack, tmp_path):
    """For which no package is needed."""
    def run(*words, code=0):
        return lack(sys.executable, "-m", "tessera_operator", "job", "manifests", *words, modules=("kopf", "kubernetes", "yaml"), path=[modules_of(prefix)], code=code)
    assert list(yaml.load_all(run().stdout, Loader=yaml.CSafeLoader)) == base()
    crds = list(yaml.load_all(run("--crds").stdout, Loader=yaml.CSafeLoader))
    assert crds == [item for item in base() if item["kind"] == "CustomResourceDefinition"]
    named = list(yaml.load_all(run("--image", "registry.example/operator:7").stdout, Loader=yaml.CSafeLoader))
    (deployment, ) = [item for item in named if item["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/operator:7"
    assert [item for item in named if item != deployment] == [item for item in base() if item["kind"] != "Deployment"]
    assert "podman build -t tessera-operator:0.1.0 operator\n" in run("--to", "operator").stdout
    assert "--to operator: there is something of that name" in run("--to", "operator", code=2).stderr
    assert "--image and --crds are of what is printed" in run("--to", "other", "--crds", code=2).stderr
    assert "--crds prints nothing that names an image" in run("--crds", "--image", "registry.example/operator:7", code=2).stderr
    for name in ("", "two words"):
        assert "an image's name has at least one character and no spaces" in run("--image", name, code=2).stderr
    made = tmp_path / "operator"
    assert manifests(made / "config/crd/tesserajobs.tessera.dev.yaml") == manifests(made / "chart/crds/tesserajobs.tessera.dev.yaml")
    for part in ("Containerfile", ".containerignore", "pyproject.toml", "tessera_operator/pod_template.json", "chart/values.yaml", "config/samples/tesserajob.yaml"):
        assert (made / part).read_bytes() == (OPERATOR / part).read_bytes()
