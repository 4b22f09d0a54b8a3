"""Breaker: leave to go before any wait, and the verdict at the end.

`slow` is a rule for streams: how long an answer in one piece may take, nobody knows. But who gives one up after most
of its limit tells the same as who gives up a slow stream: else a provider that hangs behind impatient callers is never
seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import inf

from proxy.clock import Clock
from proxy.decisions.breaker import Breaker
from proxy.decisions.observing import Tally
from proxy.decisions.ticket import SLOW_PART
from proxy.decisions.verdict import Verdict, verdict_of
from proxy.exchange import Exchange
from proxy.observer import Observed, Would
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
            return await self._refused(exchange, call_next, now)
        exchange.progress = ticket
        verdict, retry_after = Verdict.GIVEN_UP, None
        try:
            outcome = await call_next(exchange)
            verdict, retry_after = verdict_of(outcome), outcome.retry_after
            return outcome
        except asyncio.CancelledError:
            if exchange.told_error:
                verdict = Verdict.FAILURE
            elif exchange.answered:
                verdict = Verdict.SUCCESS
            raise
        finally:
            exchange.progress = None
            if verdict is Verdict.GIVEN_UP:
                ticket.slow_after = _slow_after(exchange)
            ticket.end(verdict, clock.now(), retry_after=retry_after)

    async def _refused(self, exchange: Exchange, call_next: CallNext, now: float) -> Outcome:
        return refused(Reason.BREAKER_OPEN, retry_after=self._breaker.retry_after(now))


class ObservingBreakerStage(BreakerStage):
    """Asks the breaker and lets every call go (`mode: observe`); one that it would have refused is counted.

    How such a call ends is not told to the breaker: it hears only of those that it would have let go.
    """

    __slots__ = ("_tallies",)

    def __init__(self, breaker: Breaker, *, clock: Clock, tallies: Iterable[Tally]) -> None:
        super().__init__(breaker, clock=clock)
        self._tallies = tuple(tallies)

    async def _refused(self, exchange: Exchange, call_next: CallNext, now: float) -> Outcome:
        for tally in self._tallies:
            tally.count(Would.BREAKER_OPEN)
        facts = exchange.facts
        exchange.note(now, Observed(provider=facts.provider, tier=facts.tier, would=Would.BREAKER_OPEN))
        return await call_next(exchange)


def _slow_after(exchange: Exchange) -> float:
    """Returns after how many seconds an answer in one piece is slow; never, where the caller still sends."""
    attempt = exchange.attempt
    if attempt is None or exchange.request.upload_taken:
        return inf
    return attempt.limits.answer * SLOW_PART
