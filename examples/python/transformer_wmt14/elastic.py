"""Tutorial 004's job with the package mindspore: a Transformer on lines "sentence<tab>translation", saved in slices.

    export PYTHONPATH=$(python -m tessera compat-path)
    mpirun -n 8 python elastic.py --file_path wmt14.en_fr.txt --mp 4
    mpirun -n 4 python elastic.py --file_path wmt14.en_fr.txt --mp 4 --only_compile
    tessera ckpt transform src_checkpoints dst_checkpoints --prefix transformed \\
        --src_strategy src_strategy.ckpt --dst_strategy dst_strategy.ckpt
    mpirun -n 4 python elastic.py --file_path wmt14.en_fr.txt --mp 4 --load dst_checkpoints
"""
import argparse
from collections import Counter

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn, ops
from mindspore.communication import get_group_size, get_rank, init
from mindspore.nn.transformer import AttentionMask, CrossEntropyLoss, Transformer, TransformerOpParallelConfig, VocabEmbedding

UNKNOWN, PADDING, END = 0, 1, 2


def numbers(sentences, most):
    """{word: its number}, the most frequent first."""
    counted = Counter(word for sentence in sentences for word in sentence)
    return {word: number + END + 1 for number, (word, _) in enumerate(counted.most_common(most - END - 1))}


def create_dataset(path, length, most, batch_size):
    """Batches of the first words of long sentences and of their translations."""
    with open(path, encoding="utf-8") as lines:
        pairs = [[side.split() for side in line.split("\t")] for line in lines if line.strip()]
    source, target = (numbers([pair[side] for pair in pairs], most) for side in (0, 1))
    positions = np.arange(length, dtype=np.int32)
    seen = np.ones((length, length), np.float16)

    def rows():
        for words, translated in pairs:
            if len(words) > length + 1:
                ids = [target.get(word, UNKNOWN) for word in translated[:length]]
                ids += [PADDING] * (length - len(ids))
                yield (np.array([source.get(word, UNKNOWN) for word in words[:length]], np.int32), positions, seen, np.array(ids, np.int32), positions,
                       seen, np.array(ids[1:] + [END], np.int32))

    columns = ["source", "source_position", "source_mask", "target", "target_position", "memory_mask", "label"]
    return ds.GeneratorDataset(rows, columns).batch(batch_size, drop_remainder=True), len(source) + END + 1, len(target) + END + 1


class Tokens(nn.Cell):
    """Embedded words, and where they stand."""

    def __init__(self, words, length, size, parallel):
        super().__init__()
        self.word_embedding = VocabEmbedding(words, size, parallel.embedding_dp_mp_config)
        self.position_embedding = VocabEmbedding(length, size, parallel.embedding_dp_mp_config)
        self.add = ops.Add().shard(((parallel.data_parallel, 1, 1), (parallel.data_parallel, 1, 1)))

    def construct(self, ids, positions):
        return self.add(self.word_embedding(ids)[0], self.position_embedding(positions)[0])


class Net(nn.Cell):
    """The loss of a batch."""

    def __init__(self, arguments, source_words, target_words, parallel):
        super().__init__()
        size, length = arguments.d_model, arguments.length
        self.src_embedding = Tokens(source_words, length, size, parallel)
        self.tgt_embedding = Tokens(target_words, length, size, parallel)
        self.base1 = Transformer(size, arguments.batch_size, size, length, length, arguments.encoder_layer, arguments.decoder_layer, num_heads=8,
                                 attention_dropout_rate=0.0, hidden_dropout_rate=0.0, parallel_config=parallel)
        self.attention_mask = AttentionMask(length)
        self.head = nn.Dense(size, target_words, has_bias=False)
        self.head.matmul.shard(((1, 1), (1, 1)))
        self.loss = CrossEntropyLoss(parallel.dp_mp_config)

    def construct(self, source, source_position, source_mask, target, target_position, memory_mask, label):
        tokens = ops.Cast()(ops.NotEqual()(target, PADDING), ms.float32)
        output, _, _ = self.base1(self.src_embedding(source, source_position), source_mask, self.tgt_embedding(target, target_position),
                                  self.attention_mask(tokens), memory_mask)
        logits = self.head(output)
        return self.loss(ops.Reshape()(logits, (-1, logits.shape[-1])), ops.Reshape()(label, (-1,)), ops.Reshape()(tokens, (-1,)))


def groups(parameters):
    """Weights decay, biases and normalisations do not."""
    def decays(parameter):
        return "layernorm" not in parameter.name and "bias" not in parameter.name

    return [{"params": [p for p in parameters if decays(p)], "weight_decay": 0.1}, {"params": [p for p in parameters if not decays(p)], "weight_decay": 0.0},
            {"order_params": parameters}]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file_path", required=True, help="lines with a sentence, a tab and its translation")
    parser.add_argument("--length", type=int, default=10, help="words of a sentence")
    parser.add_argument("--vocab_size", type=int, default=20000, help="words of a language at most")
    parser.add_argument("--d_model", type=int, default=128)
    parser.add_argument("--encoder_layer", type=int, default=1)
    parser.add_argument("--decoder_layer", type=int, default=1)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--mp", type=int, default=1, help="ranks that share a layer")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--only_compile", action="store_true", help="write dst_strategy.ckpt, and end")
    parser.add_argument("--load", help="folder of converted checkpoints to go on from")
    arguments = parser.parse_args()

    init()
    ranks, rank = get_group_size(), get_rank()
    is_second = arguments.only_compile or arguments.load
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True, enable_parallel_optimizer=not is_second,
                                 strategy_ckpt_save_file="dst_strategy.ckpt" if is_second else "src_strategy.ckpt")
    dataset, source_words, target_words = create_dataset(arguments.file_path, arguments.length, arguments.vocab_size, arguments.batch_size)
    ms.set_seed(1)
    net = Net(arguments, source_words, target_words, TransformerOpParallelConfig(data_parallel=ranks // arguments.mp, model_parallel=arguments.mp))
    optimizer = nn.AdamWeightDecay(groups(net.trainable_params()), arguments.lr)
    model = ms.Model(net, optimizer=optimizer)
    if arguments.only_compile:
        model.build(train_dataset=dataset)
        return
    if arguments.load:
        model.build(train_dataset=dataset, epoch=arguments.epochs)
        values = ms.load_checkpoint(f"{arguments.load}/rank_{rank}/transformed{rank}.ckpt")
        ms.load_param_into_net(net, values)
        # The tutorial stops here, and its optimizer begins anew; with its states the losses go on as if nothing had happened.
        ms.load_param_into_net(optimizer, values)
    folder = "second_checkpoints" if is_second else "src_checkpoints"
    config = ms.CheckpointConfig(dataset.get_dataset_size(), keep_checkpoint_max=1, integrated_save=False)
    saved = ms.ModelCheckpoint("checkpoint", f"{folder}/rank_{rank}", config)
    model.train(arguments.epochs, dataset, [ms.LossMonitor(1), saved], dataset_sink_mode=False)


if __name__ == "__main__":
    main()
