"""Stale cache: a kept answer, old as it may be, when every tier before has failed; a terminal tier."""

from __future__ import annotations

from proxy.clock import Clock
from proxy.exchange import Exchange
from proxy.observer import CacheUse
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from proxy.ports import CacheStore
from proxy.stages.response_cache import CacheCounts, hand_out


class StaleAnswer:
    """Answers from a route's cache, without asking anybody; what is older than `max_age` seconds is not given."""

    __slots__ = ("_clock", "_counts", "_max_age", "_store", "number", "own_key", "provider")

    def __init__(self, store: CacheStore, counts: CacheCounts, *, number: int, max_age: float, clock: Clock) -> None:
        self.number = number
        self.provider = ""
        self.own_key = False
        self._store = store
        self._counts = counts
        self._max_age = max_age
        self._clock = clock

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Gives what is kept; a refusal without a reason of its own where there is nothing.

        A refresh wants no kept answer: it has failed where all others have. Who begins here (`too_long`) shares none.
        """
        name = exchange.alike if exchange.facts.cache is not CacheUse.REFRESH else b""
        found = await self._store.find(name, self._clock.now()) if name else None
        if found is None or found.age > self._max_age:
            if 1 < exchange.first_tier == self.number and not exchange.alike:
                detail = f"this route's tier {self.number} gives kept answers only, and takes no longer prompt"
                return refused(Reason.CONTEXT_TOO_LONG, detail=detail)
            return Outcome(OutcomeKind.REFUSED, detail="no answer is kept that could be given instead")
        self._counts.stale += 1
        return hand_out(exchange, found, CacheUse.STALE, now=self._clock.now())
