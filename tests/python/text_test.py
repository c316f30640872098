"""Texts to translate: vocabularies, data sets, searches, and BLEU beside sacrebleu's."""
import json
import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tessera
from tessera import data, nn
from tessera.data import Vocabulary

ROOT = Path(__file__).resolve().parent.parent.parent
WMT14 = ROOT.parent / "shared" / "data" / "wmt14"
PAIRS = [("a b c", "x y"), ("b a", "y x z"), ("c", "z")]


def vocabularies(pairs=PAIRS, **options):
    return [Vocabulary.build([pair[side] for pair in pairs], **options) for side in (0, 1)]


def test_a_vocabulary_numbers_words_and_comes_back_from_its_file(tmp_path):
    source, _ = vocabularies()
    assert len(source) == 7 and source.has_begin() and source.word(4) == "a"
    assert source.ids("c a zzz") == [source.id("c"), 4, Vocabulary.UNKNOWN]
    assert source.sentence([Vocabulary.BEGIN, 4, Vocabulary.UNKNOWN, Vocabulary.END, 5]) == "a UNK"
    source.write(tmp_path / "v.txt")
    assert Vocabulary.read(tmp_path / "v.txt") == source
    with pytest.raises(tessera.InvalidArgument, match="line 2: must be the special word"):
        Vocabulary.read(tmp_path / "v.txt", special_words=["UNK", "EOT", "PAD"])


def test_pairs_come_from_segments_and_come_back_from_their_file(tmp_path):
    data.write_synthetic_translation(tmp_path, train_pairs=20, test_pairs=5, seed=1)
    pairs = data.read_segment_pairs(tmp_path / "train.source.sgm", tmp_path / "train.target.sgm")
    assert len(pairs) == 20
    data.write_sentence_pairs(tmp_path / "pairs.txt", pairs)
    assert data.read_sentence_pairs(tmp_path / "pairs.txt") == pairs
    (tmp_path / "bad.txt").write_bytes(b"a\tb\n\xff\tc\n")
    with pytest.raises(tessera.InvalidArgument, match="bad.txt\": line 2: must be UTF-8"):
        data.read_sentence_pairs(tmp_path / "bad.txt")


def test_rows_are_padded_and_labels_follow_targets():
    source, target = vocabularies()
    rows = data.translation(PAIRS, source, target, 5, 4, shuffle=False).batch(3)
    sources, targets, labels = (column.numpy() for column in next(iter(rows)))
    assert rows.column_names() == ["source", "target", "label"]
    assert targets.tolist()[1] == [Vocabulary.BEGIN, *target.ids("y x z")]
    assert labels.tolist()[1] == [*target.ids("y x z"), Vocabulary.END]
    assert sources.tolist()[2] == [source.id("c"), Vocabulary.END, 1, 1, 1]
    assert (data.source_rows(["a b c", "b a", "c"], source, 5).numpy() == sources).all()
    with pytest.raises(tessera.InvalidArgument, match='form must be "whole" or "tutorial"'):
        data.translation(PAIRS, source, target, 5, 4, form="half")


def test_in_the_tutorials_form_wmt14_has_the_tutorials_steps():
    if not WMT14.exists():
        pytest.skip("../shared/data/wmt14 is absent")
    pairs = data.read_segment_pairs(WMT14 / "newstest2014-fren-ref.en.sgm", WMT14 / "newstest2014-fren-ref.fr.sgm")
    source, target = vocabularies(pairs, special_words=["UNK", "PAD", "EOT"])
    assert (len(pairs), len(source), len(target)) == (3003, 14399 + 3, 15736 + 3)
    rows = data.translation(pairs, source, target, 10, 10, form="tutorial").batch(32, drop_remainder=True)
    assert rows.get_dataset_size() == 73


def test_a_search_asks_python_for_scores():
    asked = []

    def next_scores(prefixes, length):
        asked.append((prefixes.shape, length, prefixes.numpy()[0, :length].tolist()))
        scores = np.full((prefixes.shape[0], 8), -9, np.float32)
        scores[:, 4 + length if length < 3 else Vocabulary.END] = 0
        return scores

    found = tessera.beam_search(2, next_scores, max_length=6, beam_size=3)
    assert [decoded.tokens for decoded in found] == [[5, 6]] * 2
    assert found[0].is_whole and found[0].score == pytest.approx(found[0].log_probability / (8 / 6) ** 0.6)
    assert asked[2] == ((6, 6), 3, [3, 5, 6])


