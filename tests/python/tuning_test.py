"""What a training is tuned with: schedules of learning rates, parameters frozen and grouped by pattern, callbacks that watch a number, partial
loading."""
import math

import numpy as np
import pytest
import tessera
from tessera import nn, ops

X = np.random.default_rng(1).standard_normal((10, 4), dtype=np.float32)
Y = X @ np.arange(12, dtype=np.float32).reshape(4, 3)
CLASSES = Y.argmax(1).astype(np.int32)


class Net(nn.Cell):
    def __init__(self, head="head", num_classes=3):
        super().__init__()
        self.backbone = nn.Sequential(nn.Dense(4, 6, weight_init="he_uniform"), nn.BatchNorm1d(6))
        setattr(self, head, nn.Dense(6, num_classes, weight_init="he_uniform"))
        self.last = getattr(self, head)

    def construct(self, x):
        return self.last(ops.relu(self.backbone(x)))


def rows(labels=CLASSES, size=4):
    return tessera.data.tensors({"x": X, "label": labels}).batch(size)


def new_model(net, optimizer=None, **options):
    return tessera.Model(net, nn.CrossEntropy(), optimizer or nn.SGD(learning_rate=0.1), **{"metrics": ["loss", "accuracy"], **options})


def names_of(parameters):
    return [parameter.name for parameter in parameters]


