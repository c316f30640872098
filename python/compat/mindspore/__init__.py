"""Scripts written for MindSpore's API run on Tessera. See docs/compatibility.md for what is here."""
import sys as _sys

from tessera._keywords import explain_modules
from mindspore._missing import explain_missing_modules
from mindspore import context
from mindspore.common import dtype
from mindspore.common.dtype import *
from mindspore.common.dtype import dtype_to_nptype, pytype_to_dtype
from mindspore.common.tensor import Tensor
from mindspore.common.parameter import Parameter, ParameterTuple
from mindspore.common.initializer import initializer
from mindspore.common.seed import get_seed, set_seed
from mindspore.common.api import jit, ms_function
from mindspore.context import (GRAPH_MODE, PYNATIVE_MODE, ParallelMode, get_auto_parallel_context, get_context, get_ps_context,
                               reset_auto_parallel_context, reset_ps_context, set_auto_parallel_context, set_context,
                               set_ps_context)
from mindspore._layout import Layout
from mindspore._shard import reshard, shard
from mindspore import _checkparam, communication, nn, ops, dataset, train, amp, parallel, boost, utils
from mindspore.train import (Callback, CheckpointConfig, DatasetHelper, DynamicLossScaleManager, FixedLossScaleManager,
                             LossMonitor, LossScaleManager, Model, ModelCheckpoint, RunContext, TimeMonitor, build_train_network,
                             connect_network_with_dataset, export, load_checkpoint, load_param_into_net, save_checkpoint)
from mindspore.train import (F1, MAE, MSE, ROC, Accuracy, BleuScore, ConfusionMatrix, ConfusionMatrixMetric, CosineSimilarity, Dice, Fbeta,
                             HausdorffDistance, Loss, MeanSurfaceDistance, Metric, OcclusionSensitivity, Perplexity, Precision, Recall,
                             RootMeanSquareDistance, Top1CategoricalAccuracy, Top5CategoricalAccuracy, TopKCategoricalAccuracy, auc, get_metric_fn, names, rearrange_inputs)
from mindspore.train import BackupAndRestore, EarlyStopping, History, LambdaCallback, LearningRateScheduler, ReduceLROnPlateau, SummaryCollector, SummaryRecord
from mindspore.ops import constexpr, get_grad, grad, jacfwd, jacrev, value_and_grad, vmap
from mindspore.ops.array import is_tensor
from mindspore.parallel import get_algo_parameters, reset_algo_parameters, set_algo_parameters
from mindspore.common.scripts import (JitConfig, from_numpy, get_current_device, initial_seed, jit_class, lazy_inline, manual_seed, ms_class, mutable, no_inline,
                                      run_check, set_deterministic, set_device, set_memory, set_recursion_limit, synchronize, tensor)
from mindspore import numpy
from mindspore.train.serialization import (build_searched_strategy, load_distributed_checkpoint, merge_pipeline_strategys,
                                           merge_sliced_parameter, rank_list_for_transform, restore_group_info_list,
                                           transform_checkpoint_by_rank, transform_checkpoints)
from mindspore.common.tensor_methods import install
from mindspore._missing import missing
from mindspore._appoint import appoint_all
from mindspore._refused import MODULES as _REFUSED_MODULES
from mindspore import _public, log, version
from mindspore._function_help import add_to_functions
from mindspore._help import add_to_modules
from mindspore.log import get_level, get_log_config
from mindspore.version import __version__

explain_modules([_module for _name, _module in sorted(_sys.modules.items()) if _name.partition(".")[0] == __name__])
install()
add_to_functions(_sys.modules[__name__])
add_to_modules()
appoint_all(_REFUSED_MODULES)
explain_missing_modules()
__getattr__ = missing(__name__)
del add_to_functions, add_to_modules, appoint_all, explain_missing_modules, explain_modules, install, missing
_public.publish()
del _sys
