"""How a script comes to its job."""
import os

import tessera

from mindspore import _parameter_server, context

_init = []


def join_job():
    """Joins the job. Each rank of such a script has batches of its own, so with fewer ranks a step would train on fewer rows: an
    elastic job is told to wait for its ranks."""
    tessera.cluster.init()
    tessera.cluster._fix_ranks("in scripts of the package mindspore each rank has batches of its own")


def join_launched_job():
    """Before a Model that trains by itself is made: joins the job of `tessera run`, where that has started this process, for its options are of whatever a
    script trains. Where MS_ROLE or servers are spoken of, init() and join_by_role() join."""
    if tessera._job.is_rank_of_launcher() and not os.environ.get("MS_ROLE") and _parameter_server.num_servers_of_environment() == 0:
        join_job()


def call_to_join(init):
    """From here on join_by_role() joins by calling init(), which is communication's."""
    _init[:] = [init]


def join_by_role(who):
    """Before `who` makes or trains what servers may keep: joins the job, as init() would, where the launcher speaks of servers and the script has
    not called init(): the scheduler and the servers must serve, and workers that train apart would not be noticed."""
    if tessera.cluster.is_initialized():
        return
    role = os.environ.get("MS_ROLE", "")
    if role in _parameter_server.SERVER_ROLES or _parameter_server.is_enabled() and _parameter_server.num_servers_of_environment() > 0:
        context.warn_once(f"{who}: the script has not called mindspore.communication.init(), and the launcher speaks of servers: init() is called here; call "
                          "it before the network is made")
        _init[0]()


def warn_of_training_apart(who):
    """Warns once where the environment has a role for this process and the script has not joined the job."""
    workers = os.environ.get("MS_WORKER_NUM", "")
    if os.environ.get("MS_ROLE") and workers.isdecimal() and int(workers) > 1 and not tessera.cluster.is_initialized():
        context.warn_once(f"{who}: MS_ROLE is {os.environ['MS_ROLE']} and MS_WORKER_NUM {workers}, but the script has not called "
                          "mindspore.communication.init(): this process trains apart from the others; call init() where one training is meant")
