"""Ends of connections that must not look like ends of answers."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final

_NO_LINGER: Final = struct.pack("ii", 1, 0)


def reset(transport: asyncio.Transport) -> None:
    """Ends a connection by RST: an abort alone drops what was not sent, and then says FIN like any other end.

    Where an answer ends with its connection (RFC 9112 §6.3, rule 8) this is all that shows that it is not whole.
    """
    one = transport.get_extra_info("socket")
    number = one.fileno() if one is not None else -1
    if number >= 0:
        # The loop's own object may not set options; one that borrows its descriptor may.
        borrowed = socket.socket(fileno=number)
        try:
            borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        except OSError:
            # The client was faster.
            pass
        finally:
            borrowed.detach()
    transport.abort()
