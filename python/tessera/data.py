"""Data sets: where samples come from and what is done to them."""
import sys as _sys
import typing as _typing

from tessera._tessera.data import *
from tessera import _keywords

if not _typing.TYPE_CHECKING:  # it takes any name, and checkers would, too
    __getattr__ = _keywords.missing_from(_sys.modules[__name__], _keywords.DATA_WORDS)
del _keywords
