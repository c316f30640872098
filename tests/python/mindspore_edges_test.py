"""What scripts meet at the edges: operands of different shapes, what functions return beside tensors, attributes that subclasses read, hooks."""
import operator

import numpy as np
import pytest
import mindspore as ms
import mindspore.dataset as ds
from mindspore import Parameter, Tensor, nn, ops

pytestmark = pytest.mark.usefixtures("fresh_context")

COLUMN, ROW = Tensor(np.arange(4, dtype=np.float32).reshape(4, 1)), Tensor(np.arange(4, dtype=np.float32))


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize("loss, function, value", [(nn.MSELoss, ops.mse_loss, 2.5), (nn.L1Loss, ops.l1_loss, 1.25)])
def test_losses_of_different_shapes_broadcast_and_say_so(mode, loss, function, value, capfd):
    ms.set_context(mode=mode)
    assert loss()(COLUMN, ROW).asnumpy() == function(COLUMN, ROW).asnumpy() == value
    assert loss("none")(COLUMN, ROW).shape == (4, 4)
    assert loss()(COLUMN, COLUMN).asnumpy() == 0
    with pytest.raises(TypeError, match="the 'labels' must be a Tensor, but got float"):
        loss()(ROW, 1.0)
    for wrong in (loss(), function):
        with pytest.raises(ValueError, match="do not broadcast"):
            wrong(ROW, Tensor(np.ones(3, np.float32)))


def test_a_training_with_labels_of_another_shape_goes_on_as_the_function_would():
    net = nn.Dense(3, 1)
    data = ds.NumpySlicesDataset((np.ones((8, 3), np.float32), np.arange(8, dtype=np.float32)), ["x", "y"], shuffle=False).batch(4)
    before = net.weight.asnumpy().copy()
    ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.01)).train(1, data, dataset_sink_mode=False)
    assert np.isfinite(net.weight.asnumpy()).all() and (net.weight.asnumpy() != before).all()


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_smooth_l1_loss_takes_tensors_of_floats_of_one_shape(mode):
    ms.set_context(mode=mode)
    for loss in (nn.SmoothL1Loss(), ops.smooth_l1_loss, ops.SmoothL1Loss()):
        with pytest.raises(ValueError, match=r"the prediction_shape: \[4,1,\] must be equal to \[4,\]"):
            loss(COLUMN, ROW)
        with pytest.raises(TypeError, match="the 'target' must be a tensor of floats, but got Int32"):
            loss(ROW, ROW.astype(ms.int32))


def test_what_a_checkpoint_has_and_the_network_lacks_is_told():
    net = nn.Dense(2, 3)
    given = {name: Parameter(Tensor(np.ones((3, 2), np.float32)), name=name) for name in ("weight", "other", "one")} | {"text": "a note"}
    not_in_checkpoint, not_in_network = ms.load_param_into_net(net, given)
    assert not_in_checkpoint == ["bias"] and not_in_network == ["other", "one", "text"]
    assert (net.weight.asnumpy() == 1).all()


@pytest.mark.parametrize("metrics", [{"loss"}, {"loss": nn.Loss()}])
def test_the_metric_of_losses_is_their_mean_over_the_batches(metrics):
    net = nn.Dense(2, 2, weight_init="ones", bias_init="zeros")
    rows = ds.NumpySlicesDataset((np.arange(10, dtype=np.float32).reshape(5, 2), np.zeros((5, 2), np.float32)), ["x", "y"], shuffle=False)
    model = ms.Model(net, nn.MSELoss(), metrics=metrics)
    # 1 and 25, 81 and 169, 289.
    assert model.eval(rows.batch(2), dataset_sink_mode=False)["loss"] == pytest.approx((13 + 125 + 289) / 3)


