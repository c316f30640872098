#!/usr/bin/env python3
"""Makes .venv-plot, the virtual environment with matplotlib in which benchmarks draw.

Prints the path of its Python interpreter. Quick where it exists.
"""

import sys

import virtual_environment

if __name__ == "__main__":
    sys.exit(virtual_environment.make(".venv-plot", ["matplotlib>=3.8"]))
