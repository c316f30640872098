"""Names that published scripts import: data sets, layers, losses, metrics and small functions, beside what the suite `reference` compares."""
import importlib
import struct

import mindspore as ms
import mindspore.dataset as ds
import mindspore.dataset.transforms as transforms
import mindspore.dataset.vision as vision
import mindspore.numpy as mnp
import numpy as np
import pytest
import tessera
from mindspore import Tensor, nn, ops


def write_mnist(folder, count=64, parts=("train", "t10k")):
    """Images whose upper or lower half is bright, which their label tells."""
    rng = np.random.default_rng(0)
    for part in parts:
        labels = rng.integers(0, 2, count).astype(np.uint8)
        images = rng.integers(0, 60, (count, 28, 28)).astype(np.uint8)
        for image, label in zip(images, labels):
            image[14 * label:14 * label + 14] += 150
        (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, count, 28, 28) + images.tobytes())
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, count) + labels.tobytes())
    return images, labels


def test_mnist_gives_images_and_labels(tmp_path):
    images, labels = write_mnist(tmp_path)
    data = ds.MnistDataset(str(tmp_path), "test", shuffle=False)
    assert data.get_dataset_size() == 64 and data.output_shapes() == [[28, 28, 1], []]
    rows = list(data.create_tuple_iterator(num_epochs=1, output_numpy=True))
    assert (np.stack([row[0] for row in rows])[..., 0] == images).all()
    assert [int(row[1]) for row in rows] == labels.tolist()
    assert ds.MnistDataset(str(tmp_path)).get_dataset_size() == 128
    assert ds.MnistDataset(str(tmp_path), "train", num_shards=2, shard_id=0).get_dataset_size() == 32
    with pytest.raises(ValueError, match="no such directory"):
        ds.MnistDataset(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="usage"):
        ds.MnistDataset(str(tmp_path), "valid")


class LeNet5(nn.Cell):
    """As published scripts write it."""

    def __init__(self, num_class=10, num_channel=1):
        super().__init__()
        self.conv1 = nn.Conv2d(num_channel, 6, 5, pad_mode="valid", weight_init="xavier_uniform")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid", weight_init="xavier_uniform")
        self.fc1 = nn.Dense(16 * 5 * 5, 120, weight_init="xavier_uniform")
        self.fc2 = nn.Dense(120, 84, weight_init="xavier_uniform")
        self.fc3 = nn.Dense(84, num_class, weight_init="xavier_uniform")
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()

    def construct(self, x):
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(self.flatten(x))))))


def mnist(folder, usage):
    return ds.MnistDataset(str(folder), usage).map(
        [vision.Resize((32, 32)), vision.Rescale(1 / 255.0, 0.0), vision.HWC2CHW()], "image").map(transforms.TypeCast(ms.int32), "label").batch(16)


def test_lenet_learns_mnist(tmp_path):
    ms.set_seed(1)
    write_mnist(tmp_path)
    network = LeNet5()
    model = ms.Model(network, nn.CrossEntropyLoss(), nn.Adam(network.trainable_params(), 2e-3),
                     metrics={"Accuracy": ms.train.Accuracy(), "recall": nn.Recall(), "loss": nn.Loss()})
    model.train(6, mnist(tmp_path, "train"), dataset_sink_mode=False)
    results = model.eval(mnist(tmp_path, "test"), dataset_sink_mode=False)
    assert results["Accuracy"] > 0.9 and (results["recall"][:2] > 0.8).all()


def test_the_native_lenet_is_the_same_network():
    network = tessera.nn.lenet5(10, 1)
    assert network(Tensor(np.zeros((2, 1, 32, 32)), ms.float32)).shape == (2, 10)
    assert [p.name for p in network.parameters()][:2] == ["conv1.weight", "conv2.weight"]


def test_value_and_grad_is_at_the_top():
    value, gradient = ms.value_and_grad(lambda x: ops.ReduceSum()(x * x))(Tensor([1.0, 2.0], ms.float32))
    assert value.asnumpy() == 5 and gradient.asnumpy().tolist() == [2, 4]
    assert ms.grad(lambda x: ops.ReduceSum()(x * x))(Tensor([3.0], ms.float32)).asnumpy().tolist() == [6]


def test_dropout_takes_the_probability_of_dropping():
    network = nn.Dropout(p=0.25)
    network.set_train()
    made = network(Tensor(np.ones((100, 100)), ms.float32)).asnumpy()
    assert 0.2 < (made == 0).mean() < 0.3 and np.isclose(made.max(), 1 / 0.75)
    with pytest.raises(ValueError, match=r"'p' must be a number in range \[0, 1\)"):
        nn.Dropout(p=1.0)


