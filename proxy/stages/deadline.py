"""Deadline: the number that every wait below looks at. No nested timeouts."""

from __future__ import annotations

from collections.abc import Awaitable

from proxy.decisions.deadline import deadline_at
from proxy.exchange import Exchange
from proxy.outcome import Outcome
from proxy.stage import CallNext


class DeadlineStage:
    """Sets `exchange.deadline_at` from the route's `total` and what its tiers, or P2's class, allow for waiting.

    `waits` are the seconds of all tiers together, `idle_waits` those that a P2 call has instead.
    """

    __slots__ = ("_idle_seconds", "_seconds")

    def __init__(self, *, total: float, waits: float, idle_waits: float) -> None:
        self._seconds = deadline_at(0.0, total, waits)
        self._idle_seconds = deadline_at(0.0, total, idle_waits)

    def __call__(self, exchange: Exchange, call_next: CallNext) -> Awaitable[Outcome]:
        """Sets the deadline and goes on."""
        facts = exchange.facts
        exchange.deadline_at = facts.arrived_at + (self._seconds if facts.klass != "P2" else self._idle_seconds)
        return call_next(exchange)