def test_an_encrypted_file_says_which_form_it_has(tmp_path, capfd):
    key, net = b"0123456789abcdef", nn.Dense(2, 3)
    theirs, own = str(tmp_path / "theirs.ckpt"), str(tmp_path / "own.ckpt")
    ms.save_checkpoint(net, theirs, enc_key=key, enc_mode="AES-GCM/reference")
    ms.save_checkpoint(net, own, enc_key=key, enc_mode="AES-GCM")
    with pytest.raises(ValueError, match="is encrypted with AES-GCM/reference, not with AES-CBC"):
        ms.load_checkpoint(theirs, dec_key=key, dec_mode="AES-CBC")
    assert set(ms.load_checkpoint(own, dec_key=key, dec_mode="AES-CBC")) == {"weight", "bias"}
    out = capfd.readouterr()
    assert "own.ckpt has Tessera's form of AES-GCM" in out.out + out.err


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_one_hot_has_the_dtype_of_the_class(dtype):
    made = ds.transforms.OneHot(4)(np.array(2, dtype))
    assert made.dtype == dtype and made.tolist() == [0, 0, 1, 0]
    smooth = ds.transforms.OneHot(4, 0.1)(np.array(2, dtype))
    assert smooth.dtype == np.float64 and smooth.tolist() == pytest.approx([0.025, 0.025, 0.925, 0.025])
    with pytest.raises(RuntimeError, match="the class must be an integer"):
        ds.transforms.OneHot(4)(np.array(2.0))


def test_types_of_columns_are_dtypes():
    rows = ds.NumpySlicesDataset({"x": np.zeros((4, 2), np.float32), "y": np.zeros(4, np.int32)}, shuffle=False)
    assert rows.batch(2).output_types() == [np.dtype("float32"), np.dtype("int32")] and isinstance(rows.output_types()[0], np.dtype)


def test_the_sum_of_bools_as_an_operator_is_a_bool():
    for values, expected in (([True, True], True), ([False, False], False)):
        made = ops.ReduceSum()(Tensor(values))
        assert made.dtype == ms.bool_ and bool(made.asnumpy()) is expected
    assert ops.sum(Tensor([True, True])).asnumpy() == 2


def test_parameters_of_callbacks_that_are_not_there_are_key_errors():
    seen = []

    class Asks(ms.Callback):
        def on_train_step_end(self, run_context):
            params = run_context.original_args()
            assert params.last_save_ckpt_step is None and params.batch_num == 2 and params.get("nonsense") is None
            for name, match in (("nonsense", "have no entry 'nonsense'"), ("train_dataset_element", "train_dataset_element is not available: .* Train by a cell")):
                assert not hasattr(params, name)
                with pytest.raises(KeyError, match=match):
                    getattr(params, name)
            seen.append(params.cur_step_num)

    net = nn.Dense(2, 2)
    rows = ds.NumpySlicesDataset((np.ones((4, 2), np.float32), np.ones((4, 2), np.float32)), ["a", "b"]).batch(2)
    ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params())).train(1, rows, callbacks=[Asks()], dataset_sink_mode=False)
    assert seen == [1, 2]


def test_curves_of_several_classes_are_those_of_each_column():
    scores = np.array([[.2, .7, .1], [.5, .3, .2], [.1, .1, .8], [.6, .2, .2], [.3, .4, .3]], np.float32)
    labels = np.array([1, 0, 2, 1, 2], np.int32)
    every = ms.train.ROC(class_num=3)
    every.update(Tensor(scores), Tensor(labels))
    false_rates, true_rates, thresholds = every.eval()
    for c in range(3):
        one = ms.train.ROC(pos_label=1)
        one.update(Tensor(scores[:, c]), Tensor((labels == c).astype(np.int32)))
        for part, of_class in zip(one.eval(), (false_rates[c], true_rates[c], thresholds[c])):
            np.testing.assert_allclose(of_class, part)


