from harness import BIN, Case, Side

DOC = "conversion of a 1 GiB checkpoint from 8 ranks to 3 and to 4, synced: against cat and sync of the same files"


def cases(threads):
    found = []
    for to in (3, 4):
        program = [BIN / "reshard_bench", "--to", to]
        found.append(Case(f"8 ranks to {to}, 1 GiB", unit="GB/s", sides=[
            Side("ours", "tessera, verified", program),
            Side("ours", "tessera, --no_verify", [*program, "--no_verify"]),
            Side("limit", "cat src* > f && sync", [*program, "--cat"]),
        ]))
    return found
