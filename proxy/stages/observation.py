"""Observation: the outermost stage. Sees refusals too, answers what nobody answered, tells the observer once."""

from __future__ import annotations

import asyncio
import logging

from proxy.clock import Clock
from proxy.decisions.leaving import kind_of_leaving
from proxy.exchange import Exchange
from proxy.observer import Observer
from proxy.outcome import Outcome, OutcomeKind
from proxy.ports import Rescue
from proxy.stage import CallNext

_log = logging.getLogger("sponson.pipeline")


class ObservationStage:
    """Closes an exchange's facts, whatever happened."""

    __slots__ = ("_clock", "_observer", "_rescue")

    def __init__(self, observer: Observer, *, rescue: Rescue, clock: Clock) -> None:
        self._observer = observer
        self._rescue = rescue
        self._clock = clock

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Outcome:
        """Runs the rest; a bug becomes an answer, a cancellation is recorded and goes on."""
        try:
            outcome = await call_next(exchange)
        except asyncio.CancelledError:
            self._end(exchange, Outcome(kind_of_leaving(exchange), committed=exchange.answered or exchange.told_error))
            raise
        except Exception:  # noqa: BLE001 - a bug in one request must not cost its caller the answer
            _log.exception("request %s met a bug", exchange.facts.request_id)
            outcome = Outcome(OutcomeKind.BUG)
        self._end(exchange, outcome)
        return outcome

    def refuse(self, exchange: Exchange, outcome: Outcome) -> None:
        """Answers and records a request that never enters the pipeline."""
        self._end(exchange, outcome)

    def _end(self, exchange: Exchange, outcome: Outcome) -> None:
        facts = exchange.facts
        try:
            if not outcome.committed and outcome.kind is not OutcomeKind.CLIENT_LEFT:
                self._rescue(exchange, outcome)
        finally:
            facts.kind = outcome.kind
            facts.reason = outcome.reason
            facts.detail = outcome.detail
            facts.ended_at = self._clock.now()
            # Whoever counts what ended looks at no body any more.
            exchange.forget_body()
            self._observer.ended(exchange)
