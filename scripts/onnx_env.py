#!/usr/bin/env python3
"""Makes .venv-onnx, the virtual environment with ONNX and ONNX Runtime, the judge of exported networks.

Prints the path of its Python interpreter. Quick where it exists.
"""

import sys

import virtual_environment

PACKAGES = ["onnx==1.23.2", "onnxruntime==1.32.0"]

if __name__ == "__main__":
    sys.exit(virtual_environment.make(".venv-onnx", PACKAGES, check="import onnx, onnxruntime"))
