"""A tier over equals, assembled: each member as it is asked early, as the last that can go, and as the last of all.

One before others that can go is called once, keys apart. All but the last of all wait as long as a tier with a later
one: the next equal is asked at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from proxy.decisions.keys import KeyRing, usable
from proxy.decisions.queues import Line
from proxy.runtime.models import TierParts


def as_early(parts: TierParts) -> TierParts:
    """Returns what a member brings to its pipelines while another one that can go is asked after it."""
    return replace(parts, retry=replace(parts.retry, attempts=1))


def waits_of(parts: TierParts) -> float:
    """Returns for how many seconds a tier may wait."""
    return parts.waits.queue + parts.waits.quota_wait


def waits_of_all(members: Iterable[tuple[TierParts, TierParts]]) -> float:
    """Returns for how many seconds a tier over equals (each before others, and as the last) may wait."""
    each = [(waits_of(before), waits_of(last)) for before, last in members]
    return sum(before for before, _ in each) + max(last - before for before, last in each)


def part_left(line: Line, now: float) -> float:
    """Returns which part (0-1) is left of the limit that is nearest to its end; 0 where a call could not go now."""
    part = line.part(now)
    return part if line.ring is None or part <= 0 else min(part, _places_left(line.ring, now))


def _places_left(ring: KeyRing, now: float) -> float:
    """Returns how much (0-1) is left of the permits of the key that has most left of them."""
    return max((1.0 if key.places is None else key.places.part for key in usable(ring, now)), default=0.0)
