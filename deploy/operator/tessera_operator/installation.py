"""What the operator is installed with in a cluster: its CRDs, the Kustomize base, the Helm chart, and what its image is built of. In the sources that
lies beside this package; a wheel and a package of Debian bring it along."""

import re
import shutil
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# In the sources; in a wheel; below the prefix of `cmake --install`, as /usr, where this package is in lib/python3/dist-packages.
PLACES = (PACKAGE.parent, PACKAGE.parent / "tessera/deploy/operator", PACKAGE.parents[min(3, len(PACKAGE.parents) - 1)] / "share/tessera/deploy/operator")
BASE = "config/kustomization.yaml"
PARTS = ("Containerfile", ".containerignore", "pyproject.toml", "config", "chart")


class NotInstalled(Exception):
    """None of PLACES has it."""


def folder():
    """Where these files are; the chart's CRDs may be a link."""
    for place in PLACES:
        if (place / BASE).is_file():
            return place
    raise NotInstalled(f"the manifests of Tessera's operator are neither in {' nor in '.join(map(str, PLACES))}: they come with Tessera's wheel and with its "
                       "package of Debian, and are deploy/operator of its sources")


def image():
    """The image that the base and the chart name."""
    return re.search(r"image: (\S+)", (folder() / "config/manager/deployment.yaml").read_text())[1]


def base(image_name=None, crds_only=False):
    """The objects of the Kustomize base as YAML, with another image where one is named; or its CRDs alone."""
    # Their order is the base's: a namespace comes before what is in it.
    resources = re.findall(r"^  - (\S+\.yaml)$", (folder() / BASE).read_text(), re.MULTILINE)
    texts = [(folder() / "config" / path).read_text() for path in resources if path.startswith("crd/") or not crds_only]
    whole = "---\n".join(texts)
    return whole if image_name is None else whole.replace(f"image: {image()}\n", f"image: {image_name}\n")


def write(destination):
    """A folder with all of it and this package, as deploy/operator of the sources is: the image is built of it, kubectl and helm are given parts of it.
    Throws FileExistsError where there is something of that name."""
    source, destination = folder(), Path(destination)
    destination.mkdir(parents=True)
    for part in PARTS:
        if (source / part).is_dir():
            shutil.copytree(source / part, destination / part)
        else:
            shutil.copyfile(source / part, destination / part)
    shutil.copytree(PACKAGE, destination / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
