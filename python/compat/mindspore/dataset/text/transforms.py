"""Transforms of strings, as functions of NumPy's arrays: what map() takes, and what a script calls with a text."""
import re
import unicodedata

import numpy as np

from mindspore import dtype as _dtype
from mindspore._missing import missing
from mindspore.dataset.text import unicode
from mindspore.dataset.text.utils import NormalizeForm, Vocab, _check_kind, _strings, to_str

_INT32_MAX = 2**31 - 1


class _TextTransform:
    """Called with a text, texts or an array of them, gives an array, or a tuple of them."""

    def __repr__(self):
        return type(self).__name__

    def _refuse(self, what):
        raise RuntimeError(f"{type(self).__name__}: {what}")

    def _texts(self, x):
        """The input, which must be of strings."""
        array = _strings(x)
        if array.dtype.kind != "U":
            self._refuse(f"the input must be of strings, but it is {array.dtype}")
        return array

    def _text(self, x):
        """The input, which must be one string."""
        array = self._texts(x)
        if array.ndim:
            self._refuse(f"the input must be one string, but it has the shape {list(array.shape)}")
        return str(array[()])


def _check_bool(name, value):
    return _check_kind(name, value, bool)


def _check_size(name, value, low=1):
    if not low <= _check_kind(name, value, int) <= _INT32_MAX:
        raise ValueError(f"Input {name} is not within the required interval of [{low}, {_INT32_MAX}].")
    return value


def _check_vocab(vocab):
    if not isinstance(vocab, Vocab):
        raise TypeError(f"Argument vocab is not an instance of text.Vocab. with value {vocab} is not of type [{Vocab}], but got {type(vocab)}.")
    return vocab


def _check_form(form):
    if not isinstance(form, NormalizeForm):
        raise TypeError("Wrong input type for normalization_form, should be enum of 'NormalizeForm'.")
    return form


def _size(text):
    """In bytes of UTF-8, which offsets count."""
    return len(text.encode())


def _numpy_type(data_type):
    """NumPy's dtype of a number's; TypeError of any other."""
    name = str(data_type).rpartition(".")[2].lower().rstrip("_")
    try:
        made = np.dtype(name)
    except (TypeError, ValueError):
        made = None
    if made is None or made.kind not in "iuf":
        raise TypeError(f"data_type: {data_type} is not numeric data type.")
    return made


def _tokens(found, with_offsets):
    """Of (text, first byte) pairs the tokens, and with offsets their first bytes and those behind them. Of none: an empty one."""
    found = found or [("", 0)]
    tokens = np.array([text for text, _ in found], dtype="U")
    if not with_offsets:
        return tokens
    starts = np.array([start for _, start in found], np.uint32)
    return tokens, starts, np.array([start + _size(text) for text, start in found], np.uint32)


class _Tokenizer(_TextTransform):
    """Of one string its tokens, one-dimensional; with_offsets: also where each begins and ends, in bytes of UTF-8, uint32."""

    def __init__(self, with_offsets=False):
        self.with_offsets = _check_bool("with_offsets", with_offsets)

    def _found(self, text):
        raise NotImplementedError

    def __call__(self, x):
        return _tokens(self._found(self._text(x)), self.with_offsets)


class WhitespaceTokenizer(_Tokenizer):
    """What stands between whitespace."""

    _WORDS = re.compile(f"[^{unicode.WHITE_SPACE}]+")

    def _found(self, text):
        return [(match.group(), _size(text[:match.start()])) for match in self._WORDS.finditer(text)]


class UnicodeCharTokenizer(_Tokenizer):
    """Every character."""

    def _found(self, text):
        found, at = [], 0
        for letter in text:
            found.append((letter, at))
            at += _size(letter)
        return found


class RegexTokenizer(_Tokenizer):
    """What stands between matches of delim_pattern; and these, where they match keep_delim_pattern as a whole."""

    def __init__(self, delim_pattern, keep_delim_pattern="", with_offsets=False):
        super().__init__(with_offsets)
        self.delim_pattern = _check_kind("delim_pattern", delim_pattern, str)
        self.keep_delim_pattern = _check_kind("keep_delim_pattern", keep_delim_pattern, str)

    def _found(self, text):
        kept = unicode.pattern(self.keep_delim_pattern) if self.keep_delim_pattern else None
        found, last, at = [], 0, 0

        def add(part, is_kept):
            nonlocal at
            if part and is_kept:
                found.append((part, at))
            at += _size(part)

        for match in unicode.pattern(self.delim_pattern).finditer(text):
            add(text[last:match.start()], True)
            add(match.group(), kept is not None and kept.fullmatch(match.group()) is not None)
            last = match.end()
        add(text[last:], True)
        return found


