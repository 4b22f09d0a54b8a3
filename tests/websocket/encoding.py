"""Frames, written and read by the tests themselves (RFC 6455 §5.2): the product's code is not asked."""

from __future__ import annotations

import base64
import hashlib
from typing import Final, NamedTuple

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA
MASK: Final = b"\x0f\xa3\x5c\x81"
KEY: Final = "c3BvbnNvbiBpcyBhIGZsb2F0IQ=="


class Frame(NamedTuple):
    """One frame as it came."""

    opcode: int
    payload: bytes
    final: bool = True
    packed: bool = False
    masked: bool = False


def encoded(
    opcode: int, payload: bytes, *, final: bool = True, mask: bytes | None = None, packed: bool = False
) -> bytes:
    """Returns a frame."""
    first = opcode | (0x80 if final else 0) | (0x40 if packed else 0)
    size = len(payload)
    if size < 126:
        head = bytes([first, size | (0x80 if mask else 0)])
    elif size < 65536:
        head = bytes([first, 126 | (0x80 if mask else 0)]) + size.to_bytes(2, "big")
    else:
        head = bytes([first, 127 | (0x80 if mask else 0)]) + size.to_bytes(8, "big")
    return head + payload if mask is None else head + mask + turned(payload, mask)


def turned(payload: bytes, mask: bytes) -> bytes:
    """Masks a payload, or takes its mask away."""
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")


def decoded(data: bytes) -> tuple[Frame, int] | None:
    """Returns the frame that these bytes begin with, and its size; None while it is not whole."""
    if len(data) < 2:
        return None
    length, at = data[1] & 0x7F, 2
    wide = {126: 2, 127: 8}.get(length, 0)
    if wide:
        length, at = int.from_bytes(data[2 : 2 + wide], "big"), 2 + wide
    masked = data[1] & 0x80 != 0
    begin = at + 4 * masked
    if len(data) < begin + length:
        return None
    payload = data[begin : begin + length]
    if masked:
        payload = turned(payload, data[at:begin])
    first = data[0]
    return Frame(first & 0x0F, payload, first & 0x80 != 0, first & 0x40 != 0, masked), begin + length


def frames_of(data: bytes) -> list[Frame]:
    """Returns the frames that these bytes are; the last must be whole."""
    found = []
    while data:
        one = decoded(data)
        assert one is not None, f"a frame is not whole: {data[:40]!r}"
        found.append(one[0])
        data = data[one[1] :]
    return found


def closing(code: int | None, reason: str = "") -> bytes:
    """Returns the payload of a close frame."""
    return b"" if code is None else code.to_bytes(2, "big") + reason.encode()


def accept_of(key: str) -> bytes:
    """Returns what a server answers to a key (RFC 6455 §4.2.2)."""
    return base64.b64encode(hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
