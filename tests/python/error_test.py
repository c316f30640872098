"""The package mindspore: which error a wrong call raises, and where scripts may read the text, its words."""
import re
import tempfile
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import Parameter, ParameterTuple, Tensor, communication, context, nn, ops
from mindspore.common.initializer import initializer
from mindspore.dataset import transforms, vision
from mindspore.ops.operations import comm_ops

F32 = np.float32


pytestmark = pytest.mark.usefixtures("fresh_context")


def weight(shape=(2,), name="w"):
    return Parameter(Tensor(np.ones(shape, F32)), name=name)


def rows():
    return ds.NumpySlicesDataset(np.ones((4, 2), F32), ["x"])


def traced(function, *shapes, **settings):
    """function(tensors of these shapes) inside construct(), under these parallel settings."""
    class Net(nn.Cell):
        def construct(self, *inputs):
            return function(*inputs)

    if settings:
        context.set_auto_parallel_context(**settings)
    return Net()(*[Tensor(np.ones(shape, F32)) for shape in shapes])


def in_pynative_mode(call):
    context.set_context(mode=context.PYNATIVE_MODE)
    return call()


def launched(table=None, **environment):
    """init() in a process that a launcher has told this."""
    def call():
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            for name in ("RANK_ID", "RANK_SIZE", "DEVICE_ID", "RANK_TABLE_FILE", "MINDSPORE_HCCL_CONFIG_PATH", "OMPI_COMM_WORLD_SIZE"):
                patch.delenv(name, raising=False)
            if table is not None:
                path = Path(folder) / "rank_table.json"
                path.write_text(table)
                patch.setenv("RANK_TABLE_FILE", str(path))
            for name, value in environment.items():
                patch.setenv(name, value)
            communication.init()
    return call


FOLDER = tempfile.mkdtemp(prefix="tessera-error-test-")
EMPTY = FOLDER + "/empty.ckpt"
Path(EMPTY).touch()
TABLE = '{"server_list": [{"server_id": "10.0.0.1", "device": [{"device_id": "0", "device_ip": "", "rank_id": "0"}]}], "server_count": "1"}'


def transformer(**settings):
    """A small Transformer with these settings."""
    return nn.transformer.Transformer(**{**dict(hidden_size=8, batch_size=2, ffn_hidden_size=8, src_seq_length=4, tgt_seq_length=4, encoder_layers=1,
                                                decoder_layers=1, num_heads=2), **settings})


def config(**settings):
    """How a Transformer is spread."""
    return nn.transformer.TransformerOpParallelConfig(**settings)


def parallel(**settings):
    return lambda: context.set_auto_parallel_context(**settings)


SEMI = dict(parallel_mode="semi_auto_parallel", device_num=32)

