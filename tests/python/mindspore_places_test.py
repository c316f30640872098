"""Places: modules inside of the reference's packages from which published scripts import. What they have there is what stands elsewhere."""
import importlib
import importlib.util

import mindspore as ms
import mindspore.common.api as early_api
import mindspore.nn.layer.activation as activation
import mindspore.ops.functional as F
import numpy as np
import pytest
from mindspore import Tensor, _places, _refused, nn, ops
from mindspore._stand_ins import refusal

SAME = """
mindspore.amp DynamicLossScaleManager mindspore
mindspore.common mutable mindspore
mindspore.common constexpr mindspore
mindspore.common.api jit mindspore
mindspore.common.lazy_inline lazy_inline mindspore
mindspore.common.mutable mutable mindspore
mindspore.communication.management get_rank mindspore.communication
mindspore.dataset.engine.datasets Dataset mindspore.dataset
mindspore.dataset.engine.datasets_vision MnistDataset mindspore.dataset
mindspore.dataset.transforms.py_transforms Compose mindspore.dataset.transforms
mindspore.dataset.transforms.transforms TypeCast mindspore.dataset.transforms
mindspore.dataset.vision.py_transforms ToTensor mindspore.dataset.vision
mindspore.dataset.vision.utils Inter mindspore.dataset.vision
mindspore.nn.cell SequentialCell mindspore.nn
mindspore.nn.layer Dense mindspore.nn
mindspore.nn.layer.activation get_activation mindspore.nn
mindspore.nn.layer.basic Dense mindspore.nn
mindspore.nn.layer.container CellList mindspore.nn
mindspore.nn.layer.conv Conv2d mindspore.nn
mindspore.nn.layer.normalization LayerNorm mindspore.nn
mindspore.nn.loss.loss LossBase mindspore.nn
mindspore.nn.optim.adam AdamWeightDecay mindspore.nn
mindspore.nn.optim.lamb Lamb mindspore.nn
mindspore.nn.optim.optimizer Optimizer mindspore.nn
mindspore.nn.utils no_init_parameters mindspore.nn
mindspore.nn.wrap.cell_wrapper GradAccumulationCell mindspore.nn
mindspore.nn.wrap.grad_reducer DistributedGradReducer mindspore.nn
mindspore.ops.composite.base GradOperation mindspore.ops
mindspore.ops.function.math_func matmul mindspore.ops
mindspore.ops.functional flatten mindspore.ops
mindspore.ops.operations.array_ops Concat mindspore.ops
mindspore.ops.operations.math_ops MatMul mindspore.ops
mindspore.ops.primitive constexpr mindspore.ops
mindspore.parallel.algo_parameter_config set_algo_parameters mindspore
mindspore.parallel.nn GradAccumulation mindspore.nn.GradAccumulationCell
mindspore.parallel.nn MicroBatchInterleaved mindspore.nn
mindspore.parallel.nn Pipeline mindspore.nn.PipelineCell
mindspore.parallel.nn.parallel_grad_reducer PipelineGradReducer mindspore.parallel.nn
mindspore.parallel.function reshard mindspore.parallel
mindspore.runtime synchronize mindspore
mindspore.train.callback EarlyStopping mindspore
mindspore.train.callback._callback Callback mindspore
mindspore.train.callback._checkpoint ModelCheckpoint mindspore
mindspore.train.callback._summary_collector SummaryCollector mindspore
mindspore.train.metrics.accuracy Accuracy mindspore
mindspore.train.serialization export mindspore
mindspore.train.summary.summary_record SummaryRecord mindspore.train
""".strip().splitlines()

REFUSED = """
mindspore.boost AutoBoost|TrainOneStepCell trains
mindspore.boost.grad_accumulation gradient_accumulation_op|TrainOneStepCell trains
mindspore._c_expression MSContext|the reference's library of C
mindspore.common RowTensor|sparse tensors are not available
mindspore.common.api _pynative_executor|gradients are made where training
mindspore.experimental.optim AdamW|use nn.Adam
mindspore.hal get_device_properties|all operators run on the CPU
mindspore.mint.nn Linear|use mindspore.ops and mindspore.nn
mindspore.nn.layer.rnn_cells RNNCellBase|compose it of ops' functions
mindspore.ops.auto_generate FlashAttentionScore|kernel of one device
mindspore.ops.operations._grad_ops ReluGrad|compose it of the functions
mindspore.parallel.distributed DistributedDataParallel|set_auto_parallel_context
mindspore.parallel.strategy get_strategy_metadata|parameter_layout_dict of the network
mindspore.parallel.strategy set_op_strategy_config|say how an operator, a cell or a function is split
mindspore.profiler Profiler|--trace
mindspore.rewrite SymbolTree|Python code
mindspore.runtime Stream|there are no streams
mindspore.scipy.linalg solve_triangular|SciPy
mindspore.mindrecord FileReader|MindRecord files are not read: .* NumpySlicesDataset
mindspore.mindrecord FileWriter|MindRecord files are not written: .*numpy.savez
mindspore.mindrecord TFRecordToMR|MindRecord files are not written
mindspore.dataset.engine.datasets MindDataset|TFRecord and MindRecord are not read: .*GeneratorDataset
mindspore.dataset Schema|GeneratorDataset.* says what columns there are
mindspore.dataset TFRecordDataset|TFRecord and MindRecord are not read: .*docs/compatibility.md
mindspore.ops.operations.debug_ops ScalarSummary|SummaryRecord.add_value
mindspore.ops TensorSummary|SummaryRecord.add_value
mindspore.train OnRequestExit|SIGTERM
mindspore FlopsUtilizationCollector|tessera report
mindspore.train.callback FlopsUtilizationCollector|tessera report
mindspore.train.callback._landscape SummaryLandscape|Model.eval
""".strip().splitlines()


