"""A Transformer that translates, on as many ranks as it is started with:

    python train.py --source newstest2014-fren-ref.en.sgm --target newstest2014-fren-ref.fr.sgm
    tessera run -n 4 python train.py ...
    tessera run -n 4 python train.py ... --stages 2 --micro_batches 4
    tessera run -n 3 python train.py ... --stages 2 --stage_ranks 2,1 --model_parallel 2

Without --source it makes up a language, learns it, and says how well: BLEU. With --source it says how well it translates what
--test_source names, else what it has learnt by heart.
"""
import argparse
import math
import tempfile
from pathlib import Path
from typing import Any

import tessera
from tessera import nn, ops
from tessera.data import Vocabulary


class Translator(nn.Cell):
    """(source, target) -> logits [n*t, words]; with the label, which follows each target token, the loss."""

    def __init__(self, source_words: int, target_words: int, length: int, hidden_size: int, layers: int, dropout: float, stages: int,
                 parallel: list[nn.TransformerOpParallelConfig]) -> None:
        """parallel: by stage how its ranks share each layer and the batch; [] where nothing says."""
        super().__init__()

        def stage_of(layer: int) -> int:  # of a pipeline: layers are dealt in order, the decoder's after the encoder's
            return layer * stages // (2 * layers)

        def parallel_of(layer: int) -> nn.TransformerOpParallelConfig | None:
            return parallel[stage_of(layer)] if parallel else None

        self.source = nn.TokenEmbedding(source_words, length, hidden_size, dropout, parallel=parallel_of(0))
        self.target = nn.TokenEmbedding(target_words, length, hidden_size, dropout, parallel=parallel_of(layers))
        self.base = nn.Transformer(hidden_size, 2 * hidden_size, encoder_layers=layers, decoder_layers=layers, num_heads=8,
                                   attention_dropout_rate=dropout, hidden_dropout_rate=dropout, stage_of=stage_of, parallel_of=parallel_of)
        self.head = nn.Dense(hidden_size, target_words, has_bias=False)
        self.mask = nn.AttentionMask(length)
        self.loss = nn.CrossEntropyLoss(parallel_of(2 * layers - 1))
        self.source.set_stage(0)
        self.target.set_stage(stage_of(layers))
        self.head.set_stage(stages - 1)
        self.loss.set_stage(stages - 1)
        if parallel:
            last = parallel[-1]
            self.head.shard("matmul", ((last.data_parallel, 1), (last.model_parallel, 1)))

    def construct(self, source: tessera.Tensor, target: tessera.Tensor, label: tessera.Tensor | None = None) -> Any:
        # [n,1,length], 1 where there is a word: what every token sees of the source.
        words = ops.expand_dims(ops.cast(ops.not_equal(source, Vocabulary.PADDING), "float32"), 1)
        seen = words * ops.fill((1, source.shape[1], 1), 1)
        tokens = ops.cast(ops.not_equal(target, Vocabulary.PADDING), "float32")
        output = self.base(self.source(source), seen, self.target(target), self.mask(tokens), seen)
        logits = self.head(output.reshape(-1, output.shape[-1]))
        return logits if label is None else self.loss(logits, label, tokens)


def read_pairs(arguments: argparse.Namespace) -> tuple[list[tuple[str, str]], list[tuple[str, str]], str]:
    """Pairs to train on, pairs to be scored with, and what these are."""
    if arguments.source:
        pairs = tessera.data.read_segment_pairs(arguments.source, arguments.target)
        if arguments.test_source:
            return pairs, tessera.data.read_segment_pairs(arguments.test_source, arguments.test_target)[:arguments.test_pairs], "test sentences"
        return pairs, pairs[:arguments.test_pairs], "sentences that it was trained on"
    with tempfile.TemporaryDirectory() as folder:
        tessera.data.write_synthetic_translation(folder, arguments.train_pairs, arguments.test_pairs)
        train, test = (tessera.data.read_segment_pairs(Path(folder) / f"{name}.source.sgm", Path(folder) / f"{name}.target.sgm")
                       for name in ("train", "test"))
        return train, test, "test sentences"


