"""A bucket's books, kept by hand: what was there at the start, what time brought, what was taken and given back."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from proxy.decisions.quota import MINUTE, Bucket

ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What a policy says of a bucket; None for `per_minute`: nothing, the bucket binds nobody."""

    per_minute: float | None
    burst: float = 5.0
    reserved: float = 0.0
    most: float = inf


class Ledger:
    """The books of one bucket, which hold as much as its policy says and begin with one request's worth."""

    def __init__(self, bucket: Bucket, rate: Rate, now: float) -> None:
        self.bucket = bucket
        self._fresh = True
        self._level = 0.0
        self._at = now
        self.rate = self.capacity = self.reserved = 0.0
        self.most = inf
        self.change(rate, now)

    def change(self, rate: Rate, now: float) -> None:
        """A reload: what was used stays used, and what is held is never more than the bucket."""
        self.pass_time(now)
        per_minute = rate.per_minute or 0.0
        self.bucket.reconfigure(per_minute, now, burst=rate.burst, most=rate.most, reserved=rate.reserved)
        self.rate = per_minute / MINUTE
        self.capacity = max(self.rate * rate.burst, 1.0) if per_minute else 0.0
        self.reserved = self.capacity * rate.reserved
        self.most = max(rate.most, 1.0)
        self._level = min(self._level, self.capacity)

    def pass_time(self, now: float) -> None:
        """What time brought."""
        self._level = min(self._level + (now - self._at) * self.rate, self.capacity)
        self._at = now

    def level(self, now: float) -> float:
        """What is left."""
        self.pass_time(now)
        return self._level

    def enough(self, amount: float, now: float, *, urgent: bool, margin: float = ROUNDING) -> bool:
        """Whether a call of this amount may go: all of it is there, or the bucket is full."""
        if not self.capacity or amount > self.most:
            return False
        if self._fresh:
            return True
        needed = amount if urgent else amount + self.reserved
        return self.level(now) >= min(needed, self.capacity) + margin * max(needed, 1.0)

    def take(self, amount: float, now: float, *, urgent: bool) -> None:
        """A call has taken this amount: it must have been there."""
        assert self.enough(amount, now, urgent=urgent, margin=-ROUNDING), f"{amount} from {self._level}, {self.bucket}"
        self.pass_time(now)
        if self._fresh:
            self._fresh = False
            self._level = max(self._level, min(amount, self.capacity))
        self._level -= amount

    def give(self, amount: float, now: float) -> None:
        """What was not used comes back, what was used beyond it is paid: the bucket holds no more than it can."""
        self.pass_time(now)
        self._level = min(self._level + amount, self.capacity)

    def hint(self, amount: float, now: float) -> None:
        """The provider has said that no more than this is left."""
        self.bucket.hint(amount, now)
        self.pass_time(now)
        self._level = min(self._level, amount)

    def check(self, now: float) -> None:
        """The bucket agrees."""
        assert abs(self.bucket.level(now) - self.level(now)) <= ROUNDING * max(abs(self._level), 1.0), self.bucket
        assert self._level <= self.capacity
