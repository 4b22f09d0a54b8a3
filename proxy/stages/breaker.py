"""Breaker: leave to go before any wait, and the verdict at the end.

`slow` is a rule for streams: how long an answer in one piece may take, nobody knows. But who gives one up after most
of its limit tells the same as who gives up a slow stream: else a provider that hangs behind impatient callers is never
seen.
"""

from __future__ import annotations

import asyncio
from math import inf

from proxy.clock import Clock
from proxy.decisions.breaker import Breaker
from proxy.decisions.ticket import SLOW_PART
from proxy.decisions.verdict import Verdict, verdict_of
from proxy.exchange import Exchange
from proxy.outcome import Outcome, Reason, refused
from proxy.stage import CallNext


class BreakerStage:
    """Asks the target's breaker for every attempt."""

    __slots__ = ("_breaker", "_clock")

    def __init__(self, breaker: Breaker, *, clock: Clock) -> None:
        self._breaker = breaker
        self._clock = clock

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Outcome:
        """Refuses at once when the breaker is open; otherwise tells it how the call ended."""
        clock = self._clock
        now = clock.now()
        ticket = self._breaker.acquire(now, stream=exchange.facts.stream)
        if ticket is None:
            return refused(Reason.BREAKER_OPEN, retry_after=self._breaker.retry_after(now))
        exchange.progress = ticket
        verdict, retry_after = Verdict.GIVEN_UP, None
        try:
            outcome = await call_next(exchange)
            verdict, retry_after = verdict_of(outcome), outcome.retry_after
            return outcome
        except asyncio.CancelledError:
            if exchange.answered:
                verdict = Verdict.SUCCESS
            raise
        finally:
            exchange.progress = None
            if verdict is Verdict.GIVEN_UP:
                ticket.slow_after = _slow_after(exchange)
            ticket.end(verdict, clock.now(), retry_after=retry_after)


def _slow_after(exchange: Exchange) -> float:
    """Returns after how many seconds an answer in one piece is slow; never, where the caller still sends."""
    attempt = exchange.attempt
    if attempt is None or exchange.request.upload_taken:
        return inf
    return attempt.limits.answer * SLOW_PART
