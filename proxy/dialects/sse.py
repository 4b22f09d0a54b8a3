"""Owns the grammar of event streams (WHATWG HTML §9.2.5), over copies of the bytes that pass.

LF, CRLF and lone CR end a line; a BOM may lead; comments, `id` and `retry` are no events. Unlike in a
browser, an event that the end of the stream leaves without its blank line counts (`finish`): providers do
end like that.
"""

from __future__ import annotations

from typing import Final

LARGEST_EVENT: Final = 1 << 20
"""Bytes of one event's data that are kept to be looked at, and about as many of one line."""
LINE_COST: Final = 64
"""Bytes that a kept line of data counts above its own: lines that hold next to nothing cost memory too."""
_LARGEST_LINE: Final = LARGEST_EVENT + 16
"""Bytes of a line that has not ended: more than any whole line whose data is kept, a BOM and the field's name too."""
_BOM: Final = b"\xef\xbb\xbf"
_CR: Final = 13

Event = tuple[bytes, bytes | None]
"""An event's name (b"" where none was given) and data; data is None where the event was too large to keep."""


class EventSplitter:
    """Cuts a stream, which comes in pieces of any size, into events; keeps no more of it than is bounded above.

    `between_events`: the bytes so far end with a whole event, or with lines that belong to none.
    `comments` counts comment lines.
    """

    __slots__ = (
        "_after_cr",
        "_at_start",
        "_data",
        "_name",
        "_pending",
        "_size",
        "_too_large",
        "between_events",
        "comments",
    )

    def __init__(self) -> None:
        self.comments = 0
        self.between_events = True
        self._after_cr = False
        self._at_start = True
        self._pending = bytearray()
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0
        self._too_large = False

    def feed(self, piece: bytes) -> list[Event]:
        """Returns the events that this piece completes."""
        if self._after_cr and piece:
            piece = piece.removeprefix(b"\n")
            self._after_cr = False
        events = self._events(self._lines(piece)) if piece else []
        self.between_events = not (self._pending or self._data or self._name or self._too_large)
        return events

    def finish(self) -> list[Event]:
        """Returns the event that the stream's end completes, if any."""
        last = bytes(self._pending)
        self._pending.clear()
        self.between_events = True
        return self._events([last, b""])

    def _lines(self, piece: bytes) -> list[bytes]:
        """Returns the lines that this piece completes; keeps the rest, of an endless line its beginning."""
        lines = piece.splitlines()
        ends_line = piece[-1] in b"\r\n"
        self._after_cr = piece[-1] == _CR
        rest = b"" if ends_line else lines.pop()
        if lines and self._pending:
            lines[0] = bytes(self._pending) + lines[0]
            self._pending.clear()
        self._pending += rest[: _LARGEST_LINE - len(self._pending)]
        return lines

    def _events(self, lines: list[bytes]) -> list[Event]:
        events = []
        for line in lines:
            if self._at_start:
                self._at_start = False
                line = line.removeprefix(_BOM)
            if line:
                self._take_field(line)
                continue
            if self._data or self._too_large:
                events.append((self._name, None if self._too_large else b"\n".join(self._data)))
                self._data = []
                self._size = 0
                self._too_large = False
            self._name = b""
        return events

    def _take_field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if field == b"data":
            self._take_data(value.removeprefix(b" "))
        elif field == b"event" and len(line) <= LARGEST_EVENT:
            self._name = value.removeprefix(b" ")
        elif not field:
            self.comments += 1

    def _take_data(self, value: bytes) -> None:
        self._size += len(value) + LINE_COST
        if self._size > LARGEST_EVENT:
            self._too_large = True
            self._data.clear()
        if not self._too_large:
            self._data.append(value)


def plain_events(piece: bytes) -> int:
    """Returns how many events a piece is, if it is plainly nothing but whole ones; else 0: ask the splitter.

    The piece must begin a line. It is plain as any number of single `data: {` lines, each with its blank
    line, or as one event of an `event:` and a `data: {` line. `in` would be slower on bytes than `find`.
    """
    if not piece.endswith(b"\n\n") or piece.find(b"\r") >= 0:
        return 0
    line_end = piece.find(b"\n")
    if piece.startswith(b"data: {"):
        return 1 if line_end == len(piece) - 2 else _plain_lines(piece)
    if piece.startswith(b"event:") and piece.startswith(b"data: {", line_end + 1):
        return 1 if piece.find(b"\n", line_end + 1) == len(piece) - 2 else 0
    return 0


def _plain_lines(piece: bytes) -> int:
    """The same for several lines: when each line end is half of a pair, every block is one line."""
    blocks = piece.count(b"\n\n")
    alike = piece.count(b"\n\ndata: {") == blocks - 1 and piece.count(b"\n") == 2 * blocks
    return blocks if alike else 0
