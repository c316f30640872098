"""mindspore.nn.transformer: names, defaults, arithmetic, errors."""
import importlib
import re
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import mindspore as ms
from mindspore import Tensor, context, nn
from mindspore.nn import transformer as T

H, HEADS, FFN, N, S = 8, 2, 16, 2, 4


pytestmark = pytest.mark.usefixtures("fresh_context")


@pytest.mark.parametrize("module", ["mindspore.nn.transformer", "mindspore.parallel._transformer"])
def test_names_are_where_scripts_look_for_them(module):
    for name in T.__all__:
        assert getattr(importlib.import_module(module), name) is getattr(T, name)
    assert importlib.import_module(f"{module}.loss").CrossEntropyLoss is T.CrossEntropyLoss
    assert importlib.import_module(f"{module}.transformer").Transformer is T.Transformer


LAYER = ["layernorm1.gamma", "layernorm1.beta", "layernorm2.gamma", "layernorm2.beta",
         *(f"attention.{part}.{what}" for part in ("dense1", "dense2", "dense3", "projection") for what in ("weight", "bias")),
         "output.mapping.weight", "output.mapping.bias", "output.projection.weight", "output.projection.bias"]
CROSS = ["cross_attention_layernorm.gamma", "cross_attention_layernorm.beta",
         *(f"cross_attention.{part}.{what}" for part in ("dense1", "dense2", "dense3", "projection") for what in ("weight", "bias"))]


def small(**settings):
    return T.Transformer(**dict(hidden_size=H, batch_size=N, ffn_hidden_size=FFN, src_seq_length=S, tgt_seq_length=S, encoder_layers=2,
                                decoder_layers=1, num_heads=HEADS, attention_dropout_rate=0.0, hidden_dropout_rate=0.0) | settings)


def test_parameters_are_named_as_checkpoints_name_them():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.base1 = small()
            self.embedding = T.VocabEmbedding(20, H)

    names = [p.name for p in Net().get_parameters()]
    assert sorted(names) == sorted([f"base1.encoder.blocks.{i}.{name}" for i in (0, 1) for name in LAYER]
                                   + [f"base1.decoder.blocks.0.{name}" for name in LAYER + CROSS] + ["embedding.embedding_table"])


def test_what_replicas_keep_whole():
    net = small()
    whole = {p.name for p in net.get_parameters() if not p.parallel_optimizer}
    assert all(re.search(r"gamma|beta|projection\.bias", name) for name in whole)
    assert {"encoder.blocks.0.layernorm1.gamma", "encoder.blocks.0.output.projection.bias", "decoder.blocks.0.attention.projection.bias"} <= whole
    assert not T.VocabEmbedding(20, H).embedding_table.parallel_optimizer


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def norm(x, p):
    return p["gamma"] * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) + p["beta"]


