"""Observing: what a share would have done to a call that `mode: observe` lets go (`policy.md` rule 10).

Owns the counts of what would have been. Where a line observes nobody waits for a place, so how long a wait would have
been is an estimate: the calls above the limit stand for the queue before the newcomer, and each is taken to hold its
place as long as calls have lately done. Keys are chosen, waited for and refused as ever; only their shares are not.
"""

from __future__ import annotations

from collections.abc import Collection

from proxy.decisions.deadline import WaitLimits
from proxy.decisions.forecast import too_large
from proxy.decisions.keys import usable
from proxy.decisions.places import Places
from proxy.decisions.queues import Line
from proxy.decisions.room import LOWEST
from proxy.decisions.taking import emptiest
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


def would_do(
    line: Line, tally: Tally, waits: WaitLimits, now: float, *, klass: int = 1, tokens: float = 0.0
) -> Would | None:
    """Returns what enforcing would do to a call that comes now and may wait so long; None: let it go."""
    if too_large(line, tokens) is not None:
        return Would.CONTEXT_TOO_LONG
    groups = line.groups[klass]
    quota = _quota(line, klass, tokens, now)
    full = _fullest(line, groups, now)
    if quota > waits.quota_wait:
        return Would.QUOTA_EXHAUSTED
    if full is None:
        return Would.WAIT if quota > 0 or (klass == LOWEST and not line.room.idle(now)) else None
    before, most = -full.left(groups), full.most(groups)
    if before >= line.room.max_waiters:
        return Would.QUEUE_FULL
    if most <= 0 or tally.hold_seconds * (before + 1) / most >= waits.queue:
        return Would.QUEUE_TIMEOUT
    return Would.WAIT


def _fullest(line: Line, groups: Collection[str], now: float) -> Places | None:
    """Returns the limit whose queue would be the longest; None when a call of these groups has a place in all."""
    full = [places for places in line.limits if not places.free(groups)]
    if line.ring is not None:
        own = [key.places for key in usable(line.ring, now)]
        taken = [places for places in own if places is not None and not places.free(groups)]
        if taken and len(taken) == len(own):
            full.append(max(taken, key=lambda places: places.left(groups)))
    return min(full, key=lambda places: places.left(groups), default=None)


def _quota(line: Line, klass: int, tokens: float, now: float) -> float:
    """Returns the seconds until a call has quota; that keys rest is no quota of ours."""
    urgent = klass == 0
    bucket = emptiest(line, tokens, now, urgent=urgent)
    wait = bucket.wait(tokens if bucket in line.tokens else 1.0, now, urgent=urgent) if bucket is not None else 0.0
    keys = [] if line.ring is None else [key.quota_wait(now, tokens, urgent=urgent) for key in usable(line.ring, now)]
    return max(wait, min(keys, default=0.0))
