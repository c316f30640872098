"""Writes docs/tutorials.md: how each Python block of the tutorials is run."""
import pages
from uses import USES

TITLES = {
    "000": "Distributed parallel training basics (Ascend)",
    "001": "Distributed parallel training (GPU)",
    "002": "Distributed parallel training, an early release",
    "003": "Parallel distributed training (Ascend), release 1.5",
    "004": "Distributed resilience training and inference",
}
HEAD = """# The tutorials, block by block

Which Python blocks of the five tutorials run, and with what. `scripts/test --all tutorials` runs each on one rank and on 2 and 4 by mpirun,
blocks that stand alone as they are, others with what their text implies: an import, a name defined in another block, a value that the
reader is to provide. It reads the blocks from the tutorials' texts where those are at hand; this page is made by `tests/tutorials/table.py`.
Images of CIFAR-10 are 32 pixels wide there instead of 224; `--full` takes 224.
"""


LAUNCHES = [
    ("000, 003", "`run.sh DATA_PATH RANK_SIZE`", "as is, with 2 and with 8 ranks; it knows no other number"),
    ("000, 003", "`run_cluster.sh DATA_PATH RANK_TABLE_FILE RANK_SIZE RANK_START`", "as is: two servers of 8 ranks, which are two addresses of one machine; "
     "several machines need a secret beside the table ([security.md](security.md))"),
    ("000, 003", "`GRAPH_OP_RUN=1` with mpirun", "as is: callbacks run after every step"),
    ("001", "`mpirun -n 4 python nccl_allgather.py`", "as is"),
    ("001", "`run_gpu.sh DATA_PATH`", "as is: 8 ranks; root says so to mpirun with `OMPI_ALLOW_RUN_AS_ROOT`"),
    ("001", "`run_gpu_cluster.sh DATA_PATH`", "as is, with the scheduler's address filled in: 8 workers and a scheduler, of one host or two"),
    ("001", "`run_gpu_cluster_recovery.sh DATA_PATH`, and its restarts", "as is, with address and folder filled in; a killed worker may be started again at "
     "once ([cluster.md](cluster.md#lose-a-rank-and-go-on))"),
    ("the page on parameter servers, which 001 names", "a script each for scheduler, servers and workers", "in that page's form, with LeNet on images that are drawn: "
     "1 server, 1 and 2 workers, and what each log says ([servers.md](servers.md#scripts-with-ms_role))"),
    ("002", "the loop with `RANK_TABLE_FILE=./rank_table.json`", "as is: 8 ranks, which find the table one folder up and their ranks by `DEVICE_ID`"),
]


def counts():
    """(as they are, with something, waiting)."""
    hows = [use.how() for use in USES]
    as_is, waiting = hows.count("as is"), sum(how.startswith("waits") for how in hows)
    return as_is, len(hows) - as_is - waiting, waiting


def text():
    as_is, with_something, waiting = counts()
    lines = [HEAD, f"Of {len(USES)} blocks {as_is} run as they are, {with_something} with what their text implies, {waiting} wait."]
    for page in pages.PAGES:
        lines += ["", f"## {page}: {TITLES[page]}", "", "| block | what | runs |", "|---|---|---|"]
        lines += [f"| {use.number} | {use.title} | {use.how()} |" for use in USES if use.page == page]
    lines += ["", "## How the ranks are started", "", "| page | what | runs |", "|---|---|---|"]
    lines += [f"| {page} | {what} | {how} |" for page, what, how in LAUNCHES]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (pages.ROOT / "docs" / "tutorials.md").write_text(text())