def attention(query, key, mask, p):
    def heads(x, part):
        y = x @ p[f"{part}.weight"].T + p[f"{part}.bias"]
        return y.reshape(*x.shape[:2], HEADS, H // HEADS).transpose(0, 2, 1, 3)
    q, k, v = heads(query, "dense1"), heads(key, "dense2"), heads(key, "dense3")
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(H // HEADS) + (1 - mask[:, None]) * -10000
    mixed = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(*query.shape)
    return mixed @ p["projection.weight"] + p["projection.bias"]


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def feed_forward(x, p):
    return gelu(x @ p["mapping.weight"] + p["mapping.bias"]) @ p["projection.weight"] + p["projection.bias"]


def below(parameters, prefix):
    return {name[len(prefix) + 1:]: value for name, value in parameters.items() if name.startswith(prefix + ".")}


def fill(net):
    rng = np.random.RandomState(0)
    for parameter in net.get_parameters():
        parameter.set_data(Tensor((rng.randn(*parameter.shape) * 0.3).astype(np.float32)))
    return {p.name: p.asnumpy().astype(np.float64) for p in net.get_parameters()}


def inputs():
    rng = np.random.RandomState(1)
    x = rng.randn(N, S, H).astype(np.float32)
    mask = np.tril(np.ones((N, S, S), np.float32))
    mask[1, :, 3] = 0
    return x, mask


@pytest.mark.parametrize("post", [False, True])
def test_an_encoder_layer_is_what_the_formulas_say(post):
    layer = T.TransformerEncoderLayer(N, H, FFN, HEADS, S, 0.0, 0.0, post)
    p = fill(layer)
    x, mask = inputs()
    y, present = layer(Tensor(x), Tensor(mask))
    first = norm(x, below(p, "layernorm1"))
    middle = (first if post else x) + attention(first, first, mask, below(p, "attention"))
    second = norm(middle, below(p, "layernorm2"))
    expected = (second if post else middle) + feed_forward(second, below(p, "output"))
    assert present is None
    difference = np.abs(y.asnumpy() - expected).max()
    assert 1e-6 < difference < 0.03  # products are computed in float16


def test_a_decoder_layer_attends_to_itself_and_to_the_encoder():
    layer = T.TransformerDecoderLayer(H, FFN, HEADS, N, S, S, 0.0, 0.0)
    p = fill(layer)
    x, mask = inputs()
    memory = np.random.RandomState(2).randn(N, S, H).astype(np.float32)
    y, _ = layer(Tensor(x), Tensor(mask), Tensor(memory), Tensor(mask))
    first = norm(x, below(p, "layernorm1"))
    middle = x + attention(first, first, mask, below(p, "attention"))
    crossed = middle + attention(norm(middle, below(p, "cross_attention_layernorm")), memory, mask, below(p, "cross_attention"))
    expected = crossed + feed_forward(norm(crossed, below(p, "layernorm2")), below(p, "output"))
    np.testing.assert_allclose(y.asnumpy(), expected, atol=0.05)


def test_a_transformer_returns_its_output_and_a_none_for_each_layer():
    x, mask = inputs()
    output, encoder_present, decoder_present = small()(Tensor(x), Tensor(mask), Tensor(x), Tensor(mask), Tensor(mask))
    assert output.shape == (N, S, H) and encoder_present == (None, None) and decoder_present == (None,)
    output, _, nothing = small(decoder_layers=0)(Tensor(x), Tensor(mask))
    assert output.shape == (N, S, H) and nothing is None


def test_masks_embeddings_and_the_loss():
    mask = T.AttentionMask(4)(Tensor(np.array([[1, 1, 1, 0]], np.float32))).asnumpy()
    assert mask.tolist() == [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]]]
    embedding = T.VocabEmbedding(5, 3, param_init=Tensor(np.arange(15, dtype=np.float32).reshape(5, 3)))
    rows, table = embedding(Tensor(np.array([[1, 4]], np.int32)))
    assert rows.asnumpy().tolist() == [[[3, 4, 5], [12, 13, 14]]] and table is embedding.embedding_table
    logits = np.random.RandomState(0).randn(3, 5).astype(np.float32)
    label, counts = np.array([1, 4, 0], np.int32), np.array([1, 0, 1], np.float32)
    loss = T.CrossEntropyLoss()(Tensor(logits), Tensor(label), Tensor(counts)).asnumpy()
    expected = (-np.log(softmax(logits))[np.arange(3), label] * counts).sum() / (2 + 1e-5)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_feed_forward_takes_rows_and_tokens():
    layer = T.FeedForward(H, FFN, 0.0)
    x, _ = inputs()
    tokens, rows = layer(Tensor(x)).asnumpy(), layer(Tensor(x.reshape(-1, H))).asnumpy()
    np.testing.assert_array_equal(tokens.reshape(-1, H), rows)


