"""Context: a prompt that is longer than a model takes is not sent to it; with that, the next tier is asked."""

from __future__ import annotations

from collections.abc import Awaitable

from proxy.clock import Clock
from proxy.decisions.estimates import Estimates
from proxy.decisions.observing import Tally
from proxy.dialects.demand import demand_of
from proxy.exchange import Exchange
from proxy.observer import Observed, Would
from proxy.outcome import Outcome, Reason, refused
from proxy.stage import CallNext


class ContextStage:
    """Refuses, before anything is asked, what is estimated above `most` tokens of input.

    A body that is not understood passes: nobody knows how long its prompt is.
    """

    __slots__ = ("_estimates", "_model", "_most")

    def __init__(self, most: int, *, model: str, estimates: Estimates) -> None:
        self._most = most
        self._model = model
        self._estimates = estimates

    def __call__(self, exchange: Exchange, call_next: CallNext) -> Awaitable[Outcome]:
        """Looks at the prompt and goes on."""
        demand = demand_of(exchange)
        tokens = self._estimates.input_tokens(demand) if demand is not None else 0.0
        return self._too_long(exchange, call_next, tokens) if tokens > self._most else call_next(exchange)

    def _too_long(self, exchange: Exchange, call_next: CallNext, tokens: float) -> Awaitable[Outcome]:
        detail = f"about {tokens:.0f} tokens of input are more than the {self._most} that {self._model} takes"
        return _ended(refused(Reason.CONTEXT_TOO_LONG, detail=detail))


class ObservingContextStage(ContextStage):
    """Lets everything go, and counts what is too long (`mode: observe`)."""

    __slots__ = ("_clock", "_tally")

    def __init__(self, most: int, *, model: str, estimates: Estimates, tally: Tally, clock: Clock) -> None:
        super().__init__(most, model=model, estimates=estimates)
        self._tally = tally
        self._clock = clock

    def _too_long(self, exchange: Exchange, call_next: CallNext, tokens: float) -> Awaitable[Outcome]:
        facts, would = exchange.facts, Would.CONTEXT_TOO_LONG
        self._tally.count(would)
        exchange.note(self._clock.now(), Observed(provider=facts.provider, tier=facts.tier, would=would))
        return call_next(exchange)


async def _ended(outcome: Outcome) -> Outcome:
    return outcome