def test_methods_take_an_axis_as_dim():
    x = Tensor(np.array([[3, 1, 2], [4, 6, 5]], np.float32))
    for name, expected in {"argmin": [1, 0], "median": [2, 5], "argsort": [[1, 2, 0], [0, 2, 1]], "cumsum": [[3, 4, 6], [4, 10, 15]], "std": 2 * [0.81649658]}.items():
        made = getattr(x, name)(dim=1)
        np.testing.assert_allclose((made[0] if isinstance(made, tuple) else made).asnumpy(), expected)
    assert x.argmin(dim=1, keepdim=True).shape == x.std(dim=1, keepdim=True).shape == (x > 2).all(dim=1, keepdim=True).shape == (2, 1)
    assert (x > 2).any(dim=1).asnumpy().tolist() == [True, True] and [part.shape for part in x.split(split_size=2, dim=1)] == [(2, 2), (2, 1)]
    assert x.index_select(dim=1, index=Tensor([2])).asnumpy().tolist() == [[2], [5]]
    assert x.astype(dtype=ms.float16).dtype == ms.float16 and Parameter(x, name="p").astype(dtype=ms.int32).dtype == ms.int32
    with pytest.raises(TypeError, match="unexpected keyword argument 'dims'"):
        x.argmin(dims=1)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_functions_of_pythons_library_run_as_they_are(mode):
    import inspect
    ms.set_context(mode=mode)

    class Counts(nn.Cell):
        def construct(self, x):
            return x * len(inspect.signature(self.of_two).parameters)

        def of_two(self, a, b):
            return a

    cell, x = Counts(), Tensor(np.ones((2, 2), np.float32))
    assert (cell(x).asnumpy() == 2).all() and (ms.grad(lambda y: cell(y).sum())(x).asnumpy() == 2).all()


def test_attributes_that_subclasses_read_are_there():
    net = nn.Dense(4, 3)
    assert net.shape_op(Tensor(np.ones((2, 5), np.float32))) == (2, 5) and net.reshape(Tensor(np.ones((2, 3), np.float32)), (3, 2)).shape == (3, 2)
    assert nn.Conv2d(1, 2, 3).data_format == "NCHW" and nn.LayerNorm([4]).normalized_shape == [4] and nn.GroupNorm(2, 4).affine is True
    pool, loss = nn.MaxPool2d(2, 3), nn.CrossEntropyLoss(ignore_index=7, label_smoothing=0.1)
    assert (pool.kernel_size, pool.stride, pool.pad_mode) == (2, 3, "VALID") and (loss.ignore_index, loss.label_smoothing, loss.average) == (7, 0.1, True)
    momentum = nn.Momentum(net.trainable_params(), 0.1, 0.9, loss_scale=4.0, use_nesterov=True)
    assert [momentum.loss_scale, momentum.use_nesterov, momentum.is_group, momentum.dynamic_lr] == [4.0, True, False, False]
    assert [p.name for p in momentum.params] == ["weight", "bias"] and float(momentum.reciprocal_scale.asnumpy()) == 0.25
    grouped = nn.Adam([{"params": [net.weight], "lr": nn.ExponentialDecayLR(0.1, 0.9, 2)}, {"params": [net.bias]}], beta1=0.8)
    assert grouped.is_group and grouped.is_group_lr and grouped.dynamic_lr and grouped.beta1.asnumpy() == np.float32(0.8)
    for name, value in (("use_nesterov", False), ("loss_scale", 2.0)):
        with pytest.raises(AttributeError, match=f"an attribute '{name}' would change nothing"):
            setattr(momentum, name, value)

    class Derived(nn.Adam):
        def __init__(self, params):
            super().__init__(params, eps=1e-3)
            self.half = self.eps * 0.5

    assert Derived(net.trainable_params()).half.asnumpy() == np.float32(5e-4)


