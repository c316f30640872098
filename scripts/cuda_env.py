#!/usr/bin/env python3
"""Makes .venv-cuda, the virtual environment with what Tessera needs of CUDA 13 beside a driver: headers to build with, and the
libraries NVRTC, cuBLASLt, cuDNN and NCCL, which a program finds by TESSERA_CUDA_LIBRARIES.

Prints the path of its Python interpreter. Quick where it exists. A machine with CUDA's toolkit and cuDNN needs none of it.
"""

import sys

import virtual_environment

# Of CUDA 13.0: its drivers load no newer machine code.
PACKAGES = ["nvidia-cuda-runtime==13.0.*", "nvidia-cuda-nvrtc==13.0.*", "nvidia-cublas==13.0.*", "nvidia-cudnn-cu13==9.*",
            "nvidia-nccl-cu13==2.*"]

if __name__ == "__main__":
    sys.exit(virtual_environment.make(".venv-cuda", PACKAGES, options=["--no-deps"], announce="installing CUDA's libraries (1.2 GB to fetch, 2.3 GB on disk)"))
