#!/usr/bin/env python3
"""Makes .venv-python, the virtual environment in which the Python package is built and tested.

Prints the path of its Python interpreter. Quick where it exists.
"""

import sys

import virtual_environment

PACKAGES = ["nanobind>=3.0", "scikit-build-core>=1.0", "numpy", "pytest"]

if __name__ == "__main__":
    sys.exit(virtual_environment.make(".venv-python", PACKAGES))
