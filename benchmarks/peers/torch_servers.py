"""Rows/s of a table whose rows two processes share, looked up by torch.distributed's all_to_all over Gloo: each has half of a batch's ids.
As servers_bench.cc: pulled, or pulled, their gradients pushed and the rows updated by SGD."""

import argparse
import math
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from rounds import serve_rounds

RANKS = 2
BATCHES = 16  # that take turns
WARMUP_STEPS = 3


class Table:
    """This process's rows, a block of all of them."""

    def __init__(self, rank, rows, dim):
        self.rows = rows
        self.block = -(-rows // RANKS)
        self.own = torch.randn(max(0, min(self.block, rows - rank * self.block)), dim) * 0.01
        self.begin = rank * self.block

    def pull(self, ids):
        """The rows of these ids, and what it takes to push their gradients."""
        owners = ids // self.block
        order = torch.argsort(owners, stable=True)
        wanted = ids[order]
        counts = torch.bincount(owners, minlength=RANKS)
        asked = torch.empty_like(counts)
        dist.all_to_all_single(asked, counts)
        sent, received = counts.tolist(), asked.tolist()
        others = torch.empty(sum(received), dtype=ids.dtype)
        dist.all_to_all_single(others, wanted, received, sent)
        others -= self.begin
        rows = torch.empty(len(ids), self.own.shape[1])
        dist.all_to_all_single(rows, self.own[others], sent, received)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        return rows[back], (order, others, sent, received)

    def push(self, gradients, route, rate):
        """Each row moves by the sum of its gradients."""
        order, others, sent, received = route
        arrived = torch.empty(sum(received), self.own.shape[1])
        dist.all_to_all_single(arrived, gradients[order], received, sent)
        self.own.index_add_(0, others, arrived, alpha=-rate)


def draw_ids(rows, ids, batch, rank):
    """This process's share. By Zipf's law; neighbours by rank lie apart."""
    drawn = torch.rand(ids, generator=torch.Generator().manual_seed(batch), dtype=torch.float64)
    ranks = torch.exp(drawn * math.log(rows)).to(torch.int64)
    return (ranks * 2654435761 % rows).chunk(RANKS)[rank]


class Training:
    def __init__(self, rank, arguments):
        rows = max(1, arguments.mib * 2**20 // (arguments.dim * 4))
        self.table, self.arguments, self.number = Table(rank, rows, arguments.dim), arguments, 0
        self.batches = [draw_ids(rows, arguments.ids, batch, rank) for batch in range(BATCHES)]

    def step(self):
        ids = self.batches[self.number % BATCHES]
        self.number += 1
        rows, route = self.table.pull(ids)
        if self.arguments.pull_only:
            return float(rows.mean(1).sum())
        rows.requires_grad_()
        loss = torch.nn.functional.mse_loss(rows.mean(1), torch.ones(len(ids)))
        loss.backward()
        self.table.push(rows.grad / RANKS, route, 1.0)  # of the mean over the batch of both
        return float(loss.detach())

    def seconds_of_steps(self, count):
        begin = time.perf_counter()
        for _ in range(count):
            self.step()
        return (time.perf_counter() - begin) / count


def largest(value):
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return float(tensor)


def serve(rank, store, arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    training = Training(rank, arguments)
    first = training.step()
    training.seconds_of_steps(WARMUP_STEPS)
    steps = math.ceil(2 / largest(training.seconds_of_steps(WARMUP_STEPS)))
    training.seconds_of_steps(steps)
    last = training.step()
    if not math.isfinite(last) or not arguments.pull_only and last >= first:
        raise SystemExit(f"torch_servers: the loss is {last}, the first one was {first}")

    def run_round():
        training.seconds_of_steps(1)
        return arguments.ids / largest(training.seconds_of_steps(steps))

    if rank > 0:
        while largest(0.0) > 0:
            run_round()
    else:
        def asked_round():
            largest(1.0)
            return run_round()

        serve_rounds("rows/s", f"torch {torch.__version__}, {RANKS} processes, each with half of the rows and of the ids", asked_round)
        largest(0.0)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=32)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--ids", type=int, default=4096)
    parser.add_argument("--pull_only", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        others = [mp.get_context("spawn").Process(target=serve, args=(rank, store, arguments), daemon=True) for rank in range(1, RANKS)]
        for other in others:
            other.start()
        serve(0, store, arguments)
        for other in others:
            other.join()


if __name__ == "__main__":
    main()
