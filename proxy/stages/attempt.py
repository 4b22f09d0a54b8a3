"""Attempt: one upstream call's record and its limits; the transport watches them, from the wire on."""

from __future__ import annotations

import asyncio

from proxy.clock import Clock
from proxy.decisions.leaving import kind_of_leaving
from proxy.exchange import Attempt, Exchange, PhaseLimits
from proxy.outcome import Outcome, OutcomeKind
from proxy.ports import Bits
from proxy.stage import CallNext


class AttemptStage:
    """Opens the attempt's record and closes it, whatever happened."""

    __slots__ = ("_bits", "_clock", "_limits", "_model", "_provider")

    def __init__(self, *, provider: str, model: str, limits: PhaseLimits, clock: Clock, bits: Bits) -> None:
        self._provider = provider
        self._model = model
        self._limits = limits
        self._clock = clock
        self._bits = bits

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Outcome:
        """Makes the call; its times, kind and reason are recorded even when it is cancelled."""
        facts = exchange.facts
        attempt = Attempt(
            number=len(facts.attempts) + 1,
            tier=facts.tier,
            provider=self._provider,
            model=self._model,
            limits=self._limits,
        )
        if exchange.credential is not None:
            attempt.key_id = exchange.credential.key_id
        attempt.span_id = self._bits(64) or 1
        attempt.started_at = self._clock.now()
        attempt.kind = OutcomeKind.BUG
        exchange.attempt = attempt
        facts.attempts.append(attempt)
        try:
            outcome = await call_next(exchange)
            attempt.kind, attempt.reason = outcome.kind, outcome.reason
            return outcome
        except asyncio.CancelledError:
            attempt.kind = kind_of_leaving(exchange)
            raise
        finally:
            attempt.ended_at = self._clock.now()
