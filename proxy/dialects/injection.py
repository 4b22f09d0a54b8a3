"""Usage that we ask for ourselves: put into the request, taken out of the answer (`semantics.md` §6).

OpenAI's chat and completions report a stream's usage only to those who ask (`stream_options.include_usage`), in a
chunk of its own with empty `choices`. A caller that did not ask may not be ready for it: some clients read
`choices[0]` of every chunk. `"usage": null`, which the other chunks bear then, stays: every client reads past it, and
those chunks pass byte for byte.

Whoever asks must see to what only the transport knows:
- the answer must come unpacked, so the request's Accept-Encoding becomes `identity`; an answer that comes packed all
  the same is passed on unfiltered;
- only a 2xx event stream is filtered, and its Content-Length is not passed on: the body becomes shorter;
- the scanner is fed with the provider's bytes, the caller with what `UsageFilter` returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from proxy.dialects.base import Operation
from proxy.dialects.splice import with_fields_in
from proxy.dialects.sse import EventSplitter, plain_events
from proxy.dialects.usage import may_report

LARGEST_HELD: Final = 65536
"""Bytes of one block of lines that are held; a larger block passes unlooked at. A usage chunk has about 300."""
_ASKS: Final = {"include_usage": True}
_LINE_ENDS: Final = frozenset({b"\n", b"\r", b"\r\n"})
_FIRST_LINES: Final = 2
_UNNAMED: Final = (b"", b"message")


def ask_for_usage(body: bytes, document: Mapping[str, Any], operation: Operation) -> bytes | None:
    """Returns the body with `stream_options.include_usage`, every other byte as it came; None: send it as it is.

    None where the caller asks itself, where nothing streams, where usage comes unasked, and where `stream_options`
    is nothing that a provider accepts. `document` is what `body` holds.
    """
    if not operation.usage_on_request or document.get("stream") is not True:
        return None
    options = document.get("stream_options")
    if options is not None:
        if not isinstance(options, dict):
            return None
        asked = options.get("include_usage")
        if asked is not None and asked is not False:
            return None
    return with_fields_in(body, "stream_options", _ASKS)


class UsageFilter:
    """Passes a stream's bytes on, and takes out the usage chunk. The same bytes give the same, however they are cut.

    Held are only the bytes of a block of lines that may still be that chunk. This delays nothing that could be used: an
    event is dispatched at its blank line, and a reader that takes lines gets a whole `data` line as soon as it is
    known to be another chunk; comments pass as they come. `removed` counts chunks taken out.
    """

    __slots__ = (
        "_after_cr",
        "_at_line",
        "_block",
        "_dropped",
        "_ended",
        "_lines",
        "_passes",
        "_passes_line",
        "removed",
    )

    def __init__(self) -> None:
        self.removed = 0
        self._block = bytearray()
        """The block's bytes so far, of which `_ended` belong to its `_lines` whole lines."""
        self._lines = self._ended = 0
        self._at_line = True
        """The bytes so far end with a whole line."""
        self._passes = self._passes_line = self._dropped = self._after_cr = False
        """The rest of this block, of this line, passes; the last block was taken out; a LF may belong to a CR."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} took {self.removed} out, holds {len(self._block)} bytes>"

    def feed(self, piece: bytes) -> bytes:
        """Takes the next bytes of the stream; returns those that the caller gets now, maybe none."""
        if self._at_line and not self._passes and not self._block and not may_report(piece) and plain_events(piece):
            self._after_cr = False
            return piece
        passed = []
        if self._after_cr and piece:
            self._after_cr = False
            if piece.startswith(b"\n"):
                passed.append(self._end_of_cr())
                piece = piece[1:]
        if piece:
            passed += map(self._take, piece.splitlines(keepends=True))
            self._after_cr = piece.endswith(b"\r")
        if self._block and 0 < self._lines <= _FIRST_LINES and _is_another(bytes(self._block[: self._ended])):
            self._passes = True
            passed.append(self._release())
        return b"".join(passed)

    def finish(self) -> bytes:
        """Takes the end of the stream, or its break; returns what the caller still gets of it."""
        block = self._release()
        if _is_usage(block):
            self.removed += 1
            return b""
        return block

    def _take(self, part: bytes) -> bytes:
        """Takes a line, or a part of one: the last of a piece may lack its end, the first its beginning."""
        self._dropped = False
        begins, self._at_line = self._at_line, part[-1] in b"\r\n"
        if begins and part in _LINE_ENDS:
            if self._block:
                return self._end_block(part)
            self._passes = False
            return part
        if self._passes or self._passes_line or (begins and not self._block and part.startswith(b":")):
            self._passes_line = not self._at_line
            return part
        self._lines += self._at_line
        return self._hold(part)

    def _hold(self, part: bytes) -> bytes:
        self._block += part
        if len(self._block) > LARGEST_HELD:
            self._passes = True
            return self._release()
        if self._at_line:
            self._ended = len(self._block)
        return b""

    def _end_block(self, line_end: bytes) -> bytes:
        """A blank line has come: the event that it completes passes, or is taken out with it."""
        self._passes = False
        block = self._release()
        if not _is_usage(block):
            return block + line_end
        self._dropped = True
        self.removed += 1
        return b""

    def _end_of_cr(self) -> bytes:
        """The LF of a CRLF whose CR came with the piece before goes where that went."""
        if self._block:
            return self._hold(b"\n")
        return b"" if self._dropped else b"\n"

    def _release(self) -> bytes:
        block = bytes(self._block)
        self._block.clear()
        self._lines = self._ended = 0
        return block


def _is_usage(block: bytes) -> bool:
    """Whether these lines are the chunk that reports usage and nothing else."""
    if not may_report(block):
        return False
    name, data = _event_of(block)
    return name in _UNNAMED and _reports_alone(data) is True


def _is_another(lines: bytes) -> bool:
    """Whether an event that begins with these whole lines cannot be the usage chunk, whatever follows."""
    _, data = _event_of(lines)
    return _reports_alone(data) is False


def _reports_alone(data: bytes) -> bool | None:
    """Whether an event's data is the usage chunk; None: it may be the beginning of one that has several lines."""
    if data and not data.startswith(b"{"):
        return False
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return document.get("choices") == [] and isinstance(document.get("usage"), dict) and not document.get("error")


def _event_of(lines: bytes) -> tuple[bytes, bytes]:
    """Returns the name and the data of the one event that these lines are, without the white space around it."""
    splitter = EventSplitter()
    for name, data in (*splitter.feed(lines), *splitter.finish()):
        return name, data.strip() if data is not None else b""
    return b"", b""
