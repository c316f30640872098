"""Cases of text and of data sets: vocabularies, tokenizers, files of text, rows whose sizes differ, samplers; and of metrics of these."""
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.dataset import text, transforms

from kinds import metric, value
from refusal_cases import refusal

# --- vocabularies
WORDS = ["home", "IN", "behind", "the", "world", "[UNK]", "un", "##want", "##ed", "\u00c4", "##x"]


def written(name, content):
    """A file of that content where both packages are run, each with its own."""
    Path(name).write_bytes(content.encode())
    return name


def numbers(vocab):
    """The words and their numbers, as arrays."""
    found = sorted(vocab.vocab().items())
    return np.array([word for word, _ in found], dtype="U"), np.array([number for _, number in found], np.int64)


VOCABS = {
    "from_list": lambda: text.Vocab.from_list(WORDS), "from_list first": lambda: text.Vocab.from_list(["a", "b"], ["<s>", "<p>"]),
    "from_list last": lambda: text.Vocab.from_list(["a", "b"], ["<s>", "<p>"], False), "from_dict": lambda: text.Vocab.from_dict({"a": 3, "b": 1}),
    "from_file": lambda: text.Vocab.from_file(written("vocab.txt", "a,1\nb,2\n c \n\nd,9\n")),
    "from_file delimiter": lambda: text.Vocab.from_file(written("vocab.txt", "a,1\nb,2\n c \n\nd,9\n"), ",", 2, ["<s>"], False),
    "from_file of lines with returns": lambda: text.Vocab.from_file(written("vocab.txt", "a\r\nb\r\n")),
}
for label, make in VOCABS.items():
    value(f"text.Vocab {label}", lambda make=make: numbers(make()))
REFUSED_VOCABS = {
    "twice": lambda: text.Vocab.from_list(["a", "a"]), "a special word twice": lambda: text.Vocab.from_list(["a"], ["b", "b"]),
    "a special word that is one": lambda: text.Vocab.from_list(["a"], ["a"]), "a text": lambda: text.Vocab.from_list("ab"),
    "numbers": lambda: text.Vocab.from_list([1]), "a negative number": lambda: text.Vocab.from_dict({"a": -1}),
    "no file": lambda: text.Vocab.from_file("none.txt"), "a size of 0": lambda: text.Vocab.from_file(written("vocab.txt", "a\n"), vocab_size=0),
    "a file that has a word twice": lambda: text.Vocab.from_file(written("vocab.txt", "a\nb\na\n")), "none": lambda: text.Vocab().vocab(),
    "a number below 0": lambda: text.Vocab.from_list(["a"]).ids_to_tokens(-1),
    "a frequency that falls": lambda: text.Vocab.from_dataset(sentences(), "t", (3, 2)), "a top_k of 0": lambda: text.Vocab.from_dataset(sentences(), "t", None, 0),
    "a special word of the data set": lambda: text.Vocab.from_dataset(sentences(), "t", None, None, ["a"]),
    "a column that is not there": lambda: text.Vocab.from_dataset(sentences(), "u"),
    "a column of numbers": lambda: text.Vocab.from_dataset(ds.NumpySlicesDataset({"t": [1, 2]}), "t"),
}
for label, call in REFUSED_VOCABS.items():
    value(f"text.Vocab refused {label}", lambda call=call: refusal(call))
value("text.Vocab tokens_to_ids", lambda: np.array(text.Vocab.from_list(WORDS).tokens_to_ids(["home", "nobody", "the"])))
value("text.Vocab tokens_to_ids one", lambda: np.array(text.Vocab.from_list(WORDS).tokens_to_ids("IN")))
value("text.Vocab ids_to_tokens", lambda: np.array(text.Vocab.from_list(WORDS).ids_to_tokens([1, 99])))
value("text.Vocab ids_to_tokens one", lambda: np.array(text.Vocab.from_list(WORDS).ids_to_tokens(np.array([2]))))


def sentences():
    return ds.GeneratorDataset([np.array(line.split()) for line in ("b a b c", "a b d d", "e")], ["t"], shuffle=False)


for label, settings in {"": {}, "range": dict(freq_range=(2, 3)), "at most": dict(freq_range=(None, 1)), "top": dict(top_k=2),
                        "special": dict(top_k=2, special_tokens=["<p>", "<u>"]), "special last": dict(special_tokens=["<p>"], special_first=False)}.items():
    value(f"text.Vocab from_dataset {label}".strip(), lambda s=settings: numbers(text.Vocab.from_dataset(sentences(), "t", **s)))

# --- transforms of text
TEXTS = {"words": "Welcome to  Beijing!", "empty": "", "spaces": "   ", "all spaces": " a\tb\n c\u3000d\u00a0e ", "Chinese": "\u5317\u4eac \u6b22\u8fce",
         "separators": "a\x0bb\x1cc\u200bd\u2028e\x85f", "marks": "don't $5 \uff21B\uff01 \u00c4 e\u0301", "words that stay": "\u5317hello, \u00c4 [UNK]x"}


def vocab():
    return text.Vocab.from_list(WORDS)


def plain(made):
    """Arrays as they are; a tuple of them as a tuple."""
    return tuple(np.asarray(part) for part in made) if isinstance(made, tuple) else np.asarray(made)