def test_gradient_accumulation_in_a_cell_sums_the_parts():
    x, y = (Tensor(np.random.default_rng(i).uniform(-1, 1, (4, 3)).astype(np.float32)) for i in range(2))
    network = nn.Dense(3, 3)
    loss = nn.WithLossCell(network, nn.MSELoss("sum"))
    whole = ops.GradOperation(get_by_list=True)(loss, network.trainable_params())(x, y)
    parts = ops.GradOperation(get_by_list=True)(nn.GradAccumulationCell(loss, 2), network.trainable_params())(x, y)
    for a, b in zip(whole, parts):
        assert np.allclose(a.asnumpy(), b.asnumpy(), atol=1e-5)
    with pytest.raises(ValueError, match="divisible by micro_size 3"):
        nn.GradAccumulationCell(loss, 3)(x, y)


@pytest.mark.parametrize("name", ["XavierNormal", "HeNormal", "Orthogonal", "VarianceScaling"])
def test_initializers_have_their_spread(name):
    ms.set_seed(1)
    module = importlib.import_module("mindspore.common.initializer")
    made = ms.Parameter(module.initializer(getattr(module, name)(), [64, 32], ms.float32), name="w").asnumpy()
    wanted = {"XavierNormal": np.sqrt(2 / 96), "HeNormal": np.sqrt(2 / 32), "Orthogonal": np.sqrt(1 / 64), "VarianceScaling": np.sqrt(1 / 32)}[name]
    assert abs(made.std() / wanted - 1) < 0.1
    if name == "Orthogonal":
        assert np.allclose(made.T @ made, np.eye(32), atol=1e-5)


def test_remarks_and_switches_have_their_answer():
    assert ops.Add().set_device("CPU").attrs["primitive_target"] == "CPU"
    with pytest.raises(ValueError, match="device_target"):
        ops.Add().set_device("TPU")
    with pytest.raises(RuntimeError, match=r"set_device\('Ascend'\) is not available: all operators run on the CPU"):
        ops.Add().set_device("Ascend")
    for placed in (nn.Dense(2, 2), ops.Add()):
        placed.place("MS_WORKER", 0)
        for role, rank in (("MS_WORKER", 1), ("MS_SERVER", 0)):
            with pytest.raises(RuntimeError, match="in a job of 1 process operators run where the plan has them"):
                placed.place(role, rank)
    with pytest.raises(TypeError, match="takes a role"):
        nn.Dense(2, 2).place(0, 0)
    nn.Dense(2, 2).offload()
    nn.Dense(2, 2).offload(backward_prefetch=3)
    with pytest.raises(ValueError, match="backward_prefetch"):
        nn.Dense(2, 2).offload(0)
    ms.set_context(memory_offload="ON")
    ms.set_context(memory_offload="OFF")
    with pytest.raises(ValueError, match="memory_offload"):
        ms.set_context(memory_offload="CPU")


@pytest.mark.parametrize("make", [nn.Adam, nn.LazyAdam, nn.FTRL])
def test_a_remark_on_the_operator_of_sparse_updates_changes_nothing(make):
    def losses(target):
        ms.set_seed(1)
        network = nn.Dense(3, 2)
        optimizer = make(network.trainable_params(), learning_rate=0.1)
        if target:
            assert optimizer.sparse_opt.add_prim_attr("primitive_target", target).attrs["primitive_target"] == target
            with pytest.raises(NotImplementedError, match="sparse tensors are not available"):
                optimizer.sparse_opt(Tensor([1.0]))
        step = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), optimizer)
        return [float(step(Tensor(np.ones((4, 3), np.float32)), Tensor(np.zeros((4, 2), np.float32))).asnumpy()) for _ in range(3)]

    assert losses("CPU") == losses(None) and losses(None)[2] < losses(None)[0]


def test_tensors_have_methods():
    x = Tensor(np.arange(6).reshape(2, 3), ms.float32)
    assert x.T.shape == (3, 2) and x.flatten().shape == (6, ) and x.argmax().asnumpy() == 5
    assert x.argmax(axis=1).asnumpy().tolist() == [2, 2] and x.clip(1, 4).asnumpy().max() == 4
    assert x.sum(axis=1, keepdims=True).shape == (2, 1) and np.isclose(x.std().asnumpy(), np.arange(6).std())
    assert x.swapaxes(0, 1).shape == (3, 2) and x.repeat(2, 0).shape == (4, 3) and x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.masked_fill(x > 2, 0.0).sum().asnumpy() == 3 and x.long().dtype == ms.int64 and x.permute(1, 0).shape == (3, 2)

    class Uses(nn.Cell):
        def construct(self, y):
            return y.T.flatten().clip(0.0, 3.0).std() + y.argmax(1).astype(ms.float32).mean()

    assert np.isclose(Uses()(x).asnumpy(), np.arange(6).clip(0, 3).std() + 2)


