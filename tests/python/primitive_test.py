"""The package mindspore: operators as objects, functions of functions, collectives between ranks."""
import os
import re
import shutil
import subprocess
import sys

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, context, nn, ops
from mindspore.ops import operations as P
from mindspore.ops.operations import comm_ops

PRIMITIVES = """MatMul BatchMatMul ReduceSum ReduceMean ReduceMax Exp Log Neg ReLU Sigmoid Sub Mul Add TensorAdd RealDiv Div OneHot Squeeze
    Reshape Transpose Cast ExpandDims Gather NotEqual Concat StridedSlice Shape DType Fill ZerosLike LogicalOr Select Less LessEqual""".split()


@pytest.mark.parametrize("name", PRIMITIVES)
def test_each_primitive_takes_a_strategy_and_remarks(name):
    primitive = getattr(P, name)()
    assert isinstance(primitive, ops.Primitive) and getattr(ops, name) is getattr(P, name)
    assert primitive.shard(((1, 1), (1, 1))) is primitive and primitive.in_strategy == ((1, 1), (1, 1))
    assert primitive.set_strategy(((2,),)) is primitive and primitive.in_strategy == ((2,),)
    assert primitive.add_prim_attr("cross_batch", True) is primitive and primitive.attrs["cross_batch"] is True
    assert primitive.recompute() is primitive and primitive.recompute(False).attrs["recompute"] is False
    assert primitive.del_prim_attr("cross_batch") is primitive and "cross_batch" not in primitive.attrs
    assert primitive.set_stage(0) is primitive
    assert name.removeprefix("Tensor") in repr(primitive)


def test_the_cells_operators_take_strategies():
    dense, softmax, dropout = nn.Dense(4, 2), nn.Softmax(), nn.Dropout(keep_prob=0.5)
    assert dense.matmul.shard(((2, 1), (1, 1))) is dense.matmul and dense.bias_add.shard(((2, 1), (1,))) is dense.bias_add
    assert softmax.softmax.shard(((2, 1),)) is softmax.softmax and dropout.dropout.shard(((2, 1),)) is dropout.dropout
    x = Tensor(np.ones((4, 4), np.float32))
    assert dropout(x).asnumpy().tolist() == x.asnumpy().tolist()
    dropout.set_train()
    assert set(np.unique(dropout(x).asnumpy())) <= {0.0, 2.0}


def test_a_virtual_dataset_is_its_inputs():
    data, label = Tensor([1.0, 2.0]), Tensor([3.0])
    assert comm_ops._VirtualDataset()(data, label) == (data, label) and comm_ops._VirtualDataset()(data) is data


def test_maps_go_through_sequences():
    add = ops.MultitypeFuncGraph("add")

    @add.register("Tensor", "Tensor")
    def _tensors(x, y):
        return x + y

    @add.register("Tensor", "Number")
    def _number(x, y):
        return x * y

    @add.register("Function", "Tensor")
    def _function(f, x):
        return f(x)

    @add.register("Bool", "Tensor")
    def _bool(flag, x):
        return x if flag else -x

    def numbers(result):
        return tuple(numbers(item) for item in result) if isinstance(result, tuple) else result.asnumpy().tolist()

    one, two = Tensor([1.0]), Tensor([2.0])
    assert numbers(ops.Map(add)((one, two), (two, two))) == ([3.0], [4.0])
    assert numbers(ops.HyperMap()(add, ((one, two), one), ((two, two), 5.0))) == (([3.0], [4.0]), [5.0])
    assert numbers(ops.HyperMap(add)(ops.Neg(), two)) == [-2.0] and numbers(add(False, two)) == [-2.0]
    assert numbers(ops.HyperMap()(ops.partial(add, ops.Exp()), (Tensor([0.0]),))) == ([1.0],)


class Scaled(nn.Cell):
    """x * w."""

    def __init__(self):
        super().__init__()
        self.w = ms.Parameter(Tensor([2.0, 3.0]), name="w")

    def construct(self, x):
        return x * self.w


