"""Networks as ONNX models: ONNX Runtime computes what the network does, and what cannot be written is refused before a file is there."""
import os
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
import tessera
from mindspore.nn import transformer as T
from tessera import _onnx, _onnx_operators, _tessera, nn, ops

ROOT = Path(__file__).resolve().parent.parent.parent
F32 = np.float32


@pytest.fixture(scope="session")
def onnx():
    """The package, with ONNX Runtime beside it: from .venv-onnx, whose Python is this one."""
    made = subprocess.run([sys.executable, ROOT / "scripts" / "onnx_env.py"], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no ONNX Runtime: {made.stderr.strip().splitlines()[-1]}")
    where = "import sysconfig, sys; print(sysconfig.get_path('purelib'), sys.implementation.cache_tag)"
    packages, tag = subprocess.run([made.stdout.strip(), "-c", where], capture_output=True, text=True, check=True).stdout.split()
    if tag != sys.implementation.cache_tag:
        pytest.skip(f"no ONNX Runtime: scripts/onnx_env.py makes it for {tag}, this is {sys.implementation.cache_tag}")
    sys.path.append(packages)
    return pytest.importorskip("onnx")


@pytest.fixture
def exported(onnx, tmp_path):
    """exported(cell, *inputs): writes the model and returns what runs it."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3

    def export(cell, *inputs):
        path = tmp_path / "network.onnx"
        tessera.export_onnx(cell, *inputs, path=path)
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    return export


def flat(item):
    """The tensors in nested sequences."""
    return [leaf for part in item for leaf in flat(part)] if isinstance(item, (tuple, list)) else [] if item is None else [np.asarray(item)]


def compare(exported, cell, *inputs, tolerance=1e-5):
    """The cell and its model give equal results, but for rounding; `tolerance` is relative to the largest element."""
    session = exported(cell, *inputs)
    given = dict(zip([each.name for each in session.get_inputs()], flat(inputs)))
    results, expected = session.run(None, given), flat(cell(*inputs))
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected):
        assert result.dtype == wanted.dtype and result.shape == wanted.shape
        if result.dtype.kind == "f":
            largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-30)
            np.testing.assert_allclose(result, wanted, rtol=0, atol=tolerance * largest)
        else:
            assert (result == wanted).all()
    return session


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def with_random_values(cell):
    """Every parameter is drawn anew, around what it was: also the statistics that training would have moved."""
    for i, parameter in enumerate(cell.parameters()):
        value = parameter.numpy()
        parameter.set_data(tessera.Tensor((value * (1 + 0.1 * numbers(*value.shape, seed=i)) + 0.01 * numbers(*value.shape, seed=i + 1)).astype(F32)))
    return cell


class Calls(nn.Cell):
    """What a function computes."""

    def __init__(self, function):
        super().__init__()
        self._function = function

    def construct(self, *inputs):
        return self._function(*inputs)


class Mlp(nn.Cell):
    def __init__(self):
        super().__init__()
        self.up = nn.Dense(8, 16, activation="gelu")
        self.norm = nn.LayerNorm([16])
        self.drop = nn.Dropout(0.5)
        self.down = nn.Dense(16, 4, has_bias=False)

    def construct(self, image, scale):
        return self.down(self.drop(self.norm(self.up(image)))) * scale


def test_lenet_and_resnet(exported):
    compare(exported, with_random_values(nn.lenet5(10)), numbers(2, 3, 32, 32))
    compare(exported, with_random_values(nn.resnet50(10)), numbers(1, 3, 32, 32), tolerance=5e-5)


def test_names_are_those_of_checkpoints_and_of_construct(exported, onnx, tmp_path):
    cell = with_random_values(Mlp())
    cell.set_train()
    cell.norm.set_train(False)
    compare_modes = [cell.training, cell.norm.training, cell.drop.training]
    image, scale = numbers(3, 8), numbers(4)
    session = exported(cell, image, scale)
    assert [cell.training, cell.norm.training, cell.drop.training] == compare_modes == [True, False, True]
    model = onnx.load(tmp_path / "network.onnx")
    assert [each.name for each in session.get_inputs()] == ["image", "scale"] and [each.name for each in session.get_outputs()] == ["output"]
    weights = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    for parameter in cell.parameters():
        assert (weights[parameter.name] == parameter.numpy()).all()
    assert {"up.weight", "up.bias", "norm.gamma", "norm.beta", "down.weight"} <= weights.keys()
    assert all(node.name.split("/")[0] in ("up", "norm", "down", "Mul") for node in model.graph.node)
    assert model.opset_import[0].version == 18 and model.graph.name == "Mlp" and model.producer_name == "tessera"
    cell.set_train(False)
    compare(exported, cell, image, scale)


def test_transformers(exported):
    tokens, other = numbers(2, 5, 16), numbers(2, 7, 16, seed=1)
    own, memory = np.tril(np.ones((2, 5, 5), F32)), np.ones((2, 5, 7), F32)
    whole = np.ones((2, 7, 7), F32)
    whole[1, :, 5:] = memory[1, :, 5:] = 0
    encoder, decoder = nn.TransformerEncoderLayer(16, 32, 4), nn.TransformerDecoderLayer(16, 32, 4)
    compare(exported, with_random_values(encoder), other, whole)
    compare(exported, with_random_values(encoder), other)
    compare(exported, with_random_values(decoder), tokens, other, own, memory)
    both = nn.Transformer(16, 32, encoder_layers=2, decoder_layers=2, num_heads=4)
    compare(exported, with_random_values(both), other, whole, tokens, own, memory)


def test_transformers_of_the_package_mindspore_compute_products_in_half_precision(exported):
    settings = dict(hidden_size=16, ffn_hidden_size=32, num_heads=4, num_layers=2, batch_size=2)
    other, whole = ms.Tensor(numbers(2, 7, 16)), ms.Tensor(np.tril(np.ones((2, 7, 7), F32)))
    encoder = T.TransformerEncoder(seq_length=7, **settings)
    compare(exported, encoder, other, whole, tolerance=5e-3)
    decoder = T.TransformerDecoder(src_seq_length=7, tgt_seq_length=7, **settings)
    compare(exported, decoder, other, whole, other, whole, tolerance=5e-3)


X, Y, IMAGE = numbers(3, 4), numbers(3, 4, seed=1), numbers(2, 4, 7, 6)
IDS, ROWS = np.array([2, 0, 2], np.int32), np.array([1, -1, 3], np.int32)
BOTH = X > 0
OPERATORS = {
    "arithmetic": (lambda x, y: (x + y, x - y * 2, x / (ops.abs(y) + 1), ops.maximum(x, y), ops.minimum(x, 0.5), -x, ops.sign(x)), X, Y),
    "integers": (lambda i: (i + i, i * 3, -i, ops.abs(i), ops.maximum(i, 0), i // 2, i % 2, ops.square(i), i ** 2), ROWS),
    "functions": (lambda x: (ops.exp(x), ops.log(ops.abs(x)), ops.sin(x), ops.cos(x), ops.sqrt(ops.abs(x)), ops.rsqrt(ops.abs(x)), ops.floor(x),
                             ops.reciprocal(x), ops.square(x), ops.pow(ops.abs(x), 1.5), ops.stop_gradient(x) + 1), X),
    "near zero": (lambda x: (ops.expm1(x), ops.log1p(ops.abs(x)), ops.expm1(x * 1e-6), ops.log1p(x * 1e-6), ops.sinh(x), ops.cosh(x), ops.asinh(x),
                             ops.atanh(x / (ops.abs(x) + 1))), X),
    "activations": (lambda x: (ops.relu(x), ops.sigmoid(x), ops.tanh(x), ops.gelu(x), ops.gelu(x, approximate=False), ops.softmax(x, 0),
                               ops.log_softmax(x)), X),
    "comparison": (lambda x, y, b: (x < y, x <= y, x > y, x >= y, ops.equal(x, y), ops.not_equal(x, x), b < ops.logical_not(b), ops.equal(b, b)),
                   X, Y, BOTH),
    "logic": (lambda b, c: (ops.logical_and(b, c), ops.logical_or(b, c), ops.logical_xor(b, c), ops.logical_not(b), b.all(1), b.any(0), b.all(())),
              BOTH, Y > 0),
    "select": (lambda b, x, y, i: (ops.select(b, x, y), ops.select(b, b, ops.logical_not(b)), ops.select(b, x, 0.0), ops.select(i > 0, i, 7)),
               BOTH, X, Y, ROWS),
    "finite": (lambda x: (ops.is_finite(x), ops.is_finite(ops.exp(x * 1e4))), X),
    "cast": (lambda x: (x.astype("int32"), x.astype("float16").astype("float32"), x.astype("float64"), x.astype("bool"), x.astype("int64")), X),
    "creation": (lambda x: (x + ops.fill((3, 4), 2.5), ops.range(0, 12, 1, "int32"), ops.range(0, 1, 0.3, "float32"), ops.zeros_like(x),
                            ops.fill((40, 50), 3, "int64"), x * tessera.Tensor(Y)), X),
    "shapes": (lambda x: (x.reshape(2, 6), x.T, ops.expand_dims(x, 1), ops.squeeze(x.reshape(3, 1, 4), 1), ops.concat([x, x, x], 1),
                          ops.tile(x, (2, 1)), ops.broadcast_to(x, (2, 3, 4)), ops.split_sizes(x, (1, 3), 1), ops.pad(x, (0, 1), (2, 0), 1.5), x[1], x[..., None]), X),
    "slices": (lambda x: (x[:, ::2], x[::-1], x[2:0:-1, 1:3], x[:, ::-2], x[0:0]), X),
    "reductions": (lambda x: (x.sum(), x.mean(1), x.max(0, True), x.min((0, 1)), x.prod(1), ops.cumsum(x, 1),
                              ops.cumsum(x, 0, exclusive=True, reverse=True)), X),
    "sums of integers": (lambda i: (i.sum(), i.max(0), ops.cumsum(i, 0)), ROWS),
    "choice": (lambda x, b: (x.argmax(1), b.argmax(0), ops.top_k(x, 2)), X, BOTH),
    "gather": (lambda x, i: (ops.gather(x, i), ops.gather(x, i, 1), ops.gather(x > 0, i)), X, IDS),
    "one_hot": (lambda i: (ops.one_hot(i, 3), ops.one_hot(i, 4, 2.0, -1.0, 0)), ROWS),
    "scatter_add": (lambda x, i: (ops.scatter_add(x, i, x), ops.scatter_add(x, i, x[:, :3], 1)), X, IDS),
    "products": (lambda x, y: (ops.matmul(x, y, transpose_b=True), ops.matmul(x, y, transpose_a=True)), X, Y),
    "products of integers": (lambda i: ops.matmul(i, i), np.arange(9, dtype=np.int32).reshape(3, 3)),
    "products of batches": (lambda x, y: (ops.batch_matmul(x, y), ops.batch_matmul(x, x, transpose_a=True), ops.batch_matmul(x, x, transpose_b=True)),
                            numbers(2, 3, 4), numbers(2, 4, 5)),
    "bias_add": (lambda x, y: (ops.bias_add(x, y), ops.bias_add(x[:, :, 0, 0], y)), IMAGE, numbers(4)),
    "convolution": (lambda x, w: (ops.conv2d(x, w, stride=(2, 1), pad_mode="pad", padding=(1, 0, 2, 1), groups=2),
                                  ops.conv2d(x, w, pad_mode="same", dilation=2, groups=2)), IMAGE, numbers(6, 2, 3, 2)),
    "pooling": (lambda x: (ops.max_pool2d(x, 3, 2, "pad", (1, 0, 2, 1)), ops.avg_pool2d(x, 3, 2, "same"), ops.avg_pool2d(x, (2, 3))), IMAGE),
    "attention": (lambda q, k, m, f: (ops.attention(q, k, k), ops.attention(q, k, k, causal=True), ops.attention(q, k, k, m),
                                      ops.attention(q, k, k, f, True, 0.3), ops.attention(q, k, k, ops.log(f * 0.0))),
                  numbers(2, 3, 2, 4), numbers(2, 5, 2, 4), np.arange(30).reshape(2, 1, 3, 5) % 7 > 4, numbers(2, 2, 3, 5)),
    "losses": (lambda x, i: ops.softmax_cross_entropy(x, i), X, IDS),
    "layer_norm": (lambda x, y: ops.layer_norm(x, y[0], y[1]), X, Y),
    "layer_norm in float64": (lambda x, y: ops.layer_norm(x, y[0], y[1]), X.astype(np.float64), Y.astype(np.float64)),
    "half precision": (lambda x, y: (x.sum(1), ops.softmax(x), ops.layer_norm(x, y[0].astype("float32"), y[1].astype("float32")), ops.cumsum(x, 1)),
                       X.astype(np.float16), Y.astype(np.float16)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(exported, name):
    function, *inputs = OPERATORS[name]
    compare(exported, Calls(function), *inputs, tolerance=2e-3 if name == "half precision" else 1e-5)


def test_normalisation_by_the_batchs_own_statistics(exported):
    own = nn.BatchNorm2d(4, use_batch_statistics=True)
    compare(exported, with_random_values(own), IMAGE)


def test_bfloat16_is_written_as_it_is(onnx, tmp_path):
    cell = Calls(lambda x: (x * 1.1).astype("bfloat16"))
    tessera.export_onnx(cell, X, path=tmp_path / "a.onnx")
    [output] = onnx.load(tmp_path / "a.onnx").graph.output
    assert output.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16
    builder = _onnx_operators.Builder(onnx)
    builder.add_initializer("weights", np.array([1.0, 1.1, -3.3e38], F32), "bfloat16")
    rounded = onnx.numpy_helper.to_array(builder.initializers[0]).astype(F32)
    assert rounded.tolist() == tessera.Tensor(np.array([1.0, 1.1, -3.3e38], F32), "bfloat16").numpy().tolist()


def test_inputs_and_results_may_be_nested_and_repeated(exported):
    cell = Calls(lambda x, pair: {"a": [x, pair[0] + pair[1]], "b": (pair[0] + pair[1], None)})
    session = exported(cell, X, (X, Y))
    names = [each.name for each in session.get_inputs()]
    assert names == ["input0", "input1_0", "input1_1"] and [each.name for each in session.get_outputs()] == ["output0", "output1", "output2"]
    results = session.run(None, dict(zip(names, (Y, X, Y))))
    assert [(result == wanted).all() for result, wanted in zip(results, (Y, X + Y, X + Y))] == [True] * 3


def test_other_shapes_than_the_models_are_refused_by_who_runs_it(exported):
    session = exported(nn.ReLU(), X)
    with pytest.raises(Exception, match="Got: 5 Expected: 3"):
        session.run(None, {"input": numbers(5, 4)})


class Counts(nn.Cell):
    def __init__(self):
        super().__init__()
        self.count = nn.Parameter(np.zeros(1, F32), name="count")

    def construct(self, x):
        self.count = self.count + 1
        return x + self.count


class Outer(nn.Cell):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def construct(self, x):
        return self.inner(x)


class ShowsPlaces(Outer):
    """Gives also where the maxima stand in their windows."""

    def _describe_call(self, *inputs):
        graph = super()._describe_call(*inputs)
        graph["outputs"].append(graph["nodes"][0][3][1])
        return graph


def test_what_onnx_cannot_hold_is_refused_by_operator_and_origin_and_leaves_no_file(onnx, tmp_path, monkeypatch):
    path = tmp_path / "network.onnx"

    def gradient(x):
        return nn.value_and_grad(lambda y: ops.max_pool2d(y, 2).sum(), [x], argument_numbers=[0])[1]

    for cell, text in ((Outer(Calls(gradient)), 'max_pool2d_grad "inner": it computes a gradient'),
                       (Outer(Counts()), "nothing is kept from call to call: construct\\(\\) assigns to inner.count"),
                       (Outer(Calls(lambda x: ops.cumsum(x.astype("uint8"), 0))), 'cumsum "inner": CumSum of ONNX takes no uint8'),
                       (Outer(Calls(lambda x: ops.all_reduce(x))), 'all_reduce "inner": it communicates between ranks')):
        with pytest.raises(tessera.InvalidArgument, match=text):
            tessera.export_onnx(cell, IMAGE, path=path)
    with pytest.raises(tessera.InvalidArgument, match='max_pool2d "inner": only its first result can be used'):
        tessera.export_onnx(ShowsPlaces(Calls(lambda x: ops.max_pool2d(x, 2))), IMAGE, path=path)
    monkeypatch.setattr(_onnx, "_MAX_BYTES", 100)
    with pytest.raises(tessera.InvalidArgument, match="take 144 bytes, an ONNX file holds 2 GiB"):
        tessera.export_onnx(nn.Dense(8, 4), numbers(2, 8), path=path)
    assert os.listdir(tmp_path) == []
    with pytest.raises(TypeError, match="takes a cell, got function"):
        tessera.export_onnx(gradient, IMAGE, path=path)
    with pytest.raises(TypeError, match="which is no tensor"):
        tessera.export_onnx(Calls(lambda x: (x, 3)), IMAGE, path=path)


def test_the_file_is_whole_or_as_it_was(onnx, tmp_path, monkeypatch):
    path = tmp_path / "deep" / "network.onnx"
    tessera.export_onnx(nn.ReLU(), X, path=path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        tessera.export_onnx(nn.Sigmoid(), X, path=path)
    assert path.read_bytes() == before and os.listdir(path.parent) == ["network.onnx"]


def test_every_operator_is_written_or_refused_with_a_reason():
    written, refused, all_of_them = set(_onnx_operators.OPERATORS), set(_onnx_operators.REASONS), set(_tessera.nn._operator_names())
    assert not written & refused and (written | refused) <= all_of_them
    reasons = {op: _onnx_operators.reason_against(op) for op in all_of_them - written}
    assert reasons["exchange"] == "it communicates between ranks" and reasons["adam"] == "it updates what training keeps"
    assert all(reasons.values())


def test_without_the_package_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match="pip install onnx"):
        tessera.export_onnx(nn.ReLU(), X, path=tmp_path / "a.onnx")


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_mindspore_export_writes_onnx(onnx, tmp_path, fresh_context, mode):
    ms.set_context(mode=mode)
    network = ms.nn.SequentialCell([ms.nn.Dense(4, 2), ms.nn.ReLU()])
    ms.export(network, ms.Tensor(X), file_name=str(tmp_path / "net"), file_format="ONNX")
    assert os.listdir(tmp_path) == ["net.onnx"]
    assert {each.name for each in onnx.load(tmp_path / "net.onnx").graph.initializer} == {p.name for p in network.get_parameters()}
    assert ms.train.export is ms.export is ms.train.serialization.export


@pytest.mark.parametrize("arguments, error, text", [
    (dict(file_format="MINDIR"), ValueError, "MINDIR is not available: 'ONNX' is the format that is written; save_checkpoint"),
    (dict(file_format="AIR"), ValueError, "AIR is not available"),
    (dict(file_format="onnx"), ValueError, "must be one of"),
    (dict(file_format="ONNX", file_name=3), TypeError, "'file_name' must be str"),
    (dict(file_format="ONNX", enc_key=b"0" * 16), ValueError, "enc_key has no meaning"),
    (dict(file_format="ONNX", net=abs), ValueError, "is made of a Cell, but got builtin_function_or_method"),
])
def test_mindspore_export_refuses_other_formats(tmp_path, arguments, error, text):
    settings = dict(file_name=str(tmp_path / "net")) | arguments
    with pytest.raises(error, match=text):
        ms.export(settings.pop("net", None) or ms.nn.ReLU(), ms.Tensor(X), **settings)
    assert os.listdir(tmp_path) == []