TOKENIZERS = {
    "WhitespaceTokenizer": text.WhitespaceTokenizer, "UnicodeCharTokenizer": text.UnicodeCharTokenizer,
    "RegexTokenizer": lambda with_offsets=False: text.RegexTokenizer(r"\s+", "", with_offsets),
    "RegexTokenizer kept": lambda with_offsets=False: text.RegexTokenizer(r"[\s,]|\p{P}", r"\p{P}", with_offsets),
    "BasicTokenizer": lambda with_offsets=False: text.BasicTokenizer(with_offsets=with_offsets),
    "BasicTokenizer lower": lambda with_offsets=False: text.BasicTokenizer(True, with_offsets=with_offsets, preserve_unused_token=False),
    "BasicTokenizer lower and unused": lambda with_offsets=False: text.BasicTokenizer(True, with_offsets=with_offsets),
    "BasicTokenizer spaces": lambda with_offsets=False: text.BasicTokenizer(False, True, text.NormalizeForm.NFKC, with_offsets=with_offsets),
    "BertTokenizer": lambda with_offsets=False: text.BertTokenizer(vocab(), with_offsets=with_offsets),
}
for name, make in TOKENIZERS.items():
    for label, line in TEXTS.items():
        value(f"text.{name} of {label}", lambda make=make, line=line: plain(make()(line)))
        value(f"text.{name} offsets of {label}", lambda make=make, line=line: plain(make(with_offsets=True)(line)))
value("text.BasicTokenizer lower and several unused", lambda: plain(text.BasicTokenizer(True)("[CLS] Hello [SEP]")))
value("text.BertTokenizer of known words", lambda: plain(text.BertTokenizer(vocab())("home IN unwanted the-world q [UNK]")))
value("text.BertTokenizer lower offsets", lambda: plain(text.BertTokenizer(vocab(), lower_case=True, with_offsets=True)("Home UNWANTED")))
value("text.BertTokenizer spaces", lambda: plain(text.BertTokenizer(vocab(), keep_whitespace=True)("home IN")))
CALLS = {
    "WordpieceTokenizer": lambda: text.WordpieceTokenizer(vocab())(["unwanted", "home", "zzz", "unx", "unwantedq"]),
    "WordpieceTokenizer offsets": lambda: text.WordpieceTokenizer(vocab(), with_offsets=True)(["unwanted", "home", "zzz", "\u00c4x"]),
    "WordpieceTokenizer long": lambda: text.WordpieceTokenizer(vocab(), max_bytes_per_token=4)(["unwanted", "home"]),
    "WordpieceTokenizer unknown": lambda: text.WordpieceTokenizer(vocab(), unknown_token="")(["zzz", "unq"]),
    "WordpieceTokenizer suffix": lambda: text.WordpieceTokenizer(text.Vocab.from_list(["a", "@b"]), "@")(["ab", "abb", "b"]),
    "WordpieceTokenizer of nothing": lambda: text.WordpieceTokenizer(vocab())([""]),
    "PythonTokenizer": lambda: text.PythonTokenizer(lambda line: line.split())(np.array("a bb c")),
    "PythonTokenizer bytes": lambda: text.PythonTokenizer(lambda line: line.split())(np.array(b"a bb c")),
    "PythonTokenizer several": lambda: text.PythonTokenizer(lambda line: line.split())(np.array(["a b", "c d"])),
    "Lookup": lambda: text.Lookup(vocab())(["home", "IN"]), "Lookup one": lambda: text.Lookup(vocab())("home"),
    "Lookup table": lambda: text.Lookup(vocab())(np.array([["home", "IN"], ["the", "un"]])),
    "Lookup unknown": lambda: text.Lookup(vocab(), "[UNK]")(["home", "nobody"]), "Lookup float32": lambda: text.Lookup(vocab(), data_type=ms.float32)(["the"]),
    "Ngram": lambda: text.Ngram(2)(["a", "b", "c"]), "Ngram several": lambda: text.Ngram([1, 2, 3])(["a", "b"]),
    "Ngram padded": lambda: text.Ngram(3, ("<", 2), (">", 1), "|")(["a", "b"]), "Ngram padded more": lambda: text.Ngram([2], ("<", 9), (">", 9), "|")(["a", "b"]),
    "SlidingWindow": lambda: text.SlidingWindow(2)(np.arange(5)), "SlidingWindow texts": lambda: text.SlidingWindow(3, -1)(["a", "b", "cc", "d"]),
    "SlidingWindow wide": lambda: text.SlidingWindow(9)(np.arange(5)),
    "ToNumber": lambda: text.ToNumber(ms.int32)(["1", " -3", "3.7", "3x"]), "ToNumber float": lambda: text.ToNumber(ms.float32)(["1e3", "-.5", "1.5x"]),
    "ToNumber float16": lambda: text.ToNumber(ms.float16)(["2"]), "ToNumber one": lambda: text.ToNumber(ms.uint8)("7"),
    "AddToken": lambda: text.AddToken("X")(["a", "b"]), "AddToken end": lambda: text.AddToken("X", False)([["a", "b"], ["c", "d"]]),
    "Truncate": lambda: text.Truncate(2)(["a", "b", "c"]), "Truncate rows": lambda: text.Truncate(2)([["a", "b", "c"], ["d", "e", "f"]]),
    "Truncate numbers": lambda: text.Truncate(9)(np.arange(4)),
    "CaseFold": lambda: text.CaseFold()("Welcome To \u03a3\u00c4\u00df \u0130 \ufb01"), "CaseFold several": lambda: text.CaseFold()(["AB", "\u0132"]),
    "RegexReplace": lambda: text.RegexReplace(r"\s+", "_")("a  b c"), "RegexReplace first": lambda: text.RegexReplace(r"\s+", "_", False)("a  b c"),
    "RegexReplace groups": lambda: text.RegexReplace(r"(\w)(\d)", "$2-$1")("a1 b2"), "RegexReplace several": lambda: text.RegexReplace("^x", "y")(["xa", "bx"]),
    "RegexReplace letters": lambda: text.RegexReplace(r"[^\p{L}\p{N}]", "")("\u5317a-1_\u00e9"),
    "to_bytes": lambda: np.array([len(word) for word in text.to_bytes(np.array(["a", "\u00e9"]))]),
    "to_str": lambda: text.to_str(np.array([b"a", "\u00e9".encode()])),
}
for form in ("NONE", "NFC", "NFKC", "NFD", "NFKD"):
    CALLS[f"NormalizeUTF8 {form}"] = lambda form=form: text.NormalizeUTF8(getattr(text.NormalizeForm, form))("\u1e69 \ufb01 \u2460 A\u030a")