def test_gradients_of_a_cell_that_a_function_calls():
    net = Scaled()
    weights = ms.ParameterTuple(net.trainable_params())
    x = Tensor([5.0, 7.0])
    value, (of_x, of_weights) = ops.value_and_grad(lambda x: ops.ReduceSum()(net(x)), 0, weights)(x)
    assert value.asnumpy() == 31 and of_x.asnumpy().tolist() == [2, 3] and of_weights[0].asnumpy().tolist() == [5, 7]
    assert ops.grad(lambda x: ops.ReduceSum()(net(x)))(x).asnumpy().tolist() == [2, 3]
    (value, more), gradient = ops.value_and_grad(lambda x: (ops.ReduceSum()(net(x)), x * 2.0), 0, has_aux=True)(x)
    assert value.asnumpy() == 31 and more.asnumpy().tolist() == [10, 14] and gradient.asnumpy().tolist() == [2, 3]
    gradient, (more,) = ops.grad(lambda x: (ops.ReduceSum()(net(x)), x * 2.0), has_aux=True)(x)
    assert gradient.asnumpy().tolist() == [2, 3] and more.asnumpy().tolist() == [10, 14]
    made = ops.GradOperation(get_by_list=True)(lambda x: ops.ReduceSum()(net(x)), weights)(x)
    assert made[0].asnumpy().tolist() == [5, 7]


def test_flags_mark_functions_and_cells():
    @ops.core(loop=True)
    def function(x):
        return x

    assert function._func_graph_flags == {"core": True, "loop": True} and function(3) == 3
    assert ops.add_flags(Scaled(), part="a").part == "a"


COLLECTIVES = '''
import numpy as np
import mindspore as ms
from mindspore import Tensor, communication, nn, ops

communication.init()
rank, size = communication.get_rank(), communication.get_group_size()
right, left = (rank + 1) % size, (rank - 1) % size


def of(*numbers):
    return Tensor(np.array(numbers, np.float32))


def check(tensor, numbers):
    assert tensor.asnumpy().tolist() == numbers, (rank, tensor, numbers)


ranks = list(range(size))
check(ops.AllReduce()(of(rank, 1)), [sum(ranks), size])
check(ops.AllReduce(ops.ReduceOp.MAX)(of(rank)), [size - 1])
check(ops.AllReduce("min")(of(rank)), [0])
check(ops.AllReduce("prod")(of(2)), [2 ** size])
check(ops.AllGather()(of(rank)), ranks)
check(ops.ReduceScatter()(of(*ranks)), [rank * size])
check(ops.Broadcast(1)((of(rank),))[0], [1])
check(ops.AlltoAll(size, 0, 0)(of(*[10 * rank + i for i in ranks])), [10 * i + rank for i in ranks])
check(ops.AlltoAll(size, -1, -1)(of(*[10 * rank + i for i in ranks])), [10 * i + rank for i in ranks])
exchange = ops.NeighborExchange([right], [left], [(2,)], [(2,)], ms.float32)
check(exchange((of(rank, -1),))[0], [left, -1])
both = ops.NeighborExchange([right, left], [left, right], [(1,), (1,)], [(1,), (1,)], ms.float32)
check(both((of(rank), of(-rank)))[0], [left])
# Far more than a buffer holds.
many = ops.NeighborExchange([right], [left], [(1 << 20,)], [(1 << 20,)], ms.float32)
assert many((Tensor(np.full(1 << 20, rank, np.float32)),))[0].asnumpy().sum() == left << 20


class InPairs(nn.Cell):
    """An even rank sends to the next, which receives."""

    def construct(self, x):
        return ops.Receive(0, rank - 1, (2,), ms.float32)() * 2.0 if rank % 2 else ops.Send(0, rank + 1)(x)


check(InPairs()(of(rank, 4)), [2 * (rank - 1), 8] if rank % 2 else [rank, 4])


class Ring(nn.Cell):
    def __init__(self):
        super().__init__()
        self.exchange, self.sum = exchange, ops.AllReduce()

    def construct(self, x):
        return self.exchange((x,))[0] * 2.0 + self.sum(x)


check(Ring()(of(rank, 1)), [2 * left + sum(ranks), 2 + size])
for wrong, error in ((lambda: ops.AlltoAll(size + 1, 0, 0), ValueError), (lambda: ops.AlltoAll("2", 0, 0), TypeError),
                     (lambda: ops.AlltoAll(size, 1, 0)(of(*ranks)), IndexError), (lambda: ops.AlltoAll(size, 0, -2)(of(*ranks)), IndexError), (lambda: ops.AlltoAll(size, 0, 0)(of(*ranks, 1)), ValueError),
                     (lambda: ops.AllReduce("wrong"), ValueError), (lambda: ops.AllReduce(3), TypeError), (lambda: ops.Broadcast("0"), TypeError),
                     (lambda: ops.Send("0", 1), TypeError), (lambda: ops.Receive(0, 0, 2, ms.float32), TypeError),
                     (lambda: ops.NeighborExchange([right], [left], [], [(2,)], ms.float32), ValueError),
                     (lambda: exchange((of(1),)), ValueError), (lambda: communication.get_rank("none"), ValueError),
                     (lambda: communication.create_group("g", 3), TypeError), (lambda: communication.create_group("g", []), ValueError),
                     (lambda: communication.create_group("g", [0, 0]), ValueError),
                     (lambda: communication.create_group("g", ["0"]), TypeError), (lambda: communication.create_group("nccl_world_group", [0]), ValueError),
                     (lambda: communication.destroy_group("hccl_world_group"), ValueError),
                     (lambda: communication.get_world_rank_from_group_rank("hccl_world_group", size), ValueError),
                     (lambda: communication.get_group_rank_from_world_rank(size, "hccl_world_group"), ValueError)):
    try:
        wrong()
    except error:
        continue
    raise AssertionError(f"{error.__name__} was expected")
print("all well")
'''


