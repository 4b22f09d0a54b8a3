"""Deadline: the number that every wait below looks at. No nested timeouts."""

from __future__ import annotations

from collections.abc import Awaitable

from proxy.decisions.deadline import deadline_at
from proxy.exchange import Exchange
from proxy.outcome import Outcome
from proxy.stage import CallNext


class DeadlineStage:
    """Sets `exchange.deadline_at` from the route's `total` and what its tiers may wait."""

    __slots__ = ("_seconds",)

    def __init__(self, *, total: float, waits: float) -> None:
        self._seconds = deadline_at(0.0, total, waits)

    def __call__(self, exchange: Exchange, call_next: CallNext) -> Awaitable[Outcome]:
        """Sets the deadline and goes on."""
        exchange.deadline_at = exchange.facts.arrived_at + self._seconds
        return call_next(exchange)