def test_layers_get_their_bucket_and_whether_they_are_recomputed():
    config = T.TransformerOpParallelConfig(gradient_aggregation_group=2, recompute=T.TransformerRecomputeConfig(recompute=True))
    net = small(parallel_config=config, encoder_layers=3, decoder_layers=1)
    ids = [{p.comm_fusion for p in block.trainable_params()} for block in [*net.encoder.blocks, *net.decoder.blocks]]
    assert ids == [{1}, {1}, {2}, {2}]
    with pytest.raises(RuntimeError, match="cannot be recomputed"):
        net.encoder.blocks[0].recompute()

    calls = []
    small(lambda_func=lambda block, layer_id, layers, offset, parallel_config: calls.append((type(block).__name__, layer_id, layers, offset)))
    assert calls == [("TransformerEncoderLayer", 0, 2, 0), ("TransformerEncoderLayer", 1, 2, 0), ("TransformerDecoderLayer", 0, 1, 2)]


def test_only_an_explicit_optimizer_shard_reaches_the_context():
    context.set_auto_parallel_context(enable_parallel_optimizer=True)
    T.TransformerOpParallelConfig(data_parallel=2)
    assert context.get_auto_parallel_context("enable_parallel_optimizer") is True
    T.TransformerOpParallelConfig(optimizer_shard=False)
    assert context.get_auto_parallel_context("enable_parallel_optimizer") is False
    config = T.TransformerOpParallelConfig()
    config.optimizer_shard = True
    assert context.get_auto_parallel_context("enable_parallel_optimizer") is True
    T.TransformerOpParallelConfig(pipeline_stage=1)
    assert context.get_auto_parallel_context("pipeline_stages") == 1
    T.TransformerOpParallelConfig(pipeline_stage=2)
    assert context.get_auto_parallel_context("pipeline_stages") == 2


def test_the_configurations_defaults():
    config = T.TransformerOpParallelConfig()
    assert (config.data_parallel, config.model_parallel, config.expert_parallel, config.pipeline_stage, config.micro_batch_num,
            config.optimizer_shard, config.gradient_aggregation_group, config.vocab_emb_dp) == (1, 1, 1, 1, 1, False, 4, True)
    recompute = config.recompute
    assert (recompute.recompute, recompute.parallel_optimizer_comm_recompute, recompute.mp_comm_recompute,
            recompute.recompute_slice_activation) == (False, False, True, False)
    assert config.embedding_dp_mp_config.dp_mp_config.data_parallel == 1 and config.moe_parallel_config.model_parallel == 1


MP2 = T.TransformerOpParallelConfig(model_parallel=2)


@pytest.mark.parametrize("make, error", [
    (lambda: small(num_heads=3), ValueError), (lambda: small(num_heads=1, parallel_config=MP2), ValueError),
    (lambda: small(hidden_size=9, num_heads=3, parallel_config=MP2), ValueError), (lambda: small(ffn_hidden_size=15, parallel_config=MP2), ValueError),
    (lambda: small(hidden_dropout_rate=1.0), ValueError), (lambda: small(attention_dropout_rate=-0.1), ValueError),
    (lambda: small(hidden_size=0), ValueError), (lambda: small(hidden_size=8.0), TypeError), (lambda: small(encoder_layers=0), ValueError),
    (lambda: small(use_past=True), NotImplementedError), (lambda: T.TransformerEncoderLayer(0, H, FFN, HEADS, S, use_past=True), ValueError),
    (lambda: small(parallel_config=T.OpParallelConfig()), TypeError),
    (lambda: small(hidden_act="wrong"), ValueError), (lambda: T.OpParallelConfig(0), ValueError), (lambda: T.OpParallelConfig(1.0), TypeError),
    (lambda: T.EmbeddingOpParallelConfig(vocab_emb_dp=1), TypeError), (lambda: T.TransformerRecomputeConfig(recompute=1), TypeError),
    (lambda: T.TransformerOpParallelConfig(expert_parallel=2), NotImplementedError), (lambda: T.TransformerOpParallelConfig(recompute=3), TypeError),
    (lambda: T.VocabEmbedding(0, 2), ValueError), (lambda: T.VocabEmbedding(2, 2, T.OpParallelConfig()), TypeError),
    (lambda: T.VocabEmbedding(3, 2, T.EmbeddingOpParallelConfig(1, 2, False)), ValueError), (lambda: T.CrossEntropyLoss(3), TypeError),
    (lambda: T.FeedForward(H, FFN, 0.0, expert_num=2), NotImplementedError),
    (lambda: T.TransformerDecoderLayer(H, FFN, HEADS, N, S, S)(Tensor(inputs()[0]), Tensor(inputs()[1])), ValueError),
])
def test_what_is_wrong_is_refused(make, error):
    with pytest.raises(error):
        make()


