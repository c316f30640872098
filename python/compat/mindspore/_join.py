"""How a script comes to its job."""
import tessera


def join_job():
    """Joins the job. Each rank of such a script has batches of its own, so with fewer ranks a step would train on fewer rows: an
    elastic job is told to wait for its ranks."""
    tessera.cluster.init()
    tessera.cluster._fix_ranks("in scripts of the package mindspore each rank has batches of its own")
