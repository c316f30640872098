"""Checkpoints of one way of splitting a network, for another: other numbers of ranks, other strategies."""
import os

import tessera

from mindspore.common.parameter import Parameter

Layout = tessera.checkpoint.ParameterLayout


class _Dims:
    """Numbers as a strategy file holds them."""

    def __init__(self, dim):
        self.dim = list(dim)


class ParallelLayouts:
    """How a parameter lies on the ranks: dev_matrix[0].dim are the ranks as a grid, tensor_map[0].dim the axis that splits each dim
    (0 is the last one, -1: none; where several axes split a dim, tensor_map has a list for each dim)."""

    def __init__(self, layout):
        self.dev_matrix = [_Dims(layout.device_matrix)]
        if all(len(axes) <= 1 for axes in layout.tensor_map):
            self.tensor_map = [_Dims(axes[0] if axes else -1 for axes in layout.tensor_map)]
        else:
            self.tensor_map = [_Dims(axes or [-1]) for axes in layout.tensor_map]
        self.param_split_shape = [_Dims(layout.param_split_shape)]
        self.indices_offset = [_Dims(layout.indices_offset)]
        self.field = layout.field
        self.opt_weight_shard_step = layout.opt_weight_shard_step
        self.opt_weight_shard_size = layout.opt_weight_shard_size


def axes_of(tensor_map):
    """tessera's map of what scripts write: a number or a list of numbers for each dim, -1 for none."""
    return [[axis for axis in (item if isinstance(item, (list, tuple)) else [item]) if axis >= 0] for item in tensor_map]


def native_layout(name, layout):
    """tessera's layout of a ParallelLayouts, or of whatever has its attributes."""
    maps = [list(item.dim) for item in layout.tensor_map]
    return Layout(name, list(layout.dev_matrix[0].dim), axes_of(maps[0] if len(maps) == 1 else maps),
                  opt_weight_shard_step=layout.opt_weight_shard_step, opt_weight_shard_size=layout.opt_weight_shard_size,
                  field=layout.field, param_split_shape=[n for item in layout.param_split_shape for n in item.dim])


class _NoFolder(NotADirectoryError, ValueError):
    """What is said of a missing folder: releases of the reference raise the one or the other."""


def _integer(who, name, value):
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"For '{who}', the '{name}' should be a int, but got {type(value).__name__}.")


def _string(who, name, value):
    if not isinstance(value, str):
        raise TypeError(f"For '{who}', the '{name}' should be a str, but got {type(value).__name__}.")


def _require_file(who, what, name):
    if not isinstance(name, str):
        raise TypeError(f"For '{who}', the argument '{what}' should be str, but got {type(name).__name__}.")
    if not os.path.isfile(name):
        raise ValueError(f"For '{who}', no such file: {name}. Please check whether the '{what}' exists.")
    if os.path.getsize(name) == 0:
        raise ValueError(f"For '{who}', the file {name} should not be empty.")


def _layouts(who, what, file):
    """tessera's layouts of a strategy file, by name."""
    _require_file(who, what, file)
    try:
        return tessera.checkpoint.build_searched_strategy(file)
    except tessera.InvalidArgument as error:
        raise TypeError(f"For '{who}', the '{what}' should be a strategy file, as JSON or as Protocol Buffers: {error}") from None


def _strategy_files(who, *files):
    """tessera's names of strategy files: "" for None."""
    for name, file in zip(("src_strategy_file", "dst_strategy_file"), files):
        if file is not None:
            _layouts(who, name, file)
    return [file or "" for file in files]


def transform_checkpoints(src_checkpoints_dir, dst_checkpoints_dir, ckpt_prefix, src_strategy_file=None, dst_strategy_file=None,
                          process_num=1, output_format="ckpt"):
    """Converts src_checkpoints_dir/rank_M/*.ckpt to dst_checkpoints_dir/rank_N/PREFIXN.ckpt; any two numbers of ranks. A strategy
    file of None: one rank that holds everything whole. Of each rank the newest step that all have is taken."""
    who = "transform_checkpoints"
    for name, value in (("src_checkpoints_dir", src_checkpoints_dir), ("dst_checkpoints_dir", dst_checkpoints_dir), ("ckpt_prefix", ckpt_prefix)):
        _string(who, name, value)
    if not os.path.isdir(src_checkpoints_dir):
        raise _NoFolder(f"src_checkpoints_dir {src_checkpoints_dir} is not a directory.")
    if output_format != "ckpt":
        raise ValueError(f"For '{who}', the 'output_format' must be 'ckpt', but got {output_format}; `tessera ckpt export` writes safetensors")
    files = _strategy_files(who, src_strategy_file, dst_strategy_file)
    _integer(who, "process_num", process_num)
    tessera.checkpoint.transform_checkpoints(src_checkpoints_dir, dst_checkpoints_dir, ckpt_prefix, *files, num_threads=process_num if process_num > 1 else 0)


