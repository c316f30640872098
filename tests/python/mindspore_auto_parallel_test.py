"""AutoParallel: networks, steps and functions that say by themselves how they are spread over the ranks."""
import json
import os
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Model, Tensor, context, dataset, nn
from mindspore.parallel.auto_parallel import AutoParallel
from mindspore.parallel.nn import PipelineGradReducer

RUN = [str(Path(os.environ["TESSERA_BUILD"]) / "bin" / "tessera"), "run"]


@pytest.fixture(autouse=True)
def fresh_context():
    yield
    context.reset_auto_parallel_context()


def launch(tmp_path, text, ranks, *arguments):
    """What each rank printed, as JSON, and what all said."""
    (tmp_path / "program.py").write_text(text)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "RANK_", "MS_")) or k == "TESSERA_BUILD"}
    done = subprocess.run([*RUN, "-n", str(ranks), sys.executable, "program.py", *arguments], capture_output=True, text=True, timeout=300, cwd=tmp_path, env=env)
    lines = [line.partition("] ")[2] for line in done.stdout.splitlines()]
    return done.returncode, [json.loads(line) for line in lines if line.startswith("{")], done.stdout + done.stderr


NETWORK = """
import json, sys
import mindspore as ms
import numpy as np
from mindspore import Model, Parameter, Tensor, dataset, nn, ops
from mindspore.communication import get_group_size, get_rank, init
from mindspore.nn.utils import no_init_parameters
from mindspore.parallel.auto_parallel import AutoParallel
from mindspore.parallel.nn import Pipeline, PipelineGradReducer

ms.set_context(mode=ms.GRAPH_MODE)
init()
ms.set_seed(1)
form, mode, lies = sys.argv[1:]
size = get_group_size()


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(np.random.RandomState(0).rand(4, 8), ms.float32), name="weight")
        self.product = ops.MatMul().shard(((1, size), (size, 1)))
        self.last = nn.Dense(8, 1)

    def construct(self, x):
        return self.last(self.product(x, self.weight))


with no_init_parameters():
    network = Network()
    optimizer = nn.SGD(network.trainable_params(), 0.05)
loss = nn.MSELoss()
x = np.random.RandomState(1).rand(32, 4).astype(np.float32)
whole = lies != "data_parallel"
shard = {} if whole else dict(num_shards=size, shard_id=get_rank())
data = dataset.NumpySlicesDataset((x, x.sum(1, keepdims=True)), shuffle=False, **shard).batch(8 if whole else 8 // size)


def forward(inputs, target):
    made = network(inputs)
    return loss(made, target), made


grad = ms.value_and_grad(forward, None, network.trainable_params(), has_aux=True)


def step(inputs, target):
    (value, _), gradients = grad(inputs, target)
    optimizer(gradients)
    return value


class Losses(ms.Callback):
    def step_end(self, run_context):
        losses.append(float(run_context.original_args().net_outputs.asnumpy()))


inner = {"model": network, "step": nn.TrainOneStepCell(nn.WithLossCell(network, loss), optimizer), "function": step, "jit": ms.jit(step), "gradient": grad}
inner["trained"] = inner["step"]
losses, spread = [], AutoParallel(inner[form], parallel_mode=mode)
spread.dataset_strategy(((size, 1), (size, 1)) if lies == "strategy" else lies)
layouts = {}
if form == "model":
    spread.hsdp(threshold=0)
    spread.save_param_strategy_file("strategies.ckpt")
    model = Model(spread, loss, optimizer)
    model.train(1, data, callbacks=[Losses()])
    layouts = model.train_network.parameter_layout_dict
    assert layouts == spread.parameter_layout_dict
elif form == "trained":
    Model(spread).train(1, data, callbacks=[Losses()])
elif form == "gradient":
    for inputs, target in data:
        (value, _), gradients = spread(inputs, target)
        optimizer(gradients)
        losses.append(float(value.asnumpy()))
else:
    losses = [float(spread(inputs, target).asnumpy()) for inputs, target in data]
print(json.dumps({"losses": losses, "mode": ms.get_auto_parallel_context("parallel_mode"), "split": layouts.get("weight", [[]])[0]}), flush=True)
"""