_UNUSED = r"\[CLS\]|\[SEP\]|\[UNK\]|\[PAD\]|\[MASK\]|\[unused\d+\]"
_ALONE = ("[!-/]|[:-@]|[\\[-`]|[{-~]|\\p{P}|[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
          "\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]")


def _folded(text, keep_unused):
    """NFKC_Casefold without accents; words like [UNK] as they are."""
    parts = re.split(f"({_UNUSED})", text) if keep_unused else [text]
    made = "".join(part if i % 2 else unicode.nfkc_casefold(part) for i, part in enumerate(parts))
    return "".join(letter for letter in unicodedata.normalize("NFD", made) if unicodedata.category(letter) != "Mn")


def _normalized(text, form):
    return text if form == NormalizeForm.NONE else unicodedata.normalize(form.name, text)


class BasicTokenizer(_Tokenizer):
    """Words, punctuation and Chinese characters, each by itself: the first step of BERT's tokenizer. lower_case: also without accents.
    preserve_unused_token: [CLS], [SEP], [UNK], [PAD], [MASK] and [unused1] stay whole."""

    def __init__(self, lower_case=False, keep_whitespace=False, normalization_form=NormalizeForm.NONE, preserve_unused_token=True, with_offsets=False):
        super().__init__(with_offsets)
        self.lower_case, self.keep_whitespace = _check_bool("lower_case", lower_case), _check_bool("keep_whitespace", keep_whitespace)
        self.normalization_form = _check_form(normalization_form)
        self.preserve_unused_token = _check_bool("preserve_unused_token", preserve_unused_token)
        unused = f"{_UNUSED}|" if preserve_unused_token else ""
        self._pieces = RegexTokenizer(rf"{unused}\s+|{_ALONE}", unused + (r"\s+|" if keep_whitespace else "") + _ALONE)

    def _found(self, text):
        text = _folded(text, self.preserve_unused_token) if self.lower_case else _normalized(text, self.normalization_form)
        return self._pieces._found("".join(" " if unicodedata.category(letter) in ("Cc", "Cf") else letter for letter in text))


class WordpieceTokenizer(_TextTransform):
    """Of each word the longest words of the vocabulary that it begins with, then those, behind suffix_indicator, that go on; unknown_token where there
    are none, or where the word has more bytes than max_bytes_per_token; "": the word itself."""

    def __init__(self, vocab, suffix_indicator="##", max_bytes_per_token=100, unknown_token="[UNK]", with_offsets=False):
        self.vocab = _check_vocab(vocab)
        self.suffix_indicator = _check_kind("suffix_indicator", suffix_indicator, str)
        self.max_bytes_per_token = _check_size("max_bytes_per_token", max_bytes_per_token, 0)
        self.unknown_token = _check_kind("unknown_token", unknown_token, str)
        self.with_offsets = _check_bool("with_offsets", with_offsets)

    def _pieces(self, word, at=0):
        """(piece, first byte, byte behind it) of a word that begins at that byte."""
        whole = [(self.unknown_token or word, at, at + _size(word))]
        numbers = self.vocab._numbers()
        if _size(word) > self.max_bytes_per_token:
            return whole
        pieces, first = [], 0
        while first < len(word):
            for last in range(len(word), first, -1):
                piece = (self.suffix_indicator if first else "") + word[first:last]
                if piece in numbers:
                    break
            else:
                return whole
            pieces.append((piece, at + _size(word[:first]), at + _size(word[:last])))
            first = last
        return pieces

    def _result(self, pieces):
        pieces = pieces or [("", 0, 0)]
        tokens = np.array([piece for piece, _, _ in pieces], dtype="U")
        return (tokens, *(np.array([piece[i] for piece in pieces], np.uint32) for i in (1, 2))) if self.with_offsets else tokens

    def __call__(self, x):
        words = self._texts(x)
        if words.ndim > 1:
            self._refuse(f"the input must be one word or a list of them, but it has the shape {list(words.shape)}")
        return self._result([piece for word in np.atleast_1d(words).tolist() for piece in (self._pieces(word) if word else [("", 0, 0)])])


