"""Metering: what an attempt will probably use of its quotas, what it has used, and what its end says of the limits.

Owns the translation between an exchange and the cores that count: estimates, buckets, keys, the adaptive limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.decisions.adaptive import AdaptiveLimit
from proxy.decisions.counting import FREE, CountSettings, charge
from proxy.decisions.estimates import Estimates
from proxy.decisions.lanes import LaneSettings, lane_of
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Line
from proxy.decisions.quota import Bucket
from proxy.dialects.demand import Demand, demand_of
from proxy.exchange import Exchange
from proxy.outcome import Outcome, OutcomeKind

OVERLOADED: Final = 529


class Meter:
    """Counts the tokens of one tier's calls to one model. `fields` is the tier's `set`: it may change what is asked.

    `reserves`: something bounds tokens; else they are only learned about.
    """

    __slots__ = ("_count", "_estimates", "_fields", "_reserves")

    def __init__(
        self, estimates: Estimates, count: CountSettings, *, fields: Mapping[str, Any], reserves: bool
    ) -> None:
        self._estimates = estimates
        self._count = count
        self._fields = fields
        self._reserves = reserves

    def reserve(self, exchange: Exchange) -> float:
        """Returns how many tokens an attempt will probably use."""
        if not self._reserves:
            return 0.0
        return self._estimates.reserve(_asked(exchange, self._fields), self._count, size=len(exchange.payload or b""))

    def settle(self, permit: Permit, exchange: Exchange) -> None:
        """Says what the attempt has used, however it ended, and learns from it; none was made: it used nothing."""
        attempt = exchange.attempt
        if attempt is None:
            permit.settle(request=FREE.request, tokens=FREE.tokens)
            return
        demand, stream = _asked(exchange, self._fields), exchange.facts.stream
        self._estimates.learn(demand, attempt, stream=stream)
        cost = charge(
            attempt,
            demand=demand,
            estimates=self._estimates,
            count=self._count,
            reserved=permit.tokens,
            stream=stream,
        )
        if attempt.usage is None:
            attempt.usage = cost.usage
        permit.settle(request=cost.request, tokens=cost.tokens)


class Lanes:
    """Which line a call stands in, by its longest answer: one for each of a route's lanes, the last for the rest."""

    __slots__ = ("_fields", "_lanes", "_lines")

    def __init__(self, lanes: tuple[LaneSettings, ...], lines: tuple[Line, ...], *, fields: Mapping[str, Any]) -> None:
        self._lanes = lanes
        self._lines = lines
        self._fields = fields

    def of(self, exchange: Exchange) -> Line:
        """Returns the line of this call."""
        demand = _asked(exchange, self._fields)
        return self._lines[-1 if demand is None else lane_of(self._lanes, demand.output_limit)]


class Adapting:
    """Moves the adaptive limit of a provider, and the places that it stands for."""

    __slots__ = ("_limit", "places")

    def __init__(self, limit: AdaptiveLimit, places: Places) -> None:
        self._limit = limit
        self.places = places

    def in_use(self, permit: Permit) -> int:
        """Returns how many places are in use, or kept for others than the permit's like."""
        return self.places.size - self.places.left(permit.line.groups[permit.klass])

    def judge(self, outcome: Outcome, *, seconds: float, in_use: int, now: float) -> None:
        """Takes an attempt's end; `in_use` is how many calls were in flight when it began."""
        if outcome.kind is OutcomeKind.RATE_LIMITED or outcome.status == OVERLOADED:
            changed = self._limit.refused(now)
        else:
            changed = outcome.kind is OutcomeKind.OK and self._limit.succeeded(seconds, in_use, now)
        if changed:
            self.places.reconfigure(self._limit.size)


def take_hints(permit: Permit, exchange: Exchange, now: float, *, instances: int) -> None:
    """Takes the provider's word for what is left of the key: a ceiling for the bucket that it is about.

    It corrects a policy that promises too much; it does not count what has gone out since. A refusal that this lets
    through rests the key, and another one is asked. Asked after the permit was settled: what comes back of it at its
    release lifts nothing above that word, whichever of several calls at once has heard it.
    """
    attempt, key, line = exchange.attempt, permit.key, permit.line
    if attempt is None or attempt.rates is None or key is None:
        return
    left = key.left
    left.learn(attempt.rates, now, sent_at=attempt.connected_at or None, instances=instances)
    alone = line.ring is not None and len(line.ring.keys) == 1
    for amount, back, own, shared in (
        (left.requests(now), 0.0, key.requests, line.requests),
        (left.tokens(now), permit.unused, key.tokens, line.tokens),
    ):
        if amount is not None and (bucket := _told_of(own, shared, alone=alone)) is not None:
            bucket.hint(amount - back, now)


def _asked(exchange: Exchange, fields: Mapping[str, Any]) -> Demand | None:
    """Returns the caller's demand, as a tier's `set` changes it; None where the body is not understood."""
    demand = demand_of(exchange)
    return demand.changed_by(fields) if demand is not None and fields else demand


def _told_of(own: tuple[Bucket, ...], shared: tuple[Bucket, ...], *, alone: bool) -> Bucket | None:
    """Returns the bucket that a head of one key and one model speaks of, the narrowest; None where there is none.

    Of the `shared` ones the last is the model's, where it has one. What all keys have together no single one tells.
    """
    if not alone and len(shared) > 1:
        return None
    narrow = shared if alone and (len(shared) > 1 or not own) else own
    return narrow[-1] if narrow else None
