"""The name that a TLS client asks for (SNI, RFC 6066 §3), read from its first bytes; nothing of them is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LARGEST_HELLO: Final = 16384
"""Bytes after which nobody waits for the rest any more."""
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What the bytes so far tell; `name` None: no name is asked for, or it is no TLS."""

    known: bool = True
    name: str | None = None


MORE: Final = Hello(known=False)
NAMELESS: Final = Hello()


def read_hello(data: bytes) -> Hello:
    """Returns what is known; a hello may come in pieces, and over several records (RFC 8446 §5.1)."""
    message, at = bytearray(), 0
    while at < len(data):
        if data[at] != _HANDSHAKE or data[at + 1 : at + 2] not in (b"", b"\x03"):
            return NAMELESS
        if len(data) < at + 5:
            break
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        message += data[at + 5 : at + 5 + size]
        at += 5 + size
        if message and message[0] != _CLIENT_HELLO:
            return NAMELESS
        whole = 4 + int.from_bytes(message[1:4], "big") if len(message) >= 4 else LARGEST_HELLO
        if len(message) >= whole:
            return Hello(name=_name_in(bytes(message[4:whole])))
    return MORE if len(data) < LARGEST_HELLO else NAMELESS


def _name_in(hello: bytes) -> str | None:
    """Returns the name in a whole hello; None where there is none, or it is no hello at all."""
    reader = _Reader(hello)
    reader.skip(2 + 32)
    reader.block(1)
    reader.block(2)
    reader.block(1)
    extensions = _Reader(reader.block(2))
    while extensions.left:
        kind, body = extensions.number(2), extensions.block(2)
        if kind == _SERVER_NAME:
            names = _Reader(_Reader(body).block(2))
            found = names.number(1) == _HOST_NAME
            name = names.block(2)
            return name.decode("latin-1").lower().removesuffix(".") if found and name else None
    return None


class _Reader:
    """Reads what TLS writes; beyond the end there is nothing, so that a broken hello has no name."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> bool:
        return self._at < len(self._data)

    def skip(self, size: int) -> bytes:
        """Returns the next bytes."""
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def number(self, size: int) -> int:
        """Returns a number of so many bytes."""
        return int.from_bytes(self.skip(size), "big")

    def block(self, size: int) -> bytes:
        """Returns bytes whose number stands before them, in `size` bytes."""
        return self.skip(self.number(size))
