"""part_of_a_build_test.py: docs/program.md's program in a project that has Tessera as a part of its build, by add_subdirectory and by FetchContent: it is
configured, every file that it is made of can be made, and its source compiles with the project's own flags. The libraries are not compiled once more."""
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "program.md").read_text(encoding="utf-8")


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class PartOfABuild(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera-part-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.build = self.folder / "build"

    def configure(self, project):
        (self.folder / "CMakeLists.txt").write_text(project, encoding="utf-8")
        (self.folder / "line.cc").write_text(re.findall(r"```cpp\n(.*?)```", PAGE, re.DOTALL)[0], encoding="utf-8")
        run("cmake", "-G", "Ninja", "-S", self.folder, "-B", self.build, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")

    def project_of_the_page(self, mark):
        (found, ) = [block for block in re.findall(r"```cmake\n(.*?)```", PAGE, re.DOTALL) if mark in block]
        return found

    def expect_whole(self):
        """All of the program's parts can be made, of Tessera's own none of tests, benchmarks and examples, and none is installed."""
        steps = run("ninja", "-C", self.build, "-n", "line")
        self.assertIn("libtessera_train.a", steps)
        targets = run("ninja", "-C", self.build, "-t", "targets", "all")
        self.assertIn("bin/tessera: ", targets)  # which launches the program's ranks
        for name in ("base_test", "train_job", "resnet50_cifar10", "transformer_bench", "libtessera_fake_device.a"):
            self.assertNotRegex(targets, rf"\b{re.escape(name)}: ")
        prefix = self.folder / "installed"
        run("cmake", "--install", self.build, "--prefix", prefix)
        self.assertFalse(prefix.exists() and list(prefix.rglob("*.a")))
        commands = {Path(entry["file"]).name: entry["command"] for entry in json.loads((self.build / "compile_commands.json").read_text(encoding="utf-8"))}
        self.assertNotIn("-Werror", commands["line.cc"])

    def test_a_folder_of_the_project(self):
        self.configure(self.project_of_the_page("add_subdirectory").replace("add_subdirectory(tessera)", f"add_subdirectory({ROOT} tessera)"))
        self.expect_whole()
        run("ninja", "-C", self.build, "CMakeFiles/line.dir/line.cc.o")

    def test_fetched_content(self):
        fetched = re.sub(r"GIT_REPOSITORY \S+ GIT_TAG \S+\)", f"SOURCE_DIR {ROOT})", self.project_of_the_page("FetchContent"))
        self.assertIn(str(ROOT), fetched)
        self.configure(fetched)
        self.expect_whole()

    def test_a_library_of_it_is_linked_by_its_own_name(self):
        self.configure(self.project_of_the_page("add_subdirectory").replace("add_subdirectory(tessera)", f"add_subdirectory({ROOT} tessera)").replace(
            "Tessera::tessera", "Tessera::checkpoint"))
        steps = run("ninja", "-C", self.build, "-n", "line")
        self.assertIn("libtessera_checkpoint.a", steps)
        self.assertNotIn("libtessera_train.a", steps)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests" / "house"))
    from claims import main
    main()
