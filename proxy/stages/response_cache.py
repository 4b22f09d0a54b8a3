"""Response cache: a request that was answered before is answered from what was kept (`semantics.md` §6a).

Fresh answers are given as they are. Old ones are given too while `stale_while_revalidate` lasts, and one detached call
fetches a new one: in class P2, so that it takes nothing from callers. What is kept is told by `single_flight`, below.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from proxy.clock import Clock
from proxy.decisions.cacheability import CacheSettings, Freshness, freshness, worth_keeping
from proxy.decisions.likeness import Wish, wish_of
from proxy.dialects.wholeness import kept, with_age
from proxy.exchange import Exchange
from proxy.observer import CacheUse
from proxy.outcome import Outcome, OutcomeKind
from proxy.ports import CacheStore, Found
from proxy.stage import CallNext, Stage
from proxy.stages.refreshing import Refreshes
from proxy.stages.shared_call import SharedCall, give, stored


class Names(Protocol):
    """Who names what equal requests have in common; `keyed` are the headers (lower case) that are part of it."""

    @property
    def keyed(self) -> frozenset[str]:
        """Headers in which equal requests agree."""
        ...

    def name(self, exchange: Exchange) -> bytes:
        """Returns the name, b"" for a request that shares nothing."""
        ...


class CacheCounts:
    """What has become of one route's lookups and answers, for `/status` and metrics."""

    __slots__ = ("bypassed", "hits", "kept", "misses", "refused", "stale")

    def __init__(self) -> None:
        self.hits = self.stale = self.misses = self.bypassed = self.kept = self.refused = 0

    def __repr__(self) -> str:
        return f"<CacheCounts {self.hits} hits, {self.stale} stale, {self.misses} misses>"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheParts:
    """What a route's cache works with. `seconds`: how long an answer is kept; `refresh` observes a detached call."""

    store: CacheStore
    counts: CacheCounts
    refreshes: Refreshes
    seconds: float
    refresh: Stage


class ResponseCacheStage:
    """Gives what is kept; lets everything else pass."""

    __slots__ = ("_clock", "_names", "_parts", "_settings")

    def __init__(self, settings: CacheSettings, names: Names, *, parts: CacheParts, clock: Clock) -> None:
        self._settings = settings
        self._names = names
        self._parts = parts
        self._clock = clock

    def __call__(self, exchange: Exchange, call_next: CallNext) -> Awaitable[Outcome]:
        """Names the request; one that shares nothing passes."""
        name = exchange.alike = self._names.name(exchange)
        if name:
            return self._cached(exchange, name, call_next)
        self._parts.counts.bypassed += 1
        return call_next(exchange)

    def keep(self, name: bytes, call: SharedCall) -> None:
        """Keeps the answer of a call that has ended, if it is one to be given again."""
        work, parts = call.work, self._parts
        assert call.outcome is not None
        if not worth_keeping(call.outcome, work.facts):
            return
        answer = stored(call)
        if answer is not None:
            answer = kept(answer, operation=work.operation, stream=work.facts.stream, keyed=self._names.keyed)
        if answer is None:
            parts.counts.refused += 1
            return
        parts.counts.kept += 1
        parts.store.keep(name, answer, owner=work.facts.tenant, seconds=parts.seconds, now=self._clock.now())

    async def _cached(self, exchange: Exchange, name: bytes, call_next: CallNext) -> Outcome:
        parts = self._parts
        if wish_of(exchange.request.fields) is not Wish.REFRESH:
            found = await parts.store.find(name, self._clock.now())
            if found is not None and (answered := self._given(exchange, name, found, call_next)) is not None:
                return answered
        parts.counts.misses += 1
        exchange.facts.cache = CacheUse.MISS
        return await call_next(exchange)

    def _given(self, exchange: Exchange, name: bytes, found: Found, call_next: CallNext) -> Outcome | None:
        """Answers with what was found, None when that is too old."""
        parts, now = self._parts, self._clock.now()
        match freshness(found.age, self._settings):
            case Freshness.FRESH:
                parts.counts.hits += 1
                return hand_out(exchange, found, CacheUse.HIT, now=now)
            case Freshness.STALE:
                parts.counts.stale += 1
                parts.refreshes.start(exchange, name, partial(parts.refresh, call_next=call_next))
                return hand_out(exchange, found, CacheUse.STALE, now=now)
            case Freshness.OLD:
                return None


def hand_out(exchange: Exchange, found: Found, use: CacheUse, *, now: float) -> Outcome:
    """Answers with what was kept; its tokens were spent by another call."""
    answer, facts = found.answer, exchange.facts
    facts.provider, facts.model = answer.provider, answer.model
    if use is CacheUse.HIT or not facts.tier:
        facts.tier = answer.tier
    facts.cache, facts.saved, facts.first_byte_at = use, answer.usage, now
    give(exchange, answer.status, answer.phrase, with_age(answer.lines, found.age), answer.length, answer.body)
    return Outcome(OutcomeKind.OK, status=answer.status, committed=True)
