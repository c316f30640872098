from harness import BIN, Case, Side

DOC = "all_reduce of float32 between processes of one host: against OpenMPI, Gloo, and a plain program over shared buffers; encrypted"

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n"]


def size_name(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def cases(threads):
    """Sizes are powers of 4 from 1 KiB to 256 MiB; peers have private buffers in both kinds of case. Between hosts: what encryption costs."""
    found = []
    for ranks in (2, 4, 8):
        for size in (1 << shift for shift in range(10, 29, 2)):
            program = [BIN / "collectives_bench", "--ranks", ranks, "--bytes", size]
            for kind, options in (("arena", ["--arena"]), ("private", [])):
                found.append(Case(f"all_reduce {size_name(size)}, {ranks} ranks, {kind}", unit="GB/s", sides=[
                    Side("ours", "tessera", [*program, *options]),
                    Side("peer", "openmpi", [BIN / "collectives_mpi", "--bytes", size], launcher=[*MPIRUN, ranks]),
                    Side("peer", "gloo, ring", [*program, "--library", "gloo_ring"]),
                    Side("peer", "gloo, halving-doubling", [*program, "--library", "gloo_halving"]),
                    Side("limit", "plain program", [*program, "--library", "plain"]),
                ]))
    for ranks in (2, 4):
        for size in (1 << shift for shift in range(10, 29, 6)):
            program = [BIN / "collectives_bench", "--ranks", ranks, "--bytes", size, "--on_hosts"]
            found.append(Case(f"all_reduce {size_name(size)}, {ranks} hosts", unit="GB/s", sides=[
                Side("ours", "tls", [*program, "--transport", "tls"]),
                Side("limit", "gloo, not encrypted", [*program, "--transport", "gloo"]),
            ]))
    return found