@pytest.mark.parametrize("form, mode, lies", [
    ("model", "semi_auto", "data_parallel"), ("model", "sharding_propagation", "full_batch"), ("model", "recursive_programming", "full_batch"),
    ("step", "semi_auto", "full_batch"), ("trained", "semi_auto", "data_parallel"), ("function", "semi_auto", "full_batch"),
    ("jit", "semi_auto", "data_parallel"), ("gradient", "semi_auto", "strategy")])
def test_what_it_spreads_has_the_losses_of_one_device(tmp_path, form, mode, lies):
    alone = launch(tmp_path, NETWORK, 1, form, mode, lies)
    together = launch(tmp_path, NETWORK, 2, form, mode, lies)
    assert alone[0] == together[0] == 0, alone[2] + together[2]
    assert len(together[1]) == 2 and len(alone[1][0]["losses"]) == 4
    for rank in together[1]:
        assert rank["losses"] == pytest.approx(alone[1][0]["losses"], rel=1e-4)
        assert rank["mode"] == "stand_alone"  # the context is the script's own
        assert form != "model" or mode == "recursive_programming" or rank["split"] == [2]
    assert form != "model" or (tmp_path / "strategies.ckpt").exists()


STAGES = NETWORK[:NETWORK.index("class Network")] + """
class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Dense(4, 8), nn.Dense(8, 1)

    def construct(self, x):
        return self.last(ops.relu(self.first(x)))


with no_init_parameters():
    network = Network()
    optimizer = nn.SGD(network.trainable_params(), 0.02)
    reducer = PipelineGradReducer(optimizer.parameters, opt_shard=False)
x = np.random.RandomState(1).rand(32, 4).astype(np.float32)
data = dataset.NumpySlicesDataset((x, x.sum(1, keepdims=True)), shuffle=False).batch(8)
pipeline = Pipeline(nn.WithLossCell(network, nn.MSELoss()), 4, stage_config={"_backbone.first": 0, "_backbone.last": 1})
grad = ops.value_and_grad(lambda inputs, target: pipeline(inputs, target), None, optimizer.parameters)


@ms.jit
def step(inputs, target):
    value, gradients = grad(inputs, target)
    optimizer(reducer(gradients))
    return value


class Losses(ms.Callback):
    def step_end(self, run_context):
        losses.append(float(run_context.original_args().net_outputs.asnumpy()))


losses, spread = [], AutoParallel(pipeline if form == "model" else step, parallel_mode=mode)
spread.dataset_strategy(lies)
spread.pipeline(stages=min(2, size), scheduler="gpipe")
if form == "model":
    Model(spread, optimizer=optimizer).train(1, data, callbacks=[Losses()])
else:
    losses = [float(spread(inputs, target).asnumpy()) for inputs, target in data]
print(json.dumps({"losses": losses}), flush=True)
"""


def test_stages_have_the_losses_of_one_device(tmp_path):
    alone = launch(tmp_path, STAGES, 1, "function", "semi_auto", "full_batch")
    together = launch(tmp_path, STAGES, 2, "model", "semi_auto", "full_batch")
    assert alone[0] == together[0] == 0, alone[2] + together[2]
    for rank in together[1]:
        assert rank["losses"] == pytest.approx(alone[1][0]["losses"], rel=1e-4)
    code, _, said = launch(tmp_path, STAGES, 2, "function", "semi_auto", "full_batch")
    assert code != 0 and "pipeline_stages > 1 is not available: give nn.PipelineCell(network, micro_size) and the optimizer to a Model" in said


