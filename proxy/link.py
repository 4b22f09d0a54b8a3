"""A connection on either side, as asyncio's flow control sees it: slow readers pause their writers, both ways."""

from __future__ import annotations

import asyncio
from typing import cast


class Link(asyncio.Protocol):
    """`transport` is None once the connection is lost. `paused`: the peer does not take what is written."""

    __slots__ = ("_drained", "_pauses", "paused", "transport")

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.paused = False
        self._drained: asyncio.Future[None] | None = None
        self._pauses = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self.transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        """The peer does not take what is written."""
        self.paused = True

    def resume_writing(self) -> None:
        """The peer has taken enough."""
        self.paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def pause_reading(self) -> None:
        """Somebody who reads is slow: so must the peer be."""
        self._pauses += 1
        if self._pauses == 1 and self.transport is not None:
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """A slow reader has caught up; the peer goes on when all have."""
        self._pauses -= 1
        if self._pauses == 0 and self.transport is not None:
            self.transport.resume_reading()

    async def drained(self) -> None:
        """Returns when the peer has taken enough. Raises what `end_writing` was told."""
        if self.paused:
            self._drained = asyncio.get_running_loop().create_future()
            try:
                await self._drained
            finally:
                self._drained = None

    def end_writing(self, error: Exception) -> None:
        """The connection is lost: who waits for its peer is told."""
        self.transport = None
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(error)