for longest in (0, 1, 2, 3, 4, 5, 9):
    CALLS[f"TruncateSequencePair {longest}"] = lambda n=longest: text.TruncateSequencePair(n)(np.array([1, 2, 3]), np.array([4, 5]))
    CALLS[f"TruncateSequencePair {longest} of texts"] = lambda n=longest: text.TruncateSequencePair(n)(["a", "b"], ["c", "d", "e"])
for name, call in CALLS.items():
    value(f"text.{name}", lambda call=call: plain(call()))
REFUSED_CALLS = {
    "Lookup of no word": lambda: text.Lookup(vocab())(["nobody"]), "Lookup of an unknown unknown word": lambda: text.Lookup(vocab(), "none")(["home"]),
    "Lookup of numbers": lambda: text.Lookup(vocab())(np.array([1])), "Lookup without a vocabulary": lambda: text.Lookup("home"),
    "Lookup as texts": lambda: text.Lookup(vocab(), data_type=ms.string)(["home"]), "PythonTokenizer of no function": lambda: text.PythonTokenizer(3),
    "PythonTokenizer that fails": lambda: text.PythonTokenizer(lambda line: 1 / 0)(np.array("a")), "PythonTokenizer of a text": lambda: text.PythonTokenizer(str.split)("a"),
    "SlidingWindow of a table": lambda: text.SlidingWindow(2)(np.ones((2, 3))), "SlidingWindow of 0": lambda: text.SlidingWindow(0),
    "TruncateSequencePair of one": lambda: text.TruncateSequencePair(3)(np.arange(3)), "ToNumber of words": lambda: text.ToNumber(ms.int32)(["x"]),
    "ToNumber of nothing": lambda: text.ToNumber(ms.int32)([""]), "ToNumber out of range": lambda: text.ToNumber(ms.int8)(["300"]),
    "ToNumber below 0": lambda: text.ToNumber(ms.uint8)(["-1"]), "ToNumber bool": lambda: text.ToNumber(ms.bool_), "Ngram of 0": lambda: text.Ngram(0),
    "Ngram of none": lambda: text.Ngram([]), "Ngram of a table": lambda: text.Ngram(2)([["a", "b"]]), "AddToken of a text": lambda: text.AddToken("X")("a"),
    "AddToken of numbers": lambda: text.AddToken("X")(np.array([1])), "AddToken of a number": lambda: text.AddToken(1), "Truncate of 0": lambda: text.Truncate(0),
    "RegexReplace of no pattern": lambda: text.RegexReplace("(", "")("a"), "WhitespaceTokenizer of several": lambda: text.WhitespaceTokenizer()(["a", "b"]),
    "WhitespaceTokenizer of a number": lambda: text.WhitespaceTokenizer()(np.array(1)), "to_bytes of a list": lambda: text.to_bytes(["a"]),
    "to_str of a list": lambda: text.to_str([b"a"]),
}
for name, call in REFUSED_CALLS.items():
    value(f"text.{name.partition(' ')[0]} refused{name[len(name.partition(' ')[0]):]}", lambda call=call: refusal(call))
for name, call in {"PadEnd": lambda: transforms.PadEnd([4], "xx")(["a", "b"]), "PadEnd of nothing": lambda: transforms.PadEnd([3])(["a", "b"]),
                   "Fill": lambda: transforms.Fill("zz")(["a", "bb"]), "Duplicate": lambda: transforms.Duplicate()(["a", "bb"]),
                   "Concatenate": lambda: transforms.Concatenate(0, np.array(["x"]), np.array(["y"]))(["a", "bb"])}.items():
    value(f"transforms.{name} of texts", lambda call=call: plain(call()))
value("transforms.PadEnd of texts refused", lambda: refusal(lambda: transforms.PadEnd([4], 0)(["a", "b"])))

# --- rows of data sets


def rows(dataset):
    """Every column of every row."""
    return tuple(np.asarray(column) for row in dataset.create_tuple_iterator(num_epochs=1, output_numpy=True) for column in row)


def lines():
    written("first.txt", "one\ntwo x\n\n three \r\nfour\n")
    written("second.txt", "five\nsix")
    return ["second.txt", "first.txt"]


TEXT_FILES = {"": {}, "samples": dict(num_samples=2), "workers": dict(num_parallel_workers=2)} | {
    f"shard {i} of {count}": dict(num_shards=count, shard_id=i) for count in (2, 4) for i in range(count)}
for label, settings in TEXT_FILES.items():
    value(f"dataset.TextFileDataset {label}".strip(), lambda s=settings: rows(ds.TextFileDataset(lines(), shuffle=False, **({"num_parallel_workers": 1} | s))))