class WithBuffer(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(2, 3, weight_init="ones", bias_init="zeros")
        self.register_buffer("scale", Tensor(np.ones(3, np.float32)))
        self.register_buffer("passing", Tensor([2.0]), persistent=False)

    def construct(self, x):
        return self.fc(x) + self.scale * self.passing


PAIR = Tensor(np.ones((1, 2), np.float32))


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_hooks_stand_around_a_call(mode):
    ms.set_context(mode=mode)
    net, seen = WithBuffer(), []
    assert net(PAIR).asnumpy().tolist() == [[4, 4, 4]]

    def after(cell, inputs, output):
        seen.append((type(cell).__name__, inputs[0].shape, output.shape))
        return output + 1

    handle = net.fc.register_forward_hook(after)
    before = net.fc.register_forward_pre_hook(lambda cell, inputs: (inputs[0] * 2, ))
    outer = []
    words = net.register_forward_pre_hook(lambda cell, inputs, kwargs: outer.append(cell) or (inputs, kwargs), with_kwargs=True)
    assert net(PAIR).asnumpy().tolist() == [[7, 7, 7]] and seen == [("Dense", (1, 2), (1, 3))]
    gradients = ms.grad(lambda x: net(x).sum())(PAIR)
    assert gradients.asnumpy().tolist() == [[6, 6]]
    assert outer[0] is net
    handle.remove()
    words.remove()
    assert net(PAIR).asnumpy().tolist() == [[6, 6, 6]]
    before.remove()
    assert net(PAIR).asnumpy().tolist() == [[4, 4, 4]]
    with pytest.raises(TypeError, match="Expected a callable hook function, but got int"):
        net.register_forward_hook(3)
    with pytest.raises(NotImplementedError, match="register_backward_hook is not available: .* by ops.grad, or give the cell a bprop"):
        net.register_backward_hook(after)


def test_a_model_trains_a_network_with_its_hooks():
    net = nn.Dense(2, 1, weight_init="zeros", bias_init="zeros")
    net.register_forward_hook(lambda cell, inputs, output: output - 1)
    rows = ds.NumpySlicesDataset((np.ones((2, 2), np.float32), np.zeros((2, 1), np.float32)), ["x", "y"], shuffle=False).batch(2)
    ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.5)).train(1, rows, dataset_sink_mode=False)
    assert net.bias.asnumpy().tolist() == [1.0]  # the gradient is 2 * (0 - 1)
    assert [p.name for p in net.trainable_params()] == ["weight", "bias"]


def test_a_cells_state_is_its_parameters_and_buffers():
    net = WithBuffer()
    assert sorted(net.state_dict(prefix="p.")) == ["p.fc.bias", "p.fc.weight", "p.scale"]
    assert [name for name, _ in net.named_buffers()] == ["scale", "passing"] and [b.shape for b in net.buffers()] == [(3, ), (1, )]
    assert [p.name for p in net.get_parameters()] == ["fc.weight", "fc.bias"] and net.get_buffer("scale").shape == (3, )
    found = net.load_state_dict({"scale": Tensor([5.0, 5.0, 5.0]), "fc.weight": Tensor(np.zeros((3, 2), np.float32)), "other": Tensor([1.0])}, strict=False)
    assert found.missing_keys == ["fc.bias"] and found.unexpected_keys == ["other"]
    assert net(PAIR).asnumpy().tolist() == [[10, 10, 10]]
    for given, match in (({"other": Tensor([1.0])}, r'Missing key\(s\) in state_dict: .*"fc.weight"'), ({"fc.weight": Tensor([1.0])}, "size mismatch for fc.weight")):
        with pytest.raises(RuntimeError, match=match):
            net.load_state_dict(given)
    other = WithBuffer()
    assert other.load_state_dict(net.state_dict()) == ([], []) and other(PAIR).asnumpy().tolist() == [[10, 10, 10]]
    kinds = []
    assert net.apply(lambda cell: kinds.append(type(cell).__name__)) is net and kinds == ["Dense", "WithBuffer"]
    for name, value, error in (("fc", Tensor([1.0]), KeyError), ("number", 3, TypeError), ("a.b", None, KeyError)):
        with pytest.raises(error):
            net.register_buffer(name, value)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_gradients_of_results_that_are_integers_or_bools_are_zeros(mode):
    ms.set_context(mode=mode)
    assert ms.grad(lambda x: x > 0)(PAIR).asnumpy().tolist() == [[0, 0]]
    value, gradients = ms.value_and_grad(lambda x, y: ops.argmax(x * y), (0, 1))(PAIR, PAIR)
    assert value.asnumpy() == 0 and [g.asnumpy().tolist() for g in gradients] == [[[0, 0]], [[0, 0]]]
    net = nn.Dense(2, 2)
    made = ms.grad(lambda x: ops.argmax(net(x)), None, net.trainable_params())(PAIR)
    assert [g.shape for g in made] == [(2, 2), (2, )] and not any(g.asnumpy().any() for g in made)