def test_tensors_say_how_they_lie_in_memory():
    x = Tensor(np.arange(24).reshape(2, 3, 4), ms.float32)
    assert (x.strides, x.itemsize, x.nbytes, x.stride(), x.stride(-1), x.storage_offset()) == ((48, 16, 4), 4, 96, [12, 4, 1], 1, 0)
    assert Tensor(3, ms.int8).strides == () and Tensor(np.zeros((0, 3)), ms.int8).strides == (3, 1) and Tensor(3, ms.float16).itemsize == 2
    assert x.mT.shape == (2, 4, 3) and x[0].H.shape == (4, 3) and x.device == "CPU" and x.type() == "Float32" and x.type(ms.int32).dtype == ms.int32
    assert x.is_signed() and not Tensor(1, ms.uint8).is_signed() and x.get_bytes() == x.asnumpy().tobytes() and not x.has_init
    assert ms.Parameter(x, name="x").strides == (48, 16, 4)
    with pytest.raises(ValueError, match="only 2-D Tensor is supported"):
        x.H


def test_what_an_initializer_gives_has_a_tensors_methods():
    from mindspore.common.initializer import initializer
    made = initializer("ones", [1, 3], ms.float32)
    assert made.reshape((-1, )).asnumpy().tolist() == [1, 1, 1] and made.asnumpy().shape == (1, 3) and made.ndim == 2
    bias = nn.Dense(2, 3).bias
    bias.set_data(initializer("ones", [1, 3]).reshape(-1))
    assert bias.asnumpy().tolist() == [1, 1, 1]
    with pytest.raises(AttributeError, match="no attribute 'reshap'"):
        made.reshap


def test_what_draws_or_depends_on_values_says_so_in_a_network():
    class Draws(nn.Cell):
        def construct(self, x):
            return ops.shuffle(x)

    class Places(nn.Cell):
        def construct(self, x):
            return ops.nonzero(x)

    with pytest.raises(NotImplementedError, match="it would draw once; draw before"):
        Draws()(Tensor([1.0], ms.float32))
    with pytest.raises(NotImplementedError, match="the result's shape would depend on it"):
        Places()(Tensor([1.0], ms.float32))
    assert ops.rand(2, 3).shape == (2, 3) and ops.nonzero(Tensor([0.0, 2.0], ms.float32)).asnumpy().tolist() == [[1]]


@pytest.mark.parametrize("call, expected", [
    (lambda: mnp.arange(3), np.arange(3)), (lambda: mnp.ones((2, 2)), np.ones((2, 2))), (lambda: mnp.eye(2, 3, 1), np.eye(2, 3, 1)),
    (lambda: mnp.linspace(0.0, 1.0, 5), np.linspace(0, 1, 5)), (lambda: mnp.array([[1.0, 2.0], [3.0, 4.0]]).sum(0), np.array([4, 6])),
    (lambda: mnp.concatenate((mnp.zeros(2), mnp.ones(1))), np.array([0, 0, 1])), (lambda: mnp.mean(mnp.array([1.0, 3.0])), 2),
    (lambda: mnp.tile(mnp.array([1, 2]), 2), np.tile([1, 2], 2)), (lambda: mnp.matmul(mnp.ones((2, 3)), mnp.ones((3, 1))), np.full((2, 1), 3)),
    (lambda: mnp.pad(mnp.ones((2, )), 1), np.array([0, 1, 1, 0])), (lambda: mnp.where(mnp.array([True, False]), mnp.ones(2), mnp.zeros(2)), np.array([1, 0]))])
def test_numpys_functions_are_numpys(call, expected):
    assert np.allclose(call().asnumpy(), expected)


def test_transforms_of_arrays_and_images():
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    assert (vision.CenterCrop(2)(image) == image[1:3, 1:3]).all() and (vision.HorizontalFlip()(image) == image[:, ::-1]).all()
    made = vision.ToTensor()(image)
    assert made.shape == (3, 4, 4) and made.dtype == np.float32 and np.isclose(made.max(), 47 / 255)
    assert transforms.OneHot(3)(np.array(1)).tolist() == [0, 1, 0]
    data = ds.NumpySlicesDataset({"image": image[None], "label": np.array([1])}, shuffle=False).map(transforms.Compose([vision.CenterCrop(2), vision.ToTensor()]), "image")
    assert next(iter(data))[0].shape == (3, 2, 2)


