"""A connection on either side, as asyncio's flow control sees it: slow readers pause their writers, both ways."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast, runtime_checkable

MOST_EARLY: Final = 65536
"""Bytes that are kept for who takes a connection over, before its peer is asked to wait."""


class Taker(Protocol):
    """Who has taken a connection over, once it speaks no HTTP any more."""

    def received(self, data: bytes) -> None:
        """The peer has sent this."""
        ...

    def writable(self) -> None:
        """The peer takes again what is written."""
        ...

    def lost(self) -> None:
        """The connection is lost."""
        ...


@runtime_checkable
class HalfTaker(Taker, Protocol):
    """One to whom an end of the peer's half is not the end of the connection."""

    def finished(self) -> None:
        """The peer will send no more."""
        ...


class Link(asyncio.Protocol):
    """`transport` is None once the connection is lost. `paused`: the peer does not take what is written."""

    __slots__ = ("_drained", "_early", "_pauses", "paused", "taker", "transport")

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.paused = False
        self._drained: asyncio.Future[None] | None = None
        self._pauses = 0
        self._early = b""
        self.taker: Taker | None = None

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
        if self.taker is not None:
            self.taker.writable()

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

    def hand_over(self, taker: Taker) -> None:
        """From here on everything that comes is this one's; what came too early is given to it now."""
        self.taker = taker
        early, self._early = self._early, b""
        if len(early) > MOST_EARLY:
            self.resume_reading()
        if early:
            taker.received(early)

    def finish(self) -> bool:
        """The peer will send no more; returns whether that is all: it may still be written to."""
        if not isinstance(self.taker, HalfTaker):
            return False
        self.taker.finished()
        return True

    def beyond(self, data: bytes) -> None:
        """Bytes that are no HTTP came."""
        if self.taker is not None:
            self.taker.received(data)
            return
        before = len(self._early)
        self._early += data
        if before <= MOST_EARLY < len(self._early):
            self.pause_reading()

    def end_writing(self, error: Exception) -> None:
        """The connection is lost: who waits for its peer is told."""
        self.transport = None
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(error)
        taker, self.taker = self.taker, None
        if taker is not None:
            taker.lost()
