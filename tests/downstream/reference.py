"""A second reader of requests, strict and slow, to compare the product's with (RFC 9112 §2-§7)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NO_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_NO_TARGET: Final = re.compile(rb"[\x00-\x20\x7f-\xff]")
_CHUNK: Final = re.compile(rb"([0-9a-fA-F]+)(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")


METHODS: Final = frozenset(
    b"DELETE GET HEAD POST PUT OPTIONS COPY LOCK MKCOL MOVE PROPFIND PROPPATCH SEARCH UNLOCK BIND REBIND UNBIND ACL "
    b"REPORT MKACTIVITY CHECKOUT MERGE M-SEARCH NOTIFY SUBSCRIBE UNSUBSCRIBE PATCH PURGE MKCALENDAR LINK UNLINK "
    b"SOURCE QUERY".split()
)
"""What is passed on; others may have meanings for the framing that nobody here knows (as CONNECT and TRACE have)."""
_HOST: Final = re.compile(rb"(\[[0-9a-fA-F:.]+\]|([A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9a-fA-F]{2})*)(:[0-9]*)?")


_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


class Unreadable(Exception):
    """These bytes are no request, or one that must be refused."""


class Cut(Unreadable):
    """The bytes end before the request does."""


class End(StrEnum):
    """How a reading of all that a caller sends ends."""

    CLEAN = "after a whole request"
    LAST = "with the last request of the connection"
    PART = "inside a request"
    DOUBT = "with bytes that are no request"


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
        """Whether the connection ends with it; `Proxy-Connection` is believed too, which harms nobody."""
        lines = self.all(b"connection") + self.all(b"proxy-connection")
        tokens = {token.strip().lower() for line in lines for token in line.split(b",")}
        return b"close" in tokens or (self.version == b"HTTP/1.0" and b"keep-alive" not in tokens)


def read_requests(data: bytes) -> list[Read]:
    """Reads requests up to the first bytes that are none, or to the last request of the connection."""
    return read_all(data)[0]


def read_all(data: bytes) -> tuple[list[Read], End]:
    """Reads the same, and says what came after the last of them."""
    found: list[Read] = []
    try:
        while data := data.lstrip(b"\r\n"):
            request, data = _request(data)
            found.append(request)
            if request.last:
                return found, End.LAST
    except Cut:
        return found, End.PART
    except Unreadable:
        return found, End.DOUBT
    return found, End.CLEAN


def _request(data: bytes) -> tuple[Read, bytes]:
    top, rest = _until(data, b"\r\n\r\n")
    line, *lines = top.split(b"\r\n")
    # More than one space between the words of the first line is read by many, and never written again.
    _demand(line == line.strip(b" "))
    words = [word for word in line.split(b" ") if word]
    _demand(len(words) == 3 and bool(_TOKEN.fullmatch(words[0])) and words[2] in (b"HTTP/1.1", b"HTTP/1.0"))
    _demand(words[1].startswith(b"/") and not _NO_TARGET.search(words[1]) and words[0] in METHODS)
    fields = tuple(_field(text) for text in lines)
    head = Read(method=words[0], target=words[1], version=words[2], fields=fields, body=b"")
    hosts = head.all(b"host")
    _demand(len(hosts) == 1 or (not hosts and head.version == b"HTTP/1.0"))
    _demand(all(_HOST.fullmatch(host) for host in hosts))
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
    _demand(lengths[0].isascii() and lengths[0].isdigit() and len(lengths[0]) < 20)
    size = int(lengths[0])
    if len(rest) < size:
        raise Cut
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
        end = rest[size : size + 2]
        _demand(b"\r\n".startswith(end))
        if len(end) < 2:
            raise Cut
        body, rest = body + rest[:size], rest[size + 2 :]
    while True:
        line, rest = _until(rest, b"\r\n")
        if not line:
            return body, rest
        name, _ = _field(line)
        # RFC 9110 §6.5.1: what frames a message cannot stand behind it.
        _demand(name.lower() not in _FRAMING)


def _field(text: bytes) -> tuple[bytes, bytes]:
    name, mark, value = text.partition(b":")
    _demand(bool(mark) and bool(_TOKEN.fullmatch(name)) and not _NO_VALUE.search(value))
    return name, value.strip(b" \t")


def _until(data: bytes, marker: bytes) -> tuple[bytes, bytes]:
    before, mark, rest = data.partition(marker)
    if not mark:
        raise Cut
    return before, rest


def _demand(holds: bool) -> None:
    if not holds:
        raise Unreadable
