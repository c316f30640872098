"""How networks are spread over ranks."""
from mindspore.parallel import _transformer
from mindspore.parallel._cost_model_context import get_algo_parameters, reset_algo_parameters, set_algo_parameters
from mindspore.parallel.checkpoint_transform import (build_searched_strategy, load_distributed_checkpoint, merge_pipeline_strategys,
                                                     merge_sliced_parameter, rank_list_for_transform, restore_group_info_list,
                                                     transform_checkpoint_by_rank, transform_checkpoints)
from mindspore._layout import Layout
from mindspore._shard import reshard, shard
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