@pytest.mark.parametrize("schedule, rate_of", [
    (nn.schedules.constant(0.2), lambda t: 0.2),
    (nn.schedules.linear(0.2, 0.1, 10), lambda t: 0.2 - 0.1 * min(t, 10) / 10),
    (nn.schedules.cosine(0.2, 10, end_rate=0.1), lambda t: 0.1 + 0.1 * math.cos(min(t, 10) / 10 * math.pi / 2) ** 2),
    (nn.schedules.polynomial(0.2, 10, power=3), lambda t: 0.2 * (1 - min(t, 10) / 10) ** 3),
    (nn.schedules.exponential(0.2, 0.5, 4), lambda t: 0.2 * 2 ** (-t / 4)),
    (nn.schedules.exponential(0.2, 0.5, 4, is_stair=True), lambda t: 0.2 / 2 ** (t // 4)),
    (nn.schedules.multi_step(0.2, [3, 5], gamma=0.5), lambda t: 0.2 if t < 3 else 0.1 if t < 5 else 0.05),
    (nn.schedules.inverse_square_root(0.2, 4), lambda t: 0.4 / math.sqrt(4 + t)),
    (nn.schedules.cosine_restarts(0.2, 3), lambda t: 0.2 * math.cos(t % 3 / 3 * math.pi / 2) ** 2),
    (nn.schedules.warmup(4, nn.schedules.linear(0.2, 0, 8)), lambda t: 0.05 * t if t < 4 else max(0.2 - 0.025 * (t - 4), 0)),
    (nn.schedules.sequence([nn.schedules.constant(0.1), nn.schedules.linear(0.4, 0.2, 2)], [5]), lambda t: 0.1 if t < 5 else max(0.4 - 0.1 * (t - 5), 0.2)),
    (nn.schedules.multi_step(0.2, [1], gamma=0.5).per_epoch(6), lambda t: 0.2 if t < 6 else 0.1),
    (nn.schedules.RateSchedule(lambda step: 1 / (1 + step)), lambda t: 1 / (1 + t)),
    (nn.schedules.RateSchedule(lambda step: 1 / (1 + step), end=3), lambda t: 1 / (1 + min(t, 3)))])
def test_a_schedule_is_its_formula(schedule, rate_of):
    np.testing.assert_allclose(schedule.table(14), [rate_of(t) for t in range(14)], rtol=1e-13, atol=1e-16)
    assert schedule(7) == schedule.table(8)[7]


def test_clipping_is_its_formula_and_leaves_what_is_within_bounds():
    norm = float(np.sqrt((X ** 2).sum() + (Y ** 2).sum()))
    for bound in (0.5, 2 * norm):
        clipped = ops.clip_by_global_norm([X, Y], bound)
        for own, value in zip(clipped, (X, Y), strict=True):
            np.testing.assert_allclose(own.numpy(), value * min(1, bound / norm), rtol=1e-5)
    norms = np.sqrt((X ** 2).sum(1, keepdims=True))
    np.testing.assert_allclose(ops.clip_by_norm(X, 1.0, axes=1).numpy(), X / np.maximum(norms, 1), rtol=1e-5)
    np.testing.assert_allclose(ops.clip_by_norm(X, 1.0).numpy(), X / np.sqrt((X ** 2).sum()), rtol=1e-5)
    assert (ops.clip_by_value(X, -0.5, 0.25).numpy() == X.clip(-0.5, 0.25)).all()
    assert (ops.clip_by_value(X, most=0.25).numpy() == X.clip(max=np.float32(0.25))).all()
    for call in (lambda: ops.clip_by_value(X), lambda: ops.clip_by_norm(X, 0), lambda: ops.clip_by_global_norm([X], -1), lambda: ops.clip_by_global_norm([], 1)):
        with pytest.raises(tessera.InvalidArgument):
            call()


def test_one_cycle_is_pytorchs():
    # OneCycleLR(max_lr=1, total_steps=10, pct_start=0.4, div_factor=4, final_div_factor=10, anneal_strategy="linear")
    schedule = nn.schedules.one_cycle(1, 10, rising_part=0.4, div_factor=4, final_div_factor=10, is_linear=True)
    np.testing.assert_allclose(schedule.table(10), [0.25, 0.5, 0.75, 1, 0.8375, 0.675, 0.5125, 0.35, 0.1875, 0.025])


def test_an_optimizer_trains_with_a_schedule_as_with_its_table(capfd):
    def trained(rate):
        tessera.set_seed(3)
        net = Net()
        model = new_model(net, nn.Momentum(learning_rate=rate, momentum=0.9))
        model.train(2, rows())
        return [parameter.numpy().copy() for parameter in net.parameters()]

    schedule = nn.schedules.warmup(2, nn.schedules.cosine(0.1, 3))
    for one, other in zip(trained(schedule), trained(schedule.table(6))):
        np.testing.assert_array_equal(one, other)
    groups_rate = nn.SGD(learning_rate=0.1, groups=[{"params": Net().parameters()[:1], "lr": schedule}])
    assert isinstance(groups_rate, nn.Optimizer)


def test_a_schedule_that_ends_in_one_rate_is_no_short_table(capfd):
    new_model(Net(), nn.SGD(learning_rate=nn.schedules.warmup(2, nn.schedules.constant(0.1)))).train(2, rows())
    assert "the last rate holds" not in capfd.readouterr().err
    new_model(Net(), nn.SGD(learning_rate=[0.1, 0.05])).train(2, rows())
    assert "the last rate holds" in capfd.readouterr().err


def test_a_schedule_that_ends_in_0_before_the_training_is_warned_about_once(capfd):
    model = new_model(Net(), nn.SGD(learning_rate=nn.schedules.cosine(0.1, 1)))
    model.train(4, rows())
    model.train(4, rows())
    assert capfd.readouterr().err.count("train: learning_rate is 0 from step 2 on, the training goes on to step ") == 1


def test_a_schedule_without_an_end_wants_the_number_of_steps():
    with pytest.raises(tessera.InvalidArgument, match=r"exponential: the rate changes without end; .*table\(num_steps\)"):
        nn.SGD(learning_rate=nn.schedules.exponential(0.1, 0.9))


@pytest.mark.parametrize("name, near", [("CosineAnnealingLR", "schedules.cosine"), ("OneCycleLR", "schedules.one_cycle"),
                                        ("get_linear_schedule_with_warmup", "schedules.warmup(num_steps, linear(rate, 0, ...))")])
def test_names_of_other_libraries_lead_to_a_schedule(name, near):
    for module, word in ((nn, near), (nn.schedules, near.removeprefix("schedules."))):
        with pytest.raises(AttributeError) as error:
            getattr(module, name)
        assert str(error.value).endswith(f"did you mean {word}?")


def test_frozen_parameters_stay_as_they_are():
    net = Net()
    net.freeze("backbone.*")
    before = {parameter.name: parameter.numpy().copy() for parameter in net.parameters()}
    assert names_of(net.trainable_parameters()) == ["head.weight", "head.bias"]
    new_model(net).train(1, rows())
    changed = {parameter.name for parameter in net.parameters() if (parameter.numpy() != before[parameter.name]).any()}
    assert {"head.weight", "head.bias"} <= changed and all(name.startswith(("head.", "backbone.1.moving_")) for name in changed)
    net.unfreeze("backbone")
    assert names_of(net.trainable_parameters()) == names_of(Net().trainable_parameters())
    net.backbone.freeze("0.weight")
    assert "backbone.0.weight" not in names_of(net.trainable_parameters())


def test_a_pattern_that_matches_nothing_names_what_is_near():
    with pytest.raises(tessera.InvalidArgument, match=r'pattern "backbon\.\*" matches none of the 8 parameters; did you mean backbone\?'):
        Net().freeze("backbon.*")
    with pytest.raises(tessera.InvalidArgument, match="did you mean head.weight?"):
        nn.group_parameters(Net(), {"head.wieght": {"lr": 0.1}})


def test_groups_by_pattern_have_their_own_rates_and_decay():
    net = Net()
    groups = nn.group_parameters(net, {"*.bias": {"weight_decay": 0}, "backbone": {"lr": 0.0}})
    assert [names_of(group["params"]) for group in groups] == [
        ["backbone.0.bias", "head.bias"], ["backbone.0.weight", "backbone.1.gamma", "backbone.1.beta"]]
    assert groups[0]["weight_decay"] == 0 and groups[1]["lr"] == 0
    before = {parameter.name: parameter.numpy().copy() for parameter in net.parameters()}
    new_model(net, nn.SGD(learning_rate=0.1, weight_decay=0.1, groups=groups)).train(1, rows())
    for parameter in net.trainable_parameters():
        is_same = (parameter.numpy() == before[parameter.name]).all()
        assert is_same == parameter.name.startswith(("backbone.0.weight", "backbone.1")), parameter.name
    with pytest.raises(tessera.InvalidArgument, match='pattern "head.bias" gets no parameters: "head" in front of it'):
        nn.group_parameters(net, {"head": {}, "head.bias": {}})


class SetsBias(tessera.Callback):
    """After each epoch the network's only number becomes the next one: the loss over zeros is its square."""

    def __init__(self, numbers):
        super().__init__()
        self.numbers, self.epochs = numbers, 0

    def epoch_end(self, run):
        run.model.set_value("bias", np.full(1, self.numbers[run.epoch - 1], np.float32))
        self.epochs = run.epoch


def watched(numbers, callback, **options):
    net = nn.Dense(1, 1, weight_init="zeros")
    zeros = tessera.data.tensors({"x": np.zeros((4, 1), np.float32), "y": np.zeros((4, 1), np.float32)}).batch(4)
    model = tessera.Model(net, nn.MSELoss(), nn.SGD(learning_rate=options.get("learning_rate", 0.0)), metrics=["loss"])
    sets = SetsBias(numbers)
    model.train(len(numbers), zeros, [sets, callback(zeros), *options.get("beside", [])])
    return net, model, sets


def test_early_stopping_ends_the_training_and_restores_the_best():
    made = []
    net, _, sets = watched([2, 1, 3, 3, 0, 0], lambda zeros: made.append(tessera.EarlyStopping("loss", zeros, patience=2, restore_best=True)) or made[0])
    assert (sets.epochs, made[0].stopped_epoch, made[0].best_epoch, made[0].best) == (4, 4, 2, 1.0)
    assert net.bias.numpy().tolist() == [1.0]


def test_early_stopping_shares_the_evaluation_of_a_summary():
    stopping = tessera.EarlyStopping("accuracy", patience=1, mode="max")
    new_model(Net(), nn.SGD(learning_rate=0.0)).train(3, rows(), [tessera.EpochSummary(valid=rows()), stopping])
    assert stopping.best_epoch >= 1
    with pytest.raises(tessera.InvalidArgument, match="watches accuracy, but nothing was evaluated after epoch 1"):
        new_model(Net()).train(1, rows(), [tessera.EarlyStopping("accuracy")])
    with pytest.raises(tessera.InvalidArgument, match=r"the model has no metric \"acuracy\"; .*did you mean accuracy\?"):
        new_model(Net()).train(1, rows(), [tessera.EarlyStopping("acuracy", mode="max")])


def test_the_best_checkpoint_is_kept(tmp_path):
    path = tmp_path / "best.ckpt"
    _, model, _ = watched([2, 0.5, 3], lambda zeros: tessera.BestCheckpoint(tmp_path / "best", "loss", zeros))
    assert tessera.checkpoint.load(path)["bias"].numpy().tolist() == [0.5]
    assert float(tessera.checkpoint.load(path)["best_loss"].numpy()) == 0.25
    model.load_checkpoint(path)
    assert model.step == 2


def test_the_k_best_checkpoints_are_kept(tmp_path):
    made = []
    net, model, _ = watched([2, 0.5, 3, 1], lambda zeros: made.append(
        tessera.BestCheckpoint(tmp_path / "best", "loss", zeros, save_top_k=2, restore_best=True)) or made[0])
    best = made[0]
    assert best.paths == [str(tmp_path / "best-2_1.ckpt"), str(tmp_path / "best-4_1.ckpt")]
    assert (best.path, best.best, best.scores) == (best.paths[0], 0.25, [0.25, 1.0])
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == ["best-2_1.ckpt", "best-4_1.ckpt"]
    assert net.bias.numpy().tolist() == [0.5] and model.step == 4
    assert tessera.checkpoint.load(best.paths[1])["bias"].numpy().tolist() == [1.0]
    with pytest.raises(tessera.InvalidArgument, match="save_top_k must be at least 1, got 0"):
        tessera.BestCheckpoint(tmp_path / "best", save_top_k=0)
    with pytest.raises(tessera.InvalidArgument, match="of which one keeps the best"):
        watched([1], lambda zeros: tessera.BestCheckpoint(tmp_path / "CKP", "loss", zeros, save_top_k=2), beside=[
            tessera.ModelCheckpoint("CKP", tmp_path)])


def test_the_rate_is_reduced_on_a_plateau(capfd):
    _, model, _ = watched([1, 1, 1, 1], lambda zeros: tessera.ReduceLROnPlateau("loss", zeros, factor=0.5, patience=1, min_rate=0.3), learning_rate=1.0)
    assert model.value("learning_rate").numpy() == np.float32(0.3)


@pytest.fixture
def saved(tmp_path):
    net = Net()
    model = new_model(net)
    model.train(1, rows())
    path = tmp_path / "x.ckpt"
    model.save_checkpoint(path)
    return path, {parameter.name: parameter.numpy().copy() for parameter in net.parameters()}


def test_parameters_are_loaded_by_pattern_and_without_being_strict(saved):
    path, values = saved
    net = Net("classifier", num_classes=7)
    with pytest.raises(tessera.InvalidArgument, match="classifier.weight"):
        new_model(net).load_parameters(path)
    model = new_model(net)
    report = model.load_parameters(path, strict=False)
    assert report.missing == ["classifier.weight", "classifier.bias"] and {"head.weight", "head.bias"} <= set(report.left_out)
    assert report.loaded == [name for name in values if name.startswith("backbone.")]
    np.testing.assert_array_equal(net.backbone[0].weight.numpy(), values["backbone.0.weight"])
    assert model.load_parameters(path, only="backbone.0").loaded == ["backbone.0.weight", "backbone.0.bias"]
    assert "missing: [classifier.weight, classifier.bias]" in repr(report)


@pytest.mark.parametrize("rename", [{"head": "classifier"}, {"head.weight": "classifier.weight", "head.bias": "classifier.bias"},
                                    lambda name: name.replace("head.", "classifier.")])
def test_parameters_are_renamed(saved, rename):
    path, values = saved
    net = Net("classifier")
    report = new_model(net).load_parameters(path, rename=rename)
    assert report.missing == [] and "classifier.weight" in report.loaded
    np.testing.assert_array_equal(net.classifier.weight.numpy(), values["head.weight"])


def test_prefixes_are_put_before_names_or_taken_away(saved, tmp_path):
    path, values = saved
    tessera.checkpoint.save(tmp_path / "prefixed", {f"model.{name}": value for name, value in values.items()})
    for file, rename in ((tmp_path / "prefixed.ckpt", {"model": ""}), (path, {"": "", "head": "head"})):
        net = Net()
        assert len(new_model(net).load_parameters(file, rename=rename).loaded) == len(values)
        np.testing.assert_array_equal(net.head.weight.numpy(), values["head.weight"])
    with pytest.raises(tessera.InvalidArgument, match="head.weight"):
        new_model(Net()).load_parameters(path, rename={"head.weight": None})
    with pytest.raises(ZeroDivisionError):
        new_model(Net()).load_parameters(path, rename=lambda name: 1 / 0)


def test_metrics_by_name():
    net = Net()
    model = new_model(net, metrics=["top_2_accuracy", "precision", "recall", "f1"])
    logits = model.predict(X).numpy()
    given = logits.argmax(1)
    results = model.eval(rows())
    assert results["top_2_accuracy"] == pytest.approx(np.mean([label in row.argsort()[-2:] for row, label in zip(logits, CLASSES)]))
    hits = [np.sum((given == c) & (CLASSES == c)) for c in range(3)]
    had = [max(np.sum(CLASSES == c), 1) for c in range(3)]
    both = [max(np.sum(given == c) + np.sum(CLASSES == c), 1) for c in range(3)]
    assert results["recall"] == pytest.approx(np.mean([h / n for h, n in zip(hits, had)]))
    assert results["f1"] == pytest.approx(np.mean([2 * h / n for h, n in zip(hits, both)]))


def test_the_area_under_the_curve():
    labels = (X[:, 0] > 0).astype(np.int32)
    model = new_model(Net(num_classes=2), metrics=["auc"])
    logits = model.predict(X).numpy()
    scores = logits[:, 1] - logits[:, 0]
    pairs = [(p > n) for p in scores[labels == 1] for n in scores[labels == 0]]
    # Scores that bfloat16 does not tell apart count half.
    assert model.eval(rows(labels))["auc"] == pytest.approx(np.mean(pairs), abs=0.5 / len(pairs) + 1e-12)


def test_averages_are_those_of_a_plain_loop_and_of_use_in_evaluation(tmp_path):
    net = Net()
    model = new_model(net, nn.ExponentialMovingAverage(nn.SGD(learning_rate=0.1), decay=0.5))
    expected = {}
    for step in range(4):
        model.train_step(X, CLASSES)
        for parameter in (p for p in net.parameters() if p.requires_grad):
            now = model.value(parameter.name).numpy().astype(np.float64)
            expected[parameter.name] = now if step == 0 else expected[parameter.name] + 0.5 * (now - expected[parameter.name])
    name = net.head.weight.name
    assert name in expected
    for of, average in expected.items():
        np.testing.assert_allclose(model.value("ema." + of).numpy(), average, rtol=1e-5, atol=1e-6)
    plain = model.eval(rows())
    weight = model.value(name).numpy()
    with model.averages() as inside:
        assert inside is model
        np.testing.assert_array_equal(net.head.weight.numpy(), model.value("ema." + name).numpy())
        averaged = model.eval(rows())
        with pytest.raises(tessera.InvalidArgument, match="the averages are in the places of the parameters"):
            model.train_step(X, CLASSES)
    assert averaged["loss"] != plain["loss"]
    assert model.eval(rows()) == plain
    np.testing.assert_array_equal(net.head.weight.numpy(), weight)

    model.save_checkpoint(tmp_path / "averages.ckpt", averages=True)
    other = new_model(Net())
    other.load_parameters(tmp_path / "averages.ckpt")
    assert other.eval(rows()) == averaged
    with pytest.raises(tessera.InvalidArgument, match="keeps no averages"):
        with other.averages():
            pass


def test_averages_go_by_another_optimizers_states():
    with pytest.raises(tessera.InvalidArgument, match="decay"):
        nn.ExponentialMovingAverage(nn.SGD(), decay=2)
    net = Net()
    model = new_model(net, nn.ExponentialMovingAverage(nn.Momentum(0.1), overwrite_steps=1))
    model.train_step(X, CLASSES)
    model.train_step(X, CLASSES)
    name = net.head.weight.name
    np.testing.assert_array_equal(model.value(name).numpy(), model.value("ema." + name).numpy())
    assert "moments." + name in model.names() and "ema_step" in model.names()


def test_values_of_steps_are_recorded_and_compared(tmp_path):
    def train(**options):
        model = new_model(Net(), seed=3, **options)
        model.train(2, rows())
        return model

    train(record_values=str(tmp_path / "a"), record_steps="1-4")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [f"step-{step}.rank-0.jsonl" for step in range(1, 5)]
    train(compare_values=str(tmp_path / "a"))
    with pytest.raises(tessera.ValuesDiffer, match="step 1: the parameter or state "):
        new_model(Net(), seed=4, compare_values=str(tmp_path / "a")).train(1, rows())
    with pytest.raises(tessera.InvalidArgument, match="record_steps"):
        new_model(Net(), record_values=str(tmp_path / "b"), record_steps="now")
    new_model(Net(), seed=3).train(1, rows(), [tessera.RecordValues(tmp_path / "c", steps="*/2")])
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["step-2.rank-0.jsonl"]
    with pytest.raises(tessera.InvalidArgument, match="there is no folder"):
        new_model(Net()).train(1, rows(), [tessera.RecordValues(compare_with=tmp_path / "nothing")])
