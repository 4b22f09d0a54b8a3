"""Holds: how long permits for one limit were held lately, while somebody waited for it.

Two numbers are made of them. `typical` is the median: a few streams of minutes beside many answers of a second do not
move it, and half of it is never above the mean, whatever the mix (Markov: at least half of all holds are as long). A
wait that is too long by half the median is too long by the mean as well. `mean` is what a queue takes in the long run.
"""

from __future__ import annotations

from collections import deque

MOST_HOLDS = 20
"""A provider that has become faster is believed after half as many."""
FEWEST_HOLDS = 10
OLDEST_SECONDS = 600.0


class Holds:
    """The last holds, none older than ten minutes, all of them under a limit of the same size."""

    __slots__ = ("_holds", "_size")

    def __init__(self) -> None:
        self._holds: deque[tuple[float, float]] = deque(maxlen=MOST_HOLDS)
        self._size = 0

    def __repr__(self) -> str:
        return f"<Holds {len(self._holds)} under {self._size}>"

    def add(self, seconds: float, now: float, *, size: int) -> None:
        """Counts a hold that has just ended; those under another size say nothing of this one."""
        if size != self._size:
            self._holds.clear()
            self._size = size
        self._holds.append((now, seconds))

    def typical(self, now: float, *, size: int) -> float | None:
        """Returns the median in seconds, the lower one of two; None while there are too few holds to tell."""
        holds = self._fresh(now) if size == self._size else []
        return sorted(holds)[(len(holds) - 1) // 2] if len(holds) >= FEWEST_HOLDS else None

    def mean(self, now: float) -> float:
        """Returns the mean in seconds, 0 without any holds."""
        holds = self._fresh(now)
        return sum(holds) / len(holds) if holds else 0.0

    def stale(self, now: float) -> bool:
        """Whether nothing is left that counts."""
        return not self._holds or self._holds[-1][0] <= now - OLDEST_SECONDS

    def _fresh(self, now: float) -> list[float]:
        return [seconds for at, seconds in self._holds if at > now - OLDEST_SECONDS]