SPLIT = """
import numpy as np
import mindspore as ms
from mindspore import Tensor, context, nn
from mindspore.communication import get_group_size, init
from mindspore.nn import transformer as T

init()
ranks = get_group_size()
context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True)
config = T.TransformerOpParallelConfig(data_parallel=ranks // 2 or 1, model_parallel=min(ranks, 2))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = T.VocabEmbedding(20, 8, config.embedding_dp_mp_config)
        self.base = T.Transformer(8, 4, 16, 6, 6, 1, 1, 2, 0.0, 0.0, parallel_config=config)
        self.head = nn.Dense(8, 20)
        self.mask = Tensor(np.tril(np.ones((4, 6, 6), np.float32)))

    def construct(self, ids):
        x, _ = self.embedding(ids)
        y, _, _ = self.base(x, self.mask, x, self.mask, self.mask)
        return self.head(y.reshape(-1, 8))


class Loss(nn.Cell):
    def __init__(self):
        super().__init__()
        self.loss = T.CrossEntropyLoss(config.dp_mp_config)
        self.ones = Tensor(np.ones(24, np.float32))

    def construct(self, logits, label):
        return self.loss(logits, label.reshape(-1), self.ones)


ids = np.random.RandomState(0).randint(0, 20, (8, 6)).astype(np.int32)
data = ms.dataset.NumpySlicesDataset({"ids": ids, "label": np.roll(ids, -1, 1)}, shuffle=False).batch(4)
net = Net()
ms.Model(net, Loss(), nn.AdamWeightDecay(net.trainable_params(), 0.01)).train(4, data, [ms.LossMonitor()], dataset_sink_mode=False)
"""


