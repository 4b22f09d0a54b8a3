"""Looking at copies of an answer: usage, errors, first content. Never delays and never changes a byte.

One meter per answer that is worth looking at; answers in a coding that cannot be unpacked here have none.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, Protocol

import orjson

from proxy.dialects.base import Operation
from proxy.dialects.errors import AnswerError, error_in
from proxy.dialects.stream import StreamScanner
from proxy.exchange import Usage

LOOKED_AT: Final = 65536
TAIL: Final = 4096
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS


class Meter(Protocol):
    """Fed with every piece, finished once."""

    content: bool
    error: AnswerError | None
    usage: Usage | None

    def feed(self, piece: bytes) -> None:
        """Looks at the next piece."""
        ...

    def finish(self) -> None:
        """The answer has come to its end."""
        ...


class EventMeter:
    """Looks at an event stream through its dialect's scanner."""

    __slots__ = ("_inflate", "_scanner", "content", "error", "feed", "usage")

    def __init__(self, scanner: StreamScanner, *, packed: bool) -> None:
        self._scanner = scanner
        self._inflate = _Inflate() if packed else None
        self.content = False
        self.error: AnswerError | None = None
        self.usage: Usage | None = None
        self.feed = self._feed_packed if packed else self._feed

    def _feed(self, piece: bytes) -> None:
        scanner = self._scanner
        scanner.feed(piece)
        self.content = scanner.content
        self.error = scanner.error

    def _feed_packed(self, piece: bytes) -> None:
        assert self._inflate is not None
        self._feed(self._inflate.more(piece))

    def finish(self) -> None:
        """Takes the scanner's last word."""
        self._scanner.finish()
        self.content = self._scanner.content
        self.error = self._scanner.error
        self.usage = self._scanner.usage


class BodyMeter:
    """Looks at a JSON body: all of it up to 64 KiB, else its end, where providers put the usage."""

    __slots__ = ("_inflate", "_kept", "_operation", "_size", "content", "document", "error", "usage")

    def __init__(self, operation: Operation, *, packed: bool) -> None:
        self._operation = operation
        self._inflate = _Inflate() if packed else None
        self._kept: list[bytes] = []
        self._size = 0
        self.content = False
        self.error: AnswerError | None = None
        self.usage: Usage | None = None
        self.document: Any = None

    def feed(self, piece: bytes) -> None:
        """Keeps a copy of what may matter."""
        if self._inflate is not None:
            piece = self._inflate.more(piece)
        self._kept.append(piece)
        self._size += len(piece)
        self.content = True
        if self._size > LOOKED_AT and len(self._kept) > 1:
            self._kept = [b"".join(self._kept)[-TAIL:]]

    def finish(self) -> None:
        """Reads what was kept."""
        body = self._kept[0] if len(self._kept) == 1 else b"".join(self._kept)
        if self._size > LOOKED_AT:
            self.document = _usage_at_end(body[-TAIL:])
        else:
            self.document = parsed(body)
            self.error = error_in(self.document)
        if isinstance(self.document, dict):
            self.usage = self._operation.dialect.usage_of(self.document)


class _Inflate:
    """Unpacks a copy of a gzip or deflate body, as far as it has come; a broken one just ends."""

    __slots__ = ("_broken", "_inflater")

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._broken = False

    def more(self, piece: bytes) -> bytes:
        """Returns what this piece unpacks to."""
        if self._broken:
            return b""
        try:
            return self._inflater.decompress(piece)
        except zlib.error:
            self._broken = True
            return b""


def parsed(body: bytes) -> Any:
    """Returns the JSON value of `body`, None where it is none."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _usage_at_end(tail: bytes) -> Any:
    """Finds the `usage` object in the last bytes of a body too large to parse."""
    start = tail.rfind(b'"usage"')
    if start < 0:
        return None
    opening = tail.find(b"{", start)
    depth = 0
    for index in range(opening, len(tail)) if opening >= 0 else ():
        depth += (tail[index] == 0x7B) - (tail[index] == 0x7D)
        if depth == 0:
            return parsed(b'{"usage":' + tail[opening : index + 1] + b"}")
    return None
