"""Regular expressions and case folding as ICU has them, which Python's re and str lack: general categories, White_Space, NFKC_Casefold."""
import functools
import re
import sys
import unicodedata

# What has Unicode's property White_Space: Python's \s has U+001C to U+001F, too.
WHITE_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_IGNORABLE = re.compile("[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
                        "\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]")
_WORD = "\\w\u200c\u200d"


@functools.cache
def category(name):
    """The characters of a general category, Lu, or of all whose names begin with a letter, P: as the inside of a class."""
    ranges, first = [], None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code)).startswith(name)
        if inside and first is None:
            first = code
        elif not inside and first is not None:
            ranges.append((first, code - 1))
            first = None
    if not ranges:
        raise RuntimeError(f"the general category {name} of a regular expression is none of Unicode's")
    return "".join(f"\\U{low:08x}" if low == high else f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)


def nfkc_casefold(text):
    """NFKC_Casefold of Unicode's chapter 3.13."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFD", text).casefold()).casefold()
    return unicodedata.normalize("NFKC", _IGNORABLE.sub("", folded))


_ESCAPE = re.compile(r"\\([pP])\{([^}]*)\}|\\x\{([0-9a-fA-F]+)\}|\\([swSW])|\\.|\[\^?|\]", re.DOTALL)


def _escape(found, is_inside):
    kind, name, code, short = found.groups()
    if code is not None:
        return f"\\U{int(code, 16):08x}"
    if name is not None:
        made = category(name.strip())
        negative = kind == "P"
    elif short is not None:
        made = WHITE_SPACE if short in "sS" else _WORD + category("M") + category("Pc")
        negative = short in "SW"
    else:
        return found.group()
    if is_inside and negative:
        raise RuntimeError(f"regular expression: {found.group()} inside of [...] is not available: write the class with [^...]")
    return made if is_inside else f"[^{made}]" if negative else f"[{made}]"


@functools.lru_cache(256)
def pattern(text):
    """A pattern of ICU's as Python's. RuntimeError where it is none, or has what re lacks."""
    parts, last, depth = [], 0, 0
    for found in _ESCAPE.finditer(text):
        parts.append(text[last:found.start()])
        last = found.end()
        word = found.group()
        if word[0] == "[":
            if depth and text.startswith("[:", found.start()):
                raise RuntimeError("regular expression: a class [:name:] is not available: write \\p{...}")
            if depth:
                raise RuntimeError("regular expression: a class within a class is not available")
            depth = 1
            parts.append(word)
        elif word == "]":
            depth = 0
            parts.append(word)
        else:
            parts.append(_escape(found, depth > 0))
    parts.append(text[last:])
    try:
        return re.compile("".join(parts))
    except re.error as error:
        raise RuntimeError(f"regular expression \"{text}\": {error}") from error


def replacement(text):
    """What a match becomes, from ICU's form with $1: a function of the match."""
    parts = re.split(r"(\\.|\$\d)", text)

    def made(match):
        return "".join((match.group(int(part[1])) or "") if part[:1] == "$" and part[1:].isdigit() else part[1:] if part[:1] == "\\" and len(part) == 2 else part
                       for part in parts)

    return made