@pytest.mark.parametrize("row", SAME)
def test_a_place_has_what_stands_elsewhere(row):
    path, name, public = row.split()
    known = {}
    exec(f"from {path} import {name} as found", known)
    module, _, other = public.rpartition(".") if public.rpartition(".")[2][0].isupper() else (public, "", name)
    assert known["found"] is getattr(importlib.import_module(module), other)


@pytest.mark.parametrize("row", REFUSED)
def test_what_a_place_refuses_has_a_remedy(row):
    (path, name), remedy = row.partition("|")[0].split(), row.partition("|")[2]
    known = {}
    exec(f"from {path} import {name} as found", known)
    with pytest.raises(NotImplementedError, match=remedy):
        known["found"]()()  # an operator can be made


def test_a_refused_operator_is_made_where_a_script_is_imported_and_refused_where_it_is_called():
    status = ops.operations.NPUAllocFloatStatus()
    with pytest.raises(NotImplementedError, match="overflow shows in the gradients"):
        status()
    with pytest.raises(AttributeError, match="overflow shows in the gradients"):
        status.shape_of_things


# Functions of the reference beside the places of their names.
REFUSED_FUNCTIONS = {"data_sink", "enable_dynamic", "fft", "op_info_register", "parameter_broadcast", "recompute", "thor"}


@pytest.mark.parametrize("path", sorted({*_places.HOMES, *_refused.MODULES}))
def test_a_places_parent_has_it_or_a_function_of_its_name(path):
    module, (parent, _, own) = importlib.import_module(path), path.rpartition(".")
    found = getattr(importlib.import_module(parent), own)
    assert found is module or (own in REFUSED_FUNCTIONS if refusal(found) else callable(found))


def test_all_names_of_a_place_are_imported_at_once():
    for path, own in (("mindspore.nn.layer.basic", nn.Dense), ("mindspore.ops.operations.math_ops", ops.MatMul), ("mindspore.common.mutable", ms.mutable)):
        known = {}
        exec(f"from {path} import *", known)
        assert known[own.__name__] is own and "tessera" not in known


def test_scripts_may_ask_whether_a_place_is_there():
    for path in sorted({*_places.HOMES, *_refused.MODULES}):
        assert importlib.util.find_spec(path).name == path


def test_operators_are_imported_from_modules_of_ops():
    from mindspore.ops import array_ops
    from mindspore.ops.auto_generate import gen_ops_prim
    from mindspore.ops.operations import array_ops as same, linalg_ops, other_ops
    assert array_ops is same and array_ops.Concat is ops.Concat and gen_ops_prim.MatMul is ops.MatMul
    assert F.array_ops is array_ops and other_ops.Load and refusal(linalg_ops.Svd)


def test_places_are_attributes_unless_a_function_has_their_name():
    assert activation.ReLU is nn.ReLU and early_api.jit is ms.jit and ms.train.callback._callback.Callback is ms.Callback
    assert callable(ms.common.mutable) and ms.train.metrics.auc is ms.train.auc and callable(ops.function.grad)
    assert F.flatten(Tensor(np.ones((2, 3, 4)), ms.float32), start_dim=0).shape == (24, )


def test_a_misspelt_name_at_a_place_is_an_error_that_names_it():
    with pytest.raises(ImportError, match="mindspore.nn.loss.loss.LosBase is not part of Tessera's mindspore package"):
        from mindspore.nn.loss.loss import LosBase  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match="mindspore.nn.layer.convs is not part of"):
        importlib.import_module("mindspore.nn.layer.convs")


def test_training_steps_ask_the_context_for_their_mode():
    from mindspore.parallel import _utils
    assert _utils._get_parallel_mode() == "stand_alone" and _utils._get_device_num() == 1 and _utils._get_global_rank() == 0
    assert not _utils._is_in_auto_parallel_mode() and not _utils._get_gradients_mean() and _utils._get_pipeline_stages() == 1
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", gradients_mean=True)
    try:
        assert _utils._is_in_auto_parallel_mode() and _utils._is_parallel_mode() and _utils._get_gradients_mean()
    finally:
        ms.reset_auto_parallel_context()
    with pytest.raises(NotImplementedError, match="get_auto_parallel_context hold"):
        _utils._slice_parameter(None)


