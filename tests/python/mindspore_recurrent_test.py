"""Recurrent layers and filters over sequences: their parameters, what they refuse, and a training. Their values are the suite reference's."""
import numpy as np
import pytest
import mindspore as ms
import mindspore.dataset as ds
import tessera
from mindspore import Tensor, nn, ops

pytestmark = pytest.mark.usefixtures("fresh_context")

LAYERS, CELLS = (nn.RNN, nn.GRU, nn.LSTM), (nn.RNNCell, nn.GRUCell, nn.LSTMCell)
X = Tensor(np.ones((5, 2, 3), np.float32))
H = Tensor(np.ones((1, 2, 4), np.float32))


def names(cell):
    return [parameter.name for parameter in cell.get_parameters()]


@pytest.mark.parametrize("make", LAYERS)
def test_parameters_are_named_by_layer_and_direction_below_their_attribute(make):
    network = nn.SequentialCell(nn.Dense(3, 3))
    network.recurrent = make(3, 4, 2, bidirectional=True)
    ends = [f"l{layer}{end}" for layer in range(2) for end in ("", "_reverse")]
    assert names(network)[2:] == [f"recurrent.{kind}_{end}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh") for end in ends]
    assert [p.name for p in network.recurrent.w_hh_list] == [f"recurrent.weight_hh_{end}" for end in ends]
    assert make(3, 4, has_bias=False).b_ih_list == ()


@pytest.mark.parametrize("make", LAYERS)
@pytest.mark.parametrize("call, error, message", [
    (lambda make: make(3, 4, dropout=0), TypeError, "'dropout' must be 'float'"), (lambda make: make(3, 4, dropout=1.0), ValueError, r"in range \[0, 1\)"),
    (lambda make: make(0, 4), ValueError, "'input_size'"), (lambda make: make(3.0, 4), TypeError, "'input_size'"),
    (lambda make: make(3, 4, has_bias=1), TypeError, "'has_bias'"), (lambda make: make(3, 4, num_layers=0), ValueError, "'num_layers'"),
    (lambda make: make(3, 4)(X, [H, H]), TypeError, "'hx' must be"), (lambda make: make(3, 4)(X, (H,)), TypeError, "'hx'"),
    (lambda make: make(3, 4)(X, None, Tensor([1, 2, 3], ms.int32)), ValueError, "got 2 of x and 3 of seq_length"),
    (lambda make: make(3, 4)(X, None, Tensor([1.0, 2.0], ms.float32)), TypeError, "'seq_length'"),
    (lambda make: make(3, 4)(X.astype(ms.int32)), TypeError, "'x' should be one of"),
    (lambda make: make(3, 4)(X.astype(ms.float16), (H, H) if make is nn.LSTM else H), TypeError, "should be same as 'x'")])
def test_layers_refuse_what_the_reference_refuses(make, call, error, message):
    with pytest.raises(error, match=message):
        call(make)


def test_other_refusals():
    with pytest.raises(TypeError, match="'hx' must be Tuple"):
        nn.LSTM(3, 4)(X, H)
    with pytest.raises(ValueError, match="'nonlinearity' must be in"):
        nn.RNN(3, 4, nonlinearity="x")
    with pytest.raises(ValueError, match="from old MindSpore version"):
        nn.LSTMCell(3, 4, True, 1, 2)
    with pytest.raises(TypeError, match="length of 'hx'"):
        nn.LSTMCell(3, 4)(X[0], (H[0],))
    with pytest.raises(ValueError, match="3 dims"):
        nn.Conv1d(4, 6, 3, weight_init=Tensor(np.ones((6, 4, 1, 3), np.float32)))
    with pytest.raises(ValueError, match="must be 3d"):
        nn.Conv1dTranspose(4, 6, 3)(Tensor(np.ones((2, 4, 9, 1), np.float32)))
    with pytest.raises(ValueError, match=r"range of \[0, max"):
        nn.Conv2dTranspose(4, 6, 3, output_padding=1)(Tensor(np.ones((2, 4, 9, 9), np.float32)))


@pytest.mark.parametrize("make", LAYERS)
def test_a_layer_computes_in_its_input_dtype(make):
    output, _ = make(3, 4)(X.astype(ms.float16))
    assert output.dtype == ms.float16


class Tagger(nn.Cell):
    """Filters, a recurrent layer in both directions, and a class for each sequence."""

    def __init__(self, layer):
        super().__init__()
        self.filters = nn.Conv1d(3, 5, 3)
        self.layer = layer
        self.head = nn.Dense(8, 2)

    def construct(self, x):
        steps = ops.transpose(ops.relu(self.filters(x)), (0, 2, 1))
        output, _ = self.layer(steps)
        return self.head(ops.mean(output, 1))


@pytest.mark.parametrize("make", LAYERS)
def test_a_network_learns_which_end_of_a_sequence_is_larger(make):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 3, 6)).astype(np.float32)
    y = (x[:, 0, 0] > x[:, 0, 5]).astype(np.int32)
    data = ds.NumpySlicesDataset({"x": x, "y": y}, shuffle=False).batch(32)
    ms.set_seed(1)
    network = Tagger(make(5, 4, bidirectional=True, batch_first=True))
    losses = []
    note = ms.train.LambdaCallback(on_train_step_end=lambda run: losses.append(run.original_args().net_outputs.asnumpy().item()))
    model = ms.Model(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), nn.Adam(network.trainable_params(), 0.02))
    model.train(30, data, note, dataset_sink_mode=False)
    assert losses[-1] < 0.6 * losses[0]


def test_tesseras_own_layer_takes_optional_inputs():
    layer = tessera.nn.RecurrentLayer(3, 4, "lstm", batch_first=True)
    x = np.ones((2, 5, 3), np.float32)
    output, (hidden, memory) = layer(x)
    assert output.shape == (2, 5, 4) and hidden.shape == memory.shape == (1, 2, 4)
    short, _ = layer(x, lengths=np.int32([5, 2]))
    assert np.array_equal(short.numpy()[0], output.numpy()[0]) and not short.numpy()[1, 2:].any()
    again, _ = layer(x, (hidden, memory))
    assert not np.array_equal(again.numpy(), output.numpy())
    step = tessera.nn.RecurrentCell(3, 4, "gru")
    assert step(np.ones((2, 3), np.float32), np.zeros((2, 4), np.float32)).shape == (2, 4)