value("dataset.TextFileDataset size", lambda: np.array([ds.TextFileDataset(lines(), num_shards=4, shard_id=i).get_dataset_size() for i in range(4)]))
value("dataset.TextFileDataset shuffled", lambda: np.sort(np.array(rows(ds.TextFileDataset(lines())))))
value("dataset.TextFileDataset batches", lambda: rows(ds.TextFileDataset(lines(), shuffle=False, num_parallel_workers=1).batch(4).repeat(2)))
value("dataset.TextFileDataset shape", lambda: np.array(str(ds.TextFileDataset(lines()).output_shapes())))
value("dataset.TextFileDataset refused no file", lambda: refusal(lambda: ds.TextFileDataset("none*.txt")))
value("dataset.TextFileDataset refused shuffle", lambda: refusal(lambda: ds.TextFileDataset(lines(), shuffle="global")))


def table(header="a,b,c\n"):
    return written("table.csv", header + '1,2.5,hi\n3,4,"yo ""x"", u"\n\n5,6,z\n')


CSV = {"": (table, {}), "types": (table, dict(column_defaults=[0, 0.5, "x"])), "few types": (table, dict(column_defaults=[0])), "names": (lambda: table(""), dict(column_names=["a", "b", "c"])),
       "numbers": (lambda: written("numbers.csv", "1,2.5\n 3,4\n"), dict(column_defaults=[0, 0.0], column_names=["a", "b"])),
       "shard": (table, dict(num_shards=2, shard_id=1)), "delimiter": (lambda: written("points.csv", "a;b\n1;2\n"), dict(field_delim=";"))}
for label, (file, settings) in CSV.items():
    value(f"dataset.CSVDataset {label}".strip(), lambda f=file, s=settings: rows(ds.CSVDataset(f(), shuffle=False, num_parallel_workers=1, **s)))
for label, settings in {"few columns": dict(column_names=["a", "b"]), "types": dict(column_defaults=[0, 0.0, 0])}.items():
    value(f"dataset.CSVDataset refused {label}", lambda s=settings: refusal(lambda: rows(ds.CSVDataset(table(), shuffle=False, **s))))


def folder(**files):
    Path("texts").mkdir(exist_ok=True)
    for name, content in files.items():
        written(f"texts/{name.replace('__', '.')}", content)
    return "texts"


def multi30k():
    for part, stem in (("training", "train"), ("validation", "val"), ("mmt16_task1_test", "test")):
        Path("texts", part).mkdir(parents=True, exist_ok=True)
        written(f"texts/{part}/{stem}.en", f"A {stem}.\nA dog.\n")
        written(f"texts/{part}/{stem}.de", f"Ein {stem}.\nEin Hund.\n")
    return "texts"


FOLDERS = {
    "WikiTextDataset": lambda: folder(wiki__train__tokens=" = T = \n\n a b \n", wiki__test__tokens=" x \n", wiki__valid__tokens=" y \n"),
    "PennTreebankDataset": lambda: folder(ptb__train__txt=" a \n b \n", ptb__test__txt=" x \n", ptb__valid__txt=" y \n"),
    "AGNewsDataset": lambda: folder(train__csv='"3","T one","D ""x"" one"\n"1","T2","D2"\n', test__csv='"2","Q","R"\n'),
    "DBpediaDataset": lambda: folder(train__csv='3,"T one","D ""x"" one"\n1,"T2","D2"\n', test__csv='2,"Q","R"\n'),
    "Multi30kDataset": multi30k,
}
for name, make in FOLDERS.items():
    for usage in ("train", "test", "all"):
        value(f"dataset.{name} {usage}", lambda n=name, m=make, u=usage: rows(getattr(ds, n)(m(), u, shuffle=False, num_parallel_workers=1)))
    value(f"dataset.{name} columns", lambda n=name, m=make: np.array(getattr(ds, n)(m(), "train").get_col_names()))
value("dataset.Multi30kDataset pair", lambda: rows(ds.Multi30kDataset(multi30k(), "train", ["de", "en"], shuffle=False, num_parallel_workers=1)))

value("dataset.NumpySlicesDataset of texts", lambda: rows(ds.NumpySlicesDataset({"t": ["a", "bb"], "n": [1, 2]}, shuffle=False)))
value("dataset.GeneratorDataset of texts", lambda: rows(ds.GeneratorDataset([(["a", "bb"], 1), (["c"], 2)], ["t", "n"], shuffle=False)))


def pipeline():
    """From texts to numbers of one size."""
    data = ds.TextFileDataset(lines(), shuffle=False, num_parallel_workers=1).map(text.WhitespaceTokenizer(), "text")
    words = text.Vocab.from_dataset(data, "text", special_tokens=["<p>", "<u>"])
    return data.map([text.Lookup(words, "<u>"), text.Truncate(2)], ["text"]).map(transforms.PadEnd([3], 0), "text")


value("dataset.map from texts to batches", lambda: rows(pipeline().batch(2, drop_remainder=True)))
value("dataset.map of offsets", lambda: rows(ds.NumpySlicesDataset(["a b", "cc d"], ["t"], shuffle=False).map(
    text.WhitespaceTokenizer(True), ["t"], ["t", "from", "to"]).project(["t", "from", "to"])))
value("dataset.filter of texts", lambda: rows(ds.NumpySlicesDataset(["a", "bb", "ccc"], ["t"], shuffle=False).filter(lambda t: len(str(t)) > 1, "t")))
value("dataset.concat of texts", lambda: rows(ds.NumpySlicesDataset(["a"], ["t"]) + ds.NumpySlicesDataset(["bb"], ["t"])))
value("dataset.zip of texts", lambda: rows(ds.zip((ds.NumpySlicesDataset(["a", "b"], ["t"], shuffle=False), ds.NumpySlicesDataset([1, 2, 3], ["n"], shuffle=False)))))
value("dataset.take and skip of texts", lambda: rows(ds.NumpySlicesDataset(list("abcdef"), ["t"], shuffle=False).skip(1).take(3).repeat(2)))
value("dataset.rename of texts", lambda: rows(ds.NumpySlicesDataset(list("ab"), ["t"], shuffle=False).rename("t", "u").project("u")))

