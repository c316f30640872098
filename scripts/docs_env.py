#!/usr/bin/env python3
"""Makes .venv-docs, the virtual environment with Sphinx in which scripts/docs builds the documentation as a site.

Prints the path of its Python interpreter. Quick where it exists.
"""

import sys

import virtual_environment

PACKAGES = ["sphinx==9.0.4", "myst-parser==5.2.0", "furo==2025.12.19"]

if __name__ == "__main__":
    sys.exit(virtual_environment.make(".venv-docs", PACKAGES, check="import furo, myst_parser, sphinx"))
