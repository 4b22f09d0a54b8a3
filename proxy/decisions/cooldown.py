"""Cooldown: how long a breaker stays open (`semantics.md` §1): `first · 2ⁿ`, jittered, from `first` to `cap`."""

from __future__ import annotations

from collections.abc import Callable

JITTER_SPAN = 0.2
MOST_DOUBLINGS = 30


class Cooldown:
    """Counts n. It stops where `cap` is reached, so that a long outage is forgotten as fast as a short one.

    `jitter()` gives 0-1.
    """

    __slots__ = ("_jitter", "_last_doublings", "_last_seconds", "_next_doublings")

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self._next_doublings = self._last_doublings = 0
        self._last_seconds = 0.0

    def __repr__(self) -> str:
        return f"<Cooldown last {self._last_seconds:.1f} s, n {self._next_doublings}>"

    def healthy(self, seconds: float) -> None:
        """Takes note of health: n falls by one for each period of twice the last duration."""
        if self._last_seconds > 0:
            periods = int(seconds / (2 * self._last_seconds))
            self._next_doublings = max(0, self._next_doublings - periods)

    def longer(self, first: float, cap: float) -> float:
        """Returns the seconds to stay open, and lets the next time be longer."""
        doublings = self._last_doublings = self._next_doublings
        if first * 2.0**doublings < cap and doublings < MOST_DOUBLINGS:
            self._next_doublings = doublings + 1
        return self._seconds(first, cap)

    def same(self, first: float, cap: float) -> float:
        """Returns the seconds to stay open once more, with the n of the last time."""
        return self._seconds(first, cap)

    def _seconds(self, first: float, cap: float) -> float:
        seconds = first * 2.0**self._last_doublings * (1.0 + JITTER_SPAN * self._jitter())
        self._last_seconds = min(max(seconds, first), cap)
        return self._last_seconds