def test_it_says_what_the_context_would():
    net = AutoParallel(nn.Dense(2, 3), parallel_mode="sharding_propagation")
    assert net.get_pipeline_stages() == 1
    net.hsdp(shard_size=2, threshold=32)
    net.pipeline(stages=2, interleave=True)
    net.load_param_strategy_file("in.ckpt")
    net.set_group_ckpt_save_file("group.ckpt")
    net.enable_gradients_mean()
    net.enable_fp32_communication()
    net.disable_strategy_file_only_for_trainable_params()
    net.no_init_parameters_in_compile()
    net.transformer_opt(None)
    ms.set_auto_parallel_context(parallel_mode="data_parallel", strategy_ckpt_save_file="mine.ckpt")
    with context.spread_as(net.settings()):
        got = {key: ms.get_auto_parallel_context(key) for key in (
            "parallel_mode", "search_mode", "enable_parallel_optimizer", "optimizer_weight_shard_size", "pipeline_stages", "strategy_ckpt_load_file",
            "strategy_ckpt_save_file", "group_ckpt_save_file", "gradients_mean", "dataset_strategy")}
        assert ms.get_auto_parallel_context("pipeline_config")["pipeline_interleave"] and context.was_set("pipeline_stages")
    assert got == {"parallel_mode": "auto_parallel", "search_mode": "sharding_propagation", "enable_parallel_optimizer": True,
                   "optimizer_weight_shard_size": 2, "pipeline_stages": 2, "strategy_ckpt_load_file": "in.ckpt", "strategy_ckpt_save_file": "",
                   "group_ckpt_save_file": "group.ckpt", "gradients_mean": True, "dataset_strategy": "data_parallel"}
    assert ms.get_auto_parallel_context("parallel_mode") == "data_parallel" and not context.was_set("pipeline_stages")
    assert ms.get_auto_parallel_context("strategy_ckpt_save_file") == "mine.ckpt"
    assert net.get_pipeline_stages() == 2


def test_parameters_are_called_as_without_it():
    inner = nn.SequentialCell(nn.Dense(2, 3), nn.Dense(3, 1))
    names = [parameter.name for parameter in inner.get_parameters()]
    net = AutoParallel(inner)
    assert [parameter.name for parameter in net.get_parameters()] == names and net.network is inner
    x = Tensor(np.ones((2, 2)), ms.float32)
    assert np.array_equal(net(x).asnumpy(), inner(x).asnumpy())
    net.set_train()
    assert inner.training and net.infer_param_pipeline_stage() == inner.trainable_params()


def test_cells_that_were_told_by_shard_lead_their_neighbours():
    inner = nn.SequentialCell(nn.Dense(2, 2), nn.Dense(2, 2))
    net = AutoParallel(inner)
    assert "sharding_propagation" not in net.settings()
    inner[1].shard(((1, 1), ))
    assert net.settings()["sharding_propagation"] is True


@pytest.mark.parametrize("level", ["level1", "level2", "level3"])
def test_levels_of_sharing_have_one_meaning_and_the_third_says_so(level, capfd, monkeypatch):
    monkeypatch.setattr(context, "_said", set())
    net = AutoParallel(nn.Dense(2, 1))
    net.hsdp(optimizer_level=level)
    Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
    ms.set_auto_parallel_context(parallel_optimizer_config={"optimizer_level": level})
    assert ('optimizer_level="level3" shares parameters' in capfd.readouterr().err) is (level == "level3")
    with pytest.raises(ValueError, match="'optimizer_level' must be one of"):
        ms.set_auto_parallel_context(parallel_optimizer_config={"optimizer_level": "level4"})


def test_a_model_goes_on_as_it_was_made(capfd):
    net = AutoParallel(nn.Dense(2, 1))
    Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
    net.hsdp()
    assert "For 'AutoParallel.hsdp', a Model was made of this network before" in capfd.readouterr().err


