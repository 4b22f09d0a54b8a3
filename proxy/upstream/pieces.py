"""Pieces of an answer, passed on inside the event that brought them; a reader that has stopped is ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from proxy.dialects.injection import UsageFilter
from proxy.exchange import Reply
from proxy.outcome import OutcomeKind
from proxy.upstream.meter import Meter

if TYPE_CHECKING:
    from proxy.upstream.call import Call


class Pieces:
    """The body of one answer on its way, after its head was written."""

    __slots__ = (
        "_begun",
        "_call",
        "_clock_now",
        "_deadline_at",
        "_end",
        "_feed",
        "_idle",
        "_meter",
        "_reply",
        "_signs",
        "_stream_end",
        "_watch",
        "_write",
        "size",
    )

    def __init__(self, call: Call, meter: Meter | None, *, hides: UsageFilter | None, deadline_at: float) -> None:
        limits = call.attempt.limits
        self._call = call
        self._meter = meter
        self._feed: Callable[[bytes], None] = meter.feed if meter is not None else _nobody_looks
        self._reply = call.exchange.reply
        self._write: Callable[[bytes], None] = self._reply.write if hides is None else _Hiding(self._reply, hides).write
        self._clock_now = call.clock.now
        self._idle = limits.idle
        self._deadline_at = deadline_at
        self._stream_end = call.attempt.connected_at + limits.stream
        self._end = min(deadline_at, self._stream_end)
        self._watch = call.watch
        self._signs = meter.signs if meter is not None else 0
        self._begun = call.attempt.first_content_at > 0.0
        self.size = 0

    async def pass_on(self, held: list[bytes]) -> None:
        """Writes what was held (and looked at) already, then every piece as it comes. Raises what broke the body."""
        if self._waits_for_content():
            call = self._call
            call.watch.arm(call.attempt.connected_at + call.attempt.limits.first_byte, OutcomeKind.FIRST_BYTE_TIMEOUT)
        else:
            self._watch_from(self._clock_now())
        for piece in held:
            self._write(piece)
            self.size += len(piece)
        call = self._call
        payload = call.payload
        try:
            while True:
                if self._reply.paused:
                    await self._drain()
                if await payload.flow(self._take):
                    break
        finally:
            # Of an answer that is cut, this is all that tells what it has cost.
            call.attempt.answer_bytes = self.size
        if self.size and not call.attempt.first_content_at:
            # Nothing in it was told apart as content; the verdict follows at once.
            call.attempt.first_content_at = self._clock_now()

    def _take(self, piece: bytes) -> bool:
        """Passes one piece on; returns False when its reader must catch up first."""
        self._feed(piece)
        self._write(piece)
        self.size += len(piece)
        if not self._begun:
            return self._look_for_content()
        meter = self._meter
        if meter is not None:
            signs = meter.signs
            if signs == self._signs:
                # Of events, only a whole one is a sign of life.
                return not self._reply.paused
            self._signs = signs
        now = self._clock_now()
        due = now + self._idle
        if due < self._end:
            self._watch.due = due
        else:
            self._watch_from(now)
        return not self._reply.paused

    def _look_for_content(self) -> bool:
        """Does the rest of that while no content has come."""
        call, meter, now = self._call, self._meter, self._clock_now()
        if meter is None or meter.content:
            self._begun = True
            call.content_came(now)
            self._watch_from(now)
        elif not call.exchange.facts.stream and meter.signs != self._signs:
            self._watch_from(now)
        if meter is not None:
            self._signs = meter.signs
        return not self._reply.paused

    def _waits_for_content(self) -> bool:
        """A stream's first-byte time means first content: until then its limit goes on, head or no head."""
        return self._call.exchange.facts.stream and self._meter is not None and not self._meter.content

    def _watch_from(self, now: float) -> None:
        """Watches the time until the next piece, and the whole stream's."""
        watch, idle_due = self._watch, now + self._idle
        if self._stream_end < idle_due:
            watch.arm(self._stream_end, OutcomeKind.STREAM_TIMEOUT, deadline_at=self._deadline_at)
        else:
            watch.arm(idle_due, OutcomeKind.IDLE_TIMEOUT, deadline_at=self._deadline_at)

    async def _drain(self) -> None:
        """Waits for a slow reader; the provider waits too, and the watch ends a reader that has stopped."""
        call = self._call
        call.stalled = True
        self._watch.arm(self._clock_now() + self._idle, OutcomeKind.CLIENT_LEFT)
        await self._reply.drain()
        call.stalled = False
        self._watch_from(self._clock_now())


class _Hiding:
    """Writes what of each piece the caller is to see.

    A method of the pieces themselves would not do: they would refer to themselves, and everything that a stream has
    would wait for the garbage collector.
    """

    __slots__ = ("_feed", "_write")

    def __init__(self, reply: Reply, hides: UsageFilter) -> None:
        self._feed = hides.feed
        self._write = reply.write

    def write(self, piece: bytes) -> None:
        """Takes a piece."""
        self._write(self._feed(piece))


def _nobody_looks(piece: bytes) -> None:
    """An answer without a meter."""