@pytest.mark.parametrize("ranks", [2, 4])
def test_collectives(ranks, tmp_path):
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is absent")
    script = tmp_path / "collectives.py"
    script.write_text(COLLECTIVES)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("TESSERA_", "OMPI_", "PMIX_", "RANK_", "DEVICE_"))}
    done = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), sys.executable, script],
                          capture_output=True, text=True, timeout=120, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all well") == ranks


def test_recompute_is_for_graphs():
    context.set_context(mode=context.PYNATIVE_MODE)
    try:
        with pytest.raises(TypeError, match="pynative"):
            ops.MatMul().recompute()
    finally:
        context.set_context(mode=context.GRAPH_MODE)


NUMBERS = [
    (ms.int32, lambda x: x + 0.5, ms.float32), (ms.int32, lambda x: 2.0 * x, ms.float32), (ms.uint8, lambda x: x - 0.5, ms.float32),
    (ms.int64, lambda x: x**0.5, ms.float32), (ms.int32, lambda x: x / 2, ms.float32), (ms.int32, lambda x: x + 1, ms.int32),
    (ms.bool_, lambda x: x + 1, ms.int64), (ms.bool_, lambda x: 1.5 - x, ms.float32), (ms.float16, lambda x: x + 0.5, ms.float16),
    (ms.float16, lambda x: x * np.float32(0.5), ms.float16), (ms.int32, lambda x: x + np.float64(0.5), ms.float32),
    (ms.int32, lambda x: x < 1.5, ms.bool_), (ms.int32, lambda x: ops.Maximum()(x, 1.5), ms.float32),
    (ms.int32, lambda x: ops.select(x < 1.5, x, 0.5), ms.float32), (ms.int32, lambda x: ops.clip_by_value(x, 0.5, 1.5), ms.int32)]


@pytest.mark.parametrize("dtype, function, expected", NUMBERS, ids=lambda value: value.name if isinstance(value, ms.dtype.DType) else "")
@pytest.mark.parametrize("is_traced", [False, True])
def test_a_float_makes_an_integer_tensor_float32(dtype, function, expected, is_traced):
    class Net(nn.Cell):
        def construct(self, x):
            return function(x)

    values = np.array([0, 1] if dtype is ms.bool_ else [1, 2])
    found = (Net() if is_traced else function)(Tensor(values, dtype))
    assert found.dtype is expected
    cast = Tensor(values.astype(np.float32))
    np.testing.assert_allclose(found.asnumpy(), function(cast).asnumpy().astype(found.asnumpy().dtype), rtol=1e-6)