INTS = Tensor([1, 3], ms.int32), Tensor([2, 5], ms.int32)
# (function, its inputs, the gradients), as MindSpore 2.10 has them.
OF_INTEGERS = [
    (lambda a, b: a * b, INTS, ([2, 5], [1, 3])),
    (lambda x: x * x * x, (Tensor([1, 3], ms.int64), ), ([3, 27], )),
    (lambda x: x * x * x, (Tensor([100, 90], ms.uint8), ), ([48, 236], )),
    (lambda a, b: a * b, (Tensor([1.5, 7.0]), Tensor([3, 2], ms.int32)), ([3, 2], [1, 7])),
    (lambda a, b: a / b, INTS, ([0, 0], [0, 0])),
    (lambda a, b: a % b, (Tensor([1, 7], ms.int32), INTS[1]), ([1, 1], [0, -1])),
    (lambda x: x * 2.5, INTS[:1], ([2, 2], )),
    (lambda x: x.astype(ms.int64) * 3 + ops.cast(x, ms.int32), INTS[:1], ([4, 4], )),
    (lambda x: ops.where(x > 2, x * 2, x * 5), INTS[:1], ([5, 2], )),
    (lambda x: (x, x * x), INTS[:1], ([3, 7], )),
    (lambda x: ops.matmul(x, x), (Tensor([[3, 2], [1, 2]], ms.int32), ), ([[9, 7], [9, 7]], )),
    (ms.grad(lambda x: x * x * x), INTS[:1], ([6, 18], )),
]


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize("function, inputs, gradients", OF_INTEGERS)
def test_gradients_with_respect_to_integers_are_integers(function, inputs, gradients, mode):
    ms.set_context(mode=mode)
    made = ops.GradOperation(get_all=True)(function)(*inputs)
    assert [gradient.asnumpy().tolist() for gradient in made] == list(gradients)
    assert [gradient.dtype for gradient in made] == [one.dtype for one in inputs]
    value, again = ms.value_and_grad(function, tuple(range(len(inputs))))(*inputs)
    assert [gradient.asnumpy().tolist() for gradient in again] == list(gradients)
    expected = function(*inputs)
    assert [one.dtype for one in (value if isinstance(value, tuple) else (value, ))] == [one.dtype for one in (
        expected if isinstance(expected, tuple) else (expected, ))]


def test_gradients_with_respect_to_integers_begin_as_is_said():
    both = ops.GradOperation(get_all=True, sens_param=True)(lambda a, b: a * b)(*INTS, Tensor([10, 20], ms.int32))
    assert [gradient.asnumpy().tolist() for gradient in both] == [[20, 100], [10, 60]]
    each = ops.GradOperation(sens_param=True)(lambda a: (a * a, a * 1.0))(INTS[0], (Tensor([10, 1], ms.int32), Tensor([1.0, 2.0])))
    assert each.asnumpy().tolist() == [21, 8]
    first = ms.grad(lambda a: (a * a, a * 7), has_aux=True)(INTS[0])[0]
    assert first.asnumpy().tolist() == [2, 6]


class WithStatistics(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm, self.loss = nn.BatchNorm1d(2), nn.CrossEntropyLoss()

    def construct(self, x, labels):
        return self.loss(self.norm(x), labels)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_labels_have_zeros_and_statistics_move_once(mode, capfd, monkeypatch):
    monkeypatch.setattr(ms.context, "_said", set())
    ms.set_context(mode=mode)
    x, labels = Tensor(np.array([[1, 2], [3, 5]], np.float32)), Tensor([0, 1], ms.int32)
    net, alone = WithStatistics().set_train(), nn.BatchNorm1d(2).set_train()
    alone(x)
    of_x, of_labels = ops.GradOperation(get_all=True)(net)(x, labels)
    assert of_labels.asnumpy().tolist() == [0, 0] and of_labels.dtype == ms.int32
    assert of_x.asnumpy().tolist() == ms.grad(WithStatistics().set_train())(x, labels).asnumpy().tolist()
    assert net.norm.moving_mean.asnumpy().tolist() == alone.moving_mean.asnumpy().tolist() and alone.moving_mean.asnumpy().any()
    assert "integers of input 1 is zeros, for the function takes them as indices or labels" in capfd.readouterr().err


def test_a_parameter_of_integers_has_zeros_and_says_so(capfd, monkeypatch):
    monkeypatch.setattr(ms.context, "_said", set())
    weight = Parameter(Tensor([1, 2], ms.int32), name="w")
    of_input, of_weight = ms.grad(lambda x: x * weight, 0, [weight])(INTS[0])
    assert of_input.asnumpy().tolist() == [1, 2] and of_weight[0].asnumpy().tolist() == [0, 0]
    assert "the gradient with respect to 'w' is zeros" in capfd.readouterr().err


def test_a_model_takes_the_level_o1():
    net = nn.Dense(2, 2, weight_init="ones")
    rows = ds.NumpySlicesDataset((np.full((2, 2), 1.0001, np.float32), np.zeros((2, 2), np.float32)), ["x", "y"]).batch(2)
    model = ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params()), amp_level="O1")
    model.train(1, rows, dataset_sink_mode=False)
    assert net.weight.dtype == ms.float32
    with pytest.raises(ValueError, match="the amp_level must be one of"):
        ms.Model(net, amp_level="O4")


