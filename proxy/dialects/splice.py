"""Changes top-level fields of a JSON object and leaves every other byte as it came.

Re-serialising would turn big integers into floats, drop repeated keys, and respell numbers and text.
Expects bytes that were parsed as a JSON object before; that is what `document` shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

_SPACE: Final = re.compile(rb"[ \t\r\n]*+")
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SCALAR: Final = re.compile(rb"[^ \t\r\n,}\]]++")
_NESTING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_OPENING: Final = frozenset(b"[{")
_CLOSING: Final = frozenset(b"]}")

_MODEL_KEY: Final = b'"model"'
_ESCAPED_LETTER: Final = b"\\u006"
"""Every letter of `model` begins like this when it is escaped."""


def with_model(body: bytes, model: str, document: Mapping[str, Any]) -> bytes:
    """Returns the body with another top-level `model`; one that it does not have is added."""
    span = _only_model(body) if "model" in document else None
    if span is None:
        return with_fields(body, document, {"model": model})
    return b"".join((body[: span[0]], _encoded(model), body[span[1] :]))


def with_fields(body: bytes, document: Mapping[str, Any], fields: Mapping[str, Any]) -> bytes:
    """Returns the body with these top-level fields: old ones replaced (repeated ones all), new ones added.

    `document` shows that the body is an object. It may be older than the body, as between two changes in a row:
    what the body has is read from its bytes.
    """
    if not fields:
        return body
    missing = {name: _encoded(value) for name, value in fields.items()}
    encoded = dict(missing)
    pieces: list[bytes] = []
    copied = 0
    for name, start, end in _members(body):
        value = encoded.get(name)
        if value is not None:
            missing.pop(name, None)
            pieces += (body[copied:start], value)
            copied = end
    if missing:
        brace = body.rindex(b"}")
        comma = b"" if body[:brace].rstrip().endswith(b"{") else b","
        added = b",".join(_encoded(name) + b":" + value for name, value in missing.items())
        pieces += (body[copied:brace], comma, added)
        copied = brace
    pieces.append(body[copied:])
    return b"".join(pieces)


def with_fields_in(body: bytes, name: str, fields: Mapping[str, Any]) -> bytes:
    """Returns the body with these fields in its top-level object `name`, whose other members stay as they came.

    What stands there and is no object is replaced, what is missing is added; repeated ones are all changed.
    """
    pieces: list[bytes] = []
    copied = 0
    for key, start, end in _members(body):
        if key == name:
            value = body[start:end]
            pieces += (body[copied:start], with_fields(value, fields, fields) if value[0] in b"{" else _encoded(fields))
            copied = end
    if not copied:
        return with_fields(body, fields, {name: fields})
    pieces.append(body[copied:])
    return b"".join(pieces)


def _only_model(body: bytes) -> tuple[int, int] | None:
    """Returns where the value of `model` stands, if one look decides that; the object has such a key."""
    at = body.find(_MODEL_KEY)
    if at < 0 or body.find(_MODEL_KEY, at + 1) >= 0 or _ESCAPED_LETTER in body:
        return None
    return _value_after(body, at + len(_MODEL_KEY))


def _members(body: bytes) -> Iterator[tuple[str, int, int]]:
    """Yields the name, and where the value stands, of each member of the outermost object."""
    at = body.index(b"{") + 1
    while key := _STRING.match(body, _space(body, at)):
        start, end = _value_after(body, key.end())
        yield _decoded(key[0]), start, end
        at = _space(body, end) + 1


def _value_after(body: bytes, at: int) -> tuple[int, int]:
    """Returns where the value stands whose key ends at `at`."""
    start = _space(body, _space(body, at) + 1)
    if body[start] in _OPENING:
        return start, _end_of_nest(body, start)
    found = _STRING.match(body, start) or _SCALAR.match(body, start)
    return start, found.end() if found else start


def _end_of_nest(body: bytes, start: int) -> int:
    depth = 0
    for token in _NESTING.finditer(body, start):
        mark = body[token.start()]
        depth += (mark in _OPENING) - (mark in _CLOSING)
        if not depth:
            return token.end()
    return len(body)


def _space(body: bytes, at: int) -> int:
    found = _SPACE.match(body, at)
    return found.end() if found else at


def _decoded(key: bytes) -> str:
    return str(orjson.loads(key)) if b"\\" in key else key[1:-1].decode()


def _encoded(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        # Integers beyond 64 bits and lone surrogates.
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
