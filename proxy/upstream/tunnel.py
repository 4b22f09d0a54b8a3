"""A WebSocket between the caller and a provider that has agreed to it: frames pass, breaks and endings are told.

The permit is held as long as it is open. Silence is no failure: who has said nothing for `idle` is asked by a ping of
ours whether it is still there, and its pong goes no further. What ends it is a close of either side, `stream`, a
message beyond the route's `body.max`, a side that neither reads nor answers, or a shutdown.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from proxy.dialects.realtime import RealtimeMeter
from proxy.exchange import CancelCause
from proxy.outcome import Outcome, OutcomeKind
from proxy.upstream.side import Side
from proxy.websocket.frames import BAD_GATEWAY, GOING_AWAY, TOO_BIG, Violation

if TYPE_CHECKING:
    from proxy.upstream.call import Call
    from proxy.upstream.wire import UpstreamConnection

CLOSE_SECONDS: Final = 2.0
"""How long a side may take to answer a close, and the provider to end the connection after it."""
FLUSH_SECONDS: Final = 0.5
LONGEST_LOOK: Final = 5.0
_FAILURES: Final = range(1011, 1015)
"""Codes by which a server says that it fails: error, restart, overload, bad gateway (IANA's registry)."""


class Tunnel:
    """One WebSocket; `run` returns once it has ended."""

    def __init__(self, call: Call, lines: bytes) -> None:
        exchange, attempt = call.exchange, call.attempt
        assert exchange.request.switch is not None
        assert call.connection is not None
        self._call = call
        self.now = call.clock.now
        self.mark = b"sponson %016x" % attempt.span_id
        self._meter = RealtimeMeter()
        self._outcome: Outcome | None = None
        self._woken: asyncio.Future[None] | None = None
        self._closing_at = 0.0
        self._closed_by: Side | None = None
        call.watch.rest()
        exchange.facts.first_byte_at = attempt.head_at
        call.content_came(attempt.head_at)
        most = exchange.plan.body_max
        client = exchange.request.switch(lines)
        mask = (attempt.span_id & 0xFFFFFFFF).to_bytes(4, "big")
        self._client = Side(self, client, most=most, mask=None)
        self._provider = Side(self, call.connection, most=most, mask=mask, text=self._meter.feed)
        self._client.other, self._provider.other = self._provider, self._client

    async def run(self) -> Outcome:
        """Passes frames until the end, however it comes."""
        limits = self._call.attempt.limits
        look = min(limits.idle / 4, limits.stream / 4, LONGEST_LOOK)
        # A provider may say why it goes, and reset the connection on which its client still speaks.
        cast("UpstreamConnection", self._call.connection).listen()
        self._client.link.hand_over(self._client)
        self._provider.link.hand_over(self._provider)
        if self._provider.link.transport is None:
            self.lost(self._provider)
        try:
            while self._outcome is None:
                await self._sleep(min(look, CLOSE_SECONDS) if self._closing_at else look)
                self._look()
            await self._farewell()
        except asyncio.CancelledError:
            self._left()
            await self._flush()
            if self._outcome is None or self._call.exchange.cancel_cause is CancelCause.DRAIN:
                raise
            # How it ended was known before the caller left.
            cast("asyncio.Task[object]", asyncio.current_task()).uncancel()
        finally:
            self._client.let_go()
            self._provider.let_go()
            self._call.attempt.usage = self._call.exchange.facts.usage = self._meter.usage
        return self._outcome

    # What the sides tell.

    def wrote(self, side: Side, size: int) -> None:
        """Counts what the caller was given."""
        if side is self._client:
            self._call.attempt.answer_bytes += size
            self._call.exchange.facts.answer_bytes += size

    def violated(self, side: Side, violation: Violation) -> None:
        """A side sent what is no frame, or too much."""
        why = str(violation)
        if side is self._client:
            self._end(OutcomeKind.CALLER_ERROR, f"the client: {why}", client=violation.code)
        elif violation.code == TOO_BIG:
            # It is the route's limit, and no failure of the provider's.
            self._end(OutcomeKind.CALLER_ERROR, f"the provider: {why}", client=TOO_BIG, provider=TOO_BIG)
        else:
            self._end(OutcomeKind.BAD_ANSWER, f"the provider: {why}", client=BAD_GATEWAY, provider=violation.code)

    def closing(self, side: Side) -> None:
        """A side has said that it closes; whoever answers repeats the code of whoever was first."""
        self._closing_at = self._closing_at or self.now()
        self._closed_by = self._closed_by or side
        if self._client.frames.closed and self._provider.frames.closed:
            self._closed()
        else:
            self._wake()

    def lost(self, side: Side) -> None:
        """A connection is lost; when it is the caller's, its exchange is cancelled."""
        if side is self._client or self._outcome is not None:
            self._wake()
        elif self._client.frames.closed or self._provider.frames.closed:
            self._closed()
        else:
            self._end(OutcomeKind.STREAM_BROKEN, "the provider's connection broke", client=BAD_GATEWAY)

    # How it ends.

    def _look(self) -> None:
        """Ends what must not go on."""
        if self._outcome is not None:
            return
        now, limits = self.now(), self._call.attempt.limits
        if self._closing_at:
            if now - self._closing_at >= CLOSE_SECONDS:
                self._closed()
        elif now >= self._call.attempt.connected_at + limits.stream:
            self._end(OutcomeKind.STREAM_TIMEOUT, "the longest time for a connection (timeouts.stream) is over")
        elif self._client.gone_by(now, limits.idle):
            self._end(OutcomeKind.CLIENT_LEFT, "the client neither reads nor answers")
            self._abort(self._client)
        elif self._provider.gone_by(now, limits.idle):
            why = "the provider neither reads nor answers"
            self._end(OutcomeKind.IDLE_TIMEOUT, why, client=BAD_GATEWAY)
            self._abort(self._provider)

    def _closed(self) -> None:
        """Both sides have closed, or one has and the other does not answer."""
        if self._outcome is None:
            code = self._provider.code
            failed = code in _FAILURES and self._closed_by is self._provider
            kind = OutcomeKind.ERROR_IN_ANSWER if failed else OutcomeKind.OK
            detail = f"the provider closed with {code}" if failed else ""
            self._outcome = Outcome(kind, status=101, committed=True, detail=detail)
            self._call.exchange.answered = not failed
        self._wake()

    def _end(self, kind: OutcomeKind, why: str, *, client: int = GOING_AWAY, provider: int = GOING_AWAY) -> None:
        """Ends it for a reason of ours, which both sides are told as far as they can be."""
        if self._outcome is None:
            self._outcome = Outcome(kind, status=101, committed=True, detail=why)
            self._client.say_close(client, why)
            self._provider.say_close(provider, "")
        self._wake()

    async def _farewell(self) -> None:
        """Gives both sides a moment to end as they should: the provider first (RFC 6455 §7.1.1)."""
        due = self.now() + CLOSE_SECONDS
        while self._provider.link.transport is not None and (left := due - self.now()) > 0:
            await self._sleep(left)

    async def _flush(self) -> None:
        """Gives the provider a moment to take what was said last; a connection that is killed loses it."""
        due = self.now() + FLUSH_SECONDS
        while (transport := self._provider.link.transport) is not None and transport.get_write_buffer_size():
            if self.now() >= due:
                break
            await self._sleep(FLUSH_SECONDS / 50)

    def _left(self) -> None:
        """The exchange was cancelled: the caller has left, or this instance shuts down."""
        if self._outcome is not None:
            return
        if self._call.exchange.cancel_cause is CancelCause.DRAIN:
            self._end(OutcomeKind.DRAINED, "this instance shuts down")
        else:
            self._call.exchange.answered = self._client.frames.closed
            self._provider.say_close(GOING_AWAY, "")

    def _abort(self, side: Side) -> None:
        if side.link.transport is not None:
            side.link.transport.abort()

    async def _sleep(self, seconds: float) -> None:
        """Returns when something has happened, and after so many seconds at most."""
        woken = self._woken = asyncio.get_running_loop().create_future()
        await asyncio.wait((woken,), timeout=seconds)
        self._woken = None

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
