"""A Transformer (Vaswani et al., 2017) that translates, and how well it does: BLEU.

    python translation.py                                                made-up sentences, which are to be read backwards
    tessera run -n 2 python translation.py                               two processes, each computes half of a batch
    python translation.py --source english.txt --target french.txt       files in which line i of one is line i of the other

The encoder reads the source; the decoder writes the translation word by word, and sees what it has written so far. While it is
trained it is given the right words of the target, all at once; a search then takes its own. For a network that is split into the
stages of a pipeline see ../transformer_wmt14/train.py.
"""
import argparse
from pathlib import Path

import numpy as np
import tessera
from tessera import nn, ops
from tessera.data import Vocabulary

Pairs = list[tuple[str, str]]  # sentences and their translations


class Translator(nn.Cell):
    """(source int32[n,s], target int32[n,s]) -> logits [n*s, words] of the word that follows each of the target's; with these words as
    the label int32[n,s] their mean cross entropy []."""

    def __init__(self, source_words: int, target_words: int, length: int, hidden_size: int, layers: int) -> None:
        super().__init__()
        self.source = nn.TokenEmbedding(source_words, length, hidden_size)
        self.target = nn.TokenEmbedding(target_words, length, hidden_size)
        self.base = nn.Transformer(hidden_size, 4 * hidden_size, encoder_layers=layers, decoder_layers=layers, num_heads=4,
                                   attention_dropout_rate=0.0, hidden_dropout_rate=0.0)
        self.head = nn.Dense(hidden_size, target_words, weight_init="xavier_uniform", has_bias=False)
        self.mask = nn.AttentionMask(length)
        self.loss = nn.CrossEntropyLoss()

    def construct(self, source: tessera.Tensor, target: tessera.Tensor, label: tessera.Tensor | None = None) -> tessera.Tensor:
        # 1 where there is a word and 0 where a sentence is filled up: as [n,s,s] for what each word sees of the source.
        words = ops.expand_dims(ops.cast(ops.not_equal(source, Vocabulary.PADDING), "float32"), 1)
        seen = words * ops.fill((1, source.shape[1], 1), 1)
        written = ops.cast(ops.not_equal(target, Vocabulary.PADDING), "float32")
        output = self.base(self.source(source), seen, self.target(target), self.mask(written), seen)
        result: tessera.Tensor = self.head(output.reshape(-1, output.shape[-1]))
        if label is not None:
            result = self.loss(result, label, written)
        return result


def made_up(count: int, length: int) -> Pairs:
    """Sentences of three to `length` two-letter words; a translation is the sentence read from its end, letter by letter."""
    draws = np.random.default_rng(1)
    words = [consonant + vowel for consonant in "klmnprst" for vowel in "aeiou"]
    sentences = [" ".join(draws.choice(words, draws.integers(3, length + 1))) for _ in range(count)]
    return [(sentence, sentence[::-1]) for sentence in sentences]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="a text file with a sentence in each line")
    parser.add_argument("--target", type=Path, help="a text file with their translations")
    parser.add_argument("--pairs", type=int, default=4000, help="how many sentences are made up")
    parser.add_argument("--test_pairs", type=int, default=100, help="the last ones, by which it is scored and which are not trained on")
    parser.add_argument("--length", type=int, default=8, help="words of a sentence, at most; longer ones are left out")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch_size", type=int, default=64, help="sentences of a step, over all processes")
    parser.add_argument("--hidden_size", type=int, default=64, help="a multiple of 4")
    parser.add_argument("--layers", type=int, default=1, help="of the encoder, and of the decoder")
    parser.add_argument("--learning_rate", type=float, default=3e-3, help="the highest one")
    parser.add_argument("--beam_size", type=int, default=3, help="beginnings that the search keeps; 1: it takes the best next word")
    options = parser.parse_args()
    if min(options.epochs, options.batch_size, options.layers, options.beam_size, options.test_pairs) < 1 or options.length < 3:
        parser.error("numbers of epochs, sentences, layers and beginnings must be at least 1, --length at least 3")
    if options.hidden_size < 4 or options.hidden_size % 4 != 0:
        parser.error(f"--hidden_size must be a multiple of 4, for there are 4 heads, is {options.hidden_size}")
    if (options.source is None) != (options.target is None):
        parser.error("--source and --target go together")
    pairs = made_up(options.pairs, options.length)
    if options.source:
        if missing := [str(path) for path in (options.source, options.target) if not path.is_file()]:
            parser.error(f"there is no {', no '.join(missing)}")
        sources, targets = (path.read_text(encoding="utf-8").splitlines() for path in (options.source, options.target))
        if len(sources) != len(targets):
            parser.error(f"{options.source} has {len(sources)} lines and {options.target} {len(targets)}: line i of one must be line i of the other")
        pairs = [pair for pair in zip(sources, targets) if all(1 <= len(sentence.split()) <= options.length for sentence in pair)]
    train, test = pairs[:-options.test_pairs], pairs[-options.test_pairs:]
    if len(train) < options.batch_size:
        parser.error(f"of {len(pairs)} pairs --test_pairs {options.test_pairs} leave fewer than --batch_size {options.batch_size}")

    source, target = (Vocabulary.build([pair[side] for pair in train]) for side in (0, 1))
    length = options.length + 1  # the end is a token, too
    rows = tessera.data.translation(train, source, target, length, length, seed=1).batch(options.batch_size, drop_remainder=True)
    network = Translator(len(source), len(target), length, options.hidden_size, options.layers)
    steps = options.epochs * len(rows)
    warmup = steps // 10 + 1
    schedule = nn.schedules.warmup(warmup, nn.schedules.cosine(options.learning_rate, max(steps - warmup, 1)))
    # Its result is the loss, so that there is no other one.
    model = tessera.Model(network, None, nn.Adam(schedule), parallel_mode="data_parallel", seed=1)
    model.train(options.epochs, rows, [tessera.EpochSummary(row_name="sentences")])

    tokens = tessera.data.source_rows([sentence for sentence, _ in test], source, length)
    found = [target.sentence(one.tokens) for one in model.translate(tokens, max_length=length, beam_size=options.beam_size)]
    if tessera.cluster.rank() == 0:
        for (sentence, right), translation in list(zip(test, found))[:3]:
            print(f"{sentence} -> {translation}" + ("" if translation == right else f", which should be {right}"))
        exact = sum(translation == right for (_, right), translation in zip(test, found))
        print(f"{len(test)} test sentences: {tessera.data.bleu(found, [[right] for _, right in test])}, {exact} without a fault", flush=True)


if __name__ == "__main__":
    main()
