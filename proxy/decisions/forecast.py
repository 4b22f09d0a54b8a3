"""Forecast: whether a newcomer's wait would be in vain, and when it is worth another try (`semantics.md` §3).

What time alone brings back is known exactly: rests, and quotas with the estimates of all who stand before. For permits
it is told only from enough holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from proxy.decisions.keys import KeyRing, Lack
from proxy.decisions.queues import TIMED, Ask, Line, Queue, Refusal, Waiter
from proxy.decisions.quota import Bucket
from proxy.decisions.shortage import SHORTEST_RETRY_AFTER, Shortage
from proxy.outcome import Reason

HOPELESS = "Those who wait already would take longer than this request may wait. Try again later."
TOO_LARGE = (
    "This request would use about {tokens:.0f} tokens, more than {limit}: no waiting helps. Send a shorter prompt, ask "
    "for fewer tokens, or raise the limit."
)
NONE_ALLOWED = "The policy allows no requests or no tokens here."


class Place(NamedTuple):
    """Where in a line a newcomer would stand, and what it would use."""

    klass: int
    tenant: str
    tokens: float


def unusable() -> Refusal:
    """No key can ever be used by waiting."""
    return Refusal(reason=Reason.KEYS_UNUSABLE, retry_after=None)


def in_vain(line: Line, ask: Ask, lack: Lack, shortage: Shortage[Queue], now: float) -> Refusal | None:
    """Returns the refusal of a newcomer for whom waiting would be in vain, or has no room; None: it may wait."""
    if lack is Lack.NO_KEY or (line.ring is not None and line.ring.usable_at(now) is None):
        return unusable()
    left = ask.deadline_at - now
    waits = ask.limits.quota_wait if lack in TIMED else ask.limits.queue + ask.limits.quota_wait
    rests, wait = _rest(line, now), _quota(line, ask, shortage, now)
    refusal = _too_late(rests, wait, seconds=max(min(waits, left), 0.0))
    if refusal is not None:
        return refusal
    if not line.room.has_room(ask.klass, ask.bytes):
        after = shortage.expected_wait(ask.klass, now) if lack not in TIMED else SHORTEST_RETRY_AFTER
        return Refusal(reason=Reason.QUEUE_FULL, retry_after=max(after, rests, wait))
    if lack not in TIMED:
        seconds = min(ask.limits.queue, left)
        if seconds <= 0 or shortage.hopeless(ask.klass, seconds, now):
            after = shortage.expected_wait(ask.klass, now)
            return Refusal(reason=Reason.QUEUE_TIMEOUT, retry_after=after, detail=HOPELESS * (seconds > 0))
    return None


def too_large(line: Line, tokens: float) -> Refusal | None:
    """Returns the refusal of a call that no waiting helps: it needs more than the whole fleet may use in a minute."""
    for bucket in line.tokens:
        if bucket.capacity and bucket.never(tokens):
            limit = f"the {bucket.most:.0f} that the fleet may use in a minute ({bucket.label})"
            detail = TOO_LARGE.format(tokens=tokens, limit=limit)
            return Refusal(reason=Reason.CONTEXT_TOO_LONG, retry_after=None, detail=detail)
    if line.ring is not None and line.ring.never(tokens):
        detail = TOO_LARGE.format(tokens=tokens, limit="any key may use in a minute")
        return Refusal(reason=Reason.CONTEXT_TOO_LONG, retry_after=None, detail=detail)
    return None


def never(line: Line, lack: Lack, tokens: float) -> Refusal | None:
    """Returns the refusal of a waiter that no waiting helps any more: its keys are parked, or its limits are lower."""
    if lack is Lack.NO_KEY:
        return unusable()
    return too_large(line, tokens) if lack is Lack.QUOTA else None


def why_late(queue: Queue, waiter: Waiter, now: float) -> Refusal:
    """Names what was missing when a waiter's time was over."""
    line = queue.line
    if line.ring is not None and line.ring.usable_at(now) is None:
        return unusable()
    assert queue.shortage is not None
    if queue.lack in TIMED:
        rests = _rest(line, now) if queue.lack is Lack.KEY else 0.0
        # Whoever comes again stands behind those who stay.
        after = _behind(line, Place(queue.klass, waiter.tenant, waiter.tokens), queue.shortage, now)
        after = after or SHORTEST_RETRY_AFTER
        if rests > 0:
            return Refusal(reason=Reason.KEYS_RESTING, retry_after=after if after < inf else rests)
        return Refusal(reason=Reason.QUOTA_EXHAUSTED, retry_after=after if after < inf else None)
    return Refusal(reason=Reason.QUEUE_TIMEOUT, retry_after=queue.shortage.expected_wait(queue.klass, now))


