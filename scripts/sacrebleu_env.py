#!/usr/bin/env python3
"""Makes .venv-sacrebleu, the virtual environment with sacrebleu, the judge of BLEU scores.

Prints the path of its Python interpreter. Quick where it exists.
"""

import sys

import virtual_environment

PACKAGES = ["sacrebleu==2.6.0"]

if __name__ == "__main__":
    sys.exit(virtual_environment.make(".venv-sacrebleu", PACKAGES, check="import sacrebleu"))
