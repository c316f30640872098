"""Model: the same bits from Python as from C++, callbacks, data from Python."""
import gc
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tessera
from tessera import data, nn, ops

BIN = Path(os.environ["TESSERA_BUILD"]) / "bin"


def conv(channels, out_channels, kernel, stride):
    return nn.Conv2d(channels, out_channels, kernel, stride, weight_init="xavier_uniform")


def norm(channels):
    return nn.BatchNorm2d(channels, momentum=0.99, gamma_init="uniform")


class Head(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = conv(3, 64, 7, 2)
        self.bn1 = norm(64)
        self.maxpool = nn.MaxPool2d(3, 2, "same")

    def construct(self, x):
        return self.maxpool(ops.relu(self.bn1(self.conv1(x))))


class Block(nn.Cell):
    def __init__(self, channels, out_channels, stride, has_down_sample):
        super().__init__()
        inner = out_channels // 4
        self.conv1, self.bn1 = conv(channels, inner, 1, stride), norm(inner)
        self.conv2, self.bn2 = conv(inner, inner, 3, 1), norm(inner)
        self.conv3, self.bn3 = conv(inner, out_channels, 1, 1), norm(out_channels)
        if has_down_sample:
            self.conv_down_sample, self.bn_down_sample = conv(channels, out_channels, 1, stride), norm(out_channels)
        self.has_down_sample = has_down_sample

    def construct(self, x):
        y = ops.relu(self.bn1(self.conv1(x)))
        y = ops.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return ops.relu(y + (self.bn_down_sample(self.conv_down_sample(x)) if self.has_down_sample else x))


class Stage(nn.Cell):
    def __init__(self, num_blocks, channels, out_channels, stride):
        super().__init__()
        self.names = "abcdef"[:num_blocks]
        for i, name in enumerate(self.names):
            setattr(self, name, Block(channels if i == 0 else out_channels, out_channels, stride if i == 0 else 1, i == 0))

    def construct(self, x):
        for name in self.names:
            x = getattr(self, name)(x)
        return x


class ResNet50(nn.Cell):
    def __init__(self, num_classes):
        super().__init__()
        self.head = Head()
        self.layer1, self.layer2 = Stage(3, 64, 256, 1), Stage(4, 256, 512, 2)
        self.layer3, self.layer4 = Stage(6, 512, 1024, 2), Stage(3, 1024, 2048, 2)
        self.fc = nn.Dense(2048, num_classes, weight_init="xavier_uniform", bias_init="uniform")

    def construct(self, x):
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.head(x)))))
        return self.fc(ops.squeeze(ops.reduce_mean(x, (2, 3), keep_dims=True), (2, 3)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("cifar"))
    data.write_synthetic_cifar10(path, 48, 16)
    return path


def images(path, batch_size):
    transforms = [data.random_crop(32, (4, 4, 4, 4)), data.random_horizontal_flip(), data.rescale(1 / 255.0),
                  data.normalize([0.4465, 0.4822, 0.4914], [0.2010, 0.1994, 0.2023]), data.hwc2chw()]
    return (data.cifar10(path, "train", seed=1).map("label", [data.type_cast("int32")]).map("image", transforms)
            .batch(batch_size, drop_remainder=True))


class Losses(tessera.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def step_end(self, run):
        self.losses.append(run.loss)


def losses_of(network, dataset, loss, epochs=1, **options):
    losses = Losses()
    model = tessera.Model(network, loss, nn.Momentum(learning_rate=0.01), **options)
    model.train(epochs, dataset, [losses])
    return losses.losses, model


def test_resnet50_written_in_python_has_the_losses_of_the_one_in_cpp(folder):
    """Of the same network in C++ from Python, and of the C++ program: bit for bit."""
    loss = nn.SoftmaxCrossEntropyExpand(sparse=True)
    python, _ = losses_of(ResNet50(10), images(folder, 16), loss, seed=1)
    cpp, _ = losses_of(nn.resnet50(10), images(folder, 16), loss, seed=1)
    assert len(python) == 3 and python == cpp
    output = subprocess.run([BIN / "resnet50_cifar10", "--data_path", folder, "--epochs", "1", "--batch_size", "16",
                             "--initial_values", "reference", "--learning_rate", "0.01", "--weight_decay", "0",
                             "--batch_norm_momentum", "0.99", "--no_progress", "--print_loss", "1", "--seed", "1",
                             "--kernels", "fixed"],
                            capture_output=True, text=True, check=True).stdout
    assert re.findall(r"loss is (\S+)", output) == [str(np.float32(value)) for value in python]


def regression(rows=64):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    return {"x": x, "y": (x @ np.array([[1], [-2], [3], [0.5]], np.float32)).astype(np.float32)}


def test_training_reaches_the_parameters_that_python_holds():
    net = nn.Dense(4, 1)
    before = net.weight.numpy().copy()
    losses, model = losses_of(net, data.tensors(regression()).batch(16), nn.MSELoss(), epochs=40)
    assert losses[-1] < 0.1 * losses[0]
    assert (net.weight.numpy() != before).any()
    np.testing.assert_array_equal(net.weight.numpy(), model.value("weight").numpy())
    trained = net.weight.numpy().copy()
    del model
    gc.collect()
    np.testing.assert_array_equal(net.weight.numpy(), trained)
    x = regression()["x"]
    np.testing.assert_allclose(net(x).numpy(), x @ trained.T + net.bias.numpy(), rtol=1e-4, atol=1e-5)


def test_a_loss_written_in_python_equals_the_one_in_cpp():
    class Mse(nn.Cell):
        def construct(self, logits, label):
            return ops.reduce_mean(ops.square(logits - label))

    dataset = data.tensors(regression()).batch(16)
    assert losses_of(nn.Dense(4, 1), dataset, Mse())[0] == losses_of(nn.Dense(4, 1), dataset, nn.MSELoss())[0]


def test_a_callback_sees_every_step_and_may_stop():
    class Stop(tessera.Callback):
        def __init__(self):
            super().__init__()
            self.seen = []

        def begin(self, run):
            self.seen.append("begin")

        def step_end(self, run):
            self.seen.append((run.epoch, run.step_in_epoch, run.steps_per_epoch, run.model is model))
            if run.step == 5:
                run.request_stop()

        def end(self, run):
            self.seen.append("end")

    callback = Stop()
    model = tessera.Model(nn.Dense(4, 1), nn.MSELoss(), nn.Momentum(learning_rate=0.01))
    model.train(10, data.tensors(regression()).batch(16), [callback])
    assert callback.seen == ["begin", (1, 1, 4, True), (1, 2, 4, True), (1, 3, 4, True), (1, 4, 4, True), (2, 1, 4, True), "end"]


def test_a_callback_reads_the_parameters_of_its_step():
    net = nn.Dense(4, 1)

    class Read(tessera.Callback):
        def __init__(self):
            super().__init__()
            self.seen = []

        def step_end(self, run):
            self.seen.append(net.bias.numpy()[0])

    callback = Read()
    tessera.Model(net, nn.MSELoss(), nn.Momentum(learning_rate=0.01)).train(1, data.tensors(regression()).batch(16), [callback])
    assert len(set(callback.seen)) == 4 and callback.seen[-1] == net.bias.numpy()[0]


def test_a_second_model_goes_on_from_the_first():
    net = nn.Dense(4, 1)
    dataset = data.tensors(regression()).batch(16)
    first = tessera.Model(net, nn.MSELoss(), nn.Momentum(learning_rate=0.01))
    first.train(1, dataset)
    second = tessera.Model(net, nn.MSELoss(), nn.Momentum(learning_rate=0.01))
    np.testing.assert_array_equal(second.value("weight").numpy(), first.value("weight").numpy())


def test_models_of_one_network_share_its_values():
    dataset = data.tensors(regression()).batch(16)

    def model_of(net, rate):
        return tessera.Model(net, nn.MSELoss(), nn.SGD(learning_rate=rate), metrics=["loss"])

    net = nn.Dense(4, 1)
    first, second = model_of(net, 0.01), model_of(net, 0.001)
    before = net.bias.numpy().copy()
    first.train(1, dataset)
    assert (net.bias.numpy() != before).all()
    assert second.eval(dataset) == first.eval(dataset)
    first.train(2, dataset)
    second.train(1, dataset)
    third = tessera.Model(net, nn.MSELoss(), metrics=["loss"])
    assert third.eval(dataset) == second.eval(dataset) == first.eval(dataset)
    # The same in one network that takes over its values by hand.
    copy = nn.Dense(4, 1)
    alone = model_of(copy, 0.01)
    alone.train(1, dataset)
    alone.train(2, dataset)
    other = model_of(copy, 0.001)
    del alone
    gc.collect()
    other.train(1, dataset)
    np.testing.assert_array_equal(copy.weight.numpy(), net.weight.numpy())
    net.weight.set_data(tessera.Tensor.from_numpy(np.zeros((1, 4), np.float32)))
    for model in (first, second, third):
        assert (model.value("weight").numpy() == 0).all()


def test_a_callback_may_train_another_model_of_the_network():
    class Trains(tessera.Callback):
        def step_end(self, run):
            other.train(run.step, data.tensors(regression(16)).batch(16))
            self.seen = net.weight.numpy().copy()

    net = nn.Dense(4, 1)
    dataset = data.tensors(regression(16)).batch(16)
    model = tessera.Model(net, nn.MSELoss(), nn.SGD(learning_rate=0.01))
    other = tessera.Model(net, nn.MSELoss(), nn.SGD(learning_rate=0.001))
    callback = Trains()
    model.train(1, dataset, [callback])
    np.testing.assert_array_equal(net.weight.numpy(), callback.seen)
    np.testing.assert_array_equal(model.value("weight").numpy(), callback.seen)


def test_a_learning_rate_is_no_text():
    with pytest.raises(ValueError, match="learning_rate is a number.*got the text '1'"):
        nn.Momentum(learning_rate="1")


def test_an_exception_of_a_callback_or_of_the_data_is_the_callers():
    class Raises(tessera.Callback):
        def step_end(self, run):
            raise KeyError("from the callback")

    model = tessera.Model(nn.Dense(4, 1), nn.MSELoss(), nn.Momentum(learning_rate=0.01))
    with pytest.raises(KeyError, match="from the callback"):
        model.train(1, data.tensors(regression()).batch(16), [Raises()])

    class Bad:
        def __len__(self):
            return 32

        def __getitem__(self, index):
            if index > 20:
                raise RuntimeError("sample 21 is bad")
            return np.zeros(4, np.float32), np.zeros(1, np.float32)

    with pytest.raises(RuntimeError, match="sample 21 is bad"):
        model.train(1, data.generator(Bad(), ["x", "y"]).batch(16), num_workers=2)


def test_data_from_python_equals_data_from_arrays():
    arrays = regression()
    rows = list(zip(arrays["x"], arrays["y"]))
    by_array = losses_of(nn.Dense(4, 1), data.tensors(arrays).batch(16), nn.MSELoss())[0]
    by_index = losses_of(nn.Dense(4, 1), data.generator(rows, ["x", "y"]).batch(16), nn.MSELoss())[0]
    by_order = losses_of(nn.Dense(4, 1), data.stream(lambda: iter(rows), ["x", "y"]).batch(16), nn.MSELoss())[0]
    assert by_array == by_index == by_order


def test_a_function_maps_samples():
    dataset = data.tensors({"x": np.arange(6, dtype=np.float32).reshape(3, 2)}).map("x", [data.function(lambda x: x * 2 + 1)])
    np.testing.assert_array_equal(np.stack([row[0].numpy() for row in dataset]), np.arange(6).reshape(3, 2) * 2 + 1)


def test_predict_and_eval():
    net = nn.Dense(2, 2, weight_init=0.0)
    net.weight.set_data(np.eye(2, dtype=np.float32))
    model = tessera.Model(net, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), metrics=["accuracy", "loss"])
    x = np.array([[3, 1], [0, 2], [5, 4], [1, 0]], np.float32)
    np.testing.assert_array_equal(model.predict(x).numpy(), x)
    results = model.eval(data.tensors({"x": x, "y": np.array([0, 1, 1, 0], np.int32)}).batch(2))
    assert results["accuracy"] == 0.75


def test_the_accuracy_of_a_network_with_one_column_is_refused():
    model = tessera.Model(nn.Dense(2, 1), nn.MSELoss(), metrics=["accuracy"])
    rows = data.tensors({"x": np.ones((4, 2), np.float32), "y": np.array([[0], [1], [0], [1]], np.float32)}).batch(2)
    with pytest.raises(tessera.InvalidArgument, match=r"accuracy: needs a column per class, got logits f32\[2,1\].*a column for each class"):
        model.eval(rows)


def test_the_array_of_a_parameter_that_a_model_has_cannot_be_written():
    net = nn.Dense(2, 2)
    net.weight.numpy()[:] = 3.0
    assert net.weight.numpy()[0, 0] == 3
    model = tessera.Model(net, nn.MSELoss(), nn.SGD(0.1))
    x = np.ones((2, 2), np.float32)
    model.train_step(x, x)
    for array in (net.weight.numpy(), net.weight.asnumpy()):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0.0
    changed = net.weight.numpy().copy()
    changed[:] = 0.0
    net.weight.set_data(changed)
    np.testing.assert_array_equal(model.predict(x).numpy()[0], net.bias.numpy())


def test_eval_shows_the_batches_to_metrics_of_ones_own():
    class Seen:
        def __init__(self):
            self.batches = []

        def update(self, output, label, loss):
            self.batches.append((output.shape, label.numpy().ravel().tolist(), loss))

    net, seen = nn.Dense(1, 1, weight_init=1.0), Seen()
    dataset = data.tensors({"x": np.ones((3, 1), np.float32), "y": np.array([[1], [1], [3]], np.float32)}).batch(2)
    model = tessera.Model(net, nn.MSELoss(), metrics=["loss"])
    assert model.eval(dataset, metrics=[seen]) == {"loss": pytest.approx(4 / 3)}
    assert seen.batches == [((2, 1), [1, 1], 0.0), ((1, 1), [3], 4.0)]
    assert tessera.Model(net, nn.MSELoss()).eval(dataset, metrics=[seen]) == {} and len(seen.batches) == 4
    with pytest.raises(tessera.InvalidArgument, match="no metrics"):
        tessera.Model(net, nn.MSELoss()).eval(dataset)


@pytest.mark.parametrize("timeout", [0, -1.5, float("nan")])
def test_a_search_refuses_a_timeout_that_is_no_time(timeout):
    with pytest.raises(tessera.InvalidArgument, match=f"timeout must be a number of seconds above 0, got {timeout:g}"):
        tessera.Model(nn.Dense(4, 1), nn.MSELoss(), parallel_mode="auto_parallel", search={"timeout": timeout})


def test_a_checkpoint_resumes_exactly(tmp_path):
    dataset = data.tensors(regression()).batch(16)
    whole, _ = losses_of(nn.Dense(4, 1), dataset, nn.MSELoss(), epochs=2)
    saver = tessera.ModelCheckpoint("one", str(tmp_path), save_checkpoint_steps=4)
    first = Losses()
    tessera.Model(nn.Dense(4, 1), nn.MSELoss(), nn.Momentum(learning_rate=0.01)).train(1, dataset, [first, saver])
    losses = Losses()
    resumed = tessera.Model(nn.Dense(4, 1), nn.MSELoss(), nn.Momentum(learning_rate=0.01))
    assert saver.latest == str(tmp_path / "one-1_4.ckpt")
    resumed.load_checkpoint(saver.latest)
    resumed.train(2, dataset, [losses])
    assert first.losses + losses.losses == whole


def test_a_training_resumes_by_itself_where_there_is_a_checkpoint(tmp_path, capfd):
    dataset = data.tensors(regression()).batch(16)
    whole, _ = losses_of(nn.Dense(4, 1), dataset, nn.MSELoss(), epochs=2)
    saved = tmp_path / "saved"

    def train(epochs, **settings):
        losses, model = Losses(), tessera.Model(nn.Dense(4, 1), nn.MSELoss(), nn.Momentum(learning_rate=0.01))
        model.train(epochs, dataset, [losses, tessera.ModelCheckpoint("one", saved, save_checkpoint_steps=4)], **settings)
        return losses.losses, [line for line in capfd.readouterr().out.splitlines() if line.startswith("train: ")]

    first, said = train(1, resume="auto")
    assert said == [f"train: {saved} holds no checkpoint one-*.ckpt: begins with the model as it is"]
    second, said = train(2, resume="auto")
    assert said == [f"train: goes on from {saved}/one-1_4.ckpt, after step 4"]
    assert first + second == whole
    for path in (saved / "one-1_4.ckpt", str(saved / "one-1_4.ckpt")):
        assert train(2, resume=path) == (second, [f"train: goes on from {saved}/one-1_4.ckpt, after step 4"])
    for nothing in (None, False):
        assert train(2, resume=nothing) == (whole, [])


def test_a_training_says_what_it_cannot_resume_from(tmp_path):
    dataset = data.tensors(regression()).batch(16)
    saver = tessera.ModelCheckpoint("one", tmp_path, save_checkpoint_steps=4)
    tessera.Model(nn.Dense(4, 1), nn.MSELoss(), nn.Momentum(learning_rate=0.01)).train(1, dataset, [saver])
    other = tessera.Model(nn.Sequential(nn.Dense(4, 3), nn.Dense(3, 1)), nn.MSELoss(), nn.Momentum(learning_rate=0.01))
    for callbacks, resume, error, words in (
            ([saver], "auto", tessera.NoUsableCheckpoint, "the only checkpoint there cannot be used"),
            ([], "auto", tessera.InvalidArgument, "there is none among the callbacks: add one, or name the checkpoint"),
            ([], True, tessera.InvalidArgument, "resume=True does not say from what"),
            ([], "", tessera.InvalidArgument, "resume is an empty path"),
            ([], saver.latest, tessera.InvalidArgument, "one-1_4.ckpt"), ([], 3, TypeError, "resume")):
        with pytest.raises(error, match=words):
            other.train(1, dataset, callbacks, resume=resume)
        assert other.step == 0


def test_a_deterministic_model_has_the_bits_of_any_on_a_cpu_and_refuses_what_is_not():
    dataset = data.tensors(regression()).batch(16)
    runs = [losses_of(nn.Dense(4, 1), dataset, nn.MSELoss(), **options) for options in ({}, {"deterministic": True}, {"deterministic": False})]
    assert runs[0][0] == runs[1][0] == runs[2][0]
    for options, words in (({"kernels": "measured"}, "deterministic is not available beside kernels: with that another run may give other bits"),
                           ({"servers": 1, "server_staleness": 2}, "deterministic is not available beside server_staleness: ")):
        with pytest.raises(tessera.InvalidArgument, match=words):
            tessera.Model(nn.Dense(4, 1), nn.MSELoss(), nn.SGD(0.1), deterministic=True, **options)


def test_mixed_rows_are_means_and_train_by_probabilities():
    x, label = np.eye(12, dtype=np.float32), np.arange(12, dtype=np.int32) % 3
    rows = data.tensors({"x": x, "label": label}, shuffle=True, seed=3).mixup(0.5, num_classes=3).batch(4)
    assert rows.output_shapes() == [(4, 12), (4, 3)]
    mixed, probabilities = (np.concatenate(column) for column in zip(*[[column.numpy() for column in batch] for batch in rows]))
    np.testing.assert_allclose(mixed @ np.eye(3)[label], probabilities, atol=1e-6)
    np.testing.assert_allclose(mixed.sum(1), 1, atol=1e-6)
    assert (np.count_nonzero(mixed, axis=1) == 2).sum() > 6
    model = tessera.Model(nn.Dense(12, 3), nn.CrossEntropy(), nn.Adam(learning_rate=0.1), metrics=["accuracy"])
    model.train(20, rows)
    assert model.eval(data.tensors({"x": x, "label": label}).batch(4))["accuracy"] > 0.9
    with pytest.raises(tessera.InvalidArgument, match="where it is a class number, num_classes says how many there are"):
        data.tensors({"x": x, "label": label}).mixup(0.5)


def test_images_are_cut_into_each_other():
    images = np.arange(20, dtype=np.uint8).reshape(20, 1, 1, 1) * np.ones((1, 6, 8, 3), np.uint8)
    rows = data.tensors({"image": images, "label": np.arange(20, dtype=np.int32)}).cutmix(1.0, num_classes=20)
    cut = 0
    for image, probabilities in rows:
        area = np.bincount(image.numpy()[:, :, 0].ravel(), minlength=20) / 48
        np.testing.assert_allclose(probabilities.numpy(), area, atol=1e-6)
        cut += np.count_nonzero(area) == 2
    assert cut > 10
    with pytest.raises(tessera.InvalidArgument, match="say channels_first=false"):
        data.tensors({"image": images, "label": np.arange(20, dtype=np.int32)}).cutmix(1.0, 20, channels_first=True)


def test_a_checkpoint_of_another_job_is_not_resumed(tmp_path):
    def job(name):
        return tessera.Model(nn.Dense(4, 1), nn.MSELoss(), nn.Momentum(learning_rate=0.01), job_name=name)

    path = job("first").save_checkpoint(str(tmp_path / "x.ckpt"))
    other = job("second")
    with pytest.raises(tessera.InvalidArgument, match='is of the training "first", not of "second"'):
        other.load_checkpoint(path)
    other.load_parameters(path)
    other.load_checkpoint(path, accept_other_jobs=True)
    for name in ("first", ""):
        job(name).load_checkpoint(path)


def test_a_checkpoint_with_another_learning_rate_says_so(tmp_path, capfd):
    def job(rate):
        return tessera.Model(nn.Dense(4, 1), nn.MSELoss(), nn.Momentum(learning_rate=rate))

    path = job(0.125).save_checkpoint(str(tmp_path / "x.ckpt"))
    job(0.125).load_checkpoint(path)
    assert "learning_rate" not in capfd.readouterr().err
    other = job(0.5)
    other.load_checkpoint(path)
    assert other.value("learning_rate").item() == 0.125
    said = capfd.readouterr().err
    assert said.count("training goes on with learning_rate 0.125, as it was saved, not with this model's 0.5") == 1


class Around(nn.Cell):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def construct(self, x):
        return ops.softmax(self.net(x))


def test_a_trained_network_may_become_part_of_another_cell(tmp_path):
    net = nn.Sequential(nn.Dense(4, 8), nn.Dense(8, 1))
    model = tessera.Model(net, nn.MSELoss(), nn.Momentum(learning_rate=0.01))
    model.train(1, data.tensors(regression()).batch(16))
    trained = {name: model.value(name).numpy() for name in ("0.weight", "1.bias")}
    around = Around(net)
    assert [p.name for p in around.parameters()][0] == "net.0.weight"
    np.testing.assert_array_equal(net[0].weight.numpy(), trained["0.weight"])
    around(tessera.Tensor(np.ones((2, 4), np.float32)))
    net[1].bias.set_data(tessera.Tensor(trained["1.bias"] + 1))
    assert model.value("1.bias").numpy() == trained["1.bias"] + 1
    del model
    gc.collect()
    np.testing.assert_array_equal(net[0].weight.numpy(), trained["0.weight"])
    np.testing.assert_array_equal(net[1].bias.numpy(), trained["1.bias"] + 1)


def test_values_outlive_a_model_whose_network_became_part_of_another_cell():
    net = nn.Dense(4, 1)
    model = tessera.Model(net, nn.MSELoss(), nn.Momentum(learning_rate=0.01))
    before = net.weight.numpy().copy()
    model.train(1, data.tensors(regression()).batch(16))
    around = Around(net)
    del model  # which has the values still
    gc.collect()
    assert (around.net.weight.numpy() != before).all()


@pytest.mark.parametrize("search, words", [
    ({"timeout": -1.0}, 'timeout must be a number of seconds above 0, got -1.0'), ({"timeout": float("nan")}, "got nan"),
    ({"timeout": 0}, "got 0"), ({"timeout": "60"}, "timeout must be a number of seconds above 0, got '60'"),
    ({"timeout": True}, "got True"), ({"rounds": -5}, 'rounds must be a whole number from 1 to 2147483647, got -5'),
    ({"rounds": 2.5}, "got 2.5"), ({"rounds": 2 ** 40}, "got 1099511627776"), ({"max_axes": 0}, 'max_axes must be a whole number from 1'),
    ({"slice_align_size": 0}, 'slice_align_size must be a whole number from 1'), ({"fully_use_devices": 2}, "must be True or False, got 2"),
    ({"algorithm": 3}, 'algorithm must be a text, got 3'), ({"save": 1}, 'save must be a text'), ({"tiemout": 1}, 'no key "tiemout"')], ids=str)
def test_options_of_the_search_are_refused_by_name(search, words):
    with pytest.raises(tessera.InvalidArgument, match=re.escape(words)):
        tessera.Model(nn.Dense(4, 1), nn.MSELoss(), nn.SGD(0.1), parallel_mode="auto_parallel", search=search)


def test_an_optimizer_for_some_parameters_leaves_the_others():
    net = nn.Dense(4, 1)
    weight = net.weight.numpy().copy()
    chosen = nn.ChosenParameters(nn.Momentum(learning_rate=0.1), [net.bias])
    tessera.Model(net, nn.MSELoss(), chosen).train(1, data.tensors(regression()).batch(16))
    np.testing.assert_array_equal(net.weight.numpy(), weight)
    assert net.bias.numpy()[0] != 0


@pytest.mark.parametrize("options", [dict(precision="bfloat16"), dict(precision="float16", loss_scale=nn.fixed_loss_scale(64)),
                                     dict(amp_level="O2", loss_scale=nn.dynamic_loss_scale(64)), dict(amp_level="O3")], ids=str)
def test_a_half_precision_is_near_float32_and_not_equal_to_it(options):
    dataset = data.tensors(regression()).batch(16)
    exact = losses_of(nn.Dense(4, 1), dataset, nn.MSELoss(), epochs=3)[0]
    low, model = losses_of(nn.Dense(4, 1), dataset, nn.MSELoss(), epochs=3, **options)
    assert low != exact and low == pytest.approx(exact, rel=0.05)
    assert ("loss_scale" in model.names()) == ("loss_scale" in options)
    assert model.value("weight").dtype == tessera.float32


def test_a_loss_scale_that_overflows_falls_and_the_step_is_skipped():
    net = nn.Dense(4, 1)
    before = net.weight.numpy().copy()
    model = tessera.Model(net, nn.MSELoss(), nn.Momentum(learning_rate=0.01), precision="float16",
                          loss_scale=nn.dynamic_loss_scale(init_loss_scale=1e38, scale_factor=1e36, scale_window=1000))
    arrays = regression(16)
    model.train_step(arrays["x"], arrays["y"])
    assert model.was_skipped and model.value("loss_scale").item() == pytest.approx(100, rel=1e-5)
    np.testing.assert_array_equal(net.weight.numpy(), before)
    model.train_step(arrays["x"], arrays["y"])
    assert not model.was_skipped and (net.weight.numpy() != before).any()


def test_a_fixed_loss_scale_changes_nothing_but_its_state():
    dataset = data.tensors(regression()).batch(16)
    plain = losses_of(nn.Dense(4, 1), dataset, nn.MSELoss())[0]
    scaled, model = losses_of(nn.Dense(4, 1), dataset, nn.MSELoss(), loss_scale=nn.fixed_loss_scale(1024))
    assert scaled == plain and model.value("loss_scale").item() == 1024
    scale = nn.fixed_loss_scale(8, drop_overflow_update=False)
    assert (scale.initial, scale.factor, scale.drop_overflow_update) == (8, 1, False)


def test_float16_brings_a_dynamic_loss_scale_along():
    for options in (dict(precision="float16"), dict(amp_level="O2")):
        model = tessera.Model(nn.Dense(4, 1), nn.MSELoss(), nn.SGD(0.1), **options)
        assert model.value("loss_scale").item() == 2 ** 24


def deep(recomputed=False):
    net = nn.Sequential(*(nn.Sequential(*(nn.Dense(64, 64, activation="tanh") for _ in range(4))) for _ in range(3)), nn.Dense(64, 1))
    if recomputed:
        for layer in list(net)[:-1]:
            assert layer.recompute() is layer
    return net


def wide(rows=256):
    x = np.random.default_rng(0).normal(size=(rows, 64)).astype(np.float32)
    return data.tensors({"x": x, "y": x.sum(1, keepdims=True)}).batch(rows)


def test_recomputation_changes_no_loss_and_takes_less_memory():
    plain, model = losses_of(deep(), wide(), nn.MSELoss(), epochs=3)
    for options, net in ((dict(), deep(recomputed=True)), (dict(memory_limit=model.arena_bytes - 100000), deep())):
        losses, smaller = losses_of(net, wide(), nn.MSELoss(), epochs=3, **options)
        assert losses == plain and smaller.arena_bytes < model.arena_bytes
    with pytest.raises(ValueError, match="is already"):
        deep(recomputed=True).recompute()
    with pytest.raises(ValueError, match="memory_limit"):
        tessera.Model(deep(), memory_limit="a lot")


def test_a_memory_limit_that_cannot_be_kept_says_so():
    with pytest.raises(ValueError, match="memory limit of 200.0 KiB"):
        tessera.Model(deep(), nn.MSELoss(), nn.Momentum(learning_rate=0.01), memory_limit="200KiB").build(wide())


def test_kernels_are_fixed_or_measured(tmp_path):
    dataset = data.tensors(regression()).batch(16)
    fixed = losses_of(nn.Dense(4, 1), dataset, nn.MSELoss(), kernels="fixed")[0]
    measured = losses_of(nn.Dense(4, 1), dataset, nn.MSELoss(), kernels="measured", kernel_cache=str(tmp_path / "cache"))[0]
    assert measured == pytest.approx(fixed, rel=1e-4)
    with pytest.raises(ValueError, match="fixed, measured|fixed and measured|measured"):
        tessera.Model(nn.Dense(1, 1), kernels="wrong")


def test_without_fusion_every_operator_is_a_kernel_of_its_own():
    dataset = data.tensors(regression()).batch(16)
    fused = losses_of(nn.Dense(4, 1), dataset, nn.MSELoss())[0]
    assert losses_of(nn.Dense(4, 1), dataset, nn.MSELoss(), fuse=False, overlap=False)[0] == pytest.approx(fused, rel=1e-5)


def test_adamw_decays_beside_the_moments():
    """Two steps by hand: Loshchilov and Hutter, 2019."""
    net = nn.Dense(2, 1, has_bias=False, weight_init=1.0)
    model = tessera.Model(net, nn.MSELoss(), nn.AdamW(learning_rate=0.1, weight_decay=0.5, eps=1e-8))
    x, y = np.array([[1, 2], [3, -1]], np.float32), np.array([[0], [1]], np.float32)
    w, m, v = np.ones(2), np.zeros(2), np.zeros(2)
    for t in (1, 2):
        model.train_step(x, y)
        gradient = 2 * ((x @ w - y[:, 0])[:, None] * x).mean(0)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient ** 2
        w = w - 0.1 * 0.5 * w
        w = w - 0.1 * (m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-8)
    np.testing.assert_allclose(net.weight.numpy()[0], w, rtol=1e-5)


@pytest.mark.parametrize("make", [nn.Adagrad, nn.FTRL])
def test_the_first_argument_of_an_optimizer_is_its_learning_rate(make):
    given, named = nn.Dense(4, 1), nn.Dense(4, 1)
    arrays = regression(16)
    tessera.Model(given, nn.MSELoss(), make(0.05)).train_step(arrays["x"], arrays["y"])
    tessera.Model(named, nn.MSELoss(), make(learning_rate=0.05)).train_step(arrays["x"], arrays["y"])
    np.testing.assert_array_equal(given.weight.numpy(), named.weight.numpy())


def test_a_parameter_decays_unless_the_last_of_its_names_is_beta_or_gamma():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.beta_head = nn.Dense(2, 2, weight_init="ones")
            self.norm = nn.LayerNorm(2)

        def construct(self, x):
            return self.norm(self.beta_head(x)) * 0.0

    net = Net()
    x = np.ones((2, 2), np.float32)
    tessera.Model(net, nn.MSELoss(), nn.SGD(0.1, weight_decay=0.5)).train_step(x, 0 * x)
    np.testing.assert_allclose(net.beta_head.weight.numpy(), np.full((2, 2), 0.95), rtol=1e-6)
    np.testing.assert_array_equal(net.norm.gamma.numpy(), np.ones(2))


def test_gradients_of_some_parameters_may_be_scaled():
    plain, scaled = nn.Dense(4, 1), nn.Dense(4, 1)
    start = plain.weight.numpy().copy()
    arrays = regression(16)
    tessera.Model(plain, nn.MSELoss(), nn.SGD(0.1)).train_step(arrays["x"], arrays["y"])
    optimizer = nn.ScaledGradients(nn.SGD(0.1), {scaled.weight: 0.5})
    tessera.Model(scaled, nn.MSELoss(), optimizer).train_step(arrays["x"], arrays["y"])
    np.testing.assert_allclose(scaled.weight.numpy() - start, 0.5 * (plain.weight.numpy() - start), rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(scaled.bias.numpy(), plain.bias.numpy())


def test_options_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="amp_level"):
        tessera.Model(nn.Dense(1, 1), nn.MSELoss(), nn.SGD(0.1), amp_level="O7").train_step(np.ones((1, 1)), np.ones((1, 1)))
    with pytest.raises(ValueError, match="unknown parallel mode"):
        tessera.Model(nn.Dense(1, 1), parallel_mode="wrong")
    with pytest.raises(TypeError):
        tessera.Model(nn.Dense(1, 1), unknown=1)


def test_a_learning_rate_is_what_a_cell_makes_of_the_step():
    class Halving(nn.Cell):
        def construct(self, step):
            return 0.01 * ops.pow(0.5, ops.cast(step, "float32"))

    dataset = data.tensors(regression()).batch(16)
    found = []
    for rate in ([0.01 * 0.5**i for i in range(8)], Halving()):
        losses = Losses()
        model = tessera.Model(nn.Dense(4, 1), nn.MSELoss(), nn.Momentum(learning_rate=rate))
        model.train(2, dataset, [losses])
        found.append(losses.losses)
    assert found[1] == pytest.approx(found[0], rel=1e-6) and len(found[0]) == 8
    assert "global_step" in model.names() and "learning_rate" not in model.names()


def test_gradients_are_centralized():
    net = nn.Dense(2, 3, weight_init=0.0)
    inner = nn.SGD(learning_rate=1.0)
    model = tessera.Model(net, nn.MSELoss(), nn.CentralizedGradients(inner, [net.weight, net.bias]))
    x, y = np.array([[1.0, 3.0]], np.float32), np.array([[3.0, 6.0, 9.0]], np.float32)
    model.train_step(x, y)
    gradient = -2 / 3 * y.T @ x
    np.testing.assert_allclose(net.weight.numpy(), -(gradient - gradient.mean(1, keepdims=True)), rtol=1e-6)
    np.testing.assert_allclose(net.bias.numpy(), 2 / 3 * y[0], rtol=1e-6)


def lamb_in_numpy(w, gradients, rate, decay):
    """The paper's formulas, step by step."""
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        r = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6) + decay * w
        norms = np.linalg.norm(w), np.linalg.norm(r)
        w = w - rate * (norms[0] / norms[1] if min(norms) > 0 else 1) * r
    return w


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_lamb_is_what_the_paper_says(start):
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = tessera.Parameter(np.full((2, 3), start, np.float32))

        def construct(self, g):
            return ops.reduce_sum(self.w * g)

    net = Net()
    model = tessera.Model(net, None, nn.Lamb(learning_rate=0.1, weight_decay=0.01))
    gradients = np.random.RandomState(0).randn(4, 2, 3).astype(np.float32)
    for g in gradients:
        model.train_step(g)
    np.testing.assert_allclose(net.w.numpy(), lamb_in_numpy(np.full((2, 3), start), gradients, 0.1, 0.01), rtol=2e-4, atol=1e-6)
    assert model.names()[1:5] == ["global_step", "learning_rate", "lamb_m.w", "lamb_v.w"]


