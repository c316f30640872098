#!/usr/bin/env python3
"""Makes .venv-perfetto, the virtual environment with Perfetto's Python package, the judge of exported timelines.

Prints the path of its Python interpreter. Quick where it exists.
"""

import sys

import virtual_environment

PACKAGES = ["perfetto==0.59.1", "protobuf==7.36.2"]

if __name__ == "__main__":
    sys.exit(virtual_environment.make(".venv-perfetto", PACKAGES, check="from perfetto.protos.perfetto.trace import perfetto_trace_pb2"))
