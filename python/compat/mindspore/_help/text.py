"""What help() of the classes of `mindspore.dataset.text` says beside their own words, in the forms of _help/vision.py. Strings are a text, a list of texts, or
an array of them or of bytes."""

ROWS = """
= One string -> its tokens, strings [n], of an empty one [""]; with_offsets: (tokens, begins uint32 [n], ends uint32 [n]), in bytes. Raises TypeError for
  arguments of other types, RuntimeError where it is called with what is not one string.
WhitespaceTokenizer BasicTokenizer: f()("a b") -> [2] || f()(3) -> RuntimeError
UnicodeCharTokenizer: f()("ab") -> [2] || f()(3) -> RuntimeError
RegexTokenizer: f(",")("a,b") -> [2] || f(",")(3) -> RuntimeError
BertTokenizer: f(vocab)("goodness") -> [2] || f(3) -> TypeError

= One word, or several [m] -> its pieces, strings [n]; with_offsets: (pieces, begins uint32 [n], ends uint32 [n]), in bytes. Raises TypeError for what is
  no Vocab, ValueError for a negative max_bytes_per_token, RuntimeError where it is called with what are no words.
WordpieceTokenizer: f(vocab)("goodness") -> [2] || f(3) -> TypeError

= Strings of any shape -> strings of that shape. Raises RuntimeError where it is called with other things.
CaseFold: f()(["A", "B"]) -> [2] || f()(3) -> RuntimeError

= Strings of any shape -> strings of that shape. Raises TypeError for arguments of other types, RuntimeError where it is called with other things, and for
  a pattern that is none.
NormalizeUTF8: f()(["A", "B"]) -> [2] || f("NFC") -> TypeError
RegexReplace: f("A", "B")(["A", "B"]) -> [2] || f("(", "B")("A") -> RuntimeError

= Strings of any shape -> numbers of that shape, int32 unless data_type says otherwise. Raises TypeError for what is no Vocab, RuntimeError for a data_type
  that is no number's.
Lookup: f(vocab)(["##ness", "good"]) -> [2] || f(vocab)("bad") -> RuntimeError

= Strings [t] -> strings [k]: of each n the t + padding - n + 1 that there are, or one that is empty. Raises ValueError for an n or a padding that is none,
  RuntimeError where it is called with other dims.
Ngram: f(2)(["a", "b", "c"]) -> [2] || f(0) -> ValueError

= An array of strings [...] -> strings [..., n], of each as many tokens. Raises TypeError for what cannot be called, and where it is called with no array,
  RuntimeError where the function raises something.
PythonTokenizer: f(str.split)(np.array("a b")) -> [2] || f(str.split)("a b") -> TypeError

= [n] of any dtype -> [n - width + 1, width] of the same. Raises TypeError for what is no int, ValueError for a width that is not positive, RuntimeError
  where it is called with other dims, and for another axis than the one that there is.
SlidingWindow: f(2)([1, 2, 3]) -> [2, 2] || f(0) -> ValueError

= Strings of any shape -> numbers of that shape in the dtype. Raises TypeError for a dtype that is no number's.
ToNumber: f(ms.int32)(["1", "2"]) -> [2] || f(ms.int8)("300") -> RuntimeError

= Strings [n] -> [n + 1], and [rows, n] -> [rows, n + 1]. Raises TypeError for a token that is no text, RuntimeError where it is called with other dims.
AddToken: f("[CLS]")(["a", "b"]) -> [3] || f(3) -> TypeError

= [n] or [rows, n] of any dtype -> the same with max_seq_len columns at most. Raises TypeError for what is no int, ValueError for a number that is not
  positive, RuntimeError where it is called with other dims.
Truncate: f(2)([1, 2, 3]) -> [2] || f(0) -> ValueError

= Two columns [n] and [m] of any dtypes -> two of these. Raises TypeError for what is no int, ValueError for a negative number, RuntimeError where it is
  called with other columns.
TruncateSequencePair: a, c = f(4)([1, 2, 3], [4, 5]) && assert len(a) == len(c) == 2 || f(-1) -> ValueError
"""

TEXTS = """
# Vocab
Numbers of words are ints, from 0 to 2**31 - 1. Raises TypeError for words that are no texts, ValueError for a word that is there twice, RuntimeError for a
file that cannot be read, and where one that is empty yet is asked for words.

    vocab = ms.dataset.text.Vocab.from_list(["good", "bad"], special_tokens=["<unk>"])
    assert vocab.vocab() == {"<unk>": 0, "good": 1, "bad": 2}
    assert vocab.tokens_to_ids(["bad", "worse"]) == [2, -1] and vocab.ids_to_tokens(1) == "good"
    ms.dataset.text.Vocab.from_list(["good", "good"])  # raises ValueError

# NormalizeForm
NONE, NFC, NFKC, NFD and NFKD. Raises ValueError for the number of none.

    half = ms.dataset.text.NormalizeUTF8(ms.dataset.text.NormalizeForm.NFKC)("\\u00bd")
    assert str(half) == "1\\u20442"
    ms.dataset.text.NormalizeForm(9)  # raises ValueError
"""
