#!/usr/bin/env python3
"""Makes .venv-operator, the virtual environment in which deploy/operator runs and is tested.

Prints the path of its Python interpreter. Quick where it exists.
"""

import sys

import virtual_environment

# What the operator needs, as its pyproject.toml says; and what its tests judge CRDs and manifests by.
PACKAGES = ["kopf==1.45.2", "kubernetes==37.0.2", "aiohttp==3.14.5", "cel-python==0.5.0", "jsonpatch==1.48", "jsonschema==4.26.0", "pyyaml==6.0.4",
            "pytest==9.2.0", "setuptools==84.2.1"]

if __name__ == "__main__":
    sys.exit(virtual_environment.make(".venv-operator", PACKAGES, check="import kopf, kubernetes.client, celpy, jsonpatch, jsonschema, aiohttp"))