@pytest.mark.parametrize("make", [lambda p: nn.Adagrad(p, learning_rate=0.1), lambda p: nn.RMSProp(p, 0.02, centered=True), lambda p: nn.FTRL(p, learning_rate=0.1),
                                  lambda p: nn.Adadelta(p, epsilon=1e-2), lambda p: nn.AdaMax(p, 0.05), lambda p: nn.Rprop(p, 0.01), lambda p: nn.ASGD(p)])
def test_optimizers_train(make):
    x = np.random.default_rng(0).uniform(-1, 1, (64, 4)).astype(np.float32)
    data = ds.NumpySlicesDataset({"x": x, "y": x @ np.ones((4, 1), np.float32)}, shuffle=False).batch(16)
    network = nn.Dense(4, 1)
    step = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), make(network.trainable_params()))
    losses = [float(step(*batch).asnumpy()) for _ in range(4) for batch in data.create_tuple_iterator(num_epochs=1)]
    assert losses[-1] < 0.7 * losses[0]
    with pytest.raises(ValueError):
        nn.FTRL(network.trainable_params(), learning_rate=[0.1, 0.2])
    with pytest.raises(ValueError, match="'lr_power' must be at most 0"):
        nn.FTRL(network.trainable_params(), lr_power=0.5)
    for wrong, message in ((lambda p: nn.Rprop(p, etas=(0.5, 0.9)), r"'etas\[1\]' must be greater than 1.0"), (lambda p: nn.Rprop(p, step_sizes=(1.0, 0.5)), "must not decrease"),
                           (lambda p: nn.AdaMax(p, beta1=1.0), "'beta1' must be in range"), (lambda p: nn.Adadelta(p, rho=1.5), "'rho' must be in range")):
        with pytest.raises(ValueError, match=message):
            wrong(network.trainable_params())


def test_functions_of_a_module_are_found_where_scripts_look():
    from mindspore.nn.optim import RMSProp  # noqa: F401
    from mindspore.ops import operations as P
    from mindspore.ops.functional import clamp  # noqa: F401
    from mindspore.train.metrics import Accuracy  # noqa: F401

    assert P.L2Normalize(axis=1) and P.SoftmaxCrossEntropyWithLogits()
    from mindspore.ops import svd
    with pytest.raises(NotImplementedError, match="matrix decompositions are not available: compute them with numpy.linalg"):
        svd(Tensor([[1.0]]))
    with pytest.raises(NotImplementedError, match="read the files in Python and give them to GeneratorDataset"):
        ds.CocoDataset("folder")


def test_what_is_refused_may_be_named_and_refuses_to_be_used():
    from typing import Optional, get_type_hints

    from mindspore.nn import FractionalMaxPool3d
    from mindspore.train.callback import SummaryLandscape

    class Wide(nn.AdaptiveAvgPool3d):
        def __init__(self, channels: int, pool: Optional[FractionalMaxPool3d] = None):
            super().__init__(channels, channels, 3)

    class Without(nn.AdaptiveAvgPool3d):
        def __init__(self):
            pass

    class Remember(SummaryLandscape):
        pass

    cell = nn.Conv2d(1, 1, 3)
    assert not isinstance(cell, (nn.AdaptiveAvgPool3d, FractionalMaxPool3d)) and issubclass(Wide, nn.Cell) and get_type_hints(Wide.__init__)["pool"] == Optional[FractionalMaxPool3d]
    assert importlib.import_module("mindspore.ops.operations").Conv3D is ops.Conv3D and issubclass(ops.Conv3D, ops.Primitive)
    assert cell.weight.dtype not in (ms.complex64, ms.complex128) and "refused" in repr(ms.complex64)
    assert [vision.AutoAugmentPolicy.IMAGENET] and not hasattr(vision.AutoAugmentPolicy, "policies")
    with pytest.raises(NotImplementedError, match="text.Vectors is not part of .*nn.Embedding"):
        ms.dataset.text.Vectors.from_file("vectors.txt")
    for use, message in [(lambda: nn.AdaptiveAvgPool3d(1, 1, 3), "mindspore.nn.AdaptiveAvgPool3d is not part of Tessera's mindspore package; volumes"), (lambda: Wide(1), "volumes"),
                         (lambda: ops.Conv3D(1, 3)(Tensor([1.0])), "volumes"), (Remember, "Model.eval"), (lambda: ops.fft(Tensor([1.0])), "complex numbers"),
                         (lambda: Tensor([1.0]).astype(ms.complex64), "complex numbers"), (Without, "volumes")]:
        with pytest.raises(NotImplementedError, match=message):
            use()