class Words(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Dense(3, 2)

    def construct(self, ids):
        return self.head(self.embedding(ids))


def words(ids, labels):
    return data.tensors({"ids": np.array(ids, np.int32), "label": np.array(labels, np.int32)}).batch(4)


def model_of_words():
    return tessera.Model(Words(), nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), nn.Momentum(learning_rate=0.1),
                         metrics=["accuracy"])


def test_an_index_out_of_range_is_named():
    model = model_of_words()
    with pytest.raises(ValueError, match=r'batch 2: column "ids": row 1 holds 5 at \[1\]; an index of gather "embedding" must be from 0 to 4'):
        model.train(1, words([0, 1, 2, 3, 4, 5, 0, 1], [0] * 8))
    with pytest.raises(ValueError, match=r'batch 1: column "label": row 3 holds -1 at \[3\]; an index of softmax_cross_entropy .* from 0 to 1'):
        model.eval(words([0] * 4, [0, 1, 0, -1]))
    with pytest.raises(ValueError, match="gather"):
        ops.gather(tessera.Tensor(np.eye(3, dtype=np.float32)), tessera.Tensor(np.array([3], np.int32)))


def test_an_epoch_leaves_a_line(capsys):
    rows = words([0, 1, 2, 3], [0, 1, 0, 1])
    model_of_words().train(2, rows, [tessera.EpochSummary(valid=rows, row_name="words")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"epoch 2/2: loss [0-9.]+, accuracy [0-9.]+, [0-9.]+ words/s, [0-9.]+ s", lines[1])


class InList(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Dense(3, 3), nn.Dense(3, 3)]

    def construct(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class InListOfUnlike(InList):
    """Two weights of one name and different shapes, which construct() itself fails on."""

    def __init__(self):
        super().__init__()
        self.layers = [nn.Dense(3, 4), nn.Dense(4, 3)]


class InConstruct(nn.Cell):
    def construct(self, x):
        return nn.Sequential(nn.Dense(3, 3))(x)


@pytest.mark.parametrize("network,named", [(InList, '"bias" of a Dense that InList holds in its list "layers"'), (InListOfUnlike, '"bias" of a Dense that InListOfUnlike holds in its list "layers"'),
                                           (InConstruct, '"0.bias" of a Sequential')])
def test_a_layer_that_is_no_attribute_is_named_with_the_remedy(network, named):
    rows = data.tensors({"x": np.ones((4, 3), np.float32), "label": np.zeros((4, 3), np.float32)}).batch(2)
    for mode in ("stand_alone", "data_parallel", "semi_auto_parallel"):
        model = tessera.Model(network(), nn.MSELoss(), nn.Momentum(0.1), metrics=["loss"], parallel_mode=mode)
        for call in (lambda: model.train(1, rows), lambda: model.build(rows), lambda: model.eval(rows)):
            with pytest.raises(ValueError, match=f"^{named} is no parameter of the network: .* in a CellList or Sequential"):
                call()


def test_forward_in_place_of_construct_is_answered_with_the_name_that_is_wanted():
    class Net(nn.Cell):
        def forward(self, x):
            return x

    with pytest.raises(ValueError, match=r"^Net has no construct\(\) for 1 inputs: its forward\(\) is not called; name it construct\(\)$"):
        Net()(np.ones(2, np.float32))
    with pytest.raises(ValueError, match=r"^CellList has no construct\(\) for 1 inputs$"):
        nn.CellList()(np.ones(2, np.float32))


class Scaled(nn.Cell):
    """A layer times t."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, 2)
        self.t = 1.0

    def construct(self, x):
        return self.dense(x) * self.t


def scaled_model(network):
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    rows = tessera.data.tensors({"x": x, "label": np.zeros((4, 2), np.float32)}).batch(4)
    model = tessera.Model(network, nn.MSELoss(), nn.Momentum(0.01, momentum=0.0), metrics=["loss"])
    return model, rows, tessera.Tensor(x)


class Counts(nn.Cell):
    def __init__(self):
        super().__init__()
        self.calls = tessera.Parameter(0.0, requires_grad=False)

    def construct(self, x):
        self.calls = self.calls + 1.0
        return x * 2.0


def test_a_parameter_that_a_prediction_assigns_is_seen():
    network = Counts()
    model = tessera.Model(network)
    for calls in (1, 2, 3):
        model.predict(np.ones((2, 3), np.float32))
        assert network.calls.value().item() == calls


def test_a_parameter_that_an_evaluation_assigns_is_seen():
    class Ignores:
        def update(self, output, label, loss):
            pass

    network = Counts()
    model = tessera.Model(network)
    x = np.ones((8, 3), np.float32)
    model.eval(tessera.data.tensors({"x": x, "y": x}).batch(2), metrics=[Ignores()])
    assert network.calls.value().item() == 4


@pytest.mark.parametrize("seed, said", [(-1, "-1"), (2**64, "18446744073709551616"), (10**6000, "more digits than Python writes")], ids=["negative", "wide", "huge"])
def test_a_seed_out_of_range_is_named(seed, said):
    for call in (lambda: tessera.Model(nn.Dense(2, 2), seed=seed), lambda: tessera.set_seed(seed),
                 lambda: tessera.data.tensors({"x": np.ones((2, 2), np.float32)}, seed=seed)):
        with pytest.raises(tessera.InvalidArgument, match=re.escape(f"seed: must be from 0 to 2**64 - 1, got {said}")):
            call()


def test_a_changed_attribute_counts_in_all_that_was_compiled():
    network = Scaled()
    model, rows, x = scaled_model(network)
    model.train(1, rows)
    model.eval(rows), model.predict(x)
    before = model.value("dense.weight").numpy().copy()
    network.t = 0.0
    assert model.eval(rows)["loss"] == 0.0
    assert not model.predict(x).numpy().any()
    model.train(1, rows)
    np.testing.assert_array_equal(model.value("dense.weight").numpy(), before)
    network.t = 1.0
    model.train(1, rows)
    assert (model.value("dense.weight").numpy() != before).any()


def test_a_callback_may_change_an_attribute():
    network = Scaled()
    model, rows, _ = scaled_model(network)
    weights = []

    class Change(tessera.Callback):

        def epoch_end(self, run):
            weights.append(model.value("dense.weight").numpy().copy())
            network.t = 0.0

    model.train(3, rows, [Change()])
    np.testing.assert_array_equal(weights[1], weights[0])
    np.testing.assert_array_equal(weights[2], weights[0])


def test_a_parameter_may_be_frozen_after_training():
    network = Scaled()
    model, rows, _ = scaled_model(network)
    model.train(1, rows)
    weight, bias = (model.value(f"dense.{name}").numpy().copy() for name in ("weight", "bias"))
    network.dense.weight.requires_grad = False
    model.train(1, rows)
    np.testing.assert_array_equal(model.value("dense.weight").numpy(), weight)
    assert (model.value("dense.bias").numpy() != bias).any()


@pytest.mark.parametrize("change, words", [
    (lambda network: setattr(network, "after", nn.Dense(2, 2, has_bias=True)), "after.weight.*make a new Model"),
    (lambda network: setattr(network, "dense", nn.Sequential(nn.Dense(3, 5), nn.Dense(5, 2))), "has changed.*make a new Model"),
])
def test_a_network_of_other_parts_needs_a_new_model(change, words):

    class Extended(Scaled):

        def construct(self, x):
            y = super().construct(x)
            return self.after(y) if "after" in self.__dict__ else y

    network = Extended()
    model, rows, _ = scaled_model(network)
    change(network)
    with pytest.raises(tessera.InvalidArgument, match=words):
        model.train(1, rows)


def test_a_layer_of_another_size_needs_a_new_model():

    class Two(nn.Cell):

        def __init__(self, width):
            super().__init__()
            self.up, self.down = nn.Dense(3, width), nn.Dense(width, 2)

        def construct(self, x):
            return self.down(self.up(x))

    network = Two(4)
    model, rows, _ = scaled_model(network)
    network.up, network.down = nn.Dense(3, 5), nn.Dense(5, 2)
    with pytest.raises(tessera.InvalidArgument, match=r'"up.weight" is f32\[5,3\], in the model f32\[4,3\]; make a new Model'):
        model.train(1, rows)


def small_model():
    return tessera.Model(nn.Dense(4, 3), nn.MSELoss(), nn.Momentum(learning_rate=0.01))


def test_damaged_checkpoints_are_another_error_than_none(tmp_path):
    model = small_model()
    x = np.ones((2, 4), np.float32)
    model.train_step(x, np.ones((2, 3), np.float32))
    with pytest.raises(tessera.InvalidArgument, match="holds no checkpoint") as none:
        model.load_checkpoint(str(tmp_path))
    assert not isinstance(none.value, tessera.NoUsableCheckpoint)
    for step in (1, 2):
        path = Path(model.save_checkpoint(str(tmp_path / f"CKP-1_{step}.ckpt")))
        content = bytearray(path.read_bytes())
        content[content.index(b"weight") + 40] ^= 1
        path.write_bytes(content)
    with pytest.raises(tessera.NoUsableCheckpoint) as damaged:
        small_model().load_checkpoint(str(tmp_path))
    assert isinstance(damaged.value, ValueError)
    for step in (1, 2):
        assert f"CKP-1_{step}.ckpt: " in str(damaged.value)
    newest = subprocess.run([BIN / "tessera", "ckpt", "newest", tmp_path], capture_output=True, text=True, check=False)
    assert newest.returncode == 4, newest.stderr


def test_a_loss_that_is_not_finite_has_one_type():
    model = small_model()
    x, y = np.full((2, 4), np.inf, np.float32), np.ones((2, 3), np.float32)
    with pytest.raises(tessera.NonFiniteLoss):
        model.train_step(x, y)
    with pytest.raises(tessera.NonFiniteLoss, match="epoch: 1 step: 1. Invalid loss") as error:
        model.train(1, data.tensors({"x": x, "y": y}).batch(2))
    assert isinstance(error.value, tessera.Error)


def test_a_number_of_the_data_that_is_not_finite_is_named_by_column_and_row():
    x, y = np.ones((8, 4), np.float32), np.ones((8, 3), np.float32)
    y[6, 1] = np.nan
    with pytest.raises(tessera.NonFiniteLoss, match=r'step: 2\. Invalid loss.* column "y": row 2 holds nan at \[2, 1\]; the parameters'):
        small_model().train(1, data.tensors({"x": x, "y": y}).batch(4))


def test_after_an_exception_the_next_training_is_a_new_one():
    class Fails(tessera.Callback):
        def __init__(self, at):
            super().__init__()
            self.at, self.steps, self.ended = at, 0, []

        def step_end(self, run):
            self.steps += 1
            if self.steps == self.at:
                raise RuntimeError("a callback that fails")

        def end(self, run):
            self.ended.append(run.has_failed)

    model = small_model()
    rows = data.tensors({"x": np.ones((40, 4), np.float32), "y": np.ones((40, 3), np.float32)}).batch(4)
    fails, whole = Fails(4), Fails(0)
    with pytest.raises(RuntimeError, match="a callback that fails"):
        model.train(1, rows, [fails])
    assert fails.ended == [True]
    model.train(1, rows, [whole])
    assert (whole.steps, whole.ended) == (10, [False])