class BertTokenizer(WordpieceTokenizer):
    """BERT's: BasicTokenizer, then WordpieceTokenizer of what that gives."""

    def __init__(self, vocab, suffix_indicator="##", max_bytes_per_token=100, unknown_token="[UNK]", lower_case=False, keep_whitespace=False,
                 normalization_form=NormalizeForm.NONE, preserve_unused_token=True, with_offsets=False):
        super().__init__(vocab, suffix_indicator, max_bytes_per_token, unknown_token, with_offsets)
        self._basic = BasicTokenizer(lower_case, keep_whitespace, normalization_form, preserve_unused_token)

    def __call__(self, x):
        return self._result([piece for word, at in self._basic._found(self._text(x)) for piece in self._pieces(word, at)])


class _OfEach(_TextTransform):
    """Of each string another one."""

    def _of(self, text):
        raise NotImplementedError

    def __call__(self, x):
        texts = self._texts(x)
        return np.array([self._of(text) for text in texts.ravel().tolist()], dtype="U").reshape(texts.shape)


class CaseFold(_OfEach):
    """NFKC_Casefold: lower case, and more, of all scripts."""

    def _of(self, text):
        return unicode.nfkc_casefold(text)


class NormalizeUTF8(_OfEach):
    """A normal form of Unicode."""

    def __init__(self, normalize_form=NormalizeForm.NFKC):
        self.normalize_form = _check_form(normalize_form)

    def _of(self, text):
        return _normalized(text, self.normalize_form)


class RegexReplace(_OfEach):
    """What `replace` makes of the matches, or the first, of the pattern; $1 in it is the first group's."""

    def __init__(self, pattern, replace, replace_all=True):
        self.pattern, self.replace = _check_kind("pattern", pattern, str), _check_kind("replace", replace, str)
        self.replace_all = _check_bool("replace_all", replace_all)

    def _of(self, text):
        return unicode.pattern(self.pattern).sub(unicode.replacement(self.replace), text, count=0 if self.replace_all else 1)


class Lookup(_TextTransform):
    """The numbers of words. Of unknown_token's where there is none; RuntimeError without one."""

    def __init__(self, vocab, unknown_token=None, data_type=_dtype.int32):
        self.vocab = _check_vocab(vocab)
        self.unknown_token = unknown_token if unknown_token is None else _check_kind("unknown_token", unknown_token, str)
        try:
            self.data_type = _numpy_type(data_type)
        except TypeError as error:
            raise RuntimeError(f"Lookup: {error}") from None

    def __call__(self, x):
        words, numbers = self._texts(x), self.vocab._numbers()
        unknown = None
        if self.unknown_token is not None:
            if self.unknown_token not in numbers:
                self._refuse(f"unknown_token: [{self.unknown_token}], does not exist in vocab.")
            unknown = numbers[self.unknown_token]
        made = [numbers.get(word, unknown) for word in words.ravel().tolist()]
        if None in made:
            self._refuse(f"token: \"{words.ravel().tolist()[made.index(None)]}\" doesn't exist in vocab and no unknown token is specified.")
        return np.array(made, self.data_type).reshape(words.shape)


class Ngram(_TextTransform):
    """The n-grams of tokens, of each n in turn. left_pad, right_pad: (token, how often, n - 1 at most)."""

    def __init__(self, n, left_pad=("", 0), right_pad=("", 0), separator=" "):
        sizes = [n] if isinstance(n, int) and not isinstance(n, bool) else n
        if not isinstance(sizes, list) or not sizes:
            raise ValueError("n needs to be a non-empty list of positive integers.")
        for i, size in enumerate(sizes):
            if _check_kind(f"gram_{i}", size, int) < 1:
                raise ValueError(f"Input gram_{i} must be greater than 0.")
        for name, pad in (("left_pad", left_pad), ("right_pad", right_pad)):
            if not (isinstance(pad, tuple) and len(pad) == 2 and isinstance(pad[0], str) and isinstance(pad[1], int)):
                raise ValueError(f"{name} needs to be a tuple of (str, int) str is pad token and int is pad_width.")
            if pad[1] < 0:
                raise ValueError("padding width need to be positive numbers.")
        self.ngrams, self.left_pad, self.right_pad, self.separator = sizes, left_pad, right_pad, _check_kind("separator", separator, str)

    def __call__(self, x):
        tokens = self._texts(x)
        if tokens.ndim != 1:
            self._refuse(f"the input must be a list of strings, but it has the shape {list(tokens.shape)}")
        made = []
        for size in self.ngrams:
            (left, before), (right, behind) = ((token, min(width, size - 1)) for token, width in (self.left_pad, self.right_pad))
            padded = [left] * before + tokens.tolist() + [right] * behind
            made += [self.separator.join(padded[i:i + size]) for i in range(len(padded) - size + 1)] or [""]
        return np.array(made, dtype="U")


