"""Quota: token buckets on monotonic time, for requests or for tokens per minute (`semantics.md` §4).

Owns the level. Whoever takes reserves an estimate and gives back or pays the difference when the truth is known, so a
level may be below zero: then the next call waits the longer. Never more is given out than the bucket holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

MINUTE = 60.0
LEAST_RATE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSettings:
    """`headroom`: part of rpm and tpm that is used; `burst`: seconds of rate that a bucket holds."""

    headroom: float = 0.8
    burst: float = 5.0


class Bucket:
    """What may still be used of a rate. It holds `capacity` at most: some seconds of rate, one request at least.

    A new bucket holds nothing but its first request, whatever its size (`policy.md` rule 5). An amount that is larger
    than the bucket goes when the bucket is full, and leaves it in debt. `reserved` of the capacity is only for P0.
    `most` is what the whole fleet may use in a minute, one at least: an amount above it never goes.
    """

    __slots__ = ("_at", "_fresh", "_level", "capacity", "label", "most", "rate", "reserved")

    def __init__(self, label: str, now: float) -> None:
        self.label = label
        self.rate = self.capacity = self.reserved = 0.0
        self.most = inf
        self._level = 0.0
        self._at = now
        self._fresh = True

    def __repr__(self) -> str:
        return f"<Bucket {self.label} {self._level:g}/{self.capacity:g}, {self.rate * MINUTE:g} a minute>"

    def reconfigure(self, per_minute: float, now: float, *, burst: float, most: float, reserved: float = 0.0) -> None:
        """Takes a new rate (units per minute, this instance's part), from now on; what was used stays used.

        `burst` is in seconds, `reserved` a part (0-1) of the bucket.
        """
        self._refill(now)
        self.rate = max(per_minute, 0.0) / MINUTE
        self.capacity = max(self.rate * burst, 1.0) if self.rate > LEAST_RATE else 0.0
        self.reserved = self.capacity * reserved
        self.most = max(most, 1.0)
        self._level = min(self._level, self.capacity)

    def level(self, now: float) -> float:
        """Returns what it holds now; below zero when it is in debt."""
        self._refill(now)
        return self._level

    def part(self, now: float) -> float:
        """Returns what it holds as a part (0-1) of what it can hold."""
        if not self.capacity:
            return 0.0
        return 1.0 if self._fresh else min(max(self.level(now) / self.capacity, 0.0), 1.0)

    def never(self, amount: float) -> bool:
        """Whether no waiting helps: the amount is above a whole minute of the fleet, or nothing is allowed at all."""
        return not self.capacity or amount > self.most

    def wait(self, amount: float, now: float, *, urgent: bool = False) -> float:
        """Returns the seconds until a call of this amount may go: 0 for now, endless for one that never may.

        `urgent` calls may use the reserve.
        """
        if not self.capacity or amount > self.most:
            return inf
        if self._fresh:
            return 0.0
        needed = min(amount if urgent else amount + self.reserved, self.capacity)
        lacking = needed - self.level(now)
        return lacking / self.rate if lacking > needed * 1e-9 else 0.0

    def take(self, amount: float, now: float) -> None:
        """Takes this amount; whether it may go was asked before."""
        self._refill(now)
        if self._fresh:
            self._fresh = False
            self._level = max(self._level, min(amount, self.capacity))
        self._level -= amount

    def give(self, amount: float, now: float) -> None:
        """Gives back what was taken and not used; a negative amount pays for what was used beyond that."""
        self._refill(now)
        self._level = min(self._level + amount, self.capacity)

    def hint(self, remaining: float, now: float) -> None:
        """Takes the provider's word for how much is left at most."""
        self._refill(now)
        self._level = min(self._level, remaining)

    def forgive(self, now: float) -> None:
        """Lets a debt be at most a minute of rate: where nothing is enforced it would outlast what made it."""
        self._refill(now)
        self._level = max(self._level, -self.rate * MINUTE)

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self._level + (now - self._at) * self.rate, self.capacity)
            self._at = now