def test_no_gradient_flows_through_stop_gradient():
    class Net(nn.Cell):
        def construct(self, x):
            return x * x * ops.stop_gradient(x)

    x = Tensor([1.0, 2.0])
    assert Net()(x).asnumpy().tolist() == [1, 8]
    assert ops.GradOperation()(Net())(x).asnumpy().tolist() == [2, 8]  # 2 x * x, not 3 x * x
    assert ops.stop_gradient(Tensor([1, 2])).dtype is ms.int64


@pytest.mark.parametrize("masks, begin, end, expected", [
    ({}, (0, 1, 0), (2, 3, 4), np.s_[0:2, 1:3, 0:4]), (dict(begin_mask=2), (1, 2, 0), (2, 3, 4), np.s_[1:2, :3, 0:4]),
    (dict(end_mask=5), (0, 1, 1), (1, 3, 2), np.s_[0:, 1:3, 1:]), (dict(new_axis_mask=2), (0, 0, 1), (2, 1, 3), np.s_[0:2, None, 1:3]),
    (dict(shrink_axis_mask=1), (1, 0, 1), (2, 2, 3), np.s_[1, 0:2, 1:3]), (dict(ellipsis_mask=1), (0, 1), (0, 3), np.s_[..., 1:3]),
    (dict(begin_mask=4, ellipsis_mask=2, shrink_axis_mask=1), (1, 0, 3), (0, 0, 4), np.s_[1, ..., :4])])
def test_masks_of_a_slice(masks, begin, end, expected):
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    found = P.StridedSlice(**masks)(Tensor(array), begin, end, (1,) * len(begin)).asnumpy()
    np.testing.assert_array_equal(found, array[expected])


def test_a_schedule_of_ones_own_is_a_learning_rate():
    class Thirds(nn.LearningRateSchedule):
        def construct(self, global_step):
            return 0.3 / (1.0 + ops.cast(global_step, ms.float32))

    net = Scaled()
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), Thirds()))
    step.set_train()
    before, rates = net.w.asnumpy().copy(), []
    for _ in range(3):
        step(Tensor([1.0, 1.0]))
        rates.append(before - net.w.asnumpy())
        before = net.w.asnumpy().copy()
    np.testing.assert_allclose(np.array(rates), [[0.3, 0.3], [0.15, 0.15], [0.1, 0.1]], rtol=1e-5)


def test_groups_may_have_their_gradients_centralized():
    net = nn.Dense(16, 2, weight_init="ones", bias_init="zeros")
    x = Tensor(np.array([8 * [1.0] + 8 * [3.0]], np.float32))
    step = nn.TrainOneStepCell(net, nn.SGD([{"params": [net.weight], "grad_centralization": True}, {"params": [net.bias]}], 1.0))
    step(x)
    np.testing.assert_allclose(net.weight.asnumpy(), [8 * [2.0] + 8 * [0.0]] * 2, rtol=1e-6)  # the gradient is x less its mean
    np.testing.assert_allclose(net.bias.asnumpy(), [-1, -1], rtol=1e-6)


@pytest.mark.parametrize("shape", [(3, 6), (2, 1, 3, 3), (3, 12, 16), (4, )])
def test_gradients_are_centralized_where_the_second_dim_is_a_multiple_of_16(shape, capfd):
    weight = ms.Parameter(Tensor(np.zeros(shape, np.float32)), name="w")
    optimizer = nn.SGD([{"params": [weight], "grad_centralization": True}], 1.0)
    gradient = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    optimizer((Tensor(gradient), ))
    np.testing.assert_array_equal(weight.asnumpy(), -gradient)