def test_names_inside_of_the_reference_are_there_or_say_what_to_use():
    from mindspore.common.api import _cell_graph_executor
    from mindspore.common.seed import _get_graph_seed
    from mindspore.ops.operations._rl_inner_ops import CudnnGRU
    from mindspore.parallel._ps_context import _is_role_pserver, _is_role_sched, _is_role_worker
    from mindspore.train.amp import _config_level
    assert not (_is_role_pserver() or _is_role_sched() or _is_role_worker())
    assert set(_config_level) == {"O0", "O1", "O2", "O3", "auto"}
    ms.set_seed(3)
    assert _get_graph_seed(5, "normal") == (3, 5) and _get_graph_seed(5, "normal") != (3, 5)
    for use, match in ((lambda: _cell_graph_executor.compile(nn.ReLU()), "Model.build"), (lambda: ms.Symbol(max=3), "a network is compiled for each shape"),
                       (lambda: CudnnGRU(1, 2, 3), "use nn.LSTM, nn.GRU")):
        with pytest.raises((NotImplementedError, AttributeError), match=match):
            use()


def test_transforms_choose_compare_and_count():
    transforms, rows = ds.transforms, np.arange(12).reshape(3, 4)
    for entries, expected in (((slice(0, 2), slice(1, 3)), [[1, 2], [5, 6]]), ((..., slice(0, 1)), [[0], [4], [8]]), (([0, 2], -1), [[3], [11]]), ((1, ), [[4, 5, 6, 7]]),
                              ((None, [0]), [[0], [4], [8]])):
        assert transforms.Slice(*entries)(rows).tolist() == expected
    with pytest.raises(RuntimeError, match="9 is out of range for dim 0 of size 3"):
        transforms.Slice(9)(rows)
    with pytest.raises(TypeError, match="Argument slice with value 1.5"):
        transforms.Slice(1.5)
    assert transforms.Mask(transforms.Relational.GE, 2)(np.arange(4)).tolist() == [False, False, True, True]
    assert transforms.Mask(transforms.Relational.LT, 2, ms.int32)(np.arange(4)).dtype == np.int32
    with pytest.raises(TypeError, match="Argument operator"):
        transforms.Mask(3, 2)
    assert [part.tolist() for part in transforms.Unique()(np.array([[1, 2], [2, 5]]))] == [[1, 2, 5], [0, 1, 1, 2], [1, 2, 1]]
    mapped = ds.NumpySlicesDataset({"x": rows}, shuffle=False).map(transforms.Slice(slice(1, 3)), "x")
    assert [row["x"].tolist() for row in mapped.create_dict_iterator(output_numpy=True)] == [[1, 2], [5, 6], [9, 10]]


def test_a_data_set_is_a_source_that_may_be_shuffled_and_sharded():
    source = ds.NumpySlicesDataset((np.arange(8, dtype=np.float32), np.arange(8) * 10), ["x", "y"], shuffle=False)

    def rows(**how):
        made = ds.GeneratorDataset(source, ["a", "b"], **how)
        read = [tuple(int(value) for value in row) for row in made.create_tuple_iterator(num_epochs=1, output_numpy=True)]
        assert len(made) == len(read)
        return read

    every = [(i, 10 * i) for i in range(8)]
    assert rows() == rows(shuffle=False) == every
    assert sorted(rows(shuffle=True)) == every != rows(shuffle=True)
    assert rows(shuffle=False, num_shards=2, shard_id=1) == every[1::2]
    assert rows(sampler=ds.SequentialSampler(2, 3)) == every[2:5]


