"""Checkpoints of one way of splitting a network, for another."""
from mindspore.train.serialization import (build_searched_strategy, load_distributed_checkpoint, merge_pipeline_strategys,  # noqa: F401
                                           merge_sliced_parameter, rank_list_for_transform, restore_group_info_list,
                                           transform_checkpoint_by_rank, transform_checkpoints)
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
