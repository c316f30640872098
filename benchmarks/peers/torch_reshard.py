"""GB/s of torch.distributed.checkpoint from 8 ranks to others: load and save, with sync, of the tensors of reshard_bench.cc."""

import argparse
import os
import shutil
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from rounds import serve_rounds
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor, empty

FROM = 8
SIDE = 2048


def value(i):
    return torch.arange(SIDE * SIDE, dtype=torch.float32).reshape(SIDE, SIDE) + i


def join(rank, world_size, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    return init_device_mesh("cpu", (world_size,))


def write_source(rank, directory, num_tensors):
    mesh = join(rank, FROM, f"{directory}/from")
    state = {f"layer{i}.weight": distribute_tensor(value(i), mesh, [Shard(i % 2)]) for i in range(num_tensors)}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(f"{directory}/src"))
    dist.destroy_process_group()


def convert(state, directory):
    dcp.load(state, storage_reader=dcp.FileSystemReader(f"{directory}/src"))
    dcp.save(state, storage_writer=dcp.FileSystemWriter(f"{directory}/dst", sync_files=True))
    dist.barrier()


def make_state(mesh, num_tensors):
    return {f"layer{i}.weight": empty((SIDE, SIDE), device_mesh=mesh, placements=[Shard(i % 2)]) for i in range(num_tensors)}


def is_right(state):
    return all(torch.equal(tensor.to_local(), distribute_tensor(value(int(name[5:].split(".")[0])), tensor.device_mesh,
                                                                tensor.placements).to_local()) for name, tensor in state.items())


def follow(rank, world_size, directory, num_tensors):
    state = make_state(join(rank, world_size, f"{directory}/to"), num_tensors)
    while True:
        word = [None]
        dist.broadcast_object_list(word)
        if word[0] == "go":
            convert(state, directory)
        elif word[0] == "check":
            is_right(state)
        else:
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=int, default=3)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--directory", default="build/reshard")
    arguments = parser.parse_args()
    directory = os.path.abspath(f"{arguments.directory}.{time.monotonic_ns()}")
    os.makedirs(directory)
    num_tensors = arguments.mib * 2**20 // (SIDE * SIDE * 4)
    mp.spawn(write_source, (directory, num_tensors), nprocs=FROM)
    context = mp.get_context("spawn")
    others = [context.Process(target=follow, args=(rank, arguments.to, directory, num_tensors)) for rank in range(1, arguments.to)]
    for other in others:
        other.start()
    state = make_state(join(0, arguments.to, f"{directory}/to"), num_tensors)

    def run_round():
        start = time.perf_counter()
        dist.broadcast_object_list(["go"])
        convert(state, directory)
        os.sync()
        seconds = time.perf_counter() - start
        shutil.rmtree(f"{directory}/dst")
        os.sync()
        return num_tensors * SIDE * SIDE * 4e-9 / seconds

    run_round()
    dist.broadcast_object_list(["check"])
    if not is_right(state):
        raise SystemExit("torch_reshard: wrong values")
    serve_rounds("GB/s", f"torch {torch.__version__}, {arguments.to} processes: load, save, fsync", run_round)
    dist.broadcast_object_list(["stop"])
    for other in others:
        other.join()
    dist.destroy_process_group()
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
