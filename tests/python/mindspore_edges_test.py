"""What scripts meet at the edges: operands of different shapes, what functions return beside tensors, attributes that subclasses read, hooks."""
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