# what is called wrongly: [(call, error, words of its text)]
REFUSED = {
    "set_context": [
        (lambda: context.set_context(unknown=1), ValueError, "unknown is not recognized"),
        (lambda: context.set_context(mode=2), ValueError, "'mode' should be context.GRAPH_MODE"),
        (lambda: context.set_context(device_target="TPU"), ValueError, "'device_target' must be one of"),
        (lambda: context.set_context(device_id=-1), ValueError, "'device_id' must be in range"),
        (lambda: context.set_context(device_id=4096), ValueError, "'device_id' must be in range"),
        (lambda: context.set_context(1), TypeError, "positional"),
        *[(lambda key=key, value=value: context.set_context(**{key: value}), TypeError, f"'{key}' must be {kind}") for key, value, kind in (
            ("mode", "0", "int"), ("device_target", 3, "str"), ("device_id", "0", "int"), ("device_id", True, "int"), ("save_graphs", "yes", "bool"),
            ("save_graphs_path", 3, "str"), ("enable_graph_kernel", "x", "bool"), ("max_device_memory", 3, "str"))],
        *[(lambda value=value: context.set_context(max_device_memory=value), ValueError, 'a positive number and "GB"')
          for value in ("3", "3.5MB", "-1GB", "0GB", "0.0GB", "GB")],
        (lambda: context.get_context("unknown"), ValueError, "unknown is not recognized"),
        (lambda: ms.set_seed(-1), ValueError, "greater or equal to 0"),
        (lambda: ms.set_seed(1.5), TypeError, "must be type of int"),
    ],
    "set_auto_parallel_context": [
        (parallel(unknown=1), ValueError, "unknown is not recognized"),
        (lambda: context.get_auto_parallel_context("unknown"), ValueError, "'unknown' is not recognized"),
        (lambda: context.set_auto_parallel_context(1), TypeError, "positional"),
        *[(parallel(**{key: value}), ValueError, f"'{key}' must be in range") for key, value in (
            ("device_num", 0), ("device_num", 4097), ("global_rank", -1), ("global_rank", 4096), ("pipeline_stages", 0),
            ("grad_accumulation_step", 0), ("optimizer_weight_shard_size", 1), ("optimizer_weight_shard_size", 0))],
        *[(parallel(**{key: "8"}), TypeError, f"'{key}' must be int") for key in (
            "device_num", "global_rank", "pipeline_stages", "grad_accumulation_step", "optimizer_weight_shard_size")],
        *[(parallel(**{key: 1}), TypeError, f"'{key}' must be bool") for key in (
            "gradients_mean", "gradient_fp32_sync", "loss_repeated_mean", "parameter_broadcast", "full_batch", "enable_parallel_optimizer",
            "optimizer_weight_shard_aggregated_save", "enable_alltoall")],
        (parallel(mirror_mean=1), TypeError, "'gradients_mean' must be bool"),
        *[(parallel(**{key: "wrong"}), ValueError, f"'{key}' must be one of") for key in ("parallel_mode", "search_mode", "communi_parallel_mode")],
        *[(parallel(**{key: 3}), TypeError, f"'{key}' must be str") for key in ("parallel_mode", "search_mode", "communi_parallel_mode")],
        (parallel(strategy_ckpt_config="a"), TypeError, "must be dict"),
        (parallel(strategy_ckpt_config={"wrong": "a"}), ValueError, "'strategy_ckpt_config' has the keys"),
        (parallel(strategy_ckpt_config={"save_file": 3}), TypeError, "'save_file' must be str"),
        (parallel(strategy_ckpt_config={"only_trainable_params": "yes"}), TypeError, "'only_trainable_params' must be bool"),
        (parallel(auto_parallel_search_mode="wrong"), ValueError, "'search_mode' must be one of"),
        *[(parallel(**{key: 3}), TypeError, f"'{key}' must be str") for key in (
            "strategy_ckpt_save_file", "strategy_ckpt_load_file", "group_ckpt_save_file")],
        (parallel(dataset_strategy="wrong"), ValueError, "'full_batch' or 'data_parallel'"),
        (parallel(dataset_strategy=[1]), TypeError, "must be str or tuple"),
        (parallel(dataset_strategy=(1,)), TypeError, "must be tuples"),
        (parallel(dataset_strategy=((1, "2"),)), TypeError, "tuples of ints"),
        (parallel(parallel_optimizer_config=3), TypeError, "must be dict"),
        (parallel(parallel_optimizer_config={"wrong": 1}), ValueError, "'parallel_optimizer_config'.*wrong"),
        (parallel(parallel_optimizer_config={"gradient_accumulation_shard": 1}), TypeError, "'gradient_accumulation_shard' must be bool"),
        (parallel(parallel_optimizer_config={"parallel_optimizer_threshold": "64"}), TypeError, "'parallel_optimizer_threshold' must be int"),
        (parallel(parallel_optimizer_config={"parallel_optimizer_threshold": -1}), ValueError, "'parallel_optimizer_threshold' must be"),
        (parallel(pipeline_config=3), TypeError, "must be dict"),
        (parallel(pipeline_config={"wrong": 1}), ValueError, "'pipeline_config'.*wrong"),
        (parallel(pipeline_config={"pipeline_interleave": 1}), TypeError, "'pipeline_interleave' must be bool"),
        (parallel(pipeline_config={"pipeline_scheduler": "2f2b"}), ValueError, "'pipeline_scheduler' must be one of"),
        (parallel(all_reduce_fusion_config=3), TypeError, "must be a list"),
        (parallel(all_reduce_fusion_config=[]), ValueError, "must not be empty"),
        (parallel(all_reduce_fusion_config=[-1, 2]), ValueError, "from at least 0"),
        (parallel(all_reduce_fusion_config=[1.5]), TypeError, "list of ints"),
        (parallel(all_reduce_fusion_config=[3, 2]), ValueError, "must rise"),
        (parallel(all_reduce_fusion_config=[2, 2]), ValueError, "must rise"),
        (parallel(comm_fusion=3), TypeError, "must be a dict"),
        (parallel(comm_fusion={"wrong": {"mode": "auto", "config": None}}), KeyError, "wrong"),
        (parallel(comm_fusion={"allreduce": {"mode": "wrong", "config": None}}), KeyError, "wrong"),
        (parallel(comm_fusion={"allreduce": {"mode": "auto"}}), KeyError, "'mode' and 'config'"),
        (parallel(comm_fusion={"allreduce": {"config": None}}), KeyError, "'mode' and 'config'"),
        (parallel(comm_fusion={"allreduce": {"mode": "auto", "config": None, "more": 1}}), KeyError, "'mode' and 'config'"),
        (parallel(comm_fusion={"allreduce": {"mode": "size", "config": "32"}}), TypeError, "wrong type str"),
        (parallel(comm_fusion={"allreduce": {"mode": "index", "config": "32"}}), TypeError, "wrong type str"),
        (parallel(comm_fusion={"allreduce": {"mode": "size", "config": 0}}), ValueError, "must be greater than 0"),
        (parallel(comm_fusion={"allreduce": {"mode": "index", "config": [3, 2]}}), ValueError, "must rise"),
        (parallel(comm_fusion={"allreduce": {"mode": "index", "config": []}}), ValueError, "must not be empty"),
        (parallel(comm_fusion={"allgather": {"mode": "index", "config": [1]}}), KeyError, "index"),
        (parallel(comm_fusion={"reducescatter": {"mode": "index", "config": [1]}}), KeyError, "index"),
        (parallel(comm_fusion={"allreduce": 3}), TypeError, "must be a dict"),
        (parallel(comm_fusion={"openstate": 1}), TypeError, "'openstate' must be bool"),
    ],
    "communication": [
        (lambda: communication.init(3), TypeError, "must be a string"),
        (lambda: communication.init("wrong"), RuntimeError, "must be one of 'hccl', 'nccl' and 'mccl'"),
        (lambda: communication.get_rank(3), TypeError, "must be type of string"),
        (lambda: communication.get_group_size(3), TypeError, "must be type of string"),
        (lambda: communication.get_local_rank(3), TypeError, "must be type of string"),
        (lambda: communication.get_local_rank_size(3), TypeError, "must be type of string"),
        (lambda: communication.create_group(3, [0]), TypeError, "must be type of string"),
        (lambda: communication.destroy_group(3), TypeError, "must be type of string"),
        (lambda: communication.get_world_rank_from_group_rank("g", "0"), TypeError, "must be type of int"),
        (lambda: communication.get_group_rank_from_world_rank("0", "g"), TypeError, "must be type of int"),
        (launched(RANK_SIZE="2"), RuntimeError, "Get hccl rank_table_file failed, please export MINDSPORE_HCCL_CONFIG_PATH or RANK_TABLE_FILE."),
        (launched(RANK_SIZE="2", RANK_ID="0"), RuntimeError, "Get hccl rank_table_file failed"),
        (launched(RANK_TABLE_FILE="/none/table.json", RANK_ID="0"), RuntimeError, "/none/table.json"),
        (launched(TABLE), RuntimeError, "Environment variables RANK_ID has not been exported"),
        (launched(TABLE, RANK_ID="3"), RuntimeError, "RANK_ID 3 is not in"),
        (launched("{wrong", RANK_ID="0"), RuntimeError, "is no rank table"),
        (launched("{}", RANK_ID="0"), RuntimeError, "is no rank table"),
        (launched(MS_WORKER_NUM="8"), RuntimeError, "The MS_WORKER_NUM is 8, but MS_ROLE is not set: .* tessera run -n 8"),
        (launched(MS_ROLE="MS_WORKER"), RuntimeError, "The MS_WORKER_NUM should not be null"),
        (launched(MS_ROLE="MS_WORKER", MS_WORKER_NUM="8", MS_SCHED_PORT="6667"), RuntimeError, "The MS_SCHED_HOST should not be null"),
        (launched(MS_ROLE="MS_WORKER", MS_WORKER_NUM="8", MS_SCHED_PORT="66670"), RuntimeError, "The MS_SCHED_PORT must be a number from 1 to 65535"),
        (launched(MS_ROLE="MS_PSERVER", MS_WORKER_NUM="8", MS_SCHED_HOST="h", MS_SCHED_PORT="6667"), RuntimeError, "there are no servers unless the script calls set_ps_context"),
        (launched(MS_ROLE="WORKER", MS_WORKER_NUM="8", MS_SCHED_HOST="h", MS_SCHED_PORT="6667"), RuntimeError, "must be MS_SCHED, MS_WORKER or MS_PSERVER"),
        (lambda: communication.get_rank(), RuntimeError, "init"),
        (lambda: communication.get_group_size(), RuntimeError, "init"),
    ],
    "Tensor": [
        (lambda: Tensor("text"), TypeError, "should be one of Tensor, float, int"),
        (lambda: Tensor(), ValueError, "must be given"),
        (lambda: Tensor({}), TypeError, "should be one of Tensor"),
        (lambda: Tensor([1.0]).set_data(Tensor([1.0, 2.0])), ValueError, "cannot take a value of"),
    ],
    "Parameter": [
        (lambda: Parameter(True), ValueError, "can not be `bool`"),
        (lambda: Parameter(1.0, name=3), ValueError, "should be 'string' or 'None'"),
        (lambda: Parameter(1.0, name="x" * 1025), ValueError, "should be less than 1024"),
        *[(lambda key=key: Parameter(1.0, **{key: 1}), TypeError, f"`{key}` must be bool")
          for key in ("requires_grad", "layerwise_parallel", "parallel_optimizer")],
        *[(lambda key=key: setattr(weight(), key, 1), TypeError, f"`{key}` must be bool")
          for key in ("requires_grad", "layerwise_parallel", "parallel_optimizer")],
        (lambda: setattr(weight(), "comm_fusion", -1), ValueError, "must be at least 0"),
        (lambda: setattr(weight(), "comm_fusion", "1"), TypeError, "must be int"),
        (lambda: weight().set_data(Tensor(np.ones(3, F32))), ValueError,
         r"Can not change the shape of Parameter which has been initialized. Current shape is \(2,\), and incoming is \(3,\)."),
        (lambda: weight().set_data(1), TypeError, "must be .*Tensor"),
        (lambda: weight().set_data(Tensor(np.ones(2, F32)), slice_shape=1), TypeError, "`slice_shape` must be bool"),
        (lambda: weight().add_pipeline_stage("0"), TypeError, "'stage'"),
        (lambda: weight().add_pipeline_stage(-1), TypeError, "'stage'"),
        (lambda: weight().set_param_ps(), RuntimeError, "there are no parameter servers: 1\\) call set_ps_context"),
        (lambda: weight().set_param_ps(1), TypeError, "'init_in_server' must be bool"),
        (lambda: ParameterTuple([1]), TypeError, "should be 'Parameter' collection"),
        (lambda: ParameterTuple([weight()]).clone(3), TypeError, "'prefix' must be string"),
    ],
    "initializer": [
        (lambda: initializer("wrong", [2]), ValueError, "'init' is unknown"),
        (lambda: initializer([], [2]), TypeError, "type of the 'init' argument"),
    ],
    "nn.Cell": [
        (lambda: nn.Cell()(Tensor(1.0)), AttributeError, "'construct' of Cell is not defined"),
        (lambda: nn.Cell().insert_child_to_cell("a.b", nn.ReLU()), KeyError, "without '.'"),
        (lambda: nn.Cell().insert_child_to_cell("", nn.ReLU()), KeyError, "child_name"),
        (lambda: nn.Cell().insert_child_to_cell("a", 1), TypeError, "must be 'Cell'"),
        (lambda: nn.Cell().insert_param_to_cell("", weight()), KeyError, "None or empty"),
        (lambda: nn.Cell().insert_param_to_cell("a.b", weight()), KeyError, "should not contain '.'"),
        (lambda: nn.Cell().insert_param_to_cell("a", 1), TypeError, "must be 'Parameter'"),
        (lambda: nn.Cell().set_comm_fusion(-1), ValueError, "int >= 0"),
        (lambda: nn.Cell().set_param_ps(), RuntimeError, "there are no parameter servers: 1\\) call set_ps_context"),
        (lambda: nn.Cell().set_param_ps(1), TypeError, "'recurse' must be bool"),
        (lambda: nn.Cell().update_parameters_name(1), TypeError, "'prefix' must be str"),
        (lambda: nn.Cell().update_parameters_name("a.", 1), TypeError, "'recurse' must be bool"),
        (lambda: setattr(nn.Cell(), "pipeline_stage", True), TypeError, "'pipeline_stage' must be int"),
        (lambda: setattr(nn.Cell(), "pipeline_stage", 1.5), TypeError, "'pipeline_stage' must be int"),
        (lambda: setattr(nn.Cell(), "pipeline_stage", -1), ValueError, "'pipeline_stage' can not be less than 0"),
        (lambda: nn.CellList([1]), TypeError, "subclass of Cell"),
        (lambda: nn.CellList([nn.ReLU()])[1], IndexError, "index must be in"),
        (lambda: nn.CellList([nn.ReLU()])["0"], TypeError, "type of index must be int"),
        (lambda: nn.get_activation("wrong"), KeyError, "'name' must be in"),
    ],
    "nn layers": [
        (lambda: nn.Dense(0, 2), ValueError, "'in_channels' must be greater than 0"),
        (lambda: nn.Dense(2, 0), ValueError, "'out_channels' must be greater than 0"),
        (lambda: nn.Dense(2.0, 2), TypeError, "'in_channels' must be int"),
        (lambda: nn.Dense(2, 2, has_bias=1), TypeError, "'has_bias' must be bool"),
        (lambda: nn.Dense(2, 2, activation=3), TypeError, "'activation' must be str or Cell"),
        (lambda: nn.Dense(2, 3, weight_init=Tensor(np.ones((2, 3), F32))), ValueError, "weight init shape error"),
        (lambda: nn.Dense(2, 3, bias_init=Tensor(np.ones(2, F32))), ValueError, "bias init shape error"),
        (lambda: nn.Conv2d(0, 1, 3), ValueError, "'in_channels' must be greater than 0"),
        (lambda: nn.Conv2d(1, "1", 3), TypeError, "'out_channels' must be int"),
        (lambda: nn.Conv2d(1, 1, 3, pad_mode="wrong"), ValueError, "'pad_mode' must be one of"),
        (lambda: nn.Conv2d(1, 1, 3, data_format="NHWC"), ValueError, "'data_format' must be NCHW"),
        (lambda: nn.Conv2d(1, 1, 0), ValueError, "'kernel_size'"),
        (lambda: nn.Conv2d(1, 1, 3.0), TypeError, "'kernel_size'"),
        (lambda: nn.Conv2d(1, 1, 3, stride=0), ValueError, "'stride'"),
        (lambda: nn.Conv2d(1, 1, 3, dilation=0), ValueError, "'dilation'"),
        (lambda: nn.Conv2d(1, 1, 3, group=0), ValueError, "'group' must be greater than 0"),
        (lambda: nn.Conv2d(4, 6, 3, group=4), ValueError, "divisible by 'group'"),
        (lambda: nn.Conv2d(1, 1, 3, padding=1), ValueError, "'padding' must be zero when 'pad_mode' is"),
        (lambda: nn.Conv2d(1, 1, 3, has_bias=1), TypeError, "'has_bias' must be bool"),
        (lambda: nn.BatchNorm2d(0), ValueError, "'num_features' must be greater than 0"),
        (lambda: nn.BatchNorm2d(2, momentum=1.1), ValueError, r"'momentum' must be in range \[0, 1\]"),
        (lambda: nn.BatchNorm2d(2, momentum=-0.1), ValueError, r"'momentum' must be in range \[0, 1\]"),
        (lambda: nn.BatchNorm2d(2, use_batch_statistics=1), TypeError, "'use_batch_statistics' must be bool or None"),
        (lambda: nn.BatchNorm2d(2, data_format="NHWC"), ValueError, "'data_format' must be NCHW"),
        (lambda: nn.LayerNorm(3), TypeError, "'normalized_shape' must be tuple"),
        (lambda: nn.MaxPool2d(pad_mode="wrong"), ValueError, "'pad_mode' must be"),
        (lambda: nn.MaxPool2d(kernel_size=0), ValueError, "'kernel_size'"),
        (lambda: nn.MaxPool2d(kernel_size="2"), TypeError, "'kernel_size'"),
        (lambda: nn.MaxPool2d(stride=0), ValueError, "'stride'"),
        (lambda: nn.AvgPool2d(pad_mode="wrong"), ValueError, "'pad_mode' must be"),
        (lambda: nn.Dropout(0), ValueError, r"'keep_prob' must be in range \(0, 1\]"),
        (lambda: nn.Dropout(1.5), ValueError, r"'keep_prob' must be in range \(0, 1\]"),
        (lambda: nn.Dropout("0.5"), TypeError, "'keep_prob' must be float"),
        (lambda: nn.Embedding(0, 2), ValueError, "'vocab_size' must be greater than 0"),
        (lambda: nn.Embedding(2, "2"), TypeError, "'embedding_size' must be int"),
    ],
    "nn losses": [
        (lambda: nn.MSELoss("wrong"), ValueError, r"'reduction' must be in \['mean', 'sum', 'none'\]"),
        (lambda: nn.L1Loss("wrong"), ValueError, "'reduction' must be in"),
        (lambda: nn.SoftmaxCrossEntropyWithLogits(reduction="wrong"), ValueError, "'reduction' must be in"),
        (lambda: nn.SoftmaxCrossEntropyWithLogits(sparse=1), TypeError, "'sparse' must be bool"),
    ],
    "nn optimizers": [
        (lambda: nn.Momentum([], 0.1, 0.9), ValueError, "must not be empty"),
        (lambda: nn.Momentum([1], 0.1, 0.9), TypeError, "Iterable type of 'Parameter' or 'dict'"),
        (lambda: nn.Momentum(1, 0.1, 0.9), TypeError, "Iterable type of 'Parameter' or 'dict'"),
        (lambda: nn.Momentum([weight(), {"params": [weight()]}], 0.1, 0.9), TypeError, "Iterable type of 'Parameter' or 'dict'"),
        (lambda: (lambda p: nn.Momentum([p, p], 0.1, 0.9))(weight()), RuntimeError, "twice"),
        (lambda: nn.Momentum([weight()], -0.1, 0.9), ValueError, "'learning_rate' must be a non-negative float"),
        (lambda: nn.Momentum([weight()], True, 0.9), TypeError, "'learning_rate' must not be bool"),
        (lambda: nn.Momentum([weight()], "0.1", 0.9), TypeError, "'learning_rate' must be int, float, Tensor or Iterable"),
        (lambda: nn.Momentum([weight()], Tensor([[0.1]]), 0.9), ValueError, "dimension should be 0 or 1"),
        (lambda: nn.Momentum([weight()], 0.1, -0.9), ValueError, "'momentum' must be at least 0.0"),
        (lambda: nn.Momentum([weight()], 0.1, "0.9"), TypeError, "'momentum' must be float"),
        (lambda: nn.Momentum([weight()], 0.1, 0.9, weight_decay=-1.0), ValueError, "'weight_decay' must be at least 0.0"),
        (lambda: nn.Momentum([weight()], 0.1, 0.9, weight_decay="0"), TypeError, "'weight_decay' must be float"),
        (lambda: nn.Momentum([weight()], 0.1, 0.9, loss_scale=0.0), ValueError, "'loss_scale' must be greater than 0.0"),
        (lambda: nn.Momentum([weight()], 0.1, 0.9, loss_scale="1"), TypeError, "'loss_scale' must be float"),
        (lambda: nn.Momentum([weight()], 0.1, 0.9, use_nesterov=1), TypeError, "'use_nesterov' must be bool"),
        (lambda: nn.Momentum([{"params": [weight()], "wrong": 1}], 0.1, 0.9), KeyError, "must be one of .*wrong"),
        (lambda: nn.Momentum([{"params": []}], 0.1, 0.9), ValueError, "empty group params"),
        (lambda: nn.Momentum([{"lr": 0.1}], 0.1, 0.9), ValueError, "empty group params"),
        (lambda: nn.Momentum([{"params": [weight()]}, {"order_params": [weight()], "lr": 1.0}], 0.1, 0.9), ValueError, "only include the 'order_params' key"),
        (lambda: nn.Momentum([{"params": [weight()]}, {"order_params": [weight()]}], 0.1, 0.9), ValueError, "order"),
        (lambda: nn.Momentum([{"params": [weight()], "lr": -1.0}], 0.1, 0.9), ValueError, "'learning_rate' must be a non-negative float"),
        (lambda: nn.Momentum([{"params": [weight()], "weight_decay": -1.0}], 0.1, 0.9), ValueError, "'weight_decay' must be at least 0.0"),
        (lambda: nn.Momentum([{"params": [weight()], "grad_centralization": 1}], 0.1, 0.9), TypeError, "'grad_centralization' must be bool"),
        (lambda: nn.SGD([weight()], 0.1, momentum=-1.0), ValueError, "'momentum' must be at least 0.0"),
        (lambda: nn.SGD([weight()], 0.1, dampening=-1.0), ValueError, "'dampening' must be at least 0.0"),
        (lambda: nn.SGD([weight()], 0.1, nesterov=1), TypeError, "'nesterov' must be bool"),
        (lambda: nn.SGD([weight()], 0.1, nesterov=True), ValueError, "nesterov"),
        *[(lambda made=made: made(beta1=1.0), ValueError, r"'beta1' must be in range \(0.0, 1.0\)") for made in (
            lambda **s: nn.Adam([weight()], **s), lambda **s: nn.AdamWeightDecay([weight()], **s))],
        *[(lambda made=made: made(beta2=0.0), ValueError, r"'beta2' must be in range \(0.0, 1.0\)") for made in (
            lambda **s: nn.Adam([weight()], **s), lambda **s: nn.AdamWeightDecay([weight()], **s))],
        *[(lambda made=made: made(eps=0.0), ValueError, "'eps' must be greater than 0.0") for made in (
            lambda **s: nn.Adam([weight()], **s), lambda **s: nn.AdamWeightDecay([weight()], **s))],
        *[(lambda made=made: made(beta1="0.9"), TypeError, "'beta1' must be float") for made in (
            lambda **s: nn.Adam([weight()], **s), lambda **s: nn.AdamWeightDecay([weight()], **s))],
        (lambda: nn.AdamWeightDecay([weight()], weight_decay=-1.0), ValueError, "'weight_decay' must be at least 0.0"),
        (lambda: nn.Lamb([weight()], 0.1, beta1=1.0), ValueError, r"'beta1' must be in range \(0.0, 1.0\)"),
        (lambda: nn.Adam([weight()], use_nesterov=1), TypeError, "'use_nesterov' must be bool"),
    ],
    "optimizer parallel": [
        *[(lambda mode=mode: (context.set_auto_parallel_context(parallel_mode=mode, enable_parallel_optimizer=True),
                              nn.AdamWeightDecay([weight()])), RuntimeError, "parallel optimizer.*not supported|parallel optimizer only")
          for mode in ("stand_alone", "hybrid_parallel")],
        (lambda: (context.set_auto_parallel_context(parallel_mode="data_parallel", device_num=4, enable_parallel_optimizer=True),
                  nn.AdamWeightDecay([weight()])), RuntimeError, "number of parameters 1.*less than.*4"),
    ],
    "learning rates": [
        *[(lambda f=f, kw=kw: f(**dict(dict(learning_rate=0.1, decay_rate=0.9, total_step=6, step_per_epoch=2, decay_epoch=1), **kw)), error, words)
          for f in (nn.exponential_decay_lr, nn.natural_exp_decay_lr, nn.inverse_decay_lr)
          for kw, error, words in ((dict(total_step=0), ValueError, "'total_step' must be greater than 0"),
                                   (dict(total_step=1.5), TypeError, "'total_step' must be int"),
                                   (dict(learning_rate=-0.1), ValueError, "'learning_rate' must be greater than 0.0"),
                                   (dict(is_stair=1), TypeError, "'is_stair' must be bool"))],
        (lambda: nn.cosine_decay_lr(0.1, 0.1, 6, 2, 1), ValueError, "'max_lr' must be greater than the 'min_lr'"),
        (lambda: nn.polynomial_decay_lr(0.1, 0.2, 6, 2, 1, 0.5), ValueError, "'learning_rate' must be greater than the 'end_learning_rate'"),
        (lambda: nn.piecewise_constant_lr([1, 2], [0.1]), ValueError, "must be same with the size"),
        (lambda: nn.piecewise_constant_lr([2, 1], [0.1, 0.2]), ValueError, "must rise"),
        (lambda: nn.piecewise_constant_lr(2, [0.1]), TypeError, "must be tuple or list"),
        (lambda: nn.warmup_lr(0.1, 6, 2, 0), ValueError, "'warmup_epoch' must be greater than 0"),
        (lambda: nn.ExponentialDecayLR(1, 0.9, 4), TypeError, "'learning_rate' must be float"),
        (lambda: nn.ExponentialDecayLR(0.1, 0.9, 0), ValueError, "'decay_steps' must be greater than 0"),
        (lambda: nn.CosineDecayLR(0.2, 0.1, 4), ValueError, "'max_lr' must be greater than the 'min_lr'"),
        (lambda: nn.WarmUpLR(0.1, 0), ValueError, "'warmup_steps' must be greater than 0"),
    ],
    "metrics": [
        (lambda: nn.Accuracy().eval(), RuntimeError, "number of samples is 0"),
        (lambda: nn.Accuracy().update(Tensor([[1.0]])), ValueError, "needs 2 inputs, but got 1"),
        (lambda: nn.Loss().update(Tensor([1.0, 2.0])), ValueError, "must have one element"),
        (lambda: nn.Accuracy("wrong"), TypeError, "'eval_type' must be in"),
        (lambda: nn.Accuracy("multilabel").update(Tensor([[1, 0]]), Tensor([1])), ValueError, "do not fit"),
        (lambda: nn.Accuracy().set_indexes((0, 1)), ValueError, "'indexes' must be a list"),
        (lambda: nn.Metric(), NotImplementedError, "Metric.clear"),
        (lambda: nn.TopKCategoricalAccuracy(0), ValueError, "'k' must be greater than 0"),
        (lambda: nn.TopKCategoricalAccuracy("5"), TypeError, "'k' should be int"),
    ],
    "primitives": [
        (lambda: ops.MatMul(transpose_a=1), TypeError, "'transpose_a' must be bool"),
        (lambda: ops.MatMul(transpose_b=1), TypeError, "'transpose_b' must be bool"),
        (lambda: ops.MatMul()(Tensor([1.0]), Tensor([1.0])), ValueError, "must be a 2D tensor"),
        (lambda: ops.MatMul()(Tensor(np.ones((2, 3), F32)), Tensor(np.ones((2, 3), F32))), ValueError, "matmul"),
        (lambda: ops.Add()(Tensor(np.ones((2, 3), F32)), Tensor(np.ones((2, 4), F32))), ValueError, "add"),
        (lambda: ops.ReduceSum(keep_dims=1), TypeError, "'keep_dims' must be bool"),
        (lambda: ops.ReduceSum()(Tensor([1.0]), 3), ValueError, "reduce_sum"),
        (lambda: ops.OneHot(axis="0"), TypeError, "'axis' must be int"),
        (lambda: ops.Squeeze(axis="0"), TypeError, "'axis' must be int or tuple"),
        (lambda: ops.Squeeze(0)(Tensor(np.ones((2, 3), F32))), ValueError, "squeeze"),
        (lambda: ops.Concat(axis="0"), TypeError, "'axis' must be int"),
        (lambda: ops.Softmax(axis="0"), TypeError, "'axis' must be int"),
        (lambda: ops.Reshape()(Tensor(np.ones((2, 3), F32)), (4, 2)), ValueError, "reshape"),
        (lambda: ops.Transpose()(Tensor(np.ones((2, 3), F32)), (0, 0)), ValueError, "transpose"),
        (lambda: ops.Argmax(output_type=ms.float32), TypeError, "'output_type' must be int32 or int64"),
        (lambda: ops.BroadcastTo([1]), TypeError, "'shape' must be a tuple"),
        (lambda: ops.Pad(((0, -1),)), ValueError, "must be at least 0"),
        (lambda: ops.StridedSlice(begin_mask="1"), TypeError, "'begin_mask' must be int"),
        (lambda: ops.StridedSlice(ellipsis_mask=3), ValueError, "only one bit"),
        (lambda: ops.tuple_to_array([1]), TypeError, "must be a tuple"),
        (lambda: ops.clip_by_value(Tensor([1.0])), ValueError, "at least one of"),
        (lambda: ops.MatMul().recompute(mode=1), TypeError, "'mode' should be bool"),
        (lambda: in_pynative_mode(lambda: ops.MatMul().recompute()), TypeError, "not supported in pynative mode"),
    ],
    "shard": [
        (lambda: ops.MatMul().shard([(1, 1), (1, 1)]), TypeError, "must be a tuple"),
        (lambda: ops.MatMul().shard((1, 1)), TypeError, "tuple of tuples of ints"),
        (lambda: ops.MatMul().shard(((1, 1.5), (1, 1))), TypeError, "tuple of tuples of ints"),
        (lambda: ops.MatMul().set_strategy(((True, 1), (1, 1))), TypeError, "tuple of tuples of ints"),
        (lambda: ops.MatMul().shard(None, ((1, 1),)), ValueError, "in_strategy"),
        # ReduceSum of (16, 32, 64) and Add of (32, 64, 96) on 32 devices.
        (lambda: traced(ops.ReduceSum().shard(((2, 2, 8, 16),)), (16, 32, 64), **SEMI), RuntimeError, r"the strategy \(2, 2, 8, 16\) has 4 values, but the shape .* has 3 dims"),
        (lambda: traced(ops.ReduceSum().shard(((2, 4, 8), (2, 4, 8))), (16, 32, 64), **SEMI), RuntimeError, "has 2 tuples, but there are 1 tensor inputs"),
        (lambda: traced(ops.Add().shard(((2, 4, 8), (2, 4, 8))), (32, 64, 96), (32, 64, 96), **SEMI), RuntimeError, "needs 64 devices, but there are 32"),
        (lambda: traced(ops.Add().shard(((2, 4, 6),)), (32, 64, 96), (32, 64, 96), **SEMI), RuntimeError, "has 1 tuples, but there are 2 tensor inputs"),
        (lambda: traced(ops.Add().shard(((2, 4, 4), (2, 6, 4))), (32, 64, 96), (32, 64, 96), **SEMI), RuntimeError, "needs 48 devices, but there are 32"),
        (lambda: traced(ops.Add().shard(((2, 4, 4), (4, 2, 4))), (32, 64, 96), (32, 64, 96), **SEMI), RuntimeError, "split the same dim"),
        (lambda: traced(ops.ReLU().shard(((0, 1),)), (4, 4), **SEMI), RuntimeError, "must be at least 1"),
        (lambda: traced(ops.ReLU().shard(((-2, 1),)), (4, 4), **SEMI), RuntimeError, "must be at least 1"),
        (lambda: traced(ops.ReLU().shard(((8, 1),)), (4, 4), **SEMI), RuntimeError, "more parts than it has elements"),
        (lambda: traced(ops.MatMul().shard(((8, 4), (4, 8))), (16, 16), (16, 16), **SEMI), RuntimeError, "needs 256 devices, but there are 32"),
        (lambda: traced(ops.MatMul().shard(((2, 4), (2, 2))), (16, 16), (16, 16), **SEMI), RuntimeError, "must split the dim that is summed over alike"),
        (lambda: traced(lambda i: ops.OneHot().shard(((16,), (), ()))(ops.cast(i, ms.int32), 64, Tensor(1.0), Tensor(0.0)), (64,),
                        parallel_mode="semi_auto_parallel", device_num=8), RuntimeError, "needs 16 devices, but there are 8"),
    ],
    "functions of functions": [
        *[(lambda key=key: ops.GradOperation(**{key: 1}), TypeError, f"'{key}' must be bool") for key in ("get_all", "get_by_list", "sens_param")],
        (lambda: ops.GradOperation(get_by_list=True)(nn.ReLU()), TypeError, "needs the weights"),
        (lambda: ops.GradOperation()(3), TypeError, "must be a function or a Cell"),
        (lambda: ops.grad(nn.ReLU(), None), ValueError, "can not both be None"),
        (lambda: ops.HyperMap()(3, (1,)), TypeError, "must be a function"),
        (lambda: ops.HyperMap()(lambda x, y: x, (1, 2), (1,)), ValueError, "same length"),
        (lambda: ops.MultitypeFuncGraph("f")("a"), TypeError, "has no form for"),
        (lambda: ops.MultitypeFuncGraph(3), TypeError, "'name' must be str"),
    ],
    "collectives": [
        *[(lambda made=made: made(3), TypeError, "'group' must be str") for made in (
            lambda g: ops.AllReduce(group=g), lambda g: ops.AllGather(g), lambda g: ops.ReduceScatter(group=g), lambda g: ops.Broadcast(0, g),
            lambda g: ops.AlltoAll(1, 0, 0, g), lambda g: ops.Send(0, 0, g), lambda g: ops.Receive(0, 0, (1,), ms.float32, g),
            lambda g: ops.NeighborExchange([], [], [], [], ms.float32, g))],
        (lambda: ops.AllReduce(3), TypeError, "'op' must be str"),
        (lambda: ops.AllReduce("mean"), ValueError, "'op' must be one of"),
        (lambda: ops.Broadcast("0"), TypeError, "'root_rank' must be int"),
        *[(lambda wrong=wrong: ops.AlltoAll(*wrong), TypeError, "must be int") for wrong in (("2", 0, 0), (2, 0.0, 0), (2, 0, True))],
        (lambda: ops.AllReduce(), RuntimeError, "init"),
        (lambda: ops.AllGather(), RuntimeError, "init"),
        (lambda: comm_ops.ReduceOp.WRONG, AttributeError, "WRONG"),
    ],
    "recompute": [
        (lambda: nn.Cell().recompute(wrong=True), ValueError, "wrong"),
        (lambda: in_pynative_mode(lambda: nn.Cell().recompute()), TypeError, "pynative mode"),
        (lambda: (lambda cell: (cell.recompute(), cell.recompute()))(nn.ReLU()), RuntimeError, "recompute"),
        (lambda: (lambda cells: (cells.recompute(), cells[0].recompute()))(nn.SequentialCell(nn.ReLU())), RuntimeError, "cannot be recomputed"),
        (lambda: nn.Cell().recompute(mp_comm_recompute=1), TypeError, "'mp_comm_recompute' must be bool"),
    ],
    "steps of training": [
        (lambda: nn.TrainOneStepWithLossScaleCell(nn.ReLU(), nn.SGD([weight()]), 8.0), TypeError, "'scale_sense' must be Cell or Tensor"),
        (lambda: nn.TrainOneStepWithLossScaleCell(nn.ReLU(), nn.SGD([weight()]), Tensor([8.0, 8.0])), ValueError, "shape of 'scale_sense'"),
        (lambda: nn.DynamicLossScaleUpdateCell(0, 2, 1), ValueError, "'loss_scale_value' must be greater than 0"),
        (lambda: nn.DynamicLossScaleUpdateCell(8, "2", 1), TypeError, "'scale_factor' must be a number"),
        (lambda: nn.DynamicLossScaleUpdateCell(8, 2, 0), ValueError, "'scale_window' must be greater than 0"),
        (lambda: nn.WithEvalCell(nn.ReLU(), nn.MSELoss(), 1), TypeError, "'add_cast_fp32' must be bool"),
        (lambda: nn.ParameterUpdate(1), TypeError, "'param' must be Parameter"),
        (lambda: nn.ReLU().to_float(ms.int32), ValueError, "'dst_type' must be float32, float16 or bfloat16"),
        (lambda: ms.Model(nn.ReLU(), amp_level="O9"), ValueError, "amp_level"),
        (lambda: ms.Model(nn.ReLU(), boost_level="O1"), RuntimeError, "boost_level=O1 is not available"),
    ],
    "nn.transformer": [
        (lambda: transformer(hidden_size=10, num_heads=3), ValueError, "hidden_size|num_heads"),
        (lambda: transformer(num_heads=2, parallel_config=config(model_parallel=3)), ValueError, "num_heads|model_parallel"),
        (lambda: transformer(ffn_hidden_size=9, parallel_config=config(model_parallel=2)), ValueError, "ffn_hidden_size|model_parallel"),
        (lambda: transformer(hidden_dropout_rate=1.0), ValueError, "dropout"),
        (lambda: transformer(attention_dropout_rate=-0.1), ValueError, "dropout"),
        (lambda: transformer(hidden_size="8"), TypeError, "'hidden_size' must be int"),
        (lambda: transformer(encoder_layers=0), ValueError, "'encoder_layers' must be greater than 0"),
        (lambda: transformer(hidden_act="wrong"), (KeyError, ValueError), "wrong"),
        (lambda: transformer(use_past=True), NotImplementedError, "use_past"),
        (lambda: transformer(parallel_config=1), TypeError, "parallel_config"),
        (lambda: config(data_parallel=0), ValueError, "'data_parallel' must be greater than 0"),
        (lambda: config(model_parallel="2"), TypeError, "'model_parallel' must be int"),
        (lambda: config(vocab_emb_dp=1), TypeError, "'vocab_emb_dp' must be bool"),
        (lambda: config(optimizer_shard=1), TypeError, "'optimizer_shard' must be bool"),
        (lambda: config(recompute=1), TypeError, "'recompute' must be a TransformerRecomputeConfig"),
        (lambda: nn.transformer.VocabEmbedding(0, 4), ValueError, "'vocab_size' must be greater than 0"),
        (lambda: nn.transformer.VocabEmbedding(4, 4, 1), TypeError, "'parallel_config' must be"),
        (lambda: nn.transformer.AttentionMask(0), ValueError, "'seq_length' must be greater than 0"),
        (lambda: nn.transformer.CrossEntropyLoss(1), TypeError, "must be OpParallelConfig"),
    ],
    "Model": [
        (lambda: ms.Model(1), TypeError, "'network' must be Cell"),
        (lambda: ms.Model(nn.ReLU(), metrics={"wrong"}), KeyError, "wrong"),
        (lambda: ms.Model(nn.ReLU(), metrics=3), TypeError, "must be None, dict or set"),
        (lambda: ms.Model(nn.ReLU(), metrics={"mine": 3}), TypeError, "its values must be Metric"),
        (lambda: ms.Model(nn.ReLU(), metrics={3: nn.MSE()}), TypeError, "its keys must be string"),
        (lambda: ms.Model(nn.ReLU(), wrong=1), ValueError, "wrong"),
        (lambda: ms.Model(nn.ReLU()).train(0, None), ValueError, "'epoch' must be greater than 0"),
        (lambda: ms.Model(nn.ReLU()).train(1.5, None), TypeError, "'epoch' must be int"),
        (lambda: ms.Model(nn.ReLU()).train(1, None, sink_size=0), ValueError, "equal to -1 or positive"),
        (lambda: ms.Model(nn.ReLU()).train(1, None, sink_size=-2), ValueError, "equal to -1 or positive"),
        (lambda: ms.Model(nn.ReLU()).train(1, None, dataset_sink_mode=1), TypeError, "'dataset_sink_mode' must be bool"),
        (lambda: ms.Model(nn.ReLU()).train(1, 3), TypeError, "data set"),
        (lambda: ms.Model(nn.ReLU()).train(1, rows().batch(2), callbacks=[1]), TypeError, "must be Callback"),
        (lambda: ms.Model(nn.ReLU()).eval(None), ValueError, "'metrics' can not be None or empty"),
        (lambda: ms.Model(nn.ReLU()).predict(2, Tensor([1.0])), TypeError, "without a number of epochs"),
    ],
    "callbacks": [
        (lambda: ms.LossMonitor(-1), ValueError, "'per_print_times' must be int and >= 0"),
        (lambda: ms.LossMonitor(1.5), ValueError, "'per_print_times' must be int and >= 0"),
        *[(lambda key=key: ms.CheckpointConfig(**{key: -1}), ValueError, f"'{key}' must be int and >= 0") for key in (
            "save_checkpoint_steps", "save_checkpoint_seconds", "keep_checkpoint_max", "keep_checkpoint_per_n_minutes")],
        (lambda: ms.CheckpointConfig(0, 0, 0, 0), ValueError, "can't be all None or 0"),
        (lambda: ms.CheckpointConfig(saved_network=nn.ReLU()), NotImplementedError, "not available"),
        (lambda: ms.CheckpointConfig(enc_key=b"0123456789abcdef", enc_mode="ROT13"), ValueError, "must be 'AES-GCM', 'AES-GCM/reference' or 'AES-CBC'"),
        (lambda: ms.ModelCheckpoint(config=ms.CheckpointConfig(enc_key=b"short")), ValueError, "16, 24 or 32"),
        (lambda: ms.CheckpointConfig(integrated_save=1), TypeError, "'integrated_save' must be bool"),
        (lambda: ms.CheckpointConfig(exception_save=1), TypeError, "'exception_save' must be bool"),
        (lambda: ms.CheckpointConfig(async_save=1), TypeError, "'async_save' must be bool or str"),
        (lambda: ms.CheckpointConfig(async_save="fork"), ValueError, "'async_save' must be 'process' or 'thread'"),
        (lambda: ms.CheckpointConfig(append_info="epoch_num"), TypeError, "'append_info' must be list"),
        (lambda: ms.CheckpointConfig(append_info=["epoch"]), ValueError, "\"epoch_num\" or \"step_num\", but got 'epoch'"),
        (lambda: ms.CheckpointConfig(append_info=[3]), TypeError, "but got 3"),
        (lambda: ms.CheckpointConfig(append_info=[{"a": []}]), TypeError, "its values int, float, bool, str, Tensor or Parameter"),
        (lambda: ms.CheckpointConfig(enc_key="0123456789abcdef"), ValueError, "the key must be bytes"),
        (lambda: ms.ModelCheckpoint(prefix="a/b"), ValueError, "without '/'"),
        (lambda: ms.ModelCheckpoint(prefix=3), ValueError, "'prefix' is invalid"),
        (lambda: ms.ModelCheckpoint(config=1), TypeError, "should be 'CheckpointConfig'"),
        (lambda: ms.RunContext([]), TypeError, "must be dict, such as _InternalCallbackParam, but got list"),
    ],
    "checkpoints": [
        (lambda: ms.save_checkpoint(1, "a.ckpt"), TypeError, "should be nn.Cell or list"),
        (lambda: ms.save_checkpoint(nn.ReLU(), 3), TypeError, "'ckpt_file_name' must be string"),
        (lambda: ms.save_checkpoint(nn.ReLU(), "/"), IsADirectoryError, "is a directory"),
        (lambda: ms.save_checkpoint(nn.ReLU(), "a.ckpt", integrated_save=1), TypeError, "'integrated_save' must be bool"),
        (lambda: ms.save_checkpoint(nn.ReLU(), "a.ckpt", async_save=1), TypeError, "'async_save' must be bool or str"),
        (lambda: ms.save_checkpoint(nn.ReLU(), "a.ckpt", async_save="fork"), ValueError, "'async_save' must be 'process' or 'thread'"),
        (lambda: ms.save_checkpoint(nn.ReLU(), "a.ckpt", append_dict=[]), TypeError, "'append_dict' must be dict"),
        (lambda: ms.save_checkpoint(nn.ReLU(), "a.ckpt", append_dict={"a": []}), TypeError, "its values int, float, bool, str, Tensor or"),
        (lambda: ms.save_checkpoint([1], "a.ckpt"), TypeError, "its elements must be Parameter or"),
        (lambda: ms.save_checkpoint([{"name": "w"}], "a.ckpt"), TypeError, "its elements must be Parameter or"),
        (lambda: ms.save_checkpoint([{"name": "w", "data": 1}], "a.ckpt"), TypeError, "must be Tensor or Parameter, but got int"),
        (lambda: ms.save_checkpoint(nn.ReLU(), "a.ckpt", format="onnx"), ValueError, "must be 'safetensors' or 'ckpt'"),
        (lambda: ms.save_checkpoint(nn.ReLU(), "a.ckpt", enc_key="0123456789abcdef"), ValueError, "the key must be bytes"),
        (lambda: ms.save_checkpoint(nn.ReLU(), "a.safetensors", enc_key=b"0123456789abcdef", format="safetensors"), ValueError, "cannot be encrypted"),
        (lambda: ms.load_checkpoint("a.ckpt", dec_key=3), ValueError, "the key must be bytes"),
        (lambda: ms.load_checkpoint("a.ckpt", dec_key=b"0123456789abcdef", dec_mode=3), ValueError, "the mode of encryption must be str"),
        (lambda: ms.load_checkpoint("a.txt"), ValueError, "ends with '.ckpt'"),
        (lambda: ms.load_checkpoint(3), TypeError, "'ckpt_file_name' must be string"),
        (lambda: ms.load_checkpoint("/none/a.ckpt"), ValueError, "a.ckpt does not exist"),
        (lambda: ms.load_checkpoint("a.ckpt", format="onnx"), ValueError, "must be 'safetensors' or 'ckpt'"),
        (lambda: ms.load_checkpoint("a.ckpt", filter_prefix=3), TypeError, "'filter_prefix' must be str, list or tuple of str"),
        (lambda: ms.load_checkpoint("a.ckpt", filter_prefix=[]), ValueError, "'filter_prefix' must not be empty"),
        (lambda: ms.load_checkpoint("a.ckpt", strict_load=1), TypeError, "'strict_load' must be bool"),
        (lambda: ms.load_checkpoint(EMPTY), ValueError, ""),
        (lambda: ms.load_checkpoint(__file__), ValueError, "ends with '.ckpt'"),
        (lambda: ms.load_param_into_net(1, {}), TypeError, "'net' should be a Cell"),
        (lambda: ms.load_param_into_net(nn.ReLU(), []), TypeError, "should be a dict"),
        (lambda: ms.load_param_into_net(nn.ReLU(), {}, 1), TypeError, "'strict_load' must be bool"),
        (lambda: ms.load_param_into_net(nn.Dense(2, 2), {"weight": 1}), TypeError, "'Parameter' type"),
        (lambda: ms.load_param_into_net(nn.Dense(2, 2), {"weight": weight((3, 3), "weight")}), RuntimeError, "should have the same shape"),
    ],
    "conversion of checkpoints": [
        (lambda: ms.transform_checkpoints("/none", "/tmp", "a"), NotADirectoryError, "src_checkpoints_dir /none is not a directory"),
        (lambda: ms.transform_checkpoints("/none", "/tmp", "a"), ValueError, "src_checkpoints_dir /none is not a directory"),
        (lambda: ms.transform_checkpoints(3, "/tmp", "a"), TypeError, "'src_checkpoints_dir' should be a str"),
        (lambda: ms.transform_checkpoints("/", "/tmp", 3), TypeError, "'ckpt_prefix' should be a str"),
        (lambda: ms.transform_checkpoints("/", "/tmp", "a", "/none/s.ckpt"), ValueError, "no such file: /none/s.ckpt"),
        (lambda: ms.transform_checkpoints("/", "/tmp", "a", None, 3), TypeError, "'dst_strategy_file' should be str"),
        (lambda: ms.transform_checkpoints(FOLDER, "/tmp/a", "a"), ValueError, ""),
        (lambda: ms.rank_list_for_transform("0"), TypeError, "'rank_id' should be a int"),
        (lambda: ms.rank_list_for_transform(0, EMPTY), ValueError, "should not be empty"),
        (lambda: ms.transform_checkpoint_by_rank(0, [], "a.ckpt"), TypeError, "'checkpoint_files_map' should be a dict"),
        (lambda: ms.transform_checkpoint_by_rank("0", {}, "a.ckpt"), TypeError, "'rank_id' should be a int"),
        (lambda: ms.transform_checkpoint_by_rank(0, {}, 3), TypeError, "'save_checkpoint_file_name' should be a str"),
        (lambda: ms.transform_checkpoint_by_rank(0, {}, "a.txt"), ValueError, "should end with .ckpt"),
        (lambda: ms.transform_checkpoint_by_rank(0, {0: "/none/a.ckpt"}, "a.ckpt"), ValueError, "of rank 0 does not exist"),
        (lambda: ms.merge_pipeline_strategys("/none", "a.ckpt"), NotADirectoryError, "src_strategy_dirs /none is not a directory"),
        (lambda: ms.merge_pipeline_strategys(FOLDER, "a.ckpt"), ValueError, "empty.ckpt"),
        (lambda: ms.build_searched_strategy(3), TypeError, "'strategy_filename' should be str"),
        (lambda: ms.build_searched_strategy("/none"), ValueError, "no such file"),
        (lambda: ms.build_searched_strategy(__file__), TypeError, "should be a strategy file"),
        (lambda: ms.rank_list_for_transform(0, __file__), TypeError, "should be a strategy file"),
        (lambda: ms.build_searched_strategy(EMPTY), ValueError, "should not be empty"),
        (lambda: ms.restore_group_info_list(3), TypeError, "'group_info_file_name' should be str"),
        (lambda: ms.restore_group_info_list("/none"), ValueError, "no such file"),
        (lambda: ms.merge_sliced_parameter(weight()), TypeError, "'sliced_parameters' should be list"),
        (lambda: ms.merge_sliced_parameter([]), ValueError, "should not be empty"),
        (lambda: ms.merge_sliced_parameter([Tensor([1.0])]), TypeError, "should be 'Parameter'"),
        (lambda: ms.merge_sliced_parameter([weight(), weight(name="v")]), ValueError, "must have the same name"),
        (lambda: ms.merge_sliced_parameter([weight((2, 3)), weight((2, 2))]), ValueError, "cannot be joined along dim 0"),
        (lambda: ms.merge_sliced_parameter([weight()], [1]), TypeError, "'strategy' should be dict"),
        (lambda: ms.merge_sliced_parameter([weight()], {"v": 1}), KeyError, "should be a key in the 'strategy'"),
        (lambda: ms.merge_sliced_parameter([weight()], {"w": 1}), ValueError, "make sure that 'strategy' is correct"),
        (lambda: ms.load_distributed_checkpoint(1, []), ValueError, "'network' must be Cell"),
        (lambda: ms.load_distributed_checkpoint(nn.ReLU(), "a.ckpt"), TypeError, "'checkpoint_filenames' must be list"),
        (lambda: ms.load_distributed_checkpoint(nn.ReLU(), ["/none/a.ckpt"]), ValueError, "/none/a.ckpt at index 0"),
        (lambda: ms.load_distributed_checkpoint(nn.ReLU(), [], 3), ValueError, "'predict_strategy' must be dict"),
        (lambda: ms.load_distributed_checkpoint(nn.ReLU(), [], {"w": [[2], [0]]}), ValueError, "param_split_shape, field_size"),
        (lambda: ms.load_distributed_checkpoint(nn.ReLU(), []), ValueError, "no such file"),
    ],
    "data sets": [
        (lambda: ds.Cifar10Dataset("/none", usage="wrong"), ValueError, "not within the valid set"),
        (lambda: ds.Cifar10Dataset("/none", num_shards=2), RuntimeError, "requires shard_id"),
        (lambda: ds.Cifar10Dataset("/none", num_shards=2, shard_id=2), ValueError, "shard_id is not within"),
        (lambda: ds.Cifar10Dataset("/none", num_shards="2", shard_id=0), TypeError, "'num_shards' must be int"),
        (lambda: ds.GeneratorDataset([1]), ValueError, "columns_names nor schema"),
        (lambda: rows().batch(0), ValueError, "batch_size is not within"),
        (lambda: rows().batch("2"), TypeError, "batch_size"),
        (lambda: rows().shuffle(1), ValueError, "buffer_size is not within"),
        (lambda: rows().shuffle("2"), TypeError, "buffer_size"),
        (lambda: rows().repeat(0), ValueError, "either -1 or positive"),
        (lambda: rows().repeat("2"), TypeError, "count"),
        (lambda: rows().map(3, "x"), TypeError, "callable"),
        (lambda: rows().map(transforms.TypeCast(ms.int32), "y"), RuntimeError, "no column \"y\""),
        (lambda: vision.RandomHorizontalFlip(2), ValueError, "not within the required interval"),
        (lambda: vision.RandomHorizontalFlip("1"), TypeError, "prob"),
        (lambda: ds.config.set_seed(-1), ValueError, "'seed' must be in"),
        (lambda: ds.config.set_seed("1"), TypeError, "'seed' must be int"),
    ],
}
CASES = [pytest.param(*case, id=f"{section} {number}") for section, cases in REFUSED.items() for number, case in enumerate(cases, 1)]


