"""What a plain YAML scalar means: the core schema of YAML 1.2, with what operators get wrong left as words.

`off`, `yes`, dates, `1:30`, `1_000` and numbers with leading zeros are words: where a number is due they are
refused.
"""

from __future__ import annotations

import re

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
TRUES = frozenset({"true", "True", "TRUE"})
FALSES = frozenset({"false", "False", "FALSE"})

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)")
_NAN = re.compile(r"\.(?:nan|NaN|NAN)")
_ALMOST_NUMBER = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-9]+)*(?:\.[0-9_]*)?")

LONGEST_INTEGER = 100
"""Characters; longer ones are read as floats, which every number type refuses as too large."""


def resolve(text: str) -> str | int | float | bool | None:
    """Returns the value of a plain scalar."""
    if text in NULLS:
        return None
    if text in TRUES:
        return True
    if text in FALSES:
        return False
    number = _number(text)
    return text if number is None else number


def looks_like_number(text: str) -> bool:
    """True for a word that older YAML reads as a number: `010`, `1:30`, `1_000`."""
    return _ALMOST_NUMBER.fullmatch(text) is not None and isinstance(resolve(text), str)


def _number(text: str) -> int | float | None:
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) <= LONGEST_INTEGER else float(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEXADECIMAL.fullmatch(text):
        return int(text[2:], 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITE.fullmatch(text):
        return float(text.replace(".", ""))
    return float("nan") if _NAN.fullmatch(text) else None
