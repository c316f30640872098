"""What deploy's Containerfiles say, which no test builds: bases with a tag, files that are there, a user who is not root, the program that starts."""

import json
import re
import unittest
from pathlib import Path

from claims import main

ROOT = Path(__file__).resolve().parent.parent.parent
TRAINING, OPERATOR = ROOT / "deploy/Containerfile", ROOT / "deploy/operator/Containerfile"
KNOWN = {"FROM", "ARG", "LABEL", "RUN", "COPY", "WORKDIR", "ENV", "USER", "ENTRYPOINT"}


def instructions(text):
    """(word, the rest) of each instruction, its lines joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found = []
    for line in re.sub(r"\\\n\s*", " ", lines).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            found.append((word, rest.strip()))
    return found


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

    def test_a_fault_is_noticed(self):
        operator = OPERATOR.read_text()
        for text, old, new, said in (
                (self.text, "debian:12-slim", "debian", "a tag"), (self.text, "debian:12-slim", "debian:latest", "a tag"),
                (self.text, "USER 65532:65532", "USER root", "not 0"), (self.text, "USER 65532:65532\n", "", "not 0"),
                (self.text, 'ENTRYPOINT ["tessera"]', "ENTRYPOINT tessera", "JSON"), (self.text, "ARG COMMIT\n", "", "no ARG COMMIT"),
                (self.text, "    rm -rf /var/lib/apt/lists/*; \\\n", "", "lists"), (self.text, "--no-install-recommends ", "", "recommends"),
                (self.text, "WORKDIR", "ADD https://example.org /x\nWORKDIR", "ADD"), (self.text, "WORKDIR", "RUN true\nWORKDIR", "behind USER"),
                (operator, "COPY pyproject.toml", "COPY setup.py", "setup.py"), (operator, " --no-cache-dir", "", "--no-cache-dir")):
            self.assertIn(old, text)
            self.assertTrue(any(said in fault for fault in faults(text.replace(old, new), OPERATOR.parent)), (old, new))


if __name__ == "__main__":
    main()
