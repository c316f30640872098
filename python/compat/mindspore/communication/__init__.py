"""The ranks of a job and their groups."""
from mindspore.communication import management
from mindspore.communication.management import (GlobalComm, HCCL_WORLD_COMM_GROUP, MCCL_WORLD_COMM_GROUP, NCCL_WORLD_COMM_GROUP,
                                                create_group, destroy_group, get_group_rank_from_world_rank, get_group_size,
                                                get_local_rank, get_local_rank_size, get_local_size, get_rank,
                                                get_world_rank_from_group_rank, init, release)
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
