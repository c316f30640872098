from harness import BIN, Case, ROOT, Side

DOC = "rows of tables of 1 MiB to 1 GiB that a parameter server keeps, pulled and pushed: against row-sharded tables by all_to_all, and in a file against in memory"

ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def cases(threads):
    torch = ROOT / "benchmarks" / "peers" / "torch_servers.py"
    found = []
    for mib in (1, 32, 1024):
        for dim in (16, 64, 256):
            for what, options in (("pull", ["--pull_only"]), ("pull, push, update", [])):
                size = ["--mib", mib, "--dim", dim, *options]
                sides = [Side("ours", "one server, one worker", [BIN / "servers_bench", *size], env=ONE_THREAD),
                         Side("peer", "PyTorch, all_to_all, Gloo", [torch, *size], env=ONE_THREAD, needs_torch=True),
                         Side("limit", "a socket carries the rows", [BIN / "servers_bench", *size, "--only_socket"], env=ONE_THREAD),
                         Side("limit", "one thread copies the rows in memory", [BIN / "servers_bench", *size, "--only_memory"], env=ONE_THREAD)]
                found.append(Case(f"{what}, {mib} MiB, {dim} a row", unit="rows/s", sides=sides))
    # A table of four times the memory that its server's rows may take, and two moments of it: what the file costs.
    for mib in (64, 1024):
        size = ["--mib", mib, "--dim", 64, "--optimizer", "lazy_adam"]
        sides = [Side("ours", "its rows in a file", [BIN / "servers_bench", *size, "--limit_mib", mib // 4], env=ONE_THREAD),
                 Side("limit", "all in memory", [BIN / "servers_bench", *size], env=ONE_THREAD)]
        found.append(Case(f"in a file, pull, push, update, {mib} MiB, 64 a row", unit="rows/s", sides=sides))
    return found
