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
UNPACKED: Final = 4 * 1024 * 1024
"""Most bytes that one piece may unpack to, and that an answer may unpack to whatever its size.

More is a bomb, or no answer that we know: nobody looks any further, and its usage is estimated."""
UNPACKED_EVENTS: Final = 1024 * 1024
"""The same for a piece of an event stream, which costs far more to look at: the event loop waits meanwhile."""
LARGEST_RATIO: Final = 100
"""How many bytes one byte may unpack to beyond that, over a whole answer; JSON and events stay below 50."""
MEMBER: Final = 4096
"""What the end of a member counts for, in bytes: beginning another one takes time, however little it holds."""
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS


class Meter(Protocol):
    """Fed with every piece, finished once. A dialect's stream scanner is one."""

    @property
    def content(self) -> bool:
        """Whether the first content has come."""
        ...

    @property
    def error(self) -> AnswerError | None:
        """The error that the answer carries."""
        ...

    @property
    def usage(self) -> Usage | None:
        """The usage as far as it was told."""
        ...

    @property
    def done(self) -> bool:
        """Whether the answer's own end has come, in its dialect's words."""
        ...

    @property
    def signs(self) -> int:
        """Grows with every sign of life that keeps an answer from being idle."""
        ...

    def feed(self, piece: bytes) -> None:
        """Looks at the next piece."""
        ...

    def finish(self) -> None:
        """The answer has come to its end."""
        ...


class PackedEvents:
    """Looks at a packed event stream through its dialect's scanner; at none of a piece that is a bomb."""

    __slots__ = ("_blind", "_inflate", "_scanner")

    def __init__(self, scanner: StreamScanner) -> None:
        self._scanner = scanner
        self._inflate = _Inflate(UNPACKED_EVENTS)
        self._blind = 0

    @property
    def content(self) -> bool:
        """Whether the first content has come; where nothing can be told apart, everything is."""
        return self._scanner.content or bool(self._blind)

    @property
    def error(self) -> AnswerError | None:
        """The first error event."""
        return self._scanner.error

    @property
    def usage(self) -> Usage | None:
        """The usage as far as it was told."""
        return self._scanner.usage

    @property
    def done(self) -> bool:
        """Whether the dialect's own end has come."""
        return self._scanner.done

    @property
    def signs(self) -> int:
        """Grows with events and comments; with every piece where nothing can be told apart."""
        return self._scanner.signs + self._blind

    def feed(self, piece: bytes) -> None:
        """Unpacks and looks at the next piece."""
        text = self._inflate.more(piece)
        if not self._inflate.burst:
            self._scanner.feed(text)
        self._blind += self._inflate.broken

    def finish(self) -> None:
        """Takes the scanner's last word."""
        self._scanner.finish()


def look(
    operation: Operation, body: bytes, *, packed: bool = False, cut: bool = False
) -> tuple[Usage | None, AnswerError | None]:
    """Looks at a JSON body: its usage, and the error that it may carry instead of content.

    Of a body over 64 KiB, and of one whose beginning is `cut` off, only the end is looked at.
    """
    if packed:
        inflate = _Inflate(UNPACKED)
        body = inflate.more(body)
        if inflate.burst:
            return None, None
    if cut or len(body) > LOOKED_AT:
        document, error = _usage_at_end(body[-TAIL:]), None
    else:
        document = parsed(body)
        error = error_in(document) if b'"error"' in body else None
    usage = operation.dialect.usage_of(document) if isinstance(document, dict) else None
    return usage, error


def plain_copy(body: bytes) -> bytes:
    """Returns what a small packed body holds; nothing where it would be large."""
    inflate = _Inflate(LOOKED_AT)
    plain = inflate.more(body)
    return b"" if inflate.burst else plain


class BodyMeter:
    """Looks at a JSON body: all of it up to 64 KiB, else its end, where providers put the usage."""

    __slots__ = ("_inflate", "_kept", "_operation", "_size", "content", "done", "error", "signs", "usage")

    def __init__(self, operation: Operation, *, packed: bool) -> None:
        self._operation = operation
        self._inflate = _Inflate(UNPACKED) if packed else None
        self._kept: list[bytes] = []
        self._size = self.signs = 0
        self.content = self.done = False
        self.error: AnswerError | None = None
        self.usage: Usage | None = None

    def feed(self, piece: bytes) -> None:
        """Keeps a copy of what may matter."""
        self.content = True
        self.signs += 1
        if self._inflate is not None:
            piece = self._inflate.more(piece)
            if self._inflate.burst:
                self._kept.clear()
                return
        self._kept.append(piece)
        self._size += len(piece)
        if self._size > LOOKED_AT:
            self._kept = [b"".join(self._kept)[-TAIL:]]

    def finish(self) -> None:
        """Reads what was kept; of what was not seen to its end nothing is known."""
        if self._inflate is not None and self._inflate.burst:
            return
        self.usage, self.error = look(self._operation, b"".join(self._kept), cut=self._size > LOOKED_AT)


class _Inflate:
    """Unpacks a copy of a gzip, zlib or raw deflate body, member by member; a broken or bursting one just ends.

    `most`: bytes that one piece may unpack to. `broken`: nothing more comes; `burst`: it would have been too much.
    """

    __slots__ = ("_allowed", "_inflater", "_most", "_raw_tried", "broken", "burst")

    def __init__(self, most: int) -> None:
        self._inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._raw_tried = False
        self._most = most
        self._allowed = UNPACKED
        self.broken = self.burst = False

    def more(self, piece: bytes) -> bytes:
        """Returns what this piece unpacks to."""
        parts: list[bytes] = []
        self._allowed += len(piece) * LARGEST_RATIO
        room = min(self._most, self._allowed)
        while piece and not self.broken:
            try:
                part = self._inflater.decompress(piece, room)
            except zlib.error:
                # "deflate" is sent with and without a zlib header; only the very beginning tells.
                self.broken = self._raw_tried
                self._raw_tried = True
                self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
                continue
            self._raw_tried = True
            parts.append(part)
            spent = len(part) + MEMBER * self._inflater.eof
            self._allowed -= spent
            room -= spent
            self.broken = self.burst = bool(self._inflater.unconsumed_tail) or room <= 0
            piece = self._inflater.unused_data
            if self._inflater.eof:
                self._inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
        return b"".join(parts)


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
