"""Clients that leave while something is in their way out: unread bytes before their end, or an answer not taken.

Who is asked to bring nothing more is not listened to: neither FIN nor RST reaches the event loop while a connection's
reading is paused. The system knows of both, and is asked now and then. What it cannot know is the end of a client
whose last bytes found no room in it: such a FIN has not been sent yet.
"""

from __future__ import annotations

import asyncio
from typing import Final

from proxy.downstream.socket_state import has_left
from proxy.link import Link

ASK_SECONDS: Final = 0.5
"""Between two questions; a client that leaves lets its provider go within a second."""


class Departing(Link):
    """A connection whose client may leave at any time. Who inherits it tells whether it is `busy`."""

    __slots__ = ("_asks",)

    def __init__(self) -> None:
        super().__init__()
        self._asks: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """Whether it is the server's turn."""
        raise NotImplementedError

    def pause_reading(self) -> None:
        """Somebody who reads is slow: so must the client be, and it may lose patience."""
        super().pause_reading()
        if self._asks is None:
            # It stays when reading goes on: most pauses are short, and most follow each other.
            self._asks = asyncio.get_running_loop().call_later(ASK_SECONDS, self._ask)

    def eof_received(self) -> bool | None:
        """A client that leaves takes nothing more of an answer under way: what waits for it must not keep it here.

        Bytes of an answer that has come to its end are still delivered, and so are those of another protocol.
        """
        transport = self.transport
        if transport is not None and self.busy and self.taker is None and transport.get_write_buffer_size():
            transport.abort()
        return None

    def end_writing(self, error: Exception) -> None:
        """The connection is lost."""
        if self._asks is not None:
            self._asks.cancel()
            self._asks = None
        super().end_writing(error)

    def _ask(self) -> None:
        self._asks = None
        transport = self.transport
        if transport is None or not self._pauses:
            return
        if has_left(transport, closed=self.taker is None):
            transport.abort()
        else:
            self._asks = asyncio.get_running_loop().call_later(ASK_SECONDS, self._ask)
