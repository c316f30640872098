#!/usr/bin/env python3
"""Makes .venv-mypy, the virtual environment with mypy, the judge of the Python packages' stubs.

Prints the path of its Python interpreter. Quick where it exists.
"""

import sys

import virtual_environment

# NumPy for its types.
PACKAGES = ["mypy==1.18.2", "numpy==1.26.4"]

if __name__ == "__main__":
    sys.exit(virtual_environment.make(".venv-mypy", PACKAGES, check="import mypy.api, numpy"))
