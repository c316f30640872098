"""stub_results.py STUB...: mends stubs that nanobind has written, so that type checkers know what functions return and which names there are.

A function of tensors returns a Tensor, and while construct() is traced a Value, which has the same operators: for a type checker both are
Tensor. What returns anything, as the call of a cell, is Any. A stub that is read a second time stays as it is.
"""
import re
import sys
from pathlib import Path

TENSOR, ARRAY = "tessera._tessera.Tensor", "numpy.typing.NDArray[typing.Any]"
MARK = "# What functions return is said by python/stub_results.py.\n"
# Methods that are functions of Python, which nanobind writes in front of all classes.
ADDED = {"Tensor": ("__getitem__", "__iter__", "__setitem__"), "Value": ("__iter__", "__setitem__"),
         "Parameter": ("__getitem__", "__iter__", "__setitem__")}
SIGNATURES = {"__getitem__": f"(self, key: object) -> {TENSOR}", "__iter__": f"(self) -> typing.Iterator[{TENSOR}]",
              "__setitem__": "(self, key: object, value: object) -> None"}
OF_METHODS = {"numpy": ARRAY, "asnumpy": ARRAY, "__array__": ARRAY, "item": "float", "value": "typing.Any",
              "__dlpack__": "typing.Any"}
OF_FUNCTIONS = {"split": f"tuple[{TENSOR}, ...]", "split_sizes": f"tuple[{TENSOR}, ...]", "top_k": f"tuple[{TENSOR}, {TENSOR}]",
                "clip_by_global_norm": f"tuple[{TENSOR}, ...]", "value_and_grad": "typing.Any", "getitem": TENSOR}
MODULES = "checkpoint|cluster|data|nn|ops"
FUNCTIONS_OF = ("ops.pyi", "nn/__init__.pyi")  # whose functions, outside of classes, are of tensors


def with_results(text, name):
    """The text of the stub of that name, with what its functions return."""
    lines, of_class, missing = [], "", ()
    for line in text.splitlines():
        if line.startswith(("class ", "def ", "@")):
            head = re.match(r"class (\w+)", line)
            of_class = head.group(1) if head else ""
            missing = ADDED.get(of_class, ())
        if of_class in ADDED and line.startswith(("    def ", "    @")):
            lines += [f"    def {method}{SIGNATURES[method]}: ...\n" for method in missing]
            missing = ()
        defined = re.match(r"( *)def (\w+)\(.*\) -> object:", line)
        if defined:
            indent, function = defined.groups()
            if indent:
                result = OF_METHODS.get(function, TENSOR) if of_class in ADDED else "typing.Any"
            else:
                result = OF_FUNCTIONS.get(function, TENSOR if name.endswith(FUNCTIONS_OF) else "typing.Any")
            line = re.sub(r"-> object:", f"-> {result}:", line)
        lines.append(line)
    made = "\n".join(lines) + "\n"
    # A module that says it has any name whatsoever hides misspelt ones.
    made = re.sub(r"^from tessera\._keywords import missing as __getattr__\n", "", made, flags=re.M)
    if name.endswith("_tessera/__init__.pyi"):
        made = made.replace(TENSOR, "Tensor")
        # `from tessera._tessera import *` must not bring modules that stand in front of tessera's own of these names.
        made = re.sub(rf"^    ({MODULES}) as \1", r"    \1 as _\1", made, flags=re.M)
        made = re.sub(r"^ *def .*$", lambda line: re.sub(rf"(?<![\w.])({MODULES})\.(?=[A-Z])", r"_\1.", line.group(0)), made, flags=re.M)
    for module in ("tessera._tessera", "numpy.typing", "typing"):
        is_needed = re.search(rf"(?<![\w.]){re.escape(module)}\.[A-Z]", made)
        if is_needed and not re.search(rf"^import {re.escape(module)}$", made, re.M):
            made = re.sub(r"^(?=import |from )", f"import {module}\n", made, count=1, flags=re.M)
    return made


def main(paths):
    for path in map(Path, paths):
        text = path.read_text(encoding="utf-8")
        if not text.startswith(MARK):
            path.write_text(MARK + with_results(text, path.as_posix()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