def test_several_subgraphs_are_a_hint_without_effect(capfd, monkeypatch):
    from mindspore.parallel._cost_model_context import _set_multi_subgraphs
    monkeypatch.setattr(ms.context, "_said", set())
    assert _set_multi_subgraphs() is None and _set_multi_subgraphs(False) is None
    assert capfd.readouterr().err.count("_set_multi_subgraphs has no effect") == 1
    with pytest.raises(TypeError, match="must be bool, but got int"):
        _set_multi_subgraphs(3)


def test_an_initializer_of_a_script_has_a_name(monkeypatch):
    from mindspore.common import initializer as module
    monkeypatch.setattr(module, "_NAMES", dict(module._NAMES))

    @module._register("threes", "zeros")
    class AllThrees(module.Initializer):
        def __init__(self, value=3):
            super().__init__(value=value)
            self.value = value

        def _initialize(self, arr):
            arr[...] = self.value

    for name in ("threes", "allthrees", "AllThrees"):
        assert module.initializer(name, [2]).init_data().asnumpy().tolist() == [3, 3]
    assert nn.Dense(2, 1, weight_init="threes").weight.asnumpy().tolist() == [[3, 3]]
    assert Parameter(module.initializer("threes", [1]), name="w").asnumpy().tolist() == [3]
    assert module.initializer("zeros", [1]).init_data().asnumpy().tolist() == [0]  # a name that is taken


def test_logsumexp_takes_the_words_of_both_releases():
    x = Tensor([[1.0, 2.0]], ms.float32)
    expected = np.log(np.exp([1.0, 2.0]).sum())
    for made, shape in ((ops.logsumexp(x, 1), (1, )), (ops.logsumexp(x, axis=1), (1, )), (ops.logsumexp(x, dim=1, keepdim=True), (1, 1)),
                        (ops.logsumexp(x, axis=(1, ), keep_dims=True), (1, 1)), (x.logsumexp(axis=1), (1, ))):
        assert made.shape == shape and np.allclose(made.asnumpy(), expected)
    for wrong in ({}, {"dim": 1, "axis": 1}):
        with pytest.raises(TypeError, match="'dim' must be given, or the 'axis'"):
            ops.logsumexp(x, **wrong)


class Momentum(nn.Cell):
    def __init__(self, **settings):
        super().__init__()
        self.update = ops.ApplyMomentum(**settings)
        self.v, self.a = Parameter(Tensor([0.6, 0.4]), name="v"), Parameter(Tensor([0.5, 1.0]), name="a")

    def construct(self, rate, gradient, momentum):
        return self.update(self.v, self.a, rate, gradient, momentum)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize("settings, steps", [({}, (0.75, 1.7)), ({"use_nesterov": True, "use_locking": True}, (0.3 + 0.75 * 0.9, 0.8 + 1.7 * 0.9))])
def test_apply_momentum_changes_both_parameters(settings, steps, mode):
    ms.set_context(mode=mode)
    net = Momentum(**settings)
    made = net(Tensor(0.1, ms.float32), Tensor([0.3, 0.8]), Tensor(0.9, ms.float32))
    assert np.allclose(net.a.asnumpy(), [0.75, 1.7])
    assert np.allclose(net.v.asnumpy(), [0.6 - 0.1 * steps[0], 0.4 - 0.1 * steps[1]]) and np.array_equal(made.asnumpy(), net.v.asnumpy())
    with pytest.raises(TypeError, match="the 'variable' must be a Parameter"):
        ops.ApplyMomentum()(PAIR, net.a, 0.1, PAIR, 0.9)
    with pytest.raises(NotImplementedError, match="gradient_scale=2.0 is not available: multiply the gradient"):
        ops.ApplyMomentum(gradient_scale=2.0)


