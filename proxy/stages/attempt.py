"""Attempt: one upstream call's record and its limits; the transport watches them, from the wire on.

Where a limit follows the target's pace, it is taken anew for each attempt, and the attempt's end is told to the pace.
Streams have a first-byte limit instead, and how long an upload takes says nothing about its target.
"""

from __future__ import annotations

import asyncio

from proxy.clock import Clock
from proxy.decisions.leaving import kind_of_leaving
from proxy.decisions.pace import PacedLimits
from proxy.exchange import Attempt, Exchange, PhaseLimits
from proxy.outcome import Outcome, OutcomeKind
from proxy.ports import Bits
from proxy.stage import CallNext


class AttemptStage:
    """Opens the attempt's record and closes it, whatever happened."""

    __slots__ = ("_bits", "_clock", "_limits", "_model", "_paced", "_provider")

    def __init__(
        self,
        *,
        provider: str,
        model: str,
        limits: PhaseLimits,
        clock: Clock,
        bits: Bits,
        paced: PacedLimits | None = None,
    ) -> None:
        self._provider = provider
        self._model = model
        self._limits = limits
        self._paced = paced
        self._clock = clock
        self._bits = bits

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Outcome:
        """Makes the call; its times, kind and reason are recorded even when it is cancelled."""
        facts, paced = exchange.facts, self._paced
        if paced is not None and (facts.stream or exchange.payload is None):
            paced = None
        now = self._clock.now()
        attempt = Attempt(
            len(facts.attempts) + 1,
            facts.tier,
            self._provider,
            self._model,
            self._limits if paced is None else paced.limits(now),
        )
        if exchange.credential is not None:
            attempt.key_id = exchange.credential.key_id
        attempt.span_id = self._bits(64) or 1
        attempt.started_at = now
        attempt.kind = OutcomeKind.BUG
        exchange.attempt = attempt
        facts.attempts.append(attempt)
        if exchange.on_attempt is not None:
            exchange.on_attempt()
        try:
            outcome = await call_next(exchange)
            attempt.kind, attempt.reason = outcome.kind, outcome.reason
            return outcome
        except asyncio.CancelledError:
            attempt.kind = kind_of_leaving(exchange)
            raise
        finally:
            attempt.ended_at = self._clock.now()
            if paced is not None:
                paced.learn(attempt, attempt.ended_at)
