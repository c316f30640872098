"""Quantities as Kubernetes writes them, such as 2, 500m, 1e3 or 4Gi: exact numbers."""

import decimal
import math
import re
from fractions import Fraction

MAX = 2**63 - 1
LEAST = Fraction(1, 10**9)  # Kubernetes takes what is not a multiple of that for the next one
SUFFIXES = ({suffix: Fraction(10)**(3 * power) for power, suffix in zip(range(-3, 7), ("n", "u", "m", "", "k", "M", "G", "T", "P", "E"))}
            | {f"{letter}i": Fraction(1024)**power for power, letter in enumerate("KMGTPE", 1)})
_TEXT = re.compile(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)(?:([KMGTPE]i|[numkMGTPE])|([eE][+-]?[0-9]+))?")


def parse(quantity):
    """Its value, as a Fraction. Throws ValueError where it is none, OverflowError where it is larger than MAX."""
    found = _TEXT.fullmatch(str(quantity))
    if not found:
        raise ValueError(quantity)
    value, suffix, exponent = found.groups()
    try:
        plain = decimal.Decimal(value + (exponent or ""))
    except decimal.InvalidOperation:  # an exponent that no computer has
        raise OverflowError(quantity) from None
    # What lies far out is not written out.
    if not plain:
        return Fraction(0)
    if plain.adjusted() > 40:
        raise OverflowError(quantity)
    if plain.adjusted() < -40:
        return LEAST
    exact = Fraction(plain) * SUFFIXES[suffix or ""]
    if exact > MAX:
        raise OverflowError(quantity)
    return math.ceil(exact / LEAST) * LEAST


def is_too_large(quantity):
    """Of what is a quantity."""
    try:
        parse(quantity)
    except OverflowError:
        return True
    return False


def whole_number(quantity, divisor):
    """A quantity by a divisor, rounded up, as resourceFieldRef gives it."""
    return str(math.ceil(parse(quantity) / (parse(divisor) or 1)))