def test_the_operators_module_has_tensor():
    from mindspore.ops import Tensor as of_ops
    assert of_ops is Tensor and ops.Tensor is Tensor


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_training_is_an_attribute_of_the_cell_alone(mode):
    ms.set_context(mode=mode)
    norm = nn.BatchNorm1d(2)
    norm.training = True
    assert norm.training is True and norm(PAIR).shape == (1, 2) and norm.moving_mean.asnumpy().any()
    norm.training = False
    before = norm.moving_mean.asnumpy().copy()
    norm(PAIR)
    assert norm.training is False and np.array_equal(norm.moving_mean.asnumpy(), before)
    net = nn.SequentialCell(nn.Dense(2, 2), nn.SequentialCell(nn.Dropout(p=0.5), nn.Dense(2, 2)))
    net[1][0].set_train()
    net.training = True
    assert [cell.training for cell in (net, net[0], net[1], net[1][0], net[1][1])] == [True, False, False, True, False]
    net.set_train()
    net.training = False
    assert [cell.training for cell in (net, net[0], net[1], net[1][0], net[1][1])] == [False, True, True, True, True]


@pytest.mark.parametrize("make", [
    lambda decay: nn.Momentum([Parameter(Tensor([1.0]), name="w")], 0.1, 0.9, weight_decay=decay), lambda decay: nn.Adam([Parameter(Tensor([1.0]), name="w")], weight_decay=decay),
    lambda decay: nn.SGD([{"params": [Parameter(Tensor([1.0]), name="w")], "weight_decay": decay}])])
def test_a_weight_decay_that_is_a_cell_is_refused_with_what_to_do(make):
    with pytest.raises(TypeError, match="the cell ReLU: a decay that follows the step is not available. Give a number, .*derive nn.Optimizer"):
        make(nn.ReLU())
    with pytest.raises(TypeError, match="must be float, but got str"):
        make("much")


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_ctc_loss_of_one_sequence_needs_no_batch(reduction):
    logits = Tensor(np.log(np.random.RandomState(0).dirichlet(np.ones(4), 5).astype(np.float32)))
    loss = nn.CTCLoss(reduction=reduction)
    whole = loss(logits.expand_dims(1), Tensor([[1, 2]], ms.int32), Tensor([5], ms.int32), Tensor([2], ms.int32)).asnumpy()
    for lengths in ((Tensor([5], ms.int32), Tensor([2], ms.int32)), (Tensor(5, ms.int32), Tensor(2, ms.int32)), (5, 2)):
        for targets in (Tensor([1, 2], ms.int32), Tensor([[1, 2]], ms.int32)):
            made = loss(logits, targets, *lengths)
            assert made.shape == () and made.asnumpy() == whole.reshape(())


def test_a_tensor_of_one_integer_counts_as_a_whole_number():
    letters = ["a", "b", "c"]
    for one in (Tensor(1), Tensor([1]), Tensor([[1]], ms.int32), Tensor(1, ms.uint8), Tensor(True)):
        assert letters[one] == "b" and letters[:one] == ["a"] and list(range(one)) == [0] and operator.index(one) == 1
    for other in (Tensor(1.0), Tensor([1, 2]), Tensor(np.zeros(0, np.int32))):
        with pytest.raises(TypeError, match="only a tensor of one integer counts as a whole number, this one is"):
            letters[other]
    x = Tensor(np.arange(12).reshape(3, 4))
    assert x[Tensor([1])].shape == (1, 4) and x[Tensor(1)].shape == (4, )  # a place each
    assert ops.reshape(x, Tensor([6, 2])).shape == (6, 2) and ops.reshape(x, Tensor(12)).shape == (12, ) and ops.reshape(x, Tensor([12])).shape == (12, )
    assert ops.reduce_sum(x, Tensor([0, 1])).shape == () and ops.reduce_sum(x, Tensor(1)).shape == (3, )


class ComparesWithNone(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor([1.0, 2.0]), name="w")

    def construct(self, x, mask=None):
        y = x * self.w
        if y == None or self.w == None:  # noqa: E711
            return x
        return y if mask == None else y * mask  # noqa: E711


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_tensors_and_parameters_are_not_none(mode):
    ms.set_context(mode=mode)
    for x in (Tensor([1.0, 2.0]), Parameter(Tensor([1.0, 2.0]), name="w")):
        assert (x == None) is False and (x != None) is True and (x == "a") is False  # noqa: E711
    x = Tensor([3.0, 4.0])
    assert ComparesWithNone()(x).asnumpy().tolist() == [3.0, 8.0]
    assert ComparesWithNone()(x, Tensor([0.0, 1.0])).asnumpy().tolist() == [0.0, 8.0]
