"""What deploy's Containerfiles say, which no test builds: bases with a tag, files that are there, lines that a shell can read, packages that Debian has,
a user who is not root, the program that starts."""

import json
import re
import shutil
import subprocess
import tomllib
import unittest
from pathlib import Path

from claims import main

ROOT = Path(__file__).resolve().parent.parent.parent
TRAINING, OPERATOR = ROOT / "deploy/Containerfile", ROOT / "deploy/operator/Containerfile"
KNOWN = {"FROM", "ARG", "LABEL", "RUN", "COPY", "WORKDIR", "ENV", "USER", "ENTRYPOINT"}
# Whether there is somebody who knows which packages Debian has.
KNOWS_PACKAGES = shutil.which("apt-cache") is not None and subprocess.run(["apt-cache", "show", "libc6"], capture_output=True).returncode == 0


def instructions(text):
    """(word, the rest) of each instruction, its lines joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found = []
    for line in re.sub(r"\\\n\s*", " ", lines).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            found.append((word, rest.strip()))
    return found


def shell_of(run):
    """The words that the shell of a RUN reads: what stands behind its own options, as --mount."""
    return re.sub(r"^(?:--\w+=\S+\s+)+", "", run)


def fault_of_shell(run):
    """What the shell of the images says of a line that it cannot read; "" of any other. The line is not run."""
    return subprocess.run(["sh", "-n"], input=shell_of(run), capture_output=True, text=True).stderr.strip()


def unknown_packages(names):
    """Those that Debian has not, by the lists of this machine; none where it has no lists."""
    return [name for name in names if KNOWS_PACKAGES and subprocess.run(["apt-cache", "show", name], capture_output=True).returncode != 0]


def installed_packages(run):
    """The names of packages that a RUN installs; what the shell puts in their place is none."""
    words = [word for part in re.findall(r"apt-get install ([^;&|]*)", run) for word in part.split()]
    return [word for word in words if not word.startswith("-") and not re.search(r"[$\"'/]", word)]


def faults(text, context):
    """What is wrong with a Containerfile whose build sees the folder `context`; without one it copies nothing."""
    found, given = [], instructions(text)
    of = {word: [rest for other, rest in given if other == word] for word in KNOWN}
    found += [f"{word} is no instruction that these files need" for word, _ in given if word not in KNOWN]
    if not given or given[0][0] != "FROM":
        found.append("the first instruction is not FROM")
    found += [f"FROM {base}: name a tag that stays" for base in of["FROM"] if ":" not in base or base.endswith(":latest")]
    for rest in of["COPY"]:
        for source in rest.split()[:-1]:
            if context is None or not (context / source).exists():
                found.append(f"COPY {source}: the build's folder has no such file")
    if len(of["USER"]) != 1 or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", of["USER"][0]):
        found.append("one USER with numbers of user and group that are not 0: a cluster that refuses root reads no names")
    elif "RUN" in [word for word, _ in given[[word for word, _ in given].index("USER"):]]:
        found.append("RUN behind USER: what it installs belongs to root")
    try:
        words = json.loads(of["ENTRYPOINT"][0]) if len(of["ENTRYPOINT"]) == 1 else None
    except json.JSONDecodeError:
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        found.append("one ENTRYPOINT as a list in JSON: a shell in between would not pass signals on")
    for rest in of["RUN"]:
        if said := fault_of_shell(rest):
            found.append(f"RUN: no shell can read it: {said}")
        found += [f"apt-get install {name}: Debian has no such package" for name in unknown_packages(installed_packages(rest))]
        if "apt-get install" in rest and not all(part in rest for part in ("apt-get update", "--yes", "--no-install-recommends", "rm -rf /var/lib/apt/lists/*")):
            found.append("apt-get install without update before it, --yes, --no-install-recommends and the removal of its lists, all in one RUN")
        if "pip install" in rest and "--no-cache-dir" not in rest:
            found.append("pip install without --no-cache-dir")
    declared = {rest.partition("=")[0] for rest in of["ARG"]}
    for rest in of["LABEL"]:
        found += [f"LABEL: no ARG {name}" for name in re.findall(r"\$\{(\w+)", rest) if name not in declared]
    return found


class Containerfiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.version = re.search(r"project\(tessera VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        cls.text = TRAINING.read_text()

    def test_all_are_known_here(self):
        self.assertEqual(set((ROOT / "deploy").rglob("Containerfile")), {TRAINING, OPERATOR})

    def test_they_have_no_faults(self):
        self.assertEqual(faults(self.text, None), [])
        self.assertEqual(faults(OPERATOR.read_text(), OPERATOR.parent), [])

    def test_the_one_for_trainings_says_version_and_commit(self):
        given = instructions(self.text)
        self.assertIn(("FROM", "debian:12-slim"), given)
        self.assertIn(("ARG", f"VERSION={self.version}"), given)
        labels = dict(re.findall(r'([\w.]+)="([^"]*)"', next(rest for word, rest in given if word == "LABEL")))
        self.assertEqual(labels["org.opencontainers.image.version"], "${VERSION}")
        self.assertEqual(labels["org.opencontainers.image.revision"], "${COMMIT}")
        self.assertEqual(labels["org.opencontainers.image.description"], re.search(r'DESCRIPTION "([^"]+)"', (ROOT / "CMakeLists.txt").read_text())[1])
        self.assertIn(("ENTRYPOINT", '["tessera"]'), given)

    def test_the_page_and_the_file_name_one_build(self):
        page = (ROOT / "docs/packages.md").read_text()
        build = re.search(r"podman build .*", self.text)[0]
        self.assertIn(build, page)
        self.assertEqual(set(re.findall(r"tessera:([\d.]+\d)", page + self.text)), {self.version})
        self.assertTrue((ROOT / re.search(r"-f (\S+)", build)[1]).exists())

    def test_it_installs_a_package_that_is_made_and_refuses_a_build_without_one(self):
        self.assertIn("set(CPACK_DEBIAN_TESSERA_PACKAGE_NAME tessera)", (ROOT / "cmake/TesseraPackage.cmake").read_text())
        (run,) = [rest for word, rest in instructions(self.text) if word == "RUN"]
        self.assertIn("tessera_${VERSION}_$(dpkg --print-architecture).deb", run)
        self.assertLess(run.index("no commit"), run.index("apt-get"))
        self.assertLess(run.index("no $package"), run.index("apt-get"))

    def test_the_packages_that_ours_need_are_there(self):
        said = (ROOT / "cmake/TesseraPackage.cmake").read_text()
        # That of Tessera itself, of which the version is another one's variable, is no word of Debian.
        lists = re.findall(r'PACKAGE_DEPENDS\s+"([^"]+)"', said) + re.findall(r"PACKAGE_RECOMMENDS ([\w.+-]+)", said)
        names = {name for each in lists for name in re.findall(r"(?:^|, )([a-z][a-z0-9.+-]+)", each)}
        self.assertTrue({"python3", "python3-numpy", "python3-yaml", "libgloo-dev", "pkg-config"} <= names, names)
        self.assertEqual(unknown_packages(sorted(names)), [])

    def test_the_programs_that_start_are_installed(self):
        self.assertIn("install(TARGETS tessera RUNTIME DESTINATION bin COMPONENT runtime)", (ROOT / "cmake/TesseraInstall.cmake").read_text())
        project = tomllib.loads((OPERATOR.parent / "pyproject.toml").read_text())
        given = instructions(OPERATOR.read_text())
        (words,) = [json.loads(rest) for word, rest in given if word == "ENTRYPOINT"]
        self.assertIn(words[0], project["project"]["scripts"])
        # All that pip reads is copied, and the base has a Python that the package takes.
        copied = {source.rstrip("/") for word, rest in given if word == "COPY" for source in rest.split()[:-1]}
        read = {"pyproject.toml", *project["tool"]["setuptools"]["packages"], *filter(None, [project["project"].get("readme")])}
        self.assertEqual(read - copied, set())
        (base,) = [rest for word, rest in given if word == "FROM"]
        least = re.fullmatch(r">=(\d+)\.(\d+)", project["project"]["requires-python"])
        has = re.fullmatch(r"python:(\d+)\.(\d+)-slim", base)
        self.assertGreaterEqual([int(part) for part in has.groups()], [int(part) for part in least.groups()])

    def test_the_operators_image_has_one_name(self):
        version = tomllib.loads((OPERATOR.parent / "pyproject.toml").read_text())["project"]["version"]
        build = f"podman build -t tessera-operator:{version} deploy/operator"
        self.assertIn(build, OPERATOR.read_text())
        self.assertIn(build, (ROOT / "docs/kubernetes.md").read_text())
        self.assertIn(f"image: tessera-operator:{version}\n", (OPERATOR.parent / "config/manager/deployment.yaml").read_text())
        self.assertIn(f"\nappVersion: {version}\n", (OPERATOR.parent / "chart/Chart.yaml").read_text())
        self.assertIn("\n  repository: tessera-operator\n", (OPERATOR.parent / "chart/values.yaml").read_text())

    def test_arguments_of_the_build_are_declared(self):
        declared = {rest.partition("=")[0] for word, rest in instructions(self.text) if word == "ARG"}
        given = re.findall(r"--build-arg (\w+)", self.text + (ROOT / "docs/packages.md").read_text())
        self.assertEqual(set(given) - declared, set())

    @unittest.skipUnless(KNOWS_PACKAGES, "this machine has no lists of Debian's packages")
    def test_a_package_that_debian_has_not_is_noticed(self):
        text = self.text.replace('--no-install-recommends "$package"', '--no-install-recommends "$package" python3-numpi python3-numpy')
        self.assertEqual(faults(text, None), ["apt-get install python3-numpi: Debian has no such package"])

    def test_a_fault_is_noticed(self):
        operator = OPERATOR.read_text()
        for text, old, new, said in (
                (self.text, "debian:12-slim", "debian", "a tag"), (self.text, "debian:12-slim", "debian:latest", "a tag"),
                (self.text, "USER 65532:65532", "USER root", "not 0"), (self.text, "USER 65532:65532\n", "", "not 0"),
                (self.text, 'ENTRYPOINT ["tessera"]', "ENTRYPOINT tessera", "JSON"), (self.text, "ARG COMMIT\n", "", "no ARG COMMIT"),
                (self.text, "    rm -rf /var/lib/apt/lists/*; \\\n", "", "lists"), (self.text, "--no-install-recommends ", "", "recommends"),
                (self.text, "WORKDIR", "ADD https://example.org /x\nWORKDIR", "ADD"), (self.text, "WORKDIR", "RUN true\nWORKDIR", "behind USER"),
                (self.text, "exit 1; }; \\\n    package", "exit 1; ; \\\n    package", "no shell"), (operator, " && rm -rf", " && (rm -rf", "no shell"),
                (operator, "COPY pyproject.toml", "COPY setup.py", "setup.py"), (operator, " --no-cache-dir", "", "--no-cache-dir")):
            self.assertIn(old, text)
            self.assertTrue(any(said in fault for fault in faults(text.replace(old, new), OPERATOR.parent)), (old, new))


if __name__ == "__main__":
    main()
