"""Keys of the parallel context: each has an effect in each mode, or a line says that it has none."""
import numpy as np
import pytest
from mindspore import Tensor, context, nn, ops
from mindspore.communication import init
from mindspore._key_uses import SEARCH_PARAMETERS, USES, unused_lines
from mindspore.parallel import reset_algo_parameters, set_algo_parameters
from mindspore._parallel_options import parallel_options, spread_options

MODES = context.ParallelMode.MODE_LIST
# A value of each key that is not its default.
VALUES = {
    "device_num": 8, "global_rank": 3, "gradients_mean": True, "gradient_fp32_sync": False, "loss_repeated_mean": False,
    "search_mode": "recursive_programming", "parameter_broadcast": True, "strategy_ckpt_load_file": "in.ckpt", "strategy_ckpt_save_file": "out.ckpt",
    "strategy_ckpt_config": {"save_file": "other.ckpt"}, "group_ckpt_save_file": "group.pb", "full_batch": True, "dataset_strategy": ((1, 1), (1,)),
    "enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 3}, "optimizer_weight_shard_size": 2,
    "optimizer_weight_shard_aggregated_save": True, "grad_accumulation_step": 2, "all_reduce_fusion_config": [1, 3],
    "comm_fusion": {"allreduce": {"mode": "size", "config": 32}}, "communi_parallel_mode": "no_group_parallel", "sharding_propagation": True,
}
# What these ask for is done in any case, or said elsewhere where it is not.
ELSEWHERE = {
    "enable_alltoall": "redistribution takes all_to_all where that moves fewer bytes",
    "pipeline_stages": "more than one makes a pipeline in semi-automatic parallel, and is refused in other modes",
    "pipeline_config": "it says how the stages of pipeline_stages are scheduled, and where there is one a line says so",
    "parallel_mode": "it is the mode",
    "force_fp32_communication": "a sum of which each rank has a part is float32 until it is whole",
    "auto_parallel_search_mode": "a name of search_mode",
}


@pytest.fixture(autouse=True)
def said(fresh_context, monkeypatch):
    init()
    lines = set()
    monkeypatch.setattr(context, "_said", lines)
    yield lines
    reset_algo_parameters()


def train_options(mode, **settings):
    """What a Model, its optimizer and its data set make of the settings: their errors, too."""
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(parallel_mode=mode, **settings)
    made = {}
    try:
        network = nn.Dense(2, 2)
        nn.SGD(network.trainable_params(), 0.1)
        made |= parallel_options()
    except RuntimeError as error:
        return str(error)
    return made


def step_options(mode, **settings):
    """What a training step that is a function makes of them, with the factor of gradients and the accumulation of one that is a cell."""
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(parallel_mode=mode, **settings)
    made = {}
    try:
        network = nn.Dense(2, 2)
        step = nn.TrainOneStepCell(network, nn.SGD(network.trainable_params(), 0.1))
        made["mean"], made["accumulates"] = step.mean, context.get_auto_parallel_context("grad_accumulation_step")
        if mode in ("semi_auto_parallel", "auto_parallel"):
            made |= spread_options("step")
    except RuntimeError as error:
        return str(error)
    return made


def test_every_key_is_in_the_table_and_in_this_test():
    assert set(USES) == set(context._PARALLEL_DEFAULTS)
    assert set(VALUES) | set(ELSEWHERE) == set(USES)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", VALUES)
def test_a_key_has_an_effect_or_a_word(key, mode, said):
    plain = train_options(mode)
    said.clear()
    made = train_options(mode, **{key: VALUES[key]})
    is_said = any(line.startswith(f"{key}=") or line.startswith(f"{key} has no effect in {mode}") for line in said)
    # In data parallel data sets read them; in the two splitting modes ranks agree on their values in any case.
    reads_data = key in ("full_batch", "dataset_strategy") and mode == "data_parallel"
    is_warned = key in ("gradients_mean", "loss_repeated_mean") and mode in ("semi_auto_parallel", "auto_parallel")
    is_implied = key == "gradients_mean" and mode == "hybrid_parallel"
    has_no_job = key in ("device_num", "global_rank") and mode == "stand_alone"
    if reads_data or is_warned or is_implied or has_no_job:
        assert not is_said, said
    else:
        assert is_said == (made == plain), (said, made)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", VALUES)
def test_a_key_has_an_effect_on_a_training_step_or_a_word(key, mode, said):
    plain = step_options(mode)
    said.clear()
    made = step_options(mode, **{key: VALUES[key]})
    is_said = any(line.startswith(f"{key}=") or line.startswith(f"{key} has no effect in {mode}") for line in said)
    # Ranks agree on their values at the first call.
    agrees = key == "parameter_broadcast" and mode != "stand_alone"
    is_warned = key == "loss_repeated_mean" and mode in ("semi_auto_parallel", "auto_parallel")
    has_no_job = key in ("device_num", "global_rank") and mode == "stand_alone"
    is_cell = key == "gradients_mean" and mode == "stand_alone"
    # One rank splits nothing.
    splits = key == "dataset_strategy" and mode in ("semi_auto_parallel", "auto_parallel")
    if agrees or is_warned or has_no_job or splits:
        assert not is_said, said
    elif is_cell:
        assert is_said, said
    else:
        assert is_said == (made == plain), (said, made)


@pytest.mark.parametrize("parameter", SEARCH_PARAMETERS)
@pytest.mark.parametrize("mode", MODES)
def test_a_parameter_of_the_search_has_an_effect_or_a_word(parameter, mode, said):
    context.set_auto_parallel_context(parallel_mode=mode)
    plain = parallel_options()
    set_algo_parameters(**{parameter: True})
    made = parallel_options()
    assert (f"{parameter} has no effect in {mode}: it is read in auto_parallel" in said) == (made == plain), (said, made)


def test_a_default_that_is_set_is_no_word(said):
    for mode in MODES:
        train_options(mode, full_batch=False, parameter_broadcast=False, enable_parallel_optimizer=False)
        if mode != "hybrid_parallel":
            train_options(mode, gradients_mean=False)
    assert not said


def test_hybrid_parallel_says_that_it_takes_no_sum(said):
    train_options("hybrid_parallel", gradients_mean=True)
    assert not said
    train_options("hybrid_parallel", gradients_mean=False)
    assert len(said) == 1 and min(said).startswith("gradients_mean=False has no effect in hybrid_parallel: "), said


@pytest.mark.parametrize("mode", MODES)
def test_strategies_split_or_a_word_says_that_they_do_not(mode, said):
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.matmul = ops.MatMul().shard(((1, 1), (1, 1)))

        def construct(self, x):
            return self.matmul(x, x)

    context.set_auto_parallel_context(parallel_mode=mode)
    x = Tensor(np.ones((2, 2), np.float32))
    Net()(x)
    words = [line for line in said if line.startswith("strategies (shard, set_strategy) have no effect in " + mode)]
    assert len(words) == (0 if mode in ("semi_auto_parallel", "auto_parallel") else 1), said


def test_a_reason_names_the_modes_or_what_is_done_instead():
    assert unused_lines({}, {"full_batch"}, "hybrid_parallel") == [
        "full_batch has no effect in hybrid_parallel: it is read in data_parallel, semi_auto_parallel, auto_parallel"]
    assert unused_lines({}, {"comm_fusion"}, "data_parallel")[0].endswith("from the measured links, and no result depends on it")