def test_a_split_transformer_has_the_losses_of_one_device(tmp_path):
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is absent")
    (tmp_path / "split.py").write_text(SPLIT)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "OMPI_", "PMIX_", "RANK_"))}
    found = {}
    for ranks in (1, 2, 4):
        launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] if ranks > 1 else []
        done = subprocess.run([*launcher, sys.executable, "split.py"], capture_output=True, text=True, timeout=300, cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        found[ranks] = sorted(re.findall(r"epoch: (\d+) step: (\d+), loss is (\S+)", done.stdout))
        assert len(found[ranks]) == 8 * ranks
    alone = [float(loss) for _, _, loss in found[1]]
    assert alone[-1] < alone[0]
    for ranks in (2, 4):  # products are rounded to float16
        np.testing.assert_allclose([float(loss) for _, _, loss in found[ranks][::ranks]], alone, rtol=2e-3)


CAUSAL = np.tril(np.ones((N, S, S), np.float32))


def token_by_token(cell, x, first, *more):
    """Results at all places: of the first ones at once, then one after the other. more: behind the mask."""
    padded = x.copy()
    padded[:, first:] = 7.0
    valid = Tensor(np.full(N, first, np.int32))
    cell.add_flags_recursive(is_first_iteration=True)
    results = [cell(Tensor(padded), Tensor(CAUSAL), *more, init_reset=Tensor([True]), batch_valid_length=valid)[0].asnumpy()[:, :first]]
    cell.add_flags_recursive(is_first_iteration=False)
    for place in range(first, S):
        later = [None if item is None else item[:, :1] if item.shape == CAUSAL.shape else item for item in more]
        y, present = cell(Tensor(x[:, place:place + 1]), Tensor(np.ones((N, 1, S), np.float32)), *later, init_reset=Tensor([True]), batch_valid_length=valid)
        results.append(y.asnumpy())
    return np.concatenate(results, 1), present


@pytest.mark.parametrize("first", [1, 3])
@pytest.mark.parametrize("post", [False, True])
def test_an_encoder_layer_goes_on_from_what_it_has_kept(first, post):
    settings = dict(batch_size=N, hidden_size=H, ffn_hidden_size=FFN, num_heads=HEADS, seq_length=S, attention_dropout_rate=0.0,
                    hidden_dropout_rate=0.0, post_layernorm_residual=post)
    x = inputs()[0]
    whole, stepwise = T.TransformerEncoderLayer(**settings), T.TransformerEncoderLayer(use_past=True, **settings)
    fill(whole)
    for mine, other in zip(whole.trainable_params(), stepwise.trainable_params(), strict=True):
        other.set_data(mine)
    expected = whole(Tensor(x), Tensor(CAUSAL))[0].asnumpy()
    found, present = token_by_token(stepwise, x, first)
    np.testing.assert_allclose(found, expected, atol=0.02)
    assert present[0].shape == (N, HEADS, H // HEADS, S) and present[1].shape == (N, HEADS, S, H // HEADS)
    assert stepwise.key_past.asnumpy().tolist() == present[0].asnumpy().tolist() and present[0].asnumpy()[..., -1].any()


def test_a_decoder_goes_on_from_what_it_has_kept():
    settings = dict(num_layers=2, batch_size=N, hidden_size=H, ffn_hidden_size=FFN, src_seq_length=S, tgt_seq_length=S, num_heads=HEADS,
                    attention_dropout_rate=0.0, hidden_dropout_rate=0.0)
    x = inputs()[0]
    memory = Tensor(np.random.RandomState(2).randn(N, S, H).astype(np.float32))
    whole, stepwise = T.TransformerDecoder(**settings), T.TransformerDecoder(use_past=True, **settings)
    fill(whole)
    for mine, other in zip(whole.trainable_params(), stepwise.trainable_params(), strict=True):
        other.set_data(mine)
    every = Tensor(np.ones((N, S, S), np.float32))
    expected = whole(Tensor(x), Tensor(CAUSAL), memory, every)[0].asnumpy()
    np.testing.assert_allclose(token_by_token(stepwise, x, 2, memory, every)[0], expected, atol=0.04)


def test_what_was_kept_can_be_forgotten():
    net = small(use_past=True, decoder_layers=0)
    fill(net)
    x = inputs()[0]
    valid = Tensor(np.full(N, 2, np.int32))
    net(Tensor(x), Tensor(CAUSAL), batch_valid_length=valid)
    net.add_flags_recursive(is_first_iteration=False)
    one, mask = Tensor(x[:, :1]), Tensor(np.ones((N, 1, S), np.float32))
    goes_on, presents, _ = net(one, mask, init_reset=Tensor([True]))
    assert [len(present) for present in presents] == [2, 2]
    alone = net(one, mask, init_reset=Tensor([False]))[0].asnumpy()
    assert np.abs(goes_on.asnumpy() - alone).max() > 0.01
    np.testing.assert_allclose(net(one, mask, init_reset=Tensor([False]))[0].asnumpy(), alone, atol=1e-6)


@pytest.mark.parametrize("call, error, words", [
    (lambda net, x: net(x, Tensor(CAUSAL)), ValueError, "batch_valid_length"),
    (lambda net, x: net(x[:, :1], Tensor(CAUSAL), batch_valid_length=Tensor([1, 1])), ValueError, "must be of"),
    (lambda net, x: (net.set_train(), net(x, Tensor(CAUSAL), batch_valid_length=Tensor([1, 1]))), RuntimeError, "is for prediction"),
    (lambda net, x: small(use_past=True), NotImplementedError, "beside decoder layers"),
])
def test_what_incremental_prediction_needs(call, error, words):
    with pytest.raises(error, match=words):
        call(small(use_past=True, decoder_layers=0), Tensor(inputs()[0]))
