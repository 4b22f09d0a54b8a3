"""Alarm: lets admission look again at the very moment at which time alone may let somebody go."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from proxy.clock import Clock, Timer

SOONEST_SECONDS: Final = 0.001


class Alarm:
    """One timer, set to the earliest time that was asked for. `ring(now)` is called when it has come."""

    __slots__ = ("_clock", "_due_at", "_ring", "_timer")

    def __init__(self, ring: Callable[[float], None], clock: Clock) -> None:
        self._ring = ring
        self._clock = clock
        self._due_at = inf
        self._timer: Timer | None = None

    def set(self, when: float) -> None:
        """Asks for a look at this time (monotonic seconds); one that is later than the present one is dropped."""
        if when >= self._due_at:
            return
        self.stop()
        self._due_at = when
        self._timer = self._clock.call_at(max(when, self._clock.now() + SOONEST_SECONDS), self._over)

    def stop(self) -> None:
        """Forgets what was asked for."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._due_at = inf

    def _over(self) -> None:
        self._timer = None
        self._due_at = inf
        self._ring(self._clock.now())
