"""Vocabularies, and strings as bytes."""
import enum

import numpy as np

from mindspore._missing import missing


class NormalizeForm(enum.IntEnum):
    """Unicode's normal forms."""
    NONE = 0
    NFC = 1
    NFKC = 2
    NFD = 3
    NFKD = 4


def _check_kind(name, value, kinds):
    kinds = kinds if isinstance(kinds, tuple) else (kinds, )
    if not isinstance(value, kinds) or isinstance(value, bool) and bool not in kinds:
        raise TypeError(f"Argument {name} with value {value} is not of type {list(kinds)}, but got {type(value)}.")
    return value


def _check_words(name, words):
    """The words, each once."""
    for word in _check_kind(name, words, list):
        _check_kind(name, word, str)
    seen = set()
    for word in words:
        if word in seen:
            raise ValueError(f"{name} contains duplicate word: {word}.")
        seen.add(word)
    return words


def _check_apart(words, special_tokens):
    both = set(words) & set(special_tokens)
    if both:
        raise ValueError(f"special_tokens and word_list contain duplicate word :{both}.")


class Vocab:
    """Words and their numbers; from_list(), from_file(), from_dict() and from_dataset() make one."""

    def __init__(self):
        self.c_vocab = None
        self._words = None

    @classmethod
    def _made(cls, numbers):
        vocab = cls()
        # Scripts that ask whether a vocabulary was built look at c_vocab.
        vocab.c_vocab = numbers
        vocab._words = {number: word for word, number in numbers.items()}
        return vocab

    @classmethod
    def _numbered(cls, words, special_tokens, special_first):
        _check_kind("special_first", special_first, bool)
        every = [*special_tokens, *words] if special_first else [*words, *special_tokens]
        return cls._made({word: number for number, word in enumerate(every)})

    @classmethod
    def from_list(cls, word_list, special_tokens=None, special_first=True):
        """The words in their order, from 0; special_tokens before or behind them."""
        _check_words("word_list", word_list)
        special_tokens = _check_words("special_tokens", [] if special_tokens is None else special_tokens)
        _check_apart(word_list, special_tokens)
        return cls._numbered(word_list, special_tokens, special_first)

    @classmethod
    def from_file(cls, file_path, delimiter="", vocab_size=None, special_tokens=None, special_first=True):
        """A word per line: with a delimiter what stands before it. vocab_size: of the first so many lines."""
        _check_kind("file_path", file_path, str)
        _check_kind("delimiter", delimiter, str)
        if vocab_size is not None and _check_kind("vocab_size", vocab_size, int) < 1:
            raise ValueError("Input vocab_size must be greater than 0.")
        special_tokens = _check_words("special_tokens", [] if special_tokens is None else special_tokens)
        try:
            with open(file_path, encoding="utf-8", newline="") as file:
                lines = file.read().split("\n")
        except OSError as error:
            raise RuntimeError(f"Vocab.from_file: {file_path} cannot be read: {error.strerror}") from error
        lines = (lines[:-1] if lines[-1] == "" else lines)[:vocab_size]
        words = [line.partition(delimiter)[0] if delimiter else line for line in lines]
        for word in {word for word in words if words.count(word) > 1} if len(set(words)) < len(words) else ():
            raise RuntimeError(f"Vocab.from_file: {file_path} has the word \"{word}\" more than once")
        _check_apart(words, special_tokens)
        return cls._numbered(words, special_tokens, special_first)

    @classmethod
    def from_dict(cls, word_dict):
        """The words with the numbers that they have there."""
        for word, number in _check_kind("word_dict", word_dict, dict).items():
            _check_kind("word", word, str)
            if not 0 <= _check_kind("word_id", number, int) < 2**31:
                raise ValueError("Input word_id is not within the required interval of [0, 2147483647].")
        return cls._made(dict(word_dict))

    @classmethod
    def from_dataset(cls, dataset, columns=None, freq_range=None, top_k=None, special_tokens=None, special_first=True):
        """The words of columns of strings of an epoch, the most frequent first, equally frequent ones by their code points. freq_range: (least,
        largest) frequency; top_k: the first so many."""
        if not hasattr(dataset, "create_tuple_iterator"):
            raise TypeError(f"Argument dataset with value {dataset} is not of type [Dataset], but got {type(dataset)}.")
        if top_k is not None and _check_kind("top_k", top_k, int) < 1:
            raise ValueError("Input top_k must be greater than 0.")
        if freq_range is not None and (not isinstance(freq_range, tuple) or len(freq_range) != 2):
            raise ValueError("freq_range needs to be a tuple of 2 integers or an int and a None.")
        least, most = (0 if freq_range is None or freq_range[0] is None else _check_kind("freq_range", freq_range[0], int),
                       2**31 - 1 if freq_range is None or freq_range[1] is None else _check_kind("freq_range", freq_range[1], int))
        if not 0 <= least <= most:
            raise ValueError("frequency range [a,b] should be 0 <= a <= b (a,b are inclusive).")
        special_tokens = _check_words("special_tokens", [] if special_tokens is None else special_tokens)
        names = dataset.get_col_names()
        columns = [columns] if isinstance(columns, str) else list(columns or names)
        counts = {}
        for name in columns:
            if name not in names:
                raise RuntimeError(f"Vocab.from_dataset: there is no column \"{name}\"; there are {names}")
        for row in dataset.create_tuple_iterator(columns, num_epochs=1, output_numpy=True):
            for name, column in zip(columns, row):
                if np.asarray(column).dtype.kind not in "US":
                    raise RuntimeError(f"Vocab.from_dataset: the column \"{name}\" must be of strings, but it is {np.asarray(column).dtype}")
                for word in _strings(column).ravel().tolist():
                    counts[word] = counts.get(word, 0) + 1
        for word in special_tokens:
            if word in counts:
                raise RuntimeError(f"Vocab.from_dataset: the special token \"{word}\" is a word of the data set, too")
        kept = [word for word, count in counts.items() if least <= count <= most]
        return cls._numbered(sorted(kept, key=lambda word: (-counts[word], word.encode()))[:top_k], special_tokens, special_first)

    def _numbers(self):
        if self.c_vocab is None:
            raise RuntimeError(f"The Vocab has not built yet, got type {type(None)}. Use Vocab.from_dataset(), Vocab.from_list(), Vocab.from_file() or "
                               "Vocab.from_dict() to build a Vocab.")
        return self.c_vocab

    def vocab(self):
        """{word: its number}."""
        return dict(self._numbers())

    def tokens_to_ids(self, tokens):
        """The number of a word, or those of several; -1 of what is no word."""
        numbers = self._numbers()
        tokens = _check_kind("tokens", tokens, (str, list, np.ndarray))
        tokens = tokens.tolist() if isinstance(tokens, np.ndarray) else tokens
        made = [numbers.get(_check_kind("tokens", token, str), -1) for token in ([tokens] if isinstance(tokens, str) else tokens)]
        return made[0] if len(made) == 1 else made

    def ids_to_tokens(self, ids):
        """The word of a number, or those of several; "" of what is no word's."""
        self._numbers()
        ids = _check_kind("ids", ids, (int, list, np.ndarray))
        ids = ids.tolist() if isinstance(ids, np.ndarray) else ids
        ids = [ids] if isinstance(ids, int) else ids
        for number in ids:
            if not 0 <= _check_kind("ids", number, int) < 2**31:
                raise ValueError("Input ids is not within the required interval of [0, 2147483647].")
        made = [self._words.get(number, "") for number in ids]
        return made[0] if len(made) == 1 else made


def _strings(array):
    """The array, bytes read as UTF-8."""
    array = np.asarray(array)
    return to_str(array) if array.dtype.kind == "S" else array


def to_bytes(array, encoding="utf8"):
    """Strings as bytes."""
    if not isinstance(array, np.ndarray):
        raise ValueError("input should be a NumPy array.")
    return np.char.encode(array, encoding)


def to_str(array, encoding="utf8"):
    """Bytes as strings."""
    if not isinstance(array, np.ndarray):
        raise TypeError("input should be a NumPy array.")
    return np.char.decode(array, encoding)


__getattr__ = missing(__name__)
del missing