@pytest.mark.parametrize("call, error, words", [
    (lambda net: AutoParallel(3), TypeError, "'network' must be a Cell or a function, but got int"),
    (lambda net: AutoParallel(net.network, "data_parallel"), ValueError, "must be one of .*'sharding_propagation'.* but got the value : data_parallel"),
    (lambda net: Model(AutoParallel(lambda x: x)), TypeError, "an AutoParallel of a function: call it for each batch"),
    (lambda net: net.dataset_strategy(None), ValueError, "dataset_strategy is none in config!"),
    (lambda net: net.dataset_strategy("half"), ValueError, "'config' must be 'full_batch' or 'data_parallel', but got half"),
    (lambda net: net.dataset_strategy([(1, 1)]), TypeError, "'config' must be str or tuple, but got list"),
    (lambda net: net.dataset_strategy(((1, 1.0), )), TypeError, "'config' must be tuples of ints"),
    (lambda net: net.hsdp(shard_size=0), ValueError, "shard_size must be a positive integer or -1, but got 0"),
    (lambda net: net.hsdp(threshold=-1), ValueError, "threshold must be a positive integer or 0, but got -1"),
    (lambda net: net.hsdp(optimizer_level="level4"), ValueError, "Optimizer level should in"),
    (lambda net: net.pipeline(stages="2"), TypeError, "'stages' must be int type"),
    (lambda net: net.pipeline(stages=0), ValueError, "'stages' must be larger than zero, but got value: 0"),
    (lambda net: net.pipeline(2, scheduler="2f2b"), ValueError, "'scheduler' must be one of"),
    (lambda net: net.pipeline(2, scheduler="seqpipe"), NotImplementedError, "scheduler=\"seqpipe\" is not available"),
    (lambda net: net.pipeline(2, output_broadcast=True), NotImplementedError, "output_broadcast=True is not available: Model.predict gives"),
    (lambda net: net.comm_fusion([1]), TypeError, "'comm_fusion' must be a dict"),
    (lambda net: net.load_param_strategy_file(1), TypeError, "'file_path' must be str, but got the type int"),
    (lambda net: net.save_param_strategy_file(None), TypeError, "'file_path' must be str"),
    (lambda net: net.set_group_ckpt_save_file(None), TypeError, "'file_path' must be str"),
    (lambda net: net.save_operator_strategy_file("s.json"), KeyError, "absolute path"),
    (lambda net: net.load_operator_strategy_file("/s.ckpt"), KeyError, "must be .json"),
    (lambda net: net.save_operator_strategy_file("/s.json"), NotImplementedError, "save_param_strategy_file"),
    (lambda net: net.print_local_norm(), NotImplementedError, "AutoParallel.print_local_norm', norms of gradients .* a Callback sees"),
    (lambda net: net.dump_local_norm("norms"), NotImplementedError, "AutoParallel.dump_local_norm'.* a Callback sees"),
    (lambda net: net.enable_device_local_norm(), NotImplementedError, "AutoParallel.enable_device_local_norm'.* a Callback sees"),
    (lambda net: net.transformer_opt("/nowhere.json"), ValueError, "/nowhere.json does not exist"),
    (lambda net: PipelineGradReducer([], scale_sense=0), ValueError, "'scale_sense' must not be 0"),
    (lambda net: PipelineGradReducer([], opt_shard=1), TypeError, "'opt_shard' must be bool"),
    (lambda net: PipelineGradReducer([])((Tensor(1.0), )), RuntimeError, "there are 1 gradients of 0 parameters"),
])
def test_what_it_lacks_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call(AutoParallel(nn.Dense(2, 3)))


def test_a_reducer_divides_gradients_by_the_scale():
    weight = ms.Parameter(Tensor([1.0, 2.0]), name="weight")
    made = PipelineGradReducer([weight], scale_sense=4.0)((Tensor([4.0, 8.0]), ))
    assert made[0].asnumpy().tolist() == [1.0, 2.0]


def test_sums_between_ranks_are_float32_whatever_the_context_says(capfd):
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", force_fp32_communication=True)
    x = dataset.NumpySlicesDataset((np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)), shuffle=False).batch(2)
    net = nn.Dense(2, 1)
    Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1)).train(1, x)
    assert "force_fp32" not in capfd.readouterr().err
    assert ms.get_auto_parallel_context("force_fp32_communication")
