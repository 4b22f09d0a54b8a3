"""One rate that a provider grants: what is left of it, and when the next call of a size fits."""

from __future__ import annotations

from enum import StrEnum
from math import inf

MINUTE = 60.0
_ROUNDING = 1e-6


class Refill(StrEnum):
    """How a rate comes back: as time passes, or all at once when the next window begins."""

    CONTINUOUS = "continuous"
    WINDOW = "window"


class Allowance:
    """So many units per minute; `size` of them, those of one window (seconds) and one at least, can be used at once.

    Windows follow each other from the start on. What was used beyond the size is a debt for as long as the window.
    """

    __slots__ = ("_at", "_left", "_refill", "_window", "per_minute", "size")

    def __init__(self, per_minute: float, *, window: float, refill: Refill, now: float) -> None:
        self.per_minute = per_minute
        self.size = max(per_minute * window / MINUTE, 1.0)
        self._window = window
        self._refill = refill
        self._left = self.size
        self._at = now

    def __repr__(self) -> str:
        return f"<Allowance {self._left:g}/{self.size:g}, {self.per_minute:g} a minute, {self._refill}>"

    def left(self, now: float) -> float:
        """Returns what may be used now; below zero after more was used than that."""
        self._refresh(now)
        return self._left

    def wait(self, amount: float, now: float) -> float:
        """Returns the seconds until `amount` may be used: 0 for now, infinity for more than the size."""
        if amount > self.size:
            return inf
        lacking = amount - self.left(now)
        return self._seconds(lacking, now) if lacking > _ROUNDING else 0.0

    def full_in(self, now: float) -> float:
        """Returns the seconds until nothing is used any more: what providers call the reset."""
        lacking = self.size - self.left(now)
        return self._seconds(lacking, now) if lacking > _ROUNDING else 0.0

    def take(self, amount: float, now: float) -> None:
        """Uses `amount`, whether it is left or not."""
        self._refresh(now)
        self._left -= amount

    def _seconds(self, lacking: float, now: float) -> float:
        if self._refill is Refill.WINDOW:
            return self._at + self._window - now
        return lacking * MINUTE / self.per_minute

    def _refresh(self, now: float) -> None:
        elapsed = now - self._at
        if self._refill is Refill.CONTINUOUS:
            self._left = min(self._left + elapsed * self.per_minute / MINUTE, self.size)
            self._at = now
        elif elapsed >= self._window:
            self._left = self.size
            self._at += elapsed // self._window * self._window