def sharing(model_parallel: int, stage_ranks: list[int]) -> list[nn.TransformerOpParallelConfig]:
    """By stage how its ranks share each layer and the batch: among the most ranks that divide both model_parallel and its own number."""
    shared = [math.gcd(model_parallel, ranks) for ranks in stage_ranks]
    if model_parallel not in shared:
        raise SystemExit(f"--model_parallel must divide the ranks of one stage at least, which have {stage_ranks}, is {model_parallel}")
    return [nn.TransformerOpParallelConfig(ranks // model, model) for ranks, model in zip(stage_ranks, shared)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", help="segment file of sentences to train on")
    parser.add_argument("--target", help="segment file of their translations")
    parser.add_argument("--test_source", help="segment file of sentences to be translated at the end")
    parser.add_argument("--test_target", help="segment file of what they should become: gives BLEU")
    parser.add_argument("--train_pairs", type=int, default=4000, help="of the made-up language")
    parser.add_argument("--test_pairs", type=int, default=200, help="of them at most")
    parser.add_argument("--length", type=int, default=16, help="tokens of a sentence")
    parser.add_argument("--hidden_size", type=int, default=64)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch_size", type=int, default=64, help="over all ranks")
    parser.add_argument("--learning_rate", type=float, default=2e-3)
    parser.add_argument("--parallel_mode", default="data_parallel")
    parser.add_argument("--stages", type=int, default=1, help="of a pipeline")
    parser.add_argument("--stage_ranks", type=lambda text: [int(count) for count in text.split(",")],
                        help="how many ranks each stage has, such as 2,1; default: equally many")
    parser.add_argument("--model_parallel", type=int, default=1, help="of a pipeline: so many ranks of a stage share each layer")
    parser.add_argument("--micro_batches", type=int, default=4, help="of a pipeline's batch")
    parser.add_argument("--beam_size", type=int, default=4)
    arguments = parser.parse_args()
    if (arguments.test_source is None) != (arguments.test_target is None):
        parser.error("--test_source and --test_target go together")
    if arguments.stages == 1 and (arguments.stage_ranks or arguments.model_parallel > 1):
        parser.error("--stage_ranks and --model_parallel need --stages")

    pairs, test, scored = read_pairs(arguments)
    source = Vocabulary.build([sentence for sentence, _ in pairs])
    target = Vocabulary.build([sentence for _, sentence in pairs])
    rows = tessera.data.translation(pairs, source, target, arguments.length, arguments.length, seed=1)
    rows = rows.batch(arguments.batch_size, drop_remainder=True)

    ranks = tessera.cluster.size()
    stage_ranks = arguments.stage_ranks or [ranks // arguments.stages] * arguments.stages
    shared = sharing(arguments.model_parallel, stage_ranks) if arguments.model_parallel > 1 else []
    network = Translator(len(source), len(target), arguments.length, arguments.hidden_size, arguments.layers, arguments.dropout,
                         arguments.stages, shared)
    optimizer = nn.Adam(learning_rate=arguments.learning_rate)
    parallel = {"parallel_mode": arguments.parallel_mode}
    if arguments.stages > 1:
        pipeline = {"stages": arguments.stages, "micro_batches": arguments.micro_batches}
        if arguments.stage_ranks:
            pipeline["ranks"] = arguments.stage_ranks
        parallel = {"parallel_mode": "pipeline_parallel", "pipeline": pipeline}
    model = tessera.Model(network, None, optimizer, **parallel)
    model.train(arguments.epochs, rows, [tessera.EpochSummary()])

    sources = tessera.data.source_rows([sentence for sentence, _ in test], source, arguments.length)
    found = model.translate(sources, max_length=arguments.length, beam_size=arguments.beam_size)
    translations = [target.sentence(decoded.tokens) for decoded in found]
    if tessera.cluster.rank() == 0:
        print(f"{test[0][0]} -> {translations[0]}")
        print(f"{len(test)} {scored}:", tessera.data.bleu(translations, [[sentence] for _, sentence in test]))


if __name__ == "__main__":
    main()
