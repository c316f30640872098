"""checkpoint.py write FILE | read FILE: writes tensors into a checkpoint, or reads those that the other package wrote into one."""
import sys

import mindspore as ms
import numpy as np

TENSORS = {
    "layer.weight": np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32),
    "layer.bias": np.arange(4, dtype=np.float32),
    "half": np.array([[1.5, -2.0, 65504.0]], np.float16),
    "double": np.array([1 / 3, -np.inf, 5e-324]),
    "one": np.array([7.25], np.float32),
    "scalar": np.array(0.125, np.float32),
    "int32": np.array([-2**31, 2**31 - 1], np.int32),
    "int64": np.array([[-2**63], [2**63 - 1]]),
    "uint8": np.arange(256, dtype=np.uint8),
    "bool": np.array([True, False, True]),
    "large": np.random.default_rng(1).normal(size=(300, 500)).astype(np.float32),
}
APPENDED = {"epoch_num": 12, "step_num": 3456, "rate": 0.25, "is_last": True}


def check(name, found, expected):
    """1 if it is as it was written, else 0 and a line that says how it is not."""
    if found.dtype == expected.dtype and found.shape == expected.shape and np.array_equal(found, expected):
        return 1
    print(f"FAILED: {name}: {found.dtype}{list(found.shape)}, written {expected.dtype}{list(expected.shape)}")
    return 0


def read(path):
    """Whether all that was written is there."""
    loaded = ms.load_checkpoint(path)
    good = sum(check(name, loaded[name].asnumpy(), array) for name, array in TENSORS.items())
    for name, value in APPENDED.items():
        found = float(loaded[name].asnumpy().reshape(()))
        good += found == value
        if found != value:
            print(f"FAILED: {name}: {found}, written {value}")
    print(f"{good} of {len(TENSORS) + len(APPENDED)} as they were written")
    return good == len(TENSORS) + len(APPENDED)


def main():
    command, path = sys.argv[1:]
    if command == "write":
        ms.save_checkpoint([{"name": name, "data": ms.Tensor(array)} for name, array in TENSORS.items()], path, append_dict=APPENDED)
        return 0
    return 0 if read(path) else 1


if __name__ == "__main__":
    sys.exit(main())