class Copier(nn.Cell):
    """Scores that say each source word again, then an end."""

    def __init__(self, words):
        super().__init__()
        self.words = words

    def construct(self, source, target):
        logits = tessera.ops.one_hot(source, self.words) * 9.0
        return (logits + 0 * tessera.ops.expand_dims(tessera.ops.cast(target, "float32"), 2)).reshape(-1, self.words)


def test_a_model_translates():
    model = tessera.Model(Copier(7))
    sources = np.array([[4, 5, 2, 1, 1], [6, 2, 1, 1, 1], [5, 5, 4, 2, 1]], np.int32)
    for beam_size in (1, 3):
        found = model.translate(sources, max_length=5, beam_size=beam_size, batch_size=2)
        assert [decoded.tokens for decoded in found] == [[4, 5], [6], [5, 5, 4]]


# BLEU

JUDGE = """
import json, sys, sacrebleu
from sacrebleu.metrics.bleu import _get_tokenizer
cases = json.load(sys.stdin)
tokenizer, answers = _get_tokenizer("13a")(), []
for hypotheses, references in cases["corpora"]:
    width = max(map(len, references))
    streams = [[r[i] if i < len(r) else None for r in references] for i in range(width)]
    score = sacrebleu.BLEU().corpus_score(hypotheses, streams)
    answers.append([score.score, list(score.counts), list(score.totals), list(score.precisions), score.bp, score.sys_len, score.ref_len])
json.dump({"corpora": answers, "lines": [tokenizer(line.rstrip()) for line in cases["lines"]]}, sys.stdout)
"""


@pytest.fixture(scope="module")
def sacrebleu():
    """A function that asks PyPI's sacrebleu about corpora and lines."""
    made = subprocess.run([sys.executable, ROOT / "scripts" / "sacrebleu_env.py"], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip("no sacrebleu: scripts/sacrebleu_env.py could not make .venv-sacrebleu")

    def ask(corpora, lines):
        done = subprocess.run([made.stdout.strip(), "-c", JUDGE], input=json.dumps({"corpora": corpora, "lines": lines}), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask


def random_line(rng):
    """Words, numbers, punctuation of any kind and entities, with and without spaces."""
    pieces = ["the", "cat", "l'été", "naïve", "3", "1,000.5", "2014", "-", "--", ".", ",", "...", "!", "?", "&amp;", "&quot;", "&lt;", "(", ")", "/", "$", "%",
              "U.S.", "10-year", "well-known", "«", "»", "\u00a0", "日本", "’", "<skipped>", "a.b", "'", "_", "{x}", "~", "@", "\u2009"]
    return "".join(rng.choice(pieces) + rng.choice(["", " ", " ", "  "]) for _ in range(rng.randrange(0, 25)))


def random_corpus(rng):
    def changed(line):
        words = [word for word in line.split(" ") if rng.random() > 0.15]
        return " ".join(word if rng.random() > 0.2 else rng.choice(["dog", "5", "x,"]) for word in words)

    references = [[random_line(rng) for _ in range(rng.randrange(1, 4))] for _ in range(rng.randrange(1, 12))]
    return [changed(rng.choice(own)) for own in references], references


def test_bleu_is_sacrebleus(sacrebleu):
    rng = random.Random(1)
    corpora = [random_corpus(rng) for _ in range(300)]
    lines = [random_line(rng) for _ in range(3000)]
    if WMT14.exists():
        pairs = data.read_segment_pairs(WMT14 / "newstest2014-fren-ref.en.sgm", WMT14 / "newstest2014-fren-ref.fr.sgm")
        lines += [sentence for pair in pairs for sentence in pair]
        for side in (0, 1):
            said = [pair[side] for pair in pairs]
            corpora.append((said[1:] + said[:1], [[line] for line in said]))
            corpora.append(([" ".join(line.split()[:-2]) for line in said], [[line] for line in said]))
    answers = sacrebleu(corpora, lines)
    for line, tokens in zip(lines, answers["lines"]):
        assert " ".join(data.tokenize_13a(line)) == tokens, line
    for (hypotheses, references), (score, matches, totals, precisions, penalty, hypothesis_tokens, reference_tokens) in zip(corpora, answers["corpora"]):
        own = data.bleu(hypotheses, references)
        assert (list(own.matches), list(own.totals)) == (matches, totals)
        assert (own.hypothesis_tokens, own.reference_tokens) == (hypothesis_tokens, reference_tokens)
        assert list(own.precisions) == pytest.approx(precisions, rel=1e-12)
        assert own.brevity_penalty == pytest.approx(penalty, rel=1e-12) and math.isclose(own.score, score, rel_tol=1e-12, abs_tol=1e-12)
