"""SummaryCollector and SummaryRecord: what they write is what TensorBoard reads."""
import zlib

import event_files
import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn, train
from mindspore.train.callback import SummaryCollector
from mindspore.train.summary.summary_record import SummaryRecord

pytestmark = pytest.mark.usefixtures("fresh_context")


@pytest.fixture(scope="module")
def read_events():
    return event_files.made_reader()


def make(rate=0.1, metrics=None):
    """A model of y = x w, and six batches of it."""
    net = nn.SequentialCell(nn.Dense(2, 3), nn.Dense(3, 1))
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(12, 2)
    data = ds.NumpySlicesDataset({"x": x, "y": x[:, :1]}, shuffle=False).batch(2)
    return net, data, ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), rate), metrics=metrics)


class Losses(train.Callback):
    def __init__(self):
        self.losses = []

    def on_train_step_end(self, run_context):
        self.losses.append(run_context.original_args().net_outputs.asnumpy().item())


def test_a_collector_writes_loss_rate_histograms_and_metrics(tmp_path, read_events):
    net, data, model = make(metrics={"mae"})
    losses = Losses()
    model.fit(2, data, data, callbacks=[losses, SummaryCollector(tmp_path, collect_freq=3)])
    read = read_events(tmp_path)
    assert read["scalars"]["loss/auto"] == [[step, pytest.approx(losses.losses[step - 1])] for step in (3, 6, 9, 12)]
    assert read["scalars"]["learning_rate/auto"] == [[step, pytest.approx(0.1)] for step in (3, 6, 9, 12)]
    assert read["scalars"]["evaluation/mae"] == [[6, pytest.approx(read["scalars"]["evaluation/mae"][0][1])],
                                                 [12, pytest.approx(model.eval(data)["mae"], rel=1e-5)]]
    assert sorted(read["histograms"]) == sorted(f"{parameter.name}/auto" for parameter in net.trainable_params())
    weight = net[0].weight.asnumpy()
    assert read["histograms"][f"{net[0].weight.name}/auto"][-1][:4] == [12, pytest.approx(weight.min()), pytest.approx(weight.max()), weight.size]


@pytest.mark.parametrize("rate, expected", [([0.1, 0.2, 0.3], [0.1, 0.2, 0.3, 0.3, 0.3, 0.3]), (nn.ExponentialDecayLR(0.5, 0.5, 1), [])])
def test_the_rate_is_that_of_the_step(tmp_path, read_events, rate, expected):
    """Of a schedule that the step computes there is none to be read."""
    _, data, model = make(rate)
    model.train(1, data, SummaryCollector(str(tmp_path), 1, collect_specified_data={"histogram_regular": "nothing"}))
    read = read_events(tmp_path)
    assert [value for _, value in read["scalars"].get("learning_rate/auto", [])] == pytest.approx(expected) and read["histograms"] == {}


def test_only_what_is_said_is_collected(tmp_path, read_events):
    _, data, model = make()
    model.train(1, data, SummaryCollector(tmp_path / "a", 2, collect_specified_data={"histogram_regular": "^0[.]weight"}, keep_default_action=False))
    read = read_events(tmp_path / "a")
    assert read["scalars"] == {} and [len(events) for events in read["histograms"].values()] == [3]
    model.train(1, data, SummaryCollector(tmp_path / "b", 2, collect_specified_data={"collect_metric": False}))
    read = read_events(tmp_path / "b")
    assert read["scalars"] == {} and len(read["histograms"]) == 4


def test_the_graph_is_collected_unless_it_is_not_wanted(tmp_path, read_events):
    _, data, model = make()
    model.train(1, data, SummaryCollector(tmp_path / "a"))
    graph = read_events(tmp_path / "a")["graph"]
    assert graph["0/matmul"][:2] == ["matmul", ["x", "0/weight"]] and graph["1/matmul"][1] == ["0/add", "1/weight"]
    assert any(operator == "reduce_mean" for operator, _, _ in graph.values()) and not any(operator == "sgd" for operator, _, _ in graph.values())
    for name, arguments in (("b", {"collect_specified_data": {"collect_graph": False}}), ("c", {"keep_default_action": False})):
        model.train(1, data, SummaryCollector(tmp_path / name, **arguments))
        assert "graph" not in read_events(tmp_path / name)
    model.train(1, data, SummaryCollector(tmp_path / "d", collect_specified_data={"collect_graph": True}, keep_default_action=False))
    read = read_events(tmp_path / "d")
    assert read["graph"] == graph and read["scalars"] == {}


def test_a_training_step_that_is_a_cell_has_no_graph(tmp_path, read_events, capfd):
    net, data, _ = make()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    ms.Model(step).train(1, data, SummaryCollector(tmp_path, 2, collect_specified_data={"collect_graph": True}))
    assert "graph" not in read_events(tmp_path)
    assert "collect_graph has no effect on a network that is a training step itself" in capfd.readouterr().err


def test_a_training_step_that_is_a_cell(tmp_path, read_events):
    net, data, _ = make()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    ms.Model(step).train(1, data, SummaryCollector(tmp_path, 2))
    assert [at for at, _ in read_events(tmp_path)["scalars"]["loss/auto"]] == [2, 4, 6]


