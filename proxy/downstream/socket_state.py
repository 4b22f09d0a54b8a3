"""What the system knows of a connection's socket and its transport does not tell."""

from __future__ import annotations

import asyncio
import fcntl
import select
import socket
import struct
import termios
from typing import Final

_NONE: Final = struct.pack("i", 0)
_RESET: Final = select.POLLERR | select.POLLHUP
_CLOSED: Final = getattr(select, "POLLRDHUP", 0)
"""Linux alone tells of a FIN that stands behind unread bytes."""


def has_unread(transport: asyncio.Transport) -> bool:
    """Whether bytes have come that the event loop has not read yet."""
    number = _number(transport)
    if number < 0:
        return False
    try:
        return fcntl.ioctl(number, termios.FIONREAD, _NONE) != _NONE
    except OSError:
        return False


def has_left(transport: asyncio.Transport, *, closed: bool) -> bool:
    """Whether the client has reset the connection, or (`closed`) ended its side of it behind what it has sent."""
    number = _number(transport)
    if number < 0:
        return False
    asked = select.poll()
    asked.register(number, _CLOSED if closed else 0)
    return any(events & (_RESET | _CLOSED) for _, events in asked.poll(0))


def half_close(transport: asyncio.Transport) -> bool:
    """Closes the sending side at this very moment, which a transport does later; returns whether that was possible."""
    number = _number(transport)
    if number < 0 or transport.is_closing() or transport.get_write_buffer_size():
        return False
    try:
        borrowed = socket.socket(fileno=number)
    except OSError:
        return False
    try:
        borrowed.shutdown(socket.SHUT_WR)
    except OSError:
        return False
    finally:
        borrowed.detach()
    return True


def unsent_bytes(transport: asyncio.Transport | None) -> int:
    """Bytes that the client has not taken, beyond what the system holds for it."""
    return transport.get_write_buffer_size() if transport is not None else 0


def _number(transport: asyncio.Transport) -> int:
    one = transport.get_extra_info("socket")
    number: int = one.fileno() if one is not None else -1
    return number
