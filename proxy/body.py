"""A body on its way: the pieces that a connection brings, for one reader that waits for them or takes them at once.

Both sides of the proxy read bodies in this way. What nobody takes is kept up to a bound; beyond it the connection is
asked to bring no more, so that its peer waits too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

BOUND_BYTES: Final = 65536


class BodyBroken(Exception):
    """The body ended before its end, or its framing cannot be read; the text says which."""


class Source(Protocol):
    """The connection that brings the pieces."""

    def pause_reading(self) -> None:
        """Brings nothing more for now."""
        ...

    def resume_reading(self) -> None:
        """Goes on."""
        ...


class Body:
    """One body. Its connection calls `feed`, then `end` or `fail`; its reader awaits `readany` or `flow`."""

    __slots__ = ("_pausing", "_pieces", "_size", "_source", "_take", "_waiter", "broken", "total_bytes", "_ended")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._pieces: list[bytes] = []
        self._size = self.total_bytes = 0
        self._pausing = self._ended = False
        self._take: Callable[[bytes], bool] | None = None
        self._waiter: asyncio.Future[bool] | None = None
        self.broken: str | None = None

    def __repr__(self) -> str:
        state = "broken" if self.broken is not None else "whole" if self._ended else "arriving"
        return f"<Body {state}, {self.total_bytes} bytes so far>"

    def feed(self, piece: bytes) -> None:
        """Takes the next piece from the connection."""
        self.total_bytes += len(piece)
        if self._take is not None:
            self._pass(self._take, piece)
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._waiter is not None:
            self._wake(True)
        if self._size > BOUND_BYTES and not self._pausing:
            self._pausing = True
            self._source.pause_reading()

    def end(self) -> None:
        """The body has come to its end."""
        if self.broken is None:
            self._ended = True
            if self._waiter is not None:
                self._wake(True)

    def fail(self, why: str) -> None:
        """The body will not come to its end; its reader gets what came before, and then `BodyBroken`."""
        if self._ended or self.broken is not None:
            return
        # No error is kept here: once raised it refers to its readers, and they to this body.
        self.broken = why
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            # Whoever waits has taken everything that came.
            self._take = None
            waiter.set_exception(BodyBroken(why))

    def is_eof(self) -> bool:
        """Whether the end has arrived, read or not."""
        return self._ended

    def at_eof(self) -> bool:
        """Whether everything has arrived and was read."""
        return self._ended and not self._pieces

    async def readany(self) -> bytes:
        """Returns what has arrived, waiting for it; b"" at the end. Raises what broke the body."""
        if not self._pieces:
            if self.broken is not None:
                raise BodyBroken(self.broken)
            if self._ended:
                return b""
            await self._wait()
        return self.taken()

    def taken(self) -> bytes:
        """Returns what has arrived and was not read yet, at once."""
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._size = 0
        if self._pausing:
            self._resume()
        return data

    async def flow(self, take: Callable[[bytes], bool]) -> bool:
        """Hands every piece to `take` inside the event that brings it: no task wakes up for a piece.

        Returns True at the end of the body, False once `take` has returned False. Raises what broke the body.
        """
        if self._pieces and not self._hand_over(take):
            return False
        if self._pausing:
            self._resume()
        if self.broken is not None:
            raise BodyBroken(self.broken)
        if self._ended:
            return True
        self._take = take
        try:
            return await self._wait()
        finally:
            self._take = None

    def _hand_over(self, take: Callable[[bytes], bool]) -> bool:
        """Hands what has arrived to `take`; what it did not come to stays."""
        pieces, count, goes_on = self._pieces, 0, True
        try:
            for piece in pieces:
                count += 1
                self._size -= len(piece)
                if not take(piece):
                    goes_on = False
                    break
        finally:
            del pieces[:count]
        return goes_on

    async def _wait(self) -> bool:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def _pass(self, take: Callable[[bytes], bool], piece: bytes) -> None:
        """A failing `take` fails its reader, never the connection's parser."""
        try:
            if take(piece):
                return
        except Exception as error:  # noqa: BLE001 - it must reach the reader's task
            self._take = None
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_exception(error)
            return
        self._take = None
        self._wake(False)

    def _wake(self, result: bool) -> None:
        self._take = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(result)

    def _resume(self) -> None:
        self._pausing = False
        self._source.resume_reading()