class PythonTokenizer(_TextTransform):
    """A function from a text to a list of tokens, of each string."""

    def __init__(self, tokenizer):
        if not callable(tokenizer):
            raise TypeError("tokenizer is not a callable Python function.")
        self.pyfunc = tokenizer
        self.tokenizer = np.vectorize(lambda text: np.array(tokenizer(text), dtype="U"), signature="()->(n)")

    def __call__(self, in_array):
        if not isinstance(in_array, np.ndarray):
            raise TypeError(f"input should be a NumPy array. Got {type(in_array)}.")
        try:
            return self.tokenizer(to_str(in_array) if in_array.dtype.kind == "S" else in_array)
        except Exception as error:  # noqa: BLE001: whatever the script's function raises
            name = getattr(self.pyfunc, "__name__", type(self.pyfunc).__name__)
            raise RuntimeError(f"Error occurred in Pyfunc [{name}], error message: {error}") from error


class SlidingWindow(_TextTransform):
    """The windows of so many neighbours of a vector, one per row; none where it is shorter."""

    def __init__(self, width, axis=0):
        self.width, self.axis = _check_size("width", width), _check_kind("axis", axis, int)

    def __call__(self, x):
        x = np.asarray(x)
        if x.ndim != 1 or self.axis not in (0, -1):
            self._refuse(f"the input must have one dim, and axis be 0 or -1, but the shape is {list(x.shape)} and axis {self.axis}")
        if self.width > x.size:
            return x[:0]
        return np.lib.stride_tricks.sliding_window_view(x, self.width).copy()


_NUMBER = re.compile(r"\s*([+-]?\d+)")
_DECIMAL = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")


class ToNumber(_TextTransform):
    """Strings as numbers, of what each begins with. RuntimeError where it is none, or out of the dtype's range."""

    def __init__(self, data_type):
        self.data_type = _numpy_type(data_type)

    def _number(self, text):
        is_whole = self.data_type.kind in "iu"
        found = (_NUMBER if is_whole else _DECIMAL).match(text)
        if found is None:
            self._refuse(f"\"{text}\" is no number")
        number = (int if is_whole else float)(found.group(1))
        limits = (np.iinfo if is_whole else np.finfo)(self.data_type)
        kind = type(number)
        if not kind(limits.min) <= number <= kind(limits.max):
            self._refuse(f"\"{text}\" is out of the range of {self.data_type}")
        return number

    def __call__(self, x):
        texts = self._texts(x)
        return np.array([self._number(text) for text in texts.ravel().tolist()], self.data_type).reshape(texts.shape)


class AddToken(_TextTransform):
    """The token before or behind those of each row."""

    def __init__(self, token, begin=True):
        self.token, self.begin = _check_kind("token", token, str), _check_bool("begin", begin)

    def __call__(self, x):
        texts = self._texts(x)
        if texts.ndim not in (1, 2):
            self._refuse(f"the input must have one dim or two, but its shape is {list(texts.shape)}")
        token = np.full((*texts.shape[:-1], 1), self.token)
        return np.concatenate([token, texts] if self.begin else [texts, token], -1)


class Truncate(_TextTransform):
    """The first max_seq_len of each row."""

    def __init__(self, max_seq_len):
        self.max_seq_len = _check_size("max_seq_len", max_seq_len)

    def __call__(self, x):
        x = np.asarray(x)
        if x.ndim not in (1, 2):
            self._refuse(f"the input must have one dim or two, but its shape is {list(x.shape)}")
        return x[..., :self.max_seq_len]


class TruncateSequencePair(_TextTransform):
    """Two vectors, cut until they have max_length elements together, the longer one first."""

    def __init__(self, max_length):
        self.max_length = _check_size("max_length", max_length, 0)

    def __call__(self, *columns):
        if len(columns) != 2 or any(np.ndim(column) != 1 for column in columns):
            self._refuse(f"the input must be two columns of one dim, but they have the shapes {[list(np.shape(column)) for column in columns]}")
        first, second = (len(column) for column in columns)
        while first + second > self.max_length:
            first, second = (first - 1, second) if first > second else (first, second - 1)
        return np.asarray(columns[0])[:first], np.asarray(columns[1])[:second]


__getattr__ = missing(__name__)
del missing
