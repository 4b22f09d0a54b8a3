"""Frames (RFC 6455 §5): one direction of a connection, as one in the middle follows it.

Payloads pass as they come, masked and packed as they are. Only control frames are waited for until they are whole, so
that a close can be understood and a pong of our own taken out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

TEXT: Final = 0x1
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA
NORMAL: Final = 1000
GOING_AWAY: Final = 1001
PROTOCOL_ERROR: Final = 1002
TOO_BIG: Final = 1009
BAD_GATEWAY: Final = 1014
"""IANA's registry: the gateway received an invalid response from the server."""
MOST_FRAMES: Final = 2048
"""Frames that are followed at a time, some milliseconds: the smallest come by the hundred thousand."""
_CONTROL: Final = 0x8
_LONGEST_CONTROL: Final = 125
_MOST_REASON: Final = 123


class Violation(Exception):
    """Bytes that are no frames, or a message beyond its limit; `code` is what a close frame says of it.

    `before` came together with them, and still passes: a frame that lacks its end would be completed by what follows.
    """

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.before = b""


class _Head(NamedTuple):
    """The beginning of a frame: `size` bytes, before `length` bytes of payload."""

    final: bool
    packed: bool
    opcode: int
    masked: bool
    size: int
    length: int


class Listener(Protocol):
    """Who looks at what passes."""

    def control(self, opcode: int, payload: bytes) -> bool:
        """A control frame is whole; returns whether it is to pass."""
        ...


class Frames:
    """One direction. `closed` is True once a close frame has passed; what follows one is nothing.

    `more`: there was more than is followed at a time, and the next `feed`, of nothing, goes on with it.
    `text` is given the unmasked payload of plain text messages, piece by piece, with True at the end of a message.
    """

    __slots__ = ("_continues", "_head", "_left", "_listener", "_message", "_most", "_plain", "_text", "closed", "more")

    def __init__(self, listener: Listener, *, most: int, text: Callable[[bytes, bool], None] | None = None) -> None:
        self._listener = listener
        self._most = most
        self._text = text
        self._head = b""
        self._left = self._message = 0
        self._continues = self._plain = False
        self.closed = self.more = False

    def __repr__(self) -> str:
        return f"<Frames {'closed' if self.closed else 'between frames' if self.between else 'in a frame'}>"

    @property
    def between(self) -> bool:
        """Whether what has passed ends with a frame, so that one of ours may follow."""
        return not self._left

    def feed(self, data: bytes) -> bytes:
        """Returns what passes now. Raises `Violation`."""
        self.more = False
        if self.closed:
            return b""
        if self._head:
            data, self._head = self._head + data, b""
        passes: list[bytes] = []
        try:
            self._walk(data, passes)
        except Violation as violation:
            violation.before = b"".join(passes)
            raise
        return b"".join(passes)

    def _walk(self, data: bytes, passes: list[bytes]) -> None:
        """Follows the frames in these bytes, and adds what passes, also where it raises."""
        at, begin, size, turns = 0, 0, len(data), MOST_FRAMES
        try:
            while at < size and not self.closed and turns:
                turns -= 1
                if self._left:
                    at += self._payload(data, at)
                    continue
                head = _head(data, at)
                if head is None:
                    break
                if head.opcode & _CONTROL:
                    end = at + head.size + head.length
                    if end > size:
                        break
                    if not self._control(head, data[at:end]):
                        passes.append(data[begin:at])
                        begin = end
                    at = end
                else:
                    self._begins(head)
                    at += head.size
        finally:
            passes.append(data[begin:at])
        if not self.closed:
            self._head = data[at:]
            self.more = not turns and at < size

    def _payload(self, data: bytes, at: int) -> int:
        """Lets payload pass; returns how many bytes."""
        step = min(self._left, len(data) - at)
        self._left -= step
        if self._plain and self._text is not None:
            self._text(data[at : at + step], not self._left and not self._continues)
        return step

    def _begins(self, head: _Head) -> None:
        """A data frame begins."""
        if (head.opcode == 0) is not self._continues:
            raise Violation(PROTOCOL_ERROR, "a message began inside another one, or goes on that never began")
        if head.opcode > 2:
            raise Violation(PROTOCOL_ERROR, f"opcode {head.opcode} is reserved")
        if head.opcode:
            self._message = 0
            self._plain = head.opcode == TEXT and not head.packed and not head.masked
        self._message += head.length
        if self._message > self._most:
            raise Violation(TOO_BIG, f"a message is larger than {self._most} bytes, the route's body.max")
        self._continues = not head.final
        self._left = head.length
        if not head.length and self._plain and self._text is not None:
            self._text(b"", head.final)

    def _control(self, head: _Head, frame: bytes) -> bool:
        payload = frame[head.size :]
        if head.masked:
            payload = _unmasked(payload, frame[head.size - 4 : head.size])
        passes = self._listener.control(head.opcode, payload)
        self.closed = head.opcode == CLOSE
        return passes


def frame(opcode: int, payload: bytes, *, mask: bytes | None) -> bytes:
    """Returns a whole control frame; those to a server are masked (RFC 6455 §5.3)."""
    length = len(payload)
    assert length <= _LONGEST_CONTROL
    if mask is None:
        return bytes((0x80 | opcode, length)) + payload
    return bytes((0x80 | opcode, 0x80 | length)) + mask + _unmasked(payload, mask)


def close_frame(code: int, why: str, *, mask: bytes | None) -> bytes:
    """Returns a close frame with its code and, in at most 123 bytes, its reason."""
    reason = why.encode()[:_MOST_REASON].decode(errors="ignore").encode()
    return frame(CLOSE, code.to_bytes(2, "big") + reason, mask=mask)


def code_of(payload: bytes) -> int | None:
    """Returns the code of a close frame; None where it has none."""
    return int.from_bytes(payload[:2], "big") if len(payload) >= 2 else None


def _head(data: bytes, at: int) -> _Head | None:
    """Reads a frame's head; None while it is not whole. Raises `Violation`."""
    rest = len(data) - at
    if rest < 2:
        return None
    first, second = data[at], data[at + 1]
    opcode, length, masked = first & 0x0F, second & 0x7F, second & 0x80 != 0
    if opcode & _CONTROL and (length > _LONGEST_CONTROL or not first & 0x80 or opcode > PONG):
        raise Violation(PROTOCOL_ERROR, "a control frame is in parts, too long or of no known kind")
    wide = {126: 2, 127: 8}.get(length, 0)
    size = 2 + wide + 4 * masked
    if rest < size:
        return None
    if wide:
        length = int.from_bytes(data[at + 2 : at + 2 + wide], "big")
        if length >> 63:
            raise Violation(PROTOCOL_ERROR, "a frame's length is none")
    return _Head(first & 0x80 != 0, first & 0x70 != 0, opcode, masked, size, length)


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")