def test_checks_of_arguments_are_those_of_both_generations():
    from mindspore import _checkparam
    from mindspore._checkparam import Rel, Validator, args_type_check
    assert Validator.check_positive_int(3, "depth", "Net") == 3 == _checkparam.check_value_type("depth", 3, [int, str], "Net")
    assert _checkparam.check_float_range(0.5, 0, 1, _checkparam.INC_NEITHER, "rate", "Net") == 0.5
    assert _checkparam.check_int(3, [2, 3], Rel.IN) == 3 and _checkparam.check_value_type("depth", None, [int, None]) is None
    for check, error, message in [
        (lambda: Validator.check_positive_int(0, "depth", "Net"), ValueError, r"For 'Net', the 'depth' must be int and must > 0, but got '0' with type 'int'"),
        (lambda: _checkparam.check_positive_int(1.0, "depth", "Net"), TypeError, r"For 'Net', the 'depth' must be int, but got 'float'"),
        (lambda: _checkparam.check_value_type("depth", True, [int], "Net"), TypeError, r"the type of 'depth' should be 'int', but got type 'bool'"),
        (lambda: _checkparam.check_float_range(1.0, 0, 1, Rel.INC_LEFT, "rate"), ValueError, r"The 'rate' must be in range of \[0, 1\), but got 1.0"),
        (lambda: _checkparam.check_string("a", ["b"], "mode", "Net"), ValueError, r"'mode' must be str and must be in '\['b'\]', but got 'a'"),
        (lambda: _checkparam.check_int(4, [2, 3], Rel.IN, "depth"), ValueError, r"The 'depth' must be int and must be in \[2, 3\], but got '4'"),
        (lambda: _checkparam.check_int(3, 2, Rel.IN), TypeError, "The argument 'value' must be a list or such, in which IN and NOT_IN look, but got 'int'"),
        (lambda: _checkparam.check_int(3, 2, Rel.INC_LEFT), ValueError, "'rel' must be one of EQ, NE, LT, LE, GT, GE, IN and NOT_IN, but got 8"),
        (lambda: _checkparam.check_int_range(3, 2, 4, Rel.EQ), ValueError, "'rel' must be one of INC_NEITHER, INC_LEFT, INC_RIGHT and INC_BOTH, but got 1"),
        (lambda: _checkparam.check_value_type("depth", "a", [int, None]), TypeError, "of 'depth' should be one of 'int, NoneType', but got type 'str'"),
        (lambda: _checkparam.check_bool(1, "flag"), TypeError, "The 'flag' must be a bool, but got int")]:
        with pytest.raises(error, match=message):
            check()

    @args_type_check(depth=int, name=(str, type(None)))
    def made(depth, name=None):
        return depth

    assert made(2) == 2 and made(2, "x") == 2
    with pytest.raises(TypeError, match="The parameter 'depth' must be <class 'int'>, but got <class 'str'>"):
        made("2")


def test_overflow_of_a_gradient_is_a_number_that_scripts_add_up():
    from mindspore.nn.wrap.loss_scale import _grad_overflow
    flags = ops.HyperMap()(ops.partial(_grad_overflow), (Tensor([np.inf, 1.0], ms.float32), Tensor(np.ones((2, 2)), ms.float16)))
    assert [flag.asnumpy().tolist() for flag in flags] == [[1.0], [0.0]] and ops.AddN()(flags).asnumpy() == 1


def test_what_only_the_references_processes_have_may_be_set():
    from mindspore.dataset import config
    assert config.get_enable_shared_mem() and config.set_enable_shared_mem(False) is None and not config.get_enable_shared_mem()
    config.set_enable_shared_mem(True)
    with pytest.raises(NotImplementedError, match="a sample that cannot be read is an error"):
        config.set_error_samples_mode("skip")


def test_parameters_made_without_a_value_have_one_where_they_are_used():
    with nn.utils.no_init_parameters():
        network = nn.Dense(2, 3, weight_init="ones", has_bias=False)
    assert network(Tensor(np.ones((1, 2)), ms.float32)).asnumpy().tolist() == [[2, 2, 2]]


def test_fans_are_those_that_initializers_reckon_with():
    from mindspore.common.initializer import _calculate_correct_fan, _calculate_fan_in_and_fan_out
    assert _calculate_fan_in_and_fan_out((8, 4, 3, 3)) == (36, 72) and _calculate_correct_fan((8, 4), "fan_out") == 8
    with pytest.raises(ValueError, match="fewer than 2 dimensions"):
        _calculate_fan_in_and_fan_out((8, ))
