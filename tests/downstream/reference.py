"""A second reader of requests, strict and slow, to compare the product's with (RFC 9112 §2-§7)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NO_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_NO_TARGET: Final = re.compile(rb"[\x00-\x20\x7f]")
_CHUNK: Final = re.compile(rb"([0-9a-fA-F]+)[ \t]*(?:;[^\r\n]*)?")


class Unreadable(Exception):
    """These bytes are no request, not a whole one, or one that must be refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One request; values without the white space around them."""

    method: bytes
    target: bytes
    version: bytes
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def all(self, name: bytes) -> list[bytes]:
        """Every value of a field."""
        return [value for key, value in self.fields if key.lower() == name]

    @property
    def last(self) -> bool:
        """Whether the connection ends with it."""
        tokens = {token.strip().lower() for line in self.all(b"connection") for token in line.split(b",")}
        return b"close" in tokens or (self.version == b"HTTP/1.0" and b"keep-alive" not in tokens)


def read_requests(data: bytes) -> list[Read]:
    """Reads requests up to the first bytes that are none, or to the last request of the connection."""
    found: list[Read] = []
    try:
        while not (found and found[-1].last):
            request, data = _request(data.lstrip(b"\r\n"))
            found.append(request)
    except Unreadable:
        pass
    return found


def _request(data: bytes) -> tuple[Read, bytes]:
    top, rest = _until(data, b"\r\n\r\n")
    line, *lines = top.split(b"\r\n")
    # More than one space between the words of the first line is read by many, and never written again.
    words = [word for word in line.split(b" ") if word]
    _demand(len(words) == 3 and bool(_TOKEN.fullmatch(words[0])) and words[2] in (b"HTTP/1.1", b"HTTP/1.0"))
    _demand(words[1].startswith(b"/") and not _NO_TARGET.search(words[1]) and words[0] != b"CONNECT")
    fields = tuple(_field(text) for text in lines)
    head = Read(method=words[0], target=words[1], version=words[2], fields=fields, body=b"")
    hosts = len(head.all(b"host"))
    _demand(hosts == 1 or (hosts == 0 and head.version == b"HTTP/1.0"))
    body, rest = _body(head, rest)
    return Read(method=head.method, target=head.target, version=head.version, fields=fields, body=body), rest


def _body(head: Read, rest: bytes) -> tuple[bytes, bytes]:
    codings, lengths = head.all(b"transfer-encoding"), head.all(b"content-length")
    _demand(len(codings) + len(lengths) <= 1)
    if codings:
        _demand(codings[0].lower() == b"chunked" and head.version == b"HTTP/1.1")
        return _chunks(rest)
    if not lengths:
        return b"", rest
    _demand(lengths[0].isascii() and lengths[0].isdigit())
    size = int(lengths[0])
    _demand(len(rest) >= size)
    return rest[:size], rest[size:]


def _chunks(rest: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        line, rest = _until(rest, b"\r\n")
        match = _CHUNK.fullmatch(line)
        _demand(match is not None)
        assert match is not None
        size = int(match[1], 16)
        if size == 0:
            break
        _demand(rest[size : size + 2] == b"\r\n")
        body, rest = body + rest[:size], rest[size + 2 :]
    while True:
        line, rest = _until(rest, b"\r\n")
        if not line:
            return body, rest
        _field(line)


def _field(text: bytes) -> tuple[bytes, bytes]:
    name, mark, value = text.partition(b":")
    _demand(bool(mark) and bool(_TOKEN.fullmatch(name)) and not _NO_VALUE.search(value))
    return name, value.strip(b" \t")


def _until(data: bytes, marker: bytes) -> tuple[bytes, bytes]:
    before, mark, rest = data.partition(marker)
    _demand(bool(mark))
    return before, rest


def _demand(holds: bool) -> None:
    if not holds:
        raise Unreadable
