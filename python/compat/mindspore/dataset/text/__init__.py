"""Text: vocabularies, and transforms of columns of strings."""
from mindspore.dataset.text import transforms, utils
from mindspore.dataset.text.transforms import (AddToken, BasicTokenizer, BertTokenizer, CaseFold, Lookup, Ngram, NormalizeUTF8, PythonTokenizer,
                                               RegexReplace, RegexTokenizer, SlidingWindow, ToNumber, Truncate, TruncateSequencePair,
                                               UnicodeCharTokenizer, WhitespaceTokenizer, WordpieceTokenizer)
from mindspore.dataset.text.utils import NormalizeForm, Vocab, to_bytes, to_str
from mindspore._missing import missing

__getattr__ = missing(__name__)
del missing