def shards_of(primitive, *extra, strategy, reads=lambda y, _: y, size=(4, 4), dtype=np.float32):
    """The strategies in the graph of a training step whose one operator with a strategy is this one: (operator, strategy) in order."""
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.weight = ms.Parameter(Tensor(np.ones(size, np.float32)), name="weight")
            self.relu = ops.ReLU()
            self.primitive = primitive.shard(strategy)

        def construct(self, x):
            y = self.relu(x * self.weight)
            y = self.primitive(y, *(x if item is ... else item for item in extra))
            y = reads(y, x)
            return ops.ReduceSum()(ops.Cast()(y, ms.float32)) if not isinstance(y, tuple) else sum(ops.ReduceSum()(ops.Cast()(z, ms.float32)) for z in y)

    class First(nn.Cell):
        def construct(self, y, label):
            return y + ops.ReduceSum()(label)

    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True, device_num=2)
    net = Net()
    data = ms.dataset.NumpySlicesDataset({"x": np.ones((4, *size[1:]), dtype), "y": np.ones((4, 1), np.float32)}).batch(4)
    model = ms.Model(net, First(), nn.SGD(net.trainable_params(), 0.1))
    from mindspore.dataset.datasets import native_dataset
    native = native_dataset(data)[0]
    text = model._model(native).graph_text(native)
    return re.findall(r"= (\w+)[^\n]* shard (\S+)", text)


@pytest.mark.usefixtures("fresh_context")
@pytest.mark.parametrize("make, extra, strategy, expected", [
    (lambda: ops.Split(1, 2), (), ((2, 1),), {"((2,1),)"}),
    (lambda: ops.TopK(), (2,), ((2, 1),), {"((2,1),)"}),
    (lambda: ops.Unstack(1), (), ((2, 1),), {"((2,1),)"}),
    (lambda: ops.SoftmaxCrossEntropyWithLogits(), (...,), ((2, 1), (2, 1)), {"((2,1),)", "((2,1),(2,1))", "((2,),)"}),
    (lambda: ops.SquaredDifference(), (...,), ((1, 2), (1, 2)), {"((1,2),(1,2))", "((1,2),)"}),
    (lambda: ops.Softsign(), (), ((1, 2),), {"((1,2),)", "((1,2),(1,2))", "((1,2),())", "((),(1,2))"}),
    (lambda: ops.BiasAdd(), (Tensor(np.ones(4, np.float32)),), ((1, 2), (2,)), {"((1,2),(2,))"}),
    (lambda: ops.Cast(), (ms.float16,), ((2, 1),), {"((2,1),)"}),
], ids=lambda value: "" if not callable(value) else value().name)
def test_a_strategy_goes_to_all_that_the_operator_computes(make, extra, strategy, expected):
    found = shards_of(make(), *extra, strategy=strategy)
    assert found and {text for _, text in found} <= expected, found
    assert "relu" not in {op for op, _ in found}, found


@pytest.mark.usefixtures("fresh_context")
@pytest.mark.parametrize("make, extra", [(lambda: ops.Identity(), ()), (lambda: ops.Cast(), (ms.float32,))], ids=["identity", "cast"])
def test_a_strategy_of_what_computes_nothing_is_refused(make, extra):
    with pytest.raises(RuntimeError, match=r"the strategy \(\(2, 1\),\) splits nothing: this call gives back what it was given"):
        shards_of(make(), *extra, strategy=((2, 1),))


@pytest.mark.usefixtures("fresh_context")
def test_a_model_is_traced_for_the_mode_in_which_it_was_made(capfd):
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.weight = ms.Parameter(Tensor(np.ones((4, 4), np.float32)), name="weight")
            self.matmul = ops.MatMul().shard(((1, 2), (2, 1)))

        def construct(self, x):
            return self.matmul(x, self.weight)

    from mindspore.dataset.datasets import native_dataset
    native = native_dataset(ms.dataset.NumpySlicesDataset({"x": np.ones((4, 4), np.float32), "y": np.ones((4, 4), np.float32)}).batch(4))[0]
    texts = []
    for is_reset in (False, True):
        context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True, device_num=2)
        net = Net()
        model = ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))._model(native)
        if is_reset:
            context.reset_auto_parallel_context()
            context.set_auto_parallel_context(device_num=2)
        texts.append(model.graph_text(native))
    assert texts[0] == texts[1] and "shard ((1,2),(2,1))" in texts[1]
    assert "have no effect" not in capfd.readouterr().err
