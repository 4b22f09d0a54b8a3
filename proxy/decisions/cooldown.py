"""Cooldown: how long a breaker stays open (`semantics.md` §1).

`first · 2ⁿ` × a jitter of 1.0-1.2, from `first` to `cap`, and longer where the provider told a longer Retry-After. The
bounds hold for the jittered time: at `cap` there is no jitter left, and instances that opened together probe together,
each with a few calls.
"""

from __future__ import annotations

from collections.abc import Callable

JITTER_SPAN = 0.2
MOST_DOUBLINGS = 30
LONGEST_EXTENSION_SECONDS = 300.0
"""How far a provider's Retry-After may lengthen the open state: one absurd answer must not end all calls for a day."""


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
        """Takes note of health: n falls by one for each period of twice the last duration, extensions included."""
        if self._last_seconds > 0:
            periods = int(seconds / (2 * self._last_seconds))
            self._next_doublings = max(0, self._next_doublings - periods)

    def longer(self, first: float, cap: float, *, told: float = 0.0) -> float:
        """Returns the seconds to stay open, at least `told`, and lets the next time be longer."""
        doublings = self._next_doublings
        while doublings and first * 2.0 ** (doublings - 1) >= cap:  # A reload has moved `first` or `cap`.
            doublings -= 1
        self._last_doublings = self._next_doublings = doublings
        if first * 2.0**doublings < cap and doublings < MOST_DOUBLINGS:
            self._next_doublings = doublings + 1
        return self._seconds(first, cap, told)

    def same(self, first: float, cap: float, *, told: float = 0.0) -> float:
        """Returns the seconds to stay open once more, with the n of the last time."""
        return self._seconds(first, cap, told)

    def _seconds(self, first: float, cap: float, told: float) -> float:
        seconds = first * 2.0**self._last_doublings * (1.0 + JITTER_SPAN * self._jitter())
        self._last_seconds = max(min(max(seconds, first), cap), min(told, LONGEST_EXTENSION_SECONDS))
        return self._last_seconds