def rank_list_for_transform(rank_id, src_strategy_file=None, dst_strategy_file=None):
    """The ranks whose checkpoints are needed to make that of rank_id, the highest first."""
    _integer("rank_list_for_transform", "rank_id", rank_id)
    files = _strategy_files("rank_list_for_transform", src_strategy_file, dst_strategy_file)
    return tessera.checkpoint.rank_list_for_transform(rank_id, *files)[::-1]


def transform_checkpoint_by_rank(rank_id, checkpoint_files_map, save_checkpoint_file_name, src_strategy_file=None, dst_strategy_file=None):
    """Writes the checkpoint of rank_id. checkpoint_files_map: {rank: file} of those that rank_list_for_transform names."""
    who = "transform_checkpoint_by_rank"
    if not isinstance(checkpoint_files_map, dict):
        raise TypeError(f"For '{who}', the 'checkpoint_files_map' should be a dict, but got {type(checkpoint_files_map).__name__}.")
    _integer(who, "rank_id", rank_id)
    _string(who, "save_checkpoint_file_name", save_checkpoint_file_name)
    if not save_checkpoint_file_name.endswith(".ckpt"):
        raise ValueError(f"For '{who}', the 'save_checkpoint_file_name' {save_checkpoint_file_name} should end with .ckpt")
    for rank, file in checkpoint_files_map.items():
        if not os.path.exists(file):
            raise ValueError(f"For '{who}', the checkpoint file {file} of rank {rank} does not exist.")
    files = _strategy_files(who, src_strategy_file, dst_strategy_file)
    tessera.checkpoint.transform_checkpoint_by_rank(rank_id, checkpoint_files_map, save_checkpoint_file_name, *files)


def merge_pipeline_strategys(src_strategy_dirs, dst_strategy_file):
    """One strategy file of those of all pipeline stages, which are in the folder src_strategy_dirs."""
    _string("merge_pipeline_strategys", "src_strategy_dirs", src_strategy_dirs)
    _string("merge_pipeline_strategys", "dst_strategy_file", dst_strategy_file)
    if not os.path.isdir(src_strategy_dirs):
        raise NotADirectoryError(f"src_strategy_dirs {src_strategy_dirs} is not a directory.")
    tessera.checkpoint.merge_pipeline_strategys(src_strategy_dirs, dst_strategy_file)


def build_searched_strategy(strategy_filename):
    """{parameter: ParallelLayouts} of a strategy file."""
    layouts = _layouts("build_searched_strategy", "strategy_filename", strategy_filename)
    return {name: ParallelLayouts(layout) for name, layout in layouts.items()}


def restore_group_info_list(group_info_file_name):
    """The ranks whose checkpoints may replace a lost one of the rank that wrote the file."""
    _require_file("restore_group_info_list", "group_info_file_name", group_info_file_name)
    return tessera.checkpoint.restore_group_info_list(group_info_file_name)


def merge_sliced_parameter(sliced_parameters, strategy=None):
    """One Parameter of the slices that the ranks hold, given in rank order. strategy: what build_searched_strategy gives; without
    one they are joined along dim 0."""
    who = "merge_sliced_parameter"
    if not isinstance(sliced_parameters, list):
        raise TypeError(f"For '{who}', the argument 'sliced_parameters' should be list, but got {type(sliced_parameters).__name__}.")
    if not sliced_parameters:
        raise ValueError(f"For '{who}', the argument 'sliced_parameters' should not be empty.")
    if strategy and not isinstance(strategy, dict):
        raise TypeError(f"For '{who}', the argument 'strategy' should be dict, but got {type(strategy).__name__}.")
    for index, parameter in enumerate(sliced_parameters):
        if not isinstance(parameter, Parameter):
            raise TypeError(f"For '{who}', the element in 'sliced_parameters' should be 'Parameter', but got "
                            f"{type(parameter).__name__} at index {index}.")
    first = sliced_parameters[0]
    for index, parameter in enumerate(sliced_parameters):
        if parameter.name != first.name:
            raise ValueError(f"For '{who}', the elements in 'sliced_parameters' must have the same name: {first.name} and, at index "
                             f"{index}, {parameter.name}.")
    layout = None
    if strategy:
        if first.name not in strategy:
            raise KeyError(f"For '{who}', the parameter name {first.name} should be a key in the 'strategy'.")
        try:
            layout = native_layout(first.name, strategy[first.name])
        except (AttributeError, IndexError) as error:
            raise ValueError(f"For '{who}', please make sure that 'strategy' is correct: {error}.") from None
    whole = tessera.checkpoint.merge_sliced_parameter([parameter.value() for parameter in sliced_parameters], layout)
    return Parameter(whole, first.name, first.requires_grad, first.layerwise_parallel)


from mindspore._missing import missing  # noqa: E402

__getattr__ = missing(__name__)
del missing
