"""compute.py OUT [PATTERN]: computes the cases with the package `mindspore` on the path, and writes OUT.npz and OUT.json."""
import fnmatch
import json
import sys

import mindspore as ms
import numpy as np
from mindspore import nn, ops

import cases
import data_cases  # noqa: F401: adds to the cases, as do
import derived  # noqa: F401
import function_cases  # noqa: F401
import layer_cases  # noqa: F401
import lookup_cases  # noqa: F401
import naming_cases  # noqa: F401
import refusal_cases  # noqa: F401


def array_of(item):
    """(array, dtype's name) of a tensor, number or array."""
    if isinstance(item, (ms.Tensor, ms.Parameter)):
        dtype = str(item.dtype).rpartition(".")[2].lower().rstrip("_")
        return (item.astype(ms.float32) if dtype == "bfloat16" else item).asnumpy(), dtype
    array = np.asarray(item)
    return array, array.dtype.name if array.dtype.kind != "U" else "str"


def first_line(error):
    """Of what it says, what is not a rule."""
    return next((line for line in str(error).splitlines() if line.strip("- ")), "")


def is_api(module, name):
    """Whether it is a function or class of the module's API."""
    return not name.startswith("_") and callable(getattr(module, name))


def main():
    out, pattern = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "*"
    arrays, facts = {}, {}
    for case in cases.CASES.values():
        if not fnmatch.fnmatchcase(case.name, pattern):
            continue
        for dtype in case.dtypes:
            key = f"{case.name} [{dtype}]"
            try:
                found = {what: array_of(item) for what, item in case.compute(dtype).items()}
            except Exception as error:  # noqa: BLE001: whatever a package raises is its answer
                facts[key] = {"error": f"{type(error).__name__}: {first_line(error)}"}
                continue
            facts[key] = {"dtypes": {what: name for what, (_, name) in found.items()}}
            arrays |= {f"{key} {what}": array for what, (array, _) in found.items()}
    names = {word: sorted(name for name in dir(module) if is_api(module, name)) for word, module in (("ops", ops), ("nn", nn))}
    np.savez(out + ".npz", **{str(i): array for i, array in enumerate(arrays.values())})
    with open(out + ".json", "w", encoding="utf-8") as file:
        json.dump({"cases": facts, "arrays": list(arrays), "names": names}, file)


if __name__ == "__main__":
    # MindSpore's own package compiles every graph for seconds unless it runs operators one by one.
    # They run in threads of their own, and what fails there is to be said of the case that it belongs to.
    ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU", pynative_synchronize=True)
    main()
