"""Observing: what a share would have done to a call that `mode: observe` lets go (`policy.md` rule 10).

Owns the counts of what would have been. Where a line observes nobody waits for a place, so how long a wait would have
been is an estimate: the calls above the limit stand for the queue before the newcomer, and each is taken to hold its
place as long as calls have lately done. Keys are chosen, waited for and refused as ever; only their shares are not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from proxy.decisions.keys import Key, KeyRing
from proxy.decisions.places import Places
from proxy.decisions.queues import Line
from proxy.observer import Would

SMOOTHING = 0.1
"""Part of the latest call in the mean hold: enough of the last twenty calls to tell seconds from minutes."""


class Tally:
    """How many calls would have waited or been refused, by reason, and how long calls hold their places (seconds)."""

    __slots__ = ("counts", "hold_seconds")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(Would, 0)
        self.hold_seconds = 0.0

    def __repr__(self) -> str:
        return f"<Tally {' '.join(f'{would}={count}' for would, count in self.counts.items() if count)}>"

    def count(self, would: Would) -> None:
        """Counts a call that was let go."""
        self.counts[would] += 1

    def held(self, seconds: float) -> None:
        """Takes note of how long a call held its place."""
        self.hold_seconds += (SMOOTHING if self.hold_seconds else 1.0) * (seconds - self.hold_seconds)


def would_do(line: Line, tally: Tally, queue_seconds: float, now: float) -> Would | None:
    """Returns what enforcing would do to a call that comes now and may wait `queue_seconds`; None: let it go."""
    full = _fullest(line, now)
    if full is None:
        return None
    before = full.used - full.size
    if before >= line.room.max_waiters:
        return Would.QUEUE_FULL
    if not full.size or tally.hold_seconds * (before + 1) / full.size >= queue_seconds:
        return Would.QUEUE_TIMEOUT
    return Would.WAIT


def least_busy(ring: KeyRing, tried: Collection[str] | None, now: float) -> Key:
    """Returns the key that is least above its share, untried ones first, when every key that could be used is full."""
    return min(_usable(ring, now), key=lambda key: (key.id in (tried or ()), _above(key.places)))


def _fullest(line: Line, now: float) -> Places | None:
    """Returns the limit whose queue would be the longest; None when the call has a place in all."""
    full = [places for places in line.limits if places.used >= places.size]
    if line.ring is not None:
        own = [key.places for key in _usable(line.ring, now)]
        taken = [places for places in own if places is not None and places.used >= places.size]
        if taken and len(taken) == len(own):
            full.append(min(taken, key=_above))
    return max(full, key=_above, default=None)


def _above(places: Places | None) -> int:
    return places.used - places.size if places is not None else 0


def _usable(ring: KeyRing, now: float) -> Iterator[Key]:
    return (key for key in ring.keys if not key.parked and key.credential is not None and key.rests_until <= now)
