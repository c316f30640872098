"""Microseconds per operator of 1,000 tiny matrix products in a row, eager."""

import argparse
import time

import torch
from rounds import serve_rounds

OPERATORS = 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warmup_steps", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    weight = torch.eye(4)
    x = torch.arange(16.0).reshape(4, 4)

    def step():
        start = time.perf_counter()
        y = x
        for _ in range(OPERATORS):
            y = y @ weight
        seconds = time.perf_counter() - start
        if not torch.equal(y, x):
            raise SystemExit("torch_step_overhead: wrong result")
        return seconds * 1e6 / OPERATORS

    with torch.no_grad():
        for _ in range(arguments.warmup_steps):
            step()
        serve_rounds("us", f"torch {torch.__version__}", lambda: min(step() for _ in range(20)))


if __name__ == "__main__":
    main()
