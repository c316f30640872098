"""The ranks of a job and their groups.

A job is started by `mpirun -n N python script.py`, by `tessera run -n N python script.py`, rank by rank with RANK_ID,
RANK_SIZE and RANK_TABLE_FILE, as a scheduler and workers with MS_ROLE, MS_SCHED_HOST, MS_SCHED_PORT and MS_WORKER_NUM, or by
`srun -n N python script.py`, where neither of the two before it is asked for.
"""
import os

import tessera

from mindspore import _parameter_server, context
from mindspore._join import call_to_join, join_job
from mindspore._missing import missing
from mindspore.communication._place import place_of_this_process
from mindspore.communication._scheduler import is_launched_by_scheduler, meet_at_scheduler, refuse_workers_without_role, tell_place
from mindspore.communication._variables import listen_at_named_interface

HCCL_WORLD_COMM_GROUP = "hccl_world_group"
NCCL_WORLD_COMM_GROUP = "nccl_world_group"
MCCL_WORLD_COMM_GROUP = "mccl_world_group"
_WORLDS = (HCCL_WORLD_COMM_GROUP, NCCL_WORLD_COMM_GROUP, MCCL_WORLD_COMM_GROUP)
_BACKENDS = {"hccl": HCCL_WORLD_COMM_GROUP, "nccl": NCCL_WORLD_COMM_GROUP, "mccl": MCCL_WORLD_COMM_GROUP}

# mpirun's variables, under the names that scripts read.
for _mpi, _own in (("OMPI_COMM_WORLD_RANK", "RANK_ID"), ("OMPI_COMM_WORLD_LOCAL_RANK", "DEVICE_ID"),
                   ("OMPI_COMM_WORLD_SIZE", "RANK_SIZE")):
    if _mpi in os.environ:
        os.environ[_own] = os.environ[_mpi]


def _is_asked_for():
    """Whether the script's user has said how the ranks find each other: what srun says counts only where nobody has."""
    return is_launched_by_scheduler() or "RANK_TABLE_FILE" in os.environ or "MINDSPORE_HCCL_CONFIG_PATH" in os.environ


def _tell_place_of_srun():
    try:
        place = tessera.cluster._srun_place()
    except ValueError:
        return  # init() says what is wrong
    for name, number in zip(("RANK_ID", "DEVICE_ID", "RANK_SIZE"), place or ()):
        os.environ[name] = str(number)


if not _is_asked_for():
    _tell_place_of_srun()


class GlobalComm:
    """What init() found."""
    BACKEND = "unknown"
    WORLD_COMM_GROUP = HCCL_WORLD_COMM_GROUP
    INITED = False
    CHECK_ENVS = True


def _is_placed():
    """Whether a launcher has said which rank this is."""
    return any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "TESSERA_SIZE", "TESSERA_THREAD_RANKS", "TESSERA_SCHEDULER"))


def init(backend_name=None):
    """Joins the job. backend_name: hccl, nccl or mccl; whichever it is, the ranks communicate with what there is."""
    if backend_name is None:
        backend_name = {"Ascend": "hccl", "GPU": "nccl"}.get(context.get_context("device_target"), "mccl")
    if not isinstance(backend_name, str):
        raise TypeError(f"For 'init', the argument 'backend_name' must be a string, but got the type : {type(backend_name).__name__}.")
    if backend_name not in _BACKENDS:
        raise RuntimeError(f"For 'init', the argument 'backend_name' must be one of 'hccl', 'nccl' and 'mccl', but got {backend_name}.")
    if is_launched_by_scheduler():
        meet_at_scheduler()
    if not tessera.cluster.is_initialized():
        if not _is_placed() and ("RANK_TABLE_FILE" in os.environ or "MINDSPORE_HCCL_CONFIG_PATH" in os.environ):
            os.environ.update(place_of_this_process(os.environ.get("MINDSPORE_HCCL_CONFIG_PATH") or os.environ["RANK_TABLE_FILE"]))
        elif not _is_placed() and tessera.cluster._srun_place() is None and int(os.environ.get("RANK_SIZE", "1")) > 1:
            raise RuntimeError("Get hccl rank_table_file failed, please export MINDSPORE_HCCL_CONFIG_PATH or RANK_TABLE_FILE.")
        elif not _is_placed() and tessera.cluster._srun_place() is None:
            refuse_workers_without_role()
        if not is_launched_by_scheduler() and (_is_placed() or tessera.cluster._srun_place() is not None):
            listen_at_named_interface()
        join_job()
        if is_launched_by_scheduler():
            tell_place()
    GlobalComm.BACKEND = backend_name
    GlobalComm.WORLD_COMM_GROUP = _BACKENDS[backend_name]
    GlobalComm.INITED = True


