"""GB/s of torch.save and torch.load of the state that checkpoint_bench.cc saves, one file, synced."""

import argparse
import os
import shutil
import time

import torch
from rounds import serve_rounds

LAYER = (("attention.qkv", (3072, 1024)), ("attention.qkv_bias", (3072,)), ("attention.out", (1024, 1024)), ("norm.scale", (1024,)),
         ("norm.shift", (1024,)), ("mlp.in", (4096, 1024)), ("mlp.in_bias", (4096,)), ("mlp.out", (1024, 4096)))


def make_model(size_bytes):
    torch.manual_seed(1)
    state, layer = {}, 0
    while size_bytes > 0:
        for name, shape in LAYER:
            state[f"layer{layer}.{name}"] = tensor = torch.randn(shape)
            size_bytes -= tensor.nbytes
        layer += 1
    return state


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--directory", default="build/checkpoint")
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--cold", action="store_true")
    arguments = parser.parse_args()
    directory = f"{arguments.directory}.{time.monotonic_ns()}"
    os.makedirs(directory)
    path = f"{directory}/net.pt"
    state = make_model(arguments.mib << 20)
    size = sum(tensor.nbytes for tensor in state.values())

    def save():
        with open(path, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())

    def forget():
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def run_round():
        if arguments.cold:
            forget()
        start = time.perf_counter()
        if arguments.load:
            loaded = torch.load(path, weights_only=True)
        else:
            save()
        seconds = time.perf_counter() - start
        if arguments.load:
            if not all(torch.equal(loaded[name], tensor) for name, tensor in state.items()):
                raise SystemExit("torch_checkpoint: wrong values")
        else:
            os.remove(path)
            os.sync()
        return size * 1e-9 / seconds

    if arguments.load:
        save()
        run_round()
    serve_rounds("GB/s", f"torch {torch.__version__}", run_round)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
