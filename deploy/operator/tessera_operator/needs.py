"""Which packages of others the operator's modules import, and what is said where one is missing. Looking at a manifest and running it on this machine
need PyYAML alone, of whatever version a system has."""

import shutil
import sys
import sysconfig
from pathlib import Path

# module -> what pip installs. The versions are those that the tests run with.
PACKAGES = {"kopf": "kopf==1.45.2", "kubernetes": "kubernetes==37.0.2", "yaml": "pyyaml==6.0.4"}


def _is_the_systems():
    """Whether pip refuses to install into this interpreter, as into that of a Debian."""
    return sys.prefix == sys.base_prefix and Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists()


def _by_pip(packages):
    """The command that installs them, and the interpreter that has them then."""
    if _is_the_systems():
        return f"{sys.executable} -m venv --system-site-packages venv && venv/bin/python -m pip install {packages}", "venv/bin/python"
    return f"{sys.executable} -m pip install {packages}", sys.executable


def words_of_operator(module):
    """What tessera-operator says of a module that is missing."""
    command, python = _by_pip(" ".join(PACKAGES.values()))
    return (f"tessera-operator: {sys.executable} has no package {module}. Install what the operator needs: {command}"
            + (f"; then start {python} -m tessera_operator" if python != sys.executable else ""))


def words_of_job():
    """What `tessera job` says where there is no PyYAML."""
    said = f"tessera job: {sys.executable} has no package yaml, by which manifests are read. Install it: "
    if _is_the_systems() and shutil.which("apt-get"):
        return f"{said}apt-get install python3-yaml"
    command, python = _by_pip("pyyaml")
    return f"{said}{command}; or name by PYTHON an interpreter that has it" + (f", as PYTHON={python} then" if python != sys.executable else "")
