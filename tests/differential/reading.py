"""A strict and slow reader of answers (RFC 9112 §2-§7), and what a kind one makes of careless heads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: ([^\x00-\x08\x0a-\x1f\x7f]*))?")
FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\x00-\x08\x0a-\x1f\x7f]*)")
CHUNK: Final = re.compile(rb"([0-9a-fA-F]{1,15})(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")
LENGTH: Final = re.compile(rb"0*[0-9]{1,18}")
FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
BODILESS: Final = frozenset({204, 304})
CONNECTION_LEVEL: Final = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding "
    b"upgrade http2-settings content-length".split()
)


class Doubt(Exception):
    """No answer, or one that two readers may read in two ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One final answer; `whole`: its end came. `keeps`: the connection may serve another request."""

    status: int
    phrase: bytes
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes
    whole: bool
    keeps: bool


def read_answer(data: bytes, *, method: bytes, kind: bool = False) -> Heard:
    """Reads the answer from a connection that ends after these bytes. Raises `Doubt`.

    A `kind` reader does not ask how a body would be framed that cannot be there.
    """
    while True:
        version, status, phrase, fields, data = _head(data)
        if status == 101:
            raise Doubt
        if status >= 200:
            break
    bodiless = method == b"HEAD" or status in BODILESS
    body, whole, rest = (b"", True, data) if bodiless and kind else _body(fields, data, bodiless=bodiless)
    tokens = _tokens(fields)
    # RFC 9112 §6.1: a coding in version 1.0 may be believed, but its connection is not to be trusted.
    coded = any(name.lower() == b"transfer-encoding" for name, _ in fields)
    keeps = (b"keep-alive" in tokens and not coded) if version == b"0" else True
    framed = any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in fields)
    ends = not framed and not bodiless
    keeps = keeps and b"close" not in tokens and whole and not rest and not ends
    return Heard(status=status, phrase=phrase, fields=fields, body=body, whole=whole, keeps=keeps)


def end_to_end(fields: tuple[tuple[bytes, bytes], ...]) -> list[tuple[bytes, bytes]]:
    """Returns what concerns more than one connection."""
    gone = CONNECTION_LEVEL | (_tokens(fields) - {b"close", b"keep-alive"})
    return [
        field for field in fields if field[0].lower() not in gone and not field[0].lower().startswith(b"x-sponson-")
    ]


def tidy(data: bytes) -> bytes:
    """Returns careless heads as their author meant them; RFC 9112 §2.2, §5.1 and §5.2 let a reader do so."""
    tidied, data = b"", data.lstrip(b"\r\n")
    while (end := re.search(rb"\r*\n\r*\n", data)) is not None:
        head = re.sub(rb"\r*\n", b"\r\n", data[: end.start()])
        head = re.sub(rb"\r\n[ \t]+", b" ", head)
        head = re.sub(rb"(?m)^([^:\r\n]+?)[ \t]+:", rb"\1:", head)
        head = re.sub(rb"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]", b"?", head.replace(b"\r\n", b"\n")).replace(b"\n", b"\r\n")
        tidied, data = tidied + head + b"\r\n\r\n", data[end.end() :]
        if not re.match(rb"HTTP/1\.[01] 1(?!01)", head):
            break
        data = data.lstrip(b"\r\n")
    return tidied + data


def _head(data: bytes) -> tuple[bytes, int, bytes, tuple[tuple[bytes, bytes], ...], bytes]:
    top, mark, rest = data.partition(b"\r\n\r\n")
    if not mark:
        raise Doubt
    line, *lines = top.split(b"\r\n")
    match = STATUS_LINE.fullmatch(line)
    if match is None:
        raise Doubt
    return match[1], int(match[2]), match[3] or b"", tuple(_field(text) for text in lines), rest


def _field(text: bytes) -> tuple[bytes, bytes]:
    match = FIELD.fullmatch(text)
    if match is None:
        raise Doubt
    # A tab behind a coding is no part of it, and yet read as one by many; a doubt is the better answer.
    behind = b" " if match[1].lower() == b"transfer-encoding" else b" \t"
    return match[1], match[2].lstrip(b" \t").rstrip(behind)


def _tokens(fields: tuple[tuple[bytes, bytes], ...]) -> set[bytes]:
    lines = [value for name, value in fields if name.lower() == b"connection"]
    return {token.strip().lower() for line in lines for token in line.split(b",")}


def _body(fields: tuple[tuple[bytes, bytes], ...], data: bytes, *, bodiless: bool) -> tuple[bytes, bool, bytes]:
    """Returns the body, whether it came to its end, and what follows."""
    codings = [value for name, value in fields if name.lower() == b"transfer-encoding"]
    lengths = [value for name, value in fields if name.lower() == b"content-length"]
    if len(codings) + len(lengths) > 1 or (codings and codings[0].lower() != b"chunked"):
        raise Doubt
    if lengths and not LENGTH.fullmatch(lengths[0]):
        raise Doubt
    if bodiless:
        return b"", True, data
    if codings:
        return _chunks(data)
    if lengths:
        size = int(lengths[0].lstrip(b"0") or b"0")
        return data[:size], len(data) >= size, data[size:]
    return data, True, b""


def _chunks(data: bytes) -> tuple[bytes, bool, bytes]:
    body = b""
    while True:
        line, mark, rest = data.partition(b"\r\n")
        if not mark:
            return body, False, b""
        match = CHUNK.fullmatch(line)
        if match is None:
            return body, False, b""
        size = int(match[1], 16)
        if size == 0:
            return _trailer(body, rest)
        body, after, data = body + rest[:size], rest[size : size + 2], rest[size + 2 :]
        if after != b"\r\n":
            return body, False, b""


def _trailer(body: bytes, data: bytes) -> tuple[bytes, bool, bytes]:
    while True:
        line, mark, data = data.partition(b"\r\n")
        match = FIELD.fullmatch(line)
        if not mark or (line and (match is None or match[1].lower() in FRAMING)):
            return body, False, b""
        if not line:
            return body, True, data