# --- batches of rows whose sizes differ
LENGTHS = [1, 4, 2, 6, 9, 3, 4, 2, 8, 1, 5, 3]


def ragged(lengths=None, shuffle=False):
    return ds.GeneratorDataset([(np.arange(1, n + 1), np.array(n, np.int32)) for n in lengths or LENGTHS], ["x", "n"], shuffle=shuffle)


BOUNDARIES, SIZES = [3, 5, 7], [2, 2, 1, 1]
BUCKETS = {
    "": dict(column_names=["x"]), "padded": dict(column_names=["x"], pad_info={"x": ([10], -1)}), "all padded": dict(column_names=["x"], pad_info={}),
    "remainder": dict(column_names=["x"], bucket_batch_sizes=[2, 2, 2, 2], pad_info={"x": ([None], 0)}, drop_remainder=True),
    "function": dict(column_names=["x"], element_length_function=lambda x: x.shape[0] // 2, pad_info={}),
    "function of two": dict(column_names=["x", "n"], element_length_function=lambda x, n: n, pad_info={}), "number": dict(column_names=["n"]),
    "boundary": dict(column_names=["x"], bucket_boundaries=[3, 5, 7, 10], bucket_batch_sizes=[2, 2, 1, 1, 1], pad_info={"x": ([None], -1)}, pad_to_bucket_boundary=True),
    "boundary of all": dict(column_names=["x"], pad_info={}, pad_to_bucket_boundary=True), "one boundary": dict(column_names=["x"], bucket_boundaries=[100],
                                                                                                               bucket_batch_sizes=[5, 1]),
}
BUCKETED = dict(bucket_boundaries=BOUNDARIES, bucket_batch_sizes=SIZES)
for label, settings in BUCKETS.items():
    value(f"dataset.bucket_batch_by_length {label}".strip(), lambda s=settings: rows(ragged().bucket_batch_by_length(**(BUCKETED | s))))
value("dataset.bucket_batch_by_length of nothing left", lambda: rows(ragged([1, 2, 4]).bucket_batch_by_length(["x"], [3], [2, 2], drop_remainder=True)))
value("dataset.bucket_batch_by_length twice", lambda: rows(ragged().map(lambda x: x * 2, "x").bucket_batch_by_length(["x"], BOUNDARIES, SIZES).repeat(2)))
value("dataset.bucket_batch_by_length size", lambda: np.array(ragged().bucket_batch_by_length(["x"], BOUNDARIES, SIZES).get_dataset_size()))
value("dataset.bucket_batch_by_length of taken rows", lambda: rows(ragged().skip(1).take(6).bucket_batch_by_length(["x"], BOUNDARIES, SIZES)))
REFUSED_BUCKETS = {
    "two columns": dict(column_names=["x", "n"]), "no column": dict(column_names=[]), "few sizes": dict(bucket_batch_sizes=[2, 2]),
    "boundaries that fall": dict(bucket_boundaries=[5, 3], bucket_batch_sizes=[1, 1, 1]), "equal boundaries": dict(bucket_boundaries=[3, 3], bucket_batch_sizes=[1, 1, 1]),
    "no boundary": dict(bucket_boundaries=[], bucket_batch_sizes=[1]), "a boundary of 0": dict(bucket_boundaries=[0], bucket_batch_sizes=[1, 1]),
    "a size of 0": dict(bucket_boundaries=[3], bucket_batch_sizes=[0, 1]), "a column that is not there": dict(column_names=["q"]), "a text": dict(column_names="x"),
    "a length that is no number": dict(element_length_function=lambda x: "a"), "a length that is not whole": dict(element_length_function=lambda x: 2.7),
    "a length below 0": dict(element_length_function=lambda x: -1), "a row beyond the last boundary": dict(pad_info={"x": ([None], 0)}, pad_to_bucket_boundary=True),
}
for label, settings in REFUSED_BUCKETS.items():
    value(f"dataset.bucket_batch_by_length refused {label}",
          lambda s=settings: refusal(lambda: rows(ragged().bucket_batch_by_length(**(BUCKETED | {"column_names": ["x"]} | s)))))
PADDED = {"": {}, "value": {"x": ([4], 9)}, "none": {"x": ([None], 9)}, "no shape": {"x": (None, 9)}, "short": {"x": ([2], 9)}, "no value": {"x": ([4], None)}}
for label, info in PADDED.items():
    value(f"dataset.padded_batch {label}".strip(), lambda i=info: rows(ragged([1, 3, 2]).padded_batch(2, pad_info=i)))
    value(f"dataset.padded_batch remainder {label}".strip(), lambda i=info: rows(ragged([1, 3, 2]).padded_batch(2, True, pad_info=i)))
for label, info in {"nothing": None, "a size of -1": {"x": ([-1], 9)}, "two dims": {"x": ([2, 2], 9)}, "another column": {"q": ([2], 9)}}.items():
    value(f"dataset.padded_batch refused {label}", lambda i=info: refusal(lambda: rows(ragged([1, 3, 2]).padded_batch(2, pad_info=i))))
for label, info in {"": {}, "value": {"t": ([3], "<p>")}}.items():
    value(f"dataset.padded_batch of texts {label}".strip(), lambda i=info: rows(ds.GeneratorDataset([(["a", "bb"], ), (["c"], )], ["t"], shuffle=False).padded_batch(
        2, pad_info=i)))
value("dataset.batch refused rows of different sizes", lambda: refusal(lambda: rows(ragged([1, 2]).batch(2))))
value("dataset.batch of a function that pads", lambda: rows(ragged([1, 2, 3]).batch(2, per_batch_map=lambda x, n, info: (
    [np.pad(a, (0, 4 - len(a))) for a in x], [a + np.int32(info.get_batch_num()) for a in n]), input_columns=["x", "n"])))

# --- samplers


def chosen(sampler, count=6):
    return np.array([int(row[0]) for row in ds.NumpySlicesDataset(list(range(count)), sampler=sampler).create_tuple_iterator(num_epochs=1, output_numpy=True)])


def with_child(sampler, child):
    sampler.add_child(child)
    return sampler


SAMPLED = {
    "WeightedRandomSampler of one": lambda: chosen(ds.WeightedRandomSampler([0, 0, 1, 0, 0, 0])),
    "WeightedRandomSampler of some": lambda: chosen(ds.WeightedRandomSampler([0, 0, 1, 0, 0, 0], 3)),
    "WeightedRandomSampler of few weights": lambda: chosen(ds.WeightedRandomSampler([0, 1])),
    "WeightedRandomSampler of 0": lambda: chosen(ds.WeightedRandomSampler([0, 1, 0], 0)),
    "WeightedRandomSampler once each": lambda: np.sort(chosen(ds.WeightedRandomSampler([0.1, 0.2, 0.3, 0.1, 0.1, 0.1], 6, False))),
    "WeightedRandomSampler once each of some": lambda: np.sort(chosen(ds.WeightedRandomSampler([0, 0.5, 1, 0.2, 0, 0], 3, False))),
    "WeightedRandomSampler once each and zeros": lambda: np.sort(chosen(ds.WeightedRandomSampler([0, 0.5, 1, 0.2, 0, 0], 4, False))),
    "WeightedRandomSampler of more": lambda: np.array(len(chosen(ds.WeightedRandomSampler([1] * 6, 9)))),
    "WeightedRandomSampler repeated": lambda: np.array(ds.NumpySlicesDataset(list(range(6)), sampler=ds.WeightedRandomSampler([1] * 6, 4)).repeat(3).get_dataset_size()),
    "WeightedRandomSampler of a subset": lambda: chosen(with_child(ds.WeightedRandomSampler([0, 1, 0], 4), ds.SubsetSampler([5, 4, 3]))),
    "SubsetSampler of a sequence": lambda: chosen(with_child(ds.SubsetSampler([1, 0]), ds.SequentialSampler(2, 3))),
    "SubsetSampler of one twice": lambda: chosen(ds.SubsetSampler([4, 1, 1])), "SubsetRandomSampler of all": lambda: np.sort(chosen(ds.SubsetRandomSampler([4, 1, 3]))),
    "RandomSampler of some with replacement": lambda: np.array(len(chosen(ds.RandomSampler(True, 4)))),
    "DistributedSampler of every shard": lambda: np.concatenate([chosen(ds.DistributedSampler(4, i, False)) for i in range(4)]),
    "IterSampler of a list": lambda: chosen(ds.IterSampler([3, 1])),
    "DistributedSampler offset": lambda: np.concatenate([chosen(ds.DistributedSampler(4, i, False, None, offset), 11) for i in range(4) for offset in range(5)]),
    "DistributedSampler offset of some": lambda: np.concatenate([chosen(ds.DistributedSampler(3, i, False, 2, offset), 11) for i in range(3) for offset in (-1, 0, 2)]),
    "DistributedSampler offset shuffled": lambda: np.sort(np.concatenate([chosen(ds.DistributedSampler(3, i, True, None, 1), 11) for i in range(3)])),
    "RandomSampler of a sequence": lambda: np.sort(chosen(with_child(ds.RandomSampler(), ds.SequentialSampler(2, 3)))),
    "SubsetRandomSampler of a sequence": lambda: np.sort(chosen(with_child(ds.SubsetRandomSampler([2, 0]), ds.SequentialSampler(2, 3)))),
    "DistributedSampler of a RandomSampler": lambda: np.array(len(set(chosen(with_child(ds.DistributedSampler(2, 1, False), ds.RandomSampler()))))),
}
# What chooses the same rows in every epoch, as parents and as children.
FIXED = {
    "SequentialSampler": lambda: ds.SequentialSampler(1, 5), "SequentialSampler of some": lambda: ds.SequentialSampler(None, 4), "SubsetSampler": lambda: ds.SubsetSampler([2, 0, 1]),
    "DistributedSampler": lambda: ds.DistributedSampler(2, 1, False), "DistributedSampler of some": lambda: ds.DistributedSampler(2, 0, False, 2),
    "DistributedSampler with an offset": lambda: ds.DistributedSampler(2, 0, False, None, 1), "IterSampler": lambda: ds.IterSampler([1, 0]),
}
for upper, parent in FIXED.items():
    for lower, child in FIXED.items():
        kind, _, how = upper.partition(" ")
        SAMPLED[f"{kind} chain {how} below it {lower}".replace("  ", " ")] = lambda parent=parent, child=child: chosen(with_child(parent(), child()), 12)
        for lowest, last in {name: FIXED[name] for name in ("SequentialSampler", "SubsetSampler") if lower == "SequentialSampler of some"}.items():
            SAMPLED[f"{kind} chain {how} below it {lower} and {lowest}".replace("  ", " ")] = (
                lambda parent=parent, child=child, last=last: chosen(with_child(parent(), with_child(child(), last())), 24))


def with_sampler(method, sampler, **how):
    """The rows of a data set that is given a sampler later."""
    data = ds.NumpySlicesDataset(list(range(8)), **how)
    getattr(data, method)(sampler)
    return np.array([int(row[0]) for row in data.create_tuple_iterator(num_epochs=1, output_numpy=True)])


SAMPLED |= {
    "NumpySlicesDataset use_sampler": lambda: with_sampler("use_sampler", ds.SequentialSampler(2, 3)),
    "NumpySlicesDataset use_sampler of shards": lambda: with_sampler("use_sampler", ds.SequentialSampler(2, 3), num_shards=2, shard_id=0),
    "NumpySlicesDataset use_sampler with num_samples": lambda: with_sampler("use_sampler", ds.SequentialSampler(1), num_samples=3, shuffle=False),
    "NumpySlicesDataset use_sampler above a child": lambda: with_sampler("use_sampler", ds.SequentialSampler(1, 2),
                                                                         sampler=with_child(ds.SequentialSampler(0, 2), ds.SubsetSampler([5, 4, 3]))),
    "NumpySlicesDataset add_sampler": lambda: with_sampler("add_sampler", ds.SequentialSampler(1, 2), sampler=ds.SubsetSampler([5, 4, 3])),
    "NumpySlicesDataset add_sampler of shards": lambda: with_sampler("add_sampler", ds.SequentialSampler(1, 2), num_shards=2, shard_id=1, shuffle=False),
}
CONFLICTS = {"shuffle": dict(shuffle=True), "shards": dict(num_shards=2, shard_id=0), "samples": dict(num_samples=2)}
for label, how in CONFLICTS.items():
    value(f"dataset.NumpySlicesDataset refused a sampler and {label}", lambda how=how: refusal(lambda: ds.NumpySlicesDataset([1, 2], sampler=ds.SequentialSampler(), **how)))
    value(f"dataset.GeneratorDataset refused a sampler and {label}", lambda how=how: refusal(lambda: ds.GeneratorDataset([1, 2], ["x"], sampler=ds.SequentialSampler(), **how)))
    value(f"dataset.ImageFolderDataset refused a sampler and {label}", lambda how=how: refusal(lambda: ds.ImageFolderDataset(".", sampler=ds.SequentialSampler(), **how)))
for label, call in {"None": lambda: with_sampler("use_sampler", None), "a list": lambda: with_sampler("use_sampler", [1]), "an offset of text": lambda: ds.DistributedSampler(2, 0, offset="a"),
                    "a large offset": lambda: chosen(ds.DistributedSampler(2, 0, offset=3))}.items():
    value(f"dataset.NumpySlicesDataset refused {label}", lambda call=call: refusal(call))


# --- generators that are read once


def twice(step, rows_of=lambda: (np.array([i, i + 1]) for i in range(5))):
    """Two epochs of a data set of a generator."""
    data = step(ds.GeneratorDataset(rows_of(), ["x"]))
    return tuple(np.concatenate([row[0].ravel() for row in data.create_tuple_iterator(num_epochs=1, output_numpy=True)]) for _ in range(2))


GENERATED = {
    "": lambda: twice(lambda d: d), "batch": lambda: twice(lambda d: d.batch(2)), "map": lambda: twice(lambda d: d.map(lambda x: x * 2, ["x"])),
    "padded": lambda: twice(lambda d: d.padded_batch(2, pad_info={}), lambda: (np.arange(i + 1) for i in range(4))),
    "words": lambda: twice(lambda d: d, lambda: (np.array(word) for word in "ab")), "repeat": lambda: twice(lambda d: d.take(3).repeat(2)),
}
for label, call in GENERATED.items():
    value(f"dataset.GeneratorDataset of a generator {label}".strip(), call)
for label, call in SAMPLED.items():
    value(f"dataset.{label}", call)
REFUSED_SAMPLERS = {
    "zeros": lambda: chosen(ds.WeightedRandomSampler([0] * 6)), "texts": lambda: ds.WeightedRandomSampler(["a"]), "a tuple": lambda: ds.WeightedRandomSampler((0, 1)),
    "a negative weight": lambda: chosen(ds.WeightedRandomSampler([1, -1])), "no weight": lambda: chosen(ds.WeightedRandomSampler([])),
    "more weights than rows": lambda: chosen(ds.WeightedRandomSampler([1] * 7)), "a negative number": lambda: ds.WeightedRandomSampler([1], -1),
    "replacement": lambda: ds.WeightedRandomSampler([1], 1, 3),
}
for label, call in REFUSED_SAMPLERS.items():
    value(f"dataset.WeightedRandomSampler refused {label}", lambda call=call: refusal(call))


def drawn(sampler):
    """The labels of what is drawn of twelve images of three classes."""
    for name in "abc":
        for i in range(4):
            Path("images", name).mkdir(parents=True, exist_ok=True)
            written(f"images/{name}/{i}.jpg", f"{name}{i}")
    return np.array([int(row[1]) for row in ds.ImageFolderDataset("images", sampler=sampler).create_tuple_iterator(num_epochs=1, output_numpy=True)])


for label, call in {"": lambda: drawn(ds.PKSampler(2)), "some": lambda: drawn(ds.PKSampler(2, num_samples=3)), "more than there are": lambda: drawn(ds.PKSampler(9))}.items():
    value(f"dataset.PKSampler {label}".strip(), call)
for label, call in {"0": lambda: drawn(ds.PKSampler(0)), "classes": lambda: ds.PKSampler(2, 2), "a text": lambda: ds.PKSampler("2")}.items():
    value(f"dataset.PKSampler refused {label}", lambda call=call: refusal(call))

# --- metrics


def given(item):
    return lambda rng, dtype: item


CANDIDATES = [["i", "have", "a", "pen", "on", "my", "desk"], ["there", "is", "a", "cat"]]
REFERENCES = [[["i", "have", "a", "pen", "in", "my", "desk"], ["there", "is", "a", "pen", "on", "the", "desk"]], [["there", "is", "a", "cat", "here"]]]
for size in (1, 2, 3, 4):
    for smooth in (False, True):
        metric(f"nn.BleuScore {size} {smooth}", lambda n=size, s=smooth: nn.BleuScore(n, s), [given(CANDIDATES), given(REFERENCES)])
metric("nn.BleuScore batches", lambda: nn.BleuScore(2), [given(CANDIDATES), given(REFERENCES)], [given(CANDIDATES[:1]), given(REFERENCES[:1])])
metric("nn.BleuScore none", nn.BleuScore, [given([["x"]]), given([[["y"]]])])
value("nn.BleuScore refused size", lambda: refusal(lambda: nn.BleuScore(5)))
value("nn.BleuScore refused nothing", lambda: refusal(lambda: nn.BleuScore().eval()))

SEGMENTS = np.array([[3, 0, 1, 1], [1, 3, 0, 1], [1, 3, 1, 0], [0, 1, 1, 1]]), np.array([[0, 2, 1, 1], [1, 2, 1, 1], [0, 0, 1, 1], [1, 1, 1, 0]])
BLOCKS = tuple(np.random.default_rng(seed).integers(0, 2, (5, 6, 4)) for seed in (1, 2))
for distance in ("euclidean", "chessboard", "taxicab"):
    for label, pair in {"": SEGMENTS, "volumes": BLOCKS}.items():
        inputs = [given(pair[0]), given(pair[1]), given(1)]
        metric(f"nn.HausdorffDistance {distance} {label}".strip(), lambda d=distance: nn.HausdorffDistance(d), inputs)
        metric(f"nn.HausdorffDistance {distance} directed percentile {label}".strip(), lambda d=distance: nn.HausdorffDistance(d, 60.0, True), inputs)
        for symmetric in (False, True):
            metric(f"nn.MeanSurfaceDistance {distance} {symmetric} {label}".strip(), lambda d=distance, s=symmetric: nn.MeanSurfaceDistance(s, d), inputs)
            metric(f"nn.RootMeanSquareDistance {distance} {symmetric} {label}".strip(), lambda d=distance, s=symmetric: nn.RootMeanSquareDistance(s, d), inputs)
for kind in (nn.HausdorffDistance, nn.MeanSurfaceDistance, nn.RootMeanSquareDistance):
    metric(f"nn.{kind.__name__} of one side", kind, [given(SEGMENTS[0]), given(SEGMENTS[1]), given(3)])
    value(f"nn.{kind.__name__} refused label", lambda kind=kind: refusal(lambda: kind().update(*SEGMENTS, 9)))
    value(f"nn.{kind.__name__} refused kind of label", lambda kind=kind: refusal(lambda: kind().update(*SEGMENTS, "1")))

MASKS = tuple(np.random.default_rng(seed).integers(0, 2, (3, 4, 5)).astype(np.float32) for seed in (3, 4))
for name in ("sensitivity", "specificity", "precision", "npv", "miss rate", "fall out", "fdr", "for", "pt", "ts", "acc", "ba", "f1", "mcc", "fm", "bm", "mk"):
    metric(f"nn.ConfusionMatrixMetric {name}", lambda n=name: nn.ConfusionMatrixMetric(metric_name=n), [given(MASKS[0]), given(MASKS[1])], [given(MASKS[1]), given(MASKS[0])])
    metric(f"nn.ConfusionMatrixMetric {name} of samples", lambda n=name: nn.ConfusionMatrixMetric(True, n, True), [given(MASKS[0]), given(MASKS[1])])
metric("nn.ConfusionMatrixMetric without class 0", lambda: nn.ConfusionMatrixMetric(False), [given(MASKS[0]), given(MASKS[1])])
value("nn.ConfusionMatrixMetric refused name", lambda: refusal(lambda: (lambda m: (m.update(*MASKS), m.eval()))(nn.ConfusionMatrixMetric(metric_name="none"))))
value("nn.ConfusionMatrixMetric refused labels", lambda: refusal(lambda: nn.ConfusionMatrixMetric().update(MASKS[0], MASKS[1] * 0.5)))


def occlusion(**settings):
    network = nn.SequentialCell(nn.Flatten(), nn.Dense(12, 2, ms.Tensor(np.arange(24).reshape(2, 12) / 10, ms.float32), has_bias=False))
    measured = nn.OcclusionSensitivity(margin=1, **settings)
    measured.update(network, ms.Tensor(np.arange(12).reshape(1, 3, 4) / 7, ms.float32), ms.Tensor([1], ms.int32))
    return np.array(measured.eval(), np.float32)


value("nn.OcclusionSensitivity", occlusion)
value("nn.OcclusionSensitivity box", lambda: occlusion(b_box=[0, 1, 1, -1], n_batch=2, pad_val=1.0))
value("nn.names of all", lambda: np.array(nn.names()))
value("nn.get_metrics of a set", lambda: np.array(sorted(type(item).__name__ for item in ms.train.metrics.get_metrics({"bleu_score", "mae"}).values())))