def test_what_has_no_effect_is_said_and_what_is_wrong_refused(tmp_path, capfd):
    SummaryCollector(tmp_path, collect_specified_data={"collect_input_data": True, "collect_train_lineage": False}, custom_lineage_data={"version": "1"})
    assert "collect_input_data, custom_lineage_data have no effect" in capfd.readouterr().err
    for arguments, error, message in [({"collect_freq": 0}, ValueError, "collect_freq"), ({"collect_specified_data": {"collect_it": True}}, ValueError, "collect_it"),
                                      ({"collect_specified_data": {"collect_metric": 1}}, TypeError, "collect_metric"),
                                      ({"collect_specified_data": []}, TypeError, "must be dict"), ({"keep_default_action": 1}, TypeError, "keep_default_action")]:
        with pytest.raises(error, match=message):
            SummaryCollector(tmp_path, **arguments)
    with pytest.raises(TypeError, match="summary_dir"):
        SummaryCollector(3)


def bytes_of_pixels(png):
    """The bytes of the pixels of a PNG file whose rows have no filter."""
    at, data, width = 8, b"", int.from_bytes(png[16:20], "big")
    while at < len(png):
        size = int.from_bytes(png[at:at + 4], "big")
        body = png[at + 4:at + 8 + size]
        assert zlib.crc32(body) == int.from_bytes(png[at + 8 + size:at + 12 + size], "big")
        data += body[4:] if body[:4] == b"IDAT" else b""
        at += 12 + size
    rows = zlib.decompress(data)
    stride = 1 + 3 * width
    assert all(rows[begin] == 0 for begin in range(0, len(rows), stride))
    return [byte for begin in range(0, len(rows), stride) for byte in rows[begin + 1:begin + stride]]


def test_a_record_writes_values_by_name(tmp_path, read_events):
    picture = np.zeros((2, 3, 4, 5), np.uint8)
    picture[0, 0] = 255  # red
    with SummaryRecord(str(tmp_path)) as record:
        record.add_value("scalar", "loss", ms.Tensor([0.5]))
        record.add_value("histogram", "weight", ms.Tensor([1.0, 2.0]))
        record.add_value("image", "picture", ms.Tensor(picture))
        assert record.record(1)
        record.add_value("scalar", "loss", ms.Tensor(0.25))
        record.add_value("scalar", "left", ms.Tensor(1.0))
        record.set_mode("eval")
        record.add_value("scalar", "loss", ms.Tensor(0.75))
        record.record(2, plugin_filter=lambda plugin: plugin == "scalar")
        assert record.record(3) and record.log_dir.startswith(str(tmp_path))
    with pytest.raises(RuntimeError, match="closed"):
        record.record(4)
    read = read_events(tmp_path)
    assert read["scalars"] == {"loss": [[1, 0.5], [2, 0.25]], "left": [[2, 1.0]], "eval/loss": [[2, 0.75]]}
    assert read["histograms"]["weight"][0][:4] == [1, 1, 2, 2]
    (step, width, height, png), = read["images"]["picture"]
    assert (step, width, height) == (1, 5, 4)
    assert bytes_of_pixels(bytes.fromhex(png)) == [255, 0, 0] * 20


def test_a_record_refuses_what_it_cannot_write(tmp_path, capfd):
    record = SummaryRecord(tmp_path)
    for plugin, name, value, message in [("audio", "a", 1, "must be one of"), ("scalar", "", 1, "not empty"), ("scalar", "a", ms.Tensor([1.0, 2.0]), "one element"),
                                         ("image", "a", ms.Tensor([1.0]), "1 or 3")]:
        with pytest.raises(ValueError, match=message):
            record.add_value(plugin, name, value)
    record.add_value("train_lineage", "train_lineage", None)
    assert "add_value('train_lineage', ...) has no effect" in capfd.readouterr().err
    with pytest.raises(TypeError, match="step"):
        record.record("1")
    record.close()
    record.close()


def test_a_record_names_its_file_as_it_is_told_and_says_what_it_could_not_write(tmp_path, capfd, monkeypatch):
    with SummaryRecord(str(tmp_path), "train", "_end") as record:
        record.add_value("scalar", "loss", ms.Tensor(1.0))
        assert record.record(1)
        assert [path.name.startswith("train.out.tfevents.") and path.name.endswith("_end") for path in tmp_path.iterdir()] == [True]
    with pytest.raises(ValueError, match="'file_suffix' must be a string without '/'"):
        SummaryRecord(str(tmp_path), file_suffix="a/b")

    def fail(*args):
        raise OSError("the disk is full")

    for raises in (False, True):
        record = SummaryRecord(str(tmp_path), raise_exception=raises)
        record.add_value("scalar", "loss", ms.Tensor(1.0))
        monkeypatch.setattr(record, "_add", fail)
        if raises:
            with pytest.raises(OSError, match="the disk is full"):
                record.record(1)
        else:
            assert record.record(1) is False and "step 1 was not written: the disk is full" in capfd.readouterr().err
