"""Taking: what a call may go with, or what it lacks (`semantics.md` §3). Here alone is known all that binds a call.

Nothing is taken here: whoever asks makes a `Permit` of the answer in the same step.
"""

from __future__ import annotations

from collections.abc import Collection

from proxy.decisions.keys import Key, KeyRing, Lack, Pinned, allowed, usable
from proxy.decisions.places import Places
from proxy.decisions.queues import Line
from proxy.decisions.quota import Bucket
from proxy.decisions.room import LOWEST
from proxy.decisions.shortage import Thing

Missing = tuple[Lack, Thing]


def find(line: Line, klass: int, tokens: float, tried: Collection[str] | None, now: float) -> Key | Missing | None:
    """Returns the key to go with (None where the line has no keys), or what is missing: the narrowest limit first."""
    groups = line.groups[klass]
    if not line.observes:
        if klass == LOWEST and not line.room.idle(now):
            return Lack.IDLE, line.room
        for places in reversed(line.limits):
            if places.used >= places.common and not places.free(groups):
                return Lack.PERMIT, places
        if line.requests or line.tokens:
            bucket = emptiest(line, tokens, now, urgent=klass == 0)
            if bucket is not None:
                return Lack.QUOTA, bucket
    ring = line.ring
    if ring is None:
        return None
    key = ring.choose(now, tried, klass=klass, tokens=tokens, groups=groups)
    if isinstance(key, Key):
        return key
    if line.observes and (key is Lack.PERMIT or key is Lack.QUOTA):
        return least_busy(ring, tried, now)
    return _awaited(key, ring, tried), ring


def _awaited(lack: Lack, ring: KeyRing, tried: Collection[str] | None) -> Lack:
    """Nobody waits for one certain key of several: who stands behind could go with another one."""
    return Lack.NO_KEY if isinstance(tried, Pinned) and len(ring.keys) > 1 else lack


def emptiest(line: Line, tokens: float, now: float, *, urgent: bool) -> Bucket | None:
    """Returns the bucket that lets a call of so many tokens wait the longest; None when all let it go."""
    longest = 0.0
    found: Bucket | None = None
    for bucket in line.requests:
        wait = bucket.wait(1.0, now, urgent=urgent)
        if wait > longest:
            longest, found = wait, bucket
    for bucket in line.tokens:
        wait = bucket.wait(tokens, now, urgent=urgent)
        if wait > longest:
            longest, found = wait, bucket
    return found


def least_busy(ring: KeyRing, tried: Collection[str] | None, now: float) -> Key:
    """Returns the key that is least above its share, untried ones first, when every key that could be used is full."""
    keys = allowed(usable(ring, now), tried)
    return min(keys, key=lambda key: (key.id in (tried or ()), above(key.places)))


def above(places: Places | None) -> int:
    """Returns by how many calls a limit is overstepped; below zero while it is not."""
    return places.used - places.size if places is not None else 0