def test_ctc_loss_is_the_sum_over_all_alignments():
    import itertools

    rng = np.random.default_rng(3)
    logits = rng.normal(size=(4, 3, 3)).astype(np.float32)
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    targets, steps, lengths = [[1, 2], [2, 2], [2, 2]], [4, 3, 2], [2, 2, 2]

    def chance(n):
        total = 0.0
        for path in itertools.product(range(3), repeat=steps[n]):
            labels = [label for label, _ in itertools.groupby(path) if label != 0]
            total += np.prod([probabilities[t, n, label] for t, label in enumerate(path)]) if labels == targets[n][:lengths[n]] else 0.0
        return total

    given = ops.log_softmax(Tensor(logits), -1), Tensor(targets, ms.int32), Tensor(steps, ms.int32), Tensor(lengths, ms.int32)
    losses, log_alpha = ops.ctc_loss(*given, reduction="none")
    assert log_alpha.shape == (3, 4, 5) and np.allclose(losses.asnumpy()[:2], [-np.log(chance(0)), -np.log(chance(1))], rtol=1e-4)
    assert np.isinf(losses.asnumpy()[2]) and nn.CTCLoss(reduction="none", zero_infinity=True)(*given).asnumpy()[2] == 0  # 2, 2 takes three steps
    gradient = ms.grad(lambda x: nn.CTCLoss(reduction="sum", zero_infinity=True)(x, *given[1:]))(given[0]).asnumpy()
    assert np.isfinite(gradient).all() and (gradient[:, 2] == 0).all() and np.allclose(gradient[:, :2].sum(-1)[:3], -1, atol=1e-4)
    with pytest.raises(ValueError, match="'blank' must be a class"):
        ops.ctc_loss(*given, blank=3)


def test_instance_norm_brings_each_channel_of_each_sample_to_mean_0_and_variance_1():
    x = np.random.default_rng(0).normal(2, 3, (2, 3, 4, 5)).astype(np.float32)
    wanted = (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5)
    for train in (True, False):
        for cell, given, shape in ((nn.InstanceNorm2d(3), x, x.shape), (nn.InstanceNorm1d(3), x.reshape(2, 3, 20), x.shape),
                                   (nn.InstanceNorm3d(3), x.reshape(2, 3, 2, 2, 5), x.shape)):
            made = cell.set_train(train)(Tensor(given)).asnumpy().reshape(shape)
            np.testing.assert_allclose(made, wanted, atol=1e-4)
    assert [p.requires_grad for p in nn.InstanceNorm2d(3, affine=False).get_parameters()] == [False] * 4
    with pytest.raises(ValueError, match="4 dims and 3 channels"):
        nn.InstanceNorm2d(3)(Tensor(x[0]))


def test_unfold_gives_windows_channels_first():
    x = np.arange(2 * 2 * 5 * 6, dtype=np.float32).reshape(2, 2, 5, 6)
    made = nn.Unfold([1, 2, 2, 1], [1, 2, 3, 1], [1, 1, 1, 1])(Tensor(x)).asnumpy()
    assert made.shape == (2, 8, 2, 2)
    for place, (i, j) in enumerate((i, j) for i in range(2) for j in range(2)):
        np.testing.assert_array_equal(made[:, 2 * place:2 * place + 2], x[:, :, i:i + 3:2, j:j + 4:3])
    assert nn.Unfold([1, 3, 3, 1], [1, 2, 2, 1], [1, 1, 1, 1], "same")(Tensor(x)).shape == (2, 18, 3, 3)


def test_resize_bilinear_of_older_releases_scales_by_whole_numbers():
    x = Tensor(np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3))
    assert nn.ResizeBilinear()(x, scale_factor=2).shape == (1, 1, 4, 6)
    corners = nn.ResizeBilinear()(x, size=(3, 5), align_corners=True).asnumpy()[0, 0]
    assert corners.tolist() == [[0, 0.5, 1, 1.5, 2], [1.5, 2, 2.5, 3, 3.5], [3, 3.5, 4, 4.5, 5]]
    assert ops.ResizeBilinear((3, 5), align_corners=True)(x).asnumpy()[0, 0].tolist() == corners.tolist()
    with pytest.raises(ValueError, match="must be given, and not both"):
        nn.ResizeBilinear()(x)
