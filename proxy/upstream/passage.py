"""A tunnel to a provider (CONNECT): dialled before it is agreed to, then bytes both ways, untouched.

It has a permit as long as it is open. What ends it: both sides have ended, a break of either, a side that takes nothing
for `idle`, silence for `answer` (for `idle`, where one side has ended), or a shutdown. A TLS client that asks for
another name than it was let through for is cut off before the provider sees a byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from aiohttp import ClientError

from proxy.clock import Clock
from proxy.exchange import CancelCause, Exchange
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from proxy.upstream.call import Call
from proxy.upstream.headers import AnswerHeaders
from proxy.upstream.passing import End
from proxy.upstream.pool import Pool
from proxy.upstream.wire import UpstreamConnection

HELLO_SECONDS: Final = 3.0
LONGEST_LOOK: Final = 5.0
SHORT_LOOK: Final = 0.2
ESTABLISHED: Final = 200
_DIAL_EXPECTED: Final = (ClientError, OSError, TimeoutError, ValueError)

Judge = Callable[[bytes], bool | None]
"""Whether a client may pass by the first bytes that it has sent; None: more have to come."""
Own = Callable[[str, int, str], bool]
"""Whether a connection to this address and port, from that address, leads to a listener of this process."""


class Passage:
    """The terminal of tunnels to one destination."""

    __slots__ = ("_clock", "_headers", "_judge", "_own", "_pool")

    def __init__(self, *, pool: Pool, judge: Judge, own: Own, clock: Clock) -> None:
        self._pool = pool
        self._judge = judge
        self._own = own
        self._clock = clock
        self._headers = AnswerHeaders(heeds_rates=False)

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Dials, agrees, and returns once the tunnel has ended; a dial that failed is an answer like any other."""
        call = Call(exchange, self._pool, self._headers, self._clock)
        call.attempt.address = self._pool.peer
        if exchange.progress is not None:
            exchange.progress.on_wire(self._clock.now())
        try:
            try:
                connection = await call.dial()
            except _DIAL_EXPECTED as error:
                late = isinstance(error, TimeoutError)
                return call.not_connected(OutcomeKind.CONNECT_TIMEOUT if late else OutcomeKind.UNREACHABLE, error)
            if self._leads_here(connection):
                return refused(Reason.LOOP_DETECTED, detail="the tunnel would lead to this proxy itself")
            return await Passing(call, connection, self._judge).run()
        finally:
            call.close()

    def _leads_here(self, connection: UpstreamConnection) -> bool:
        transport = connection.transport
        here = transport.get_extra_info("sockname") if transport is not None else None
        return self._own(connection.remote, self._pool.peer[1], here[0] if here else "")


class Passing:
    """One tunnel that was dialled; `run` returns once it has ended."""

    def __init__(self, call: Call, connection: UpstreamConnection, judge: Judge) -> None:
        exchange, attempt = call.exchange, call.attempt
        assert exchange.request.switch is not None
        self._call = call
        self._judge = judge
        self._held = b""
        self._held_since = 0.0
        self._outcome: Outcome | None = None
        self._woken: asyncio.Future[None] | None = None
        now = self._moved_at = attempt.connected_at
        attempt.head_at = exchange.facts.first_byte_at = now
        attempt.status = ESTABLISHED
        attempt.first_content_at = now
        if exchange.progress is not None:
            # That it can be dialled is all that is asked of a provider behind a tunnel.
            exchange.progress.first_content(now)
        client = exchange.request.switch(b"")
        exchange.answered = True
        self._client = End(self, client, gate=self._gate)
        self._provider = End(self, connection)
        self._client.other, self._provider.other = self._provider, self._client

    async def run(self) -> Outcome:
        """Passes bytes until the end, however it comes."""
        client, provider = self._client, self._provider
        limits = self._call.attempt.limits
        look = min(limits.idle / 4, limits.answer / 4, LONGEST_LOOK)
        try:
            client.link.hand_over(client)
            provider.link.hand_over(provider)
            if provider.link.transport is None:
                self.lost(provider)
            while self._outcome is None:
                await self._sleep(SHORT_LOOK if self._held or self._client.ended else look)
                self._look()
        except asyncio.CancelledError:
            if self._call.exchange.cancel_cause is CancelCause.DRAIN:
                client.reset()
            if self._outcome is None:
                raise
            # How it ended was known before; that the client's connection is lost, too, only follows from it.
            cast("asyncio.Task[object]", asyncio.current_task()).uncancel()
        finally:
            self._count()
            client.let_go()
            provider.let_go()
        return self._outcome

    # What the ends tell.

    def moved(self) -> None:
        """Something has passed."""
        self._moved_at = self._call.clock.now()

    def finishes(self, end: End) -> None:
        """An end will send no more: what was held up of it is all that there is."""
        self.moved()
        if end is self._client:
            self._release()

    def wake(self) -> None:
        """There may be something to do."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def lost(self, end: End) -> None:
        """A connection is lost; when it is the caller's, its exchange is cancelled."""
        if end is self._provider and self._outcome is None:
            self._client.reset()
            self._end(OutcomeKind.STREAM_BROKEN, "the provider's connection broke")

    def refused(self) -> None:
        """The client asks for another name."""
        self._client.reset()
        why = "the TLS client asks for another name than it was let through for"
        self._end(OutcomeKind.CALLER_ERROR, why, reason=Reason.MISDIRECTED)

    def _gate(self, data: bytes) -> bytes | None:
        held = self._held = self._held + data
        may = self._judge(held)
        if may is None:
            if held and not self._held_since:
                self._held_since = self._call.clock.now()
                self.wake()
            return b""
        self._held = b""
        if not may:
            return None
        self._client.open_gate(b"")
        return held

    def _release(self) -> None:
        """Lets pass what was held up."""
        held, self._held = self._held, b""
        if held:
            self._client.open_gate(held)

    # How it ends.

    def _look(self) -> None:
        """Ends what must not go on."""
        if self._outcome is not None:
            return
        now, limits = self._call.clock.now(), self._call.attempt.limits
        if self._held and now - self._held_since >= HELLO_SECONDS:
            self._release()
        if self._client.ended and self._provider.ended and not self._provider.unsent:
            self._client.close()
            self._end(OutcomeKind.OK)
        elif self._client.stuck_for(now) >= limits.idle:
            self._client.reset()
            self._end(OutcomeKind.CLIENT_LEFT, "the client does not take what the provider sends")
        elif self._provider.stuck_for(now) >= limits.idle:
            self._client.reset()
            self._end(OutcomeKind.IDLE_TIMEOUT, "the provider does not take what the client sends")
        elif now - self._moved_at >= (limits.idle if self._client.ended or self._provider.ended else limits.answer):
            self._client.close()
            self._end(OutcomeKind.OK, "nothing was said any more")

    def _end(self, kind: OutcomeKind, why: str = "", *, reason: Reason | None = None) -> None:
        if self._outcome is None:
            self._outcome = Outcome(kind, reason=reason, status=ESTABLISHED, committed=True, detail=why)
        self.wake()

    def _count(self) -> None:
        attempt, facts = self._call.attempt, self._call.exchange.facts
        attempt.sent_bytes = facts.request_bytes = self._client.size
        attempt.answer_bytes = facts.answer_bytes = self._provider.size

    async def _sleep(self, seconds: float) -> None:
        woken = self._woken = asyncio.get_running_loop().create_future()
        await asyncio.wait((woken,), timeout=seconds)
        self._woken = None
