"""cmake/libtessera.map shows what is of namespace tessera and hides all else: a small library linked by it, and a program that uses that."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "house"), str(ROOT / "tests" / "packages")]

from claims import main  # noqa: E402
from package import defined_names, is_ours, run  # noqa: E402

HEADER = """
#include <stdexcept>
#include <string>
#include <vector>
namespace tessera {
struct Fault : std::runtime_error { using std::runtime_error::runtime_error; ~Fault() override; };
struct Cell { virtual ~Cell(); virtual int size() const & { return 1; } };
struct Named { virtual ~Named(); virtual int name() const = 0; };
struct Both : Cell, Named { ~Both() override; int name() const override; int taken() &&; };
template <class T> T twice(T value);
inline int& counter() { static int count = 0; return count; }
int count_here();
extern thread_local std::string note;
[[noreturn]] void fail();
}
"""
LIBRARY = """
#include "small.h"
namespace json { template <class T> struct Value { static T shared; virtual ~Value() {} virtual T get() { return shared++; } };
template <class T> T Value<T>::shared = T(); }
extern "C" void foreign_thread_function() {}
namespace tesserae { int others() { return 1; } }
namespace tessera {
Fault::~Fault() = default;
Cell::~Cell() = default;
Named::~Named() = default;
Both::~Both() = default;
int Both::name() const { return json::Value<int>().get() + tesserae::others(); }
int Both::taken() && { return 2; }
template <class T> T twice(T value) { return value + value; }
template int twice<int>(int);
std::vector<Both> several() { return std::vector<Both>(3); }
int count_here() { return ++counter(); }
thread_local std::string note = "here";
void fail() { throw Fault("said"); }
}
"""
PROGRAM = """
#include "small.h"
int main() {
  using namespace tessera;
  Both both;
  const Named& named = both;
  counter() = 5;  // one variable for the program and the library
  if (named.name() != 1 || both.size() != 1 || Both().taken() != 2 || twice(4) != 8 || count_here() != 6 || counter() != 6 || note != "here") return 1;
  try { fail(); } catch (const Fault& fault) { return fault.what() == std::string("said") ? 0 : 2; }
}
"""


class LibraryNames(unittest.TestCase):
    def test_names_of_tessera_are_shown_and_no_others(self):
        with tempfile.TemporaryDirectory(prefix="tessera-names-") as name:
            folder = Path(name)
            for file, text in (("small.h", HEADER), ("small.cc", LIBRARY), ("program.cc", PROGRAM)):
                (folder / file).write_text(text, encoding="utf-8")
            compiler = ("c++", "-std=c++20", "-fPIC")
            run(*compiler, "-shared", "small.cc", "-o", "libopen.so", cwd=folder)
            run(*compiler, "-shared", "small.cc", f"-Wl,--version-script={ROOT}/cmake/libtessera.map", "-Wl,-z,defs", "-o", "libsmall.so", cwd=folder)
            everything, shown = defined_names(folder / "libopen.so"), defined_names(folder / "libsmall.so")
            ours = {name for name in everything if is_ours(name)}
            self.assertEqual(shown, ours)
            hidden = everything - shown
            for other in ("foreign_thread_function", "_ZN8tesserae6othersEv", "_ZN4json5ValueIiE6sharedE", "_ZTVN4json5ValueIiEE"):
                self.assertIn(other, hidden)
            for own in ("_ZN7tessera5twiceIiEET_S1_", "_ZNO7tessera4Both5takenEv", "_ZNKR7tessera4Cell4sizeEv", "_ZThn8_NK7tessera4Both4nameEv",
                        "_ZZN7tessera7counterEvE5count", "_ZTIN7tessera5FaultE", "_ZTVN7tessera4BothE", "_ZTHN7tessera4noteB5cxx11E"):
                self.assertIn(own, shown)
            run(*compiler, "program.cc", "-L.", "-lsmall", "-Wl,-rpath,$ORIGIN", "-o", "program", cwd=folder)
            self.assertEqual(subprocess.run([folder / "program"], check=False).returncode, 0)


if __name__ == "__main__":
    main()
