"""Owns what makes two JSON bodies the same: `canonical` bytes that are equal when all that they say is.

Order of keys, white space between tokens and the spelling of texts (`\\u0041`, `A`) say nothing. Numbers are what is
written: a provider may tell 1 from 1.0, and no float may make two big integers one. A body that two parsers may read
differently (repeated keys, NaN, bytes that are no UTF-8) has no canonical bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

DEEPEST: Final = 100
"""Levels of arrays and objects."""
MOST_MARKS: Final = 50_000
"""Quotes and opening brackets: nobody's body may hold up everybody else for longer than some 30 ms."""
_MARKS: Final = (b'"', b"[", b"{")
_QUESTIONS: Final = ("input", "instructions", "messages", "prompt", "system")
"""Fields of the body that hold texts of the question."""

Texts = Callable[[str], str]


def canonical(body: bytes, *, ignore: frozenset[str], spaces: bool, case: bool) -> bytes | None:
    """Returns what equal JSON objects have in common, None for a body that is none or that is equal to nothing.

    `ignore` are top-level fields that do not count. `spaces`, `case`: white space and letter case do not count in the
    question's texts; everything else, like `stop` and the schemas of tools, keeps both.
    """
    document = read_exact(body)
    return None if document is None else spelled(document, ignore=ignore, spaces=spaces, case=case)


def read_exact(body: bytes) -> dict[str, Any] | None:
    """Returns a JSON object whose numbers are still what was written, as bytes; None where readings may differ,
    and where it has absurdly many parts.
    """
    if len(body) > MOST_MARKS and sum(map(body.count, _MARKS)) > MOST_MARKS:
        return None
    try:
        document = _DECODER.decode(body.decode())
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def spelled(document: dict[str, Any], *, ignore: frozenset[str], spaces: bool, case: bool) -> bytes | None:
    """Returns the canonical bytes of what `read_exact` has read; None where it is absurdly deep."""
    if ignore:
        document = {name: value for name, value in document.items() if name not in ignore}
    if spaces or case:
        document = _normalised(document, _alike(spaces=spaces, case=case))
    try:
        return _spelled(document, DEEPEST).encode("utf-8", "surrogatepass")
    except _TooDeep:
        return None


class _TooDeep(Exception):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _no_number(word: str) -> Any:
    raise ValueError(word)


_DECODER: Final = json.JSONDecoder(
    # Arrays of tokens are long: a method of C is four times faster than a class of our own.
    object_pairs_hook=_object,
    parse_int=str.encode,
    parse_float=str.encode,
    parse_constant=_no_number,
)
_WORDS: Final = {None: "n", True: "t", False: "f"}
_ONLY_NUMBERS: Final = {bytes}
SHORT: Final = 16
"""Items up to which an array is spelled one by one."""


def _spelled(value: Any, levels: int) -> str:
    """Every value tells by its first character what it is, and of itself where it ends: no two lists look alike."""
    kind = type(value)
    if kind is str:
        return f'"{len(value)}:{value}'
    if kind is bytes:
        return f"{value.decode()};"
    if kind is not list and kind is not dict:
        return _WORDS[value]
    if not levels:
        raise _TooDeep
    if kind is dict:
        members = [f"{len(name)}:{name}{_spelled(value[name], levels - 1)}" for name in sorted(value)]
        return f"{{{''.join(members)}}}"
    if len(value) > SHORT and set(map(type, value)) == _ONLY_NUMBERS:
        return f"[{b';'.join(value).decode()};]"
    return f"[{''.join([_spelled(item, levels - 1) for item in value])}]"


def _alike(*, spaces: bool, case: bool) -> Texts:
    def alike(text: str) -> str:
        text = text.casefold() if case else text
        return " ".join(text.split()) if spaces else text

    return alike


def _normalised(document: dict[str, Any], alike: Texts) -> dict[str, Any]:
    questions: dict[str, Any] = {name: _question(document[name], alike) for name in _QUESTIONS if name in document}
    return {**document, **questions}


def _question(value: Any, alike: Texts) -> Any:
    """A text, a list of texts, of messages or of parts; whatever else it is stays as it is."""
    if type(value) is str:
        return alike(value)
    if not isinstance(value, list):
        return value
    return [_message(item, alike) for item in value]


def _message(item: Any, alike: Texts) -> Any:
    if not isinstance(item, dict):
        return alike(item) if type(item) is str else item
    content = item.get("content")
    if isinstance(content, list):
        item = {**item, "content": [_part(part, alike) for part in content]}
    elif type(content) is str:
        item = {**item, "content": alike(content)}
    return _part(item, alike)


def _part(part: Any, alike: Texts) -> Any:
    text = part.get("text") if isinstance(part, dict) else None
    return {**part, "text": alike(text)} if type(text) is str else part
