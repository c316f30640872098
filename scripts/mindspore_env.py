#!/usr/bin/env python3
"""Makes .venv-mindspore, the virtual environment with MindSpore's own package, the judge of the suite `reference`.

Prints the path of its Python interpreter. Quick where it exists. It wants 0.8 GB to be fetched and 3 GB on disk.
"""

import sys

import virtual_environment

# MindSpore, and of what it requires NumPy in the version that it still understands.
PACKAGES = ["mindspore==2.10.0", "numpy<2"]
CHECK = "import mindspore, numpy; x = mindspore.Tensor(numpy.ones(2, numpy.float32)); assert (x + x).asnumpy()[1] == 2"

if __name__ == "__main__":
    sys.exit(virtual_environment.make(".venv-mindspore", PACKAGES, options=["--no-cache-dir"], check=CHECK,
                                      announce="installing MindSpore (0.8 GB to fetch)"))