@pytest.mark.parametrize("call, error, words", CASES)
def test_a_wrong_call_is_refused(call, error, words):
    with pytest.raises(error) as raised:
        call()
    assert re.search(words, str(raised.value)), str(raised.value)


def test_their_number(capsys):
    with capsys.disabled():
        print(f"\n{len(CASES)} wrong calls")
    assert len(CASES) == len({case.id for case in CASES})


@pytest.mark.parametrize("primitive, strategy, shapes", [
    (ops.ReduceSum(), ((4, 4, 2),), [(16, 32, 64)]), (ops.ReduceSum(), ((4, 8, 1),), [(16, 32, 64)]),
    (ops.Add(), ((2, 4, 4), (2, 4, 4)), [(32, 64, 96)] * 2), (ops.MatMul(), ((2, 1), (1, 4)), [(16, 16)] * 2),
    (ops.MatMul(transpose_b=True), ((2, 4), (3, 4)), [(16, 16)] * 2), (ops.Add(), ((2, 4), (1, 4)), [(8, 8), (1, 8)]),
    (ops.Add(), ((4,), (2, 4)), [(8,), (8, 8)]), (ops.ReLU(), ((3, 1),), [(4, 4)]),
], ids=str)
def test_a_strategy_that_fits_is_taken(primitive, strategy, shapes):
    context.set_auto_parallel_context(**SEMI)
    assert primitive.shard(strategy) is primitive
    primitive.check_strategy_fits(strategy, shapes)


def test_a_strategy_counts_in_the_modes_that_split():
    assert traced(ops.ReLU().shard(((4, 1),)), (4, 4)).shape == (4, 4)
