#!/usr/bin/env python3
"""Makes .venv-tensorboard, the virtual environment with TensorBoard, the judge of event files.

Prints the path of its Python interpreter. Quick where it exists.
"""

import sys

import virtual_environment

PACKAGES = ["tensorboard==2.20.0", "setuptools==80.9.0"]

if __name__ == "__main__":
    sys.exit(virtual_environment.make(".venv-tensorboard", PACKAGES,
                                      check="from tensorboard.backend.event_processing import event_accumulator"))