call_to_join(init)


def release():
    """Forgets what init() found; the job is left when the process ends."""
    GlobalComm.BACKEND = "unknown"
    GlobalComm.INITED = False


def native_group(group):
    """tessera's name of a group. TypeError unless it is a str, RuntimeError before init()."""
    if not isinstance(group, str):
        raise TypeError(f"The argument 'group' must be type of string, but got the type : {type(group).__name__}.")
    if not GlobalComm.INITED:
        raise RuntimeError("Distributed Communication has not been inited: call mindspore.communication.init() first.")
    return "world" if group in _WORLDS else group


def get_rank(group=HCCL_WORLD_COMM_GROUP):
    """This process's place in the group; in that of all ranks, among the workers or among the servers."""
    native = native_group(group)
    return _parameter_server.own_rank() if native == "world" else tessera.cluster.rank(native)


def get_group_size(group=HCCL_WORLD_COMM_GROUP):
    """Ranks of the group; of that of all ranks, those that train."""
    native = native_group(group)
    return _parameter_server.num_workers() if native == "world" else tessera.cluster.size(native)


def get_local_rank(group=HCCL_WORLD_COMM_GROUP):
    """This process's place among those of its host."""
    native_group(group)
    return tessera.cluster.local_rank()


def get_local_rank_size(group=HCCL_WORLD_COMM_GROUP):
    """Ranks of this host."""
    native_group(group)
    return tessera.cluster.local_size()


get_local_size = get_local_rank_size


def get_world_rank_from_group_rank(group, group_rank_id):
    """The world rank of a place in the group."""
    if isinstance(group_rank_id, bool) or not isinstance(group_rank_id, int):
        raise TypeError(f"The argument 'group_rank_id' must be type of int, but got {type(group_rank_id).__name__}.")
    ranks = tessera.cluster.ranks(native_group(group))
    if not 0 <= group_rank_id < len(ranks):
        raise ValueError(f"The argument 'group_rank_id' must be in [0, {len(ranks) - 1}], but got {group_rank_id}.")
    return ranks[group_rank_id]


def get_group_rank_from_world_rank(world_rank_id, group):
    """The place in the group of a world rank."""
    if isinstance(world_rank_id, bool) or not isinstance(world_rank_id, int):
        raise TypeError(f"The argument 'world_rank_id' must be type of int, but got {type(world_rank_id).__name__}.")
    ranks = tessera.cluster.ranks(native_group(group))
    if world_rank_id not in ranks:
        raise ValueError(f"The argument 'world_rank_id' {world_rank_id} is not in the group {group}.")
    return ranks.index(world_rank_id)


def create_group(group, rank_ids, options=None):
    """A group of these world ranks. Every rank of the job calls it, in the same order. options, which are those of HCCL, must be None."""
    if options is not None:
        raise NotImplementedError("create_group: options are not available: collectives of a group are those of the job")
    if native_group(group) == "world":
        raise ValueError("The world's group is there already.")
    if not isinstance(rank_ids, list):
        raise TypeError(f"The argument 'rank_ids' must be type of list, but got the type : {type(rank_ids).__name__}.")
    if not rank_ids:
        raise ValueError("The argument 'rank_ids' must be a list that is not empty.")
    if any(isinstance(rank, bool) or not isinstance(rank, int) for rank in rank_ids):
        raise TypeError(f"The argument 'rank_ids' must be a list of ints, but got {rank_ids}.")
    if len(set(rank_ids)) != len(rank_ids):
        raise ValueError("List rank_ids in 'create_group' has duplicate items.")
    tessera.cluster.create_group(group, rank_ids)


def destroy_group(group):
    """Ends a group. ValueError for the world's."""
    if native_group(group) == "world":
        raise ValueError("The world's group cannot be destroyed.")
    tessera.cluster.destroy_group(group)


__getattr__ = missing(__name__)
del missing