def quota_wait(line: Line, klass: int, tokens: float, now: float, *, before: Iterable[Waiter] = ()) -> float:
    """Returns the seconds until a call of so many tokens has quota and a rested key, after those `before` it."""
    urgent = klass == 0
    ahead = list(before)
    waits = [_after(bucket, 1.0, float(len(ahead)), now, urgent=urgent) for bucket in line.requests]
    waits += [_after(b, tokens, sum(waiter.tokens for waiter in ahead), now, urgent=urgent) for b in line.tokens]
    if line.ring is not None:
        waits.append(_ring_wait(line.ring, tokens, ahead, now, urgent=urgent))
    return max(waits, default=0.0)


def back_at(line: Line, lack: Lack, klass: int, tokens: float, now: float) -> float:
    """Returns when time alone may have brought back what is missing; endless when it does not, or has done so."""
    if lack is Lack.IDLE:
        return line.room.idle_at(now)
    if lack in TIMED:
        return now + (quota_wait(line, klass, tokens, now) or inf)
    return inf if line.ring is None else line.ring.more_at(now, tokens, urgent=klass == 0)


def _rest(line: Line, now: float) -> float:
    """Returns the seconds until a key has rested."""
    return (line.ring.usable_at(now) or now) - now if line.ring is not None else 0.0


def _quota(line: Line, ask: Ask, shortage: Shortage[Queue], now: float) -> float:
    """Returns the seconds until a newcomer has quota and a rested key; 0 where nothing is metered."""
    ring = line.ring
    if line.observes:
        return 0.0
    if not line.requests and not line.tokens and (ring is None or not any(key.metered for key in ring.keys)):
        return 0.0
    return _behind(line, Place(ask.klass, ask.tenant, ask.tokens), shortage, now)


def _behind(line: Line, place: Place, shortage: Shortage[Queue], now: float) -> float:
    """Returns the seconds until whoever comes now has quota and a rested key, after all who stand before and stay."""
    klass, _, tokens = place
    before = [waiter for waiter in _before(line, place) if waiter.expires_at > now]
    wait = quota_wait(line, klass, tokens, now, before=before)
    bucket = shortage.thing
    if not isinstance(bucket, Bucket):
        return wait
    others = [queue.waiters for queue in shortage.members if queue.line is not line and queue.klass <= klass]
    before += [waiter for waiters in others for waiter in waiters if waiter.expires_at > now]
    if bucket in line.tokens:
        return max(wait, _after(bucket, tokens, sum(w.tokens for w in before), now, urgent=klass == 0))
    if bucket in line.requests:
        return max(wait, _after(bucket, 1.0, float(len(before)), now, urgent=klass == 0))
    return wait


def _too_late(rests: float, wait: float, *, seconds: float) -> Refusal | None:
    """Refuses who could not have quota and a rested key within so many seconds."""
    if rests > seconds:
        return Refusal(reason=Reason.KEYS_RESTING, retry_after=max(rests, wait) if wait < inf else rests)
    if wait <= seconds:
        return None
    if wait == inf:
        return Refusal(reason=Reason.QUOTA_EXHAUSTED, retry_after=None, detail=NONE_ALLOWED)
    return Refusal(reason=Reason.QUOTA_EXHAUSTED, retry_after=wait)


def _before(line: Line, place: Place) -> Iterable[Waiter]:
    """Yields who goes before a newcomer of this line: higher classes, and what is fair of its own."""
    for klass in range(place.klass):
        yield from line.queues[klass].waiters
    yield from line.queues[place.klass].waiters.before(place.tenant, place.tokens or 1.0)


def _after(bucket: Bucket, amount: float, ahead: float, now: float, *, urgent: bool) -> float:
    """Returns the seconds until this amount may go after another one has gone before it."""
    wait = bucket.wait(amount, now, urgent=urgent)
    if not ahead or not bucket.rate:
        return wait
    # Who goes first leaves the bucket that much emptier; what does not fit into it at once takes as long as it fills.
    needed = min(amount if urgent else amount + bucket.reserved, bucket.capacity)
    return max(wait, (ahead + needed - bucket.level(now)) / bucket.rate)


def _ring_wait(ring: KeyRing, tokens: float, ahead: list[Waiter], now: float, *, urgent: bool) -> float:
    """Returns the seconds until some key can be used: those before need what all keys together bring back."""
    soonest = ring.quota_at(now, tokens, urgent=urgent) - now
    if not ahead or soonest == inf:
        return soonest
    keys = [key for key in ring.keys if key.usable]
    if any(not key.metered for key in keys):
        return soonest
    requests = [bucket for key in keys for bucket in key.requests]
    all_tokens = [bucket for key in keys for bucket in key.tokens]
    needs = [(requests, len(ahead) + 1.0), (all_tokens, sum(waiter.tokens for waiter in ahead) + tokens)]
    for buckets, needed in needs:
        rate = sum(bucket.rate for bucket in buckets)
        if len(buckets) == len(keys) and rate:
            level = sum(bucket.level(now) for bucket in buckets)
            soonest = max(soonest, (needed - level) / rate)
    return soonest
