"""What step_overhead_bench measures, from Python: 1,000 matrix products of 4x4 in a row, as a cell that is called. The difference, in
microseconds per operator, is what a call costs in Python, in milliseconds."""
import argparse
import json
import os
import sys
import time

OPERATORS = 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warmup_steps", type=int, default=20)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    import numpy as np
    import tessera

    class Chain(tessera.nn.Cell):
        def __init__(self):
            super().__init__()
            self.weight = tessera.Parameter(np.eye(4, dtype=np.float32))

        def construct(self, x):
            for _ in range(OPERATORS):
                x = x @ self.weight
            return x

    chain = Chain()
    x = np.arange(16, dtype=np.float32).reshape(4, 4)

    def step():
        start = time.perf_counter()
        y = chain(x)
        seconds = time.perf_counter() - start
        if not np.array_equal(y.numpy(), x):
            raise SystemExit("python_overhead_step: wrong result")
        return seconds * 1e6 / OPERATORS

    for _ in range(arguments.warmup_steps):
        step()
    print(json.dumps({"ready": True, "unit": "us", "about": f"Python {sys.version.split()[0]}"}), flush=True)
    for line in sys.stdin:
        if line.strip() != "go":
            break
        print(json.dumps({"value": min(step() for _ in range(20))}), flush=True)


if __name__ == "__main__":
    main()
